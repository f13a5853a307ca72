"""Random programs of tensors: shared sub-expressions, several outputs, writes in place.

A program is a list of steps over numbered values. The same steps run on NumPy arrays, where a write
makes a new array, on lazy tensors, and on tensors that are realised after every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from morok.dtype import from_numpy
from morok.tensor import Tensor

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_SHAPES: tuple[Shape, ...] = ((3, 3), (4, 3), (2, 3, 5), (7,), (5, 5), (3, 1, 4), (6,), (2, 11))
_SMALL: tuple[Shape, ...] = ((), (1,), (1, 3), (3, 1), (3,), (1, 1), (2,), (5,), (4, 1))
_MOST = 256  # elements of a value
_NUMBERS = ("int32", "int32", "float32", "float32", "int64", "float64")
_DTYPES = (*_NUMBERS, "bool")
_LIMIT = 1 << 15
"""Whole numbers up to here, and sums of as many as a value has, are exact in float32."""


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
        return call if self.name in {*_WRITES, "realize", "forget"} else f"v{number} = {call}"


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
}  # fmt: skip
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


_WRITES: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "assign": (Tensor.assign, lambda a, b: np.array(np.broadcast_to(b, a.shape))),
    "iadd": (_plus, lambda a, b: a + b),
    "isub": (_minus, lambda a, b: a - b),
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
_TABLE = _MAKES | _COMPUTES | _WRITES | _READS


# Running -----------------------------------------------------------------------------------------


def by_numpy(program: Program) -> list[Array | None]:
    """The contents of every value in the end; None where a step makes none."""
    values: list[Array | None] = []
    for step in program:
        _step_by_numpy(step, values)
    return values


def _step_by_numpy(step: Step, values: list[Any]) -> None:
    given = [values[a] for a in step.args]
    made = None
    if step.name == "forget":
        values[step.args[0]] = None
    elif step.name != "realize":
        made = np.array(_TABLE[step.name][1](*given, *step.how))
    if step.name in _WRITES:
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
        if step.name in _WRITES:
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


# Making ------------------------------------------------------------------------------------------


class _Maker:
    """Steps with what NumPy says of each: a step is chosen by the shapes and numbers so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: list[Step] = []
        self.values: list[Array | None] = []
        # Few of them, so that values meet.
        self.shapes = [*[rng.choice(_SHAPES)] * 4, rng.choice(_SHAPES), *rng.choices(_SMALL, k=2)]
        self.dtypes = [*[rng.choice(_NUMBERS)] * 5, *rng.choices(_DTYPES, k=2)]
        self.targets: list[int] = []
        self.lends = rng.random() < 0.3

    def add(self, name: str, args: Sequence[int] = (), *how: Any) -> None:
        """Takes a step, unless its value would be too large."""
        values = list(self.values)
        step = Step(name, tuple(args), how)
        _step_by_numpy(step, values)
        changed = values[-1] if name not in _WRITES else values[args[0]]
        if changed is None or (0 < changed.size <= _MOST and _magnitude(changed) <= _LIMIT):
            self.steps.append(step)
            self.values = values
            if name in _WRITES:
                self.targets.append(args[0])

    def pick(self, test: Callable[[Array], bool] = lambda a: True) -> int | None:
        """The number of a value that passes the test, late ones first of all."""
        fits = [i for i, v in enumerate(self.values) if v is not None and test(v)]
        if not fits:
            return None
        return self.rng.choice(fits[-5:] if self.rng.random() < 0.6 else fits)

    def array(self, number: int) -> Array:
        found = self.values[number]
        assert found is not None
        return found

    def target(self, test: Callable[[Array], bool] = lambda a: True) -> int | None:
        """What to write: often what was written before."""
        again = [t for t in self.targets if (v := self.values[t]) is not None and test(v)]
        return self.rng.choice(again) if again and self.rng.random() < 0.5 else self.pick(test)

    def mate(self, a: int, test: Callable[[Array], bool] = lambda b: True) -> int | None:
        """A value of the dtype of value `a` that passes the test."""
        own = self.array(a)
        others = self.pick(lambda b: b is not own and b.dtype == own.dtype and test(b))
        if others is not None or not test(own):
            return others
        return a

    # ---- one method a kind of step; none is taken where nothing fits

    def make(self) -> None:
        shape = self.rng.choice(self.shapes)
        dtype = np.dtype(self.rng.choice(self.dtypes))
        owned = "lent" if self.lends else "array"
        kind = self.rng.choice(("array", "array", owned, owned, "full", "arange"))
        if kind == "full":
            self.add("full", (), shape, np.array(self.rng.randint(-4, 4)).astype(dtype)[()])
        elif kind == "arange":
            self.add("arange", (), self.rng.randint(1, 7), "int32")
        else:
            data = [self.rng.randint(-8, 8) for _ in range(prod(shape))]
            self.add(kind, (), np.array(data).reshape(shape).astype(dtype))

    def unary(self) -> None:
        a = self.pick(_is_number)
        if a is not None:
            self.add(self.rng.choice(("neg", "abs", "square")), (a,))

    def binary(self) -> None:
        a = self.pick(_is_number)
        b = None if a is None else self.mate(a, lambda b: _meet(b.shape, self.array(a).shape))
        if a is not None and b is not None:
            names = ("add", "add", "sub", "mul", "maximum", "minimum", "less")
            self.add(self.rng.choice(names), self.rng.sample((a, b), 2))

    def where(self) -> None:
        c = self.pick(lambda c: c.dtype == np.bool_)
        a = None if c is None else self.pick(lambda a: _meet(a.shape, self.array(c).shape))
        if c is None or a is None:
            return
        shape = np.broadcast_shapes(self.array(c).shape, self.array(a).shape)
        b = self.mate(a, lambda b: _meet(b.shape, shape))
        if b is not None:
            self.add("where", (c, a, b))

    def cast(self) -> None:
        a = self.pick()
        if a is not None:
            self.add("cast", (a,), self.rng.choice(_DTYPES))

    def reduce(self) -> None:
        a = self.pick(_is_number)
        if a is None:
            return
        axis = self.axis(a)
        name = self.rng.choice(("sum", "sum", "max", "min", "argmax", "cumsum"))
        if name == "argmax":
            self.add(name, (a,), axis)
        elif name != "cumsum":
            self.add(name, (a,), self.rng.choice((None, axis)), self.rng.random() < 0.5)
        elif self.array(a).ndim:
            self.add(name, (a,), axis)

    def axis(self, a: int) -> int | None:
        """An axis of a value, None for one that has none."""
        rank = self.array(a).ndim
        return self.rng.randrange(-rank, rank) if rank else None

    def matmul(self) -> None:
        a = self.pick(lambda a: _is_number(a) and a.ndim == 2)
        b = (
            None
            if a is None
            else self.mate(a, lambda b: b.ndim == 2 and len(b) == len(self.array(a).T))
        )
        if a is not None and b is not None:
            self.add("matmul", (a, b))

    def move(self) -> None:
        a = self.pick(lambda a: a.ndim > 0)
        if a is None:
            return
        shape = self.array(a).shape
        name = self.rng.choice(("reshape", "permute", "expand", "pad", "flip", "look", "look"))
        if name == "reshape":
            self.add(name, (a,), self.rng.choice((shape[::-1], (-1,), (1, *shape), (*shape, 1))))
        elif name == "permute":
            self.add(name, (a,), tuple(self.rng.sample(range(len(shape)), len(shape))))
        elif name == "expand":
            wide = tuple(self.rng.choice((1, 3)) if n == 1 else n for n in shape)
            self.add(name, (a,), (*self.rng.choice(((), (2,))), *wide))
        elif name == "pad" and _is_number(self.array(a)):
            pairs = [(self.rng.randint(0, 2), self.rng.randint(0, 2)) for _ in shape]
            self.add(name, (a,), pairs, self.rng.choice((0, 0, 3)))
        elif name == "flip":
            self.add(name, (a,), self.axis(a))
        else:
            self.add("look", (a,), self.index(a))

    def cat(self) -> None:
        a = self.pick(lambda a: a.ndim > 0)
        if a is None:
            return
        axis = self.axis(a)
        rest = np.delete(self.array(a).shape, axis)
        b = self.mate(
            a, lambda b: b.ndim == len(rest) + 1 and np.array_equal(np.delete(b.shape, axis), rest)
        )
        if b is not None:
            self.add("cat", (a, b), axis)

    def same(self) -> None:
        a = self.pick()
        if a is not None:
            self.add(self.rng.choice(("contiguous", "clone")), (a,))

    def index(self, a: int) -> Any:
        """An index, basic or with a list, that finds elements in value `a`."""
        shape = self.array(a).shape
        n = shape[0]
        begin = self.rng.randrange(n)
        end = self.rng.randint(begin + 1, n)
        kind = self.rng.randrange(7)
        if kind == 0:
            return self.rng.randrange(-n, n)
        if kind == 1:
            return [self.rng.randrange(-n, n) for _ in range(self.rng.randint(1, 4))]
        if kind == 2:
            return (Ellipsis, slice(None, None, self.rng.choice((-1, 2, -2))))
        if kind == 3 and len(shape) > 1:
            return (slice(begin, end), self.rng.randrange(shape[1]))
        if kind == 4 and len(shape) > 1:
            return (slice(None), [self.rng.randrange(shape[1]) for _ in range(2)])
        if kind == 5:
            return slice(begin, end, self.rng.choice((1, 2)))
        return slice(begin, end)

    def assign(self) -> None:
        a = self.target()
        if a is None:
            return
        own = self.array(a)
        b = self.mate(a, lambda b: _fits(b.shape, own.shape))
        if _is_number(own) and own.ndim and self.rng.random() < 0.25:
            self.add("fold", (a,), self.axis(a))
        elif b is not None:
            names = ("assign", "iadd", "isub") if _is_number(own) else ("assign",)
            self.add(self.rng.choice(names), (a, b))

    def write(self) -> None:
        a = self.target(lambda a: a.ndim > 0)
        if a is None:
            return
        index = self.index(a)
        place = self.array(a)[index]
        b = self.mate(a, lambda b: _fits(b.shape, place.shape))
        number = self.rng.randint(-3, 3)
        kind = self.rng.choice(("write", "write", "write_number", "add_to", "scale", "shift"))
        if kind == "shift":
            of = self.index(a)
            if _fits(self.array(a)[of].shape, place.shape):
                self.add(kind, (a,), index, of)
        elif not _is_number(self.array(a)):
            self.add("write_number", (a,), index, self.rng.random() < 0.5)
        elif kind in ("scale", "write_number"):
            self.add(kind, (a,), index, number)
        elif b is not None:
            self.add(kind, (a, b), index)

    def realize(self) -> None:
        numbers = [self.pick() for _ in range(self.rng.randint(1, 3))]
        self.add("realize", sorted({n for n in numbers if n is not None}))

    def numpy(self) -> None:
        a = self.pick()
        if a is not None and not self.lends:  # lent memory shows writes, that is what it is for
            self.add("numpy", (a,))
            self.values[-1] = None  # an array, and no tensor to go on with

    def forget(self) -> None:
        a = self.pick()
        if a is not None and sum(v is not None for v in self.values) > 3:
            self.add("forget", (a,))


