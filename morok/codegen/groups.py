"""Reductions in groups: partial results in a local buffer, and a second reduction over it."""

from __future__ import annotations

from morok._core import rebuild, toposort
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.optimizer import bound_ranges, make_range, moved_range, next_number, range_end

__all__ = ["lower_groups"]


def lower_groups(sink: UOp) -> UOp:
    """REDUCE(x, *loops, *groups) ->
    REDUCE(INDEX(BUFFERIZE(REDUCE(x, *loops), *fills), *fresh), *fresh)

    for GROUP_REDUCE ranges; a fill loop has its group's number, the fresh ranges are REDUCE.
    """
    groups = [u for u in toposort(sink) if u.op is Ops.RANGE and _is_group(u)]
    if not groups:
        return sink
    number = next_number(sink)
    fills = {rng: moved_range(rng, rng.arg[0].number, AxisType.LOOP) for rng in groups}
    fresh = {
        rng: make_range(range_end(rng), number + i, AxisType.REDUCE) for i, rng in enumerate(groups)
    }

    def lowered(node: UOp, src: tuple[UOp, ...]) -> UOp:
        bound = bound_ranges(node, AxisType.GROUP_REDUCE)
        if not bound:
            return UOp(node.op, node.dtype, src, node.arg)
        filled = [fills[rng] for rng in bound]
        loops = [rng for rng in src[1:] if rng not in filled]
        part = UOp(Ops.REDUCE, node.dtype, (src[0], *loops), node.arg) if loops else src[0]
        buffer = part.bufferize(*filled, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL))
        again = [fresh[rng] for rng in bound]
        return UOp(Ops.REDUCE, node.dtype, (buffer.at(*again), *again), node.arg)

    def as_fill(node: UOp, src: tuple[UOp, ...]) -> UOp:
        return fills.get(node, node)

    return rebuild(sink, {Ops.REDUCE: lowered, Ops.RANGE: as_fill})


def _is_group(rng: UOp) -> bool:
    return rng.arg[1] is AxisType.GROUP_REDUCE
