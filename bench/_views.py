"""Random chains of views over elementwise and reduce ops, with their answers by NumPy.

A program is made from its result backwards: a value of a given shape is an input, an elementwise op
of values of that shape, a reduction of a value of more axes, or up to eight movement ops over a
value of whatever shape they need. So chains of any depth meet in one elementwise op.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

import numpy as np

from bench.programs import BINARY, REDUCE, Array, Builder, Program, Value, magnitude
from morok.dtype import DType, dtypes
from morok.ir import Ops, UOp

Shape = tuple[int, ...]
Step = tuple[Shape, Callable[[Value], Value]]
"""A movement op with its arguments: the shape it wants, and how it makes of that the shape that was
asked for."""

DEPTH = 8
"""Movement ops of one chain, at most."""
_SIZES = (1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 11, 13, 17)
_MOST = 1536  # elements of any value
_MOST_AXES = 5
_DTYPES = (dtypes.int32, dtypes.float32, dtypes.int64, dtypes.float64, dtypes.int8, dtypes.uint8)
_EXACT = 1 << 22
"""Whole numbers up to here, and sums of such, are exact in float32 in any order."""


# Movement, backwards -----------------------------------------------------------------------------


def _reshape(rng: random.Random, shape: Shape) -> Step:
    factors = [p for d in shape for p in _primes(d)]
    if rng.random() < 0.5:
        rng.shuffle(factors)
    dims = [1] * rng.randint(1, _MOST_AXES)
    place = 0
    for p in factors:
        if rng.random() < 0.5:
            place = min(place + 1, len(dims) - 1)
        dims[place] *= p
    node = UOp.shape_const(shape)
    return tuple(dims), lambda v: (
        UOp(Ops.RESHAPE, v[0].dtype, (v[0], node)),
        v[1].reshape(shape),
    )


def _primes(n: int) -> list[int]:
    found = []
    p = 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


def _permute(rng: random.Random, shape: Shape) -> Step:
    axes = rng.sample(range(len(shape)), len(shape))
    before = [0] * len(shape)
    for n, axis in zip(shape, axes, strict=True):
        before[axis] = n
    return tuple(before), lambda v: (
        UOp(Ops.PERMUTE, v[0].dtype, (v[0],), tuple(axes)),
        v[1].transpose(axes),
    )


def _expand(rng: random.Random, shape: Shape) -> Step | None:
    before = tuple(1 if rng.random() < 0.5 else n for n in shape)
    if before == shape:
        return None
    node = UOp.shape_const(shape)
    return before, lambda v: (
        UOp(Ops.EXPAND, v[0].dtype, (v[0], node)),
        np.broadcast_to(v[1], shape),
    )


def _pad(rng: random.Random, shape: Shape) -> Step | None:
    pads = []
    for n in shape:
        begin = rng.randint(0, min(n - 1, 3)) if rng.random() < 0.5 else 0
        pads.append((begin, rng.randint(0, min(n - 1 - begin, 3)) if rng.random() < 0.5 else 0))
    if not any(map(any, pads)):
        return None
    begins, ends = (UOp.shape_const([p[i] for p in pads]) for i in (0, 1))
    before = tuple(n - sum(p) for n, p in zip(shape, pads, strict=True))
    return before, lambda v: (UOp(Ops.PAD, v[0].dtype, (v[0], begins, ends)), np.pad(v[1], pads))


def _shrink(rng: random.Random, shape: Shape) -> Step | None:
    cuts = [(rng.randint(0, 3), rng.randint(0, 3)) if rng.random() < 0.5 else (0, 0) for _ in shape]
    before = tuple(n + sum(cut) for n, cut in zip(shape, cuts, strict=True))
    if before == shape:
        return None
    begins = [cut[0] for cut in cuts]
    ends = [begin + n for begin, n in zip(begins, shape, strict=True)]
    box = tuple(slice(*pair) for pair in zip(begins, ends, strict=True))
    nodes = UOp.shape_const(begins), UOp.shape_const(ends)
    return before, lambda v: (UOp(Ops.SHRINK, v[0].dtype, (v[0], *nodes)), v[1][box])


def _flip(rng: random.Random, shape: Shape) -> Step | None:
    flags = tuple(rng.random() < 0.5 for _ in shape)
    if not any(flags):
        return None
    axes = tuple(i for i, flag in enumerate(flags) if flag)
    return shape, lambda v: (UOp(Ops.FLIP, v[0].dtype, (v[0],), flags), np.flip(v[1], axes))


MOVEMENT: dict[Ops, Callable[[random.Random, Shape], Step | None]] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
}


def chain(rng: random.Random, shape: Shape, ops: list[Ops]) -> list[Step]:
    """Random arguments for movement ops that end in `shape`: steps in order, the first one applied
    to a value of its shape. An op that has none (PAD to 1, say) is left out."""
    steps: list[Step] = []
    for op in reversed(ops):
        step = MOVEMENT[op](rng, shape)
        if step is not None and prod(step[0]) <= _MOST:
            steps.append(step)
            shape = step[0]
    return steps[::-1]


# Values ------------------------------------------------------------------------------------------


class _Views(Builder):
    def value(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """A value of a shape, out of at most about `budget` chains and other ops."""
        if budget <= 0:
            return self._source(dtype, shape)
        kinds = (self.moved, self.moved, self._single, self._pair, self._masked, self._reduced)
        made = self.rng.choice(kinds)(dtype, shape, budget - 1)
        self.values.append(made)
        return made

    def moved(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """Up to eight movement ops over a value."""
        steps = self._chain(shape, DEPTH)
        made = self.value(dtype, steps[0][0] if steps else shape, budget)
        for _, apply in steps:
            made = apply(made)
        return made

    def _chain(self, shape: Shape, most: int) -> list[Step]:
        ops = self.rng.choices(tuple(MOVEMENT), k=self.rng.randint(1, most))
        return chain(self.rng, shape, ops)

    def _source(self, dtype: DType, shape: Shape) -> Value:
        """An input, something of this shape that is there already, seldom a constant."""
        if self.rng.random() < 0.1:
            node, array = self.constant(dtype)
            ones = UOp(Ops.RESHAPE, dtype, (node, UOp.shape_const((1,) * len(shape))))
            wide = UOp(Ops.EXPAND, dtype, (ones, UOp.shape_const(shape)))
            return wide, np.broadcast_to(array, shape)
        fits = [v for v in self.values if v[1].shape == shape]
        made = self.rng.choice(fits) if fits and self.rng.random() < 0.5 else None
        return made or self.leaf(dtype, shape)

    def _single(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """An elementwise op, or a reduction beside what it reduces."""
        inner = self.value(dtype, shape, budget)
        made = self.rng.choice((self.unary, self.keep_dims, self.contiguous))(inner)
        return made or inner

    def _pair(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """Two values or a value and a scalar."""
        a = self.value(dtype, shape, budget // 2)
        scalar = self.rng.random() < 0.15
        b = self.constant(dtype) if scalar else self.value(dtype, shape, budget - budget // 2)
        ops = dict(BINARY)
        if magnitude(a) * magnitude(b) > _EXACT:
            del ops[Ops.MUL]
        if magnitude(a) + magnitude(b) > _EXACT:
            del ops[Ops.ADD], ops[Ops.SUB]
        op = self.rng.choice(tuple(ops))
        return UOp(op, dtype, (a[0], b[0])), ops[op](a[1], b[1])

    def _masked(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """WHERE under a comparison that was moved itself: its padding is False."""
        steps = self._chain(shape, 4)
        below = self.value(dtype, steps[0][0] if steps else shape, budget // 2)
        limit, other = self.constant(dtype), self.constant(dtype)
        mask = UOp(Ops.LT, dtypes.bool, (below[0], limit[0])), below[1] < limit[1]
        for _, apply in steps:
            mask = apply(mask)
        a = self.value(dtype, shape, budget - budget // 2)
        node = UOp(Ops.WHERE, dtype, (mask[0], a[0], other[0]))
        return node, np.where(mask[1], a[1], other[1])

    def _reduced(self, dtype: DType, shape: Shape, budget: int) -> Value:
        """A value of one or two more axes, and those folded away."""
        dims: list[int] = list(shape)
        axes: list[int] = []
        for size in self.rng.choices(_SIZES, k=self.rng.randint(1, 2)):
            if prod(dims) * size <= _MOST and len(dims) < _MOST_AXES:
                at = self.rng.randint(0, len(dims))
                dims.insert(at, size)
                axes = [*(axis + (axis >= at) for axis in axes), at]
        inner = self.moved(dtype, tuple(dims), budget)
        if not axes:
            return inner
        exact = magnitude(inner) * inner[1].size <= _EXACT
        op = self.rng.choice([op for op in REDUCE if exact or REDUCE[op] is not np.add])
        node = UOp(Ops.REDUCE_AXIS, dtype, (inner[0],), (op, tuple(sorted(axes))))
        return node, np.asarray(REDUCE[op].reduce(inner[1], axis=tuple(axes), dtype=inner[1].dtype))


def views(seed: int) -> Program:
    """The program of a seed: the same one in every process."""
    rng = random.Random(f"views {seed}")
    builder = _Views(rng)
    dtype = rng.choice(_DTYPES)
    roots: dict[UOp, Array] = {}
    for _ in range(rng.choice((1, 1, 2))):
        shape = tuple(rng.choice(_SIZES) for _ in range(rng.randint(1, 4)))
        while prod(shape) > _MOST:
            shape = shape[1:]
        node, array = rng.choice((builder.moved, builder.value))(dtype, shape, rng.randint(1, 6))
        roots[node] = array
    expected = tuple(np.ascontiguousarray(array) for array in roots.values())
    return Program(tuple(roots), expected, tuple(builder.inputs))
