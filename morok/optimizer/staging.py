"""Which operand of a tiled reduction is copied to memory near the core, and in which loop order.

In `C[i, j] = sum over k of A[i, k] * B[k, j]` every row i reads all of B. With the lane axis j
outside of i, cut into tiles, the part of B that one tile needs,

    for j: copy P[k, jt] = B[k, j, jt];  for i: C[i, j, jt] = sum over k of A[i, k] * P[k, jt]

is copied once and read from the nearest caches, neighbour after neighbour, by every row. It pays
when there are enough rows. B may be strided along j (a transposed matrix) or gated (a padded
image): the copy is neither, so any such read becomes the matrix product's inner loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.facts import SHORT_LANE, Facts, short_lane
from morok.optimizer.opts import MAX_LOCAL_BYTES, Opt, OptOps, replay
from morok.optimizer.ranges import lane_stride, range_end, reads_of

__all__ = ["choose_staging", "stage_operand"]

_MIN_ROWS = 16  # fewer do not pay for the copy
_VECTORS = 2  # per tile
_NO_LANE = 4  # iterations below which an axis makes no vectors at all


def stage_operand(facts: Facts) -> UOp:
    """The kernel with the operand of one reduction staged, where that pays."""
    for node in sorted(facts.reduces, key=_work, reverse=True):
        opts = choose_staging(facts, node)
        if opts:
            try:
                return replay(facts.sink, opts)
            except OptError:
                continue
    return facts.sink


def _work(node: UOp) -> int:
    return math.prod(range_end(rng) for rng in (*node.open_ranges, *node.ended_ranges))


def choose_staging(facts: Facts, node: UOp) -> tuple[Opt, ...]:
    """The actions that stage the operand along the lane of a REDUCE; () where it does not pay.

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
            opts = _staging(facts, node, store, lane)
            if opts:
                return opts
    return ()


def _gated(node: UOp) -> bool:
    """Some read is guarded: a question at every element for every row is no inner loop."""
    return any(read.arg for read in reads_of(node.src[:1])) or node.src[0].has(Ops.WHERE)


def _product(axes: Iterable[UOp]) -> int:
    return math.prod(map(range_end, axes))


def _staging(facts: Facts, node: UOp, store: UOp, lane: UOp) -> tuple[Opt, ...]:
    axes = store.ended_ranges
    if not all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes):
        return ()
    rows = [rng for rng in facts.rows(node, lane) if rng in axes]
    reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
    if len(reads) != 1 or _product(rows) < _MIN_ROWS:
        return ()
    read = reads[0]
    # All loops of a sum in parts, so that one copy serves all rows; if that is too much, one part.
    whole = [rng for rng in read.open_ranges if rng.arg[1] is AxisType.REDUCE]
    part = [rng for rng in node.ended_ranges if rng in read.open_ranges]
    if read.src[0].op is not Ops.PARAM or not part or not all(map(facts.usable, whole)):
        return ()
    for named in dict.fromkeys((tuple(whole), tuple(part))):
        tile = _tile_width(facts, read, lane, _product(named))
        if tile:
            return _opts(named, read, lane, rows, axes, tile)
    return ()


def _opts(
    named: tuple[UOp, ...],
    read: UOp,
    lane: UOp,
    rows: list[UOp],
    axes: tuple[UOp, ...],
    tile: int,
) -> tuple[Opt, ...]:
    """Rows inside, the lane cut into tiles, what a tile reads along the `named` axes copied."""
    swaps, place = _rows_inside(list(axes), rows, lane)
    opts = [Opt(OptOps.SWAP, first, second) for first, second in swaps]
    above = 0  # how far the numbers above the lane's have moved
    end = range_end(lane)
    if end % tile:
        opts.append(Opt(OptOps.TAIL, place, tile))
        above += 1
    inner = place
    if end >= 2 * tile:
        opts.append(Opt(OptOps.SPLIT, place, tile))
        above += 1
        inner = place + 1
    numbers = sorted(rng.arg[0].number for rng in named)
    first, *more = [number + above if number > place else number for number in numbers]
    opts.append(Opt(OptOps.LOCAL, first, (read.src[0].arg[0], *more, inner)))
    return tuple(opts)


def _tile_width(facts: Facts, read: UOp, lane: UOp, depth: int) -> int:
    """Lanes of a tile; 0 where the operand is read well enough as it is."""
    width = facts.lanes(lane, wide=True)
    end, size = range_end(lane), read.dtype.itemsize
    if width < 4 or end < width:
        return 0
    even = lane_stride(read, lane) == 1
    if even and depth * end * size <= facts.capability.l1_bytes:
        return 0
    for tile in (_VECTORS * width, width):
        fits = depth * tile * size <= MAX_LOCAL_BYTES
        if fits and (end % tile == 0 or (end >= 4 * tile and tile > width)):
            return tile
    return width if depth * width * size <= MAX_LOCAL_BYTES else 0


def _rows_inside(axes: list[UOp], rows: list[UOp], lane: UOp) -> tuple[list[tuple[int, int]], int]:
    """SWAPs of neighbours that bring the rows inside all other axes, and the lane's number then."""
    order = sorted(axes, key=lambda rng: rng.arg[0])
    numbers = [rng.arg[0].number for rng in order]
    swaps = []
    moved = True
    while moved:
        moved = False
        for i in range(len(order) - 1):
            if order[i] in rows and order[i + 1] not in rows:
                order[i], order[i + 1] = order[i + 1], order[i]
                swaps.append((numbers[i], numbers[i + 1]))
                moved = True
    return swaps, numbers[order.index(lane)]
