"""Rules with Python or native right sides: lanes of vectors, idle loops, decided gates."""

from __future__ import annotations

import numpy as np
import pytest

from bench._evaluation import loaded
from bench._instances import fire
from morok.dtype import DType, dtypes
from morok.ir import AxisType, Invalid, KernelInfo, Ops, ReduceOp, RuleSet, UOp, graph_rewrite
from morok.symbolic import fold, gates, invalid, lanes, loops, sym, vector

X, F32, I32, BOOL = dtypes.index, dtypes.float32, dtypes.int32, dtypes.bool_
A, B, C = (loaded(F32, slot) for slot in range(3))
P = loaded(BOOL, 9)
ONE, TWO = UOp.const(F32, 1.0), UOp.const(F32, 2.0)


def vec(*lanes: UOp) -> UOp:
    return UOp(Ops.VECTORIZE, lanes[0].dtype.vec(len(lanes)), lanes)


def const(dtype: DType, *values: float) -> UOp:
    return UOp(Ops.VCONST, dtype.vec(len(values)), (), tuple(values))


def gep(v: UOp, *indices: int) -> UOp:
    dtype = v.dtype.scalar if len(indices) == 1 else v.dtype.scalar.vec(len(indices))
    return UOp(Ops.GEP, dtype, (v,), indices)


def cat(*parts: UOp) -> UOp:
    count = sum(part.dtype.count for part in parts)
    return UOp(Ops.CAT, parts[0].dtype.scalar.vec(count), parts)


def wide(count: int = 4, dtype: DType = F32) -> UOp:
    """A vector that comes from memory as a whole."""
    index = UOp(Ops.INDEX, dtype, (UOp.param(5, dtype, 64), UOp.const(X, 0)), False)
    return UOp(Ops.LOAD, dtype.vec(count), (index.src[0], index))


def once(rules: RuleSet, name: str, node: UOp) -> UOp | None:
    """What one rule of a set makes of a node."""
    return fire(rules[name], node)


W = wide()


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("gep_of_gathered", gep(vec(A, B, C), 1), B),
        ("gep_of_gathered", gep(vec(A, B, C), 2, 0), vec(C, A)),
        ("gep_of_gathered", gep(const(I32, 4, 5, 6), 2), UOp.const(I32, 6)),
        ("gep_of_gathered", gep(cat(vec(A, B), vec(C, A)), 2), C),
        ("gep_of_gathered", gep(cat(W, W), 2), None),
        ("gep_of_gep", gep(gep(W, 3, 1), 1), gep(W, 1)),
        ("gep_of_all", gep(W, 0, 1, 2, 3), W),
        ("gep_of_all", gep(A, 0), A),
        ("gep_of_all", gep(W, 0, 1, 3, 2), None),
        ("gep_of_all", gep(W, 0, 1), None),
        ("gep_of_elementwise", gep(vec(A, B) + const(F32, 1.0, 2.0), 1), None),
        ("gep_of_elementwise", gep(W + W, 1), None),
        ("vectorize_of_one", UOp(Ops.VECTORIZE, F32, (A,)), A),
        ("vectorize_of_constants", vec(UOp.const(I32, 1), UOp.const(I32, 2)), const(I32, 1, 2)),
        ("vectorize_of_constants", vec(UOp.const(F32, 1.0), A), None),
        ("vectorize_of_geps", vec(gep(W, 2), gep(W, 0)), gep(W, 2, 0)),
        ("vectorize_of_geps", vec(gep(W, 2), A), None),
        ("vectorize_of_geps", vec(gep(W, 2), gep(wide(8), 2)), None),
        ("cat_of_one", UOp(Ops.CAT, F32.vec(4), (W,)), W),
        ("cat_of_geps", cat(gep(W, 0, 1), gep(W, 2, 3)), gep(W, 0, 1, 2, 3)),
        ("cat_of_geps", cat(gep(W, 0, 1), gep(wide(8), 2, 3)), None),
        ("cat_of_gathered", cat(vec(A, B), vec(B, C)), vec(A, B, B, C)),
        ("cat_of_gathered", cat(const(F32, 1.0, 2.0), A), vec(ONE, TWO, A)),
        ("cat_of_gathered", cat(vec(A, B), W), None),
        ("cat_of_cat", cat(cat(W, W), W), cat(W, W, W)),
    ],
)  # fmt: skip
def test_vector(rule: str, before: UOp, after: UOp | None) -> None:
    found = once(vector, rule, before)
    if rule == "gep_of_elementwise" and before.src[0].src[0] is not W:
        assert found is not None
        assert found.src[0] is gep(vec(A, B), 1)
        assert before.simplify() is (B + 2.0)
    else:
        assert found is after


