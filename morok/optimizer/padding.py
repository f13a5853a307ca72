"""PADTO: an axis rounded up, so that vectors and tiles fit it.

    for j < 13: out[j] = x[j]   ->   for j < 16: if j < 13: out[j] = x[j] if j < 13 else 0

Nothing beyond the end is written, and nothing read that may lie outside of its buffer there. In a
reduction what is beyond counts as the identity:

    sum over k < 13 of x[k]     ->   sum over k < 16 of (x[k] if k < 13 else 0)
"""

from __future__ import annotations

from morok._core import toposort
from morok.ir import Ops, UOp
from morok.optimizer.guards import stays_inside
from morok.optimizer.legality import binders_of, check_independent, loop_axis, require
from morok.optimizer.ranges import flat_index, index_parts, make_range, range_end, rename_ranges

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
    written = {node.src[0] for node in toposort(renamed) if node.op is Ops.STORE}
    new: dict[UOp, UOp] = {}
    for node in toposort(renamed):
        src = [new[source] for source in node.src]
        if node.op is Ops.INDEX and padded in node.open_ranges:
            copy = UOp(node.op, node.dtype, tuple(src), node.arg)
            is_value = output and node not in written
            guarded = is_value and node.arg and node.src[0].op is Ops.PARAM
            new[node] = _safe(copy) if guarded else _gated(copy, inside)
            continue
        if node.op is Ops.REDUCE and padded in node.ended_ranges:
            dtype = src[0].dtype
            src[0] = inside.where(src[0], UOp.const(dtype, node.arg.identity(dtype)))
        new[node] = UOp(node.op, node.dtype, tuple(src), node.arg)
    return new[renamed]


def _safe(read: UOp) -> UOp:
    """A gated read that stays within its buffer in any iteration, those beyond the end included:
    what it reads there goes nowhere. Where its place is a sum, so is the new condition, which thus
    moves as the place does."""
    buffer, _, gate = index_parts(read)
    place, size = flat_index(read), int(buffer.arg[1])
    if stays_inside(place, gate, size):
        return read
    return _gated(_gated(read, place >= 0), place < size)


def _gated(index: UOp, inside: UOp) -> UOp:
    """An INDEX that is not followed where `inside` is false."""
    buffer, indices, gate = index_parts(index)
    both = inside if gate is None else gate & inside
    return UOp(index.op, index.dtype, (buffer, *indices, both), True)
