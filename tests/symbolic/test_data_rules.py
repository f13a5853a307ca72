"""Every data rule: it fires on instances of its left side, rightly, and not on near misses."""

from __future__ import annotations

import numpy as np
import pytest

from bench._evaluation import assert_equal, environment
from bench._instances import attempts, fire, is_elementwise
from morok.ir import Rule
from morok.symbolic import late, sym

RULES = [rule for rule in (*sym, *late) if is_elementwise(rule)]


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
