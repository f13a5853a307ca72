"""Small cases that went wrong somewhere, and expressions that the stages produce."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import morok.symbolic  # noqa: F401 (gives UOp.simplify its meaning)
from bench._evaluation import assert_equal, evaluate, loaded
from morok.dtype import dtypes
from morok.ir import AxisType, Ops, UOp

X = dtypes.index


def loop(end: int, number: int = 0) -> UOp:
    return UOp.range(end, number, AxisType.LOOP)


def grid(*loops: UOp) -> dict[UOp, np.ndarray]:
    """All joint values of some loops."""
    axes = np.meshgrid(*[np.arange(r.vmax + 1) for r in loops], indexing="ij")
    return {r: axis.ravel().astype(np.int64) for r, axis in zip(loops, axes, strict=True)}


def simplified(node: UOp, *loops: UOp) -> UOp:
    """The simplified node, which is checked against the original on all values of the loops."""
    after = node.simplify()
    assert_equal(node, after, grid(*loops))
    return after


def test_division_then_remainder() -> None:
    i = loop(20)
    after = simplified((i % 20) // 2 * 2 % 4, i)
    assert after is not (i % 4).simplify()
    values = evaluate(after, grid(i)).data
    assert list(values) == [(v % 20) // 2 * 2 % 4 for v in range(20)]


def test_floor_division_by_minus_two() -> None:
    a = loop(8)
    assert list(evaluate(simplified(a // -2, a), grid(a)).data) == [0, -1, -1, -2, -2, -3, -3, -4]


@pytest.mark.parametrize("divisor", [d for d in range(-7, 8) if d])
def test_sweep(divisor: int) -> None:
    x = UOp.define_var("x", -6, 6)
    given = {x: np.arange(-6, 7)}
    for c, k in itertools.product(range(-9, 10), repeat=2):
        number, values = x * c + k, np.arange(-6, 7) * c + k
        floor = (number // divisor, number % divisor)
        truncated = (number.idiv(divisor), number.mod(divisor))
        quotient = np.trunc(values / divisor).astype(np.int64)
        expected = (values // divisor, values % divisor, quotient, values - quotient * divisor)
        for node, wanted in zip((*floor, *truncated), expected, strict=True):
            assert (evaluate(node.simplify(), given).data == wanted).all(), (c, k, node)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_division_and_shifts_of_ints(dtype: object) -> None:
    for value, divisor in itertools.product(range(-9, 10), (2, 4, 8)):
        x = UOp.const(dtype, value)
        assert (x // divisor).simplify().arg == value // divisor
        assert (x % divisor).simplify().arg == value % divisor
        assert x.idiv(divisor).simplify().arg == int(value / divisor)
        assert (x >> x.dtype.bits).simplify().arg == (-1 if value < 0 else 0)
        assert (x << x.dtype.bits).simplify().arg == 0


def test_bounds_near_two_to_62() -> None:
    x = UOp.define_var("x", 0, 2**62)
    for node in ((x * 4) // 4, (x * 3) % 2, x * 2 < 5, (x * 8 + x * 8) // 16):
        after = node.simplify()
        for value in (0, 1, 2, 3, 2**61 + 1):
            assert_exact(node, x, value, after)


def assert_exact(before: UOp, x: UOp, value: int, after: UOp) -> None:
    """Both are equal at one value of x in unbounded integers."""

    def exact(node: UOp) -> int:
        if node is x:
            return value
        if node.op is Ops.CONST:
            return int(node.arg)
        a, b = (exact(s) for s in node.src)
        table = {Ops.ADD: a + b, Ops.MUL: a * b, Ops.LT: a < b, Ops.GE: a >= b}
        table |= {Ops.FLOORDIV: a // b, Ops.FLOORMOD: a % b} if b else {}
        return int(table[node.op])

    assert exact(before) == exact(after)


def test_exact_multiples() -> None:
    def folded(op: Ops, a: int, b: int) -> int:
        node = UOp.const(dtypes.int32, a).alu(op, UOp.const(dtypes.int32, b)).simplify()
        return int(node.arg)

    assert (folded(Ops.FLOORDIV, 110, 55), folded(Ops.FLOORMOD, 110, 55)) == (2, 0)
    assert folded(Ops.FLOORMOD, 2147483647, 32) == 31
    for m in range(1, 2001):
        for k in (1, 2, 55, 1000):
            assert (folded(Ops.FLOORDIV, k * m, m), folded(Ops.FLOORMOD, k * m, m)) == (k, 0)
            assert (folded(Ops.IDIV, -k * m, m), folded(Ops.MOD, -k * m, m)) == (-k, 0)


@pytest.mark.parametrize(
    ("a", "b", "expected"), [(2_000_000_000, 2_000_000_000, -294967296), (1, 2**31 - 1, -(2**31))]
)
def test_int32_wraps_when_folded(a: int, b: int, expected: int) -> None:
    x = UOp.const(dtypes.int32, a)
    assert ((x + 0) + b).simplify().arg == expected
    runs = evaluate((loaded(dtypes.int32, 0) + a) + b, {loaded(dtypes.int32, 0): np.zeros(1, "i4")})
    assert int(runs.data[0]) == expected


def test_shift_into_the_sign() -> None:
    assert (UOp.const(dtypes.int32, 1) << 31).simplify().arg == -(2**31)


def test_nan_survives() -> None:
    x = loaded(dtypes.float32, 0)
    for node in (x * 0.0, x - x, x / x, x + 0.0, x.eq(x), x.ne(x)):
        assert node.simplify() is node
    inf = UOp.const(dtypes.float32, float("inf"))
    for node in (inf * 0.0, inf - inf, UOp.const(dtypes.float32, float("nan")) * 0.0):
        assert np.isnan(node.simplify().arg)


def test_float32_too_large_for_float16() -> None:
    assert UOp.const(dtypes.float32, 65536.0).cast(dtypes.float16).simplify().arg == float("inf")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (-1.5, dtypes.int8, -1), (300.0, dtypes.uint8, 255), (-266.0, dtypes.int8, -128),
        (2147483646.0, dtypes.int32, 2147483646), (float("nan"), dtypes.int32, 0),
        (float("inf"), dtypes.int8, 127), (-float("inf"), dtypes.uint8, 0),
    ],
)  # fmt: skip
def test_casts_folded(value: float, dtype: object, expected: int) -> None:
    assert UOp.const(dtypes.float64, value).cast(dtype).simplify().arg == expected


# What the pipeline produces ----------------------------------------------------------------------

WINDOWS = [
    # row, kernel, stride, dilation
    (32, 3, 1, 1), (32, 3, 2, 1), (16, 7, 3, 1), (28, 5, 1, 1), (14, 3, 1, 2), (8, 2, 2, 1),
    (9, 1, 1, 1), (224, 7, 2, 1), (10, 3, 3, 3),
]  # fmt: skip


@pytest.mark.parametrize(("row", "kernel", "stride", "dilation"), WINDOWS)
def test_windows_of_a_repeated_row(row: int, kernel: int, stride: int, dilation: int) -> None:
    """Position (k, o) of a window is element k*(row + dilation) + o*stride of the repeated row."""
    count = (row - dilation * (kernel - 1) - 1) // stride + 1
    o, k = loop(count, 0), loop(kernel, 1)
    flat = k * (row + dilation) + o * stride
    assert simplified(flat // row, o, k) is simplified(k + 0, k)
    rest = simplified(flat % row, o, k)
    assert rest is simplified(k * dilation + o * stride, o, k)


@pytest.mark.parametrize(("row", "kernel", "stride", "dilation"), WINDOWS)
def test_windows_over_one_merged_loop(row: int, kernel: int, stride: int, dilation: int) -> None:
    count = (row - dilation * (kernel - 1) - 1) // stride + 1
    if count == 1:
        return
    f = loop(count * kernel)
    flat = (f // count) * (row + dilation) + (f % count) * stride
    after = simplified(flat // row, f)
    assert after is simplified(f // count, f)
    assert not any(n.op is Ops.FLOORDIV and n.src[1].arg == row for n in after.toposort())


@pytest.mark.parametrize(("row", "pad", "count"), [(32, 2, 3), (16, 6, 2), (7, 1, 5), (64, 3, 4)])
def test_rows_read_in_rows_of_another_length(row: int, pad: int, count: int) -> None:
    """c*row + h + p = c*(row + pad) + (h + p - c*pad): row c where the rest stays inside it."""
    p = (count - 1) * pad
    c, h = loop(count, 0), loop(row + pad - p, 1)
    flat = c * row + h + p
    assert simplified(flat // (row + pad), c, h) is c
    assert simplified(flat % (row + pad), c, h) is simplified(h + p - c * pad, c, h)
    wider = loop(row + pad - p + 1, 1)
    near_miss = simplified((c * row + wider + p) // (row + pad), c, wider)
    assert near_miss.op is not Ops.RANGE


def test_reshape_there_and_back() -> None:
    """Index (a, b, c) of (4, 6, 5), flattened, split as (8, 15), flattened again and split."""
    a, b, c = loop(4, 0), loop(6, 1), loop(5, 2)
    flat = a * 30 + b * 5 + c
    again = (flat // 15) * 15 + flat % 15
    assert simplified(again, a, b, c) is simplified(flat, a, b, c)
    assert simplified(again // 30, a, b, c) is a
    assert simplified(again // 5 % 6, a, b, c) is b
    assert simplified(again % 5, a, b, c) is c


def test_split_and_merged_loops() -> None:
    outer, inner = loop(3, 0), loop(4, 1)
    i = outer * 4 + inner
    assert simplified(i % 4, outer, inner) is inner
    assert simplified(i // 4, outer, inner) is outer
    j = loop(12, 0)
    assert simplified(j // 4 * 4 + j % 4, j) is j
    assert simplified((j // 2) % 3 * 2 + j % 2, j) is simplified(j % 6, j)
    assert simplified(j // 2 - j // 6 * 3, j) is simplified(j // 2 % 3, j)


def test_symbolic_dimension() -> None:
    n = UOp.define_var("n", 1, 64)
    i, j = loop(10, 0), UOp.range(n, 1, AxisType.LOOP)
    flat = i * n + j
    assert (flat // n).simplify() is i
    assert (flat % n).simplify() is j
    assert (j < n).simplify().arg is True
    m = n * 4
    k = loop(4, 2)
    flat = i * m + j * 4 + k
    assert (flat // m).simplify() is i
    assert (flat // 4 % n).simplify() is j
    assert (flat % m).simplify() is (j * 4 + k).simplify()
    assert (flat % m // 4).simplify() is j


def test_padding_gates() -> None:
    i = loop(34)
    gate = (i >= 1) & (i - 1 < 32) & (i - 1 >= 0)
    assert simplified(gate, i) is simplified((i >= 1) & (i < 33), i)
    assert simplified((i >= 1) & (i < 1), i).arg is False
    assert simplified((i < 20) | (i >= 10), i).arg is True
    assert simplified((i < 5) | (i < 9), i) is simplified(i < 9, i)


def test_a_long_chain_stays_linear() -> None:
    """5000 terms: each form has at most 64, so the whole is not quadratic."""
    terms = [loaded_index(i) for i in range(5000)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    after = total.simplify()
    assert after.simplify() is after


def loaded_index(slot: int) -> UOp:
    return UOp(Ops.CAST, X, (loaded(dtypes.int32, slot),))


def test_doubling_does_not_explode() -> None:
    """x + x sixty times over is one multiplication, not 2**60 terms."""
    x = UOp.define_var("x", 0, 1)
    total = x
    for _ in range(60):
        total = total + total
    after = total.simplify()
    assert after is (x * 2**60).simplify()
