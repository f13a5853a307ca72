"""Constants: every op of constants that is exact, and values that their bounds decide.

Scalar ints and bools fold in the core, in the semantics of their dtype; vectors of constants and
floats fold here. Floats fold where every backend computes the same bits: arithmetic, roots,
roundings and comparisons, never transcendentals. A float narrower than 32 bits folds only where
nothing is rounded: a kernel computes it in float32 and rounds later.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from morok.dtype import DType, Scalar, cast_value, from_bits, to_bits
from morok.ir import Const, GroupOp, Ops, Pat, RuleSet, UOp

fold = RuleSet("fold")


# What the ops compute, on Python numbers ---------------------------------------------------------


def _divide(a: float, b: float) -> float:
    """a / b of IEEE 754."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to whole numbers that keeps the sign of zero, NaN and infinities."""
    return lambda a: math.copysign(float(rounding(a)), a) if math.isfinite(a) else a


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _bounded(choose: Callable[[float, float], float]) -> Callable[[float, float], float | None]:
    """max or min where NaN wins; None for two zeros, in whose sign backends differ."""

    def pick(a: float, b: float) -> float | None:
        if math.isnan(a) or math.isnan(b):
            return math.nan
        return None if a == b == 0 and type(a) is float else choose(a, b)

    return pick


_COMPARE: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.LT: operator.lt,
    Ops.LE: operator.le,
    Ops.GT: operator.gt,
    Ops.GE: operator.ge,
    Ops.EQ: operator.eq,
    Ops.NE: operator.ne,
}
_FLOAT: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NEG: operator.neg,
    Ops.ABS: abs,
    Ops.SQRT: lambda a: math.sqrt(a) if a >= 0 else a if a == 0 else math.nan,
    Ops.RECIPROCAL: lambda a: _divide(1.0, a),
    Ops.SQUARE: lambda a: a * a,
    Ops.TRUNC: _whole(math.trunc),
    Ops.FLOOR: _whole(math.floor),
    Ops.CEIL: _whole(math.ceil),
    Ops.ROUND: _whole(round),
    Ops.ADD: operator.add,
    Ops.SUB: operator.sub,
    Ops.MUL: operator.mul,
    Ops.FDIV: _divide,
    Ops.MAX: _bounded(max),
    Ops.MIN: _bounded(min),
}
_INTEGER: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NEG: operator.neg,
    Ops.NOT: operator.invert,
    Ops.ABS: abs,
    Ops.SQUARE: lambda a: a * a,
    Ops.ADD: operator.add,
    Ops.SUB: operator.sub,
    Ops.MUL: operator.mul,
    Ops.FLOORDIV: lambda a, b: a // b if b else None,
    Ops.FLOORMOD: lambda a, b: a % b if b else None,
    Ops.IDIV: lambda a, b: _trunc_div(a, b) if b else None,
    Ops.MOD: lambda a, b: a - _trunc_div(a, b) * b if b else None,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.SHL: lambda a, b: a << b if 0 <= b < 64 else None,
    Ops.SHR: lambda a, b: a >> b if b >= 0 else None,
}
_BOOL: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NOT: operator.not_,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
}

INTEGER_UNARY: Final = frozenset(_INTEGER.keys() & GroupOp.Unary)
INTEGER_BINARY: Final = frozenset(_INTEGER.keys() & GroupOp.Binary)
FLOAT_UNARY: Final = frozenset(_FLOAT.keys() & GroupOp.Unary)
FLOAT_BINARY: Final = frozenset(_FLOAT.keys() & GroupOp.Binary)


# Constant nodes ----------------------------------------------------------------------------------


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


