"""Transcendental functions as ordinary arithmetic on UOps, scalar or vector, float32 and float64.

One set of polynomials serves every backend, so all give the same bits: a multiply-add is one op
(MULACC, rounded once) where it is written so, and nowhere else. Only a target without that
instruction rounds twice there, within the same bounds.
Largest errors found, in units in the last place (float32: every 16th float, pow on samples;
float64: samples against mpmath; `python -m bench accuracy` makes such a table):

            exp   exp2   log   log2   sin   cos   tan   erf   pow
    float32 1.00  0.84   0.87  0.86   0.88  0.88  1.63  1.32  0.51
    float64 0.99  0.83   0.80  0.81   0.85  0.85  2.39  1.59  0.95

The tests hold all to 2 ulp (float64: 2.5) over the whole range, subnormal arguments and results
included; infinities, NaNs and the sign of zero come out as in C99's annex F. The arithmetic must
not be reassociated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from morok.codegen import polynomials as table
from morok.dtype import DType, dtypes, to_bits
from morok.ir import UOp

__all__ = ["cos", "erf", "exp", "exp2", "log", "log2", "power", "sin", "tan"]


class _Format:
    """What the algorithms need to know of a float format."""

    def __init__(self, dtype: DType, signed: DType, mantissa: int) -> None:
        self.dtype = dtype
        self.signed = signed  # the integer of the same width
        self.mantissa = mantissa  # explicit bits
        self.bias = (1 << (dtype.bits - mantissa - 2)) - 1
        self.rounder = 1.5 * 2.0**mantissa  # adding it rounds to an integer in the low bits
        self.rounder_bits = (mantissa + self.bias << mantissa) + (1 << (mantissa - 1))
        self.raiser = self.rounder + 2 * self.bias  # leaves n + 2*bias there
        self.sign_bit = -(1 << (dtype.bits - 1))
        self.smallest = 2.0 ** (1 - self.bias)  # normal
        self.root_half_bits = to_bits(math.sqrt(0.5), dtype)

    def table(self, name: str) -> tuple[float, ...]:
        values: tuple[float, ...] = getattr(table, f"{name}_{self.dtype.bits}")
        return values


_SINGLE = _Format(dtypes.float32, dtypes.int32, 23)
_DOUBLE = _Format(dtypes.float64, dtypes.int64, 52)


def _format(x: UOp) -> _Format:
    return _SINGLE if x.dtype.scalar is dtypes.float32 else _DOUBLE


def _as_int(x: UOp) -> UOp:
    """The bits of a float as a signed integer."""
    return x.bitcast(_format(x).signed.vec(x.dtype.count))


def _as_float(bits: UOp) -> UOp:
    """Signed integers as the float of the same width."""
    form = _SINGLE if bits.dtype.scalar is dtypes.int32 else _DOUBLE
    return bits.bitcast(form.dtype.vec(bits.dtype.count))


def _magnitude(x: UOp) -> UOp:
    return _as_float(_as_int(x) & ~_format(x).sign_bit)


def _with_sign(x: UOp, sign: UOp) -> UOp:
    """`x` with its sign flipped where `sign` (an integer) has its highest bit set."""
    return _as_float(_as_int(x) ^ (sign & _format(x).sign_bit))


def _clamp(x: UOp, low: float, high: float) -> UOp:
    """x within [low, high]; NaN stays."""
    x = (x < low).where(low, x)
    return (x > high).where(high, x)


def _polynomial(coefficients: Sequence[float], t: UOp) -> UOp:
    """Lowest power first, all but the first term by halves: so they wait for few others, unlike in
    Horner's scheme (G. Estrin, "Organization of computer systems", 1960)."""
    terms = [t.const_like(c) for c in coefficients[1:]]
    power = t
    while len(terms) > 1:
        halves = zip(terms[::2], terms[1::2], strict=False)
        pairs = [high.mulacc(power, low) for low, high in halves]
        terms = pairs + terms[2 * len(pairs) :]
        power = power * power
    return terms[0].mulacc(t, coefficients[0])


def _round(x: UOp) -> tuple[UOp, UOp]:
    """The integer nearest to a small x, as a float and as a signed integer."""
    form = _format(x)
    shifted = x + form.rounder
    return shifted - form.rounder, _as_int(shifted) - form.rounder_bits


