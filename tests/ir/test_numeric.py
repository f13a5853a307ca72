"""What each op computes, against Python numbers: exhaustively where 8 bits allow it."""

from __future__ import annotations

import ctypes
import ctypes.util
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok.dtype import cast_value, dtypes
from morok.ir import GroupOp, Ops, ReduceOp
from morok.ir import numeric as nm


def calc(op, dtype, *args, result=None):
    kind = nm.carrier(dtype)
    return nm.compute(op, result or dtype, [np.array(arg, kind) for arg in args])


def truncated(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def int_power(a, b):
    if b >= 0:
        return a**b
    return a ** (b % 2) if a in (1, -1) else 0


BINARY = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else 0,
    Ops.FLOORMOD: lambda a, b: a % b if b else 0,
    Ops.IDIV: lambda a, b: truncated(a, b) if b else 0,
    Ops.MOD: lambda a, b: a - truncated(a, b) * b if b else 0,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.POW: int_power,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.SHL: lambda a, b: a << b if 0 <= b < 8 else 0,
    Ops.SHR: lambda a, b: a >> b if 0 <= b < 8 else -(a < 0),
    Ops.LT: lambda a, b: a < b,
    Ops.LE: lambda a, b: a <= b,
    Ops.GT: lambda a, b: a > b,
    Ops.GE: lambda a, b: a >= b,
    Ops.EQ: lambda a, b: a == b,
    Ops.NE: lambda a, b: a != b,
}
UNARY = {
    Ops.NEG: lambda a: -a,
    Ops.NOT: lambda a: ~a,
    Ops.ABS: abs,
    Ops.SIGN: lambda a: (a > 0) - (a < 0),
    Ops.SQUARE: lambda a: a * a,
    Ops.TRUNC: lambda a: a,
    Ops.FLOOR: lambda a: a,
    Ops.CEIL: lambda a: a,
    Ops.ROUND: lambda a: a,
}


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_every_pair_of_bytes(op, dtype):
    low = -128 if dtype is dtypes.int8 else 0
    values = range(low, low + 256)
    a, b = (grid.ravel() for grid in np.meshgrid(values, values, indexing="ij"))
    result = dtypes.bool_ if op in GroupOp.Comparison else dtype
    expected = [
        cast_value(int(BINARY[op](int(x), int(y))), result) for x, y in zip(a, b, strict=True)
    ]
    assert calc(op, dtype, a, b, result=result).tolist() == expected


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_every_byte(op, dtype):
    low = -128 if dtype is dtypes.int8 else 0
    expected = [cast_value(UNARY[op](value), dtype) for value in range(low, low + 256)]
    assert calc(op, dtype, range(low, low + 256)).tolist() == expected


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64, dtypes.int32], ids=str)
@pytest.mark.parametrize("op", [*BINARY][:10], ids=lambda op: op.name)
def test_the_ends_of_wide_ints(op, dtype):
    bits = dtype.bits
    low = 0 if dtype.is_unsigned else -(1 << (bits - 1))
    high = low + (1 << bits) - 1
    picked = [low, low + 1, high - 1, high, 0, 1, 2, 3, 7, high // 3]
    picked += [] if dtype.is_unsigned else [-1, -2, -7]
    a, b = zip(*((x, y) for x in picked for y in picked), strict=True)
    if op is Ops.POW:
        a, b = zip(*((x, y) for x, y in zip(a, b, strict=True) if abs(y) < 100), strict=True)
    expected = [cast_value(BINARY[op](x, y), dtype) for x, y in zip(a, b, strict=True)]
    assert calc(op, dtype, a, b).tolist() == expected


def test_wide_shifts():
    assert calc(Ops.SHL, dtypes.int32, [1, 1, 1, 1], [31, 32, 33, -1]).tolist() == [
        -(2**31),
        0,
        0,
        0,
    ]
    assert calc(Ops.SHR, dtypes.int64, [-5, -5, 5], [63, 64, 64]).tolist() == [-1, -1, 0]
    assert calc(Ops.SHR, dtypes.uint32, [2**32 - 1, 7], [31, 32]).tolist() == [1, 0]


def test_bool_arithmetic_is_logical():
    a, b = [False, False, True, True], [False, True, False, True]
    for op, expected in {
        Ops.ADD: [False, True, True, True],
        Ops.MUL: [False, False, False, True],
        Ops.MAX: [False, True, True, True],
        Ops.MIN: [False, False, False, True],
        Ops.XOR: [False, True, True, False],
        Ops.LT: [False, True, False, False],
    }.items():
        assert calc(op, dtypes.bool_, a, b).tolist() == expected
    assert calc(Ops.NOT, dtypes.bool_, a).tolist() == [True, True, False, False]


# Floats ------------------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_float_specials(dtype):
    def same(op, args, expected):
        found = calc(op, dtype, *args)
        want = np.array(expected, nm.carrier(dtype))
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(want))

    same(Ops.FDIV, ([1, -1, 0, INF], [0, 0, 0, INF]), [INF, -INF, -NAN, -NAN])
    same(Ops.MAX, ([1, NAN, 1], [NAN, 1, 2]), [NAN, NAN, 2])
    same(Ops.MIN, ([1, NAN, 1], [NAN, 1, 2]), [NAN, NAN, 1])
    same(Ops.ROUND, ([0.5, 1.5, 2.5, -0.5, -0.2],), [0, 2, 2, -0.0, -0.0])
    same(Ops.TRUNC, ([1.7, -1.7, -0.3],), [1, -1, -0.0])
    same(Ops.FLOOR, ([1.7, -1.7],), [1, -2])
    same(Ops.CEIL, ([1.2, -1.7, -0.5],), [2, -1, -0.0])
    same(Ops.SIGN, ([3, -3, 0, NAN],), [1, -1, 0, NAN])
    same(Ops.FLOORDIV, ([7, -7, 7, -7], [2, 2, -2, -2]), [3, -4, -4, 3])
    same(Ops.FLOORMOD, ([7, -7, 7, -7], [2, 2, -2, -2]), [1, 1, -1, -1])
    same(Ops.IDIV, ([7, -7], [2, 2]), [3, -3])
    same(Ops.MOD, ([7, -7], [2, 2]), [1, -1])
    same(Ops.SQRT, ([4, 2],), [2, np.sqrt(np.array(2, nm.carrier(dtype)))])
    same(Ops.POW, ([2, -2, 0, 2], [0.5, 3, -1, 3]), [math.sqrt(2), -8, INF, 8])
    same(Ops.MULACC, ([2], [3], [4]), [10])
    same(Ops.WHERE, ([True, False], [1, 1], [2, 2]), [1, 2])


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (Ops.EXP, math.exp),
        (Ops.EXP2, lambda x: 2.0**x),
        (Ops.SIN, math.sin),
        (Ops.COS, math.cos),
        (Ops.TAN, math.tan),
        (Ops.ERF, math.erf),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_transcendentals_are_rounded_once(op, function):
    points = np.array([-30.5, -1.0, -0.1, 0.0, 1e-8, 0.3, 2.0, 17.25, 1e4], np.float32)
    points = points[points < 50] if op in (Ops.EXP, Ops.EXP2) else points
    expected = np.array([function(float(x)) for x in points]).astype(np.float32)
    np.testing.assert_array_equal(calc(op, dtypes.float32, points), expected)


