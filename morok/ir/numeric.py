"""What each op computes, on NumPy arrays: the definition every backend is measured against.

A value in flight lives in a *carrier*: NumPy's own type for bool, ints (index: int64), float32 and
float64; float32 for the narrower floats, which are computed in float32 and rounded (`settle`)
where a value gets its own dtype: constants, casts, memory. Integers wrap; division by zero gives 0
for ints and follows IEEE 754 for floats; transcendentals are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from morok.dtype import DType, Scalar, dtypes, np_cast
from morok.errors import InvalidGraphError
from morok.float_format import FORMATS
from morok.ir.ops import Ops, ReduceOp

__all__ = [
    "Array",
    "bitcast",
    "carrier",
    "cast",
    "compute",
    "constant_array",
    "from_memory",
    "reduce",
    "settle",
    "to_memory",
    "uninitialised",
]

Array = npt.NDArray[Any]

_FLOAT32: Final = np.dtype(np.float32)
_FLOAT64: Final = np.dtype(np.float64)
_NARROW: Final = (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)  # NumPy has none of these


def carrier(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that lanes of `dtype` are computed in."""
    scalar = dtype.scalar
    if scalar.kind == "f":
        return _FLOAT64 if scalar is dtypes.float64 else _FLOAT32
    if scalar.kind == "x":
        return np.dtype(np.int64)
    return np.dtype(scalar.name)


# Rounding and conversion -------------------------------------------------------------------------


def _round_to(values: Array, dtype: DType) -> Array:
    """Numbers (float64 or ints) rounded once to a narrow float, in float32."""
    fmt = FORMATS[dtype.name]
    if (
        values.dtype.kind in "iu"
        and values.size
        and np.abs(values.astype(np.float64)).max() > 2**53
    ):
        exact = [fmt.round(int(value)) for value in values.ravel()]
        return np.array(exact, np.float32).reshape(values.shape)
    wide = values.astype(np.float64)
    finite = np.where(np.isfinite(wide), wide, 0.0)
    _, exponent = np.frexp(finite)
    place = np.maximum(exponent - fmt.precision, fmt.least_exponent)
    rounded = np.ldexp(np.rint(np.ldexp(finite, -place)), place)
    largest = np.inf if fmt.has_inf else fmt.largest
    rounded = np.where(np.abs(rounded) > fmt.largest, np.copysign(largest, wide), rounded)
    outside = wide if fmt.has_inf else np.where(np.isinf(wide), np.copysign(largest, wide), wide)
    return np.where(np.isfinite(wide), np.copysign(rounded, wide), outside).astype(np.float32)


def _to_float(values: Array, dtype: DType) -> Array:
    """Numbers rounded once to a float dtype, in its carrier."""
    with np.errstate(all="ignore"):
        if dtype in _NARROW:
            return _round_to(values, dtype)
        if dtype is dtypes.float16:
            # NumPy converts wide ints to float16 through float32, which would round twice.
            wide = values.astype(np.float64) if values.dtype.kind in "iu" else values
            return wide.astype(np.float16).astype(np.float32)
        return values.astype(carrier(dtype))


def settle(values: Array, dtype: DType) -> Array:
    """Values in flight rounded to their own dtype."""
    scalar = dtype.scalar
    if scalar.kind == "f" and scalar.bits < 32:
        return _to_float(values, scalar)
    return values


def cast(values: Array, target: DType) -> Array:
    """CAST: to bool whether not zero; to ints wrapping, from floats saturating with NaN to 0."""
    scalar = target.scalar
    with np.errstate(all="ignore"):
        if scalar.kind == "b":
            return np.asarray(values != 0)
        if scalar.kind == "f":
            return _to_float(values, scalar)
        return np.asarray(np_cast(np.asarray(values), scalar))


def constant_array(value: Scalar, dtype: DType) -> Array:
    """A constant as a 0-d array, rounded to its dtype."""
    return settle(np.array(value, carrier(dtype)), dtype)


def uninitialised(size: int, dtype: DType) -> Array:
    """Memory before its first write: NaN, or a bit pattern that no test expects."""
    if dtype.scalar.kind == "f":
        return np.full(size, np.nan, carrier(dtype))
    if dtype.scalar.kind == "b":
        return np.zeros(size, np.bool_)
    kind = carrier(dtype)
    return np.frombuffer(b"\x55" * (size * kind.itemsize), kind).copy()


def from_memory(values: npt.ArrayLike, dtype: DType) -> Array:
    """An input array, flat, in the carrier. Narrow floats come as values, not as bits."""
    flat = np.array(values).reshape(-1)
    with np.errstate(all="ignore"):
        return settle(flat.astype(carrier(dtype)), dtype)


def to_memory(values: Array, dtype: DType) -> Array:
    """Values as memory holds them: rounded; float16 in NumPy's, narrower types in float32."""
    settled = settle(values, dtype)
    with np.errstate(all="ignore"):
        return settled.astype(np.float16) if dtype.scalar is dtypes.float16 else settled


