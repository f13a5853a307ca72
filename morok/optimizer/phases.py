"""Axes that a kernel sees in steps: SPLIT so that each part moves evenly.

An image that was looked at every second element gets its gradient from other terms at even than at
odd places:

    out[y] = sum over r of WHERE(p + r < 4, g[(y + 1) // 2 - r] * w[2 * r + p], 0), p = (y + 1) % 2

With y = 2 * i + p every position is even in i and p. The p are the outer loops: within one of them
all goes on as in a sum without steps, and what p and r leave out is known outside of longer loops.
"""

from __future__ import annotations

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.drafts import Draft
from morok.optimizer.facts import Facts
from morok.optimizer.opts import OptOps
from morok.optimizer.ranges import range_end

__all__ = ["split_phases"]

_MOST = 8  # phases; longer rows are dims of an array


def split_phases(facts: Facts) -> UOp:
    """The kernel with the output axes of sums that are read in steps split by the step; where it is
    no divisor, the last round is not full."""
    sink = facts.sink
    if len(sink.src) != 1 or not facts.reduces:
        return sink
    (store,) = sink.src
    draft = Draft(sink)
    phases: list[tuple[UOp, str]] = []
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    if not all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes):
        return sink
    for rng in axes:
        step = _step(facts, rng)
        if not 2 <= step <= _MOST or range_end(rng) < 2 * step:
            continue
        try:
            if range_end(rng) % step:
                draft.do(OptOps.PADTO, rng, step)
            draft.split(rng, step, (rng, "phase"))
        except OptError:
            continue
        phases.append((rng, "phase"))
    for rng in reversed(axes[1:]):  # the first one is for the threads
        draft.move_inside(rng, phases)
    return draft.sink


def _step(facts: Facts, rng: UOp) -> int:
    """The one number by which positions that depend on an axis are divided; 0 without one."""
    uneven = [
        read
        for read in facts.reads
        if rng in read.open_ranges
        and facts.stride(read, rng) is None
        and read.src[0].op is Ops.PARAM
    ]
    steps = {
        node.src[1].arg
        for read in uneven
        for node in facts.positions[read].toposort()
        if node.op in (Ops.FLOORDIV, Ops.FLOORMOD)
        and rng in node.open_ranges
        and node.src[1].op is Ops.CONST
    }
    return int(steps.pop()) if len(steps) == 1 else 0
