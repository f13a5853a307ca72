"""Values by elements: gathers, scatters and scans as loops over explicit RANGEs (see
`morok.ir.elements`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from morok.dtype import DType, dtypes
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.tensor import nodes
from morok.tensor.nodes import Shape

_VALUE = BufferizeOpts(device=None, addrspace=AddrSpace.GLOBAL, removable=True)

_OWN = "a loop's own"
"""Hint of the CONTIGUOUS that an ordered loop writes: it is no tensor's value, and so never stands
in memory already, as that of `contiguous` may."""


def counters(shape: Shape) -> tuple[UOp, ...]:
    """A loop for each dim, outermost first."""
    return tuple(UOp.range(n, axis, AxisType.LOOP) for axis, n in enumerate(shape))


def position(index: UOp, at: Sequence[UOp], length: int) -> UOp:
    """The element of an int tensor as a place along an axis of `length`: negative ones count from
    the end."""
    i = nodes.cast(element(index, at), dtypes.index)
    if index.dtype.bits == 64:  # bounds that int64 arithmetic can be done on
        i = i.maximum(UOp.const(dtypes.index, -length - 1)).minimum(UOp.const(dtypes.index, length))
    if i.vmin is None or i.vmin < 0:
        i = nodes.where(i < 0, i + UOp.const(dtypes.index, length), i)
    return i


def clamped(i: UOp, length: int) -> UOp:
    """The nearest place along an axis of `length`."""
    return i.maximum(UOp.const(dtypes.index, 0)).minimum(UOp.const(dtypes.index, length - 1))


def element(u: UOp, at: Sequence[UOp]) -> UOp:
    """The element of a tensor at these loops, from the right and along dims of size 1 as NumPy
    broadcasts."""
    if u.op is Ops.CONST:
        return u
    shape = nodes.shape_of(u)
    zero = UOp.const(dtypes.index, 0)
    own = at[len(at) - len(shape) :]
    return u.at(*(zero if n == 1 else i for i, n in zip(own, shape, strict=True)))


def tabulated(value: UOp, loops: Sequence[UOp]) -> UOp:
    """The tensor over `loops` of the scalar `value`."""
    return UOp(Ops.BUFFERIZE, value.dtype, (value, *loops), _VALUE)


def scattered(
    u: UOp, at: Sequence[UOp], inside: UOp | None, value: UOp, loops: Sequence[UOp], add: bool
) -> UOp:
    """`u` with the scalar `value` put (or added) where `at` points, in the order of the loops, if
    `inside`."""
    memory = UOp(Ops.CONTIGUOUS, u.dtype, (u,), _OWN)
    # Two iterations meet only if they agree in every loop that is itself an index.
    place = memory.after(*(loop for loop in loops if loop not in at)).at(*at, gate=inside)
    if add:
        value = nodes.alu(Ops.ADD, place, value)
    return memory.after(UOp(Ops.STORE, dtypes.void, (place, value, *loops)))


def recurrence(
    shape: Shape, axis: int, dtype: DType, step: Callable[[UOp, tuple[UOp, ...]], UOp]
) -> UOp:
    """Element i along `axis` is `step(element i-1, loops)`; in the first step the former is no
    number to use."""
    loops = counters(shape)
    memory = UOp(Ops.CONTIGUOUS, dtype, (nodes.full(shape, dtype, 0),), _OWN)
    seen = memory.after(loops[axis])
    before = list(loops)
    before[axis] = (loops[axis] - 1).maximum(UOp.const(dtypes.index, 0))
    value = step(seen.at(*before), loops)
    return memory.after(UOp(Ops.STORE, dtypes.void, (seen.at(*loops), value, *loops)))


def scanned(u: UOp, axis: int, op: Ops) -> UOp:
    """Element i along `axis` is that of `op` over the elements 0 … i of `u`."""

    def step(before: UOp, loops: tuple[UOp, ...]) -> UOp:
        own = u.at(*loops)
        return nodes.where(loops[axis] < 1, own, nodes.alu(op, before, own))

    return recurrence(nodes.shape_of(u), axis, u.dtype, step)
