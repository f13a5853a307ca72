"""Integers: the table of numbers, computed lazily, step by step and folded, against Python's ints.

Two's complement in the dtype's own width, floor division, zero for what is divided by zero, and
shifts that shift everything out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ways import WAYS, Function, folded, lazy, same, stepwise

from morok.dtype import dtypes
from morok.tensor import Tensor

INTS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]


def wrapped(value: int, dtype: np.dtype) -> int:
    """`value` in the dtype's width."""
    info = np.iinfo(dtype)
    return (value - int(info.min)) % (1 << info.bits) + int(info.min)


def exactly(function: Callable[..., int], *arrays: np.ndarray) -> np.ndarray:
    """`function` of Python's ints, wrapped to the arrays' dtype."""
    dtype = arrays[0].dtype
    rows = [row.reshape(-1).tolist() for row in np.broadcast_arrays(*arrays)]
    values = [wrapped(function(*element), dtype) for element in zip(*rows, strict=True)]
    return np.array(values, dtype).reshape(np.broadcast_shapes(*(a.shape for a in arrays)))


def floor_division(a: int, b: int) -> int:
    return a // b if b else 0


def floor_remainder(a: int, b: int) -> int:
    return a % b if b else 0


def corners(dtype: type) -> np.ndarray:
    """Both ends, the middle, and some in between."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    values = {low, low + 1, high, high - 1, high // 2, high // 3, 0, 1, 2, 3, 5, 7, 100, 126}
    if low:
        values |= {-1, -2, -3, -7, low // 2}
    return np.array(sorted(values), dtype)


ARITHMETIC: list[tuple[str, Function, Callable[..., int]]] = [
    ("add", lambda a, b: a + b, lambda a, b: a + b),
    ("sub", lambda a, b: a - b, lambda a, b: a - b),
    ("mul", lambda a, b: a * b, lambda a, b: a * b),
    ("floor_divide", lambda a, b: a // b, floor_division),
    ("remainder", lambda a, b: a % b, floor_remainder),
    ("maximum", lambda a, b: a.maximum(b), max),
    ("minimum", lambda a, b: a.minimum(b), min),
    ("and", lambda a, b: a & b, lambda a, b: a & b),
    ("or", lambda a, b: a | b, lambda a, b: a | b),
    ("xor", lambda a, b: a ^ b, lambda a, b: a ^ b),
    ("twice", lambda a, b: (a + b) + b, lambda a, b: a + b + b),
    ("square", lambda a, b: a * a - b * b, lambda a, b: a * a - b * b),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", INTS)
def test_arithmetic_is_pythons_wrapped_to_the_width(way: Callable, dtype: type) -> None:
    x = corners(dtype)
    a, b = x[:, None], x[None, :]
    if way is folded:  # a constant at a time: a part of the table
        a, b = a[::3], b[:, ::2]
    a, b = np.broadcast_arrays(a, b)
    results = way([function for _, function, _ in ARITHMETIC], a.copy(), b.copy())
    for (name, _, exact), got in zip(ARITHMETIC, results, strict=True):
        same(got, exactly(exact, a, b), name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_minus_and_absolute_value_of_the_smallest(way: Callable, dtype: type) -> None:
    x = corners(dtype)
    minus, absolute = way([lambda a: -a, lambda a: abs(a)], x)
    same(minus, exactly(lambda a: -a, x))
    same(absolute, exactly(abs, x))


def shifted_left(a: int, n: int, bits: int) -> int:
    return a << n if n < bits else 0


def shifted_right(a: int, n: int, bits: int) -> int:
    return a >> min(n, bits)  # beyond the width the sign is left, 0 of an unsigned number


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", INTS)
def test_shifts_at_and_beyond_the_width(way: Callable, dtype: type) -> None:
    bits = np.iinfo(dtype).bits
    x = corners(dtype)[::2]
    counts = np.array([0, 1, 3, bits - 1, bits, bits + 1, min(2 * bits, 127), 127], dtype)
    a, n = map(np.copy, np.broadcast_arrays(x[:, None], counts[None, :]))
    left, right = way([lambda a, n: a << n, lambda a, n: a >> n], a, n)
    same(left, exactly(lambda a, n: shifted_left(a, n, bits), a, n))
    same(right, exactly(lambda a, n: shifted_right(a, n, bits), a, n))


@pytest.mark.parametrize("way", [lazy, stepwise])
def test_shifts_by_a_number_in_the_program(way: Callable) -> None:
    """Counts known when compiling, and 1 << 31."""
    x = np.array([1, -1, 5, -(2**31), 2**31 - 1], np.int32)
    for count in (0, 1, 31, 32, 40, 64):
        left, right = way([lambda a, n=count: a << n, lambda a, n=count: a >> n], x)
        same(left, exactly(lambda a, n=count: shifted_left(a, n, 32), x), f"<< {count}")
        same(right, exactly(lambda a, n=count: shifted_right(a, n, 32), x), f">> {count}")


def test_case_2_floor_division_by_constants() -> None:
    """`a // -2` for 0..7, and (c*x + k) // d and % d over a grid."""
    a = np.arange(8, dtype=np.int32)
    wanted = np.array([0, -1, -1, -2, -2, -3, -3, -4], np.int32)
    for way in WAYS:
        same(way([lambda a: a // -2], a)[0], wanted)
    x = np.arange(-6, 7, dtype=np.int32)
    c, k = (np.arange(-9, 10, dtype=np.int32).reshape(s) for s in ((-1, 1, 1), (1, -1, 1)))
    functions: list[Function] = []
    exact: list[np.ndarray] = []
    for d in (-7, -4, -1, 1, 2, 3, 5, 7):
        functions += [
            lambda x, c, k, d=d: (c * x + k) // d,
            lambda x, c, k, d=d: (c * x + k) % d,
        ]
        exact += [(c * x + k) // np.int32(d), (c * x + k) % np.int32(d)]
    for got, wanted in zip(lazy(functions, x, c, k), exact, strict=True):
        same(got, wanted)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_case_3_division_rounds_down(way: Callable, dtype: type) -> None:
    x = np.arange(-9, 10, dtype=dtype)
    for d in (2, 4, 8):
        quotient, remainder, half = way(
            [lambda a, d=d: a // d, lambda a, d=d: a % d, lambda a, d=d: a >> d.bit_length() - 1], x
        )
        same(quotient, exactly(lambda a, d=d: a // d, x))
        same(remainder, exactly(lambda a, d=d: a % d, x))
        same(half, quotient)


def test_case_23_exact_quotients() -> None:
    """Exact multiples and their neighbours, by a divisor in memory and by one in the program."""
    k, m = np.arange(1, 2001, 7, dtype=np.int32)[:, None], np.arange(1, 2001, 13, dtype=np.int32)
    quotients, below, rest = lazy(
        [lambda p, m: p // m, lambda p, m: (p - 1) // m, lambda p, m: p % m], k * m, m
    )
    same(quotients, np.broadcast_to(k, (k * m).shape))
    same(below, np.broadcast_to(k - 1, (k * m).shape))
    same(rest, np.zeros_like(k * m))
    x = np.array([110, 2147483647, -2147483648], np.int32)
    for way in WAYS:
        q, r, low = way([lambda a: a // 55, lambda a: a % 55, lambda a: a % 32], x)
        same(q, np.array([2, 39045157, -39045158], np.int32))
        same(r, np.array([0, 12, 42], np.int32))
        same(low, np.array([14, 31, 0], np.int32))


@pytest.mark.parametrize("way", WAYS)
def test_case_24_sums_wrap(way: Callable) -> None:
    zero = np.zeros(3, np.int32)
    for got in way([lambda a: (a + 2_000_000_000) + 2_000_000_000], zero):
        same(got, np.full(3, -294967296, np.int32))
    for got in way([lambda a: (a + 1) << 31], zero):
        same(got, np.full(3, -(2**31), np.int32))


@pytest.mark.parametrize("way", WAYS)
def test_narrow_arithmetic_wraps_before_it_is_widened(way: Callable) -> None:
    a, b = np.array([100, -128, 127], np.int8), np.array([100, -1, 1], np.int8)
    (wide,) = way([lambda a, b: (a + b).cast(dtypes.int32)], a, b)
    same(wide, np.array([-56, 127, -128], np.int32))
    (product,) = way([lambda a, b: (a * b).cast(dtypes.int64) + 1], a, b)
    same(product, np.array([17, -127, 128], np.int64))
    (u,) = way([lambda a: (a + 100).cast(dtypes.int32)], np.array([200, 155, 156], np.uint8))
    same(u, np.array([44, 255, 0], np.int32))


@pytest.mark.parametrize("way", [lazy, stepwise])
def test_sums_of_narrow_ints_are_wide(way: Callable) -> None:
    """300 ones of uint8 are 300, bools count, and what is summed wrapped before."""
    ones = np.ones(300, np.uint8)
    for got in way([lambda x: x.sum()], ones):
        assert got == 300
        assert got.dtype in (np.int32, np.uint32)
    (count, any_of) = way([lambda x: x.sum(), lambda x: (x & ~x).sum()], ones.astype(bool))
    assert (count, count.dtype, any_of) == (300, np.int32, 0)
    deep = np.full((3, 400), -128, np.int8)
    (rows, total, top) = way(
        [lambda x: x.sum(1), lambda x: x.sum(), lambda x: (x + x).sum(0)], deep
    )
    same(rows, np.full(3, -51200, np.int32))
    same(total, np.int32(-153600))
    same(top, np.zeros(400, np.int32))
    (wide,) = way([lambda x: x.sum()], np.full(3, 2**30, np.int32))
    same(wide, np.int32(3 * 2**30 - 2**32))


def test_extremes_of_ints() -> None:
    """The ends of each dtype: maxima that are the identity of the maximum."""
    for dtype in INTS:
        info = np.iinfo(dtype)
        x = np.array([[info.min, info.min], [info.max, info.min], [3, 3]], dtype)
        high, low, where_high, where_low = lazy(
            [lambda t: t.max(1), lambda t: t.min(1), lambda t: t.argmax(1), lambda t: t.argmin(1)],
            x,
        )
        same(high, x.max(1))
        same(low, x.min(1))
        same(where_high, np.array([0, 0, 0], np.int32))
        same(where_low, np.array([0, 1, 0], np.int32))
    assert (~Tensor([2, 2])).argmax().item() == 0
    assert Tensor([2, 2]).argmin().item() == 0
