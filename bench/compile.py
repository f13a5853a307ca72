"""Compile time without a C compiler: graph -> schedule -> LINEAR -> source of every kernel.

    cnn step          the demo's convolutional network, batch 64, forward, backward, Adam
    mlp step          784-512-256-10, batch 128, Adam
    gpt step          4 layers, d 256, 4 heads, T 128, batch 8, one-hot tokens, AdamW
    resnet50 forward  batch 64, 224 x 224, batch norm as scale and shift
    300 small shapes  300 graphs of the same form and different sizes, scheduled one by one

Figures: CPU milliseconds from the finished tensor graph on, and of these in scheduling; of the
tries of rewrite rules that fail, how many do without entering Python; kernels to run, different
ones, and LINEAR ops of the different ones. Each run is a fresh fork of a process
that has compiled one small kernel: nothing is cached but what importing and starting costs.
"""

from __future__ import annotations

import argparse
import sys

from bench import _peers, harness

CASES = ("cnn step", "mlp step", "gpt step", "resnet50 forward", "300 small shapes")
QUICK = ("cnn step", "mlp step")
ALSO = (
    ("schedule", "ms"),
    ("failed in C", "%"),
    ("kernels", "run"),
    ("unique", "kernels"),
    ("uops", "ops"),
)


def worker(who: str) -> None:
    """Serves the cases of one system."""
    system = _peers.load_compiler(
        "compile", who, "does not show its work up to the source by itself"
    )
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    system.warm_up()
    cases = {name: harness.forked(case) for name, case in system.CASES.items()}
    harness.serve(cases, system.VERSION)


def main(args: argparse.Namespace) -> None:
    cases = dict.fromkeys(QUICK if args.quick else CASES, ("ms", "ms"))
    rows = harness.compare("bench.compile", cases, args, also=ALSO, warm_up=False)
    harness.show("compile", rows)
    harness.write_json(args, "compile", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(started[0])