def test_logarithms_and_roots():
    points = np.array([1e-30, 0.1, 1.0, 7.5, 1e20], np.float32)
    for op, function in {
        Ops.LOG: math.log,
        Ops.LOG2: math.log2,
        Ops.RSQRT: lambda x: 1 / math.sqrt(x),
        Ops.RECIPROCAL: lambda x: 1 / x,
    }.items():
        expected = np.array([function(float(x)) for x in points]).astype(np.float32)
        np.testing.assert_array_equal(calc(op, dtypes.float32, points), expected)
    assert calc(Ops.LOG, dtypes.float32, [0.0]).tolist() == [-INF]
    assert np.isnan(calc(Ops.LOG, dtypes.float32, [-1.0])).all()


def test_half_is_computed_in_float32_and_rounded_where_it_settles():
    sum_ = calc(Ops.ADD, dtypes.float16, [60000.0], [60000.0])
    assert sum_.dtype == np.float32
    assert sum_.tolist() == [120000.0]
    assert nm.settle(sum_, dtypes.float16).tolist() == [INF]
    assert nm.to_memory(np.array([0.1], np.float32), dtypes.float16).dtype == np.float16


# Conversion --------------------------------------------------------------------------------------

NARROW = [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrowing_rounds_once(dtype, rng):
    spread = rng.standard_normal(3000) * 10.0 ** rng.integers(-45, 40, 3000)
    edges = [0.0, -0.0, INF, -INF, NAN, 448, 464, 465, 57344, 61440, 61441, 65519, 65520, 1e-40]
    values = np.concatenate([spread, edges])
    found = nm.cast(values, dtype)
    expected = np.array([cast_value(float(value), dtype) for value in values], np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    ints = [2**63 - 1, -(2**62) - 12345678901, 2**53 + 1, 2**24 + 1, 257, -7]
    found = nm.cast(np.array(ints, np.int64), dtype)
    assert found.tolist() == [cast_value(value, dtype) for value in ints]


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool_, dtypes.index], ids=str)
def test_floats_to_ints_saturate(dtype):
    values = [0.0, -0.9, 1.9, -1.9, 127.5, 300.0, -300.0, 1e20, -1e20, INF, -INF, NAN, 2.0**63]
    found = nm.cast(np.array(values), dtype)
    assert found.tolist() == [cast_value(value, dtype) for value in values]
    assert found.dtype == nm.carrier(dtype)


