"""Answers of the rules of sums are shown to be right by the definitions of quotient and rest."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bench._expressions import index_domain, index_expression
from morok._core import affine_same
from morok.ir import RuleSet, Trace, UOp, graph_rewrite
from morok.symbolic import symbolic

W, V = UOp.define_var("w", -50, 50), UOp.define_var("v", 0, 40)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (W // 3 * 3 + W % 3, W),
        (W // 3 % 4 * 3 + W % 3, W % 12),
        (W // 3 - W // 12 * 4, W // 3 % 4),
        (W + V * 2 - (W + V * 2) // 7 * 7, (W + V * 2) % 7),
        ((W // 3 + 5) // 4, (W + 15) // 12),
        (W % 12 // 3, W // 3 % 4),
        ((W % 12 * 5 + V) % 4, (W * 5 + V) % 4),
        ((W * 7 + 13) // 6, (W + 1) // 6 + W + 2),
    ],
)
def test_shown(before: UOp, after: UOp) -> None:
    assert affine_same(before, after)
    assert affine_same(before * 3 + V, V + after * 3)
    assert affine_same(before, after + 1) is False


def test_what_needs_bounds_is_not_shown() -> None:
    assert affine_same(V % 50, V) is False
    assert affine_same((V * 4 + 3) // 8, V // 2) is False


def test_a_quotient_with_two_readings_is_not_shown_to_differ() -> None:
    """In the numerator's whole part and in its rest stands (W + 5) // 10."""
    rest = (W + 5) % 10
    before, after = ((rest * -1 + 9) // 3 - 3) // 12, rest * -1 // 36
    for value in range(-50, 51):
        y = (value + 5) % 10
        assert ((9 - y) // 3 - 3) // 12 == -y // 36
    assert affine_same(before, after) is None


def test_every_recombination_has_a_witness() -> None:
    """Of a sum the definitions are enough; of a quotient they are where no bounds are asked."""
    seen: Counter[tuple[str, bool | None]] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        root = index_expression(rng, list(index_domain(rng)), 5)
        with Trace() as trace:
            graph_rewrite(root, RuleSet("shown") + symbolic)
        for step in (step for rewrite in trace.rewrites for step in rewrite.steps):
            if step.rule in ("divmod.sum", "divmod.div", "divmod.mod"):
                seen[step.rule, affine_same(step.before, step.after)] += 1
                if step.rule == "divmod.sum":
                    assert affine_same(step.before, step.after) is not False, step
    assert seen["divmod.sum", True] > 500
    assert seen["divmod.div", True] > 30
    assert seen["divmod.mod", True] > 30
