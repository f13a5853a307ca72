"""LOCAL: what one read sees along named axes, copied to memory near the core (see `opts`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from morok._core import consumers, toposort
from morok.ir import AddrSpace, AxisType, BufferizeOpts, Ops, UOp
from morok.optimizer.legality import LOOPS, check_locals_wanted, is_slot, loop_axis, require
from morok.optimizer.ranges import moved_range, next_number, range_end, reads_of, substitute_open

__all__ = ["MAX_LOCAL_BYTES", "check_size", "local", "named_read", "padded_read"]

MAX_LOCAL_BYTES = 1 << 22
"""Largest copy that LOCAL makes: it is read in order, so that it may come from the third cache."""


def local(sink: UOp, axis: int, slot: int, *more: int) -> UOp:
    named, read = named_read(sink, slot, (axis, *more))
    check_size(read, math.prod(map(range_end, named)))
    copied = padded_read(sink, read)
    number = next_number(sink)
    fills = [moved_range(rng, number + i, AxisType.LOOP) for i, rng in enumerate(named)]
    copy = substitute_open([copied], dict(zip(named, fills, strict=True)))[0]
    buffer = copy.bufferize(*fills, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL))
    return sink.substitute({copied: buffer.at(*named)})


def named_read(sink: UOp, slot: int, axes: Sequence[int]) -> tuple[list[UOp], UOp]:
    """The loops with these numbers, and the one read of a buffer that depends on all of them.
    OptError unless what it reads may be copied."""
    check_locals_wanted(sink)
    named = [loop_axis(sink, number) for number in axes]
    require(len(set(named)) == len(named), "an axis is named twice")
    written = [node.src[0].src[0] for node in toposort(sink) if node.op is Ops.STORE]
    require(
        not any(is_slot(buffer, slot) for buffer in written),
        f"the kernel writes the buffer in slot {slot}",
    )
    reads = [
        read
        for read in reads_of([sink])
        if is_slot(read.src[0], slot) and all(rng in read.open_ranges for rng in named)
    ]
    require(len(reads) == 1, f"{len(reads)} reads of slot {slot} depend on all these axes")
    read = reads[0]
    require(
        all(rng.arg[1] in LOOPS for rng in read.open_ranges),
        "the read depends on an axis that is no loop any more",
    )
    return named, read


def check_size(read: UOp, size: int) -> None:
    require(
        size * read.dtype.itemsize <= MAX_LOCAL_BYTES,
        f"{size} elements of {read.dtype} are more than {MAX_LOCAL_BYTES} bytes",
    )


def padded_read(sink: UOp, read: UOp) -> UOp:
    """WHERE(inside, read, 0) if that is all the read is for and depends on no other axes: the copy
    holds the zeros too, and whoever reads it asks nothing. Else the read."""
    users = consumers(sink)[read]
    if len(users) != 1 or users[0].op is not Ops.WHERE:
        return read
    padded: UOp = users[0]
    inside, value, outside = padded.src
    if value is not read or outside.op is not Ops.CONST or read in toposort(inside):
        return read
    same = set(padded.open_ranges) == set(read.open_ranges)
    whole = same and outside.arg == 0 and not reads_of([inside])
    return padded if whole else read