def _scale(x: UOp, raised: UOp) -> UOp:
    """x * 2**n, rounded once, for 1/2 < x < 2, n within twice the exponent range and `raised` the
    sum of n and `raiser`: its low bits, n + 2*bias, are the exponent fields of two halves of n."""
    form = _format(x)
    bits = _as_int(raised)
    half = (bits << (form.mantissa - 1)) & -(1 << form.mantissa)
    return x * _as_float(half) * _as_float((bits << form.mantissa) - half)


# ---- exponentials --------------------------------------------------------------------------------


def exp2(x: UOp) -> UOp:
    """2**x = 2**n * 2**f with n the nearest integer."""
    form = _format(x)
    x = _clamp(x, *((-151.0, 129.0) if form is _SINGLE else (-1076.0, 1025.0)))
    raised = x + form.raiser
    f = x - (raised - form.raiser)
    return _scale(f.mulacc(_polynomial(form.table("EXP2"), f), 1.0), raised)


def exp(x: UOp) -> UOp:
    """e**x = 2**n * e**r, r = x - n*log(2) with log(2) in two parts (Cody and Waite, 1980)."""
    form = _format(x)
    x = _clamp(x, *((-104.0, 89.0) if form is _SINGLE else (-746.0, 710.0)))
    raised = x.mulacc(1 / math.log(2), form.raiser)
    whole = raised - form.raiser
    high, low = form.table("LN2")
    r = whole.mulacc(-low, whole.mulacc(-high, x))
    return _scale((r * r).mulacc(_polynomial(form.table("EXP"), r), r) + 1.0, raised)


# ---- logarithms ----------------------------------------------------------------------------------


def _split(x: UOp) -> tuple[UOp, UOp]:
    """x > 0 as 2**e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2): e (a float) and f."""
    form = _format(x)
    lift = form.mantissa + 2
    tiny = x < form.smallest
    bits = _as_int(tiny.where(x * 2.0**lift, x))
    e = (bits - form.root_half_bits) >> form.mantissa
    f = _as_float(bits - (e << form.mantissa)) - 1.0
    exponent = e.cast(form.dtype)
    return tiny.where(exponent - float(lift), exponent), f


def _log_specials(x: UOp, result: UOp) -> UOp:
    """`result` for finite x > 0; log of 0 is -inf, of a negative number NaN, of inf inf."""
    other = x.eq(0.0).where(-math.inf, x.const_like(math.nan))
    return (x > 0.0).where((x < math.inf).where(result, x), other)


def log(x: UOp) -> UOp:
    """log(x) = e*log(2) + log(1+f)."""
    form = _format(x)
    e, f = _split(x)
    high, low = form.table("LN2")
    half_square, tail = _log1p_parts(f)
    return _log_specials(x, e.mulacc(high, f - (half_square - e.mulacc(low, tail))))


def _log1p_parts(f: UOp) -> tuple[UOp, UOp]:
    """f*f/2 and t with log(1+f) = f - (f*f/2 - t).

    float64: with z = f/(2+f), log(1+f) = 2z + z*R = f - z*(f - R) = f - (h - z*(h + R)), h = f*f/2.
    """
    form = _format(f)
    half_square = f * f * 0.5
    if form is _SINGLE:
        return half_square, f * f * (f * _polynomial(form.table("LOG"), f))
    z = f / (f + 2.0)
    s = z * z
    return half_square, z * s.mulacc(_polynomial(form.table("LOG"), s), half_square)


def log2(x: UOp) -> UOp:
    """log2(x) = e + log(1+f)/log(2), the product in two parts: it may be all there is."""
    form = _format(x)
    e, f = _split(x)
    half_square, tail = _log1p_parts(f)
    high, low = form.table("LOG2E")
    # log(1+f) = a + b, a with so few bits that a*high is exact.
    a = _truncated(f - half_square)
    b = (f - a) - half_square + tail
    product, rest = a * high, (a + b) * low + b * high
    total = e + product
    return _log_specials(x, total + ((e - total) + product + rest))


def _truncated(x: UOp) -> UOp:
    """x with the lower half of its digits cleared: 12 bits of 24 stay, 26 of 53."""
    drop = 12 if _format(x) is _SINGLE else 27
    return _as_float(_as_int(x) & -(1 << drop))


