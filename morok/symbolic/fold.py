"""Constants: every op of constants that is exact, and values that their bounds decide.

Both rules are native. `fold` computes what running the op would give, in its own dtype and lane by
lane: integers wrap, floats are rounded once, transcendentals are never folded. `bounds` makes a
constant of an integer or truth value whose least and greatest value are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from morok.dtype import DType, Scalar
from morok.ir import GroupOp, Ops, RuleSet, UOp

fold = RuleSet("fold")

fold.native("fold", name="constants", ops=GroupOp.Elementwise, need=(Ops.CONST,))
fold.native("fold.bounds", name="bounds", ops=GroupOp.ALU | {Ops.CAST})


def lane_values(of: UOp) -> Sequence[Scalar] | None:
    """The numbers of a CONST, VCONST or VECTORIZE of CONSTs, one a lane; None for other nodes."""
    if of.op is Ops.CONST:
        values: tuple[object, ...] = (of.arg,)
    elif of.op is Ops.VCONST:
        values = of.arg
    elif of.op is Ops.VECTORIZE and all(lane.op is Ops.CONST for lane in of.src):
        values = tuple(lane.arg for lane in of.src)
    else:
        return None
    numbers = [value for value in values if isinstance(value, bool | int | float)]
    return numbers if len(numbers) == len(values) else None


def constant_of(dtype: DType, values: Sequence[Scalar]) -> UOp:
    """CONST, or for a vector `dtype` VCONST; a single value stands for every lane."""
    if dtype.count == 1:
        return UOp.const(dtype, values[0])
    lanes = tuple(values) if len(values) == dtype.count else (values[0],) * dtype.count
    return UOp(Ops.VCONST, dtype, (), lanes)
