"""Which actions a kernel gets when nobody searches for better ones (CPU).

Outputs   A statement's lane is the axis along which it writes neighbours, if most of its reads walk
          neighbours or stand still there. 64-byte vectors where the kernel computes, 32-byte ones
          where it streams.
Tiles     A reduction inside a lane is a tile if an output axis exists that the reads along the lane
          do not know: copies of that row and vectors per row are chosen so that the accumulators
          fill the registers and a step needs the fewest loads.
Sums      A reduction outside any lane has its lane along its own axis when the reads are neighbours
          there; always several accumulators, for speed and for the error bound of long sums.

All choices are made on the untouched kernel and written down as (action, axis, amount); actions on
higher axis numbers come first, so that numbers still mean what they meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from morok._core import affine_split, toposort
from morok.dtype import DType, dtypes
from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.ir.capability import Capability
from morok.optimizer.opts import Opt, OptOps, apply_opt
from morok.optimizer.ranges import (
    flat_index,
    lane_stride,
    range_end,
    reads_of,
    simplify_all,
)

__all__ = ["choose_opts", "tune"]

_TRANSCENDENTAL = frozenset(
    {Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF, Ops.POW}
)
_WIDE_BYTES, _STREAM_BYTES = 64, 32
_MAX_ROWS = 8
_SMALL_TAPS = 7  # reduction axes of a tile up to this size are unrolled
_SMALL_LOOP = 4  # any reduction axis up to this size is unrolled
_MAX_UNROLLED = 128
_LONG = 16  # shorter axes get no remainder loop


def tune(sink: UOp, capability: Capability) -> UOp:
    """`sink` with the chosen actions applied; one that turns out illegal is left out."""
    for group in choose_opts(sink, capability):
        changed = sink
        try:
            for opt in group:
                changed = apply_opt(changed, opt)
        except OptError:
            continue
        sink = changed
    return sink


def choose_opts(sink: UOp, capability: Capability) -> list[tuple[Opt, ...]]:
    """The actions for a prepared kernel, in order; a group stands or falls as one."""
    facts = _Facts(sink, capability)
    wanted: _Wanted = {}
    lanes = facts.output_lanes()
    for lane in lanes:
        _choose_output(facts, lane, wanted)
    for node in facts.reduces:
        if not any(lane in node.open_ranges for lane in lanes):
            _choose_sum(facts, node, wanted)
    axes = sorted(wanted, key=lambda rng: rng.arg[0], reverse=True)
    return [
        tuple(Opt(op, rng.arg[0].number + above, amount) for op, above, amount in wanted[rng])
        for rng in axes
    ]


@dataclass
class _Facts:
    """What the choice needs to know of a kernel, gathered in one walk."""

    sink: UOp
    capability: Capability
    order: list[UOp] = field(init=False)
    reads: list[UOp] = field(init=False)
    positions: dict[UOp, UOp] = field(init=False)
    reduces: list[UOp] = field(init=False)
    serial: set[UOp] = field(init=False)

    def __post_init__(self) -> None:
        self.order = toposort(self.sink)
        self.reads = reads_of([self.sink])
        flat = simplify_all([flat_index(read) for read in self.reads])
        self.positions = dict(zip(self.reads, flat, strict=True))
        self.reduces = [node for node in self.order if node.op is Ops.REDUCE]
        self.serial = set()  # ranges inside which memory is filled
        for node in self.order:
            if node.op in (Ops.BUFFERIZE, Ops.AFTER):
                self.serial.update(node.open_ranges)

    def usable(self, rng: UOp) -> bool:
        """A loop of known length whose iterations may run side by side."""
        return (
            rng.op is Ops.RANGE
            and rng.arg[1] in (AxisType.LOOP, AxisType.REDUCE)
            and rng.src[0].op is Ops.CONST
            and rng not in self.serial
        )

    def stride(self, read: UOp, rng: UOp) -> int | None:
        """Elements between neighbouring iterations, whatever the gate; None when uneven."""
        split = affine_split(self.positions[read], rng)
        return None if split is None else int(split[0])

    def output_lanes(self) -> list[UOp]:
        """The axis of each writing statement that becomes its lane, each axis once."""
        found: dict[UOp, None] = {}
        for node in self.order:
            if node.op is Ops.BUFFERIZE:
                units = list(node.ended_ranges[-1:])
            elif node.op is Ops.STORE:
                units = [rng for rng in node.ended_ranges if lane_stride(node.src[0], rng) == 1]
            else:
                continue
            found.update((rng, None) for rng in units if self.usable(rng) and self._even(rng))
        return list(found)

    def _even(self, rng: UOp) -> bool:
        strides = [self.stride(read, rng) for read in self.reads if rng in read.open_ranges]
        return 2 * sum(stride in (0, 1) for stride in strides) >= len(strides)

    def lanes(self, rng: UOp, wide: bool) -> int:
        """Preferred lanes along `rng`: a vector of the largest type, native for all types."""
        types = self._vector_types(rng)
        largest = max(dtype.itemsize for dtype in types)
        native = min(self.capability.max_width(dtype) for dtype in types)
        return min((_WIDE_BYTES if wide else _STREAM_BYTES) // largest, native)

    def _vector_types(self, rng: UOp) -> set[DType]:
        types = {
            node.dtype
            for node in self.order
            if node.dtype.kind in "iuf" and rng in node.open_ranges and node.dtype.count == 1
        }
        return types or {dtypes.float32}

    def computes(self, rng: UOp) -> bool:
        """More than moving data goes on along `rng`."""
        return any(node.op in _TRANSCENDENTAL and rng in node.open_ranges for node in self.order)


_Steps = tuple[tuple[OptOps, int, int], ...]  # action, axis number above the axis', amount
_Wanted = dict[UOp, _Steps]


def _chain(end: int, amounts: Sequence[int], above: int = 0) -> _Steps:
    """Actions that cut an axis of `end` iterations into vectors of the first amount, what is left
    over into vectors of the next, and so on. () when it is too short for any."""
    for position, amount in enumerate(amounts):
        if amount < 2 or end < amount:
            continue
        upcast = (OptOps.UPCAST, above, amount)
        if end % amount == 0:
            return (upcast,)
        rest = _chain(end % amount, amounts[position + 1 :], above + 1)
        return ((OptOps.TAIL, above, amount), *rest, upcast)
    return ()


def _multiple(end: int, width: int) -> int:
    """The most vectors of `width` lanes, up to 4, whose steps cut `end` iterations evenly."""
    return next((vectors for vectors in (4, 2) if end % (width * vectors) == 0), 1)


def _choose_output(facts: _Facts, lane: UOp, wanted: _Wanted) -> None:
    """The lane of a writing statement, and the tile of the reductions inside it."""
    inside = [node for node in facts.reduces if lane in node.open_ranges]
    rows = dict.fromkeys(rng for node in inside for rng in _rows(facts, node, lane))
    width = facts.lanes(lane, wide=facts.computes(lane) or bool(rows))
    end = range_end(lane)
    copies, vectors = 1, _multiple(end, width) if inside else 1
    if rows:
        row, copies, vectors = _tile(facts, inside, lane, list(rows), width)
    steps = _output_steps(end, width, vectors)
    if not steps:
        return
    wanted[lane] = steps
    if copies > 1:
        wanted[row] = ((OptOps.UPCAST, 0, copies),)
    for node in inside:
        if rows:
            _unroll_small(facts, node, wanted, _SMALL_TAPS, copies * vectors)
        else:
            _several_sums(facts, node, wanted)


def _output_steps(end: int, width: int, vectors: int) -> _Steps:
    """A vector a step where it fits, or half a one; else a remainder, of short axes also in two."""
    for amount in (width * vectors, width, width // 2):
        if amount >= 4 and end % amount == 0:
            return ((OptOps.UPCAST, 0, amount),)
    if end < 4:
        return ()
    return _chain(end, (width, 4) if end < 8 * width and width > 4 else (width,))


def _rows(facts: _Facts, node: UOp, lane: UOp) -> list[UOp]:
    """The output axes of a REDUCE that the reads along the lane do not know."""
    reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
    return [
        rng
        for rng in node.open_ranges
        if rng is not lane
        and facts.usable(rng)
        and rng.arg[1] is AxisType.LOOP
        and reads
        and not any(rng in read.open_ranges for read in reads)
    ]


def _tile(
    facts: _Facts, inside: list[UOp], lane: UOp, rows: list[UOp], width: int
) -> tuple[UOp, int, int]:
    """(row axis, copies of it, vectors per row): the fewest loads for each multiplication among
    tiles whose accumulators leave half of the registers to the operands."""
    accumulators = 16 if facts.capability.vector_registers >= 32 else 8
    reads = [read for read in reads_of(inside) if lane in read.open_ranges]
    torn = any(lane_stride(read, lane) not in (0, 1) for read in reads)
    vector_cost = width if torn else 1
    best: tuple[float, int, int, UOp] | None = None
    for rng in rows:
        for copies in range(1, min(_MAX_ROWS, range_end(rng)) + 1):
            if range_end(rng) % copies:
                continue
            for vectors in (1, 2, 4):
                if copies * vectors > accumulators or range_end(lane) % (width * vectors):
                    continue
                cost = (copies + vector_cost * vectors) / (copies * vectors)
                if best is None or (cost, -copies) < (best[0], -best[1]):
                    best = (cost, copies, vectors, rng)
    if best is None:  # no whole number of vectors: the lane will have a remainder
        ends = range_end(rows[0])
        return rows[0], next(n for n in range(_MAX_ROWS, 0, -1) if ends % n == 0), 1
    return best[3], best[1], best[2]


def _choose_sum(facts: _Facts, node: UOp, wanted: _Wanted) -> None:
    """The lane of a reduction along one of its own axes, or just several accumulators."""
    axes = [rng for rng in node.ended_ranges if facts.usable(rng)]
    if any(rng in wanted for rng in axes):
        return
    reads = reads_of(node.src[:1])
    for rng in reversed(axes):
        strides = [facts.stride(read, rng) for read in reads if rng in read.open_ranges]
        if strides and 2 * strides.count(1) >= len(strides):
            width = facts.lanes(rng, wide=True)
            end = range_end(rng)
            several = width * (_multiple(end, width) if end % width == 0 else 4)
            steps = _chain(end, [*dict.fromkeys((several, width, width // 2, 4))])
            if steps:
                wanted[rng] = steps
                return
    _several_sums(facts, node, wanted)


def _several_sums(facts: _Facts, node: UOp, wanted: _Wanted) -> None:
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


def _unroll_small(facts: _Facts, node: UOp, wanted: _Wanted, limit: int, copies: int) -> None:
    """Reduction axes of up to `limit` iterations become straight code."""
    for rng in reversed(node.ended_ranges):
        if not facts.usable(rng) or rng in wanted or not 2 <= range_end(rng) <= limit:
            continue
        copies *= range_end(rng)
        if copies > _MAX_UNROLLED:
            return
        wanted[rng] = ((OptOps.UNROLL, 0, range_end(rng)),)
