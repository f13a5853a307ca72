"""Tensor-level nodes: the few shapes of graph that Tensor methods and gradient rules are made of.

Everything here takes and gives UOps that have a shape; nothing checks what users wrote (methods do,
so that the error can name the method). A node of shape () goes with any shape in elementwise ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from morok.caches import memoized
from morok.dtype import DType, Scalar, acc_dtype, cast_value, dtypes
from morok.ir import (
    AddrSpace,
    AxisId,
    AxisType,
    BufferizeOpts,
    Dim,
    Ops,
    ReduceOp,
    UOp,
    shape_operand,
)

Shape = tuple[int, ...]


@memoized(4096)
def dims(shape: tuple[Dim, ...]) -> UOp:
    """The shape operand of a movement op."""
    return shape_operand(shape)


def const(dtype: DType, value: Scalar) -> UOp:
    """`value`, cast as page 7.2 casts, as a constant that goes with any shape."""
    return UOp.const(dtype, cast_value(value, dtype))


def count(dtype: DType, number: Dim) -> UOp:
    """How many there are, as a value that goes with any shape."""
    return cast(number, dtype) if isinstance(number, UOp) else const(dtype, number)


def cast(u: UOp, dtype: DType) -> UOp:
    return u if u.dtype is dtype else UOp(Ops.CAST, dtype, (u,))


def alu(op: Ops, *src: UOp) -> UOp:
    """An elementwise op whose dtype is that of its first source."""
    return UOp(op, src[0].dtype, src)


def add(a: UOp, b: UOp) -> UOp:
    """The sum; a constant 0 adds nothing."""
    if a.op is Ops.CONST and a.arg == 0:
        return b
    return a if b.op is Ops.CONST and b.arg == 0 else alu(Ops.ADD, a, b)


def compare(op: Ops, a: UOp, b: UOp) -> UOp:
    return UOp(op, dtypes.bool_, (a, b))


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    return UOp(Ops.WHERE, a.dtype, (condition, a, b))


def reshape(u: UOp, shape: Shape) -> UOp:
    return u if u.shape == shape else UOp(Ops.RESHAPE, u.dtype, (u, dims(shape)))


def expand(u: UOp, shape: Shape) -> UOp:
    return u if u.shape == shape else UOp(Ops.EXPAND, u.dtype, (u, dims(shape)))


def broadcast_to(u: UOp, shape: Shape) -> UOp:
    """`u` with NumPy's rules: dims of size 1 put in front, then expanded."""
    own = shape_of(u)
    if own == shape:
        return u
    if len(own) < len(shape):
        u = reshape(u, (1,) * (len(shape) - len(own)) + own)
    return expand(u, shape)


def permute(u: UOp, axes: Sequence[int]) -> UOp:
    axes = tuple(axes)
    if axes == tuple(range(len(axes))):
        return u
    return UOp(Ops.PERMUTE, u.dtype, (u,), axes)


def shrink(u: UOp, begins: Sequence[Dim], ends: Sequence[Dim]) -> UOp:
    begins, ends = tuple(begins), tuple(ends)
    if ends == u.shape and all(n == 0 for n in begins):
        return u
    return UOp(Ops.SHRINK, u.dtype, (u, dims(begins), dims(ends)))


def pad(u: UOp, begins: Sequence[Dim], ends: Sequence[Dim]) -> UOp:
    """Zeros around `u`. An empty `u` contributes nothing, so the result is a constant."""
    begins, ends = tuple(begins), tuple(ends)
    if all(n == 0 for n in (*begins, *ends)):
        return u
    own = shape_of(u)
    if 0 in own:
        around: list[tuple[Any, int, Any]] = list(zip(begins, own, ends, strict=True))
        return full(tuple(b + n + e for b, n, e in around), u.dtype, 0)
    return UOp(Ops.PAD, u.dtype, (u, dims(begins), dims(ends)))


def flip(u: UOp, flags: Sequence[bool]) -> UOp:
    return UOp(Ops.FLIP, u.dtype, (u,), tuple(flags)) if any(flags) else u


def full(shape: Shape, dtype: DType, value: Scalar) -> UOp:
    """One value everywhere."""
    u = const(dtype, value)
    return expand(reshape(u, (1,) * len(shape)), shape) if shape else u


def reduce(u: UOp, op: ReduceOp, axes: Sequence[int]) -> UOp:
    """`u` reduced over `axes`, which are dropped. Axes of size 1 only disappear; over an axis of
    size 0 the result is the identity of `op`."""
    own = shape_of(u)
    left = tuple(n for axis, n in enumerate(own) if axis not in axes)
    if 0 in own:
        return full(left, u.dtype, op.identity(u.dtype))
    real = tuple(sorted(axis for axis in axes if own[axis] != 1))
    if real:
        u = UOp(Ops.REDUCE_AXIS, u.dtype, (u,), (op, real))
    return reshape(u, left)


def settled(u: UOp) -> UOp:
    """`u` as memory would hold it: rounded, if kernels compute its dtype in a wider one. What is
    compared with it may come from memory."""
    return alu(Ops.PRECAST, u) if u.dtype.kind == "f" and u.dtype.bits < 32 else u


def is_extreme(u: UOp, op: ReduceOp, axes: Sequence[int]) -> UOp:
    """Which elements of `u` equal the MAX or MIN over `axes`.

    The extreme is that of the very values compared. Memory in which a realised one stands holds
    what another kernel computed, whose sums may have been rounded in another order: nothing might
    equal it. The mark keeps the two apart until they are scheduled; where they are scheduled
    together they are the same.
    """
    values = settled(u)
    best = reduce(alu(Ops.DETACH, values), op, axes)
    shape = shape_of(u)
    return compare(Ops.EQ, values, broadcast_to(reshape(best, keep_axes(shape, axes)), shape))


def total(u: UOp, axes: Sequence[int]) -> UOp:
    """The sum over `axes`, which are dropped, accumulated in `acc_dtype` and given in u's dtype."""
    dtype = u.dtype
    return cast(reduce(cast(u, acc_dtype(dtype)), ReduceOp.ADD, axes), dtype)


def keep_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """`shape` with the reduced axes kept as 1."""
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape))


def iota(length: Dim, dtype: DType) -> UOp:
    """0, 1 … length-1 as a vector: a loop counter laid out along its own axis."""
    if length == 0:
        return full((0,), dtype, 0)
    counter = UOp(
        Ops.RANGE,
        dtypes.index,
        (length if isinstance(length, UOp) else UOp.const(dtypes.index, length),),
        (AxisId(0, False), AxisType.LOOP),
    )
    return UOp(Ops.BUFFERIZE, dtype, (cast(counter, dtype), counter), _INLINED)


_INLINED = BufferizeOpts(device=None, addrspace=AddrSpace.GLOBAL, removable=True)


def shape_of(u: UOp) -> Shape:
    """The shape of a node that has one."""
    shape: Shape | None = u.shape
    assert shape is not None, "a tensor-level node has a shape"
    return shape


def size_of(u: UOp) -> int:
    return prod(shape_of(u))
