"""Which tensors a function can reach without being given them, and by which ways.

Entered are closure cells, defaults, the globals that the code (and code nested in it) names, and
from there containers, objects, methods and other functions; of modules what the code names in them,
of classes the tensors. Every step that can be changed later is an edge; the edges that lead to
tensors are what must still hold when a recording is replayed. Methods and Python values of a user's
classes are found by the names that code uses, whatever they are attributes of.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dis import get_instructions
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from morok._core import Dispatcher
from morok.caches import memoized
from morok.capture.structure import Wrapper, attributes, has_attributes
from morok.tensor import Tensor

_ENTERED = (dict, list, tuple, set, frozenset, deque, MethodType, partial, Dispatcher, Wrapper)

_PLAIN = (int, float, complex, str, bytes, np.generic, np.ndarray)
_VALUES = (*_PLAIN, tuple, list, dict, set, frozenset)
_NOT_ENTERED = frozenset({*sys.stdlib_module_names, "builtins", "morok", "numpy"})
"""Packages whose functions and classes do what they do, whatever a user changes."""
_FOR_MAKING = frozenset({"__init__", "__new__", "__init_subclass__", "__repr__", "__str__"})


class Edge(NamedTuple):
    """`holder[key]` (kinds "dict", "list", "deque"), the contents of a "cell", or an attribute
    ("slot", or "class" if it stands in a class) is `value`, or it stands in a set ("member"). Kind
    "fixed" cannot change. Kind "size": a container that leads to tensors holds `value` things."""

    kind: str
    holder: Any
    key: Any
    value: Any
    name: str

    def now(self) -> Any:
        """What stands there now; None if nothing does."""
        if self.kind == "dict":
            return self.holder.get(self.key)
        if self.kind == "size":
            return len(self.holder)
        if self.kind == "member":
            return self.value if self.value in self.holder else None
        if self.kind in ("list", "deque"):
            return self.holder[self.key] if self.key < len(self.holder) else None
        if self.kind == "cell":
            return _contents(self.holder)
        if self.kind == "fixed":
            return self.value
        return getattr(self.holder, self.key, None)


class Reached(NamedTuple):
    """Tensors in the order they were found, where each stands, and the edges that lead there."""

    tensors: list[Tensor]
    names: list[str]
    edges: list[Edge]


def reach(roots: list[Any]) -> Reached:
    """Everything reachable from functions and other objects."""
    tensors: dict[int, Tensor] = {}
    names: list[str] = []
    arrival: dict[int, Edge | None] = {id(root): None for root in roots}
    source: dict[int, Any] = {}  # by id: from which object it was first reached
    to_tensors: list[tuple[Edge, Any]] = []
    waiting = deque(roots)
    kept: list[Any] = []
    while waiting:
        here = waiting.popleft()
        kept.append(here)
        for edge in _steps(here):
            value = edge.value
            if isinstance(value, Tensor):
                if id(value) not in tensors:
                    tensors[id(value)] = value
                    names.append(_name(edge, here, arrival, source))
                to_tensors.append((edge, here))
            elif id(value) not in arrival and _enterable(value):
                arrival[id(value)] = edge
                source[id(value)] = here
                waiting.append(value)
    edges: dict[tuple[str, int, Any], Edge] = {}
    for edge, here in to_tensors:
        step: Edge | None = edge
        while step is not None and (step.kind, id(step.holder), _hashable(step.key)) not in edges:
            edges[step.kind, id(step.holder), _hashable(step.key)] = step
            if here is step.holder and isinstance(here, (list, dict, deque, set)):
                edges["size", id(here), None] = Edge("size", here, None, len(here), "")
            step, here = arrival[id(here)], source.get(id(here))
    changeable = [edge for edge in edges.values() if edge.kind != "fixed"]
    return Reached(list(tensors.values()), names, changeable)


def closed_over(root: Any) -> Iterator[tuple[str, Any]]:
    """What a function, method or partial function closes over, or the tensors that stand in a
    class, and the names of all that. Functions of this package close over nothing of a user's."""
    if isinstance(root, type):
        edges = _of_class(root, root)
    elif isinstance(root, (FunctionType, MethodType, partial, Dispatcher, Wrapper)):
        edges = _steps(root) if _enterable(root) else iter(())
    else:
        edges = iter(())
    for edge in edges:
        yield edge.name.lstrip("."), edge.value


def names_in(root: Any) -> frozenset[str]:
    """The names that a function's code uses: its globals, and attributes of whatever."""
    return _all_names(root.__code__) if isinstance(root, FunctionType) else frozenset()


def is_users(value: Any) -> bool:
    """Whether this is a class whose methods are a user's."""
    return isinstance(value, type) and value.__module__.partition(".")[0] not in _NOT_ENTERED