# Bits --------------------------------------------------------------------------------------------


def _bits(values: Array, dtype: DType) -> Array:
    """The bit patterns of lanes of scalar `dtype`, as unsigned ints of its width."""
    if dtype in (dtypes.fp8e4m3, dtypes.fp8e5m2):
        encode = FORMATS[dtype.name].encode
        codes = [encode(float(value)) for value in settle(values, dtype).ravel()]
        return np.array(codes, np.uint8).reshape(values.shape)
    if dtype is dtypes.bfloat16:
        wide = np.ascontiguousarray(settle(values, dtype)).view(np.uint32)
        return (wide >> np.uint32(16)).astype(np.uint16)
    stored = np.ascontiguousarray(to_memory(values, dtype)).reshape(values.shape)
    return stored.view(f"u{dtype.bits // 8}")


def _from_bits(bits: Array, dtype: DType) -> Array:
    if dtype in (dtypes.fp8e4m3, dtypes.fp8e5m2):
        table = np.array([FORMATS[dtype.name].decode(code) for code in range(256)], np.float32)
        return np.asarray(table[bits])
    if dtype is dtypes.bfloat16:
        return np.asarray(bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.kind == "b":
        return np.asarray(bits != 0)
    stored = np.int64 if dtype.kind == "x" else dtype.name
    return bits.view(stored).astype(carrier(dtype))


def bitcast(values: Array, before: DType, after: DType) -> Array:
    """BITCAST; the last axis holds the lanes of a vector and may change in length."""
    bits = _bits(values, before.scalar)
    if before.scalar.bits != after.scalar.bits:
        lanes = bits if before.count != 1 else bits[..., None]
        bits = np.ascontiguousarray(lanes).view(f"u{after.scalar.bits // 8}")
        bits = bits if after.count != 1 else bits[..., 0]
    return _from_bits(bits, after.scalar)


# Ops ---------------------------------------------------------------------------------------------


def _wide(function: Callable[..., Any]) -> Callable[..., Array]:
    """Computed in float64; the caller rounds to the carrier."""
    return lambda *args: np.asarray(function(*(arg.astype(np.float64) for arg in args)))


def _erf(values: Array) -> Array:
    return np.array([math.erf(value) for value in values.ravel()]).reshape(values.shape)


def _floordiv(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.floor_divide(a, b))
    return np.where(b == 0, a.dtype.type(0), np.floor_divide(a, np.where(b == 0, b | 1, b)))


def _floormod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.mod(a, b))
    # The remainder of the wrapped quotient, so that q * b + r == a holds for -1 too.
    return np.asarray(np.where(b == 0, a.dtype.type(0), np.subtract(a, _floordiv(a, b) * b)))


