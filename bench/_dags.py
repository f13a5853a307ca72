"""Random programs of tensors: shared sub-expressions, several outputs, writes in place.

A program is a list of steps over numbered values. The same steps run on NumPy arrays, where a write
makes a new array, on lazy tensors, and on tensors that are realised after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import morok as mk
from morok.dtype import from_numpy
from morok.tensor import Tensor

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`name(values of `args`, *how)`; the value of the step has the step's number."""

    name: str
    args: tuple[int, ...]
    how: tuple[Any, ...] = ()

    def text(self, number: int) -> str:
        """`v7 = sum(v3, 0)`, `write(v1, v7, 2)`."""
        given = [*(f"v{a}" for a in self.args), *map(_shown, self.how)]
        call = f"{self.name}({', '.join(given)})"
        return call if self.name in {*WRITES, "realize", "forget"} else f"v{number} = {call}"


def _shown(argument: Any) -> str:
    if isinstance(argument, np.ndarray):
        return f"np.array({argument.tolist()}, '{argument.dtype}')"
    return repr(argument)


Program = tuple[Step, ...]


def text(program: Program) -> str:
    """A line a step."""
    return "\n".join(step.text(number) for number, step in enumerate(program))


# What steps mean: on tensors, on arrays ----------------------------------------------------------


def _same(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return function, function


def _summed(a: Array, axis: Any, keep: bool) -> Array:
    dtype = np.int32 if a.dtype == np.bool_ else a.dtype
    return np.asarray(a.sum(axis, dtype, keepdims=keep))


@mk.function
def _difference(a: Tensor, b: Tensor) -> Tensor:
    return a * 2 - b


@mk.function
def _mirrored(a: Tensor) -> Tensor:
    """Calls another, of a value and of a view of its own."""
    b = a.flip(0)
    return _difference(b, a) + _difference(a, b.contiguous()).max(0)


@mk.function
def _added(a: Tensor, b: Tensor) -> Tensor:
    """Writes an argument between two reads of it."""
    before = a * 1
    a += b
    return before - a


@mk.function
def _first_row(a: Tensor, b: Tensor) -> None:
    a[:1] = a[-1:] + b


_MAKES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "array": (lambda a: Tensor(a).realize(), np.array),
    "lent": (lambda a: Tensor.from_numpy(a.copy()), np.array),
    "full": (
        lambda shape, value: Tensor.full(shape, value.item(), dtype=from_numpy(value.dtype)),
        lambda shape, value: np.full(shape, value),
    ),
    "arange": (
        lambda n, dtype: Tensor.arange(n, dtype=from_numpy(np.dtype(dtype))),
        lambda n, dtype: np.arange(n, dtype=dtype),
    ),
}
_COMPUTES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": _same(lambda a, b: a + b),
    "sub": _same(lambda a, b: a - b),
    "mul": _same(lambda a, b: a * b),
    "less": _same(lambda a, b: a < b),
    "maximum": (Tensor.maximum, np.maximum),
    "minimum": (Tensor.minimum, np.minimum),
    "where": (Tensor.where, np.where),
    "neg": _same(lambda a: -a),
    "abs": _same(abs),
    "square": (Tensor.square, np.square),
    "cast": (lambda a, t: a.cast(from_numpy(np.dtype(t))), lambda a, t: a.astype(t)),
    "reshape": _same(lambda a, shape: a.reshape(shape)),
    "permute": (Tensor.permute, np.transpose),
    "expand": (lambda a, shape: a.expand(*shape), np.broadcast_to),
    "pad": (
        lambda a, pairs, value: a.pad(pairs, value=value),
        lambda a, pairs, value: np.pad(a, pairs, constant_values=value),
    ),
    "flip": (Tensor.flip, np.flip),
    "look": _same(lambda a, index: a[index]),
    "sum": (Tensor.sum, _summed),
    "max": (Tensor.max, lambda a, axis, keep: a.max(axis, keepdims=keep)),
    "min": (Tensor.min, lambda a, axis, keep: a.min(axis, keepdims=keep)),
    "argmax": (Tensor.argmax, lambda a, axis: np.argmax(a, axis).astype(np.int32)),
    "cumsum": (Tensor.cumsum, lambda a, axis: a.cumsum(axis, a.dtype)),
    "matmul": _same(lambda a, b: a @ b),
    "cat": (lambda a, b, axis: a.cat(b, dim=axis), lambda a, b, axis: np.concatenate([a, b], axis)),
    "call_difference": (_difference, lambda a, b: a * 2 - b),
    "call_mirrored": (_mirrored, lambda a: 2 * a[::-1] - a + (2 * a - a[::-1]).max(0)),
    "contiguous": (Tensor.contiguous, np.array),
    "clone": (Tensor.clone, np.array),
}  # fmt: skip


