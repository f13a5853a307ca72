"""Fusion by counting: what one schedule of each of nine computations costs.

    kernels            launched
    flops              float operations counted on the kernels (in millions), and how many times
                       what the mathematics asks for: `_fusion_models.py`
    bytes              distinct elements read and written (MB), by every kernel anew
    read, written      of these, each way
    peak               bytes of intermediate values, scratch and results that live at once (MB)

A peer's figures are its own counters'. Nothing runs: for us the kernels are compiled, once.
"""

from __future__ import annotations

import argparse
import sys

from bench import _peers, harness
from bench._fusion_models import COMPUTATIONS

QUICK = ("softmax", "log-softmax + NLL", "layernorm")
ALSO = (
    ("flops", "MFLOP"),
    ("flops / analytic", "x"),
    ("bytes", "MB"),
    ("read", "MB"),
    ("written", "MB"),
    ("peak", "MB"),
)


def worker(who: str) -> None:
    """Serves the cases of one system."""
    system = _peers.load_compiler("fusion", who, "does not count its kernels")
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    harness.serve(system.CASES, system.VERSION)


def main(args: argparse.Namespace) -> None:
    names = QUICK if args.quick else [n for n in COMPUTATIONS if args.only in n]
    args.rounds = 1  # counts do not vary
    rows = harness.compare(
        "bench.fusion", dict.fromkeys(names, ("kernels", "run")), args, also=ALSO, warm_up=False
    )
    harness.show("fusion", rows)
    harness.write_json(args, "fusion", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(started[0])