_COMPUTING = (
    _Maker.make,
    _Maker.unary,
    _Maker.binary,
    _Maker.binary,
    _Maker.binary,
    _Maker.where,
    _Maker.cast,
    _Maker.reduce,
    _Maker.reduce,
    _Maker.matmul,
    _Maker.move,
    _Maker.move,
    _Maker.move,
    _Maker.cat,
    _Maker.same,
)
_OTHER = (_Maker.realize, _Maker.numpy, _Maker.forget)
_WRITING = (_Maker.assign, _Maker.write, _Maker.write)


def _magnitude(a: Array) -> float:
    return float(np.abs(a.astype(np.float64)).max(initial=0))


def _is_number(a: Array) -> bool:
    return a.dtype != np.bool_


def _meet(*shapes: Shape) -> bool:
    """Whether shapes broadcast."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _fits(shape: Shape, into: Shape) -> bool:
    """Whether a value of this shape can be written to a place of the other."""
    return _meet(shape, into) and np.broadcast_shapes(shape, into) == into


def dag(seed: int) -> Program:
    """The program of a seed, the same one in every process. In the end it realises some of its
    values in one go."""
    rng = random.Random(f"dag {seed}")
    maker = _Maker(rng)
    for _ in range(rng.randint(2, 4)):
        maker.make()
    for _ in range(rng.randint(8, 24)):
        kind = rng.random()
        steps = _COMPUTING if kind < 0.5 else _WRITING if kind < 0.88 else _OTHER
        rng.choice(steps)(maker)
    living = [i for i, v in enumerate(maker.values) if v is not None]
    maker.add("realize", rng.sample(living, rng.randint(1, len(living))))
    return tuple(maker.steps)


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
