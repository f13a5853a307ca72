"""How reductions walk the rows of what they read.

Which sums are made in a buffer (ACCUMULATE), so that what they read is read as it lies:

A reduction that runs across the rows of what it reads, the sum over k of x[k, j] or, for few i, of
a[i, k] * x[k, j], reads each element of x once. With the lane j outside of k every row gives a few
cache lines and the next is far away. With k outside, rows are read from end to end, several in one
pass over the sums.

And how many rows a reduction along them reads side by side: memory gives more when several places
are read in turn, and what all rows share is read once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.drafts import Draft
from morok.optimizer.facts import Facts
from morok.optimizer.opts import Opt, OptOps, apply_opt
from morok.optimizer.ranges import lane_stride, range_end, reads_of

__all__ = ["accumulate_rows", "rows_abreast", "rows_in_output"]

_MAX_ROWS = 8  # more make the operand worth a copy, see `staging`
_SHORTEST = 64  # lanes; sums along fewer stay in registers
_LEAST_STEPS = 16  # of the reduction
_LEAST_BYTES = 16 << 10  # read across rows
_LARGE_BYTES = 8 << 20  # worth two tiles at least, for two cores
_TOGETHER = (8, 4, 6, 10, 5, 7)  # rows a pass, best first
_SUMS = 8  # vectors of sums in registers
_ABREAST = 4  # rows read side by side
_LONG_TILE = 512  # lanes in a row from which on it hardly matters where a row ends


def accumulate_rows(facts: Facts) -> UOp:
    """The kernel with the sums of its first STORE that run across rows made in buffers, if any."""
    for store in facts.sink.src:
        groups = _groups(facts, store)
        if groups:
            try:
                return _accumulated(facts, store, groups)
            except OptError:
                continue
    return facts.sink


def _groups(facts: Facts, store: UOp) -> list[tuple[UOp, ...]]:
    """The ranges of the reductions of a STORE that run across rows, those that others need first;
    [] unless all of its reductions along its lane do."""
    lane = _lane(facts, store)
    if lane is None or range_end(lane) < _SHORTEST:
        return []
    below = set(store.toposort())
    nodes = [node for node in facts.reduces if node in below and lane in node.open_ranges]
    groups: dict[tuple[UOp, ...], None] = {}
    for node in nodes:
        if not _across(facts, store, node, lane):
            return []
        groups[node.ended_ranges] = None
    return list(groups)


def _lane(facts: Facts, store: UOp) -> UOp | None:
    """The axis along which a STORE writes neighbours, if all of its axes are free."""
    axes = store.ended_ranges
    lanes = [rng for rng in axes if lane_stride(store.src[0], rng) == 1]
    free = all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes)
    return lanes[0] if free and len(lanes) == 1 else None


def _rows(facts: Facts, store: UOp, node: UOp, lane: UOp) -> list[UOp]:
    return [rng for rng in facts.rows(node, lane) if rng in store.ended_ranges]


def _across(facts: Facts, store: UOp, node: UOp, lane: UOp) -> bool:
    """Does a reduction walk rows along the lane, for few rows of its own and for long?"""
    reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
    even = reads and all(facts.stride(read, lane) == 1 and not read.arg for read in reads)
    steps = math.prod(map(range_end, node.ended_ranges))
    size = range_end(lane) * node.dtype.itemsize
    return (
        bool(even)
        and all(facts.usable(rng) for rng in node.ended_ranges)
        and not any(lane in inner.open_ranges for inner in _at_each_step(node))
        and math.prod(map(range_end, _rows(facts, store, node, lane))) <= _MAX_ROWS
        and steps >= _LEAST_STEPS
        and steps * size >= _LEAST_BYTES
    )


def _at_each_step(node: UOp) -> list[UOp]:
    """The reductions that every step of one makes anew."""
    return [
        inner
        for inner in node.src[0].toposort()
        if inner.op is Ops.REDUCE and not set(node.ended_ranges).isdisjoint(inner.open_ranges)
    ]


def _accumulated(facts: Facts, store: UOp, groups: list[tuple[UOp, ...]]) -> UOp:
    """Rows inside, the lane cut into tiles and vectors, the sums of a tile in buffers."""
    lane = _lane(facts, store)
    if lane is None:
        return facts.sink
    nodes = [node for node in facts.reduces if node.ended_ranges in groups]
    rows = list(dict.fromkeys(rng for n in nodes for rng in _rows(facts, store, n, lane)))
    draft = Draft(facts.sink)
    outer = [rng for rng in store.ended_ranges if rng not in rows]
    inner = [rng for rng in store.ended_ranges if rng in rows]
    draft.order([*sorted(outer, key=_number), *sorted(inner, key=_number)])
    end, width = range_end(lane), facts.lanes(lane, wide=False)
    if end % width:
        draft.tail(lane, width, "rest")
        end -= end % width
    most = max(rows, key=range_end, default=None)
    copies = 1 if most is None else range_end(most)
    vector = 2 * width if 2 * copies <= _SUMS and end % (2 * width) == 0 else width
    tile = _tile(facts, nodes, rows, end, vector)
    part: Hashable = lane
    if tile < end:
        part = "tile"
        draft.split(lane, tile, part)
    unit = part
    if vector < tile:
        unit = "vector"
        draft.split(part, vector, unit)
    layout = [*([part] if unit != part else []), *rows, unit]
    for ranges in groups:
        together = _rows_a_pass(draft, ranges[-1])
        loop, *fills = draft.accumulate(ranges, layout)
        draft.do(OptOps.UPCAST, fills[-1], vector)
        if copies > 1 and most is not None:
            draft.do(OptOps.UPCAST, fills[layout.index(most)], copies)
        if together > 1:
            draft.do(OptOps.UNROLL, loop, together)
    draft.do(OptOps.UPCAST, unit, vector)
    return draft.sink


def _number(rng: UOp) -> int:
    return int(rng.arg[0].number)


def _rows_a_pass(draft: Draft, rng: UOp) -> int:
    """How many rows are added in one pass over the sums; few that are left over, separately."""
    end = range_end(rng)
    for together in _TOGETHER:
        if end % together == 0:
            return together
    if end < 2 * _TOGETHER[0]:
        return 1
    draft.tail(rng, _TOGETHER[0], (rng, "rest"))
    return _TOGETHER[0]


def _tile(facts: Facts, nodes: list[UOp], rows: list[UOp], end: int, vector: int) -> int:
    """Lanes whose sums the nearest cache holds, in whole vectors that divide the lane; many rows'
    come from the second one."""
    capability = facts.capability
    each = math.prod(map(range_end, rows)) * sum(node.dtype.itemsize for node in nodes)
    most = capability.l1_bytes * (2 if rows else 1) // each
    read = end * max(math.prod(map(range_end, n.ended_ranges)) * n.dtype.itemsize for n in nodes)
    if read >= _LARGE_BYTES:
        most = min(most, end // 2)
    vectors = end // vector
    fitting = [n for n in range(1, vectors + 1) if vectors % n == 0 and n * vector <= most]
    tile = max(fitting, default=1) * vector
    if tile < min(_LONG_TILE, end) and end * each <= capability.l2_bytes // 2:
        return end
    return tile


def rows_in_output(facts: Facts) -> UOp:
    """The kernel with a row that it computes kept in its output (INPLACE), where both together
    would fill half of the nearest cache."""
    for node in facts.order:
        if node.op is not Ops.BUFFERIZE:
            continue
        size = math.prod(map(range_end, node.ended_ranges)) * node.dtype.itemsize
        if 4 * size >= facts.capability.l1_bytes:
            try:
                return apply_opt(
                    facts.sink, Opt(OptOps.INPLACE, node.ended_ranges[-1].arg[0].number)
                )
            except OptError:
                continue
    return facts.sink


def rows_abreast(facts: Facts, node: UOp, lane: UOp) -> list[tuple[UOp, int]]:
    """The output axes, and how many of their rows a reduction along the lane walks side by side.

    Few rows that share the operand read most, all of them; then rows of that operand.
    """
    axes = [rng for rng in node.open_ranges if rng.op is Ops.RANGE]
    whole = {rng for store in facts.sink.src for rng in store.ended_ranges}
    if whole != set(axes) or not all(map(facts.usable, axes)):
        return []  # something else goes on in these loops
    reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
    most = max(reads, key=facts.trips.__getitem__)
    shared = [rng for rng in axes if rng not in most.open_ranges]
    if math.prod(map(range_end, shared)) > _MAX_ROWS:
        return []
    found = []
    left = _SUMS
    rows = max(shared, key=range_end, default=None)
    if rows is not None:
        found.append((rows, range_end(rows)))
        left //= range_end(rows)
    own = [rng for rng in axes if rng in most.open_ranges and facts.stride(most, rng)]
    inner = max(own, key=lambda rng: rng.arg[0], default=None)
    count = min(left, _ABREAST)
    if inner is not None and count > 1 and range_end(inner) >= count:
        found.append((inner, count))
    return found
