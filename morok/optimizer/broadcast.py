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
from dataclasses import dataclass

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.facts import Facts
from morok.optimizer.local import MAX_LOCAL_BYTES, padded_read
from morok.optimizer.opts import Opt, OptOps, replay
from morok.optimizer.ranges import lane_stride, range_end, reads_of
from morok.optimizer.tiles import most_accumulators
from morok.optimizer.windows import find_windows

__all__ = ["broadcast_windows", "choose_broadcast", "overlapping"]

_MIN_PLACES = 64  # fewer sums with one copy of the lanes do not pay for it
_MIN_TERMS = 64  # shorter sums do not pay for storing lanes one by one
_ROUND = 8  # rows of a copied image are whole vectors
_ALIASED = 2048  # bytes: elements so far apart, or a multiple of it, share few sets of a cache


def broadcast_windows(facts: Facts) -> UOp:
    """The kernel with such a tile, if its heaviest reduction has one that pays."""
    sink = facts.sink
    if len(sink.src) != 1 or not facts.reduces:
        return sink
    for node in facts.heaviest_first():
        opts = choose_broadcast(facts, node)
        if opts:
            try:
                return replay(sink, opts)
            except OptError:
                continue
    return sink


def choose_broadcast(facts: Facts, node: UOp) -> tuple[Opt, ...]:
    """The actions that tile the product of two reads in a REDUCE so; () where it does not pay."""
    (store,) = facts.sink.src
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    reads = reads_of(node.src[:1])
    sound = all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes)
    if not sound or len(reads) != 2 or any(read.src[0].op is not Ops.PARAM for read in reads):
        return ()
    for image, weight in (reads, reads[::-1]):
        for lane in axes:
            if lane in weight.open_ranges and lane not in image.open_ranges:
                tile = _tile(facts, store, image, weight, lane)
                if tile is not None:
                    return tile.opts()
    return ()


@dataclass
class _Tile:
    """What is decided, all numbers as they are before the first action."""

    axes: list[UOp]  # of the output, outermost first
    sums: list[UOp]  # loops of the sums that both reads walk, outermost first
    lane: UOp
    lanes: int
    row: UOp
    copies: int
    block: int  # iterations of the outermost row axis for one copy of the image; 0 without
    length: int  # elements in a row of the copy
    places: list[UOp]  # output axes that the windows of the image move along
    slots: tuple[int, int]  # image, weight
    outer: bool  # all of the weight is too much: its lanes are the outermost loop

    def opts(self) -> tuple[Opt, ...]:
        numbers = {rng: int(rng.arg[0].number) for rng in (*self.axes, *self.sums)}
        opts = []

        def split(rng: UOp, amount: int) -> int:
            """The number of the outer part; the inner part is found under `rng`."""
            place = numbers[rng]
            opts.append(Opt(OptOps.SPLIT, place, amount))
            for other, number in numbers.items():
                numbers[other] = number + (number > place)
            numbers[rng] = place + 1
            return place

        def swap(first: int, second: int) -> None:
            opts.append(Opt(OptOps.SWAP, first, second))

        outer_lane = None
        if self.lanes < range_end(self.lane):
            outer_lane = split(self.lane, self.lanes)
            if self.outer:
                while outer_lane > numbers[self.axes[0]]:
                    before = max(n for n in _used(numbers, self.lane) if n < outer_lane)
                    swap(outer_lane, before)
                    outer_lane = _exchanged(numbers, outer_lane, before)
        first = self.places[0]
        named_places = list(self.places)
        if 0 < self.block < range_end(first):
            place = split(first, self.block)
            if outer_lane is not None and not self.outer:
                while place > outer_lane:
                    before = max(n for n in (*_used(numbers, self.lane), outer_lane) if n < place)
                    swap(place, before)
                    if before == outer_lane:
                        outer_lane, place = place, outer_lane
                    else:
                        place = _exchanged(numbers, place, before)
        sums = [numbers[rng] for rng in self.sums]
        image, weight = self.slots
        named = [*sums, numbers[self.lane]]
        if outer_lane is not None and not self.outer:
            named = [outer_lane, *named]
        opts.append(Opt(OptOps.LOCAL, named[0], (weight, *named[1:])))
        if self.block:
            seen = [*sums, *(numbers[rng] for rng in named_places)]
            opts.append(Opt(OptOps.WINDOW, seen[0], (image, self.length, *seen[1:])))
        opts.append(Opt(OptOps.UPCAST, numbers[self.lane], self.lanes))
        if self.copies > 1:
            opts.append(Opt(OptOps.UPCAST, numbers[self.row], self.copies))
        return tuple(opts)


