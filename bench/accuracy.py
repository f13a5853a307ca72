"""How exact the transcendental functions are, over their whole ranges, as compiled code.

    python -m bench accuracy [NAME …] [--dtype float32,…] [--every N] [--quick] [--json FILE]

One table: for each function and dtype the largest error in units in the last place of the exact
result, and where. Tried are

    float16, bfloat16   every number
    float32             every N-th bit pattern, from a random first one (64 by default)
    float64             bit patterns, and numbers spread over the range that matters
    all of them         zeros, infinities, NaN, subnormal numbers, the ends of the range, multiples
                        of pi/2 and numbers next to 1, huge arguments

A NaN or an infinity where the exact result has none, or the other way round, is an infinite error.
The exact result is NumPy's in float64 for float32 and below, in 80-bit floats for float64 (which
are good to 0.001 ulp); of `erf` in float64 it is mpmath's, for fewer numbers. The rows below the
line are what tensors compose of several operations, each of which rounds.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morok.dtype import DType, dtypes
from morok.float_format import FORMATS
from morok.ir import numeric
from morok.tensor import Tensor

Array = np.ndarray[Any, Any]
CHUNK = 1 << 20
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
_MPMATH = 20_000  # numbers for which mpmath is asked


@dataclass(frozen=True, slots=True)
class Function:
    """A function of tensors, and the same in a wider type on arrays."""

    ours: Callable[..., Tensor]
    exact: Callable[..., Array]
    low: float = -100.0  # between these, numbers are tried densely
    high: float = 100.0
    arguments: int = 1
    by_mpmath: str = ""  # what it is called there; where NumPy has it in float64 only


def _erf(x: Array) -> Array:
    from scipy import special

    return np.asarray(special.erf(x.astype(np.float64)))


def _gelu(x: Array) -> Array:
    from scipy import special

    return np.asarray(x * special.erfc(-x.astype(np.float64) / math.sqrt(2)) / 2)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, np.zeros_like(x)))


FUNCTIONS: dict[str, Function] = {
    "exp": Function(Tensor.exp, np.exp, -750, 715),
    "exp2": Function(Tensor.exp2, np.exp2, -1080, 1030),
    "log": Function(Tensor.log, np.log, 0, 4),
    "log2": Function(Tensor.log2, np.log2, 0, 4),
    "sin": Function(Tensor.sin, np.sin, -2e4, 2e4),
    "cos": Function(Tensor.cos, np.cos, -2e4, 2e4),
    "tan": Function(Tensor.tan, np.tan, -2e4, 2e4),
    "erf": Function(Tensor.erf, _erf, -6, 6, by_mpmath="erf"),
    "sqrt": Function(Tensor.sqrt, np.sqrt, 0, 1e6),
    "reciprocal": Function(Tensor.reciprocal, lambda x: 1 / x),
    "pow": Function(lambda x, y: x**y, np.power, -8, 8, arguments=2),
}
COMPOSED: dict[str, Function] = {
    "rsqrt": Function(Tensor.rsqrt, lambda x: 1 / np.sqrt(x), 0, 1e6),
    "log10": Function(Tensor.log10, np.log10, 0, 4),
    "tanh": Function(Tensor.tanh, np.tanh, -20, 20),
    "sinh": Function(Tensor.sinh, np.sinh, -715, 715),
    "cosh": Function(Tensor.cosh, np.cosh, -715, 715),
    "sigmoid": Function(Tensor.sigmoid, _sigmoid, -750, 750),
    "softplus": Function(Tensor.softplus, _softplus, -750, 750),
    "gelu": Function(Tensor.gelu, _gelu, -12, 12),
}


# ---- errors --------------------------------------------------------------------------------------


def precision_of(dtype: DType) -> tuple[int, int]:
    """(bits of the significand, exponent of the smallest normal number)"""
    known = {dtypes.float32: (24, -126), dtypes.float64: (53, -1022)}
    if dtype in known:
        return known[dtype]
    form = FORMATS[dtype.name]
    return form.precision, form.least_exponent + form.mantissa


def errors(got: Array, want: Array, dtype: DType) -> Array:
    """Distances in units in the last place of `want`, which is in a wider type. Infinite where one
    is NaN and the other is not, or where one overflows and the other is far from it."""
    digits, least = precision_of(dtype)
    with np.errstate(all="ignore"):
        exponent = np.where(want == 0, least, np.maximum(np.frexp(want)[1] - 1, least))
        unit = np.ldexp(np.ones_like(want), exponent - (digits - 1))
        top = np.ldexp(np.ones_like(want), 2 - least)  # twice the largest power of two
        distance = np.asarray(np.abs(got.astype(want.dtype) - want) / unit, np.float64)
        # What rounds beyond the largest number is infinite.
        border = top - np.ldexp(top, -digits - 1)
        over = np.abs(want) >= border
        right = np.isinf(got) & (np.sign(got) == np.sign(want)) & over
        right |= np.isnan(got) & np.isnan(want)
        distance[right] = 0
        distance[(np.isnan(got) != np.isnan(want)) | (np.isinf(got) & ~over)] = np.inf
        distance[over & ~right & ~np.isnan(got)] = np.inf
    return distance


# ---- numbers to try ------------------------------------------------------------------------------


def stored(dtype: DType) -> np.dtype[Any]:
    """What NumPy keeps such numbers in."""
    return np.dtype(np.float32 if dtype is dtypes.bfloat16 else dtype.name)


def special(dtype: DType, function: Function) -> Array:
    """Corners, in the NumPy type of `dtype`, and their neighbours."""
    digits, least = precision_of(dtype)
    tiny, smallest = 2.0**least, 2.0 ** max(least - digits + 1, -1074)
    largest = float(np.ldexp(2.0 - 2.0 ** (1 - digits), -least + 1))
    quarters = np.arange(-2000, 2001) * (math.pi / 2)
    huge = np.ldexp(math.pi / 2, np.arange(0, -least + 1, 3))
    plain = [0.0, 1.0, 0.5, 2.0, 3.0, tiny, smallest, tiny - smallest, largest, largest / 2, math.e]
    ends = [function.low, function.high, 88.72284, 89.4, 103.97, 150.0, 709.7827, 745.13, 1024.0]
    with np.errstate(over="ignore"):
        values = np.concatenate([plain, ends, quarters, huge]).astype(stored(dtype))
        around = [np.nextafter(values, values.dtype.type(side)) for side in (-np.inf, np.inf)]
    found = np.concatenate([values, *around])
    return np.concatenate([found, -found, [np.inf, -np.inf, np.nan]]).astype(stored(dtype))


def numbers(dtype: DType, function: Function, every: int, count: int) -> Iterator[Array]:
    """What is tried, in chunks of one length."""
    random = np.random.default_rng(5)
    yield from _chunks(special(dtype, function))
    if dtype.itemsize == 2:
        bits = np.arange(1 << 16, dtype=np.uint32)
        wide = (bits << 16).view(np.float32) if dtype is dtypes.bfloat16 else None
        yield from _chunks(bits.astype(np.uint16).view(np.float16) if wide is None else wide)
        return
    for _ in range(max(1, count // CHUNK)):
        spread = random.uniform(function.low, function.high, CHUNK)
        yield spread.astype(stored(dtype))
        small = np.exp2(random.uniform(-60, 12, CHUNK)) * random.choice([-1, 1], CHUNK)
        yield small.astype(stored(dtype))
        yield (1 + small * 1e-4).astype(stored(dtype))
        if dtype is dtypes.float64:
            yield random.integers(0, 1 << 64, CHUNK, np.uint64).view(np.float64)
    if dtype is dtypes.float32:
        first = int(random.integers(every))
        for start in range(first, 1 << 32, CHUNK * every):
            patterns = start + np.arange(CHUNK, dtype=np.uint64) * every
            yield (patterns & 0xFFFFFFFF).astype(np.uint32).view(np.float32)


def _chunks(values: Array) -> Iterator[Array]:
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        yield np.resize(part, CHUNK) if len(part) > CHUNK // 16 else np.resize(part, CHUNK // 16)


# ---- one row -------------------------------------------------------------------------------------


@dataclass
class Row:
    """The largest error found."""

    name: str
    dtype: str
    tried: int = 0
    ulp: float = 0.0
    at: str = ""

    def see(self, error: Array, arguments: Sequence[Array], got: Array, want: Array) -> None:
        self.tried += error.size
        place = int(np.argmax(error))
        if error[place] > self.ulp:
            self.ulp = float(error[place])
            given = ", ".join(repr(float(x[place])) for x in arguments)
            self.at = f"({given}) is {float(got[place])!r}, not {float(want[place])!r}"

    def __str__(self) -> str:
        return f"{self.name:<12} {self.dtype:<9} {self.tried:>12,} {self.ulp:>12.4f}  {self.at}"


def measure(name: str, function: Function, dtype: DType, every: int, count: int) -> Row:
    """The row of one function and dtype."""
    row = Row(name, dtype.name)
    random = np.random.default_rng(11)
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    for chunk in numbers(dtype, function, every, count):
        x = numeric.settle(chunk, dtype)
        arguments = [x]
        if function.arguments == 2:
            arguments.append(random.permutation(x) if random.random() < 0.5 else _exponents(x))
        if dtype is dtypes.float64 and function.by_mpmath:
            arguments = [np.resize(random.permutation(x)[:_MPMATH], _MPMATH)]
        got = _computed(function, arguments, dtype)
        with np.errstate(all="ignore"):
            if dtype is dtypes.float64 and function.by_mpmath:
                want = _by_mpmath(function.by_mpmath, arguments[0])
            else:
                want = function.exact(*(a.astype(wide) for a in arguments))
        row.see(errors(got, want, dtype), arguments, got, want)
    return row


def _exponents(x: Array) -> Array:
    """Whole and half exponents, as people use."""
    return (np.arange(len(x)) % 41 - 20).astype(x.dtype) / 2


def _computed(function: Function, arguments: Sequence[Array], dtype: DType) -> Array:
    out = function.ours(*(Tensor(a, dtype=dtype) for a in arguments))
    out.realize()  # rounded to its dtype
    return (out.float() if dtype is dtypes.bfloat16 else out).numpy()


def _by_mpmath(name: str, x: Array) -> Array:
    """In 80-bit floats: what is left over a float64 is added as a second one."""
    import mpmath

    function = getattr(mpmath, name)
    out = np.empty(len(x), np.longdouble)
    with mpmath.workprec(100):
        for i, value in enumerate(x.tolist()):
            if math.isnan(value):
                out[i] = np.nan
                continue
            exact = function(mpmath.mpf(value))
            out[i] = float(exact)
            out[i] += np.longdouble(float(exact - mpmath.mpf(float(exact))))
    return out


# ---- the table -----------------------------------------------------------------------------------


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench accuracy", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = {**FUNCTIONS, **COMPOSED}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--dtype", default=",".join(d.name for d in FLOATS))
    parser.add_argument("--every", type=int, default=64, help="bit patterns of float32 (64)")
    parser.add_argument("--count", type=int, default=4 * CHUNK, help="numbers of each other kind")
    parser.add_argument("--quick", action="store_true", help="few numbers, for a smoke test")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in known:
            parser.error(f"no function {name!r}: there are {', '.join(known)}")
    wanted = options.dtype.split(",")
    options.dtypes = [d for d in FLOATS if d.name in wanted]
    if len(options.dtypes) != len(wanted):
        parser.error(f"--dtype takes {', '.join(d.name for d in FLOATS)}")
    if options.quick:
        options.every, options.count = 1 << 14, CHUNK
    return options


def main(argv: Sequence[str]) -> int:
    """Prints a row as soon as it is known."""
    options = _options(argv)
    rows: list[Row] = []
    print(f"{'function':<12} {'dtype':<9} {'numbers':>12} {'worst ulp':>12}  at")
    for group in (FUNCTIONS, COMPOSED):
        for name, function in group.items():
            if options.names and name not in options.names:
                continue
            for dtype in options.dtypes:
                rows.append(measure(name, function, dtype, options.every, options.count))
                print(rows[-1], flush=True)
        if group is FUNCTIONS and not options.names:
            print("-" * 48)
    if options.json:
        Path(options.json).write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    return 0
