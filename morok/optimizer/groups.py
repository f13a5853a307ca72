"""GROUP, GROUPTOP, NOLOCALS: partial sums in memory near the core, and kernels that want none.

    GROUP     sum over r < n*m of x[r]  ->  for g < m: buf[g] = sum over r < n of x[r * m + g]
                                            sum over g of buf[g]
    GROUPTOP  sum over r < n*m of x[r]  ->  for g < m: buf[g] = sum over r < n of x[g * n + r]
                                            sum over g of buf[g]

The actions retype a part of the reduction's range; stage 9 makes the buffer. GROUP takes neighbours
apart, so that a pass over the buffer reads what lies together; GROUPTOP takes runs apart.
"""

from __future__ import annotations

from dataclasses import replace

from morok.ir import AxisType, KernelInfo, Ops, UOp
from morok.optimizer.legality import (
    binders_of,
    check_divides,
    check_independent,
    check_locals_wanted,
    loop_axis,
    make_room,
    require,
)
from morok.optimizer.local import MAX_LOCAL_BYTES
from morok.optimizer.ranges import make_range, next_number, range_end, rename_ranges

__all__ = ["group", "group_top", "no_locals"]

_COPIES = (AxisType.UPCAST, AxisType.UNROLL)


def group(sink: UOp, axis: int, amount: int) -> UOp:
    """R(a, n*m, REDUCE) -> R(a, n)*m + R(new, m, GROUP_REDUCE)"""
    rng = _reduction(sink, axis, amount)
    inner = make_range(amount, next_number(sink), AxisType.GROUP_REDUCE)
    count = range_end(rng) // amount
    parts = (inner,) if count == 1 else (make_range(count, axis, rng.arg[1]), inner)
    return rename_ranges(sink, {rng: parts})


def group_top(sink: UOp, axis: int, amount: int) -> UOp:
    """R(a, m*n, REDUCE) -> R(a, m, GROUP_REDUCE)*n + R(a+1, n), axes above a move up"""
    rng = _reduction(sink, axis, amount)
    outer = make_range(amount, axis, AxisType.GROUP_REDUCE)
    count = range_end(rng) // amount
    if count == 1:
        return rename_ranges(sink, {rng: (outer,)})
    sink, rng = make_room(sink, rng)
    return rename_ranges(sink, {rng: (outer, make_range(count, axis + 1, rng.arg[1]))})


def no_locals(sink: UOp) -> UOp:
    """KernelInfo.dont_use_locals: later actions that make local buffers are refused."""
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    require(not info.dont_use_locals, "the kernel is to have no local buffers already")
    return UOp(Ops.SINK, sink.dtype, sink.src, replace(info, dont_use_locals=True))


def _reduction(sink: UOp, axis: int, amount: int) -> UOp:
    """The axis, if partial sums of `amount` parts of it may stand in a buffer."""
    check_locals_wanted(sink)
    rng = loop_axis(sink, axis)
    require(rng.arg[1] is AxisType.REDUCE, f"axis {axis} is no reduction")
    check_divides(rng, amount)
    check_independent(sink, rng)
    for node in binders_of(sink, rng):
        grouped = any(other.arg[1] is AxisType.GROUP_REDUCE for other in node.ended_ranges)
        require(not grouped, f"the reduction over axis {axis} has groups already")
        copied = [other for other in node.open_ranges if other.arg[1] in _COPIES]
        require(not copied, "the buffer would be filled inside an axis that is no loop any more")
        size = amount * node.dtype.itemsize
        require(size <= MAX_LOCAL_BYTES, f"sums of {size} bytes are more than {MAX_LOCAL_BYTES}")
    return rng