# ---- trigonometric functions ---------------------------------------------------------------------


def sin(x: UOp) -> UOp:
    """sin(x), by the quadrant of |x| a sine or a cosine of the rest."""
    size = _magnitude(x)
    r, low, quadrant = _quadrants(size)
    return _with_sign(_sine(r, low, quadrant), _as_int(x))


def cos(x: UOp) -> UOp:
    """cos(x) = sin(|x| + pi/2)"""
    r, low, quadrant = _quadrants(_magnitude(x))
    return _sine(r, low, quadrant + 1)


def tan(x: UOp) -> UOp:
    """tan(x): tan(r), or -1/tan(r) in odd quadrants."""
    form = _format(x)
    r, low, quadrant = _quadrants(_magnitude(x))
    odd = (quadrant & 1).ne(0)
    if form is _SINGLE:
        s = r * r
        t = r + (r * s).mulacc(_polynomial(form.table("TAN"), s), low * (s + 1.0))
        result = odd.where(-1.0, t) / odd.where(t, 1.0)
    else:
        sine, cosine = _sin_cos(r, low)
        result = odd.where(-cosine, sine) / odd.where(sine, cosine)
    return _with_sign(result, _as_int(x))


def _sine(r: UOp, low: UOp, quadrant: UOp) -> UOp:
    """sin(r + low + quadrant*pi/2), |r| up to pi/4."""
    sine, cosine = _sin_cos(r, low)
    value = (quadrant & 1).ne(0).where(cosine, sine)
    return _with_sign(value, quadrant << (_format(r).dtype.bits - 2))


def _sin_cos(r: UOp, low: UOp) -> tuple[UOp, UOp]:
    """sin(r + low) and cos(r + low) for |r| up to pi/4, low below the last place of r."""
    form = _format(r)
    s = r * r
    sine = r + (r * s).mulacc(_polynomial(form.table("SIN"), s), low)
    half = s * 0.5
    rest = (s * s).mulacc(_polynomial(form.table("COS"), s), r * -low)
    near = 1.0 - half
    return sine, near + (((1.0 - near) - half) + rest)


def _quadrants(size: UOp) -> tuple[UOp, UOp, UOp]:
    """r, low and an integer q with size = q*pi/2 + r + low (q modulo 4), for size >= 0.

    By subtracting multiples of the parts of pi/2 (Cody and Waite) as long as they are exact, beyond
    by the digits of 2/pi that matter (M. Payne, R. Hanek, "Radian reduction for trigonometric
    functions", SIGNUM 18, 1983).
    """
    form = _format(size)
    limit = 12800.0 if form is _SINGLE else 1600000.0
    huge = (size >= limit) & (size < math.inf)
    usual, rare = _subtract_multiples(size), _payne_hanek(size)
    r, low, quadrant = (huge.where(b, a) for a, b in zip(usual, rare, strict=True))
    return r, low, quadrant


def _subtract_multiples(size: UOp) -> tuple[UOp, UOp, UOp]:
    form = _format(size)
    n, quadrant = _round(size * (2 / math.pi))
    parts = form.table("HALF_PI")
    exact, kept = (2, 1) if form is _SINGLE else (1, 2)
    r, low = size, size.const_like(0.0)
    for part in parts[:exact]:
        r = n.mulacc(-part, r)
    for part in parts[exact : exact + kept]:  # what these subtractions round off is kept
        product = n * part
        rounded = r - product
        r, low = rounded, low + ((r - rounded) - product)
    for part in parts[exact + kept :]:
        low = n.mulacc(-part, low)
    return r, low, quadrant


def _payne_hanek(size: UOp) -> tuple[UOp, UOp, UOp]:
    """size = m * 2**e; m times the 128 or 192 bits of 2/pi whose products count modulo 4."""
    form = _format(size)
    bits = _as_int(size).cast(dtypes.uint64)
    m = (bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)
    at = (bits >> form.mantissa) - (form.bias + form.mantissa - 62)
    words = (0, *table.TWO_OVER_PI)
    last = (form.bias - form.mantissa + 62) >> 6
    first, shift = at >> 6, at & 63
    count = 3 if form is _SINGLE else 4
    picked = [_picked(words[k : k + last + 1], first) for k in range(count)]
    back = (shift ^ 63) & 63
    window = [(a << shift) | ((b >> 1) >> back) for a, b in pairwise(picked)]
    high = m * window[0] + _multiply_high(m, window[1])
    if form is _SINGLE:
        return _fraction_single(high, size.dtype)
    carry_in = _multiply_high(m, window[2])
    low = m * window[1] + carry_in
    high = (low < carry_in).where(high + 1, high)
    return _fraction_double(high, low)


