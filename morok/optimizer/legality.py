"""What the actions of stage 7 ask of a kernel, and why they refuse it."""

from __future__ import annotations

import math

from morok._core import toposort
from morok.errors import OptError
from morok.ir import AxisType, KernelInfo, Ops, UOp
from morok.optimizer.ranges import (
    has_known_end,
    moved_range,
    range_end,
    rename_ranges,
)

__all__ = [
    "LOOPS",
    "MAX_INSTANCES",
    "axis_number",
    "binders_of",
    "check_divides",
    "check_independent",
    "check_instances",
    "check_locals_wanted",
    "is_slot",
    "loop_axis",
    "make_room",
    "ranges_of",
    "require",
]

MAX_INSTANCES = 512
"""Most copies of one statement that UPCAST and UNROLL together may ask for, lanes included."""

LOOPS = (AxisType.LOOP, AxisType.REDUCE)


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise OptError(reason)


def axis_number(rng: UOp) -> int:
    return int(rng.arg[0].number)


def ranges_of(sink: UOp) -> list[UOp]:
    return [node for node in toposort(sink) if node.op is Ops.RANGE]


def loop_axis(sink: UOp, number: int, *, symbolic: bool = False) -> UOp:
    """The loop with this axis number; if allowed, one whose end depends on variables."""
    found = [rng for rng in ranges_of(sink) if axis_number(rng) == number]
    require(bool(found), f"the kernel has no axis {number}")
    require(len(found) == 1, f"{len(found)} ranges share the axis number {number}")
    rng = found[0]
    require(rng.arg[1] in LOOPS, f"axis {number} is {rng.arg[1]}, not a loop")
    require(symbolic or has_known_end(rng), f"the end of axis {number} is symbolic")
    return rng


def binders_of(sink: UOp, rng: UOp) -> list[UOp]:
    return [node for node in toposort(sink) if rng in node.ended_ranges]


def check_independent(sink: UOp, rng: UOp) -> None:
    """The iterations of `rng` may run side by side: no buffer is filled inside the loop."""
    for node in toposort(sink):
        if node.op is Ops.REDUCE and rng in node.open_ranges:
            grouped = any(other.arg[1] is AxisType.GROUP_REDUCE for other in node.ended_ranges)
            require(not grouped, f"partial sums are kept inside axis {axis_number(rng)}")
        if node.op in (Ops.BUFFERIZE, Ops.AFTER) and rng in node.open_ranges:
            what = "a local buffer" if node.op is Ops.BUFFERIZE else "an ordered write"
            raise OptError(f"{what} is filled inside axis {axis_number(rng)}")


def check_locals_wanted(sink: UOp) -> None:
    """The kernel may have local buffers."""
    unwanted = isinstance(sink.arg, KernelInfo) and sink.arg.dont_use_locals
    require(not unwanted, "the kernel is to have no local buffers")


def check_divides(rng: UOp, amount: int) -> None:
    end = range_end(rng)
    require(amount >= 2, f"an amount of {amount} changes nothing")
    require(end % amount == 0, f"{amount} does not divide the {end} iterations")


def check_instances(sink: UOp, rng: UOp, amount: int) -> None:
    for binder in binders_of(sink, rng):
        copies = [
            range_end(other)
            for other in binder.ended_ranges
            if other.op is Ops.RANGE and other.arg[1] in (AxisType.UPCAST, AxisType.UNROLL)
        ]
        total = amount * math.prod(copies)
        require(total <= MAX_INSTANCES, f"{total} copies of a statement, {MAX_INSTANCES} allowed")


def make_room(sink: UOp, rng: UOp) -> tuple[UOp, UOp]:
    """Axis numbers above that of `rng` move up by one; `rng` itself is unchanged."""
    above = [other for other in ranges_of(sink) if axis_number(other) > axis_number(rng)]
    moved = {other: (moved_range(other, axis_number(other) + 1),) for other in above}
    return (rename_ranges(sink, moved) if moved else sink), rng


def is_slot(buffer: UOp, slot: int) -> bool:
    return buffer.op is Ops.PARAM and buffer.arg[0] == slot
