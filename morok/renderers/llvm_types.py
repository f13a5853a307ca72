"""How LLVM IR spells types and constants.

float, <8 x float>     floats; halves and 8-bit floats are held as integers of their bits
i32, <8 x i32>         integers of both signs: the sign is the operation's
i1, <8 x i1>           bools in registers; in memory they are bytes 0 and 1
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any

from morok.dtype import DType, dtypes, to_bits
from morok.renderers.base import FLOAT_STORAGE

__all__ = ["constant", "ir_type", "lanes_type", "literal", "memory_type", "suffix", "zero"]

_FLOATS = {dtypes.float32: "float", dtypes.float64: "double"}


@cache
def ir_type(dtype: DType) -> str:
    """The type of a value of `dtype` in a register."""
    scalar = dtype.scalar
    name = "i1" if scalar.kind == "b" else _FLOATS.get(scalar) or f"i{scalar.bits}"
    return name if dtype.count == 1 else f"<{dtype.count} x {name}>"


@cache
def memory_type(dtype: DType) -> str:
    """The type of a value of `dtype` in memory."""
    return ir_type(dtypes.uint8.vec(dtype.count) if dtype.kind == "b" else dtype)


@cache
def lanes_type(dtype: DType, scalar: str) -> str:
    """As many `scalar`s as `dtype` has lanes."""
    return scalar if dtype.count == 1 else f"<{dtype.count} x {scalar}>"


@cache
def suffix(dtype: DType) -> str:
    """How the names of intrinsics spell a type: f32, v8i32."""
    kind = "f" if dtype.scalar in _FLOATS else "i"
    bits = 1 if dtype.kind == "b" else dtype.scalar.bits
    return f"{f'v{dtype.count}' if dtype.count > 1 else ''}{kind}{bits}"


def literal(dtype: DType, value: Any) -> str:
    """A scalar constant of exactly `dtype`."""
    if dtype in FLOAT_STORAGE:
        return str(to_bits(value, dtype))
    match dtype.kind:
        case "b":
            return "true" if value else "false"
        case "f":
            return _float_literal(dtype, float(value))
    return str(int(value))


def _float_literal(dtype: DType, value: float) -> str:
    """Decimal where that is short and exact, else the bits of the float64 of this value."""
    if math.isnan(value):
        value = math.copysign(math.nan, value)
    elif dtype is dtypes.float32 and not math.isinf(value):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if abs(value) < 1 << 20 and value * 64 == int(value * 64):
        return f"{value!r}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(dtype: DType, value: Any) -> str:
    """A constant of `dtype`: of a vector the value of every lane."""
    text = literal(dtype.scalar, value)
    return text if dtype.count == 1 else f"splat ({ir_type(dtype.scalar)} {text})"


def zero(dtype: DType) -> str:
    """All bits 0."""
    if dtype.count > 1:
        return "zeroinitializer"
    return literal(dtype, 0)
