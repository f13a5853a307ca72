"""Which operands of a tiled reduction are copied to memory near the core, and in which loop order.

In `C[i, j] = sum over k of A[i, k] * B[k, j]` every row i reads all of B. With the lane axis j
outside of i, cut into tiles, the part of B that one tile needs,

    for j: copy P[k, jt] = B[k, j, jt];  for i: C[i, j, jt] = sum over k of A[i, k] * P[k, jt]

is copied once and read from the nearest caches, neighbour after neighbour, by every row. It pays
when there are enough rows. B may be strided along j (a transposed matrix) or gated (a padded
image): the copy is neither, so any such read becomes the matrix product's inner loop.

Where A is strided along k, a step of k needs other cache lines than the one before, more of them
than the first cache holds or its sets take. The rows of a tile are then copied, too.

Where A is more than the second cache holds, every tile of j reads all of it from beyond. Two or
more tiles whose copies fit there then share what is read of a block of rows:

    for j: copy P[jt, k, jtu];  for i: for jt: for ib: C[i, ib, j, jt] = sum over k of A[…] * P[…]
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.drafts import Draft
from morok.optimizer.facts import SHORT_LANE, Facts, short_lane
from morok.optimizer.opts import MAX_LOCAL_BYTES, Opt, OptOps, replay
from morok.optimizer.ranges import lane_stride, range_end, reads_of
from morok.optimizer.tiles import Tile, choose_tile, walks_far

__all__ = ["stage_operand"]

_MIN_ROWS = 16  # fewer do not pay for the copy
_VECTORS = 2  # per tile
_NO_LANE = 4  # iterations below which an axis makes no vectors at all
_PANELS = 8  # are left at least, for threads to share
_FAR = 4  # times the second cache: what is more comes from beyond again and again
_GOOD_PANEL, _LEAST_PANEL = 16, 4  # tiles that share a strip


def stage_operand(facts: Facts) -> UOp:
    """The kernel with the operands of the heaviest reduction, and of those like it, staged where
    that pays."""
    sink = facts.sink
    merged = facts
    while (merge := merge_short_lane(merged)) is not None:
        sink = replay(sink, (merge,))
        merged = Facts(sink, facts.capability)
    staged = _staged(merged)
    return staged if merged is facts or staged is not sink else _staged(facts)


def _staged(facts: Facts) -> UOp:
    for node in facts.heaviest_first():
        staged = stage_reduce(facts, node)
        if staged is not facts.sink:
            return staged
    return facts.sink


def merge_short_lane(facts: Facts) -> Opt | None:
    """The MERGE of a lane that is short with the loop around it along which the STORE goes on, if
    there is one: the rows of a small image are one long row.

    What reductions read may become uneven, as a copy of it is not; other reads must go on too. The
    taps of a window, along which the sums of a weight's gradient walk a whole image, are no rows.
    """
    if len(facts.sink.src) != 1 or not facts.reduces:
        return None
    (store,) = facts.sink.src
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    lanes = [rng for rng in axes if lane_stride(store.src[0], rng) == 1]
    if not all(map(facts.usable, axes)) or len(lanes) != 1 or not short_lane(lanes[0]):
        return None
    (lane,) = lanes
    copied = reads_of([node.src[0] for node in facts.reduces])
    if any(_are_taps(facts, read, lane) for read in copied):
        return None
    even = [store.src[0], *(read for read in facts.reads if read not in copied)]
    for outer in axes:
        if outer is not lane and all(_goes_on(each, outer, lane) for each in even):
            return Opt(OptOps.MERGE, outer.arg[0].number, lane.arg[0].number)
    return None


def _are_taps(facts: Facts, read: UOp, lane: UOp) -> bool:
    """Does a sum walk further, in steps short of a whole lane, along the neighbours that a read has
    along the lane?"""
    step = facts.stride(read, lane)
    if not step:
        return False
    longer = [
        rng
        for rng in read.open_ranges
        if rng.arg[1] is AxisType.REDUCE and range_end(rng) > range_end(lane)
    ]
    strides = [facts.stride(read, rng) or 0 for rng in longer]
    return any(n % step == 0 and 0 < abs(n) < abs(step) * range_end(lane) for n in strides)


def _goes_on(index: UOp, outer: UOp, lane: UOp) -> bool:
    """Does the next iteration of `outer` begin where the last one of `lane` ends?"""
    along = lane_stride(index, lane)
    return along is not None and lane_stride(index, outer) == along * range_end(lane)


def stage_reduce(facts: Facts, node: UOp) -> UOp:
    """The kernel with the operand along the lane of a REDUCE staged, if that pays.

    The lane is the axis that the result is stored along, or where that is short, as in the gradient
    of a convolution's weight, the axis whose copy serves most rows.
    """
    for store in facts.sink.src:
        axes = [rng for rng in store.ended_ranges if rng in node.open_ranges]
        lanes = [rng for rng in axes if lane_stride(store.src[0], rng) == 1]
        others: list[UOp] = []
        hopeless = all(range_end(rng) < _NO_LANE for rng in lanes)
        if lanes and all(map(short_lane, lanes)) and (hopeless or not _gated(node)):
            others = [rng for rng in axes if rng not in lanes and range_end(rng) >= SHORT_LANE]
            others.sort(key=lambda rng: _product(facts.rows(node, rng)), reverse=True)
        for lane in (*others, *lanes[:1]):
            staged = _staging(facts, node, store, lane)
            if staged is not facts.sink:
                return staged
    return facts.sink


def _gated(node: UOp) -> bool:
    """Some read is guarded: a question at every element for every row is no inner loop."""
    return any(read.arg for read in reads_of(node.src[:1])) or node.src[0].has(Ops.WHERE)


def _product(axes: Iterable[UOp]) -> int:
    return math.prod(map(range_end, axes))


def _staging(facts: Facts, node: UOp, store: UOp, lane: UOp) -> UOp:
    axes = store.ended_ranges
    if not all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes):
        return facts.sink
    rows = [rng for rng in facts.rows(node, lane) if rng in axes]
    if _product(rows) < _MIN_ROWS:
        return facts.sink
    alike = [
        other
        for other in facts.reduces
        if other is not node and set(rows) <= set(facts.rows(other, lane))
    ]
    for nodes in ([node, *alike], [node]) if alike else ([node],):
        for copied in _copied(facts, nodes, lane):
            plan = _Plan(nodes, copied, lane, rows, axes)
            width = _tile_width(facts, list(copied), lane, plan.depth)
            for strips in (_strips(facts, plan, width), None) if width else ():
                try:
                    return _carried_out(facts, plan, width, strips)
                except OptError:
                    continue
    return facts.sink


def _copied(facts: Facts, nodes: list[UOp], lane: UOp) -> list[dict[UOp, tuple[UOp, ...]]]:
    """What to copy for some REDUCEs, best first: each read along the lane, and the loops it is
    copied along. All loops of a sum in parts, so that one copy serves all rows; if that is too
    much, one part."""
    reads: dict[UOp, UOp] = {}
    for node in nodes:
        for read in reads_of(node.src[:1]):
            if lane in read.open_ranges:
                reads.setdefault(read, node)
    slots = {read.src[0] for read in reads if read.src[0].op is Ops.PARAM}
    if not reads or len(slots) < len(reads):
        return []
    whole = {read: _loops(read, node, parts=True) for read, node in reads.items()}
    part = {read: _loops(read, node, parts=False) for read, node in reads.items()}
    if not all(part.values()):
        return []
    if not all(facts.usable(rng) for named in whole.values() for rng in named):
        return []
    return [whole, part] if whole != part else [whole]


def _loops(read: UOp, node: UOp, *, parts: bool) -> tuple[UOp, ...]:
    """The loops of a REDUCE that a read walks; with `parts` also those of REDUCEs around it."""
    loops = read.open_ranges if parts else node.ended_ranges
    return tuple(rng for rng in loops if rng.arg[1] is AxisType.REDUCE and rng in read.open_ranges)


class _Plan(NamedTuple):
    """What is staged for some REDUCEs."""

    nodes: list[UOp]
    copied: dict[UOp, tuple[UOp, ...]]  # reads along the lane, and the loops they are copied along
    lane: UOp
    rows: list[UOp]  # axes that the copies serve
    axes: tuple[UOp, ...]  # all axes of the STORE

    @property
    def depth(self) -> int:
        """Elements that are copied for each lane."""
        return sum(map(_product, self.copied.values()))


class _Strips(NamedTuple):
    """Operands that go with the rows, copied for the rows of a tile at a time; none where several
    tiles just share what they read of the rows."""

    reads: dict[UOp, tuple[UOp, ...]]  # and the loops they are copied along
    tile: Tile
    panel: int  # tiles along the lane that use a strip
    block: int = 0  # tiles of rows that a tile of the lane goes through before the next one


def _carried_out(facts: Facts, plan: _Plan, width: int, strips: _Strips | None) -> UOp:
    """Rows inside, the lane cut into tiles, what a tile reads along its named axes copied.

    With strips, several tiles of the lane are copied together and stand inside of the rows:

        for j: copy P[jt, k, jtu]; for i: copy S[k, iu]; for jt: tile of S and P
    """
    draft, lane, end = Draft(facts.sink), plan.lane, range_end(plan.lane)
    for axis in sorted(plan.axes, key=draft.number.__getitem__, reverse=True):
        if axis in plan.rows:
            draft.move_inside(axis, set(plan.axes).difference(plan.rows))
    if end % width:
        draft.tail(lane, width, "rest")
    tiles: Hashable = lane
    inner: Hashable = lane
    if strips is not None and end // width > strips.panel:
        tiles = "tiles"
        draft.split(lane, strips.panel * width, tiles)
    if end >= 2 * width:
        inner = "inner"
        draft.split(tiles, width, inner)
    if strips is not None:
        row, copies, _ = strips.tile
        if strips.block:
            if range_end(row) % copies:
                draft.tail(row, strips.block * copies, "last rows")
            draft.split(row, strips.block * copies, "rows of a block")
        draft.move_inside(tiles, plan.rows)
    for read, named in plan.copied.items():
        loops = sorted(named, key=draft.number.__getitem__)
        if strips is None:
            draft.local([*loops, inner], read.src[0].arg[0], [])
            continue
        fills = [(read, axis) for axis in (tiles, *loops, inner)]
        draft.local([tiles, *loops, inner], read.src[0].arg[0], fills)
        if lane_stride(read, lane) == 1:  # whole rows of the panel are read one after another
            draft.move_inside(fills[0], fills[1:-1])
    if strips is not None and strips.reads:
        _cut_strips(draft, strips)
    return draft.sink


def _cut_strips(draft: Draft, strips: _Strips) -> None:
    row, copies, _ = strips.tile
    end = range_end(row)
    parts: list[tuple[Hashable, ...]] = [(row,)]
    if end % copies:
        draft.tail(row, copies, "last rows")
        parts.append(("last rows",) if end % copies > 1 else ())
    if end >= 2 * copies:
        draft.split(row, copies, "rows of a tile")
        parts[0] = ("rows of a tile",)
    for read, named in strips.reads.items():
        loops = sorted(named, key=draft.number.__getitem__)
        for part in parts:
            draft.local([*loops, *part], read.src[0].arg[0], [])


def _strips(facts: Facts, plan: _Plan, width: int) -> _Strips | None:
    """The strips that pay: of operands that leave the first cache between two tiles of the lane."""
    lanes = facts.lanes(plan.lane, wide=True)
    node = plan.nodes[0]
    tile = choose_tile(facts, node, plan.lane, plan.rows, lanes, max(1, width // lanes))
    reads = {}
    for other in plan.nodes:
        for read in reads_of(other.src[:1]):
            named = _loops(read, other, parts=False)
            if plan.lane in read.open_ranges or tile.row not in read.open_ranges or not named:
                continue
            if read.src[0].op is Ops.PARAM and walks_far(facts, read, named, tile):
                reads[read] = named
    if reads:
        panel = _panel(facts, plan, width)
        return _Strips(reads, tile, panel) if panel else None
    panel = _shared_panel(facts, plan, width)
    return _Strips(reads, tile, panel, _block(facts, plan, tile)) if panel else None


def _block(facts: Facts, plan: _Plan, tile: Tile) -> int:
    """How many tiles of rows a quarter of the second cache holds; 0 for one. They divide all, so
    that no more rows are left over."""
    size = plan.nodes[0].dtype.itemsize
    tiles = range_end(tile.row) // tile.copies
    most = facts.capability.l2_bytes // (4 * plan.depth * size * tile.copies)
    fitting = [n for n in range(2, min(most, tiles - 1) + 1) if tiles % n == 0]
    return max(fitting, default=0)


def _shared_panel(facts: Facts, plan: _Plan, width: int) -> int:
    """How many tiles of the lane share rows that are read from beyond the second cache; 0 where one
    is as good. Half of the cache is for their copies."""
    tiles, near = range_end(plan.lane) // width, facts.capability.l2_bytes
    far = any(
        _product(read.open_ranges) * read.dtype.itemsize > _FAR * near
        for node in plan.nodes
        for read in reads_of(node.src[:1])
        if plan.lane not in read.open_ranges
    )
    size = plan.depth * width * max(read.dtype.itemsize for read in plan.copied)
    fitting = [n for n in range(2, tiles // _PANELS + 1) if tiles % n == 0 and 2 * n * size <= near]
    return max(fitting, default=0) if far else 0


def _panel(facts: Facts, plan: _Plan, width: int) -> int:
    """How many tiles of the lane share a strip; 0 where too few would.

    Their copies are read once for every strip: from the second cache if enough fit there.
    """
    tiles = range_end(plan.lane) // width
    size = plan.depth * width * max(read.dtype.itemsize for read in plan.copied)
    fitting = [n for n in range(1, tiles + 1) if tiles % n == 0 and n * size <= MAX_LOCAL_BYTES]
    near = [n for n in fitting if n * size <= facts.capability.l2_bytes or n <= _GOOD_PANEL]
    panel = max(near, default=0)
    if panel < _LEAST_PANEL:
        panel = next((n for n in fitting if n >= _LEAST_PANEL), 0)
    return panel


def _tile_width(facts: Facts, reads: list[UOp], lane: UOp, depth: int) -> int:
    """Lanes of a tile; 0 where the operands are read well enough as they are."""
    width = facts.lanes(lane, wide=True)
    end, size = range_end(lane), max(read.dtype.itemsize for read in reads)
    if width < 4 or end < width:
        return 0
    even = all(lane_stride(read, lane) == 1 for read in reads)
    if even and depth * end * size <= facts.capability.l1_bytes:
        return 0
    for tile in (_VECTORS * width, width):
        fits = depth * tile * size <= MAX_LOCAL_BYTES
        if fits and (end % tile == 0 or (end >= 4 * tile and tile > width)):
            return tile
    return width if depth * width * size <= MAX_LOCAL_BYTES else 0