def test_vector_sources_in_order_are_the_source() -> None:
    assert vec(*(gep(W, i) for i in range(4))).simplify() is W
    assert gep(vec(A, B) * vec(B, C), 0).simplify() is (A * B).simplify()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (-vec(A, A), -A),
        (vec(A, A) + vec(B, B), A + B),
        (vec(A, A) * const(F32, 3.0, 3.0), A * 3.0),
        (const(F32, 3.0, 3.0) - vec(A, A), UOp.const(F32, 3.0) - A),
        (vec(P, P).where(vec(A, A), const(F32, 0.0, 0.0)), P.where(A, 0.0)),
    ],
)
def test_the_same_in_every_lane_is_computed_once(before: UOp, after: UOp) -> None:
    assert graph_rewrite(before, lanes, name="lanes") is vec(after, after)


@pytest.mark.parametrize("node", [vec(A, A) + vec(A, B), vec(A, A) + const(F32, 1.0, 2.0)])
def test_different_lanes_stay(node: UOp) -> None:
    assert lanes.rewrite(node) is None


def test_vectors_of_constants_fold() -> None:
    assert (const(I32, 1, 2) + const(I32, 3, 4)).simplify() is const(I32, 4, 6)
    assert (const(I32, 1, 5) < const(I32, 3, 4)).simplify().arg == (True, False)
    assert (vec(A, B) * const(F32, 1.0, 1.0)).simplify() is vec(A, B)
    assert fold.rewrite(const(I32, 1, 2) + vec(loaded(I32, 0), loaded(I32, 1))) is None


# Loops -------------------------------------------------------------------------------------------


def loop(end: int, number: int = 0, kind: AxisType = AxisType.REDUCE) -> UOp:
    return UOp.range(end, number, kind)


def reduced(op: ReduceOp, value: UOp, *ranges: UOp) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, *ranges), op)


R, S = loop(8, 0), loop(5, 1)
ROW = UOp(Ops.INDEX, F32, (UOp.param(0, F32, 64), R), False)
IROW = UOp(Ops.INDEX, I32, (UOp.param(0, I32, 64), R), False)
N = loaded(I32, 1)


def test_a_loop_of_one_iteration_is_its_first_value() -> None:
    assert loop(1).simplify() is UOp.const(X, 0)
    assert loops.rewrite(loop(2)) is None


def test_reduce_over_nothing_is_its_value() -> None:
    assert loops.rewrite(reduced(ReduceOp.MAX, A)) is A
    assert reduced(ReduceOp.ADD, ROW + 1.0, loop(1, 3)).simplify() is (ROW + 1.0).simplify()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (reduced(ReduceOp.MAX, A, R), A),
        (reduced(ReduceOp.MIN, A, R, S), A),
        (reduced(ReduceOp.ADD, N, R), N * 8),
        (reduced(ReduceOp.ADD, N, R, S), N * 40),
        (reduced(ReduceOp.ADD, A, R), A * 8.0 + 0.0),
        (reduced(ReduceOp.ADD, IROW, R, S), reduced(ReduceOp.ADD, IROW, R) * 5),
        (reduced(ReduceOp.MAX, ROW, R, S), reduced(ReduceOp.MAX, ROW, R)),
        (reduced(ReduceOp.ADD, loaded(dtypes.int8, 0), loop(300)), loaded(dtypes.int8, 0) * 44),
        (reduced(ReduceOp.MUL, IROW, R, UOp.const(X, 0)), reduced(ReduceOp.MUL, IROW, R)),
    ],
)
def test_idle_reductions(before: UOp, after: UOp) -> None:
    assert once(loops, "reduce_idle", before) is after


@pytest.mark.parametrize(
    "node",
    [
        reduced(ReduceOp.ADD, ROW, R),
        reduced(ReduceOp.MUL, A, R),
        reduced(ReduceOp.ADD, N, UOp.range(UOp.define_var("n", 1, 9), 0, AxisType.REDUCE)),
    ],
)
def test_busy_reductions_stay(node: UOp) -> None:
    assert once(loops, "reduce_idle", node) is None


def test_factors_leave_integer_sums() -> None:
    inner = reduced(ReduceOp.ADD, IROW, R)
    assert once(loops, "reduce_factor", reduced(ReduceOp.ADD, IROW * N, R)) is inner * N
    assert once(loops, "reduce_factor", reduced(ReduceOp.ADD, N * IROW, R)) is inner * N
    assert once(loops, "reduce_factor", reduced(ReduceOp.ADD, IROW * (IROW + 1), R)) is None
    assert once(loops, "reduce_factor", reduced(ReduceOp.MAX, IROW * N, R)) is None
    assert loops.rewrite(reduced(ReduceOp.ADD, ROW * A, R)) is None, "floats would round otherwise"


def test_closed_constants_leave_end_and_store() -> None:
    zero = UOp.const(X, 0)
    store = UOp(Ops.STORE, dtypes.void, (ROW, A, R))
    assert loops.rewrite(store.replace(src=(ROW, A, zero, R))) is store
    assert loops.rewrite(store) is None
    end = UOp(Ops.END, dtypes.void, (store, S))
    assert loops.rewrite(end.replace(src=(store, S, zero))) is end
    assert loops.rewrite(end.replace(src=(store, zero))) is store
    assert loops.rewrite(end) is None
    assert loops.rewrite(UOp(Ops.AFTER, F32, (A,))) is A


