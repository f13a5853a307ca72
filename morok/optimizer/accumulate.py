"""ACCUMULATE: sums that stand in memory near the core, and how the loops then lie.

    for j: acc = sum over k of x[k, j]; out[j] = acc

reads x across its rows. With the partial sums of all j in a buffer, k is the outer loop and x is
read as it lies in memory:

    for j: buf[j] = 0
    for k: for j: buf[j] += x[k, j]
    for j: out[j] = buf[j]
"""

from __future__ import annotations

import math

from morok._core import toposort
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.optimizer.legality import LOOPS, check_locals_wanted, loop_axis, require
from morok.optimizer.local import MAX_LOCAL_BYTES
from morok.optimizer.ranges import moved_range, next_number, range_end, substitute_open

__all__ = ["accumulate", "accumulates"]


def accumulate(sink: UOp, axis: int, *layout: int) -> UOp:
    """REDUCE(x(r, a, b), r) -> INDEX(BUFFERIZE(REDUCE(x(n, n+1, n+2), n), n+1, n+2), a, b)

    for all REDUCEs over `axis`, r, that depend on a and b, the axes of `layout`; their other axes
    are renumbered too, in their order. The reduction is the outer loop.
    """
    check_locals_wanted(sink)
    reduced = loop_axis(sink, axis)
    require(reduced.arg[1] is AxisType.REDUCE, f"axis {axis} is no reduction")
    named = [loop_axis(sink, number) for number in layout]
    require(len(set(named)) == len(named), "an axis is named twice")
    order = toposort(sink)
    sums = [
        node
        for node in order
        if node.op is Ops.REDUCE
        and reduced in node.ended_ranges
        and all(rng in node.open_ranges for rng in named)
    ]
    require(bool(sums), f"no reduction over axis {axis} depends on all these axes")
    ranges = sums[0].ended_ranges
    for node in sums:
        require(node.ended_ranges == ranges, f"reductions over axis {axis} differ in other axes")
        require(
            all(rng.arg[1] in LOOPS for rng in (*node.open_ranges, *ranges)),
            "a reduction depends on an axis that is no loop any more",
        )
    require(
        not any(_needs_one(node, sums) for node in sums),
        f"reductions over axis {axis} need each other",
    )
    size = math.prod(map(range_end, named)) * sum(node.dtype.itemsize for node in sums)
    require(size <= MAX_LOCAL_BYTES, f"sums of {size} bytes are more than {MAX_LOCAL_BYTES}")
    number = next_number(sink)
    loops = [moved_range(rng, number + i) for i, rng in enumerate(ranges)]
    number += len(loops)
    fills = [moved_range(rng, number + i, AxisType.LOOP) for i, rng in enumerate(named)]
    moved = dict(zip((*ranges, *named), (*loops, *fills), strict=True))
    values = substitute_open([node.src[0] for node in sums], moved)
    new = {}
    for node, value in zip(sums, values, strict=True):
        total = UOp(Ops.REDUCE, node.dtype, (value, *loops), node.arg)
        buffer = total.bufferize(*fills, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL))
        new[node] = buffer.at(*named)
    return sink.substitute(new)


def _needs_one(node: UOp, sums: list[UOp]) -> bool:
    below = set(toposort(node.src[0]))
    return any(other in below for other in sums)


def accumulates(buffer: UOp) -> bool:
    """Does a BUFFERIZE hold sums whose loop lies outside of the one along the buffer?"""
    total = buffer.src[0]
    if total.op is not Ops.REDUCE:
        return False
    outer = [rng.arg[0] for rng in total.ended_ranges if rng.arg[1] is AxisType.REDUCE]
    inner = [rng.arg[0] for rng in buffer.ended_ranges if rng.arg[1] is AxisType.LOOP]
    return bool(outer and inner) and min(outer) < max(inner)