def test_ints_to_ints_wrap():
    values = np.array([-1, 255, 256, 2**31, -(2**40)], np.int64)
    for dtype in dtypes.ints:
        assert nm.cast(values, dtype).tolist() == [cast_value(int(v), dtype) for v in values]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_bitcast_goes_both_ways(dtype):
    bits = dtypes.uint16 if dtype.bits == 16 else dtypes.uint8
    codes = np.arange(1 << dtype.bits).astype(nm.carrier(bits))
    values = nm.bitcast(codes, bits, dtype)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(nm.bitcast(values, dtype, bits)[numbers], codes[numbers])


def test_bitcast_of_usual_types_and_of_lanes():
    one = np.array([1.0, -0.0], np.float32)
    assert nm.bitcast(one, dtypes.float32, dtypes.uint32).tolist() == [0x3F800000, 0x80000000]
    lanes = np.array([[0, 0, 128, 63]], np.uint8)
    packed = nm.bitcast(lanes, dtypes.uint8.vec(4), dtypes.float32)
    assert packed.tolist() == [1.0]
    split = nm.bitcast(packed, dtypes.float32, dtypes.uint16.vec(2))
    assert split.tolist() == [[0, 0x3F80]]


# Reduction ---------------------------------------------------------------------------------------


def test_reductions():
    x = np.array([[1.0, NAN, 3.0], [4.0, 5.0, 6.0]], np.float32)
    assert nm.reduce(ReduceOp.ADD, dtypes.float32, x, (0,)).tolist()[::2] == [5.0, 9.0]
    top = nm.reduce(ReduceOp.MAX, dtypes.float32, x, (1,))
    assert math.isnan(top[0])
    assert top[1] == 6.0
    assert nm.reduce(ReduceOp.MIN, dtypes.float32, x[1:], (0, 1)) == 4.0
    wrapped = nm.reduce(ReduceOp.ADD, dtypes.int8, np.array([100, 100], np.int8), (0,))
    assert wrapped == -56
    assert wrapped.dtype == np.int8
    assert nm.reduce(ReduceOp.ADD, dtypes.bool_, np.array([True, True]), (0,)).tolist() is True
    assert nm.reduce(ReduceOp.MUL, dtypes.int32, np.array([3, 4, 5], np.int32), (0,)) == 60


@pytest.mark.parametrize("op", ReduceOp, ids=str)
def test_an_empty_reduction_is_the_identity(op):
    for dtype in (dtypes.float32, dtypes.int16, dtypes.bool_):
        empty = np.zeros((2, 0), nm.carrier(dtype))
        assert nm.reduce(op, dtype, empty, (1,)).tolist() == [op.identity(dtype)] * 2


def test_a_float_sum_is_as_good_as_float64():
    values = np.full(10_001, 0.1, np.float32)
    exact = math.fsum(float(value) for value in values)
    assert nm.reduce(ReduceOp.ADD, dtypes.float32, values, (0,)) == np.float32(exact)


# Threefry ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123's known answers for threefry2x32 with 20 rounds, low words first
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(counter, key, expected):
    words = [low | high << 32 for low, high in (counter, key, expected)]
    found = calc(Ops.THREEFRY, dtypes.uint64, [words[0]], [words[1]])
    assert found.tolist() == [words[2]]


def test_every_alu_op_has_a_meaning():
    for op in GroupOp.ALU:
        assert op in nm._COMPUTE


# ---- multiply-add --------------------------------------------------------------------------------

LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))


def fused(single: bool, a: float, b: float, c: float) -> float:
    function, kind = (LIBRARY.fmaf, ctypes.c_float) if single else (LIBRARY.fma, ctypes.c_double)
    function.restype, function.argtypes = kind, [kind] * 3
    return float(function(a, b, c))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@given(data=st.data())
def test_a_multiply_add_rounds_once(dtype, data):
    """As the C library's; c often cancels most of a*b or lies far below it."""
    floats = st.floats(width=32 if dtype is dtypes.float32 else 64)
    a, b = data.draw(floats), data.draw(floats)
    kind = nm.carrier(dtype).type
    with np.errstate(all="ignore"):
        product = kind(a) * kind(b)
        scale = data.draw(st.sampled_from([1.0, -1.0, 2.0**-24, 2.0**-53, -(2.0**30), 2.0**-60]))
        c = data.draw(st.one_of(floats, st.just(float(product * kind(scale)))))
        c = float(kind(c))
    got = calc(Ops.MULACC, dtype, [a], [b], [c])
    want = fused(dtype is dtypes.float32, a, b, c)
    np.testing.assert_array_equal(got, np.array([want], got.dtype))
    assert math.isnan(want) or np.signbit(got[0]) == np.signbit(want)
