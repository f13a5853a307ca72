"""STREAM: stores that bypass the caches, for outputs that are gone from them before anyone reads.

An ordinary store first reads the cache line that it changes, and what it writes drives out what
others need. A streaming store does neither, if whole lines are written one after the other.
"""

from __future__ import annotations

import math
from dataclasses import replace

from morok.ir import AxisType, KernelInfo, Ops, UOp
from morok.optimizer.facts import Facts
from morok.optimizer.legality import loop_axis, require
from morok.optimizer.ranges import lane_stride, memory_of, range_end, reads_of

__all__ = ["choose_streaming", "stream"]

LEAST_BYTES = 8 << 20
"""Smaller outputs may still be in a cache when they are read."""

_LINE = 64


def stream(sink: UOp, axis: int) -> UOp:
    """The stores of a kernel, all along this axis, bypass the caches: KernelInfo.streaming."""
    lane = loop_axis(sink, axis)
    for store in sink.src:
        require(
            store.op is Ops.STORE and lane in store.ended_ranges,
            f"a statement does not write along axis {axis}",
        )
        require(
            lane_stride(store.src[0], lane) == 1, f"neighbours along axis {axis} are not stored so"
        )
    written = {memory_of(store.src[0]) for store in sink.src}
    require(
        not any(memory_of(read) in written for read in reads_of([sink])),
        "an output is read by the kernel itself",
    )
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    return UOp(Ops.SINK, sink.dtype, sink.src, replace(info, streaming=True))


def choose_streaming(facts: Facts) -> int | None:
    """The axis along which to stream, where all outputs are large and written line by line."""
    lanes = {_streamed(facts, store) for store in facts.sink.src}
    lane = lanes.pop() if len(lanes) == 1 else None
    return None if lane is None else int(lane.arg[0].number)


def _streamed(facts: Facts, store: UOp) -> UOp | None:
    """The innermost loop of a STORE, if whole lines of a large output are written along it."""
    axes = store.ended_ranges
    if store.op is not Ops.STORE or not axes:
        return None
    lane = max(axes, key=lambda rng: rng.arg[0])
    size = store.src[1].dtype.itemsize
    written = math.prod(map(range_end, axes)) * size
    if written < LEAST_BYTES or lane.arg[1] is not AxisType.LOOP or not facts.usable(lane):
        return None
    if any(lane in node.open_ranges for node in facts.reduces):
        return None  # there is time enough between the stores
    if lane_stride(store.src[0], lane) != 1:
        return None
    steps = [lane_stride(store.src[0], rng) for rng in axes if rng is not lane]
    whole = all(step is not None and step * size % _LINE == 0 for step in steps)
    return lane if whole and range_end(lane) * size >= _LINE else None