def _picked(words: Sequence[int], number: UOp) -> UOp:
    """words[number]"""
    value = number.const_like(words[0])
    for k, word in enumerate(words[1:], start=1):
        value = number.eq(k).where(word, value)
    return value


def _multiply_high(a: UOp, b: UOp) -> UOp:
    """The upper 64 bits of the product of uint64 `a` and `b`, by halves of 32 bits."""
    mask = (1 << 32) - 1
    a0, a1, b0, b1 = a & mask, a >> 32, b & mask, b >> 32
    cross, other = a1 * b0, a0 * b1
    middle = ((a0 * b0) >> 32) + (cross & mask) + (other & mask)
    return a1 * b1 + (cross >> 32) + (other >> 32) + (middle >> 32)


def _nearest_quadrant(high: UOp) -> tuple[UOp, UOp]:
    """`high` / 2**62 as the nearest integer and the signed rest (still times 2**62)."""
    quadrant = (high + (1 << 61)) >> 62
    return quadrant, (high - (quadrant << 62)).bitcast(dtypes.int64.vec(high.dtype.count))


def _fraction_single(high: UOp, dtype: DType) -> tuple[UOp, UOp, UOp]:
    quadrant, rest = _nearest_quadrant(high)
    angle = rest.cast(dtypes.float64) * (math.pi / 2 * 2.0**-62)
    r = angle.cast(dtype)
    low = (angle - r.cast(dtypes.float64)).cast(dtype)
    return r, low, quadrant.cast(dtypes.int32)


def _fraction_double(high: UOp, low: UOp) -> tuple[UOp, UOp, UOp]:
    quadrant, rest = _nearest_quadrant(high)
    upper = (rest >> 32).cast(dtypes.float64) * 2.0**32
    lower = (rest & ((1 << 32) - 1)).cast(dtypes.float64)
    turn, lost = _fast_two_sum(upper, lower)
    turn, lost = _fast_two_sum(turn, lost + (low >> 11).cast(dtypes.float64) * 2.0**-53)
    r, r_low = _multiply_pair(turn, lost, table.HALF_PI_DD)
    return r * 2.0**-62, r_low * 2.0**-62, quadrant.cast(dtypes.int64)


# ---- pairs of float64 whose sum is the value (T. J. Dekker, Numer. Math. 18, 1971) ---------------


def _fast_two_sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """a + b exactly, for |a| >= |b|."""
    total = a + b
    return total, (a - total) + b


