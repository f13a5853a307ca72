"""The form of a kernel that actions and code generation start from."""

from __future__ import annotations

from morok._core import rebuild, toposort
from morok.dtype import acc_dtype
from morok.ir import Ops, ReduceOp, UOp
from morok.optimizer.ranges import rename_ranges

__all__ = ["drop_unit_ranges", "prepare", "widen_accumulators"]


def prepare(sink: UOp) -> UOp:
    """A kernel without loops of one iteration, whose sums are accumulated in a wide dtype."""
    return widen_accumulators(drop_unit_ranges(sink))


def drop_unit_ranges(sink: UOp) -> UOp:
    """Ranges of one iteration -> 0. A REDUCE left without ranges is its value."""
    unit: dict[UOp, tuple[UOp, ...]] = {
        node: () for node in toposort(sink) if node.op is Ops.RANGE and node.vmax == 0
    }
    return rename_ranges(sink, unit) if unit else sink


def widen_accumulators(sink: UOp) -> UOp:
    """REDUCE(v) of a float below 32 bits -> CAST(REDUCE(CAST(v))): one rounding, at the end.

    Extremes need no width: they are exact in every dtype.
    """
    return rebuild(sink, {Ops.REDUCE: _widened})


def _widened(node: UOp, src: tuple[UOp, ...]) -> UOp:
    rounds = node.dtype.kind == "f" and node.arg in (ReduceOp.ADD, ReduceOp.MUL)
    wide = acc_dtype(node.dtype) if rounds else node.dtype
    if wide is node.dtype:
        return UOp(node.op, wide, src, node.arg)
    total: UOp = UOp(Ops.REDUCE, wide, (src[0].cast(wide), *src[1:]), node.arg).cast(node.dtype)
    return total
