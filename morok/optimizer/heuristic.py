"""Which actions a kernel gets when nobody searches for better ones (CPU).

Outputs   A statement's lane is the axis along which it writes neighbours, if most of its reads walk
          neighbours or stand still there; where that is short, one along which its reductions read
          neighbours. 64-byte vectors where the kernel computes, 32-byte ones
          where it streams.
Tiles     A reduction inside a lane is a tile if an output axis exists that the reads along the lane
          do not know: copies of that row and vectors per row are chosen so that the accumulators
          fill the registers and a step needs the fewest loads.
Sums      A reduction outside any lane has its lane along its own axis when the reads are neighbours
          there; always several accumulators, for speed and for the error bound of long sums.

Order     comes first: the operand of a tile that every row reads is staged (`staging.py`), a
          transposed copy is blocked (`blocking.py`), terms are put together for a dot instruction
          (`dots.py`).

Threads   come last (`sharing.py`).

All other choices are made on one state of the kernel and written down as (action, axis, amount);
actions on higher axis numbers come first, so that numbers still mean what they meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from morok.errors import OptError
from morok.ir import AxisType, Capability, Ops, UOp
from morok.optimizer.blocking import block_transposed, square_fills
from morok.optimizer.broadcast import broadcast_windows
from morok.optimizer.dots import choose_dots
from morok.optimizer.facts import Facts
from morok.optimizer.interleaved import merge_interleaved
from morok.optimizer.opts import Opt, OptOps, replay
from morok.optimizer.phases import split_phases
from morok.optimizer.ranges import range_end, reads_of
from morok.optimizer.rows import accumulate_rows, rows_abreast, rows_in_output
from morok.optimizer.sharing import share_work
from morok.optimizer.sliding import tile_image
from morok.optimizer.staging import stage_operand
from morok.optimizer.streaming import choose_streaming
from morok.optimizer.tiles import Tile, choose_tile

__all__ = ["choose_opts", "tune"]

_SMALL_TAPS = 7  # reduction axes of a tile up to this size are unrolled
_SMALL_LOOP = 4  # any reduction axis up to this size is unrolled
_MAX_UNROLLED = 32
_LONG_BODY = 150  # operations
_WHOLE_FILL = 8  # vectors up to which a row of a copy is written without a loop
_LONG = 16  # shorter axes get no remainder loop
_LONG_ROW = 4 << 20  # bytes: read in several places at once
_ABREAST, _PART = 4, 4096  # places, and elements from one to the next


_REORDERING = (
    *(rows_in_output, merge_interleaved, split_phases, broadcast_windows, tile_image),
    stage_operand,
    *(accumulate_rows, block_transposed, choose_dots),
)


def tune(sink: UOp, capability: Capability) -> UOp:
    """`sink` with the chosen actions applied; one that turns out illegal is left out."""
    facts = Facts(sink, capability)
    for reorder in _REORDERING:
        changed = reorder(facts)
        if changed is not sink:
            sink, facts = changed, Facts(changed, capability)
    groups = choose_opts(facts)
    lane = choose_streaming(facts)
    if lane is not None:
        groups.insert(0, (Opt(OptOps.STREAM, lane),))
    for group in groups:
        try:
            sink = replay(sink, group)
        except OptError:
            continue
    return share_work(sink, capability)


def choose_opts(facts: Facts) -> list[tuple[Opt, ...]]:
    """The actions for a kernel whose operands are staged, in order; a group stands or falls as
    one."""
    wanted: _Wanted = {}
    lanes = sorted(facts.output_lanes(), key=range_end, reverse=True)
    for lane in lanes:
        _choose_output(facts, lane, wanted)
    lanes = [lane for lane in lanes if lane in wanted]  # others were too short
    tiled = [
        node
        for node in facts.reduces
        if any(lane in node.open_ranges for lane in lanes) or _has_lanes(node)
    ]
    taken = {rng for node in tiled for rng in node.ended_ranges}
    for node in facts.reduces:
        if node in tiled or not taken.isdisjoint(node.ended_ranges):
            continue
        if not _has_loops(facts, node):
            _choose_sum(facts, node, wanted)
    _fit(facts, wanted)
    for rng, lanes_of_square in square_fills(facts).items():
        wanted.setdefault(rng, ((OptOps.UPCAST, 0, lanes_of_square),))
    axes = sorted(wanted, key=lambda rng: rng.arg[0], reverse=True)
    return [
        tuple(Opt(op, rng.arg[0].number + above, amount) for op, above, amount in wanted[rng])
        for rng in axes
    ]


def _has_lanes(node: UOp) -> bool:
    """Is the reduction in a tile already?"""
    return any(rng.arg[1] is AxisType.UPCAST for rng in node.open_ranges)


def _has_loops(facts: Facts, node: UOp) -> bool:
    """Does each step of the reduction run loops of its own? Replicating those gains nothing."""
    ended = set(node.ended_ranges)
    return any(not ended.isdisjoint(other.open_ranges) for other in facts.reduces) or any(
        u.op is Ops.BUFFERIZE and not ended.isdisjoint(u.open_ranges) for u in facts.order
    )


def _fit(facts: Facts, wanted: _Wanted) -> None:
    """Takes back straight code of small loops, then spare vectors of sums, while the body is long:
    that is no faster, takes longer to compile, and may not fit the instruction cache."""
    straight = [rng for rng, steps in wanted.items() if steps[-1][0] is OptOps.UNROLL]
    sums = [rng for rng in wanted if rng.arg[1] is AxisType.REDUCE and rng not in straight]
    for rng in (*straight, *sums):
        if _body(facts, wanted) <= _LONG_BODY:
            return
        if rng in straight:
            del wanted[rng]
        else:
            wanted[rng] = _chain(range_end(rng), (facts.lanes(rng, wide=True), 4))


def _body(facts: Facts, wanted: _Wanted) -> float:
    """About how many operations on values there are when every loop runs once."""
    copies = {
        rng: sum(amount for op, _, amount in steps if op in (OptOps.UPCAST, OptOps.UNROLL))
        for rng, steps in wanted.items()
    }
    lanes = {
        rng: 1 if wanted[rng][-1][0] is OptOps.UNROLL else min(n, facts.lanes(rng, wide=True))
        for rng, n in copies.items()
    }
    total = 0.0
    for node in facts.order:
        open_here = [rng for rng in node.open_ranges if rng in copies]
        if not open_here or node.dtype.kind not in "biuf":
            continue
        times = math.prod(copies[rng] for rng in open_here)
        torn = node in facts.positions and any(
            lanes[rng] > 1 and facts.stride(node, rng) not in (0, 1) for rng in open_here
        )
        total += times if torn else times / max(lanes[rng] for rng in open_here)
    return total


_Steps = tuple[tuple[OptOps, int, int], ...]  # action, axis number above the axis', amount
_Wanted = dict[UOp, _Steps]


def _chain(end: int, amounts: Sequence[int], above: int = 0, op: OptOps = OptOps.UPCAST) -> _Steps:
    """Actions that cut an axis of `end` iterations into vectors of the first amount, what is left
    over into vectors of the next, and so on. () when it is too short for any."""
    for position, amount in enumerate(amounts):
        if amount < 2 or end < amount:
            continue
        upcast = (op, above, amount)
        if end % amount == 0:
            return (upcast,)
        rest = _chain(end % amount, amounts[position + 1 :], above + 1, op)
        return ((OptOps.TAIL, above, amount), *rest, upcast)
    return ()


def _multiple(end: int, width: int) -> int:
    """The most vectors of `width` lanes, up to 4, whose steps cut `end` iterations evenly."""
    return next((vectors for vectors in (4, 2) if end % (width * vectors) == 0), 1)


def _choose_output(facts: Facts, lane: UOp, wanted: _Wanted) -> None:
    """The lane of a writing statement, and the tiles of the reductions inside it."""
    inside = [node for node in facts.reduces if lane in node.open_ranges]
    rows = {node: facts.rows(node, lane) for node in inside}
    width = facts.lanes(lane, wide=facts.computes(lane) or any(rows.values()))
    end = range_end(lane)
    vectors = _multiple(end, width) if inside and not any(rows.values()) else 1
    tiles: list[Tile] = []
    for node in sorted(inside, key=lambda n: math.prod(map(range_end, rows[n])), reverse=True):
        free = [rng for rng in rows[node] if rng not in wanted]  # others: with a longer lane
        if not facts.written_to_neighbours(lane):  # an axis that is would become the vectors
            free = [rng for rng in free if not facts.written_to_neighbours(rng)]
        if free and not any(tile.row in free for tile in tiles):
            # All statements of a lane have the vectors of the one with most rows.
            tiles.append(choose_tile(facts, node, lane, free, width, vectors if tiles else None))
            vectors = tiles[0].vectors
    if facts.is_fill(lane) and not inside and 2 <= end <= _WHOLE_FILL * width:
        steps: _Steps = ((OptOps.UPCAST, 0, end),)
    else:
        steps = _output_steps(end, width, vectors)
    if not steps:
        return
    wanted[lane] = steps
    for tile in tiles:
        if tile.copies > 1:
            rest = range_end(tile.row) % tile.copies
            wanted[tile.row] = _chain(range_end(tile.row), (tile.copies, rest))
    copies = max((tile.copies for tile in tiles), default=1)
    for node in inside:
        if not any(rows.values()):
            _several_sums(facts, node, wanted)
        elif not _has_loops(facts, node):
            _unroll_small(facts, node, wanted, _SMALL_TAPS, copies * vectors)


def _output_steps(end: int, width: int, vectors: int) -> _Steps:
    """A vector a step where it fits, or half a one; else a remainder, of short axes also in two."""
    for amount in (width * vectors, width, width // 2):
        if amount >= 4 and end % amount == 0:
            return ((OptOps.UPCAST, 0, amount),)
    if end < 4:
        return ()
    return _chain(end, (width, 4) if end < 8 * width and width > 4 else (width,))


def _choose_sum(facts: Facts, node: UOp, wanted: _Wanted) -> None:
    """The lane of a reduction along one of its own axes, or just several accumulators."""
    axes = [rng for rng in node.ended_ranges if facts.usable(rng)]
    if any(rng in wanted for rng in axes):
        return
    reads = reads_of(node.src[:1])
    inside = [inner for inner in facts.reduces if not set(axes).isdisjoint(inner.open_ranges)]
    nested = any(rng in wanted for inner in inside for rng in inner.ended_ranges)
    for rng in () if nested else reversed(axes):  # one lane is enough
        strides = [facts.stride(read, rng) for read in reads if rng in read.open_ranges]
        if strides and 2 * strides.count(1) >= len(strides):
            steps = _sum_steps(facts, node, rng, wanted)
            if steps:
                wanted[rng] = steps
                return
    _several_sums(facts, node, wanted)


def _sum_steps(facts: Facts, node: UOp, rng: UOp, wanted: _Wanted) -> _Steps:
    """The vectors along the axis of a reduction, several rows of it side by side."""
    width, end = facts.lanes(rng, wide=True), range_end(rng)
    if _far_apart(facts, node, rng):
        block, part = _ABREAST * _PART, (OptOps.SPLIT, 1, _PART)
        cut = ((OptOps.SPLIT, 0, block), part, (OptOps.UPCAST, 1, _ABREAST))
        main: _Steps = (*cut, (OptOps.UPCAST, 2, 2 * width))
        rest = end % block
        return (
            main if not rest else ((OptOps.TAIL, 0, block), *_chain(rest, (4 * width,), 1), *main)
        )
    rows = rows_abreast(facts, node, rng) if end >= 4 * width else []
    rows = [(axis, count) for axis, count in rows if axis not in wanted]
    for axis, count in rows:
        wanted[axis] = _chain(range_end(axis), (count,), op=OptOps.UNROLL)
    vectors = max(1, min(4, 8 // math.prod(count for _, count in rows)))
    whole = end % width == 0 and end < 4 * _LONG * width
    several = width * min(vectors, _multiple(end, width) if whole else 4)
    return _chain(end, [*dict.fromkeys((several, width, width // 2, 4))])


def _far_apart(facts: Facts, node: UOp, rng: UOp) -> bool:
    """Is a reduction one row so long that it had better be read in several places at once?"""
    alone = not node.open_ranges and node.ended_ranges == (rng,)
    return alone and range_end(rng) * node.dtype.itemsize >= _LONG_ROW


def _several_sums(facts: Facts, node: UOp, wanted: _Wanted) -> None:
    """Four accumulators along the longest axis of a reduction; short axes unrolled."""
    axes = [rng for rng in node.ended_ranges if facts.usable(rng)]
    if any(rng in wanted for rng in axes):
        return
    longest = max(axes, key=range_end, default=None)
    if longest is not None and range_end(longest) > _SMALL_LOOP:
        end = range_end(longest)
        if end % 4 == 0 or end >= _LONG:
            wanted[longest] = _chain(end, (4,))
    _unroll_small(facts, node, wanted, _SMALL_LOOP, 4)


def _unroll_small(facts: Facts, node: UOp, wanted: _Wanted, limit: int, copies: int) -> None:
    """Reduction axes of up to `limit` iterations become straight code."""
    for rng in reversed(node.ended_ranges):
        if not facts.usable(rng) or rng in wanted or not 2 <= range_end(rng) <= limit:
            continue
        copies *= range_end(rng)
        if copies > _MAX_UNROLLED:
            return
        wanted[rng] = ((OptOps.UNROLL, 0, range_end(rng)),)
