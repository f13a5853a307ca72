"""Every data rule: it fires on instances of its left side, rightly, and not on near misses."""

from __future__ import annotations

import numpy as np
import pytest

from morok.ir import GroupOp, Rule
from morok.ir.terms import Apply, walk
from morok.symbolic import late, sym
from tests.symbolic.evaluation import assert_equal, environment
from tests.symbolic.instances import attempts, fire


def elementwise(rule: Rule) -> bool:
    """Whether the left side is arithmetic; rules of loops and lanes have tests of their own."""
    return all(
        part.op in GroupOp.Elementwise or part.op.name == "CONST"
        for part in walk(rule.left)
        if isinstance(part, Apply)
    )


RULES = [rule for rule in (*sym, *late) if rule.is_data and elementwise(rule)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_fires_and_is_right(rule: Rule) -> None:
    rng = np.random.default_rng(len(rule.name))
    fired = 0
    for node in attempts(rule, 1, 3000):
        after = fire(rule, node)
        if after is None:
            continue
        fired += 1
        assert after is not node
        assert_equal(node, after, environment(node, rng), rule.spelling)
        if fired == 8:
            return
    assert fired, "the rule never fires"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_near_misses(rule: Rule) -> None:
    rng = np.random.default_rng(len(rule.name))
    missed = 0
    for node in attempts(rule, 2, 600, mutate=True):
        after = fire(rule, node)
        if after is not None:
            assert_equal(node, after, environment(node, rng), rule.spelling)
        else:
            missed += 1
            if missed == 8:
                return
    assert missed, "no near miss found"
