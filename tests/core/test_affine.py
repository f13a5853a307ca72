"""The affine primitive and the native rules on it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok._core import affine_add, affine_form, affine_split
from morok.dtype import DType, dtypes
from morok.ir import AxisType, GroupOp, Invalid, Ops, RuleSet, UOp, graph_rewrite

X = dtypes.index
BIG = 2**62


def rules(name: str, native: str, ops: object, dtype: str | None = None) -> RuleSet:
    made = RuleSet(name)
    made.native(native, ops=ops, dtype=dtype)
    return made


SUM = rules("sum", "affine.sum", (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL), "x")
DIV = rules("div", "affine.floordiv", (Ops.FLOORDIV, Ops.IDIV), "iux")
MOD = rules("mod", "affine.floormod", (Ops.FLOORMOD, Ops.MOD), "iux")
COMPARE = rules("compare", "affine.compare", GroupOp.Comparison, "iux")
EXTREME = rules("extreme", "affine.extreme", (Ops.MAX, Ops.MIN), "iux")
AND = rules("and", "affine.and", (Ops.AND,), "b")
OR = rules("or", "affine.or", (Ops.OR,), "b")
FOLD = rules("fold", "fold", GroupOp.Elementwise)
ALL = SUM + DIV + MOD + COMPARE + EXTREME + AND + OR


def loop(end: int, number: int = 0) -> UOp:
    return UOp.range(end, number, AxisType.LOOP)


def unknown(slot: int, dtype: DType = X) -> UOp:
    """A value without known bounds (for an index) or with those of its dtype."""
    source = dtypes.float32 if dtype is X else dtype
    load = UOp(Ops.INDEX, source, (UOp.param(slot, source, 8), UOp.const(X, 0)), False)
    return load.cast(dtype)


def rewritten(node: UOp) -> UOp:
    return graph_rewrite(node, ALL, name="affine")


H, J, K, T = loop(20, 0), loop(8, 1), loop(4, 2), loop(3, 3)
U, V = unknown(0), unknown(1)


# Forms -------------------------------------------------------------------------------------------


def test_form_takes_sums_and_constant_multiples_apart() -> None:
    node = (J + 3) * 4 - (H - K * 2) + (K << 1) - 5
    terms, constant = affine_form(node)
    assert dict(terms) == {J: 4, K: 4, H: -1}
    assert constant == 7


def test_form_of_an_atom_is_itself() -> None:
    for atom in (H, H // 3, H * J, H.maximum(J), UOp.const(X, Invalid)):
        assert affine_form(atom) == (((atom, 1),), 0)


def test_form_of_a_constant_has_no_terms() -> None:
    assert affine_form(UOp.const(X, 7)) == ((), 7)
    assert affine_form(H - H) == ((), 0)


def test_form_of_a_vector() -> None:
    v = UOp(Ops.VCONST, X.vec(2), (), (0, 1))
    lanes = UOp(Ops.VECTORIZE, X.vec(2), (H, J))
    terms, constant = affine_form(lanes * UOp.const(X.vec(2), 4) + v + UOp.const(X.vec(2), 3))
    assert dict(terms) == {lanes: 4, v: 1}
    assert constant == 3


def test_fixed_width_sums_are_taken_apart_where_they_cannot_wrap() -> None:
    small = UOp.define_var("v", 0, 9).cast(dtypes.int8)
    assert affine_form(small * 3 + 1) == (((small, 3),), 1)
    wraps = small * 20
    assert affine_form(wraps) == (((wraps, 1),), 0)
    loaded = unknown(0, dtypes.int32)
    assert affine_form(loaded + 1) == (((loaded + 1, 1),), 0)
    unsigned = UOp.define_var("v", 2, 9).cast(dtypes.uint8)
    assert affine_form(unsigned - 2) == (((unsigned, 1),), -2)
    assert affine_form(unsigned - 3)[1] == 0


def test_an_overflow_means_no_form() -> None:
    for node in (U * BIG * 4, (U * BIG) + (U * BIG), UOp.const(X, 2 * BIG - 1) + U + 1):
        assert affine_form(node) == (((node, 1),), 0)


def test_floats_and_bools_have_no_form() -> None:
    x = unknown(0, dtypes.float32)
    assert affine_form(x + x) == (((x + x, 1),), 0)
    assert affine_form(H < J) == (((H < J, 1),), 0)


def test_split() -> None:
    node = H * 3 + J * 2 + 5
    coefficient, rest = affine_split(node, J)
    assert coefficient == 2
    assert affine_form(rest) == (((H, 3),), 5)
    assert affine_split(node, K) == (0, node)
    assert affine_split(H, H) == (1, UOp.const(X, 0))
    assert affine_split(J * 2 + J // 3, J) is None
    assert affine_split(J // 3, J) is None


def test_add() -> None:
    node = affine_add([(H + 1, 2), (J, -3), (H, 1)], 4, X)
    assert affine_form(node) == (((H, 3), (J, -3)), 6)
    assert node is rewritten(node)
    with pytest.raises(TypeError, match="integer dtype"):
        affine_add([], 0, dtypes.float32)
    with pytest.raises(TypeError, match="a term of dtype"):
        affine_add([(unknown(0, dtypes.int32), 1)], 0, X)
    with pytest.raises(ValueError, match="overflows"):
        affine_add([(U, BIG), (U, BIG), (U, 1)], 0, X)
    with pytest.raises(ValueError, match="not proved"):
        affine_add([(unknown(0, dtypes.int8), 2)], 0, dtypes.int8)


# Canonical order ---------------------------------------------------------------------------------


def test_sums_in_any_order_are_one_node() -> None:
    parts = [H * 32, J * 4, K, UOp.const(X, 7)]
    sums = {rewritten(a + b + (c + d)) for a, b, c, d in itertools.permutations(parts)}
    assert len(sums) == 1
    assert sums == {H * 32 + J * 4 + K + 7}


def test_order_ignores_loop_numbers_slots_and_unique() -> None:
    for first, second in ((0, 1), (5, 2), (1, 90)):
        i, j = loop(8, first), loop(5, second)
        shape = [s.src[0].arg for s in rewritten(j + i).src]
        again = [s.src[0].arg for s in rewritten(i + j).src]
        assert shape == again
        assert shape == [s.src[0].arg for s in rewritten(loop(5, 3) + loop(8, 4)).src]


def test_ties_keep_their_order() -> None:
    i, j = loop(8, 0), loop(8, 1)
    assert rewritten(i + j) is i + j
    assert rewritten(j + i) is j + i


ORDER = """
from morok.ir import UOp, AxisType
from morok.dtype import dtypes
import morok.symbolic
i, j, k = (UOp.range(n, a, AxisType.LOOP) for a, n in enumerate((8, 5, 3)))
node = (k // 2 + j + i.maximum(j) + i % 3).simplify()
print(node.key.hex())
"""


def test_order_is_the_same_in_every_process() -> None:
    root = Path(__file__).resolve().parents[2]
    keys = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", ORDER],
            capture_output=True,
            text=True,
            cwd=root,
            env=env,
            check=True,
        )
        keys.add(run.stdout)
    assert len(keys) == 1


def test_sum_is_idempotent() -> None:
    for node in (H + J * 3 - 2, H * -1 + J, (H + J) * 5, -(H - J)):
        once = rewritten(node)
        assert rewritten(once) is once
        assert SUM.rewrite(once) is None


def test_products_of_variables_are_left_alone() -> None:
    assert SUM.rewrite(H * J) is None


def test_a_sum_with_invalid_is_left_alone() -> None:
    gated = (H < 3).where(J, UOp.const(X, Invalid))
    for node in (gated + 1, gated * 0, gated - gated, gated // 2):
        assert rewritten(node) is node


# Recombination -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (H // 3 * 3 + H % 3, H),
        (H // 3 * 12 + H % 3 * 4, H * 4),
        (H // 6 * 2 + H // 3 % 2, H // 3),
        (H // 3 % 2 * 3 + H % 3, H % 6),
        (H - H // 4 * 4, H % 4),
        (H // 3 - H // 6 * 2, H // 3 % 2),
        ((H * 5 + J) // 4 * 4 + (H * 5 + J) % 4, H * 5 + J),
        ((H // 3 + 5) // 2 * 2 + (H // 3 + 5) % 2, H // 3 + 5),
    ],
)
def test_recombination(before: UOp, after: UOp) -> None:
    assert rewritten(before) is rewritten(after)


@pytest.mark.parametrize(
    "near_miss",
    [
        H // 3 * 3 + H % 4,
        H // 3 * 3 + J % 3,
        H // 3 * 2 + H % 3,
        H - H // 4 * 3,
        H // 3 - H // 7 * 2,
    ],
)
def test_recombination_near_misses(near_miss: UOp) -> None:
    after = rewritten(near_miss)
    divisions = [n for n in after.toposort() if n.op in (Ops.FLOORDIV, Ops.FLOORMOD)]
    assert len(divisions) == len(
        [n for n in near_miss.toposort() if n.op in (Ops.FLOORDIV, Ops.FLOORMOD)]
    )


# Division ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((J * 4 + K) // 4, J),
        ((J * 4 + K) % 4, K),
        ((J * 4 + K) // 8, J // 2),
        ((J * 4 + K) % 8, J % 2 * 4 + K),
        ((H * 6 + 4) // 4, (H * 3 + 2) // 2),  # a common factor
        ((H * 6 + 4) % 4, (H * 3 + 2) % 2 * 2),
        (U // 3 // 4, U // 12),
        ((U // 3 + 2) // 4, (U + 6) // 12),
        (U % 12 % 4, U % 4),
        ((U % 12 * 3 + V) % 4, (U * 3 + V) % 4),
        (U % 12 // 4, U // 4 % 3),
        ((U + 7) // 4, (U + 3) // 4 + 1),
        ((U + 7) % 4, (U + 3) % 4),
        (U // -3, -U // 3),
        (U % -3, -(-U % 3)),
        ((H - 30) % 40, H + 10),  # one period below
        ((H - 30) // 40, UOp.const(X, -1)),
        ((J * 9 + K) // 10, (J * 9 + K) // 10),
        ((J * 9 + T + 7) // 10, J),  # 9*j = 10*j - j, 0 <= t + 7 - j < 10
        ((J * 9 + T + 7) % 10, T + 7 - J),
    ],
)
def test_division(before: UOp, after: UOp) -> None:
    assert rewritten(before) is rewritten(after)


@pytest.mark.parametrize(
    "node",
    [U // 4, U % 4, (J * 9 + K) // 10, (U * 3 + V) // 4, U // 0, U % 0, H // J, (U // 3 + V) // 4],
)
def test_division_near_misses(node: UOp) -> None:
    assert DIV.rewrite(node) is None
    assert MOD.rewrite(node) is None


def test_truncating_division_only_where_the_numerator_is_not_negative() -> None:
    signed = UOp.define_var("s", -5, 60)
    assert DIV.rewrite((J * 4 + K).idiv(4)) is J
    assert MOD.rewrite((J * 4 + K).mod(4)) is K
    assert DIV.rewrite((signed * 4 + K).idiv(4)) is None
    assert MOD.rewrite((signed * 4 + K).mod(4)) is None
    assert DIV.rewrite(J.idiv(-4)) is None


def test_fixed_width_division_only_without_wrapping() -> None:
    small = UOp.define_var("v", 0, 20).cast(dtypes.int8)
    assert DIV.rewrite((small * 4 + 3) // 4) is small
    assert DIV.rewrite((small * 8) // 4) is None, "small * 8 may wrap"
    loaded = unknown(0, dtypes.int32)
    assert DIV.rewrite((loaded * 4) // 4) is None
    assert DIV.rewrite((loaded // 3) // 4) is loaded // 12
    lowest = UOp.const(dtypes.int8, -128)
    assert DIV.rewrite(unknown(0, dtypes.int8) // lowest) is None


@pytest.mark.parametrize("offset", [0, 1, 2**62 - 1, 2**63 - 1, -(2**63), -(2**63) + 1])
@pytest.mark.parametrize("divisor", [3, 2**62, 2**63 - 1, -(2**63), -(2**62)])
@pytest.mark.parametrize("factor", [1, 2**62, -(2**62), -(2**63)])
def test_near_the_limits_of_int64_rules_are_right_or_silent(
    offset: int, divisor: int, factor: int
) -> None:
    x = UOp.define_var("x", -3, 3)
    for node in ((x * factor + offset) // divisor, (x * factor + offset) % divisor):
        after = rewritten(node)
        for value in range(-3, 4):
            true = (value * factor + offset) // divisor
            if node.op is Ops.FLOORMOD:
                true = (value * factor + offset) % divisor
            assert exact(after, {x: value}) == true


def exact(node: UOp, at: dict[UOp, int]) -> int:
    """The value in unbounded integers."""
    if node in at:
        return at[node]
    if node.op is Ops.CONST:
        return int(node.arg)
    src = [exact(s, at) for s in node.src]
    match node.op:
        case Ops.ADD:
            return src[0] + src[1]
        case Ops.MUL:
            return src[0] * src[1]
        case Ops.NEG:
            return -src[0]
        case Ops.FLOORDIV:
            return src[0] // src[1]
        case Ops.FLOORMOD:
            return src[0] % src[1]
        case Ops.LT:
            return src[0] < src[1]
        case Ops.GE:
            return src[0] >= src[1]
    raise AssertionError(node.op)


SMALL = st.integers(-12, 12)


@given(
    st.lists(st.tuples(SMALL, SMALL, st.integers(0, 4)), min_size=1, max_size=3),
    st.integers(-40, 40),
    st.integers(1, 24),
)
def test_any_affine_numerator(terms: list[tuple[int, int, int]], offset: int, divisor: int) -> None:
    variables = [
        (c, UOp.define_var(f"v{i}", low, low + span)) for i, (c, low, span) in enumerate(terms)
    ]
    total = UOp.const(X, offset)
    for c, v in variables:
        total = total + v * c
    quotient, rest = rewritten(total // divisor), rewritten(total % divisor)
    spans = [range(v.vmin, v.vmax + 1) for _, v in variables]
    for values in itertools.product(*spans):
        at = {v: value for (_, v), value in zip(variables, values, strict=True)}
        number = offset + sum(c * at[v] for c, v in variables)
        assert exact(quotient, at) == number // divisor
        assert exact(rest, at) == number % divisor


# Comparisons -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (J * 4 + K < 8, J < 2),
        (J * 4 + K <= 8, J * 4 + K < 9),
        (J * 4 < 9, J < 3),
        (J * 4 >= 9, J >= 3),
        (H // 3 < 2, H < 6),
        (H // 3 >= 2, H >= 6),
        (H > J, J < H),
        (J >= H, H <= J),
        (-H < -3, H >= 4),
        (-H <= -3, H >= 3),
        (H + 3 < J, H < J - 3),
        (H * 2 + 4 < J * 2, H + 2 < J),
        ((H * 4 + 2).eq(8), UOp.const(dtypes.bool_, False)),
        ((H * 4 + 4).eq(8), H.eq(1)),
        ((H * 4 + 4).ne(8), H.ne(1)),
        (H + 5 < H + 6, UOp.const(dtypes.bool_, True)),
        (U + 5 < U + 6, UOp.const(dtypes.bool_, True)),
        ((U + 5).eq(U + 6), UOp.const(dtypes.bool_, False)),
        (J < 8, UOp.const(dtypes.bool_, True)),
        (J >= 8, UOp.const(dtypes.bool_, False)),
        (UOp.const(X, 3) > H, H < 3),
    ],
)
def test_comparison(before: UOp, after: UOp) -> None:
    assert rewritten(before) is rewritten(after)


@pytest.mark.parametrize("node", [H < J, H >= 3, H.eq(3), U < V, U < 3, J * 4 + K < 9, H < J * 2])
def test_comparison_near_misses(node: UOp) -> None:
    assert COMPARE.rewrite(node) is None


def test_comparison_of_wrapping_sums_is_left_alone() -> None:
    x = unknown(0, dtypes.int8)
    assert COMPARE.rewrite(x + 1 < 5) is None
    assert COMPARE.rewrite(x > 3) is (x >= 4)
    assert COMPARE.rewrite(x <= 127).arg is True


def test_a_loop_stays_below_an_end_that_is_no_constant() -> None:
    n = UOp.define_var("n", 1, 64)
    j = UOp.range(n, 1, AxisType.LOOP)
    assert COMPARE.rewrite(j < n).arg is True
    assert COMPARE.rewrite(j >= n).arg is False
    assert COMPARE.rewrite(j + 1 < n).vmin == 0
    assert EXTREME.rewrite(j.maximum(n)) is n


def test_extreme() -> None:
    assert EXTREME.rewrite((H + 1).maximum(H)) is H + 1
    assert EXTREME.rewrite((H + 1).minimum(H)) is H
    assert EXTREME.rewrite(J.maximum(7)) is UOp.const(X, 7)
    assert EXTREME.rewrite(J.maximum(6)) is None
    assert EXTREME.rewrite(J.minimum(K)) is None


def test_chains_of_and_and_or() -> None:
    assert AND.rewrite((H < 5) & (H < 3)) is (H < 3)
    assert AND.rewrite((H < 5) & (J < 3) & (H < 3)) is (J < 3) & (H < 3)
    assert AND.rewrite((H >= 5) & (J < 3) & (H >= 3)) is (H >= 5) & (J < 3)
    assert AND.rewrite((H < 5) & (H >= 5)).arg is False
    assert AND.rewrite((H < J) & (K < 2) & (H >= J)).arg is False
    assert AND.rewrite((H < 5) & (H >= 4)) is None
    assert AND.rewrite((H < 5) & (J < 3)) is None
    assert OR.rewrite((H < 5) | (H < 3)) is (H < 5)
    assert OR.rewrite((H < 5) | (H >= 5)).arg is True
    assert OR.rewrite((H < 5) | (H >= 6)) is None
    p = unknown(0, dtypes.bool_)
    assert AND.rewrite(p & (H < 5) & ~p).arg is False
    assert OR.rewrite(p | (H < 5) | p) is p | (H < 5)
    x = unknown(0, dtypes.float32)
    assert AND.rewrite((x < 1.0) & (x >= 1.0)) is None, "NaN is neither, but is not decided here"


@pytest.mark.parametrize("conjunction", [True, False])
def test_pairs_of_clauses_by_brute_force(conjunction: bool) -> None:
    x = UOp.define_var("x", -2, 6)
    makers = (x.__lt__, x.__ge__, x.eq, x.ne)
    clauses = [make(limit) for make in makers for limit in range(4)]
    for a, b in itertools.product(clauses, repeat=2):
        before = a & b if conjunction else a | b
        after = (AND if conjunction else OR).rewrite(before)
        for value in range(-2, 7):
            point = {x: UOp.const(X, value)}
            assert truth(before if after is None else after, point) == truth(before, point)
        if conjunction and not any(truth(before, {x: UOp.const(X, v)}) for v in range(-9, 9)):
            assert after is not None, "contradictions are found"
            assert after.arg is False
        if a is b:
            assert after is a


def truth(node: UOp, point: dict[UOp, UOp]) -> bool:
    decided = node.substitute(point)
    return bool(graph_rewrite(decided, ALL + FOLD, name="truth").arg)
