"""Random expressions: the simplified one is equal, simpler or the same, and stays as it is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import expressions
from bench._evaluation import assert_equal, environment
from bench._expressions import condition, expression, index_domain, index_expression
from morok.dtype import dtypes
from morok.ir import RuleSet, UOp, graph_rewrite
from morok.symbolic import sym, symbolic

SEEDS = st.integers(0, 2**32)


AGAIN = RuleSet("again") + symbolic
"""The same rules as another set, which does not know what the first has brought to rest."""


def assert_at_rest(node: UOp) -> None:
    assert node.simplify() is node
    assert graph_rewrite(node, AGAIN, name="again") is node


@given(SEEDS)
@settings(max_examples=600)
def test_index_expressions(seed: int) -> None:
    rng = random.Random(seed)
    given_values = index_domain(rng)
    leaves = list(given_values)
    if rng.random() < 0.8:
        before = index_expression(rng, leaves, rng.randrange(2, 6))
    else:
        before = condition(rng, leaves, rng.randrange(1, 5))
    after = before.simplify()
    assert_equal(before, after, given_values)
    assert_at_rest(after)
    assert len(after.toposort()) <= 2 * len(before.toposort()) + 8


@given(SEEDS)
@settings(max_examples=800)
def test_ints_bools_and_floats(seed: int) -> None:
    rng = random.Random(seed)
    others = [*rng.sample(dtypes.ints, 2), rng.choice((dtypes.float32, dtypes.float64))]
    before = expression(rng, rng.choice([*others, dtypes.bool_]), others, rng.randrange(1, 5))
    after = before.simplify()
    assert_equal(before, after, environment(before, np.random.default_rng(seed)))
    assert_at_rest(after)


@pytest.mark.slow
def test_a_hundred_thousand_expressions_come_to_rest() -> None:
    rng = random.Random(2024)
    for count in range(100_000):
        if count % 100 == 0:
            leaves = list(index_domain(rng))
        index_expression(rng, leaves, 4).simplify()


def test_left_sides_of_rules_and_expressions_come_to_rest() -> None:
    assert expressions.come_to_rest(0, 1500) == 150
    names = {rule.name for rule in symbolic}
    assert set(expressions.never_fired()) < names


def test_symbolic_is_a_strict_subset_of_sym() -> None:
    inner, outer = {rule.name for rule in symbolic}, {rule.name for rule in sym}
    assert inner < outer
