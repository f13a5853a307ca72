"""What the heuristic knows of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from morok._core import affine_split, toposort
from morok.dtype import DType, dtypes
from morok.ir import AxisType, Capability, Ops, UOp
from morok.optimizer.ranges import (
    flat_index,
    has_known_end,
    lane_stride,
    lanes_of_sums,
    range_end,
    reads_of,
    simplify_all,
)

__all__ = ["SHORT_LANE", "Facts", "is_widened", "short_lane"]

_TRANSCENDENTAL = frozenset(
    {Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF, Ops.POW}
)
_SHUFFLED = 4  # bytes of an element from which on shuffles take it anywhere
_WIDE_BYTES, _STREAM_BYTES = 64, 32
SHORT_LANE = 8
"""Iterations below which an axis is no good lane, if another is at hand."""


def short_lane(rng: UOp) -> bool:
    """Few iterations, or a vector's with one or two left over, which take as long as it."""
    end = range_end(rng)
    return end < SHORT_LANE or (end < 2 * SHORT_LANE and end % 4 in (1, 2))


def is_widened(node: UOp) -> bool:
    """Some action has chosen the vectors of a statement or a reduction already."""
    ranges = (*node.open_ranges, *node.ended_ranges)
    return any(rng.op is Ops.RANGE and rng.arg[1] in _WIDENED for rng in ranges)


_WIDENED = (AxisType.UPCAST, AxisType.UNROLL)


@dataclass
class Facts:
    """What the choice needs to know of a kernel, gathered in one walk."""

    sink: UOp
    capability: Capability
    order: list[UOp] = field(init=False)
    reads: list[UOp] = field(init=False)
    positions: dict[UOp, UOp] = field(init=False)
    reduces: list[UOp] = field(init=False)
    serial: set[UOp] = field(init=False)
    trips: dict[UOp, int] = field(init=False)  # how many elements a read names

    def __post_init__(self) -> None:
        self.order = toposort(self.sink)
        self.reads = reads_of([self.sink])
        flat = simplify_all([flat_index(read) for read in self.reads])
        self.positions = dict(zip(self.reads, flat, strict=True))
        self.reduces = [
            node for node in self.order if node.op is Ops.REDUCE and not is_widened(node)
        ]
        self.serial = set()  # ranges inside which memory is filled
        for node in self.order:
            if node.op in (Ops.BUFFERIZE, Ops.AFTER):
                self.serial.update(node.open_ranges)
        # What stands still in an inner loop is read outside of it.
        self.trips = {
            read: math.prod(range_end(rng) for rng in read.open_ranges if rng.op is Ops.RANGE)
            for read in self.reads
        }

    def heaviest_first(self) -> list[UOp]:
        """The reductions, those with most steps in all first."""
        return sorted(self.reduces, key=self._steps, reverse=True)

    def _steps(self, node: UOp) -> int:
        return math.prod(range_end(rng) for rng in (*node.open_ranges, *node.ended_ranges))

    def usable(self, rng: UOp) -> bool:
        """A loop of known length whose iterations may run side by side."""
        return (
            rng.op is Ops.RANGE
            and rng.arg[1] in (AxisType.LOOP, AxisType.REDUCE)
            and has_known_end(rng)
            and rng not in self.serial
        )

    def stride(self, read: UOp, rng: UOp) -> int | None:
        """Elements between neighbouring iterations, whatever the gate; None when uneven."""
        split = affine_split(self.positions[read], rng)
        return None if split is None else int(split[0])

    def guarded(self, read: UOp) -> bool:
        """Is a read asked for only where a condition holds, WHERE(inside, read, …)?"""
        return any(node.op is Ops.WHERE and read in node.src[1:] for node in self.order)

    def output_lanes(self) -> list[UOp]:
        """The axis of each writing statement that becomes its lane, each axis once."""
        found: dict[UOp, None] = {}
        for node in self.order:
            if is_widened(node):
                continue
            if node.op is Ops.BUFFERIZE:
                units = list(node.ended_ranges[-1:])
            elif node.op is Ops.STORE:
                units = [rng for rng in node.ended_ranges if lane_stride(node.src[0], rng) == 1]
                if all(map(short_lane, units)):
                    own = [rng for rng in node.ended_ranges if not self._is_row_of_another(rng)]
                    sums = lanes_of_sums(node, own)
                    units = [rng for rng in sums if range_end(rng) >= SHORT_LANE] or units
            else:
                continue
            found.update((rng, None) for rng in units if self.usable(rng) and self._even(rng))
        return list(found)

    def _is_row_of_another(self, rng: UOp) -> bool:
        """Some statement walks it whose lane is another axis: it is no lane of the rest beside."""
        for store in self.sink.src:
            units = [u for u in store.ended_ranges if lane_stride(store.src[0], u) == 1]
            if rng in store.ended_ranges and not all(map(short_lane, units)):
                return True
        return False

    def written_to_neighbours(self, rng: UOp) -> bool:
        """Some statement stores along this axis element after element."""
        return any(
            rng in store.ended_ranges and lane_stride(store.src[0], rng) == 1
            for store in self.sink.src
        )

    def is_fill(self, rng: UOp) -> bool:
        """Some local buffer is filled along this axis."""
        return any(node.op is Ops.BUFFERIZE and rng in node.ended_ranges for node in self.order)

    def _even(self, rng: UOp) -> bool:
        """Of the reads along an axis, counted as often as they happen, half suit vectors."""
        good = total = 0
        for read in self.reads:
            if rng in read.open_ranges:
                times = self.trips[read]
                total += times
                near = self._near(read, rng) or self._is_half(read, rng)
                if near or self.stride(read, rng) in (0, 1):
                    good += times
        return 2 * good >= total

    def _is_half(self, read: UOp, lane: UOp) -> bool:
        """Does a read, asked for always, take every second element? Both halves are shuffled out of
        the same vectors."""
        if self.stride(read, lane) != 2 or read.dtype.itemsize < _SHUFFLED:
            return False
        return not bool(read.arg)

    def _near(self, read: UOp, lane: UOp) -> bool:
        """A loop inside that of the lane walks neighbours: the strided read finds them cached."""
        return any(
            rng.arg[1] is AxisType.LOOP and rng.arg[0] > lane.arg[0] and self.stride(read, rng) == 1
            for rng in read.open_ranges
        )

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

    def rows(self, node: UOp, lane: UOp) -> list[UOp]:
        """The output axes of a REDUCE that the reads along the lane do not know."""
        reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
        return [
            rng
            for rng in node.open_ranges
            if rng is not lane
            and self.usable(rng)
            and rng.arg[1] is AxisType.LOOP
            and reads
            and not any(rng in read.open_ranges for read in reads)
        ]
