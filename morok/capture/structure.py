"""Arguments and results taken apart: the tensors in them, and a key for all the rest.

Lists, tuples, dicts, sets, deques and objects are entered, as deep as they go. Python values are
part of the key, arrays by their contents; what cannot be entered (functions, modules, classes)
counts by identity. The same tensor or object met again is a reference to the first.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from morok import config, engine
from morok._core import Dispatcher, Flat, dispatch_by, enter_attributes
from morok.dtype import DType
from morok.ir import UOp
from morok.tensor import Tensor, grad_mode, tracing


class Same:
    """An object that counts by identity; kept alive, so that no other takes its place."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__} at {id(self.value):#x}>"


class Wrapper:
    """A function in place of another, `__wrapped__`: it counts by identity."""

    __wrapped__: Callable[..., Any]


OPAQUE = (type, ModuleType, FunctionType, MethodType, DType, Enum, Dispatcher, Wrapper, UOp)


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The instance attributes of an object: its `__dict__` and the `__slots__` of its classes."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                name = f"_{cls.__name__.lstrip('_')}{name}" if name[:2] == "__" else name
                if hasattr(value, name):
                    yield name, getattr(value, name)


def has_attributes(value: Any) -> bool:
    """Whether an object is made of attributes Python can see."""
    cls = type(value)
    if isinstance(value, OPAQUE) or cls.__module__ == "builtins":
        return False
    return hasattr(value, "__dict__") or any("__slots__" in c.__dict__ for c in cls.__mro__)


_CONTAINERS = (list, tuple, dict)  # whose items the core has added already
_VALUES = (int, float, complex, str, bytes, bytearray)  # of subclasses or not known to the core


def _describe(flat: Flat, value: Any, name: str | None) -> None:
    """Take apart what the core does not know."""
    cls, key = type(value), flat.key
    if isinstance(value, _CONTAINERS):
        if hasattr(value, "__dict__"):
            _add_attributes(flat, value, name)
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype.hasobject:
        key += (cls, str(value.dtype), value.shape)
        flat.add(value.tolist(), name)
    elif isinstance(value, (np.ndarray, np.generic)):
        key += (cls, str(value.dtype), value.shape, value.tobytes())
    elif isinstance(value, _VALUES) and not isinstance(value, Enum):
        # As text: floats are told apart by bits, and a bytearray may change later.
        key += (cls, next(c.__repr__(value) for c in _VALUES if isinstance(value, c)))
        if hasattr(value, "__dict__"):
            _add_attributes(flat, value, name)
    elif isinstance(value, (set, frozenset, deque)):
        key += (cls, len(value), getattr(value, "maxlen", None))
        for i, each in enumerate(value):
            flat.add(each, name and f"{name}[{i}]")
    elif isinstance(value, partial):
        key.append(cls)
        for part in (value.func, value.args, value.keywords):
            flat.add(part, name)
    elif isinstance(value, (array, memoryview)):
        key += (cls, memoryview(value).format, value.tobytes())
    elif has_attributes(value):
        is_array = hasattr(cls, "__array__")
        slots = any(c.__dict__.get("__slots__") for c in cls.__mro__)
        if hasattr(value, "__dict__") and not slots and not is_array:
            enter_attributes(cls)
        if not flat.again(value):
            key.append(cls)
            before = len(flat.tensors)
            _add_attributes(flat, value, name)
            if is_array and len(flat.tensors) == before:  # an array of another package
                contents = np.asarray(value)
                flat.add(contents.tolist() if contents.dtype.hasobject else contents, name)
    else:
        key.append(Same(value))
        flat.opaque.append(value)


def _add_attributes(flat: Flat, value: Any, name: str | None) -> None:
    for attribute, each in attributes(value):
        flat.key.append(attribute)
        flat.add(each, name and f"{name}.{attribute}")
    flat.key.append(None)  # the end, which no attribute is called


dispatch_by(
    _describe, grad_mode, engine.thread_record, tracing.thread_trace, config.get, engine.watchers
)


def flatten(*values: Any) -> Flat:
    """Take `values` apart."""
    flat = Flat()
    for value in values:
        flat.add(value)
    return flat


def names_of(named: Sequence[tuple[str, Any]]) -> list[str]:
    """Where each tensor in `named` values stands, in the order of `flatten`."""
    flat = Flat(named=True)
    for name, value in named:
        flat.add(value, name)
    return flat.names


Rebuild = Callable[[Sequence[Any]], Any]


def rebuilder(value: Any, places: dict[int, int]) -> Rebuild:
    """A function that makes a result like `value` with other tensors: in the place of tensor t
    stands the one of number `places[id(t)]`."""
    cls = type(value)
    if isinstance(value, Tensor):
        place = places[id(value)]
        return lambda given: given[place]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        parts = [rebuilder(each, places) for each in value]
        if cls is list:
            return lambda given: [part(given) for part in parts]
        if cls is tuple:
            return lambda given: tuple([part(given) for part in parts])
        if hasattr(cls, "_fields"):  # a named tuple
            return lambda given: cls(*[part(given) for part in parts])
        if isinstance(value, deque):
            longest = value.maxlen
            return lambda given: cls([part(given) for part in parts], longest)
        return lambda given: cls([part(given) for part in parts])
    if isinstance(value, dict):
        pairs = [(k, rebuilder(each, places)) for k, each in value.items()]
        if cls is dict:
            return lambda given: {k: part(given) for k, part in pairs}
        start = (value.default_factory,) if isinstance(value, defaultdict) else ()
        return lambda given: _filled(cls(*start), pairs, given)
    if isinstance(value, np.ndarray):
        return lambda given: value.copy()
    if has_attributes(value):
        named = [(name, rebuilder(each, places)) for name, each in attributes(value)]
        return lambda given: _object(cls, named, given)
    return lambda given: value


def _filled(made: Any, pairs: list[tuple[Any, Rebuild]], given: Sequence[Any]) -> Any:
    for key, part in pairs:
        made[key] = part(given)
    return made


def _object(cls: type, named: list[tuple[str, Rebuild]], given: Sequence[Any]) -> Any:
    made: Any = object.__new__(cls)
    for name, part in named:
        object.__setattr__(made, name, part(given))
    return made
