"""The rewrite engine: random index expressions, clean graphs, a long chain, a wide DAG.

The same 30 rules (constant folding, sums, products, // and %) run in every system, spelled as its
users spell them, on the same graphs, built from the same recipes; `catalogue` runs all that each
system has for arithmetic. Times are the process's own CPU time, with Python's collector on but
where it says "no gc"; `nodes` are what is left of the expressions.

    exprs       10 000 seeded random index expressions to a fixed point
    catalogue   the same by all of the system's own rules
    clean       what comes out of that, rewritten by a fresh set that has seen none of it
    warm        the same again by the same set (normal-form bits make it one test)
    chain       a chain of additions, 100 000 nodes deep, and one of a million: no rule applies
    dag         200 000 nodes, each with two users: no rule applies
    growth      the exponent of time from 10 000 nodes to a million, rewritten in turns
    memory      by how much a fresh process grows while a million nodes are made
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

from bench import _peers, _rewrite_cases, harness

Recipe = Any  # an int (constant), ("r", extent, axis), or (op, left, right)

EXTENTS = (4, 8, 16, 3, 7, 64)
FACTORS = (1, 2, 3, 4, 8, 16)
CASES = {
    "exprs": ("ms", "ms"),
    "exprs, no gc": ("ms", "ms"),
    "catalogue": ("ms", "ms"),
    "catalogue, no gc": ("ms", "ms"),
    "clean": ("ns", "ns/node"),
    "warm": ("us", "us"),
    "chain": ("ns", "ns/node"),
    "deep chain": ("ns", "ns/node"),
    "dag": ("ns", "ns/node"),
    "chain growth": ("exponent", "exponent"),
    "dag growth": ("exponent", "exponent"),
    "memory": ("bytes", "B/node"),
}


def recipes(count: int, seed: int = 1) -> list[Recipe]:
    """Random index expressions of depth up to 5."""
    rng = random.Random(seed)

    def expression(depth: int) -> Recipe:
        if depth == 0 or rng.random() < 0.15:
            if rng.random() < 0.75:
                axis = rng.randrange(len(EXTENTS))
                return ("r", EXTENTS[axis], axis)
            return rng.choice((0, 1, 2, 3, 4, 7, 8, 16))
        op = rng.choice("+++**/%")
        if op == "+":
            return (op, expression(depth - 1), expression(depth - 1))
        return (op, expression(depth - 1), rng.choice(FACTORS))

    return [expression(5) for _ in range(count)]


def worker(who: str, quick: bool) -> None:
    """Serves the cases of one system."""
    system = _peers.load_compiler("rewrite", who, "has no rewrite engine to compare with")
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    cases = dict(_rewrite_cases.cases(system.System(), recipes(1000 if quick else 10_000), quick))

    def memory() -> dict[str, float]:
        fresh = harness.Worker("bench.rewrite", who, ["--quick"] if quick else [])
        try:
            return fresh.call(_rewrite_cases.MEMORY)
        finally:
            fresh.close()

    cases["memory"] = memory
    harness.serve(cases, system.System.version())


def main(args: argparse.Namespace) -> None:
    options = ["--quick"] if args.quick else []
    rows = harness.compare("bench.rewrite", CASES, args, options, also=[("nodes", "nodes")])
    rows = [row for row in rows if row.figures]  # only some cases leave nodes to count
    harness.show("rewrite", rows)
    harness.write_json(args, "rewrite", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(*started)
