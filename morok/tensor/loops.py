"""Values by elements: gathers, scatters and scans as loops over explicit RANGEs (see
`morok.ir.elements`), and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from morok.dtype import dtypes
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.tensor import nodes
from morok.tensor.nodes import Shape

_VALUE = BufferizeOpts(device=None, addrspace=AddrSpace.GLOBAL, removable=True)


def counters(shape: Shape) -> tuple[UOp, ...]:
    """A loop for each dim, outermost first."""
    return tuple(UOp.range(n, axis, AxisType.LOOP) for axis, n in enumerate(shape))


def position(index: UOp, at: Sequence[UOp], length: int) -> UOp:
    """The element of an int tensor as a place along an axis of `length`: negative ones count from
    the end."""
    i = nodes.cast(element(index, at), dtypes.index)
    low = i.vmin
    if low is None or low < 0:
        end = UOp.const(dtypes.index, length)
        i = nodes.where(i < 0, i + end, i)
    return i


def clamped(i: UOp, length: int) -> UOp:
    """The nearest place along an axis of `length`."""
    return i.maximum(UOp.const(dtypes.index, 0)).minimum(UOp.const(dtypes.index, length - 1))


def element(u: UOp, at: Sequence[UOp]) -> UOp:
    """The element of a tensor at these loops, from the right and along dims of size 1 as NumPy
    broadcasts."""
    shape = nodes.shape_of(u)
    zero = UOp.const(dtypes.index, 0)
    own = at[len(at) - len(shape) :]
    return u.at(*(zero if n == 1 else i for i, n in zip(own, shape, strict=True)))


def gathered(u: UOp, at: Sequence[UOp], loops: Sequence[UOp]) -> UOp:
    """The tensor over `loops` of the elements of `u` at `at`."""
    return UOp(Ops.BUFFERIZE, u.dtype, (u.at(*at), *loops), _VALUE)


def scattered(
    u: UOp, at: Sequence[UOp], inside: UOp | None, value: UOp, loops: Sequence[UOp], add: bool
) -> UOp:
    """`u` with the scalar `value` put (or added) where `at` points, in the order of the loops, if
    `inside`."""
    memory = UOp(Ops.CONTIGUOUS, u.dtype, (u,))
    # Two iterations meet only if they agree in every loop that is itself an index.
    carried = [loop for loop in loops if loop not in at]
    place = memory.after(*carried).at(*at, gate=inside)
    if add:
        value = place + value
    store = UOp(Ops.STORE, dtypes.void, (place, value, *loops))
    return memory.after(store)


def scanned(u: UOp, axis: int, op: Ops) -> UOp:
    """Element i along `axis` is that of `op` over the elements 0 … i of `u`."""
    shape = nodes.shape_of(u)
    loops = counters(shape)
    memory = UOp(Ops.CONTIGUOUS, u.dtype, (nodes.full(shape, u.dtype, 0),))
    i = loops[axis]
    before = [(j - 1).maximum(UOp.const(dtypes.index, 0)) if j is i else j for j in loops]
    own = u.at(*loops)
    value = nodes.where(i < 1, own, nodes.alu(op, memory.after(i).at(*before), own))
    store = UOp(Ops.STORE, dtypes.void, (memory.after(i).at(*loops), value, *loops))
    return memory.after(store)
