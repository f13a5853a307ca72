"""Tiles whose lanes are the operand that needs to be copied once only.

In `out[n, o, y, x] = sum over c, r, q of image[n, c, y+r, x+q] * weight[o, c, r, q]` the axis that
is stored to neighbours is x. A tile along it wants what the taps see copied, each element as often
as taps see it, for every n and y; where the image is padded each copy asks whether it is inside.
With o as the lane instead,

    copy W[ot, c, r, q, oi] = weight[ot*16 + oi, c, r, q]
    for n: for ot: for y: for x/5:  16 lanes of o for 5 of x, added over c, r, q

nothing but the weight is copied, once. The elements of the image are broadcast from where they are,
or from a copy that holds the zeros around them. The price is that lanes are stored one by one: it
is paid where the sums are long and the image's reads overlap.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.drafts import Draft
from morok.optimizer.facts import Facts
from morok.optimizer.local import MAX_LOCAL_BYTES, padded_read
from morok.optimizer.opts import OptOps
from morok.optimizer.ranges import lane_stride, range_end, reads_of
from morok.optimizer.tiles import choose_rows, most_accumulators
from morok.optimizer.windows import Window, find_windows

__all__ = ["broadcast_windows", "overlapping"]

_MIN_PLACES = 64  # fewer sums with one copy of the lanes do not pay for it
_MIN_TERMS = 64  # shorter sums do not pay for storing lanes one by one
_FAR_BYTES = 4.0  # that come from the third cache while a core begins a multiplication
_ENOUGH = 4  # rows of a tile
_BETTER = 0.8  # of the time that a simpler tile takes
_ROUND, _SHORT = 8, 4  # rows of a copied image are whole vectors, of short ones half vectors
_ALIASED = 2048  # bytes: elements so far apart, or a multiple of it, share few sets of a cache


def broadcast_windows(facts: Facts) -> UOp:
    """The kernel with such a tile, if its heaviest reduction has one that pays."""
    sink = facts.sink
    if len(sink.src) != 1 or not facts.reduces:
        return sink
    for node in facts.heaviest_first():
        tile = _choose(facts, node)
        if tile is not None:
            try:
                return _carried_out(sink, tile)
            except OptError:
                continue
    return sink


def _choose(facts: Facts, node: UOp) -> _Tile | None:
    """How the product of two reads in a REDUCE is tiled so; None where it does not pay."""
    (store,) = facts.sink.src
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    reads = reads_of(node.src[:1])
    sound = all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes)
    if not sound or len(reads) != 2 or any(read.src[0].op is not Ops.PARAM for read in reads):
        return None
    for image, weight in (reads, reads[::-1]):
        for lane in axes:
            if lane in weight.open_ranges and lane not in image.open_ranges:
                tile = _tile(facts, store, image, weight, lane)
                if tile is not None:
                    return tile
    return None


@dataclass
class _Tile:
    """What is decided."""

    axes: list[UOp]  # of the output, outermost first
    sums: list[UOp]  # loops of the sums that both reads walk, outermost first
    lane: UOp
    lanes: int
    row: UOp
    copies: int
    block: int  # iterations of the outermost row axis for one copy of the image; 0 without
    length: int  # elements in a row of the copy
    places: list[UOp]  # output axes that the windows of the image move along
    seen: list[UOp]  # loops that the image is copied along, in the order of its memory
    slots: tuple[int, int]  # image, weight
    filled: list[UOp]  # loops of the sums, in the order in which the weight is copied
    outer: bool  # all of the weight is too much: its lanes are the outermost loop


def _carried_out(sink: UOp, tile: _Tile) -> UOp:
    draft, lane, first = Draft(sink), tile.lane, tile.places[0]
    inner: dict[UOp, Hashable] = {}  # the parts of axes that a tile or a copy walks
    if tile.lanes < range_end(lane):
        inner[lane] = "lanes"
        draft.split(lane, tile.lanes, "lanes")
        if tile.outer:
            draft.move_outside(lane, tile.axes)
    if 0 < tile.block < range_end(first):
        inner[first] = "block"
        draft.split(first, tile.block, "block")
        if lane in inner and not tile.outer:
            draft.move_outside(first, draft.not_outside(tile.axes, lane))
    image, weight = tile.slots
    named: list[Hashable] = [*tile.sums, inner.get(lane, lane)]
    if lane in inner and not tile.outer:
        named.insert(0, lane)
    fills = [(weight, axis) for axis in named]
    draft.local(named, weight, fills)
    order = [(weight, axis) for axis in tile.filled]
    draft.order([*fills[: len(named) - len(order) - 1], *order, fills[-1]])
    if tile.block:
        draft.window([inner.get(rng, rng) for rng in tile.seen], image, tile.length)
    draft.do(OptOps.UPCAST, inner.get(lane, lane), tile.lanes)
    if tile.copies > 1:
        row = inner.get(tile.row, tile.row)
        rest = (tile.block if row == "block" else range_end(tile.row)) % tile.copies
        if rest:
            draft.tail(row, tile.copies, "rest")
        draft.do(OptOps.UPCAST, row, tile.copies)
        if rest > 1:
            draft.do(OptOps.UPCAST, "rest", rest)
    return draft.sink


def _tile(facts: Facts, store: UOp, image: UOp, weight: UOp, lane: UOp) -> _Tile | None:
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    loops = [rng for rng in image.open_ranges if rng.arg[1] is AxisType.REDUCE]
    sums = sorted(loops, key=lambda rng: rng.arg[0])
    if not sums or set(sums) != {
        rng for rng in weight.open_ranges if rng.arg[1] is AxisType.REDUCE
    }:
        return None
    places = [rng for rng in axes if rng in image.open_ranges and rng not in weight.open_ranges]
    terms = math.prod(map(range_end, sums))
    if terms < _MIN_TERMS or math.prod(map(range_end, places)) < _MIN_PLACES:
        return None
    if not all(map(facts.usable, sums)) or lane_stride(store.src[0], lane) == 1:
        return None
    every = _windows(facts, image, [*sums, *places])
    moved = _shared(every, places)
    if not moved:
        return None
    width, size = facts.lanes(lane, wide=True), image.dtype.itemsize
    cached = facts.capability.l2_bytes
    limit = most_accumulators(facts.capability.vector_registers)
    copied = bool(image.arg) or facts.guarded(image)
    outer = terms * range_end(lane) * size > cached
    filled = sorted(sums, key=lambda rng: -abs(facts.stride(weight, rng) or 0))
    slots = (image.src[0].arg[0], weight.src[0].arg[0])
    best: tuple[float, _Tile] | None = None
    # Rows along the windows, or if these are short along whatever the image knows. Where the lanes
    # are the outermost loop, the whole image is copied before it, if that is not too much.
    for among, whole in ((places, True), (moved, False), (places, False)):
        if whole and not (copied and outer):
            continue
        if best is not None and best[1].copies >= _ENOUGH:
            break
        seen = every if among is places else _windows(facts, image, [*sums, *among])
        room = MAX_LOCAL_BYTES if whole else cached // 2
        block, length, near = _block(seen, among[0], size, room) if copied else (0, 0, 0)
        if copied and (not block or (whole and block < range_end(among[0]))):
            continue
        if whole:
            near //= block
        ends = {rng: range_end(rng) for rng in among}
        ends[among[0]] = block or range_end(among[0])
        if whole and near * min(block, limit) > cached // 2:
            del ends[among[0]]  # its rows are too far apart
        for vectors in (2, 1):
            lanes = vectors * width
            strip = terms * lanes * size
            if range_end(lane) % lanes or strip > MAX_LOCAL_BYTES:
                continue
            steps = terms * math.prod(map(range_end, axes)) // lanes
            read = lanes * size / _FAR_BYTES if near + strip > cached else 0.0
            cost, row, copies = choose_rows(ends, vectors, limit, steps, read)
            if best is None or cost < _BETTER * best[0]:
                loops = [rng for each in seen for rng in each.members]
                tile = (row, copies, block, length, among, loops, slots, filled, outer)
                best = (cost, _Tile(axes, sums, lane, lanes, *tile))
    return None if best is None else best[1]


def overlapping(facts: Facts, image: UOp, places: list[UOp], sums: list[UOp]) -> list[UOp]:
    """The output axes that share a window of the read with a loop of the sum."""
    return _shared(_windows(facts, image, [*sums, *places]), places)


def _shared(windows: list[Window], places: list[UOp]) -> list[UOp]:
    shared = {rng for each in windows if len(each.members) > 1 for rng in each.members}
    return [rng for rng in places if rng in shared]


def _windows(facts: Facts, image: UOp, loops: list[UOp]) -> list[Window]:
    """The windows of a read along some loops, the farthest steps first, as its memory is laid out;
    none if it does not move by even steps along each."""
    strides = {rng: facts.stride(image, rng) or 0 for rng in loops}
    if not all(strides.values()):
        return []
    order = sorted(loops, key=lambda rng: -abs(strides[rng]))
    return find_windows(padded_read(facts.sink, image), order, [strides[rng] for rng in order])


def _block(windows: list[Window], outer: UOp, size: int, limit: int) -> tuple[int, int, int]:
    """(iterations of the outermost moving axis for one copy of the image, elements in a row of it,
    bytes of it) such that it fits into `limit` bytes; zeros if none does."""
    end = range_end(outer)
    for amount in range(end, 0, -1):
        if end % amount:
            continue
        lengths = []
        for each in windows:
            spare = abs(each.members.get(outer, 0)) * (end - amount)
            lengths.append(each.length - spare)
        unit = _ROUND if 5 * lengths[-1] > 4 * _rounded(lengths[-1], _ROUND) else _SHORT
        row = _rounded(lengths[-1], unit)
        apart = [math.prod(lengths[i:-1]) * size for i in range(1, len(lengths))]
        while any(step * row % _ALIASED == 0 < step * unit % _ALIASED for step in apart):
            row += unit
        whole = math.prod(lengths[:-1]) * row * size
        if whole <= limit:
            return (amount, row, whole) if amount > 1 or end == 1 else (0, 0, 0)
    return 0, 0, 0


def _rounded(length: int, unit: int) -> int:
    return -(-length // unit) * unit
