"""NEST: a sum of the sums of its parts, so that whole parts can be loops of their own.

    acc = sum over k < n*m of x[k]   ->   acc = sum over k < n of (sum over q < m of x[k*m + q])

The inner sum takes axis numbers above all in use, and hence is the innermost loop: what ACCUMULATE
keeps in memory is then read and written once a part instead of once an element, and copies of
operands need to hold no more than one part.
"""

from __future__ import annotations

from morok._core import toposort
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.legality import (
    LOOPS,
    binders_of,
    check_divides,
    check_independent,
    loop_axis,
    require,
)
from morok.optimizer.ranges import make_range, moved_range, next_number, range_end, substitute_open

__all__ = ["nest"]


def nest(sink: UOp, axis: int, amount: int) -> UOp:
    """REDUCE(x(r, s), r, s) -> REDUCE(REDUCE(x(r*m + new, new+1), new, new+1), r)

    for all REDUCEs over `axis`, r, of n*m iterations. Their other axes, s, go inside, too.
    """
    rng = loop_axis(sink, axis)
    require(rng.arg[1] is AxisType.REDUCE, f"axis {axis} is no reduction")
    check_divides(rng, amount)
    count = range_end(rng) // amount
    require(count > 1, "a sum of sums needs two parts")
    check_independent(sink, rng)
    number = next_number(sink)
    outer = make_range(count, axis, rng.arg[1])
    inner = make_range(amount, number, rng.arg[1])
    moved = {rng: outer * amount + inner}
    others: dict[UOp, UOp] = {}
    binders = set(binders_of(sink, rng))
    for node in binders:
        for other in node.ended_ranges:
            require(other.arg[1] in LOOPS, "some axis of the reduction is no loop any more")
            if other is not rng:
                others[other] = other
    for other in sorted(others, key=lambda one: one.arg[0]):
        check_independent(sink, other)
        number += 1
        others[other] = moved_range(other, number)
    moved.update(others)
    new: dict[UOp, UOp] = {}
    for node in toposort(sink):
        src = tuple(new[source] for source in node.src)
        if node not in binders:
            new[node] = UOp(node.op, node.dtype, src, node.arg)
            continue
        (value,) = substitute_open(src[:1], moved)
        loops = [inner if other is rng else others[other] for other in node.ended_ranges]
        part = UOp(Ops.REDUCE, node.dtype, (value, *loops), node.arg)
        new[node] = UOp(Ops.REDUCE, node.dtype, (part, outer), node.arg)
    return new[sink]
