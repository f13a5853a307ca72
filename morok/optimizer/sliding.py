"""Tiles along the neighbours of an image that is seen through windows, for few rows.

In `out[n, c, y, x] = sum over o, r, q of g[n, o, y-r, x-q] * w[o, c, r, q]` with few c neither is c
a lane (`broadcast.py`) nor does it pay to copy for its rows alone what a tap sees (`staging.py`).
But each element of g is seen by every tap, and near the edges it is a question whether it exists:

    for n: for y/8: copy G[o, y', x'], zeros around it;  for y, x/16: 16 lanes of x for all c

The copy is one of whole rows (WINDOW), made once for all taps, and the tile asks nothing. The other
operand, small as it is, is copied in the order in which it is used.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.broadcast import overlapping
from morok.optimizer.drafts import Draft
from morok.optimizer.facts import SHORT_LANE, Facts
from morok.optimizer.local import padded_read
from morok.optimizer.opts import OptOps
from morok.optimizer.ranges import range_end, reads_of
from morok.optimizer.tiles import most_accumulators
from morok.optimizer.windows import find_windows

__all__ = ["tile_image"]

_MIN_TERMS = 64  # of a sum; shorter ones do not pay for the copies
_MAX_ROWS = 8  # more are lanes, or rows for which copies pay anyway
_BLOCK, _BLOCKS = 8, (8, 7, 6, 5)  # rows of the output for one copy of the image
_VECTORS = (2, 1)  # of a row
_SUMS = 6  # accumulators that hide most of the time a product takes
_ALIASED = 2048  # bytes: rows so far apart, or a multiple of it, share few sets of a cache


def tile_image(facts: Facts) -> UOp:
    """The kernel with such a tile, if its one reduction of two reads has one that pays."""
    sink = facts.sink
    for store in sink.src:
        axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
        if not all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes):
            continue
        nodes = [node for node in facts.reduces if set(axes) <= set(node.open_ranges)]
        reads = reads_of([node.src[0] for node in nodes])
        if not nodes or len(reads) != 2 or any(read.src[0].op is not Ops.PARAM for read in reads):
            continue
        sums = {rng for node in nodes for rng in node.ended_ranges}
        if not all(map(facts.usable, sums)):
            continue
        for image, weight in (reads, reads[::-1]):
            if image.arg or facts.guarded(image):
                try:
                    tiled = _tiled(facts, axes, sums, image, weight)
                except OptError:
                    continue
                if tiled is not sink:
                    return tiled
    return sink


def _tiled(facts: Facts, axes: list[UOp], sums: set[UOp], image: UOp, weight: UOp) -> UOp:
    sink = facts.sink
    terms = [rng for rng in _by_number(sums) if rng in image.open_ranges]
    rows = [rng for rng in axes if rng not in image.open_ranges]
    places = [
        rng
        for rng in axes
        if rng in image.open_ranges
        and (rng not in weight.open_ranges or facts.stride(image, rng) is not None)
    ]
    if set(terms) != sums or sums - set(weight.open_ranges) or _product(terms) < _MIN_TERMS:
        return sink
    moved = overlapping(facts, image, places, terms)
    free = [rng for rng in moved if rng not in weight.open_ranges]  # others are phases
    lanes = [rng for rng in free if facts.stride(image, rng) == 1]
    few = all(range_end(rng) <= _MAX_ROWS for rng in rows)
    if len(lanes) != 1 or not few or range_end(lanes[0]) < SHORT_LANE:
        return sink
    (lane,) = lanes
    width = facts.lanes(lane, wide=True)
    end = range_end(lane)
    if width < 4 or end < width:
        return sink
    outer = next((rng for rng in free if rng is not lane), None)
    block = _block(facts, image, terms, moved, outer)
    if block is None:
        return sink
    amount, length = block
    draft = Draft(sink)
    if outer is not None and range_end(outer) % amount:
        draft.do(OptOps.PADTO, outer, amount)
    tiles: Hashable = outer
    inner: list[Hashable] = [lane]
    if outer is not None:
        if amount < range_end(outer):
            tiles = (outer, "rows")
            draft.split(outer, amount, tiles)
        inner.insert(0, tiles)
    between: list[Hashable] = [
        rng for rng in axes if rng in rows or (rng in moved and rng not in free)
    ]
    if outer is not None and tiles is not outer:
        for axis in reversed(between):
            draft.move_inside(axis, [outer])
    for axis in inner:
        draft.move_inside(axis, between)
    others = [rng for rng in axes if rng in weight.open_ranges and rng not in rows]
    slot, other = (read.src[0].arg[0] for read in (weight, image))
    draft.local([*others, *terms, *rows], slot, [])
    windows = find_windows(padded_read(sink, image), *_named(facts, image, [*terms, *moved]))
    named: list[Hashable] = []
    for each in sorted(windows, key=lambda each: (each.stride == 1, lane in each.members)):
        named += [tiles if rng is outer else rng for rng in each.members]
    draft.window(named, other, length)
    copies = 1
    for rng in sorted(rows, key=range_end, reverse=True)[:1]:
        copies = range_end(rng)
        draft.do(OptOps.UPCAST, rng, copies)
    most = most_accumulators(facts.capability.vector_registers)
    vectors = next((n for n in _VECTORS if n * copies <= most and end >= n * width), 1)
    if end % (vectors * width):
        vectors = next((n for n in _VECTORS if end % (n * width) == 0), vectors)
    spare = _SUMS // (vectors * copies)
    if outer is not None and spare > 1:
        several = max(n for n in range(1, spare + 1) if amount % n == 0)
        if several > 1:
            draft.do(OptOps.UPCAST, tiles, several)
    if end % (vectors * width):
        draft.tail(lane, vectors * width, (lane, "rest"))
    draft.do(OptOps.UPCAST, lane, vectors * width)
    return draft.sink


def _by_number(axes: set[UOp]) -> list[UOp]:
    return sorted(axes, key=lambda rng: rng.arg[0])


def _product(axes: list[UOp]) -> int:
    return math.prod(map(range_end, axes))


def _named(facts: Facts, image: UOp, axes: list[UOp]) -> tuple[list[UOp], list[int]]:
    return axes, [facts.stride(image, rng) or 0 for rng in axes]


def _block(
    facts: Facts, image: UOp, terms: list[UOp], moved: list[UOp], outer: UOp | None
) -> tuple[int, int] | None:
    """(iterations of the outer axis for one copy of the image, elements in a row of the copy); None
    if no copy stays in the second cache."""
    copied = padded_read(facts.sink, image)
    windows = find_windows(copied, *_named(facts, image, [*terms, *moved]))
    size = image.dtype.itemsize
    end = 1 if outer is None else range_end(outer)
    fitting = [n for n in range(min(end, _BLOCK), 0, -1) if end % n == 0]
    if fitting[0] < min(end, _BLOCK) // 2:
        fitting.insert(0, min(_BLOCKS, key=lambda n: (-end % n, -n)))
    for amount in fitting:
        lengths = {}
        for each in windows:
            spare = 0 if outer is None else abs(each.members.get(outer, 0)) * (end - amount)
            lengths[each.stride] = each.length - spare
        row = lengths.pop(1, 0)
        row = -(-row // SHORT_LANE) * SHORT_LANE
        if row * size % _ALIASED == 0:
            row += SHORT_LANE
        if row and math.prod(lengths.values()) * row * size <= facts.capability.l2_bytes:
            return amount, row
    return None
