"""Bounds of nodes: of leaves, choices, vectors and loops, of divisions by constants, and near the
limits of int64. `test_intervals` has every transfer at 8 bits.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok.dtype import DType, dtypes
from morok.ir import AxisType, DeviceSpec, Invalid, Ops, ReduceOp, UOp, numeric

X = dtypes.index


def variable(dtype: DType, low: int, high: int) -> UOp:
    """A node of a dtype that can be anything in [low, high]."""
    if dtype is dtypes.bool_ and (low, high) == (0, 1):
        return UOp.define_var("v", 0, 1).ne(0)
    if dtype is not X and low == high:
        return UOp.const(dtype, low)
    node = UOp.define_var("v", low, high)
    return node if dtype is X else node.cast(dtype)


DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD)


def wide(op: Ops, dtype: DType, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The op on all pairs, as int64."""
    with np.errstate(all="ignore"):
        kind = dtypes.bool_ if op in (Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE) else dtype
        return numeric.compute(op, kind, [a[:, None], b[None, :]]).astype(np.int64)


@pytest.mark.parametrize("op", DIVISIONS, ids=lambda op: op.name)
@pytest.mark.parametrize("divisor", [-7, -3, -1, 1, 2, 5, 8])
def test_division_by_a_constant_is_exact_in_one_period(op: Ops, divisor: int) -> None:
    for low in range(-20, 21):
        for high in range(low, 21):
            node = variable(X, low, high).alu(op, UOp.const(X, divisor))
            values = numeric.compute(op, X, [np.arange(low, high + 1), np.array(divisor)])
            assert node.vmin <= values.min() <= values.max() <= node.vmax
            if op in (Ops.FLOORDIV, Ops.IDIV) or (low // divisor == high // divisor and low >= 0):
                assert (node.vmin, node.vmax) == (values.min(), values.max()), (low, high)


BOOL_BINARY = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR)
BOOL_BINARY += (Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE)


@pytest.mark.parametrize("op", BOOL_BINARY, ids=lambda op: op.name)
def test_bool(op: Ops) -> None:
    for (a, b), (c, d) in itertools.product([(0, 0), (0, 1), (1, 1)], repeat=2):
        x, y = np.arange(a, b + 1) != 0, np.arange(c, d + 1) != 0
        truth = wide(op, dtypes.bool_, x, y)
        node = variable(dtypes.bool_, a, b).alu(op, variable(dtypes.bool_, c, d))
        assert node.vmin <= truth.min() <= truth.max() <= node.vmax
        negated = ~node
        assert negated.vmin <= 1 - truth.max() <= 1 - truth.min() <= negated.vmax


@pytest.mark.parametrize("target", [*dtypes.ints, dtypes.bool_], ids=lambda d: d.name)
def test_cast_of_float_says_no_more_than_the_dtype(target: DType) -> None:
    node = UOp(Ops.CAST, target, (loaded(dtypes.float32),))
    if node.vmin is not None:
        assert (node.vmin, node.vmax) == limits(target)


def limits(dtype: DType) -> tuple[int, int]:
    if dtype is dtypes.bool_:
        return 0, 1
    info = np.iinfo(dtype.name)
    return int(info.min), int(info.max)


def loaded(dtype: DType) -> UOp:
    """A value read from memory: nothing is known but its dtype."""
    return UOp(Ops.INDEX, dtype, (UOp.param(0, dtype, 8), UOp.const(X, 0)), False)


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool_], ids=lambda d: d.name)
def test_what_is_read_has_the_bounds_of_its_dtype(dtype: DType) -> None:
    node = loaded(dtype)
    expected = (None, None) if dtype is dtypes.uint64 else limits(dtype)
    assert (node.vmin, node.vmax) == expected


def test_floats_have_no_bounds() -> None:
    x = loaded(dtypes.float32)
    assert (x.vmin, (x + 1.0).vmin, UOp.const(dtypes.float32, 1.0).vmin) == (None, None, None)
    assert ((x < 1.0).vmin, (x < 1.0).vmax) == (0, 1)
    assert (x.eq(x).vmin, x.ne(x).vmax) == (0, 1), "NaN differs from itself"


def test_where() -> None:
    spans = [(-3, -1), (0, 0), (2, 9)]
    for (a, b), (c, d) in itertools.product(spans, repeat=2):
        x, y = variable(X, a, b), variable(X, c, d)
        either = variable(dtypes.bool_, 0, 1).where(x, y)
        assert (either.vmin, either.vmax) == (min(a, c), max(b, d))
        first = UOp.const(dtypes.bool_, True).where(x, y)
        second = UOp.const(dtypes.bool_, False).where(x, y)
        assert (first.vmin, first.vmax, second.vmin, second.vmax) == (a, b, c, d)


def test_invalid_arm_is_ignored() -> None:
    valid = variable(dtypes.bool_, 0, 1)
    x, invalid = variable(X, 2, 5), UOp.const(X, Invalid)
    for node in (valid.where(x, invalid), valid.where(invalid, x)):
        assert (node.vmin, node.vmax) == (2, 5)