def methods_of(cls: type, named: Container[str]) -> Iterator[Any]:
    """The functions in a class that stand under one of the names, or that Python calls itself."""
    for name, value in _in_class(cls):
        if name in named or (name[:2] == "__" and name not in _FOR_MAKING):
            inner = value.fget if isinstance(value, property) else value
            inner = getattr(inner, "__func__", inner)  # of a staticmethod or classmethod
            if isinstance(inner, (FunctionType, Dispatcher, Wrapper)):
                yield inner


def values_of(cls: type, named: Container[str]) -> Iterator[tuple[str, Any]]:
    """The Python values that stand in a class under one of the names."""
    for name, value in _in_class(cls):
        if name in named and name[:2] != "__" and isinstance(value, _VALUES):
            yield name, value


def _in_class(cls: type) -> Iterator[tuple[str, Any]]:
    for each in cls.__mro__:
        if is_users(each):
            yield from vars(each).items()


def _hashable(key: Any) -> Any:
    return key if isinstance(key, (str, int)) else id(key)


def _name(edge: Edge, here: Any, arrival: dict[int, Edge | None], source: dict[int, Any]) -> str:
    parts = [edge.name]
    step = arrival[id(here)]
    while step is not None:
        parts.append(step.name)
        here = source[id(here)]
        step = arrival[id(here)]
    return "".join(reversed(parts)).lstrip(".")


def _enterable(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return not value.__module__.startswith("morok.")
    if isinstance(value, type):
        return any(True for _ in _of_class(value, value))
    return isinstance(value, _ENTERED) or has_attributes(value)


def _steps(here: Any) -> Iterator[Edge]:
    if isinstance(here, FunctionType):
        yield from _of_function(here)
    elif isinstance(here, (Dispatcher, Wrapper)):
        yield Edge("fixed", here, "__wrapped__", here.__wrapped__, "")
    elif isinstance(here, MethodType):
        yield Edge("fixed", here, "self", here.__self__, "self")
        yield Edge("fixed", here, "func", here.__func__, "")
    elif isinstance(here, partial):
        for part in (here.func, here.args, here.keywords):
            yield Edge("fixed", here, id(part), part, "")
    elif isinstance(here, dict):
        for key, value in list(here.items()):
            yield Edge("dict", here, key, value, f"[{key!r}]")
    elif isinstance(here, list):
        for i, value in enumerate(here):
            yield Edge("list", here, i, value, f"[{i}]")
    elif isinstance(here, (tuple, set, frozenset, deque)):
        within = {deque: "deque", set: "member"}
        how = next((within[c] for c in within if isinstance(here, c)), "fixed")
        for i, value in enumerate(here):
            yield Edge(how, here, i, value, f"[{i}]")
    elif isinstance(here, type):
        yield from _of_class(here, here)
    if has_attributes(here):
        yield from _of_class(here, type(here))
        own = getattr(here, "__dict__", {})
        for name, value in list(attributes(here)):
            kind, holder = ("dict", own) if name in own else ("slot", here)
            yield Edge(kind, holder, name, value, f".{name}")


def _of_function(function: FunctionType) -> Iterator[Edge]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        value = _contents(cell)
        if isinstance(value, ModuleType):
            yield from _of_module(value, function.__code__.co_names)
        elif value is not None:
            yield Edge("cell", cell, 0, value, f".{name}")
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield Edge("fixed", function, id(value), value, ".default")
    for name in _named(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from _of_module(value, function.__code__.co_names)
        elif value is not None:
            yield Edge("dict", function.__globals__, name, value, f".{name}")
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield Edge("fixed", function, "__wrapped__", wrapped, "")


def _of_class(holder: Any, cls: type) -> Iterator[Edge]:
    """Tensors that stand in a class, as `holder` sees them."""
    found = (name for c in cls.__mro__ for name, v in vars(c).items() if isinstance(v, Tensor))
    for name in dict.fromkeys(found):
        value = getattr(holder, name, None)
        if isinstance(value, Tensor):
            yield Edge("class", holder, name, value, f".{name}")


def _of_module(module: ModuleType, names: Sequence[str]) -> Iterator[Edge]:
    """What a function that uses these names can find in a module: tensors and what holds them."""
    if module.__name__.partition(".")[0] == "morok":
        return
    own = module.__name__.partition(".")[0] not in _NOT_ENTERED
    found = (Tensor, *_VALUES, *((FunctionType, type) if own else ()))
    for name in names:
        value = vars(module).get(name)
        if isinstance(value, found) or has_attributes(value):
            yield Edge("dict", vars(module), name, value, f".{name}")
        elif isinstance(value, ModuleType) and value.__name__.startswith(f"{module.__name__}."):
            yield from _of_module(value, names)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


@memoized(1024)
def _all_names(code: CodeType) -> frozenset[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*map(_all_names, inner))


@memoized(1024)
def _named(code: CodeType) -> tuple[str, ...]:
    """The globals that code, and code nested in it, loads."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    found = [each.argval for each in get_instructions(code) if each.opname in loads]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _named(constant)
    return tuple(dict.fromkeys(found))