def _put(a: Array, index: Any, value: Any) -> Array:
    new = a.copy()
    new[index] = value
    return new


def _store(a: Tensor, b: Any, index: Any) -> None:
    a[index] = b


def _add_to(a: Tensor, b: Any, index: Any) -> None:
    a[index] += b


def _plus(a: Tensor, b: Tensor) -> None:
    a += b


def _minus(a: Tensor, b: Tensor) -> None:
    a -= b


WRITES: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "assign": (Tensor.assign, lambda a, b: np.array(np.broadcast_to(b, a.shape))),
    "iadd": (_plus, lambda a, b: a + b),
    "isub": (_minus, lambda a, b: a - b),
    "call_added": (_added, lambda a, b: a + b),
    "call_first_row": (_first_row, lambda a, b: _put(a, slice(1), a[-1:] + b)),
    "write": (_store, lambda a, b, index: _put(a, index, b)),
    "write_number": (lambda a, index, n: _store(a, n, index), _put),
    "add_to": (_add_to, lambda a, b, index: _put(a, index, a[index] + b)),
    "scale": (
        lambda a, index, n: a.__setitem__(index, a[index] * n),
        lambda a, index, n: _put(a, index, a[index] * a.dtype.type(n)),
    ),
    "fold": (  # all of itself, backwards
        lambda a, axis: a.assign(a.flip(axis) - a),
        lambda a, axis: np.flip(a, axis) - a,
    ),
    "shift": (  # parts of itself that overlap
        lambda a, to, of: a.__setitem__(to, a[of]),
        lambda a, to, of: _put(a, to, a[of]),
    ),
}
_READS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "numpy": (lambda a: a.numpy(), np.array),  # held till the end: no write may be seen there
}
_TABLE = _MAKES | _COMPUTES | WRITES | _READS


# Running -----------------------------------------------------------------------------------------


def by_numpy(program: Program) -> list[Array | None]:
    """The contents of every value in the end; None where a step makes none."""
    values: list[Array | None] = []
    for step in program:
        step_by_numpy(step, values)
    return values


def step_by_numpy(step: Step, values: list[Any]) -> None:
    """Takes one step: its value is added, or what it writes is replaced."""
    given = [values[a] for a in step.args]
    made = None
    if step.name == "forget":
        values[step.args[0]] = None
    elif step.name != "realize":
        made = np.array(_TABLE[step.name][1](*given, *step.how))
    if step.name in WRITES:
        assert made is not None
        values[step.args[0]] = made.astype(given[0].dtype)
        made = None
    values.append(made)


def by_tensors(program: Program, stepwise: bool) -> list[Any]:
    """The tensors in the end, and the arrays that "numpy" steps read: lazy but for those and
    "realize" steps, or each tensor realised when it was made or written."""
    values: list[Any] = []
    for step in program:
        given = [values[a] for a in step.args]
        made = None
        if step.name == "realize":
            Tensor.realize(*given)
        elif step.name == "forget":
            values[step.args[0]] = None
        else:
            made = _TABLE[step.name][0](*given, *step.how)
        if step.name in WRITES:
            made = None
        if stepwise and step.name not in ("realize", "forget"):
            (made if isinstance(made, Tensor) else given[0]).realize()
        values.append(made)
    return values


def difference(got: Sequence[Any], wanted: Sequence[Array | None]) -> str | None:
    """What is wrong with the values, or None."""
    for number, (value, want) in enumerate(zip(got, wanted, strict=True)):
        if want is None:
            continue
        have = value.numpy() if isinstance(value, Tensor) else value
        if have.dtype != want.dtype or have.shape != want.shape:
            return f"v{number} is {have.dtype} {have.shape}, not {want.dtype} {want.shape}"
        if not np.array_equal(have, want):
            return f"v{number} is {have.tolist()}, not {want.tolist()}"
    return None


# Shortening --------------------------------------------------------------------------------------


def shortest(program: Program, wrong: Callable[[Program], bool]) -> Program:
    """Of a program that goes wrong, steps that do so by themselves: none of them can be left
    out."""
    at = len(program) - 1
    while at >= 0:
        shorter = _without(program, at)
        if wrong(shorter):
            program = shorter
            at = len(program)
        at -= 1
    return program


def _without(program: Program, left_out: int) -> Program:
    """The steps but for one and those that need its value."""
    steps: list[Step] = []
    numbers: dict[int, int] = {}
    for number, step in enumerate(program):
        args = tuple(numbers[a] for a in step.args if a in numbers)
        needs = 1 if step.name == "realize" else len(step.args)
        if number != left_out and len(args) >= needs:
            numbers[number] = len(steps)
            steps.append(Step(step.name, args, step.how))
    return tuple(steps)
