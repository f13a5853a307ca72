"""WINDOW: what one read sees through windows that overlap, copied to memory near the core once.

A read at `y*s + r` for an output row y and a tap r sees most rows more than once. LOCAL(y, slot, r)
would copy each as often. WINDOW copies the rows, and is read where the window is:

    INDEX(PARAM(slot), f(y*s + r)) -> INDEX(BUFFERIZE(INDEX(PARAM(slot), f(w)), w), y*s + r)

Which of the named loops share a window follows from the strides of the flat index: those one of
which steps by less than the other covers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from morok._core import affine_split
from morok.dtype import dtypes
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.optimizer.legality import axis_number, require
from morok.optimizer.local import check_size, named_read, padded_read
from morok.optimizer.ranges import (
    flat_index,
    index_parts,
    make_range,
    next_number,
    range_end,
    simplify_all,
    substitute_open,
)

__all__ = ["Window", "find_windows", "window"]

_NO_NUMBER = 1 << 20  # of a loop that no kernel will have


@dataclass
class Window:
    """Loops that move along one dimension of a read, and by how many of its steps each does."""

    stride: int  # elements a step
    members: dict[UOp, int] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Steps from the first to the last position, both included."""
        return 1 + sum(abs(k) * (range_end(rng) - 1) for rng, k in self.members.items())

    @property
    def unit(self) -> UOp:
        """A loop that moves one step a turn."""
        return next(rng for rng, k in self.members.items() if abs(k) == 1)

    def place(self) -> UOp:
        """Where the window is, counted from its first position."""
        back = sum(-k * (range_end(rng) - 1) for rng, k in self.members.items() if k < 0)
        out = UOp.const(dtypes.index, back)
        for rng, k in self.members.items():
            out = out + rng * k
        return out

    def joined(self, rng: UOp, stride: int) -> Window | None:
        """With a loop more, if it steps less far than this window reaches, or this one's steps are
        less far than it reaches."""
        step = min(abs(self.stride), abs(stride))
        if stride % step or self.stride % step:
            return None
        mine, its = abs(self.stride) // step, abs(stride) // step
        reach = self.length if mine == 1 else range_end(rng)
        if max(mine, its) >= reach:
            return None
        members = {other: k * self.stride // step for other, k in self.members.items()}
        return Window(step, {**members, rng: stride // step})


def find_windows(copied: UOp, named: list[UOp], strides: list[int]) -> list[Window]:
    """The loops, in order, as windows of a read or of the choice between it and zero; a loop that
    overlaps with an earlier one joins it, if both together say what is read."""
    out: list[Window] = []
    for rng, stride in zip(named, strides, strict=True):
        for i, other in enumerate(out):
            both = other.joined(rng, stride)
            if both is not None and _alone(copied, both):
                out[i] = both
                break
        else:
            out.append(Window(stride, {rng: 1}))
    return out


def window(sink: UOp, axis: int, slot: int, row: int = 0, *more: int) -> UOp:
    """The copy is filled in the innermost of the read's other loops; its layout is the order in
    which windows are named first. The last one is filled up with zeros to `row` elements."""
    named, read = named_read(sink, slot, (axis, *more))
    (position,) = simplify_all([flat_index(read)])
    strides = [_stride(position, rng) for rng in named]
    copied = padded_read(sink, read)
    windows = find_windows(copied, named, strides)
    lengths = [each.length for each in windows]
    last = lengths[-1]
    lengths[-1] = max(last, row)
    check_size(read, math.prod(lengths))
    number = next_number(sink)
    fills = [make_range(n, number + i, AxisType.LOOP) for i, n in enumerate(lengths)]
    copy = _moved(copied, windows, fills)
    if lengths[-1] > last:
        copy = _guarded(copy, fills[-1] < last)
    buffer = copy.bufferize(*fills, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL))
    places = simplify_all([each.place() for each in windows])
    return sink.substitute({copied: buffer.at(*places)})


def _stride(position: UOp, rng: UOp) -> int:
    split = affine_split(position, rng)
    require(
        split is not None and split[0] != 0,
        f"axis {axis_number(rng)} does not move the read by equal steps",
    )
    return int(split[0]) if split is not None else 0


def _alone(copied: UOp, each: Window) -> bool:
    """Does where the window is say as much of what is read as its loops do?"""
    moved = _moved(copied, [each], [make_range(each.length, _NO_NUMBER, AxisType.LOOP)])
    return not any(rng in moved.open_ranges for rng in each.members if rng is not each.unit)


def _moved(copied: UOp, windows: list[Window], fills: list[UOp]) -> UOp:
    """What is read where the windows are at `fills`: b := fill - a*s."""
    values: dict[UOp, UOp] = {}
    for each, fill in zip(windows, fills, strict=True):
        unit = each.unit
        rest = fill - simplify_all([each.place()])[0].substitute({unit: UOp.const(unit.dtype, 0)})
        values[unit] = rest * each.members[unit]
    return simplify_all(substitute_open([copied], values))[0]


def _guarded(copy: UOp, inside: UOp) -> UOp:
    """The value where `inside` holds, else 0, with nothing read there."""
    if copy.op is not Ops.INDEX:
        valid, read, other = copy.src
        return UOp(Ops.WHERE, copy.dtype, (valid & inside, _guarded(read, inside), other))
    buffer, indices, gate = index_parts(copy)
    return buffer.at(*indices, gate=inside if gate is None else gate & inside)