def _two_product(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """a * b exactly."""
    product = a * b
    a1, b1 = _truncated(a), _truncated(b)
    a2, b2 = a - a1, b - b1
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _multiply_pair(high: UOp, low: UOp, constant: tuple[float, float]) -> tuple[UOp, UOp]:
    """(high + low) times a constant given in a part of 26 bits and the rest."""
    c1, c2 = constant
    product = high * (c1 + c2)
    h1 = _truncated(high)
    h2 = high - h1
    rest = ((h1 * c1 - product) + h2 * c1) + (high * c2 + low * c1)
    return _fast_two_sum(product, rest)


# ---- the error function --------------------------------------------------------------------------


def erf(x: UOp) -> UOp:
    """erf(x): a polynomial up to 1, 1 - erfc(x) beyond."""
    form = _format(x)
    size = _magnitude(x)
    s = size * size
    small = size.mulacc(_polynomial(form.table("ERF"), s), size)
    if form is _SINGLE:
        tail = _polynomial(form.table("ERFC"), (size > 4.0).where(4.0, size) - 2.5)
    else:
        a = (size > 6.0).where(6.0, size)
        tail = exp(-(a * a)) * _polynomial(form.table("ERFC"), (a - 2.0) / (a + 2.0))
    return _with_sign((size > 1.0).where(1.0 - tail, small), _as_int(x))


# ---- powers --------------------------------------------------------------------------------------


def power(x: UOp, y: UOp) -> UOp:
    """x**y = 2**(y*log2(|x|)) with sign and special cases as C99's pow.

    float32 computes in float64; float64 needs the logarithm and the product in two parts.
    """
    size = _magnitude(x)
    if _format(x) is _SINGLE:
        result = _power_single(size.cast(dtypes.float64), y.cast(dtypes.float64)).cast(x.dtype)
    else:
        result = _power_double(size, y)
    exponent = _magnitude(y)
    whole = exponent.eq(_rounded(exponent))
    half = exponent * 0.5
    odd = whole & half.ne(_rounded(half))
    undefined = (x < 0.0) & (x > -math.inf) & ~whole
    sign = odd.where(_as_int(x), 0)
    return undefined.where(math.nan, _with_sign(result, sign))


def _rounded(x: UOp) -> UOp:
    """The integer nearest to x >= 0. Numbers from 2**mantissa to its double are whole."""
    whole = 2.0 ** _format(x).mantissa
    return (x < whole).where((x + whole) - whole, x)


def _log2_specials(size: UOp, value: UOp) -> UOp:
    """`value` for finite size > 0, -inf for 0, inf and NaN for themselves."""
    return size.eq(0.0).where(-math.inf, (size < math.inf).where(value, size))


def _exponent(logarithm: UOp, y: UOp, product: UOp) -> UOp:
    """y * logarithm, but 0 where one of them is 0: 1**y and x**0 are 1 whatever the other is."""
    return (logarithm.eq(0.0) | y.eq(0.0)).where(0.0, product)


def _power_single(size: UOp, y: UOp) -> UOp:
    e, f = _split(size)
    z = f / (f + 2.0)
    logarithm = _log2_specials(size, z.mulacc(_polynomial(table.POW_LOG2_32, z * z), e))
    t = _clamp(_exponent(logarithm, y, y * logarithm), -300.0, 300.0)
    whole, n = _round(t)
    f = t - whole
    return f.mulacc(_polynomial(table.POW_EXP2_32, f), 1.0) * _as_float((n + 1023) << 52)


def _power_double(size: UOp, y: UOp) -> UOp:
    high, low = _log2_pair(size)
    logarithm = _log2_specials(size, high)
    # A product that overflows is past every limit anyway; keep it away from the exact products.
    bounded = _clamp(y, -(2.0**70), 2.0**70)
    product, lost = _two_product(high, bounded)
    lost = lost + low * bounded
    total = _exponent(logarithm, y, y * logarithm)
    ordinary = _magnitude(total) < 1080.0
    total = _clamp(ordinary.where(_exponent(high, y, product), total), -1080.0, 1080.0)
    lost = (ordinary & total.ne(0.0)).where(lost, 0.0)
    raised = total + _DOUBLE.raiser
    f = (total - (raised - _DOUBLE.raiser)) + lost
    return _scale(f.mulacc(_polynomial(table.EXP2_64, f), 1.0), raised)


def _log2_pair(size: UOp) -> tuple[UOp, UOp]:
    """log2 of a finite size > 0 with a relative error below 2**-63, as a pair.

    log(1+f) = 2z + 2/3*z**3 + z**5*P(z*z), z = f/(2+f); the first two terms as pairs.
    """
    e, f = _split(size)
    bottom, bottom_low = _fast_two_sum(f.const_like(2.0), f)
    z = f / bottom
    product, product_low = _two_product(z, bottom)
    z_low = (((f - product) - product_low) - z * bottom_low) / bottom
    s, s_low = _two_product(z, z)
    s_low = s_low + 2.0 * (z * z_low)
    cube, cube_low = _two_product(z, s)
    cube_low = cube_low + (z * s_low + z_low * s)
    third, third_low = _multiply_pair(cube, cube_low, table.TWO_THIRDS_DD)
    rest = cube * s * _polynomial(table.POW_LOG_64, s)
    high, low = _fast_two_sum(z * 2.0, third)
    low = low + (z_low * 2.0 + (third_low + rest))
    high, low = _fast_two_sum(high, low)
    high, low = _multiply_pair(high, low, table.LOG2E_64)
    total, lost = _fast_two_sum(e, high)  # e is 0 or at least 1
    return _fast_two_sum(total, lost + low)
