"""Accuracy of the transcendental functions, by evaluating what they expand to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest

from morok.codegen import decompose, get_program, transcendental
from morok.dtype import DType, dtypes, to_numpy
from morok.ir import AxisType, Capability, GroupOp, KernelInfo, Ops, UOp
from morok.optimizer import parse_opts, prepare, replay
from tests.codegen.compiled import build, launch, renderer
from tests.codegen.numpy_eval import evaluate

F32, F64 = dtypes.float32, dtypes.float64
Function = Callable[[UOp], UOp]
SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-30, -1e-30]


def leaf(dtype: DType, number: int = 0) -> UOp:
    return UOp.param(number, dtype, 1)


def exact(name: str) -> Callable[[float], mp.mpf | None]:
    """The function in high precision; None where it is NaN."""
    function = {"exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x, 2)}.get(name)
    function = function or getattr(mp, name)

    def value(x: float) -> mp.mpf | None:
        if np.isnan(x):
            return None
        if np.isinf(x):
            limits = {"exp": (0, mp.inf), "exp2": (0, mp.inf), "erf": (-1, 1)}
            limits |= {"log": (None, mp.inf), "log2": (None, mp.inf)}
            pair = limits.get(name, (None, None))
            return pair[x > 0]
        if name in ("log", "log2") and x <= 0:
            return -mp.inf if x == 0 else None
        with mp.workprec(1300 if abs(x) > 1e15 else 180):
            return +function(mp.mpf(float(x)))

    return value


def errors(got: np.ndarray, want: list[mp.mpf | None], dtype: DType) -> np.ndarray:
    """Distances in units in the last place of the exact results."""
    digits, least, top = (24, -126, 128) if dtype is F32 else (53, -1022, 1024)
    out = []
    for value, true in zip(got.tolist(), want, strict=True):
        if true is None:
            out.append(0.0 if np.isnan(value) else np.inf)
        elif np.isinf(value):
            over = mp.mpf(2) ** top - mp.mpf(2) ** (top - digits - 1)
            right = abs(true) >= over and (value > 0) == (true > 0)
            out.append(0.0 if right else np.inf)
        elif np.isnan(value):
            out.append(np.inf)
        else:
            exponent = max(int(mp.floor(mp.log(abs(true), 2))) if true else least, least)
            out.append(float(abs(mp.mpf(value) - true) / mp.mpf(2) ** (exponent - digits + 1)))
    return np.array(out)


def samples(dtype: DType, low: float, high: float, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    return random.uniform(low, high, count).astype(to_numpy(dtype))


def any_bits(dtype: DType, count: int) -> np.ndarray:
    """Finite numbers of every size."""
    random = np.random.default_rng(7)
    bits = random.integers(0, 1 << dtype.bits, count, dtype=np.uint64)
    values = bits.astype(f"u{dtype.bits // 8}").view(to_numpy(dtype))
    return values[np.isfinite(values)]


RANGES = {
    "exp": [(-104, 89), (-746, 710), (-1, 1)],
    "exp2": [(-150, 128), (-1075, 1024), (-1, 1)],
    "log": [(0.3, 3.0), (0.99, 1.01), (0, 1e-38)],
    "log2": [(0.3, 3.0), (0.99, 1.01), (0, 1e-38)],
    "sin": [(-4, 4), (-13000, 13000), (-1e8, 1e8), (-1.7e6, 1.7e6)],
    "cos": [(-4, 4), (-13000, 13000), (-1e8, 1e8), (-1.7e6, 1.7e6)],
    "tan": [(-4, 4), (-13000, 13000), (-1e8, 1e8), (-1.7e6, 1.7e6)],
    "erf": [(-1.1, 1.1), (-6, 6)],
}
LIMIT = {F32: 2.0, F64: 2.5}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_accuracy(name: str, dtype: DType) -> None:
    x = leaf(dtype)
    graph = getattr(transcendental, name)(x)
    parts = [any_bits(dtype, 400)] + [samples(dtype, *ends, 300) for ends in RANGES[name]]
    values = np.concatenate(parts)
    if name in ("exp", "exp2"):
        values = values[np.abs(values) < 2000]
    got = evaluate(graph, {x: values})
    error = errors(got, [exact(name)(float(value)) for value in values], dtype)
    worst = int(error.argmax())
    assert error[worst] <= LIMIT[dtype], (values[worst], got[worst])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_near_multiples_of_half_pi(name: str, dtype: DType) -> None:
    """Where the reduced argument all but vanishes."""
    numbers = [*range(1, 300), *(3**k for k in range(5, 60 if dtype is F32 else 120))]
    with mp.workprec(400):
        values = np.array([float(n * mp.pi / 2) for n in numbers]).astype(to_numpy(dtype))
    # The float64 nearest to a multiple of pi/2 of all (J.-M. Muller, Elementary Functions, 2016).
    hardest = [6381956970095103.0 * 2.0**797] if dtype is F64 else [16367173.0 * 2.0**72]
    values = np.concatenate([values, np.array(hardest, values.dtype)])
    x = leaf(dtype)
    got = evaluate(getattr(transcendental, name)(x), {x: values})
    error = errors(got, [exact(name)(float(value)) for value in values], dtype)
    assert error.max() <= LIMIT[dtype], values[error.argmax()]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_special_values(name: str, dtype: DType) -> None:
    tiny = np.finfo(to_numpy(dtype)).smallest_subnormal
    values = np.array([*SPECIALS, tiny, -tiny, 1e8, -1e8], to_numpy(dtype))
    x = leaf(dtype)
    got = evaluate(getattr(transcendental, name)(x), {x: values})
    assert errors(got, [exact(name)(float(v)) for v in values], dtype).max() <= LIMIT[dtype]
    if name in ("sin", "tan", "erf"):
        assert np.signbit(got[:2]).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_power_accuracy(dtype: DType) -> None:
    x, y = leaf(dtype), leaf(dtype, 1)
    parts = [((0, 2), (-100, 100)), ((0.999, 1.001), (-1e4, 1e4)), ((1e-30, 1e30), (-1, 1))]
    bases = np.concatenate([samples(dtype, *a, 300) for a, _ in parts])
    exponents = np.concatenate([samples(dtype, *b, 301)[:300] for _, b in parts])
    got = evaluate(transcendental.power(x, y), {x: bases, y: exponents})
    want = [mp.mpf(float(a)) ** mp.mpf(float(b)) for a, b in zip(bases, exponents, strict=True)]
    assert errors(got, want, dtype).max() <= LIMIT[dtype]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_power_of_special_values(dtype: DType) -> None:
    """C99, annex F.9.4.4."""
    kind = to_numpy(dtype)
    wanted = [*SPECIALS, 3.0, -3.0, -7.0, 1e30, -1e30, 2.0**24, 2.0**53 + 2, 0.25]
    grid = list(itertools.product(np.array(wanted, kind), repeat=2))
    a, b = (np.array(column, kind) for column in zip(*grid, strict=True))
    x, y = leaf(dtype), leaf(dtype, 1)
    got = evaluate(transcendental.power(x, y), {x: a, y: b})
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(kind)
    same = (got == want) & (np.signbit(got) == np.signbit(want))
    same |= np.isnan(got) & np.isnan(want)
    same |= np.isclose(got, want, rtol=4e-16, atol=0) & (want != 0)
    assert same.all(), [grid[k] for k in np.flatnonzero(~same)[:5]]


ALL = (Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_compiled_code_has_the_same_bits(dtype: DType) -> None:
    """Scalars and vectors, with and without arguments for which the branches are taken."""
    size = 512
    i = UOp.range(size, 0, AxisType.LOOP, renumbered=True)
    read = UOp.param(len(ALL), dtype.ptr(), size).at(i)
    stores = [
        UOp.param(slot, dtype.ptr(), size).at(i).store(read.alu(op), i)
        for slot, op in enumerate(ALL)
    ]
    sink = UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo("functions"))
    widest = renderer().capability.max_width(dtype)
    sinks = [
        replay(prepare(sink), parse_opts(f"UPCAST(0,{n})" if n > 1 else "")) for n in (1, widest)
    ]
    programs = [get_program(s, renderer()) for s in sinks]
    assert all(any(op.op is Ops.IF for op in p.src[2].src) for p in programs)
    bits = any_bits(dtype, 3 * size)
    x = np.concatenate([bits[: size // 2], samples(dtype, -9, 9, size - size // 2)])
    leaf_x = leaf(dtype)
    plain = Capability("plain", ops=frozenset(GroupOp.ALU) - set(ALL))
    want = []
    for op in ALL:
        graph = decompose(UOp(Ops.SINK, dtypes.void, (leaf_x.alu(op),)), plain).src[0]
        want.append(evaluate(graph, {leaf_x: x}))
    for program, kernel in zip(programs, build(programs), strict=True):
        got = launch(kernel, program, [np.zeros_like(x)] * len(ALL) + [x], {})
        for op, have, expected in zip(ALL, got, want, strict=False):
            equal = (have == expected) | (np.isnan(have) & np.isnan(expected))
            assert equal.all(), (op, x[~equal][:4], have[~equal][:4], expected[~equal][:4])


@pytest.mark.parametrize("dtype", [F32, F64])
def test_powers_with_large_whole_and_half_exponents(dtype: DType) -> None:
    """Where the last place of the exponent is a half, a one, a two: odd, even, no whole number"""
    digits = 23 if dtype is F32 else 52
    ends = [2.0 ** (digits - 1), 2.0**digits, 2.0 ** (digits + 1)]
    steps = [-2, -1, -0.5, 0, 0.5, 1, 2, 3]
    exponents = np.array([sign * (end + s) for end in ends for s in steps for sign in (1, -1)])
    b = np.tile(exponents.astype(to_numpy(dtype)), 5)
    a = np.repeat(np.array([-1, -2, -0.0, 0.0, -np.inf], b.dtype), len(exponents))
    x, y = leaf(dtype), leaf(dtype, 1)
    got = evaluate(transcendental.power(x, y), {x: a, y: b})
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])
