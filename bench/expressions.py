"""`python -m bench expressions [--count N] [--seed S]`: random expressions, simplified.

Index expressions over loops, those of tiled views, ints, bools and floats over loaded values, and
left sides of rules. Every one has to come to rest, and simplifying again has to change nothing; one
in ten is computed before and after, on every value of its loops or on the corners of its dtypes,
and what a view reads is compared with NumPy's. Rules that never fired are listed: others may say
all that they do.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench._evaluation import assert_equal, environment, evaluate
from bench._expressions import condition, expression, index_domain, index_expression
from bench._instances import attempts, is_elementwise
from bench._tilings import tiled_view
from morok._core import rule_stats
from morok.dtype import dtypes
from morok.ir import UOp
from morok.symbolic import symbolic

RULES = [rule for rule in symbolic if is_elementwise(rule)]
CHECKED = 10  # one in so many is computed, before and after


@dataclass(frozen=True, slots=True)
class Example:
    """An expression and values of what it is made of; of a view, the positions that it reads."""

    before: UOp
    given: Mapping[UOp, np.ndarray]
    positions: np.ndarray | None = None

    def check(self, after: UOp, seed: int) -> None:
        """AssertionError where `after` is not the same number, or not the right one."""
        assert_equal(self.before, after, self.given, f"seed {seed}")
        if self.positions is not None:
            read = np.broadcast_to(evaluate(after, self.given).data, self.positions.shape)
            if not (read == self.positions).all():
                raise AssertionError(f"seed {seed}: the view is another:\n{after.tree()}")


def example(seed: int) -> Example:
    """An expression over loops or over loaded values, or of the form of a rule's left side."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.25 and (before := _instance(rng)) is not None:
        return Example(before, environment(before, np.random.default_rng(seed)))
    if kind < 0.4:
        return Example(*tiled_view(rng))
    if kind < 0.7:
        domain = index_domain(rng)
        make = index_expression if rng.random() < 0.8 else condition
        return Example(make(rng, list(domain), rng.randrange(2, 6)), domain)
    others = [*rng.sample(dtypes.ints, 2), rng.choice((dtypes.float32, dtypes.float64))]
    before = expression(rng, rng.choice([*others, dtypes.bool_]), others, rng.randrange(1, 5))
    return Example(before, environment(before, np.random.default_rng(seed)))


def _instance(rng: random.Random) -> UOp | None:
    """The left side of some rule, of random operands: the rule has to fire, or one before it."""
    return next(attempts(rng.choice(RULES), rng.randrange(1000), 40), None)


def check(examples: Mapping[int, Example]) -> dict[int, str]:
    """What is wrong with the simplified expressions of some seeds."""
    wrong = {}
    for seed, one in examples.items():
        after = one.before.simplify()
        try:
            one.check(after, seed)
        except AssertionError as error:
            wrong[seed] = str(error)
        if after.simplify() is not after:
            wrong[seed] = f"simplified again it changes:\n{after.tree()}"
    return wrong


def come_to_rest(first: int, count: int) -> int:
    """Simplifies so many expressions; how many were of use to a check. Raises what a rule does."""
    checked = 0
    for seed in range(first, first + count):
        one = example(seed)
        after = one.before.simplify()
        if after.simplify() is not after:
            raise AssertionError(f"seed {seed}: simplified again it changes:\n{after.tree()}")
        if seed % CHECKED == 0:
            one.check(after, seed)
            checked += 1
    return checked


def never_fired() -> list[str]:
    """Rules of `symbolic` that this process has not seen firing."""
    hits = {name: row[1] for name, row in rule_stats().items()}
    return [rule.name for rule in symbolic if not hits.get(rule.name)]


def main(argv: Sequence[str]) -> int:
    """Exit status 1, with the seed, when something goes wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench expressions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args(argv)
    start = time.monotonic()
    try:
        checked = come_to_rest(options.seed, options.count)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    silent = never_fired()
    print(f"{options.count} expressions came to rest, {checked} computed and equal")
    print(f"never fired, of {len(symbolic)}: {', '.join(silent) or 'none'}")
    print(f"{time.monotonic() - start:.0f} s")
    return 0
