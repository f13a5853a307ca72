"""Regenerate `morok/codegen/polynomials.py`: the polynomials of the transcendental functions.

    python bench/fit_polynomials.py            # prints every fit's error and rewrites the table
    python bench/fit_polynomials.py --check    # fails if the table in the tree differs

Method: weighted least squares on Chebyshev points, the weights driven to the minimax solution by
Lawson's iteration (C. L. Lawson, 1961; J. R. Rice, K. H. Usow, "The Lawson algorithm and
extensions", Math. Comp. 22, 1968), in 60-digit arithmetic. Coefficients are then rounded to the
target format one by one, lowest power first, and those that remain are fitted again, so that the
others make up for the rounding of a leading coefficient (after N. Brisebarre, J.-M. Muller,
A. Tisserand, "Computing machine-efficient polynomial approximations", ACM TOMS 32, 2006).
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp

mp.mp.dps = 60
TABLE = Path(__file__).parent.parent / "morok" / "codegen" / "polynomials.py"
Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """`target(t)` as a polynomial P of `terms` coefficients on [low, high], minimising the largest
    |weight(t) * (P(t) - target(t))|; `bits`: the format of the coefficients, 24 or 53."""

    name: str
    doc: str
    target: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    terms: int
    bits: int


def round_to(value: mp.mpf, bits: int) -> float:
    """`value` rounded to nearest even in float32 (24) or float64 (53)."""
    rounded = float(value)
    return rounded if bits == 53 else struct.unpack("f", struct.pack("f", rounded))[0]


def chebyshev_points(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    angles = [mp.pi * (k + mp.mpf(1) / 2) / count for k in range(count)]
    return [(low + high) / 2 - (high - low) / 2 * mp.cos(a) for a in angles]


def lawson(
    points: list[mp.mpf], values: list[mp.mpf], scale: list[mp.mpf], powers: range, steps: int
) -> list[mp.mpf]:
    """Coefficients c minimising max |scale * (sum(c_k * t**powers[k]) - value)| over the points."""
    rows = [[s * t**p for p in powers] for t, s in zip(points, scale, strict=True)]
    right = [s * v for s, v in zip(scale, values, strict=True)]
    n, weights, best = len(powers), [mp.mpf(1)] * len(points), (mp.inf, [mp.mpf(0)])
    for _ in range(steps):
        normal, rhs = mp.matrix(n, n), mp.matrix(n, 1)
        for row, value, w in zip(rows, right, weights, strict=True):
            for i in range(n):
                rhs[i] += w * row[i] * value
                for j in range(i, n):
                    normal[i, j] += w * row[i] * row[j]
        for i in range(n):
            for j in range(i):
                normal[i, j] = normal[j, i]
        c = list(mp.lu_solve(normal, rhs))
        errors = [abs(mp.fdot(row, c) - v) for row, v in zip(rows, right, strict=True)]
        best = min(best, (max(errors), c), key=lambda pair: pair[0])
        total = mp.fdot(weights, errors)
        weights = [w * e / total + mp.mpf("1e-9") for w, e in zip(weights, errors, strict=True)]
    return best[1]


def fit(job: Fit) -> tuple[list[float], mp.mpf]:
    """Coefficients, lowest power first, and the weighted error of the rounded polynomial."""
    points = chebyshev_points(job.low, job.high, 8 * job.terms + 1)
    values, scale = [job.target(t) for t in points], [job.weight(t) for t in points]
    fixed: list[float] = []
    for k in range(job.terms):
        rest = [
            v - mp.polyval(fixed[::-1], t) if fixed else v
            for t, v in zip(points, values, strict=True)
        ]
        c = lawson(points, rest, scale, range(k, job.terms), 24 if k < 2 else 6)
        fixed.append(round_to(c[0], job.bits))
    check = chebyshev_points(job.low, job.high, 400)
    return fixed, max(
        abs(job.weight(t) * (mp.polyval(fixed[::-1], t) - job.target(t))) for t in check
    )


def removable(function: Function, limit: object) -> Function:
    """`function` with its removable singularity at 0 filled by `limit`."""
    return lambda t: function(t) if abs(t) > mp.mpf("1e-12") else mp.mpf(limit)


def jobs() -> list[Fit]:
    """Every polynomial of the table. `s` is a square: of the argument, or of z = f/(2+f)."""
    root, half = mp.sqrt(mp.mpf(2)), mp.mpf(1) / 2
    wider = mp.mpf("1.0002")  # argument reduction rounds: its result may lie a little outside
    ln2_half, eighth = mp.log(2) / 2 * wider, (mp.pi / 4) ** 2 * wider
    z_max = ((root - 1) / (root + 1)) ** 2 * wider

    exp2 = removable(lambda t: mp.expm1(t * mp.log(2)) / t, mp.log(2))
    exp = removable(lambda t: (mp.expm1(t) - t) / t**2, half)
    log = removable(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, mp.mpf(1) / 3)
    sin = removable(lambda s: (mp.sin(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, -mp.mpf(1) / 6)
    cos = removable(lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, mp.mpf(1) / 24)
    tan = removable(lambda s: (mp.tan(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mp.mpf(1) / 3)
    atanh = removable(lambda s: 2 * mp.atanh(mp.sqrt(s)) / mp.sqrt(s), 2)
    atanh1 = removable(lambda s: (atanh(s) - 2) / s, mp.mpf(2) / 3)
    atanh2 = removable(lambda s: (atanh1(s) - mp.mpf(2) / 3) / s, mp.mpf(2) / 5)
    erf = removable(lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, 2 / mp.sqrt(mp.pi) - 1)

    def erfc_of_t(t: mp.mpf) -> mp.mpf:
        """exp(x*x)*erfc(x) as a function of t = (x-2)/(x+2), which is smooth (after M. M. Shepherd,
        J. G. Laframboise, "Chebyshev approximation of (1+2x)exp(x^2)erfc x in 0 <= x < inf", Math.
        Comp. 36, 1981)."""
        x = 2 * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x)

    def erfc_weight(t: mp.mpf) -> mp.mpf:
        return mp.exp(-((2 * (1 + t) / (1 - t)) ** 2))

    def exp2_weight(t: mp.mpf) -> mp.mpf:
        return abs(t) / 2**t

    def exp_weight(t: mp.mpf) -> mp.mpf:
        return t**2 / mp.exp(t)

    def log_weight(f: mp.mpf) -> mp.mpf:
        return f**2 * (1 - abs(f) / 2)

    def square(s: mp.mpf) -> mp.mpf:
        return s * s

    def itself(s: mp.mpf) -> mp.mpf:
        return s

    def one(_: mp.mpf) -> mp.mpf:
        return mp.mpf(1)

    nil = mp.mpf(0)
    exp2_doc, exp_doc = "2**f = 1 + f*P(f)", "e**r = 1 + r + r*r*P(r)"
    sin_doc, cos_doc = "sin(r) = r + r*s*P(s)", "cos(r) = 1 - s/2 + s*s*P(s)"
    log_doc, z_doc = "log(1+f) = f - f*f/2 + f**3*P(f)", "z = f/(2+f), s = z*z"
    erf_doc, erfc_doc = (
        "erf(x) = x + x*P(s), |x| <= 1",
        "1 - erf(x) = exp(-x*x)*P((x-2)/(x+2)), 1 <= x <= 6",
    )
    return [
        Fit("EXP2_32", exp2_doc, exp2, exp2_weight, -half, half, 6, 24),
        Fit("EXP2_64", exp2_doc, exp2, exp2_weight, -half, half, 11, 53),
        Fit("EXP_32", exp_doc, exp, exp_weight, -ln2_half, ln2_half, 5, 24),
        Fit("EXP_64", exp_doc, exp, exp_weight, -ln2_half, ln2_half, 10, 53),
        Fit("LOG_32", log_doc, log, log_weight, 1 / root - 1, root - 1, 8, 24),
        Fit("LOG_64", f"log(1+f) = 2*z + z*s*P(s), {z_doc}", atanh1, itself, nil, z_max, 7, 53),
        Fit("SIN_32", sin_doc, sin, itself, nil, eighth, 3, 24),
        Fit("SIN_64", sin_doc, sin, itself, nil, eighth, 6, 53),
        Fit("COS_32", cos_doc, cos, square, nil, eighth, 3, 24),
        Fit("COS_64", cos_doc, cos, square, nil, eighth, 6, 53),
        Fit("TAN_32", "tan(r) = r + r*s*P(s)", tan, itself, nil, eighth, 7, 24),
        Fit("ERF_32", erf_doc, erf, one, nil, mp.mpf(1), 7, 24),
        Fit("ERF_64", erf_doc, erf, one, nil, mp.mpf(1), 13, 53),
        Fit(
            "ERFC_32",
            "1 - erf(x) = P(x - 2.5), 1 <= x <= 4",
            lambda t: mp.erfc(t + 5 * half),
            one,
            -3 * half,
            3 * half,
            15,
            24,
        ),
        Fit("ERFC_64", erfc_doc, erfc_of_t, erfc_weight, -mp.mpf(1) / 3, half, 17, 53),
        Fit(
            "POW_LOG2_32",
            f"log2(1+f) = z*P(s), {z_doc}",
            lambda s: atanh(s) / mp.log(2),
            one,
            nil,
            z_max,
            6,
            53,
        ),
        Fit("POW_EXP2_32", exp2_doc, exp2, exp2_weight, -half, half, 7, 53),
        Fit(
            "POW_LOG_64",
            f"log(1+f) = 2*z + 2/3*z*s + z*s*s*P(s), {z_doc}",
            atanh2,
            square,
            nil,
            z_max,
            7,
            53,
        ),
    ]


def constants() -> list[tuple[str, str, tuple[object, ...]]]:
    """Constants of argument reduction as sums of numbers with trailing zeros, so that products with
    small integers are exact (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions",
    1980)."""

    def parts(value: mp.mpf, widths: list[int], bits: int) -> tuple[float, ...]:
        out = []
        for width in widths:
            scale = mp.mpf(2) ** (width - 1 - mp.floor(mp.log(abs(value), 2)))
            out.append(float(mp.floor(value * scale) / scale))
            value -= mp.mpf(out[-1])
        return (*out, round_to(value, bits))

    with mp.workdps(420):
        digits = mp.floor(2 / mp.pi * mp.mpf(2) ** (64 * 20))
        words = tuple(int(digits) >> (64 * (19 - k)) & (2**64 - 1) for k in range(20))
    return [
        (
            "LN2_32",
            "log(2); times an integer below 2**9 the first part is exact",
            parts(mp.log(2), [15], 24),
        ),
        (
            "LN2_64",
            "log(2); times an integer below 2**12 the first part is exact",
            parts(mp.log(2), [41], 53),
        ),
        ("LOG2E_32", "1/log(2), the first part with 12 bits", parts(1 / mp.log(2), [12], 24)),
        ("LOG2E_64", "1/log(2), the first part with 26 bits", parts(1 / mp.log(2), [26], 53)),
        (
            "HALF_PI_32",
            "pi/2; times an integer below 2**13 all but the last are exact",
            parts(mp.pi / 2, [11] * 4, 24),
        ),
        (
            "HALF_PI_64",
            "pi/2; times an integer below 2**20 all but the last are exact",
            parts(mp.pi / 2, [33] * 3, 53),
        ),
        ("HALF_PI_DD", "pi/2 as an unevaluated sum", parts(mp.pi / 2, [26], 53)),
        ("TWO_THIRDS_DD", "2/3 as an unevaluated sum", parts(mp.mpf(2) / 3, [26], 53)),
        ("TWO_OVER_PI", "the first 1280 bits of 2/pi in words of 64, highest first", words),
    ]


HEADER = '''"""Coefficients, lowest power first, and constants of the transcendental functions.

Written by bench/fit_polynomials.py, which says how; `s` is the square of the argument. Every number
is printed so that it reads back exactly. The number behind a formula is the largest error of the
rounded polynomial in exact arithmetic, relative to the function.
"""

from __future__ import annotations

from typing import Final
'''


def table() -> str:
    """The text of polynomials.py."""
    lines = [HEADER]
    for job in jobs():
        coefficients, error = fit(job)
        print(
            f"{job.name:12} {mp.nstr(error, 3):>10}  2**{mp.nstr(mp.log(error, 2), 4)}", flush=True
        )
        lines += [f"# {job.doc}; {mp.nstr(error, 3)}", f"{job.name}: Final = ("]
        lines += [f"    {c!r}," for c in coefficients] + [")", ""]
    for name, doc, values in constants():
        lines += [f"# {doc}", f"{name}: Final = ("]
        lines += [f"    {f'0x{v:016X}' if isinstance(v, int) else repr(v)}," for v in values] + [
            ")",
            "",
        ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the table in the tree instead of writing it",
    )
    check = parser.parse_args().check
    text = table()
    if check:
        return int(text != TABLE.read_text())
    TABLE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