def test_loops_and_variables() -> None:
    i = UOp.range(7, 0, AxisType.LOOP)
    assert (i.vmin, i.vmax) == (0, 6)
    n = UOp.define_var("n", 3, 9)
    assert (n.vmin, n.vmax) == (3, 9)
    j = UOp.range(n, 1, AxisType.LOOP)
    assert (j.vmin, j.vmax) == (0, 8)
    special = UOp(Ops.SPECIAL, X, (UOp.const(X, 5),), "gidx0")
    assert (special.vmin, special.vmax) == (0, 4)


def test_vectors_cover_all_lanes() -> None:
    v4 = X.vec(4)
    lanes = UOp(Ops.VCONST, v4, (), (3, -2, 7, 0))
    assert (lanes.vmin, lanes.vmax) == (-2, 7)
    v = UOp(Ops.VECTORIZE, X.vec(2), (variable(X, 1, 4), variable(X, -3, 2)))
    assert (v.vmin, v.vmax) == (-3, 4)
    assert (UOp(Ops.GEP, X, (v,), (0,)).vmin, UOp(Ops.CAT, v4, (v, v)).vmax) == (-3, 4)
    assert ((lanes + lanes).vmin, (lanes < lanes).vmin) == (-4, 0)


def test_reductions_have_the_bounds_of_their_dtype() -> None:
    x = variable(dtypes.int8, 1, 2)
    total = UOp(Ops.REDUCE, dtypes.int8, (x, UOp.range(100, 0, AxisType.REDUCE)), ReduceOp.ADD)
    assert (total.vmin, total.vmax) == (-128, 127)


def test_identities_pass_bounds_on() -> None:
    x = variable(X, 2, 5)
    barrier = UOp(Ops.BARRIER, X, (x,))
    copy = UOp(Ops.COPY, X, (x, UOp(Ops.DEVICE, dtypes.void, (), DeviceSpec())))
    assert (barrier.vmin, barrier.vmax, copy.vmin, copy.vmax) == (2, 5, 2, 5)


# Near the limits of int64 ------------------------------------------------------------------------

BIG = 2**63
WORDS = st.one_of(
    st.integers(-BIG, BIG - 1),
    st.integers(-9, 9),
    st.sampled_from([-BIG, -BIG + 1, -(2**62), 2**62, BIG - 2, BIG - 1, -(2**31), 2**31]),
)
SPAN = st.tuples(WORDS, WORDS).map(sorted)
IDEAL = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b,
    Ops.FLOORMOD: lambda a, b: a % b,
    Ops.IDIV: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    Ops.MOD: lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.LT: lambda a, b: a < b,
    Ops.GE: lambda a, b: a >= b,
    Ops.EQ: lambda a, b: a == b,
}


def inside(draw: st.DrawFn, span: list[int]) -> int:
    low, high = span
    choices = st.sampled_from([low, high, min(max(0, low), high), (low + high) // 2])
    return draw(st.one_of(choices, st.integers(low, high)))


@given(data=st.data(), op=st.sampled_from(list(IDEAL)))
@settings(max_examples=300)
def test_index_bounds_widen_or_are_unknown_but_never_wrap(data: st.DataObject, op: Ops) -> None:
    left, right = data.draw(SPAN), data.draw(SPAN)
    a = data.draw(st.composite(inside)(left))
    b = data.draw(st.composite(inside)(right))
    if op in DIVISIONS and b == 0:
        return
    node = variable(X, *left).alu(op, variable(X, *right))
    if node.vmin is not None:
        assert node.vmin <= IDEAL[op](a, b) <= node.vmax


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
@given(data=st.data(), op=st.sampled_from(list(IDEAL)))
@settings(max_examples=200)
def test_bounds_of_64_bit_ints(dtype: DType, data: st.DataObject, op: Ops) -> None:
    def span() -> list[int]:
        low, high = data.draw(SPAN)
        return [max(low, 0), max(high, 0)] if dtype is dtypes.uint64 else [low, high]

    left, right = span(), span()
    a = data.draw(st.composite(inside)(left))
    b = data.draw(st.composite(inside)(right))
    kind = dtypes.bool_ if op in (Ops.LT, Ops.GE, Ops.EQ) else dtype
    arrays = [np.array(a, dtype.name), np.array(b, dtype.name)]
    value = int(numeric.compute(op, kind, arrays))
    node = variable(dtype, *left).alu(op, variable(dtype, *right))
    if node.vmin is not None:
        assert node.vmin <= value <= node.vmax


def test_bounds_near_two_to_62() -> None:
    x = variable(X, 0, 2**62)
    assert (x * 2).vmin is None
    assert ((x * 2) < 5).vmin == 0, "nothing is concluded from unknown bounds"
    assert (x + x.vmax).vmax is None
    wrapped = variable(dtypes.int64, 0, 2**62) * 2
    assert (wrapped.vmin, wrapped.vmax) == limits(dtypes.int64)


def test_a_bound_variable_keeps_the_bounds_of_the_variable() -> None:
    n = UOp.define_var("n", 1, 64)
    bound = UOp(Ops.BIND, X, (n, UOp.const(X, 8)))
    assert (bound.vmin, bound.vmax) == (1, 64), "another binding runs the same kernel"
