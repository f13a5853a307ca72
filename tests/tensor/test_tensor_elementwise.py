"""Operators, promotion, broadcasting, comparisons and functions of one element, against NumPy."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from morok import config
from morok.dtype import dtypes
from morok.errors import DTypeError, ShapeError
from morok.tensor import Tensor

INTS = np.array([[-7, 3, 0], [2, -1, 5]], np.int32)
MORE = np.array([[2, -3, 1], [0, 4, -5]], np.int32)
FLOATS = np.array([[-1.5, 0.25, 3.0], [2.0, -0.5, 0.0]], np.float32)


def check(got: Tensor, wanted: np.ndarray) -> None:
    assert got.shape == wanted.shape
    assert got.numpy().dtype == wanted.dtype
    np.testing.assert_array_equal(got.numpy(), wanted)


ARITHMETIC = [operator.add, operator.sub, operator.mul]


def test_int_operators_are_numpys() -> None:
    a, b = Tensor(INTS), Tensor(MORE)
    ops = [*ARITHMETIC, operator.and_, operator.or_, operator.xor]
    got = [op(a, b) for op in ops]
    Tensor.realize(*got)
    for op, tensor in zip(ops, got, strict=True):
        check(tensor, op(INTS, MORE))


def test_division_of_ints_floors_and_gives_zero_for_zero() -> None:
    a, b = Tensor(INTS), Tensor(MORE)
    quotient, rest = a // b, a % b
    Tensor.realize(quotient, rest)
    safe = np.where(MORE == 0, 1, MORE)
    check(quotient, np.where(MORE == 0, 0, INTS // safe).astype(np.int32))
    check(rest, np.where(MORE == 0, 0, INTS % safe).astype(np.int32))


def test_comparisons_give_bools() -> None:
    a, b = Tensor(INTS), Tensor(MORE)
    ops = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
    got = [op(a, b) for op in ops]
    Tensor.realize(*got)
    for op, tensor in zip(ops, got, strict=True):
        check(tensor, op(INTS, MORE))
    assert Tensor(1).__eq__(None) is NotImplemented


def test_reflected_and_numpy_operands() -> None:
    x = Tensor(FLOATS)
    got = [2 - x, 3 * x, FLOATS + x, x - FLOATS, 1 / (x + 5), np.float64(2) * x]
    Tensor.realize(*got)
    wanted = [2 - FLOATS, 3 * FLOATS, FLOATS * 2, FLOATS * 0, 1 / (FLOATS + 5), 2 * FLOATS]
    for tensor, value in zip(got, wanted, strict=True):
        assert isinstance(tensor, Tensor)
        check(tensor, value.astype(np.float32))


def test_shifts_beyond_the_width() -> None:
    x = Tensor(np.array([-8, 1, 7], np.int32))
    left, right = x << 40, x >> 40
    Tensor.realize(left, right)
    check(left, np.zeros(3, np.int32))
    check(right, np.array([-1, 0, 0], np.int32))


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        (dtypes.int8, dtypes.uint8, dtypes.int16),
        (dtypes.int32, dtypes.float16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.bool, dtypes.int8, dtypes.int8),
        (dtypes.uint64, dtypes.int64, dtypes.float32),
    ],
)
def test_promotion_is_the_lattices(left, right, wanted) -> None:
    a, b = Tensor.ones(2, dtype=left), Tensor.ones(2, dtype=right)
    assert (a + b).dtype is wanted
    assert (b * a).dtype is wanted


@pytest.mark.parametrize(
    ("dtype", "scalar", "wanted"),
    [
        (dtypes.int8, 1, dtypes.int8),
        (dtypes.int8, 1.0, dtypes.float32),
        (dtypes.float16, 2.5, dtypes.float16),
        (dtypes.bool, True, dtypes.bool),
        (dtypes.bool, 1, dtypes.int32),
        (dtypes.uint8, True, dtypes.uint8),
    ],
)
def test_python_scalars_are_weak(dtype, scalar, wanted) -> None:
    assert (Tensor.ones(2, dtype=dtype) * scalar).dtype is wanted


def test_default_dtypes_follow_the_settings() -> None:
    with config.override(default_float="float64", default_int="int64"):
        assert Tensor([1, 2]).dtype is dtypes.int64
        assert (Tensor.ones(2, dtype=dtypes.int8) / 2).dtype is dtypes.float64
    assert (Tensor([1, 2]) / 2).dtype is dtypes.float32


def test_scalar_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DTypeError, match="300 does not fit"):
        Tensor.ones(2, dtype=dtypes.uint8) + 300
    with pytest.raises(DTypeError, match="-1 does not fit"):
        Tensor.ones(2, dtype=dtypes.uint8).lt(-1)


def test_broadcasting() -> None:
    a, b = np.arange(3, dtype=np.int32), np.arange(8, dtype=np.int32).reshape(4, 2, 1)
    check(Tensor(a) + Tensor(b), a + b)
    check(Tensor(5) + Tensor(a), 5 + a)
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(2,\)"):
        Tensor(a) + Tensor([1, 2])


def test_bools_have_logic_but_no_subtraction() -> None:
    a, b = Tensor([True, False, True]), Tensor([True, True, False])
    got = [a & b, a | b, a ^ b, ~a, a + b, a * b]
    Tensor.realize(*got)
    wanted = [[1, 0, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0], [1, 1, 1], [1, 0, 0]]
    assert [tensor.tolist() for tensor in got] == [list(map(bool, row)) for row in wanted]
    with pytest.raises(DTypeError, match="sub"):
        a.sub(b)
    with pytest.raises(DTypeError, match="neg"):
        a.neg()
    with pytest.raises(DTypeError, match="bitwise_and"):
        Tensor([1.0]).bitwise_and(Tensor([1.0]))


def test_exclusive_or_of_truths_and_dot() -> None:
    a, b = np.array([0, 2, 0, -1]), np.array([0.0, 0.0, 0.5, 3.0])
    np.testing.assert_array_equal(
        Tensor(a).logical_xor(Tensor(b)).numpy(), np.logical_xor(a, b), strict=True
    )
    assert Tensor(b).dot(Tensor(b)).item() == b.dot(b)


def test_powers() -> None:
    x = Tensor(np.array([0.5, 1.0, 2.0, 9.0]))
    got = [x**2, x**3, x**0.5, x**-1, x**0, x**1.7, 2**x, x**x, Tensor([2, 3]) ** 3]
    Tensor.realize(*got)
    v = x.numpy()
    wanted = [v**2, v**3, v**0.5, v**-1.0, v**0, v**1.7, 2**v, v**v, np.array([8, 27])]
    for tensor, value in zip(got, wanted, strict=True):
        np.testing.assert_allclose(tensor.numpy(), value, rtol=1e-14)
    # The exponent's kind counts in promotion as any operand's.
    assert [(Tensor([3]) ** e).dtype for e in (2, 2.0)] == [dtypes.int32, dtypes.float32]
    assert (Tensor([True]) ** 2).dtype is (Tensor([True]) * 2).dtype


UNARY = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "reciprocal": lambda v: 1 / v,
    "rsqrt": lambda v: 1 / np.sqrt(v),
    "erf": np.vectorize(math.erf),
    "square": np.square,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
}


def test_functions_of_one_element(rng) -> None:
    v = rng.uniform(0.01, 3, 50)
    x = Tensor(v)
    got = [getattr(x, name)() for name in UNARY]
    Tensor.realize(*got)
    for (name, function), tensor in zip(UNARY.items(), got, strict=True):
        np.testing.assert_allclose(tensor.numpy(), function(v), rtol=1e-13, err_msg=name)


def test_functions_of_ints_give_the_default_float() -> None:
    assert Tensor([1, 4]).sqrt().dtype is dtypes.float32
    assert Tensor([1, 4]).floor().dtype is dtypes.int32


def test_rounding_halves_to_even_and_keeps_the_sign_of_zero() -> None:
    x = Tensor([2.5, -2.5, 1.5, -1.5, 0.5, -0.5])
    got = [x.round(), x.floor(), x.ceil(), x.trunc()]
    Tensor.realize(*got)
    assert got[0].tolist() == [2, -2, 2, -2, 0, 0]
    assert np.signbit(got[0].numpy()).tolist() == [False, True] * 3
    assert got[1].tolist() == [2, -3, 1, -2, 0, -1]
    assert got[2].tolist() == [3, -2, 2, -1, 1, 0]
    assert got[3].tolist() == [2, -2, 1, -1, 0, 0]


def test_not_a_number() -> None:
    x = Tensor([1.0, math.nan, math.inf, -math.inf])
    got = [x.isnan(), x.isinf(), x.isfinite(), x.maximum(0), x.minimum(0), x.sign(), x - x]
    Tensor.realize(*got)
    assert got[0].tolist() == [False, True, False, False]
    assert got[1].tolist() == [False, False, True, True]
    assert got[2].tolist() == [True, False, False, False]
    np.testing.assert_array_equal(got[3].numpy(), [1, math.nan, math.inf, 0])
    np.testing.assert_array_equal(got[4].numpy(), [0, math.nan, 0, -math.inf])
    np.testing.assert_array_equal(got[5].numpy(), [1, math.nan, 1, -1])
    np.testing.assert_array_equal(got[6].numpy(), [0, math.nan, math.nan, math.nan])
    assert Tensor([1, 2]).isnan().tolist() == [False, False]


def test_where_takes_the_condition_first() -> None:
    condition, x = Tensor([True, False, True]), Tensor([1, 2, 3])
    got = [
        Tensor.where(condition, x, 0),
        condition.where(1.5, x),
        x.where(condition, -1),
        condition.where(1, 0),
        Tensor([[True], [False]]).where(x, 9),
        x.masked_fill(condition, 7),
    ]
    Tensor.realize(*got)
    assert [t.tolist() for t in got[:4]] == [[1, 0, 3], [1.5, 2, 1.5], [1, -1, 3], [1, 0, 1]]
    assert got[4].tolist() == [[1, 2, 3], [9, 9, 9]]
    assert got[5].tolist() == [7, 2, 7]
    with pytest.raises(DTypeError, match="where"):
        x.where(1, 2)


def test_clamp() -> None:
    x = Tensor([-2.0, 0.5, 3.0, math.nan])
    got = [x.clamp(0, 1), x.clip(max=0.25), x.clamp(min=Tensor([1.0, 1, 1, 1]))]
    Tensor.realize(*got)
    np.testing.assert_array_equal(got[0].numpy(), np.float32([0, 0.5, 1, math.nan]))
    np.testing.assert_array_equal(got[1].numpy(), np.float32([-2, 0.25, 0.25, math.nan]))
    np.testing.assert_array_equal(got[2].numpy(), np.float32([1, 1, 3, math.nan]))


def test_casts_saturate_and_wrap() -> None:
    x = Tensor(np.array([-1.5, 300, -266, 2147483646.0, math.nan, math.inf, -math.inf]))
    got = [x.cast(dtypes.uint8), x.cast(dtypes.int8), x.cast(dtypes.int32), x.cast(dtypes.bool)]
    got.append(Tensor([300, -1]).cast(dtypes.uint8))
    got.append(Tensor([65536.0]).half())
    Tensor.realize(*got)
    assert got[0].tolist() == [0, 255, 0, 255, 0, 255, 0]
    assert got[1].tolist() == [-1, 127, -128, 127, 0, 127, -128]
    assert got[2].tolist() == [-1, 300, -266, 2147483646, 0, 2**31 - 1, -(2**31)]
    assert got[3].tolist() == [True] * 7
    assert got[4].tolist() == [44, 255]
    assert got[5].tolist() == [math.inf]


def test_bitcast() -> None:
    assert Tensor([1.0, -2.0]).bitcast(dtypes.uint32).tolist() == [0x3F800000, 0xC0000000]
    with pytest.raises(DTypeError, match="width"):
        Tensor([1.0]).bitcast(dtypes.int64)


def test_integers_wrap() -> None:
    x = Tensor(np.array([0], np.int32))
    assert (((x + 2_000_000_000) + 2_000_000_000).item(), (Tensor(1) << 31).item()) == (
        -294967296,
        -(2**31),
    )


ACTIVATIONS = {
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "hardtanh": lambda v: np.clip(v, -1, 1),
    "leaky_relu": lambda v: np.where(v > 0, v, 0.01 * v),
    "elu": lambda v: np.where(v > 0, v, np.expm1(np.minimum(v, 0))),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "silu": lambda v: v / (1 + np.exp(-v)),
    "softplus": lambda v: np.logaddexp(v, 0),
    "logsigmoid": lambda v: -np.logaddexp(-v, 0),
    "gelu": lambda v: v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2))),
    "softsign": lambda v: v / (1 + np.abs(v)),
    "hardsigmoid": lambda v: np.clip(v + 3, 0, 6) / 6,
    "hardswish": lambda v: v * np.clip(v + 3, 0, 6) / 6,
    "mish": lambda v: v * np.tanh(np.logaddexp(v, 0)),
}


def test_activations() -> None:
    v = np.array([-60.0, -3, -1.2, -1e-3, 0, 0.4, 2, 7, 60])
    x = Tensor(v)
    got = [getattr(x, name)() for name in ACTIVATIONS]
    Tensor.realize(*got)
    for (name, function), tensor in zip(ACTIVATIONS.items(), got, strict=True):
        wanted = function(v)
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-12, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tanh_is_accurate_everywhere(dtype) -> None:
    v = np.concatenate([np.logspace(-8, 2, 400), [0.625, 0.62499, 0, np.inf]]).astype(dtype)
    v = np.concatenate([-v, v])
    wanted = np.tanh(v.astype(np.longdouble))
    error = np.abs(Tensor(v).tanh().numpy() - wanted) / np.spacing(np.abs(wanted).astype(dtype))
    assert error.max() < 3
