"""One expression at least for every family of the catalogue, checked on all values; the examples
of the field guide; and the late rules on machine ints."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from bench._evaluation import assert_equal, environment, loaded
from morok.dtype import DType, dtypes
from morok.ir import AxisType, Ops, ReduceOp, RuleSet, Trace, UOp, graph_rewrite
from morok.symbolic import negations, reciprocals, shifts, sym, symbolic

X = dtypes.index


def loop(end: int, number: int) -> UOp:
    return UOp.range(end, number, AxisType.LOOP)


H, J, K = loop(10, 0), loop(2, 1), loop(3, 2)
N, M = UOp.define_var("n", 1, 6), UOp.define_var("m", 2, 4)
P, Q = loaded(dtypes.bool_, 0), loaded(dtypes.bool_, 1)
A, B = loaded(dtypes.int32, 2), loaded(dtypes.int32, 3)


def every_value(*leaves: UOp) -> dict[UOp, np.ndarray]:
    """All joint values of loops and variables."""
    values = [np.arange(leaf.vmin, leaf.vmax + 1) for leaf in leaves]
    grids = np.meshgrid(*values, indexing="ij")
    return {leaf: g.ravel().astype(np.int64) for leaf, g in zip(leaves, grids, strict=True)}


@pytest.mark.parametrize(
    ("family", "before", "after"),
    [
        ("cancel", (H * 4) // 8, H // 2),
        ("nested", (H // 3) // 2, H // 6),
        ("recombine", (H // 3) * 3 + H % 3, H),
        ("congruence", (H * 7 + J) % 6, (H + J) % 6),
        ("congruence", (H * 13 + J + 5) // 12, (H + J + 5) // 12 + H),
        ("gcd", (H * 6 + J * 4 + 1) // 10, (H * 3 + J * 2) // 5),
        ("gcd", (H * 6 + J * 4) % 10, (H * 3 + J * 2) % 5 * 2),
        ("gcd without a constant", (H * N * 4 + N * 2) // (N * 6), (H * 2 + 1) // 3),
        ("gcd without a constant", (H * 4 + J * 2) // (N * 2), (H * 2 + J) // N),
        ("gcd without a constant", (H * 4 + J * 2) % (N * 2), (H * 2 + J) % N * 2),
        ("gcd without a constant", (H * N + J * N) % (N * 4), (H + J) % 4 * N),
        ("gcd without a constant", (H * N * M + N * M) // (M * N * 2), (H + 1) // 2),
        ("gcd without a constant", (H * M + J * N * M) // (N * M), H // N + J),
        ("factor", (H * 4 + J * 2) % 6, (H * 2 + J) % 3 * 2),
        ("smallest factor", (H * 6 + J * 2 + K) // 12, (H * 6 + J * 2 + K) // 12),
        ("smallest factor", (H * 6 + J * 3 + K) // 18, H // 3),
        ("two values", (J * 5 + 3) // 4, J * 2),
        ("two values", (J * 5 + 3) % 4, J * -3 + 3),
        ("two values", (J * -5 + 3) // 4, -J),
    ],
)
def test_divisions(family: str, before: UOp, after: UOp) -> None:
    assert before.simplify() is after.simplify()
    assert_equal(before, before.simplify(), every_value(H, J, K, N, M), family)


@pytest.mark.parametrize(
    "near_miss",
    [
        (H * 4 + 1) // (N * 2),
        (H * N + 1) // (N * 4),
        (H * N) // UOp.define_var("z", -1, 4),
        (H * 4) // (UOp.define_var("z", 0, 4) * 2),
    ],
)
def test_no_common_factor(near_miss: UOp) -> None:
    after = near_miss.simplify()
    assert after.op is Ops.FLOORDIV
    assert after.src[1].op is near_miss.src[1].op


def test_random_divisions_by_variables() -> None:
    rng = random.Random(7)
    given = every_value(H, J, N, M)
    units = (N, M, N * M, UOp.const(X, 1))
    for _ in range(400):
        factor = rng.choice(units)
        terms = [H, J, N, M, H * N, J * M, UOp.const(X, rng.randrange(-3, 4))]
        chosen = [t * factor * rng.choice((1, 2, 3, 4, -2)) for t in rng.sample(terms, 3)]
        number = chosen[0] + chosen[1] + chosen[2]
        divisor = rng.choice(units) * factor * rng.choice((1, 2, 3, 4))
        for before in (number // divisor, number % divisor):
            after = before.simplify()
            assert_equal(before, after, given)
            assert after.simplify() is after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (UOp.const(X, 2) + 3, UOp.const(X, 5)),
        (UOp.const(dtypes.int32, 2) + 3, UOp.const(dtypes.int32, 5)),
        (A * 1, A),
        (A + 0, A),
        (H * 1, H),
        (H + 0, H),
        ((A // 7) * 7 + A % 7, A),
        ((H // 7) * 7 + H % 7, H),
        (P & P, P),
        (P | False, P),
        (~~P, P),
    ],
)
def test_examples_of_the_guide(before: UOp, after: UOp) -> None:
    assert before.simplify() is after


def test_the_named_sets() -> None:
    assert len(symbolic) >= 100
    assert {rule.name for rule in symbolic} < {rule.name for rule in sym}


U64 = loaded(dtypes.uint64, 5)
BYTE, OTHER = loaded(dtypes.uint8, 6), loaded(dtypes.uint8, 7)
SMALL = loaded(dtypes.int8, 8)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("chains.shr_shr_out", (U64 >> 40) >> 40, UOp.const(dtypes.uint64, 0)),
        ("cast.through_float", SMALL.cast(dtypes.float32).cast(dtypes.float64),
         SMALL.cast(dtypes.float64)),
        ("compare.lt_widened_unsigned", BYTE.cast(dtypes.uint32) < OTHER.cast(dtypes.uint32),
         BYTE < OTHER),
        ("compare.ge_widened_unsigned", BYTE.cast(dtypes.uint32) >= OTHER.cast(dtypes.uint32),
         BYTE >= OTHER),
        ("compare.eq_widened_unsigned", BYTE.cast(dtypes.uint64).eq(OTHER.cast(dtypes.uint64)),
         BYTE.eq(OTHER)),
        ("compare.ne_widened_unsigned", BYTE.cast(dtypes.uint64).ne(OTHER.cast(dtypes.uint64)),
         BYTE.ne(OTHER)),
        ("where.le_const", P.where(UOp.const(dtypes.float32, 1.0), 2.0) <= 1.5, P),
        ("where.gt_const", P.where(UOp.const(dtypes.float32, 1.0), 2.0) > 1.5, ~P),
        ("where.gt_by_const", UOp.const(dtypes.float32, 1.5) > P.where(
            UOp.const(dtypes.float32, 1.0), 2.0), P),
        ("divmod.div_by_node", (H * N * 4 + N * 2) // (N * 6), (H * 2 + 1) // 3),
        ("divmod.mod_by_node", (H * 4 + J * 2) % (N * 2), (H * 2 + J) % N * 2),
        ("loops.reduce_nothing", UOp(Ops.REDUCE, dtypes.int32, (A,), ReduceOp.ADD), A),
        ("loops.after_nothing", UOp(Ops.AFTER, dtypes.int32, (A,)), A),
        ("vector.vectorize_of_one", UOp(Ops.VECTORIZE, dtypes.int32, (A,)), A),
        ("vector.cat_of_one", UOp(Ops.CAT, dtypes.int32, (A,)), A),
    ],
)  # fmt: skip
def test_rules_that_random_expressions_seldom_meet(rule: str, before: UOp, after: UOp) -> None:
    with Trace() as trace:
        assert graph_rewrite(before, RuleSet("seen") + symbolic) is after.simplify()
    assert rule in {step.rule for rewrite in trace.rewrites for step in rewrite.steps}


# Late rules --------------------------------------------------------------------------------------


def assert_late(before: UOp, rules: RuleSet, gone: Ops) -> None:
    after = graph_rewrite(before, rules)
    assert all(node.op is not gone for node in after.toposort()), after.tree()
    assert_equal(before, after, environment(before, np.random.default_rng(3)))


@pytest.mark.parametrize("dtype", [*dtypes.ints], ids=lambda d: d.name)
def test_powers_of_two(dtype: DType) -> None:
    x = loaded(dtype, 4)
    for power in (1, 2, 4, 64):
        assert_late(x // power, shifts, Ops.FLOORDIV)
        assert_late(x % power, shifts, Ops.FLOORMOD)
    assert graph_rewrite(x // 3, shifts) is x // 3
    assert graph_rewrite(x.idiv(4), shifts).op is (Ops.SHR if x.dtype.kind == "u" else Ops.IDIV), (
        "truncation is a shift of numbers that are not negative only"
    )


def test_division_as_a_product() -> None:
    x = UOp.define_var("x", 0, 200).cast(dtypes.int32)
    for divisor in (3, 5, 7, 10, 12, 100, 199):
        for before in (x // divisor, x.idiv(divisor)):
            after = graph_rewrite(before, reciprocals)
            assert after.op is Ops.SHR
            assert_equal(before, after, {x.src[0]: np.arange(201)})
        for before in (x % divisor, x.mod(divisor)):
            after = graph_rewrite(before, reciprocals)
            assert after.op is Ops.SUB
            assert_equal(before, after, {x.src[0]: np.arange(201)})
    large = UOp.define_var("x", 0, 2**20).cast(dtypes.int32)
    assert graph_rewrite(large // 3, reciprocals) is large // 3, "the product does not fit"
    assert graph_rewrite(A // 3, reciprocals) is A // 3, "may be negative"


def test_comparisons_as_lt_and_eq() -> None:
    y = {d: (loaded(d, 5), loaded(d, 6)) for d in (dtypes.int8, dtypes.float32, dtypes.bool_)}
    for (a, b), op in itertools.product(y.values(), (Ops.GE, Ops.LE, Ops.GT, Ops.NE)):
        assert_late(a.alu(op, b), negations, op)


@pytest.mark.parametrize("target", [dtypes.float32, dtypes.float64])
def test_a_position_made_of_a_large_unsigned_number_is_negative(target: DType) -> None:
    large = loaded(dtypes.uint64, 0)
    before = large.cast(X).cast(target)
    assert_equal(before, before.simplify(), environment(before, np.random.default_rng(0)))
    for narrow in (dtypes.int8, dtypes.uint32, dtypes.int64):
        assert large.cast(X).cast(narrow).simplify() is large.cast(narrow)
