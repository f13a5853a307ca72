"""INPLACE: a row that a kernel computes for its output lives in the output until it is overwritten.

    for j: e[j] = x(j)                      for j: out[i, j] = x(j)
    s = sum over j of e[j]            ->    s = sum over j of out[i, j]
    for j: out[i, j] = f(e[j], s)           for j: out[i, j] = f(out[i, j], s)

One row less has to stand in the nearest cache.
"""

from __future__ import annotations

from morok._core import region, toposort
from morok.ir import Ops, UOp
from morok.optimizer.legality import LOOPS, axis_number, binders_of, loop_axis, require
from morok.optimizer.ranges import (
    flat_index,
    memory_of,
    reads_of,
    simplify_all,
    substitute_open,
)
from morok.optimizer.threads import is_one_place

__all__ = ["inplace"]


def inplace(sink: UOp, axis: int) -> UOp:
    """INDEX(BUFFERIZE(x, f), j) -> INDEX(AFTER(PARAM, STORE(PARAM[a + f], x, f)), a + j)

    for the buffer filled along the axis, f, and the STORE to a + j that reads it at j.
    """
    fill = loop_axis(sink, axis)
    buffers = [node for node in binders_of(sink, fill) if node.op is Ops.BUFFERIZE]
    require(len(buffers) == 1, f"axis {axis} fills no local buffer")
    (buffer,) = buffers
    reads = [u for u in toposort(sink) if u.op is Ops.INDEX and u.src[0] is buffer]
    require(len(sink.src) == 1 and sink.src[0].op is Ops.STORE, "the kernel has several outputs")
    (store,) = sink.src
    place, value = store.src[:2]
    memory = memory_of(place)
    require(
        place.src[0] is memory and not place.arg and memory.dtype.base is buffer.dtype,
        "the output cannot hold the buffer",
    )
    require(
        not any(memory_of(read) is memory for read in reads_of([value])),
        "the output is read by the kernel itself",
    )
    found = [read for read in reads if set(read.src[1:]) <= set(store.ended_ranges)]
    require(len(found) == 1, "the output does not read the buffer where it is written")
    (last,) = found
    own = list(last.src[1:])
    ranges = (*own, *buffer.ended_ranges)
    require(
        all(rng.op is Ops.RANGE and rng.arg[1] in LOOPS for rng in ranges)
        and len(set(own)) == len(own)
        and [rng.vmax for rng in own] == [rng.vmax for rng in buffer.ended_ranges]
        and set(buffer.open_ranges) == set(store.ended_ranges).difference(own),
        "the buffer is no row of the output",
    )
    inside = min(map(axis_number, own))
    require(
        all(axis_number(rng) < inside for rng in buffer.open_ranges),
        "the buffer is filled again while the output is written",
    )
    (flat,) = simplify_all([flat_index(place)])
    require(all(is_one_place(flat, rng) for rng in store.ended_ranges), "a place is written twice")
    for rng in own:
        for node in region([value], rng):
            other = [s for s in node.src if s in reads and s is not last]
            require(not other, "the buffer is read elsewhere while the output is written")

    def at(indices: tuple[UOp, ...]) -> UOp:
        return substitute_open([flat], dict(zip(own, indices, strict=True)))[0]

    target = memory.at(at(buffer.ended_ranges))
    filled = memory.after(target.store(buffer.src[0], *buffer.ended_ranges))
    return sink.substitute({read: filled.at(at(read.src[1:])) for read in reads})
