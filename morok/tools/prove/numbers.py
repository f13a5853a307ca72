"""The arithmetic of guards and computed constants: exact integers, symbolic or known.

The core computes them in int64 and does not fire when that overflows; exact numbers therefore let a
rule fire at least as often. A number is a Python int, a z3 integer, or a signed z3 bit vector that
every operation makes wide enough not to wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

Number = Any  # int | z3.ArithRef | z3.BitVecRef
Truth = Any  # bool | z3.BoolRef


POWERS = [1 << place for place in range(63)]
"""The powers of two in int64."""


def is_known(x: Number) -> bool:
    return isinstance(x, int)


def truth(x: Number | Truth) -> Truth:
    """A number as a guard reads it: not zero."""
    if isinstance(x, bool) or z3.is_bool(x):
        return x
    return x != 0


def number(x: Number | Truth) -> Number:
    """A truth value as 0 or 1."""
    if isinstance(x, bool):
        return int(x)
    return z3.If(x, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2)) if z3.is_bool(x) else x


def as_int(x: Number) -> Any:
    """The number as a z3 integer."""
    if is_known(x):
        return z3.IntVal(x)
    return z3.BV2Int(x, is_signed=True) if z3.is_bv(x) else x


def as_vector(x: Number, bits: int) -> Any:
    """The number modulo 2**bits."""
    if is_known(x):
        return z3.BitVecVal(x, bits)
    if not z3.is_bv(x):
        return z3.Int2BV(x, bits)
    size = x.size()
    return z3.Extract(bits - 1, 0, x) if bits <= size else z3.SignExt(bits - size, x)


def _width(x: Number) -> int:
    return x.bit_length() + 1 if is_known(x) else int(x.size())


def _alike(a: Number, b: Number, grow: Callable[[int, int], int]) -> tuple[Any, Any]:
    """Both as z3 numbers of one sort, bit vectors with `grow` bits of their widths."""
    if z3.is_int(a) or z3.is_int(b):
        return as_int(a), as_int(b)
    bits = grow(_width(a), _width(b))
    return as_vector(a, bits), as_vector(b, bits)


def add(a: Number, b: Number) -> Number:
    if is_known(a) and is_known(b):
        return a + b
    x, y = _alike(a, b, lambda m, n: max(m, n) + 1)
    return x + y


def subtract(a: Number, b: Number) -> Number:
    if is_known(a) and is_known(b):
        return a - b
    x, y = _alike(a, b, lambda m, n: max(m, n) + 1)
    return x - y


def multiply(a: Number, b: Number) -> Number:
    if is_known(a) and is_known(b):
        return a * b
    x, y = _alike(a, b, lambda m, n: m + n)
    return x * y


def compare(a: Number, b: Number, test: Callable[[Any, Any], Any]) -> Truth:
    """`test`, an operator such as `operator.lt`, of two numbers."""
    if is_known(a) and is_known(b):
        return test(a, b)
    x, y = _alike(a, b, max)
    return test(x, y)


def choose(condition: Truth, a: Number, b: Number) -> Number:
    if isinstance(condition, bool):
        return a if condition else b
    x, y = _alike(a, b, max)
    return z3.If(condition, x, y)


def floor_quotient(a: Number, b: Number) -> Number:
    """a // b of two known numbers or two bit vectors; b is not zero."""
    if is_known(a) and is_known(b):
        return a // b if b else 0
    x, y = _alike(a, b, lambda m, n: max(m, n) + 1)
    return vector_floor_quotient(x, y)


def vector_floor_quotient(x: Any, y: Any) -> Any:
    """x // y of signed bit vectors, y not zero: one less than truncation where signs differ."""
    quotient, rest = x / y, z3.SRem(x, y)
    return z3.If(z3.And(rest != 0, (rest < 0) != (y < 0)), quotient - 1, quotient)


def is_power_of_two(x: Number) -> Truth:
    if is_known(x):
        return x > 0 and x & (x - 1) == 0
    if not z3.is_bv(x):  # the core computes in int64, so these are all
        return z3.Or(*(x == power for power in POWERS))
    return z3.And(x > 0, x & (x - 1) == 0)


def log2(x: Number) -> Number:
    """The exponent of a power of two."""
    if is_known(x):
        return x.bit_length() - 1
    if not z3.is_bv(x):
        exponent = z3.IntVal(0)
        for place, power in enumerate(POWERS):
            exponent = z3.If(x == power, z3.IntVal(place), exponent)
        return exponent
    result = z3.BitVecVal(0, x.size())
    for place in range(x.size() - 1):
        result = z3.If(z3.Extract(place, place, x) == 1, z3.BitVecVal(place, x.size()), result)
    return result


def shift_left(a: Number, b: Number) -> Number:
    """a << b for 0 <= b <= 62; the caller asks for that."""
    if is_known(b):
        return multiply(a, 1 << b) if 0 <= b <= 62 else 0
    if not z3.is_bv(b) or b.size() > 17:
        power = z3.IntVal(1)
        for place in range(1, 63):
            power = z3.If(as_int(b) == place, z3.IntVal(1 << place), power)
        return multiply(a, power)
    bits = _width(a) + 63
    return as_vector(a, bits) << as_vector(b, bits)
