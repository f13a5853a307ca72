"""PADTO: an axis rounded up, so that vectors and tiles fit it.

    for j < 13: out[j] = x[j]   ->   for j < 16: if j < 13: out[j] = x[j] if j < 13 else 0

Nothing beyond the end is read or written. In a reduction what is beyond counts as the identity:

    sum over k < 13 of x[k]     ->   sum over k < 16 of (x[k] if k < 13 else 0)
"""

from __future__ import annotations

from morok._core import toposort
from morok.ir import Ops, UOp
from morok.optimizer.legality import binders_of, check_independent, loop_axis, require
from morok.optimizer.ranges import index_parts, make_range, range_end, rename_ranges

__all__ = ["padto"]


def padto(sink: UOp, axis: int, amount: int) -> UOp:
    """R(a, n) -> R(a, n rounded up to a multiple of `amount`), with gates `R < n`."""
    rng = loop_axis(sink, axis)
    end = range_end(rng)
    require(amount >= 2, f"an amount of {amount} changes nothing")
    require(end % amount != 0, f"{end} iterations are a multiple of {amount} already")
    whole = -(-end // amount) * amount
    require(whole < 2 * end, f"half of {whole} iterations would do nothing")
    check_independent(sink, rng)
    binders = binders_of(sink, rng)
    output = all(node in sink.src and node.op is Ops.STORE for node in binders)
    require(
        output or all(node.op is Ops.REDUCE for node in binders),
        f"axis {axis} fills a local buffer",
    )
    padded = make_range(whole, axis, rng.arg[1])
    inside = padded < end
    renamed = rename_ranges(sink, {rng: (padded,)})
    new: dict[UOp, UOp] = {}
    for node in toposort(renamed):
        src = [new[source] for source in node.src]
        if node.op is Ops.INDEX and padded in node.open_ranges:
            new[node] = _gated(UOp(node.op, node.dtype, tuple(src), node.arg), inside)
            continue
        if node.op is Ops.REDUCE and padded in node.ended_ranges:
            dtype = src[0].dtype
            src[0] = inside.where(src[0], UOp.const(dtype, node.arg.identity(dtype)))
        new[node] = UOp(node.op, node.dtype, tuple(src), node.arg)
    return new[renamed]


def _gated(index: UOp, inside: UOp) -> UOp:
    """An INDEX that is not followed where `inside` is false."""
    buffer, indices, gate = index_parts(index)
    both = inside if gate is None else gate & inside
    return UOp(index.op, index.dtype, (buffer, *indices, both), True)
