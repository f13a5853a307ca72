"""Check mode: a call is run both plainly and as a replay, from the same state, and compared.

What differs depends on something a replay does not see: a Python value of a global or of the
closure that has changed since the recording.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from morok._core import MISS, PLAIN, Capture
from morok.capture.structure import flatten, names_of
from morok.capture.trace import Tracer, place_of
from morok.dtype import DType, to_numpy
from morok.errors import JitError
from morok.tensor import Tensor, fail, generator, memory, state_after, versions


class _Value(NamedTuple):
    """The contents of a tensor at some time."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes

    def difference(self, other: _Value) -> str:
        """How another value differs, "" if in nothing."""
        if self == other:
            return ""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return f"{self.dtype} of shape {self.shape}, not {other.dtype} of shape {other.shape}"
        mine, theirs = (np.frombuffer(v.data, np.uint8) for v in (self, other))
        if self.dtype.name not in memory.WITHOUT_NUMPY:
            dtype = to_numpy(self.dtype)
            mine, theirs = mine.view(dtype), theirs.view(dtype)
        at = int(np.flatnonzero(mine != theirs)[0]) if (mine != theirs).any() else 0
        index = tuple(map(int, np.unravel_index(at, self.shape))) if mine.size > 1 else ()
        return f"{mine[at]}, not {theirs[at]}, at {list(index)}"


def _value(tensor: Tensor) -> _Value:
    below = versions.memory_below(tensor)
    return _Value(tensor.dtype, tensor.shape, b"" if below is None else bytes(below))


def checked(capture: Capture, tracer: Tracer) -> Any:
    """The result of a replay, which a plain run from the same state gave too; MISS or PLAIN where
    there is nothing to compare. JitError names the first thing that differs."""
    with versions.lock:  # no other thread writes between the two runs
        return _checked(capture, tracer)


def _checked(capture: Capture, tracer: Tracer) -> Any:
    tensors = tracer.tensors
    memory.realize(tensors.values())
    before = {label: _value(t) for label, t in tensors.items()}
    grads = {label: t.grad for label, t in tracer.owners.items()}
    numbers = generator.state()
    plain, trace = tracer.run()
    if trace is None or trace.lent:
        return plain
    expected = _state(tracer, plain)
    for label, t in tensors.items():
        if _value(t) != before[label]:
            versions.put(t, before[label].data)
    for label, grad in grads.items():
        tracer.owners[label].grad = grad
    generator.restore(numbers)
    result = capture.replay(tracer.flat.tensors)
    if result is MISS or result is PLAIN:
        return result
    if flatten(plain).key != flatten(result).key:
        _differs(tracer, "the structure of its result", "")
    names = names_of([("its result", plain)])
    for name, mine, theirs in zip(
        [*names, *map(_name, _labels(tracer))], _state(tracer, result), expected, strict=True
    ):
        if (mine is None) != (theirs is None):
            _differs(tracer, f"whether there is {name}", "")
        if mine is not None and theirs is not None and mine.difference(theirs):
            _differs(tracer, name, mine.difference(theirs))
    if generator.state() != reduce(state_after, trace.numbers, numbers):
        _differs(tracer, "the state of the random numbers", "")
    return result


def _labels(tracer: Tracer) -> list[tuple[str, str]]:
    names = tracer.names()
    return [("value", names[label]) for label in tracer.owners] + [
        ("gradient", names[label]) for label in tracer.owners
    ]


def _name(label: tuple[str, str]) -> str:
    return label[1] if label[0] == "value" else f"{label[1]}.grad"


def _state(tracer: Tracer, result: Any) -> list[_Value | None]:
    """The values of a result and of everything that goes in, and the gradients."""
    out: list[_Value | None] = [_value(t) for t in flatten(result).tensors]
    out += [_value(t) for t in tracer.owners.values()]
    out += [None if t.grad is None else _value(t.grad) for t in tracer.owners.values()]
    return out


def _differs(tracer: Tracer, what: str, how: str) -> None:
    fail(
        JitError,
        f"a replay of {place_of(tracer.function)} differs from the function in {what}"
        + (f": {how}" if how else "")
        + ". A Python value that is no argument has changed since it was recorded: pass it as an "
        "argument, or keep it in a tensor",
    )
