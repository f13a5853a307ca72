"""Floats: the table of numbers, computed lazily, step by step and folded, against NumPy and
PyTorch.

Casts saturate, NaN is never lost, zero keeps its sign, and halves are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from ways import WAYS, Function, folded, lazy, realised_after_every_operation, same, stepwise

from morok.dtype import DType, dtypes
from morok.ir import Ops
from morok.tensor import Tensor

INF, NAN = math.inf, math.nan
FLOATS = [np.float16, np.float32, np.float64]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, INF, -INF, NAN]


def quiet(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return function(*arrays)


def pairs(dtype: type, values: Sequence[float] = tuple(SPECIAL)) -> tuple[np.ndarray, np.ndarray]:
    x = np.array(values, dtype)
    return tuple(map(np.copy, np.broadcast_arrays(x[:, None], x[None, :])))


BINARY: list[tuple[str, Function, Callable[..., np.ndarray]]] = [
    ("add", lambda a, b: a + b, np.add),
    ("sub", lambda a, b: a - b, np.subtract),
    ("mul", lambda a, b: a * b, np.multiply),
    ("div", lambda a, b: a / b, np.divide),
    ("lt", lambda a, b: a < b, np.less),
    ("le", lambda a, b: a <= b, np.less_equal),
    ("gt", lambda a, b: a > b, np.greater),
    ("eq", lambda a, b: a.eq(b), np.equal),
    ("ne", lambda a, b: a.ne(b), np.not_equal),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_and_comparison_of_special_values(way: Callable, dtype: type) -> None:
    a, b = pairs(dtype)
    results = way([function for _, function, _ in BINARY], a, b)
    for (name, _, exact), got in zip(BINARY, results, strict=True):
        same(got, quiet(exact, a, b), name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_wins_in_maximum_and_minimum(way: Callable, dtype: type) -> None:
    a, b = pairs(dtype)
    if way is folded:  # which of two zeros comes is left to the processor, so it is not folded
        a, b = pairs(dtype, [value for value in SPECIAL if str(value) != "-0.0"])
    high, low = way([lambda a, b: a.maximum(b), lambda a, b: a.minimum(b)], a, b)
    np.testing.assert_array_equal(high, np.maximum(a, b))  # of two zeros either may come
    np.testing.assert_array_equal(low, np.minimum(a, b))


UNARY: list[tuple[str, Function, Callable[[np.ndarray], np.ndarray]]] = [
    ("neg", lambda x: -x, np.negative),
    ("abs", lambda x: abs(x), np.abs),
    ("neg neg", lambda x: x.neg().neg(), lambda x: x),
    ("x+0", lambda x: x + 0.0, lambda x: x + np.float32(0)),
    ("x-0", lambda x: x - 0.0, lambda x: x),
    ("0-x", lambda x: 0.0 - x, lambda x: np.float32(0) - x),
    ("x*1", lambda x: x * 1.0, lambda x: x),
    ("x*-1", lambda x: x * -1.0, np.negative),
    ("x/1", lambda x: x / 1.0, lambda x: x),
    ("x/-1", lambda x: x / -1.0, np.negative),
    # None of these is a constant
    ("x*0", lambda x: x * 0.0, lambda x: x * np.float32(0)),
    ("x*0+1", lambda x: x * 0.0 + 1.0, lambda x: x * np.float32(0) + np.float32(1)),
    ("x-x", lambda x: x - x, lambda x: x - x),
    ("x+-x", lambda x: x + (-x), lambda x: x - x),
    ("x/x", lambda x: x / x, lambda x: x / x),
    ("0/x", lambda x: 0.0 / x, lambda x: np.float32(0) / x),
    ("(x+1)-1", lambda x: (x + 1.0) - 1.0, lambda x: (x + np.float32(1)) - np.float32(1)),
    ("(x*3)/3", lambda x: (x * 3.0) / 3.0, lambda x: (x * np.float32(3)) / np.float32(3)),
    ("x*0.1*10", lambda x: x * 0.1 * 10.0, lambda x: x * np.float32(0.1) * np.float32(10)),
    ("1/(1/x)", lambda x: 1.0 / (1.0 / x), lambda x: np.float32(1) / (np.float32(1) / x)),
    ("x==x", lambda x: x.eq(x), lambda x: x == x),
    ("x<x", lambda x: x < x, lambda x: x < x),
    ("x<=x", lambda x: x <= x, lambda x: x <= x),
    ("not x<1", lambda x: ~(x < 1.0), lambda x: ~(x < 1)),
    ("max(x,x)", lambda x: x.maximum(x), lambda x: x),
    ("where", lambda x: (x > 0).where(x, 0.0), lambda x: np.where(x > 0, x, np.float32(0))),
    ("where x*0", lambda x: (x.eq(x)).where(x * 0.0, x), lambda x: x * np.float32(0)),
    ("round", lambda x: x.round(), np.round),
    ("floor", lambda x: x.floor(), np.floor),
    ("ceil", lambda x: x.ceil(), np.ceil),
    ("trunc", lambda x: x.trunc(), np.trunc),
    ("sqrt", lambda x: x.sqrt(), np.sqrt),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_special_value_is_simplified_away(way: Callable, dtype: type) -> None:
    """Infinities, NaN and both zeros come through each of these as IEEE 754 has them."""
    x = np.array([*SPECIAL, 2.5, 1.5, -1.5, -0.5, -0.2, 1e30, 7.3, -123.0], dtype)
    results = way([function for _, function, _ in UNARY], x)
    for (name, _, exact), got in zip(UNARY, results, strict=True):
        wanted = quiet(exact, x)
        if "0.1" in name and dtype is np.float64:  # the oracle's constants are of float32
            wanted = x * 0.1 * 10.0
        same(got, wanted, name)


def test_case_27_rounds_to_even_and_keeps_the_sign() -> None:
    x = np.array([2.5, -2.5, 1.5, -1.5, 0.5, -0.5], np.float32)
    wanted = np.array([2, -2, 2, -2, 0.0, -0.0], np.float32)
    for way in WAYS:
        same(way([lambda t: t.round()], x)[0], wanted)
    for way in (lazy, stepwise):  # bfloat16 and float16 too
        for dtype in (dtypes.float16, dtypes.bfloat16):
            (got,) = way([lambda t: t.round().float()], x, dtype=dtype)
            same(got, wanted)


@pytest.mark.parametrize("way", [lazy, stepwise])
def test_floor_division_of_floats(way: Callable) -> None:
    a = np.array([7.5, -7.5, 7.5, -7.5, 6.0, -6.0, 1.0, 0.3], np.float32)
    b = np.array([2.0, 2.0, -2.0, -2.0, 3.0, 3.0, 0.3, 0.1], np.float32)
    quotient, remainder = way([lambda a, b: a // b, lambda a, b: a % b], a, b)
    same(quotient, np.floor_divide(a, b))
    same(remainder, np.remainder(a, b))
    zero = np.zeros(3, np.float32)
    top = np.array([1.0, -1.0, 0.0], np.float32)
    quotient, remainder = way([lambda a, b: a // b, lambda a, b: a % b], top, zero)
    same(quotient, np.array([INF, -INF, NAN], np.float32))
    same(remainder, np.array([NAN, NAN, NAN], np.float32))


# ---- casts ---------------------------------------------------------------------------------------

CASE_21 = [-1.5, 300.0, -266.0, 2147483646.0, NAN, INF, -INF, 0.99, -0.99, 255.0, 1e20]
TRUNCATED = {
    dtypes.uint8: [0, 255, 0, 255, 0, 255, 0, 0, 0, 255, 255],
    dtypes.int8: [-1, 127, -128, 127, 0, 127, -128, 0, 0, 127, 127],
    dtypes.uint16: [0, 300, 0, 65535, 0, 65535, 0, 0, 0, 255, 65535],
    dtypes.int32: [-1, 300, -266, 2147483646, 0, 2**31 - 1, -(2**31), 0, 0, 255, 2**31 - 1],
    dtypes.uint32: [0, 300, 0, 2147483646, 0, 2**32 - 1, 0, 0, 0, 255, 2**32 - 1],
    dtypes.int64: [-1, 300, -266, 2147483646, 0, 2**63 - 1, -(2**63), 0, 0, 255, 2**63 - 1],
    dtypes.uint64: [0, 300, 0, 2147483646, 0, 2**64 - 1, 0, 0, 0, 255, 10**20 % 2**64],
}
TRUNCATED[dtypes.uint64][-1] = 2**64 - 1  # 1e20 does not fit


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_case_21_floats_to_ints_truncate_and_saturate(way: Callable, source: type) -> None:
    x = np.array(CASE_21, source)
    results = way([lambda t, to=to: t.cast(to) for to in TRUNCATED], x)
    for (to, values), got in zip(TRUNCATED.items(), results, strict=True):
        wanted = np.array(values, to.name)
        if source is np.float32:  # which has no 2147483646
            nearest = {dtypes.int32: 2**31 - 1, dtypes.uint32: 2**31, dtypes.int64: 2**31}
            wanted[3] = nearest.get(to, 2**31 if to is dtypes.uint64 else wanted[3])
        same(got, wanted, str(to))
    (truth,) = way([lambda t: t.cast(dtypes.bool_)], x)
    same(truth, np.ones(len(x), bool))


@pytest.mark.parametrize("way", WAYS)
def test_ints_to_ints_wrap_and_ints_to_floats_round(way: Callable) -> None:
    x = np.array([0, 1, -1, 255, 256, 300, -129, 2**31, 2**53 + 1, -(2**63), 2**63 - 1], np.int64)
    kinds = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint64]
    results = way([lambda t, to=to: t.cast(to) for to in kinds], x)
    for to, got in zip(kinds, results, strict=True):
        same(got, x.astype(to.name), str(to))
    single, double = way([lambda t: t.float(), lambda t: t.double()], x)
    same(single, x.astype(np.float32))
    same(double, x.astype(np.float64))


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, ties to even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    out = rounded.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(NAN), out)


NARROWED = np.array(
    [
        *(65504, 65519, 65520, 65536, -65536, 1e-8, 5.96e-8, 6.1e-5),
        *(1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-9),
        *(3.3895e38, 3.3961775e38, -3.4028235e38, 1e-40, INF, -INF, NAN, -0.0),
    ],
    np.float32,
)


@pytest.mark.parametrize("way", WAYS)
def test_case_20_narrowing_rounds_to_even_and_overflows_to_infinity(way: Callable) -> None:
    half, brain = way([lambda t: t.half(), lambda t: t.bfloat16()], NARROWED)
    same(half, quiet(lambda x: x.astype(np.float16), NARROWED))
    same(brain, to_bfloat16(NARROWED))
    double = np.array([1e300, -1e300, 1 + 2**-24, 1 + 2**-24 + 2**-50, 1e-50, NAN], np.float64)
    (single,) = way([lambda t: t.float()], double)
    same(single, quiet(lambda x: x.astype(np.float32), double))


# ---- halves --------------------------------------------------------------------------------------


def to_half(x: np.ndarray) -> np.ndarray:
    return quiet(lambda x: x.astype(np.float16).astype(np.float32), x)


@pytest.mark.parametrize(
    ("dtype", "narrow"),
    [(dtypes.float16, to_half), (dtypes.bfloat16, to_bfloat16)],
    ids=("half", "bfloat16"),
)
def test_halves_are_computed_in_float32_and_rounded_where_they_are_stored(
    dtype: DType, narrow: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> None:
    """One kernel rounds once; operation by operation, and folded, every result is rounded."""
    a, b, c = (narrow(rng.uniform(-4, 4, 200).astype(np.float32)) for _ in range(3))
    function = [lambda a, b, c: (a * b + c) * a - b / c]
    once = narrow((a * b + c) * a - b / c)
    by_step = narrow(narrow(narrow(narrow(a * b) + c) * a) - narrow(b / c))
    assert (once != by_step).any()
    for way, wanted in ((lazy, once), (stepwise, by_step), (folded, by_step)):
        (got,) = way(function, a, b, c, dtype=dtype)
        same(got.astype(np.float32), wanted, way.__name__)


@pytest.mark.parametrize("way", [lazy, stepwise])
def test_sums_of_halves_do_not_lose_what_is_small(way: Callable) -> None:
    """10 000 times 1: in float16 steps of 1 get lost from 2048 on. And beyond 65504 is infinity."""
    ones = np.ones(10_000, np.float16)
    (total, average, much) = way(
        [lambda x: x.sum(), lambda x: x.mean(), lambda x: (x * 8).sum()], ones
    )
    same(total, np.float16(10_000))
    same(average, np.float16(1))
    same(much, np.float16(INF))
    (brain,) = way([lambda x: x.sum()], np.ones(1000, np.float32), dtype=dtypes.bfloat16)
    same(brain, np.float32(1000))


# ---- extremes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 17, 31, 33])
def test_case_26_nan_at_every_position(n: int) -> None:
    """Row i has its NaN at i, the last row none: extremes are NaN and their place is i."""
    x = np.tile(np.linspace(-3, 3, n, dtype=np.float32), (n + 1, 1))
    np.fill_diagonal(x, NAN)
    names = ("max", "min", "argmax", "argmin")
    functions = [lambda t, name=name: getattr(t, name)(1) for name in names]
    for way in (lazy, stepwise):
        high, low, where_high, where_low = way(functions, x)
        same(high, np.array([NAN] * n + [x[-1].max()], np.float32))
        same(low, np.array([NAN] * n + [x[-1].min()], np.float32))
        same(where_high, np.array([*range(n), n - 1], np.int32))
        same(where_low, np.array([*range(n), 0], np.int32))
    (columns, all_of_it) = lazy([lambda t: t.max(1), lambda t: t.max()], x[:n].T.copy())
    assert np.isnan(columns).all()
    assert np.isnan(all_of_it)


def test_the_first_of_several_nans_and_of_equal_extremes() -> None:
    x = np.array([[1, NAN, 3, NAN], [5, 2, 5, 1], [-INF, -INF, -INF, -INF], [0, 0, 0, 0]], "f4")
    for way in (lazy, stepwise):
        high, place = way([lambda t: t.max(1), lambda t: t.argmax(1)], x)
        same(high, np.array([NAN, 5, -INF, 0], np.float32))
        same(place, np.array([1, 0, 0, 0], np.int32))


# ---- what is never folded ------------------------------------------------------------------------


def test_transcendentals_of_constants_are_computed_like_all_others() -> None:
    """Folding them could differ in the last place: so none is folded, and the kernel of a constant
    gives bit for bit what the kernel of the same number in memory gives."""
    values = [0.5, 1.0, 2.3, 70.25]
    for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf"):
        constants = [getattr(Tensor.full((), v, dtype=dtypes.float32), name)() for v in values]
        if name != "tanh":  # which for small numbers is plain arithmetic
            assert all(c.uop.simplify().op is not Ops.CONST for c in constants)
        in_memory = getattr(Tensor(np.array(values, np.float32)), name)()
        Tensor.realize(in_memory, *constants)
        got = np.array([c.item() for c in constants], np.float32)
        same(got, in_memory.numpy(), name)
        exact = getattr(np, name, np.vectorize(math.erf))(np.array(values, np.float64))
        np.testing.assert_allclose(got, exact, rtol=4e-7)


def test_realised_constants_stay_constants() -> None:
    """A number that was realised is still a number to everybody else."""
    zero, ones = Tensor.zeros(()), Tensor.ones(1, 1)
    assert (zero.item(), ones.item()) == (0, 1)
    for again in (Tensor.zeros(()), Tensor.ones(1, 1)):
        assert all(node.realized is None for node in again.uop.toposort())
    zero += 5
    assert (zero.item(), Tensor.zeros(()).item()) == (5, 0)
    a, b = Tensor(3).argmax(0), Tensor([1, 2, 3]).max()
    Tensor.realize(a, b)
    assert (a.item(), b.item()) == (0, 3)
    leaf = Tensor.ones((), requires_grad=True)
    (leaf * 3).backward()
    assert (leaf.item(), leaf.grad.item()) == (1, 3)


# ---- gradients -----------------------------------------------------------------------------------


def test_case_28_seventy_thousand_tied_maxima() -> None:
    """In float16 the count of ties overflows, and one over it must not vanish."""
    n = 70_000
    for way in ("lazy", "stepwise"):
        x = Tensor(np.full(n, 0.5, np.float16), requires_grad=True)
        if way == "lazy":
            x.max().backward()
            got = x.grad.numpy()
        else:
            with realised_after_every_operation():
                x.max().backward()
                got = x.grad.numpy()
        same(got, np.full(n, np.float16(1 / n)), way)
    assert np.float16(1 / n) == pytest.approx(1.43e-5, rel=2e-3)


def _norm(t):
    return t.norm()


def _std(t):
    return t.std()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "at"),
    [
        ("where", [0.0, 1.0, 4.0]),
        ("guarded", [0.0, 1.0, 4.0]),
        (_norm, [0.0, 0.0, 0.0]),
        (_norm, [3.0, 0.0, 4.0]),
        (_std, [2.0, 2.0, 2.0]),
        (_std, [1.0, 2.0, 4.0]),
    ],
)
def test_case_29_gradients_where_a_root_is_zero(function, at: list[float]) -> None:
    """As PyTorch, the NaN of an unguarded root included."""
    import torch

    def compute(t, where):
        if function == "where":
            return where(t == 0, t * 0, t * t.sqrt()).sum()
        if function == "guarded":
            safe = where(t == 0, t * 0 + 1, t)
            return where(t == 0, t * 0, t * safe.sqrt()).sum()
        return function(t)

    t = torch.tensor(at, requires_grad=True)
    compute(t, torch.where).backward()
    x = Tensor(at, requires_grad=True)
    y = compute(x, Tensor.where)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-6)
    with realised_after_every_operation():
        x = Tensor(at, requires_grad=True)
        compute(x, Tensor.where).backward()
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-6)
