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

from bench import harness
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
    if who == harness.OURS:
        from bench import _fusion_morok as system
    elif who == "tinygrad":
        try:
            from bench import _fusion_tinygrad as system  # type: ignore[no-redef]
        except ImportError as error:
            harness.serve(None, "", missing=f"not installed ({error}): pip install tinygrad")
            return
    else:
        harness.serve(None, "", missing="does not count its kernels")
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
