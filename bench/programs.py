"""Random tensor programs with their answers by NumPy: what fuzzing and the rangeify tests run.

A program is a list of tensor-level nodes over PARAMs, made by `program(seed)`, together with the
inputs and what NumPy says. Integers are compared exactly; floats are small integers times powers of
two, so that sums of a few hundred of them are exact too and any difference is a wrong result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from morok.dtype import DType, dtypes, from_numpy, to_numpy
from morok.ir import Ops, ReduceOp, UOp
from morok.tensor.loops import clamped, counters, position, scanned, scattered, tabulated

Array = np.ndarray[Any, Any]
Value = tuple[UOp, Array]
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16)
_MAX_ELEMENTS = 4096
BINARY = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
}
REDUCE = {ReduceOp.ADD: np.add, ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum}


def magnitude(v: Value) -> float:
    """Of the largest element."""
    return float(np.abs(v[1].astype(np.float64)).max(initial=0))


@dataclass(frozen=True, slots=True)
class Program:
    """Roots with the expected arrays, over inputs by slot. Writes come last: (slot, expected
    contents)."""

    roots: tuple[UOp, ...]
    expected: tuple[Array, ...]
    inputs: tuple[Array, ...]


class Builder:
    """Makes values one from the other, with their nodes and by NumPy."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: list[Array] = []
        self.values: list[Value] = []

    def _fill(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        data = [self.rng.randint(-8, 8) for _ in range(prod(shape))]
        return np.array(data).reshape(shape).astype(to_numpy(dtype))

    def leaf(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """A fresh input."""
        array = self._fill(dtype, shape)
        device = UOp.new_device()
        node = UOp(Ops.PARAM, dtype, (device,), (len(self.inputs), array.size))
        self.inputs.append(array)
        return _reshape((node, array.reshape(-1)), shape)

    def shape(self) -> tuple[int, ...]:
        """A small random shape."""
        while True:
            s = tuple(self.rng.choice(_SIZES) for _ in range(self.rng.randint(1, 4)))
            if prod(s) <= _MAX_ELEMENTS // 8:
                return s

    # ---- steps; each answers None where it does not apply

    def reshape(self, v: Value) -> Value | None:
        """Other dims, same elements: factors dealt out anew."""
        factors: list[int] = []
        for d in v[1].shape:
            while d > 1:
                p = next(q for q in (2, 3, 5, 7, 11, 13, d) if d % q == 0)
                factors.append(p)
                d //= p
        dims: list[int] = [1] * self.rng.randint(1, 4)
        place = 0
        for f in factors:
            if self.rng.random() < 0.5 and place + 1 < len(dims):
                place += 1
            dims[place] *= f
        if prod(dims) != v[1].size:
            return None
        return _reshape(v, tuple(dims))

    def permute(self, v: Value) -> Value | None:
        """Axes in another order."""
        axes = list(range(v[1].ndim))
        self.rng.shuffle(axes)
        return UOp(Ops.PERMUTE, v[0].dtype, (v[0],), tuple(axes)), v[1].transpose(axes)

    def expand(self, v: Value) -> Value | None:
        """Axes of size 1 grow."""
        dims = tuple(
            self.rng.choice((2, 3, 5)) if d == 1 and self.rng.random() < 0.7 else d
            for d in v[1].shape
        )
        if prod(dims) > _MAX_ELEMENTS or dims == v[1].shape:
            return None
        node = UOp(Ops.EXPAND, v[0].dtype, (v[0], UOp.shape_const(dims)))
        return node, np.broadcast_to(v[1], dims)

    def pad(self, v: Value) -> Value | None:
        """Zeros around."""
        pads = [(self.rng.randint(0, 2), self.rng.randint(0, 2)) for _ in v[1].shape]
        out = np.pad(v[1], pads)
        if out.size > _MAX_ELEMENTS:
            return None
        begins, ends = (UOp.shape_const([p[i] for p in pads]) for i in (0, 1))
        return UOp(Ops.PAD, v[0].dtype, (v[0], begins, ends)), out

    def shrink(self, v: Value) -> Value | None:
        """A box out of the middle."""
        cut = []
        for d in v[1].shape:
            lo = self.rng.randint(0, d - 1) if self.rng.random() < 0.5 else 0
            cut.append((lo, self.rng.randint(lo + 1, d)))
        begins, ends = (UOp.shape_const([c[i] for c in cut]) for i in (0, 1))
        box = v[1][tuple(slice(a, b) for a, b in cut)]
        return UOp(Ops.SHRINK, v[0].dtype, (v[0], begins, ends)), box

    def flip(self, v: Value) -> Value | None:
        """Some axes backwards."""
        flags = tuple(self.rng.random() < 0.5 for _ in v[1].shape)
        out = np.flip(v[1], tuple(i for i, f in enumerate(flags) if f))
        return UOp(Ops.FLIP, v[0].dtype, (v[0],), flags), out

    def unary(self, v: Value) -> Value | None:
        """An exact elementwise op of one operand."""
        op = self.rng.choice((Ops.NEG, Ops.ABS, Ops.SQUARE, Ops.SIGN))
        if op is Ops.SQUARE and magnitude(v) > 1000:
            return None
        f = {Ops.NEG: np.negative, Ops.ABS: np.abs, Ops.SQUARE: np.square, Ops.SIGN: np.sign}[op]
        return UOp(op, v[0].dtype, (v[0],)), f(v[1])

    def binary(self, v: Value) -> Value | None:
        """With another value of the same shape, a constant, or itself."""
        same = [w for w in self.values if w[1].shape == v[1].shape and w[0].dtype is v[0].dtype]
        w = self.rng.choice(same) if same and self.rng.random() < 0.8 else self.constant(v[0].dtype)
        op = self.rng.choice(tuple(BINARY))
        if op is Ops.MUL and magnitude(v) * magnitude(w) > 1e6:
            return None
        return UOp(op, v[0].dtype, (v[0], w[0])), BINARY[op](v[1], w[1])

    def where(self, v: Value) -> Value | None:
        """v where it is below a constant, else another constant."""
        c, d = self.constant(v[0].dtype), self.constant(v[0].dtype)
        mask = UOp(Ops.LT, dtypes.bool, (v[0], c[0]))
        return UOp(Ops.WHERE, v[0].dtype, (mask, v[0], d[0])), np.where(v[1] < c[1], v[1], d[1])

    def constant(self, dtype: DType) -> Value:
        """A scalar."""
        array = np.array(self.rng.randint(-4, 4)).astype(to_numpy(dtype))
        return UOp.const(dtype, array.item()), array

    def reduce(self, v: Value) -> Value | None:
        """Some axes folded away."""
        op = self.rng.choice(tuple(REDUCE))
        axes = tuple(i for i in range(v[1].ndim) if self.rng.random() < 0.5)
        if not axes or magnitude(v) * v[1].size > 1e6:
            return None
        out = REDUCE[op].reduce(v[1], axis=axes, dtype=v[1].dtype)
        return UOp(Ops.REDUCE_AXIS, v[0].dtype, (v[0],), (op, axes)), np.asarray(out)

    def contiguous(self, v: Value) -> Value | None:
        """A border that must be kept."""
        return UOp(Ops.CONTIGUOUS, v[0].dtype, (v[0],)), v[1]

    def keep_dims(self, v: Value) -> Value | None:
        """A reduction back to its operand's shape by expansion, combined with it: softmax-like."""
        if v[1].ndim == 0 or magnitude(v) * v[1].size > 1e5:
            return None
        axis = self.rng.randrange(v[1].ndim)
        op = self.rng.choice(tuple(REDUCE))
        kept = tuple(1 if i == axis else d for i, d in enumerate(v[1].shape))
        low = UOp(Ops.REDUCE_AXIS, v[0].dtype, (v[0],), (op, (axis,)))
        wide = UOp(Ops.EXPAND, v[0].dtype, (_shaped(low, kept), UOp.shape_const(v[1].shape)))
        total = REDUCE[op].reduce(v[1], axis=axis, keepdims=True, dtype=v[1].dtype)
        return UOp(Ops.SUB, v[0].dtype, (v[0], wide)), v[1] - total

    def index(self, n: int, shape: tuple[int, ...]) -> Value:
        """An input of places along an axis of length n, negative ones too."""
        array = np.array([self.rng.randint(-n, n - 1) for _ in range(prod(shape))])
        array = array.reshape(shape).astype(self.rng.choice((np.int32, np.int64)))
        dtype = from_numpy(array.dtype)
        node = UOp(Ops.PARAM, dtype, (UOp.new_device(),), (len(self.inputs), array.size))
        self.inputs.append(array)
        return _shaped(node, shape), array

    def gather(self, v: Value) -> Value | None:
        """Entries along an axis, some of them twice."""
        axis = self.rng.randrange(v[1].ndim)
        n, count = v[1].shape[axis], self.rng.choice(_SIZES)
        shape = tuple(count if i == axis else d for i, d in enumerate(v[1].shape))
        if prod(shape) > _MAX_ELEMENTS:
            return None
        node, places = self.index(n, (count,))
        at = list(counters(shape))
        at[axis] = clamped(position(node, (at[axis],), n), n)
        return tabulated(v[0].at(*at), counters(shape)), v[1].take(places, axis)

    def scatter(self, v: Value) -> Value | None:
        """Entries put or added to another value along an axis, some of them in one place."""
        axis = self.rng.randrange(v[1].ndim)
        n = self.rng.choice(_SIZES)
        shape = tuple(n if i == axis else d for i, d in enumerate(v[1].shape))
        if prod(shape) > _MAX_ELEMENTS or magnitude(v) * v[1].size > 1e6:
            return None
        fits = [w for w in self.values if w[1].shape == shape and w[0].dtype is v[0].dtype]
        start = self.rng.choice(fits) if fits else self.leaf(v[0].dtype, shape)
        node, places = self.index(n, v[1].shape[axis : axis + 1])
        loops = counters(v[1].shape)
        at = list(loops)
        at[axis] = clamped(position(node, (at[axis],), n), n)
        add = self.rng.random() < 0.5
        out = np.moveaxis(start[1].copy(), axis, 0)
        part = np.moveaxis(v[1], axis, 0)
        if add:
            np.add.at(out, places, part)
        else:
            out[places] = part  # NumPy: the last one stays
        made = scattered(start[0], at, None, v[0].at(*loops), loops, add)
        return made, np.moveaxis(out, 0, axis)

    def scan(self, v: Value) -> Value | None:
        """Running sums or extremes along an axis."""
        axis = self.rng.randrange(v[1].ndim)
        if magnitude(v) * v[1].size > 1e6:
            return None
        op = self.rng.choice((Ops.ADD, Ops.MAX))
        run = {Ops.ADD: np.add, Ops.MAX: np.maximum}[op]
        return scanned(v[0], axis, op), run.accumulate(v[1], axis)


_STEPS = (
    Builder.reshape,
    Builder.permute,
    Builder.expand,
    Builder.pad,
    Builder.shrink,
    Builder.flip,
    Builder.unary,
    Builder.binary,
    Builder.binary,
    Builder.where,
    Builder.reduce,
    Builder.keep_dims,
    Builder.contiguous,
)
_BY_ELEMENTS = (Builder.gather, Builder.scatter, Builder.scan)
WITH_ELEMENTS = 1 << 20
"""From this seed on, programs also index and have ordered loops."""


def _shaped(node: UOp, shape: tuple[int, ...]) -> UOp:
    return (
        node
        if node.shape == shape
        else UOp(Ops.RESHAPE, node.dtype, (node, UOp.shape_const(shape)))
    )


def _reshape(v: Value, shape: tuple[int, ...]) -> Value:
    return _shaped(v[0], shape), v[1].reshape(shape)


def program(seed: int, steps: int = 12) -> Program:
    """The program of a seed: the same one in every process."""
    rng = random.Random(seed)
    kinds = _STEPS if seed < WITH_ELEMENTS else _STEPS + _BY_ELEMENTS
    b = Builder(rng)
    dtype = rng.choice((dtypes.int32, dtypes.float32, dtypes.int64, dtypes.float64))
    for _ in range(rng.randint(1, 3)):
        b.values.append(b.leaf(dtype, b.shape()))
    for _ in range(rng.randint(2, steps)):
        v = rng.choice(b.values[-4:])
        if v[1].ndim == 0:
            continue
        made = rng.choice(kinds)(b, v)
        if made is not None and made[1].size:
            b.values.append(made)
    wanted = b.values[-rng.randint(1, 3) :]
    roots = {node: array for node, array in wanted if not _is_input(node)}
    if not roots:
        node, array = b.values[-1]
        roots = {UOp(Ops.NEG, dtype, (node,)): -array}
    expected = dict(roots)
    writes = _writes(rng, b, roots)
    return Program(
        (*roots, *writes),
        tuple(np.ascontiguousarray(a) for a in (*expected.values(), *writes.values())),
        tuple(b.inputs),
    )


def _writes(rng: random.Random, b: Builder, roots: dict[UOp, Array]) -> dict[UOp, Array]:
    """Sometimes an input is overwritten by a value of its shape; reads mean the contents before."""
    out: dict[UOp, Array] = {}
    if rng.random() < 0.6:
        return out
    taken: set[UOp] = set()
    for target, _ in b.values:
        base = target.src[0] if target.op is Ops.RESHAPE else target
        if base.op is not Ops.PARAM or base in taken:
            continue
        fits = [v for v in b.values if v[1].shape == target.shape and v[0] is not target]
        if fits:
            node, array = rng.choice(fits)
            store = UOp(Ops.STORE, dtypes.void, (target, node))
            out[UOp(Ops.AFTER, target.dtype, (target, store))] = array
            taken.add(base)
    return out


def _is_input(node: UOp) -> bool:
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.PARAM
