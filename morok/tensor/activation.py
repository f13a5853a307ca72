"""Activation functions. Each is written so that neither the value nor the gradient overflows
anywhere on the real line."""

from __future__ import annotations

import math
from typing import Self

from morok.dtype import dtypes
from morok.errors import ShapeError
from morok.tensor.base import fail
from morok.tensor.composed import Rule, composed
from morok.tensor.gradient import log1p_slope, sigmoid_slope, tanh_slope
from morok.tensor.reduce import Reduce

# tanh near zero, from the Cephes mathematical library (S. Moshier, tanhf.c and tanh.c): an odd
# polynomial for single precision, a rational function for double.
_TANH_SINGLE = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
_TANH_P = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
_TANH_Q = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
_TANH_EDGE = 0.625

_ERFINV_NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_ERFINV_FAR = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


class Activation(Reduce):
    """Methods that neural networks put between layers."""

    __slots__ = ()

    def _horner(self, coefficients: tuple[float, ...]) -> Self:
        """The polynomial with these coefficients, highest power first."""
        out = self * coefficients[0] if coefficients[0] != 1 else self
        for coefficient in coefficients[1:-1]:
            out = (out + coefficient) * self
        return out + coefficients[-1]

    def relu(self) -> Self:
        """max(x, 0), with gradient 0 at 0 as PyTorch's."""
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """x limited to 0 … 6, with gradient 0 at both ends."""
        return (self <= 0).where(0, (self >= 6).where(6, self))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """x limited to min_val … max_val, with gradient 0 at both ends."""
        return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x, and negative_slope * x below 0."""
        return (self > 0).where(self, self * negative_slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """x, and alpha (e**x - 1) below 0."""
        below = self <= 0
        return below.where((below.where(self, 0.0).exp() - 1.0) * alpha, self)

    def selu(self) -> Self:
        """Self-normalising ELU (Klambauer et al. 2017)."""
        return self.elu(1.6732632423543772) * 1.0507009873554805

    def _with_slope(self, x: Self, slope: Rule) -> Self:
        """This function of each element of x, whose gradient `slope` makes of the value."""
        if self._rg:
            composed(self.uop, x.uop, slope)
        return self

    def sigmoid(self) -> Self:
        """1 / (1 + e**-x); the exponential is only ever taken of what is not positive."""
        x = self._floating()
        below = x < 0
        small = below.where(x, -x).exp()
        return (below.where(small, 1.0) / (small + 1.0))._with_slope(x, sigmoid_slope)

    def logsigmoid(self) -> Self:
        """log(sigmoid(x))"""
        return -(-self).softplus()

    def tanh(self) -> Self:
        """(e**x - e**-x) / (e**x + e**-x), to full relative accuracy near 0 as well."""
        x = self._floating()
        start, dtype = x, x.dtype
        x = x.cast(dtypes.float32) if dtype.bits < 32 else x
        below = x < 0
        small = (below.where(x, -x) * 2.0).exp()
        far = (1.0 - small) / (1.0 + small)
        far = below.where(-far, far)
        central = x.abs() < _TANH_EDGE
        near = central.where(x, 0.0)  # keeps the branch not taken, and its gradient, finite
        z = near * near
        if x.dtype is dtypes.float64:
            near = near + near * (z * (z._horner(_TANH_P) / z._horner(_TANH_Q)))
        else:
            near = near + near * (z * z._horner(_TANH_SINGLE))
        out = central.where(near, far).cast(dtype)
        return out._with_slope(start, tanh_slope)

    def silu(self) -> Self:
        """x * sigmoid(x)"""
        return self * self.sigmoid()

    swish = silu

    def gelu(self, approximate: str = "none") -> Self:
        """x times the normal distribution function of x (Hendrycks & Gimpel 2016), exactly or
        (`approximate="tanh"`) by their tanh formula."""
        x = self._floating()
        if approximate == "none":
            return x * ((x * math.sqrt(0.5)).erf() * 0.5 + 0.5)
        if approximate != "tanh":
            fail(ShapeError, f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
        # 0.5 (1 + tanh(y)) is sigmoid(2 y)
        return x * ((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi))).sigmoid()

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + e**(beta x)) / beta"""
        x = self._floating() * beta if beta != 1 else self._floating()
        below = x < 0
        rest = below.where(x, -x).exp()._log1p()
        return (below.where(0.0, x) + rest) / beta if beta != 1 else below.where(0.0, x) + rest

    def _log1p(self) -> Self:
        """log(1 + u) for u >= 0, accurate near 0 too: what the sum 1 + u rounds away is made up for
        (D. Goldberg, What Every Computer Scientist Should Know About Floating-Point Arithmetic,
        theorem 4)."""
        total = self + 1.0
        lost = total.eq(1.0)
        away = lost.where(1.0, total - 1.0)
        return lost.where(self, total.log() * (self / away))._with_slope(self, log1p_slope)

    def mish(self) -> Self:
        """x * tanh(softplus(x)) (Misra 2019)"""
        return self * self.softplus().tanh()

    def hardsigmoid(self) -> Self:
        """x / 6 + 1 / 2 limited to 0 … 1"""
        return (self + 3.0).relu6() / 6.0

    def hardswish(self) -> Self:
        """x * hardsigmoid(x)"""
        return self * self.hardsigmoid()

    def softsign(self) -> Self:
        """x / (1 + |x|)"""
        return self / (self.abs() + 1.0)

    def sinh(self) -> Self:
        """(e**x - e**-x) / 2, by tanh near zero."""
        x = self._floating()
        near = x.abs() < 1
        # sinh = 2 t / (1 - t*t) with t = tanh(x / 2)
        t = (near.where(x, 0.0) * 0.5).tanh()
        far = near.where(1.0, x)
        up, down = (far * 0.5).exp(), (far * -0.5).exp()  # whose squares overflow no earlier
        return near.where(t * 2.0 / (1.0 - t * t), up * (up * 0.5) - down * (down * 0.5))

    def cosh(self) -> Self:
        """(e**x + e**-x) / 2"""
        up, down = (self * 0.5).exp(), (self * -0.5).exp()  # whose squares overflow no earlier
        return up * (up * 0.5) + down * (down * 0.5)

    def erfinv(self) -> Self:
        """The inverse of erf, to a few ulp of float32 (M. Giles, "Approximating the erfinv
        function", GPU Computing Gems, 2011); infinite at -1 and 1, NaN beyond."""
        x = self._floating()
        dtype = x.dtype
        x = x.cast(dtypes.float32)
        w = -((1.0 - x) * (1.0 + x)).log()
        central = w < 5.0
        near = (central.where(w, 2.5) - 2.5)._horner(_ERFINV_NEAR)
        far = (central.where(16.0, w).sqrt() - 3.0)._horner(_ERFINV_FAR)
        end = x.abs().eq(1.0)
        return end.where(x * math.inf, central.where(near, far) * x).cast(dtype)