# Gates -------------------------------------------------------------------------------------------


def gated(gate: UOp, dtype: DType = F32) -> UOp:
    return UOp(Ops.INDEX, dtype, (UOp.param(0, dtype, 64), R, gate), True)


TRUE, FALSE = UOp.const(BOOL, True), UOp.const(BOOL, False)


def test_decided_gates_of_an_index() -> None:
    assert gates.rewrite(gated(TRUE)) is ROW
    assert gates.rewrite(gated(FALSE)) is UOp.const(F32, 0.0)
    assert gates.rewrite(gated(FALSE, BOOL)) is UOp.const(BOOL, False)
    assert gates.rewrite(gated(P)) is None
    assert gates.rewrite(ROW) is None
    assert graph_rewrite(gated((R >= 0) & (R < 8)), sym, name="sym") is ROW


def test_decided_gates_of_a_load() -> None:
    buffer = UOp.param(0, F32, 64)
    alt = UOp.const(F32, 2.0)

    def load(index: UOp) -> UOp:
        return UOp(Ops.LOAD, F32, (buffer, index, alt))

    assert graph_rewrite(load(gated(FALSE)), sym, name="sym") is alt
    assert graph_rewrite(load(gated(TRUE)), sym, name="sym") is UOp(Ops.LOAD, F32, (buffer, ROW))
    assert gates.rewrite(load(gated(P))) is None


def test_a_store_that_never_happens_goes() -> None:
    other = UOp(Ops.STORE, dtypes.void, (ROW, A, R))
    dead = UOp(Ops.STORE, dtypes.void, (gated(FALSE), A, R))
    info = KernelInfo("k")
    sink = UOp(Ops.SINK, dtypes.void, (dead, other), info)
    assert graph_rewrite(sink, sym, name="sym") is UOp(Ops.SINK, dtypes.void, (other,), info)
    assert gates.rewrite(UOp(Ops.SINK, dtypes.void, (other,), info)) is None


# Invalid -----------------------------------------------------------------------------------------

NOWHERE = UOp.const(X, Invalid)


def test_invalid_moves_outward_before_anything_swallows_it() -> None:
    i, j = loop(8, 0), loop(5, 1)
    valid = i < 3
    v = valid.where(i + 1, NOWHERE)
    assert (v * 0).simplify() is valid.where(UOp.const(X, 0), NOWHERE)
    assert (v - v).simplify() is valid.where(UOp.const(X, 0), NOWHERE)
    assert (v * 5 + j).simplify() is valid.where((i * 5 + j + 5).simplify(), NOWHERE)
    assert (j // 2 + v).simplify().src[0] is valid
    assert (v % 4 // 2).simplify().op is Ops.WHERE
    w = (j < 2).where(v, NOWHERE)
    assert w.simplify() is ((j < 2) & valid).where((i + 1).simplify(), NOWHERE).simplify()
    assert (valid.where(NOWHERE, i)).simplify() is (i >= 3).where(i, NOWHERE)
    assert (NOWHERE + i).simplify() is NOWHERE
    assert valid.where(NOWHERE, NOWHERE).simplify() is NOWHERE


def test_a_comparison_or_a_cast_of_an_unreachable_index_says_anything() -> None:
    i = loop(8, 0)
    v = (i < 3).where(i + 1, NOWHERE)
    assert (v < 2).simplify() is (i < 1)
    assert v.cast(I32).simplify() is (i + 1).cast(I32)


def test_mixed_arms_keep_both_conditions() -> None:
    i, j = loop(8, 0), loop(5, 1)
    mixed = (j < 2).where((i < 3).where(i, NOWHERE), j).simplify()
    assert mixed.src[2] is NOWHERE
    condition, value = mixed.src[0], mixed.src[1]
    at = np.meshgrid(np.arange(8), np.arange(5), indexing="ij")
    for x, y in zip(at[0].ravel(), at[1].ravel(), strict=True):
        point = {i: UOp.const(X, int(x)), j: UOp.const(X, int(y))}
        reached = condition.substitute(point).simplify().arg
        assert reached == (y >= 2 or x < 3)
        if reached:
            assert value.substitute(point).simplify().arg == (x if y < 2 else y)


def test_an_unreachable_first_arm_under_a_negation_comes_to_rest() -> None:
    i = loop(8, 0)
    condition = UOp(Ops.INDEX, dtypes.bool_, (UOp.param(0, dtypes.bool_, 8), i), False)
    before = condition.where(NOWHERE, i)
    after = before.simplify()
    assert after is (~condition).where(i, NOWHERE)
    assert after.simplify() is after
    assert (~condition).where(i, loop(3, 1)).simplify() is condition.where(loop(3, 1), i)


def test_invalid_rules_have_no_say_elsewhere() -> None:
    i = loop(8, 0)
    assert invalid.rewrite((i < 3).where(i, 5) + 1) is None
    assert invalid.rewrite(i + 1) is None
