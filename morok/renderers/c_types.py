"""How C spells types and constants. Nothing is included: the typedefs a kernel uses stand in it.

f32x8    vector of 8 floats; i32x8 is also the mask that a comparison of two f32x8 gives
f32x8u   the same in memory: aligned as one element, and allowed to alias anything

Float formats without C arithmetic (halves, 8-bit floats) are held as unsigned integers.
"""

from __future__ import annotations

import math
from functools import cache

from morok.dtype import DType, dtypes, to_bits
from morok.renderers.base import FLOAT_STORAGE, Expr, Level, int_literal

__all__ = [
    "held",
    "in_memory",
    "literal",
    "mask_dtype",
    "mask_of",
    "scalar_name",
    "short_name",
    "typedefs",
    "unaligned",
    "vector_name",
]

_SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
_FLOAT_NAMES = {dtypes.float32: "float", dtypes.float64: "double"}


@cache
def held(dtype: DType) -> DType:
    """The dtype of a C variable holding a value: itself, or an integer of the same bits."""
    return FLOAT_STORAGE.get(dtype.scalar, dtype.scalar).vec(dtype.count)


@cache
def in_memory(dtype: DType) -> DType:
    """The dtype a value has in memory: as held, bools as bytes 0 and 1."""
    return dtypes.uint8.vec(dtype.count) if dtype.kind == "b" else held(dtype)


@cache
def mask_dtype(bits: int, count: int) -> DType:
    """The vector of integers, all ones or all zeros, that stands for a vector of bools."""
    return _SIGNED[bits].vec(count)


@cache
def mask_of(dtype: DType) -> DType:
    """The mask that comparing two vectors of `dtype` gives."""
    return mask_dtype(dtype.bits, dtype.count)


@cache
def unsigned(dtype: DType) -> DType:
    """The unsigned integer of the same width and lanes."""
    return _UNSIGNED[dtype.bits].vec(dtype.count)


@cache
def short_name(dtype: DType) -> str:
    """f32, i64, u8: a scalar in the names of vectors and functions."""
    return f"{'f' if dtype.kind == 'f' else dtype.kind}{dtype.bits}"


@cache
def scalar_name(dtype: DType) -> str:
    """The C type of a scalar."""
    if dtype.kind == "b":
        return "_Bool"
    name = _FLOAT_NAMES.get(dtype)
    return name if name is not None else f"{'u' if dtype.kind == 'u' else ''}int{dtype.bits}_t"


@cache
def vector_name(dtype: DType) -> str:
    """The C type of a value of `dtype`, which is not a vector of bools."""
    if dtype.count == 1:
        return scalar_name(dtype)
    return f"{short_name(dtype.scalar)}x{dtype.count}"


@cache
def unaligned(dtype: DType) -> str:
    """The C type of a vector of `dtype` somewhere in memory."""
    return f"{vector_name(dtype)}u"


@cache
def typedefs(dtype: DType, memory: bool) -> tuple[tuple[str, str], ...]:
    """(name, definition) of everything that the name of `dtype` needs, in order."""
    out = []
    scalar = dtype.scalar
    if scalar.kind in "iu":
        macro = f"__{'U' if scalar.kind == 'u' else ''}INT{scalar.bits}_TYPE__"
        out.append((scalar_name(scalar), f"typedef {macro} {scalar_name(scalar)};"))
    if dtype.count > 1:
        size = dtype.itemsize
        head = f"typedef {scalar_name(scalar)} {vector_name(dtype)}"
        out.append((vector_name(dtype), f"{head} __attribute__((vector_size({size})));"))
        if memory:
            options = f"vector_size({size}), aligned({scalar.bits // 8}), may_alias"
            out.append((unaligned(dtype), f"{head}u __attribute__(({options}));"))
    return tuple(out)


def literal(dtype: DType, value: bool | int | float) -> Expr:
    """A literal of exactly the type of scalar `dtype`; floats print so that no bit is lost."""
    if dtype in FLOAT_STORAGE:
        return literal(FLOAT_STORAGE[dtype], to_bits(value, dtype))
    match dtype.kind:
        case "b":
            return Expr("1" if value else "0")
        case "f":
            return _float_literal(dtype, float(value))
    number = int(value)
    if dtype in (dtypes.int32, dtypes.index) and number != -(1 << 31):
        return int_literal(number)
    if dtype is dtypes.uint32:
        return int_literal(number, "u")
    text = int_literal(number).text
    if dtype is dtypes.uint64:
        text += "u"
    elif dtype.kind == "i" and number < 0:
        text = f"({text})"
    return Expr(f"({scalar_name(dtype)}){text}", Level.UNARY)


def _float_literal(dtype: DType, value: float) -> Expr:
    suffix = "" if dtype is dtypes.float64 else "f"
    negative = math.copysign(1.0, value) < 0
    if math.isinf(value):
        text = f"__builtin_inf{suffix}()"
    elif math.isnan(value):
        text = f'__builtin_nan{suffix}("")'
    else:
        text = f"{_digits(abs(value))}{suffix}"
    return Expr(f"-{text}", Level.UNARY) if negative else Expr(text)


def _digits(value: float) -> str:
    """Decimal where that is short and exact, hexadecimal otherwise."""
    if value < 1 << 24 and value == int(value):
        return f"{int(value)}.0"
    if value < 1 << 14 and value * 1024 == int(value * 1024):
        return repr(value)
    digits, _, exponent = value.hex().partition("p")
    return f"{digits.rstrip('0').rstrip('.')}p{exponent}"