def _used(numbers: dict[UOp, int], inner: UOp) -> list[int]:
    return [number for rng, number in numbers.items() if rng is not inner]


def _exchanged(numbers: dict[UOp, int], moved: int, other: int) -> int:
    """`numbers` after the loop `moved` took the place of `other`."""
    for rng, number in numbers.items():
        if number == other:
            numbers[rng] = moved
    return other


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
    moved = overlapping(facts, image, places, sums)
    if not moved:
        return None
    width = facts.lanes(lane, wide=True)
    lanes = next((n for n in (2 * width, width) if range_end(lane) % n == 0), 0)
    size = image.dtype.itemsize
    if not lanes or terms * lanes * size > MAX_LOCAL_BYTES:
        return None
    cached = facts.capability.l2_bytes
    outer = terms * range_end(lane) * size > cached
    limit = most_accumulators(facts.capability.vector_registers) // max(1, lanes // width)
    row, copies = _row(moved, min(limit, 8))
    block, length = 0, 0
    if image.arg or facts.guarded(image):
        block, length = _block(image, facts, sums, moved, cached // 2)
        if not block:
            return None
    slots = (image.src[0].arg[0], weight.src[0].arg[0])
    return _Tile(axes, sums, lane, lanes, row, copies, block, length, moved, slots, outer)


def _row(places: list[UOp], limit: int) -> tuple[UOp, int]:
    """The axis of which a tile has several, and how many: inner ones first, if they do."""
    best = (places[-1], 1)
    for rng in reversed(places):
        copies = max(n for n in range(1, limit + 1) if range_end(rng) % n == 0)
        if copies > best[1]:
            best = (rng, copies)
        if 2 * copies >= limit:
            break
    return best


def overlapping(facts: Facts, image: UOp, places: list[UOp], sums: list[UOp]) -> list[UOp]:
    """The output axes that share a window of the read with a loop of the sum."""
    named = [*sums, *places]
    strides = [facts.stride(image, rng) for rng in named]
    if any(not stride for stride in strides):
        return []
    windows = find_windows(
        padded_read(facts.sink, image), named, [stride or 0 for stride in strides]
    )
    shared = {rng for each in windows if len(each.members) > 1 for rng in each.members}
    return [rng for rng in places if rng in shared]


def _block(
    image: UOp, facts: Facts, sums: list[UOp], moved: list[UOp], limit: int
) -> tuple[int, int]:
    """(iterations of the outermost moving axis for one copy of the image, elements in a row of it)
    such that it fits into `limit` bytes; (0, 0) if none does."""
    end, size = range_end(moved[0]), image.dtype.itemsize
    named = [*sums, *moved]
    copied = padded_read(facts.sink, image)
    windows = find_windows(copied, named, [facts.stride(image, rng) or 0 for rng in named])
    for amount in range(end, 0, -1):
        if end % amount:
            continue
        lengths = []
        for each in windows:
            spare = abs(each.members.get(moved[0], 0)) * (end - amount)
            lengths.append(each.length - spare)
        row = -(-lengths[-1] // _ROUND) * _ROUND
        while len(lengths) > 1 and any(
            math.prod(lengths[i:-1]) * row * size % _ALIASED == 0 for i in range(1, len(lengths))
        ):
            row += _ROUND
        if math.prod(lengths[:-1]) * row * size <= limit:
            return (amount, row) if amount > 1 or end == 1 else (0, 0)
    return 0, 0