def _idiv(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    quotient = _floordiv(a, b)
    if a.dtype.kind == "u":
        return quotient
    # Rounding down is one too low where the signs differ and a remainder is left.
    inexact = (a - quotient * b != 0) & (b != 0)
    return np.where(inexact & ((a < 0) != (b < 0)), quotient + a.dtype.type(1), quotient)


def _mod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    return np.asarray(np.where(b == 0, a.dtype.type(0), np.subtract(a, _idiv(a, b) * b)))


def _shift(a: Array, b: Array, *, left: bool) -> Array:
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    count = np.where(inside, b, b.dtype.type(0))
    if left:
        return np.where(inside, np.left_shift(a, count), a.dtype.type(0))
    beyond = np.right_shift(a, a.dtype.type(width - 1)) if a.dtype.kind == "i" else a.dtype.type(0)
    return np.where(inside, np.right_shift(a, count), beyond)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return _wide(np.power)(a, b)
    a, b = np.broadcast_arrays(a, b)
    result = np.ones(a.shape, a.dtype)
    base, exponent = a.copy(), np.where(b < 0, b.dtype.type(0), b)
    while np.any(exponent):
        result = np.where(exponent & 1 != 0, result * base, result)
        base = base * base
        exponent = exponent >> exponent.dtype.type(1)
    # 1 / a**-b truncated: only 1 and -1 are not 0 then.
    odd = np.where(b & 1 != 0, a, a * a)
    unit = (a == 1) | (a == -1) if a.dtype.kind == "i" else a == 1
    return np.where(b < 0, np.where(unit, odd, a.dtype.type(0)), result)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a*b + c, for floats rounded once.

    float32: the product is exact in float64, and so is what their sum there rounds off; the sum
    rounded to odd by it rounds to float32 as the exact one does (S. Boldo, G. Melquiond,
    "Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57, 2008).
    """
    if a.dtype.kind != "f":
        return a * b + c
    if a.dtype == _FLOAT64:
        return np.asarray(_exact_multiply_add(a, b, c))
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = np.asarray(product + c)
    back = total - product
    lost = np.asarray((product - (total - back)) + (c - back))
    bits = total.view(np.int64)
    away = np.where((lost > 0) == (total > 0), 1, -1)
    odd = bits + np.where(np.isfinite(lost) & (lost != 0) & (bits & 1 == 0), away, 0)
    return odd.view(np.float64).astype(np.float32)


def _multiply_add_exactly(a: float, b: float, c: float) -> float:
    rounded = a * b + c
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)) or a == 0 or b == 0:
        return rounded
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return math.copysign(float(abs(exact)), -1.0 if exact < 0 else 1.0)
    except OverflowError:
        return math.copysign(math.inf, -1.0 if exact < 0 else 1.0)


_exact_multiply_add = np.vectorize(_multiply_add_exactly, otypes=[np.float64])


def _threefry(counter: Array, key: Array) -> Array:
    """Threefry 2x32 with 20 rounds (Salmon et al. 2011); the low words stand first."""
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    k0, k1 = key & mask, key >> half
    keys = (k0, k1, k0 ^ k1 ^ np.uint64(0x1BD11BDA))
    x0, x1 = (counter & mask) + k0 & mask, (counter >> half) + k1 & mask
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    for group in range(5):
        for turn in rotations[group % 2]:
            x0 = x0 + x1 & mask
            x1 = (x1 << np.uint64(turn) | x1 >> np.uint64(32 - turn)) & mask ^ x0
        x0 = x0 + keys[(group + 1) % 3] & mask
        x1 = x1 + keys[(group + 2) % 3] + np.uint64(group + 1) & mask
    return x0 | x1 << half


def _rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding to whole numbers: ints are whole already."""
    return lambda a: function(a) if a.dtype.kind == "f" else a


_COMPUTE: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.NEG: np.negative,
    Ops.NOT: np.invert,
    Ops.SQRT: np.sqrt,
    Ops.RSQRT: _wide(lambda a: 1.0 / np.sqrt(a)),
    Ops.RECIPROCAL: lambda a: a.dtype.type(1) / a,
    Ops.EXP: _wide(np.exp),
    Ops.EXP2: _wide(np.exp2),
    Ops.LOG: _wide(np.log),
    Ops.LOG2: _wide(np.log2),
    Ops.SIN: _wide(np.sin),
    Ops.COS: _wide(np.cos),
    Ops.TAN: _wide(np.tan),
    Ops.ERF: _wide(_erf),
    Ops.TRUNC: _rounded(np.trunc),
    Ops.FLOOR: _rounded(np.floor),
    Ops.CEIL: _rounded(np.ceil),
    Ops.ROUND: _rounded(np.rint),
    Ops.ABS: np.abs,
    Ops.SIGN: np.sign,
    Ops.SQUARE: lambda a: a * a,
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.true_divide,
    Ops.IDIV: _idiv,
    Ops.MOD: _mod,
    Ops.FLOORDIV: _floordiv,
    Ops.FLOORMOD: _floormod,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.POW: _pow,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: lambda a, b: _shift(a, b, left=True),
    Ops.SHR: lambda a, b: _shift(a, b, left=False),
    Ops.LT: np.less,
    Ops.LE: np.less_equal,
    Ops.GT: np.greater,
    Ops.GE: np.greater_equal,
    Ops.EQ: np.equal,
    Ops.NE: np.not_equal,
    Ops.THREEFRY: _threefry,
    Ops.WHERE: np.where,
    Ops.MULACC: _multiply_add,
}


def compute(op: Ops, dtype: DType, args: Sequence[Array]) -> Array:
    """An ALU op on arrays that broadcast against each other; `dtype` is that of the result."""
    with np.errstate(all="ignore"):
        return compute_loudly(op, dtype, args)


def compute_loudly(op: Ops, dtype: DType, args: Sequence[Array]) -> Array:
    """As `compute`, for callers that have silenced NumPy's floating-point warnings themselves."""
    result = np.asarray(_COMPUTE[op](*args))
    kind = carrier(dtype)
    return result if result.dtype == kind else result.astype(kind)


def reduce(reduce_op: ReduceOp, dtype: DType, values: Array, axes: tuple[int, ...]) -> Array:
    """Values accumulated over axes, which go; the identity where an axis is empty.

    Float sums and products are accumulated in float64, the best reference for any order.
    """
    if not axes:
        return values
    kind = carrier(dtype)
    with np.errstate(all="ignore"):
        if reduce_op in (ReduceOp.MAX, ReduceOp.MIN):
            step = np.maximum if reduce_op is ReduceOp.MAX else np.minimum
            identity = np.array(reduce_op.identity(dtype), kind)[()]
            return np.asarray(step.reduce(values, axis=axes, initial=identity))
        sums = np.add if reduce_op is ReduceOp.ADD else np.multiply
        wide = _FLOAT64 if kind.kind == "f" else kind
        return np.asarray(sums.reduce(values, axis=axes, dtype=wide)).astype(kind)


def unsupported(op: Ops) -> InvalidGraphError:
    """The error for an op that has no meaning on plain arrays."""
    return InvalidGraphError(
        f"{op.name} has no meaning for the reference interpreter: it depends on a device",
        rule="interpretable",
    )