def fold_lane(op: Ops, dtype: DType, source: DType, values: Sequence[Scalar]) -> Scalar | None:
    """One lane of `op`: of scalar `dtype`, its operands of scalar `source`. None if not exact."""
    if op in _COMPARE:
        return bool(_COMPARE[op](*values))
    table = {"f": _FLOAT, "b": _BOOL}.get(dtype.kind, _INTEGER)
    result: Any = table[op](*values) if op in table else None
    if result is None or dtype.kind == "b":
        return None if result is None else bool(result)
    if dtype.kind == "x":
        return int(result) if -(2**63) <= result < 2**63 else None
    rounded = cast_value(result, dtype)
    if dtype.kind == "f" and dtype.bits < 32 and rounded != result and result == result:
        return None
    return rounded


def fold_lanes(root: UOp) -> UOp | None:
    """An ALU op of constants as a constant; None where a lane is not exact."""
    columns = [lane_values(source) for source in root.src]
    if any(column is None for column in columns):
        return None
    results = []
    for lane in range(root.dtype.count):
        row = [column[lane if len(column) > 1 else 0] for column in columns if column is not None]
        value = fold_lane(root.op, root.dtype.scalar, root.src[0].dtype.scalar, row)
        if value is None:
            return None
        results.append(value)
    return constant_of(root.dtype, results)


# Rules -------------------------------------------------------------------------------------------

_VECTORS: Final = Pat({Ops.CONST, Ops.VCONST})

fold.native("fold.int", name="int", ops=GroupOp.Unary | GroupOp.Binary, need=(Ops.CONST,))
fold.native("fold.bounds", name="bounds", ops=GroupOp.ALU | {Ops.CAST})


@fold.opaque(Pat(FLOAT_UNARY, (Const("a"),), name="root"), dtype="f", pure=True)
def float_unary(root: UOp, a: UOp) -> UOp | None:
    """sqrt(4.0) -> 2.0"""
    return fold_lanes(root)


@fold.opaque(Pat(FLOAT_BINARY, (_VECTORS, _VECTORS), name="root"), dtype="f", pure=True)
def float_binary(root: UOp) -> UOp | None:
    """1.5 + 2.0 -> 3.5"""
    return fold_lanes(root)


@fold.opaque(Pat(GroupOp.Comparison, (_VECTORS, _VECTORS), name="root"), pure=True)
def compare(root: UOp) -> UOp | None:
    """1.5 < 2.0 -> true"""
    return fold_lanes(root)


@fold.opaque(Pat(INTEGER_UNARY, (Pat(Ops.VCONST),), name="root"), dtype="biux", pure=True)
def vector_unary(root: UOp) -> UOp | None:
    """-VCONST(1, 2) -> VCONST(-1, -2)"""
    return fold_lanes(root)


@fold.opaque(Pat(INTEGER_BINARY, (_VECTORS, _VECTORS), name="root"), dtype="biux", pure=True)
def vector_binary(root: UOp) -> UOp | None:
    """VCONST(1, 2) + VCONST(3, 4) -> VCONST(4, 6)"""
    return fold_lanes(root)


@fold.opaque(Pat(Ops.CAST, (Pat({Ops.CONST, Ops.VCONST}, name="a"),), name="root"), pure=True)
def cast(root: UOp, a: UOp) -> UOp | None:
    """CAST(2.7, int32) -> 2"""
    values = lane_values(a)
    if values is None or root.dtype.kind not in "biufx":
        return None
    return constant_of(root.dtype, [cast_value(v, root.dtype.scalar) for v in values])


@fold.opaque(Pat(Ops.BITCAST, (Pat(Ops.CONST, name="a"),), name="root"), pure=True)
def bitcast(root: UOp, a: UOp) -> UOp | None:
    """BITCAST(1.0, int32) -> 0x3f800000; NaNs keep their bits, so they stay"""
    values = lane_values(a)
    if values is None or root.dtype.kind not in "iuf" or root.dtype.bits != a.dtype.bits:
        return None
    if root.dtype.count != 1 or values[0] != values[0]:
        return None
    value = from_bits(to_bits(values[0], a.dtype), root.dtype)
    return constant_of(root.dtype, [value]) if value == value else None
