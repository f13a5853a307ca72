"""Binary floating-point formats up to float64: exact rounding into them, and their bit patterns.

Python computes in float64 and NumPy lacks bfloat16 and the 8-bit formats, so the rounding is done
here on exact integers (IEEE 754-2019, 4.3.1 roundTiesToEven; OCP OFP8 1.0 for the 8-bit formats).
"""

from __future__ import annotations

import math
from typing import Final


class FloatFormat:
    """A format of `bits` = 1 + `exponent_bits` + `mantissa` bits.

    With `has_inf` False (OCP E4M3) the top exponent holds numbers too, only its all-ones mantissa
    is NaN, and what is too large, infinity included, becomes the largest number, as in PyTorch.
    """

    __slots__ = ("bits", "has_inf", "largest", "least_exponent", "mantissa", "precision")

    def __init__(self, exponent_bits: int, mantissa: int, *, has_inf: bool = True) -> None:
        bias = (1 << (exponent_bits - 1)) - 1
        self.bits = 1 + exponent_bits + mantissa
        self.mantissa = mantissa
        self.precision = mantissa + 1
        self.has_inf = has_inf
        # Exponent of the last place of the smallest (subnormal) numbers.
        self.least_exponent = 1 - bias - mantissa
        top = bias if has_inf else bias + 1
        lost = 0 if has_inf else 1
        self.largest = math.ldexp((1 << self.precision) - 1 - lost, top - mantissa)

    def round(self, value: float) -> float:
        """`value` rounded once, half to even; exact for ints of any size too."""
        if isinstance(value, float) and (not math.isfinite(value) or value == 0.0):
            lost = math.isinf(value) and not self.has_inf
            return math.copysign(self.largest, value) if lost else value
        numerator, denominator = abs(value).as_integer_ratio()
        # The denominator of a float is a power of two: |value| = numerator * 2**-shift exactly.
        shift = denominator.bit_length() - 1
        exponent = max(numerator.bit_length() - shift - self.precision, self.least_exponent)
        drop = exponent + shift
        if drop <= 0:
            kept = numerator << -drop
        else:
            kept, rest = numerator >> drop, numerator & ((1 << drop) - 1)
            half = 1 << (drop - 1)
            kept += rest > half or (rest == half and kept & 1 == 1)
        try:
            rounded = math.ldexp(kept, exponent)
        except OverflowError:
            rounded = math.inf
        if rounded > self.largest:
            rounded = math.inf if self.has_inf else self.largest
        return -rounded if value < 0 else rounded

    def encode(self, value: float) -> int:
        """The bit pattern of `value`, one of the format's own values; NaN gives the quiet one."""
        sign = (math.copysign(1.0, value) < 0) << (self.bits - 1)
        inf = self._all_ones >> self.mantissa << self.mantissa
        if math.isnan(value):
            return sign | (inf | 1 << (self.mantissa - 1) if self.has_inf else self._all_ones)
        if math.isinf(value):
            return sign | inf
        if value == 0.0:
            return sign
        # Subnormals and the first normal binade share one spacing; above it the exponent counts up.
        exponent = max(math.frexp(value)[1] - self.precision, self.least_exponent)
        digits = int(math.ldexp(abs(value), -exponent))
        return sign | digits + (exponent - self.least_exponent << self.mantissa)

    def decode(self, bits: int) -> float:
        """The value of a bit pattern."""
        sign = -1.0 if bits >> (self.bits - 1) & 1 else 1.0
        field = bits & self._all_ones
        exponent, digits = field >> self.mantissa, field & ((1 << self.mantissa) - 1)
        if self.has_inf and exponent == self._all_ones >> self.mantissa:
            return math.copysign(math.nan if digits else math.inf, sign)
        if not self.has_inf and field == self._all_ones:
            return math.copysign(math.nan, sign)
        if exponent == 0:
            return sign * math.ldexp(digits, self.least_exponent)
        return sign * math.ldexp(digits | 1 << self.mantissa, exponent - 1 + self.least_exponent)

    @property
    def _all_ones(self) -> int:
        """Every bit but the sign."""
        return (1 << (self.bits - 1)) - 1


FORMATS: Final = {
    "fp8e4m3": FloatFormat(4, 3, has_inf=False),
    "fp8e5m2": FloatFormat(5, 2),
    "float16": FloatFormat(5, 10),
    "bfloat16": FloatFormat(8, 7),
    "float32": FloatFormat(8, 23),
    "float64": FloatFormat(11, 52),
}
