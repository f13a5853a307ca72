"""Elements that are written in turn, one of each of a few rows: as one long row.

    for x < 10: for q < 2: out[2*x + q] = f(a[2*x + q], b[x])   ->   for m < 20: … a[m], b[m // 2]

The lane of two is none, that of twenty is: most of what is read lies side by side too, and lanes
that read the same element share it.
"""

from __future__ import annotations

from morok.errors import OptError
from morok.ir import UOp
from morok.optimizer.facts import SHORT_LANE, Facts
from morok.optimizer.opts import Opt, OptOps, apply_opt
from morok.optimizer.ranges import lane_stride, range_end

__all__ = ["merge_interleaved"]


def merge_interleaved(facts: Facts) -> UOp:
    """The kernel without sums whose short lane is merged with the loop that goes on where it ends,
    if most reads do."""
    sink = facts.sink
    if facts.reduces or len(sink.src) != 1:
        return sink
    (store,) = sink.src
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    lanes = [rng for rng in axes if lane_stride(store.src[0], rng) == 1]
    if len(lanes) != 1 or range_end(lanes[0]) >= SHORT_LANE or not all(map(facts.usable, axes)):
        return sink
    (lane,) = lanes
    end = range_end(lane)
    for outer in axes:
        if outer is lane or lane_stride(store.src[0], outer) != end or range_end(outer) < 2:
            continue
        reads = [read for read in facts.reads if {outer, lane} & set(read.open_ranges)]
        along = [(facts.stride(read, lane), facts.stride(read, outer)) for read in reads]
        if 2 * along.count((1, end)) >= len(along):
            try:
                numbers = (outer.arg[0].number, lane.arg[0].number)
                return apply_opt(sink, Opt(OptOps.MERGE, *numbers))
            except OptError:
                break
    return sink
