"""What a step costs that computes next to nothing: the price of being called.

    mlp sgd, mlp adam   a training step of an 8-8-8 perceptron on a batch of 4, cross entropy
    tiny kernel         x + 1 on eight numbers
    chain of 256        256 products with an 8 x 8 matrix, each a kernel of its own

Figures: CPU microseconds of a call, compiled by each system's own means (mk.jit, TinyJit,
torch.compile, jax.jit) or not at all (torch). One thread, one CPU.
"""

from __future__ import annotations

import argparse
import sys

from bench import _peers, harness

CASES = ("mlp sgd", "mlp adam", "tiny kernel", "chain of 256")
ALSO = (("wall", "us"), ("first", "s"), (f"after {harness.FIRST_STEPS}", "value"))
CHAIN = 256
SECONDS = 0.3


def worker(who: str, quick: bool) -> None:
    """Serves the cases of one system."""
    system = _peers.load("dispatch", who)
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    steppers = harness.Steppers(system.makers(who), "us", 0.01 if quick else SECONDS)
    harness.serve(steppers.cases(), system.VERSION)


def main(args: argparse.Namespace) -> None:
    args.peers = _peers.spread(args.peers)
    options = ["--quick"] if args.quick else []
    cases = dict.fromkeys(CASES, ("cpu", "us"))
    rows = harness.compare("bench.dispatch", cases, args, options, also=ALSO, warm_up=False)
    harness.show("dispatch", rows)
    harness.report_disagreements(rows, 1e-3)
    for row in rows:
        if row.case == CASES[-1]:
            each = ", ".join(f"{who} {us / CHAIN:.3g}" for who, us in row.figures.items())
            print(f"a kernel of the chain, us: {each}")
    harness.write_json(args, "dispatch", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(*started)
