"""Random programs of tensors: see `_dags` for what they mean."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from bench._dags import WRITES, Array, Program, Shape, Step, step_by_numpy

_SHAPES: tuple[Shape, ...] = ((3, 3), (4, 3), (2, 3, 5), (7,), (5, 5), (3, 1, 4), (6,), (2, 11))
_SMALL: tuple[Shape, ...] = ((), (1,), (1, 3), (3, 1), (3,), (1, 1), (2,), (5,), (4, 1))
_MOST = 256  # elements of a value
_NUMBERS = ("int32", "int32", "float32", "float32", "int64", "float64")
_DTYPES = (*_NUMBERS, "bool")
_LIMIT = 1 << 15
"""Whole numbers up to here, and sums of as many as a value has, are exact in float32."""


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
        step_by_numpy(step, values)
        changed = values[-1] if name not in WRITES else values[args[0]]
        if changed is None or (0 < changed.size <= _MOST and _magnitude(changed) <= _LIMIT):
            self.steps.append(step)
            self.values = values
            if name in WRITES:
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
        shape = self.array(a).shape
        axis = self.rng.randrange(len(shape))
        b = self.mate(
            a, lambda b: b.ndim == len(shape) and _but(b.shape, axis) == _but(shape, axis)
        )
        if b is not None:
            self.add("cat", (a, b), axis)

    def call(self) -> None:
        """A function that was traced once, for this program or another."""
        a = self.pick(lambda a: _is_number(a) and a.ndim > 0)
        b = None if a is None else self.mate(a, lambda b: b.shape == self.array(a).shape)
        if a is not None and b is not None and self.rng.random() < 0.6:
            self.add("call_difference", (a, b))
        elif a is not None:
            self.add("call_mirrored", (a,))

    def writing_call(self) -> None:
        a = self.target(lambda a: _is_number(a) and a.ndim > 0)
        b = None if a is None else self.mate(a, lambda b: _fits(b.shape, self.array(a)[:1].shape))
        if a is not None and b is not None:
            self.add(self.rng.choice(("call_added", "call_first_row")), (a, b))

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
    _Maker.call,
    _Maker.same,
)
_OTHER = (_Maker.realize, _Maker.numpy, _Maker.forget)
_WRITING = (_Maker.assign, _Maker.assign, _Maker.write, _Maker.write, _Maker.writing_call)


def _magnitude(a: Array) -> float:
    return float(np.abs(a.astype(np.float64)).max(initial=0))


def _is_number(a: Array) -> bool:
    return bool(a.dtype != np.bool_)


def _meet(*shapes: Shape) -> bool:
    """Whether shapes broadcast."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _but(shape: Shape, axis: int) -> Shape:
    """All lengths but one."""
    return shape[:axis] + shape[axis + 1 :]


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
