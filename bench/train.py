"""A steady training step of four models, each system by its own means of compiling.

    mlp        784-512-256-10, batch 128, Adam
    cnn        two 5x5x32, batch norm, pool, two 3x3x64, batch norm, pool, linear; batch 128 of 28 x
               28, Adam
    gpt        4 layers, width 256, 4 heads, 128 tokens, batch 8, AdamW
    resnet18   He et al. 2015, batch 16 of 64 x 64, SGD with momentum

Figures: CPU milliseconds of a step on one thread, and the seconds of the first step. All systems
start from the same weights; their losses after five steps must agree. `--kernels` adds the five
most expensive kernels of each of our models; the JSON file always has them.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench import _peers, harness
from bench._train_data import TASKS

ALSO = (("wall", "ms"), ("first", "s"), (f"after {harness.FIRST_STEPS}", "loss"))
SECONDS = 1.0


def worker(who: str, quick: bool) -> None:
    """Serves the models of one system."""
    system = _peers.load("train", who)
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    makers = {name: partial(system.start, who, name, quick) for name in TASKS}
    cases = harness.Steppers(makers, "ms", 0.01 if quick else SECONDS).cases()
    if who == harness.OURS:
        cases |= {f"{name} kernels": partial(system.kernels, name, quick) for name in TASKS}
    harness.serve(cases, system.VERSION)


def chosen(args: argparse.Namespace) -> list[str]:
    """The models of this run: a smoke test trains the small ones."""
    if args.only:
        return [name for name in TASKS if name in args.only.split(",")]
    return ["mlp", "cnn"] if args.quick else list(TASKS)


def main(args: argparse.Namespace) -> None:
    args.peers = _peers.spread(args.peers)
    options = ["--quick"] if args.quick else []
    models = chosen(args)
    cases = dict.fromkeys(models, ("cpu", "ms"))
    rows = harness.compare("bench.train", cases, args, options, also=ALSO, warm_up=False)
    harness.show("train", rows)
    harness.report_disagreements(rows, 1e-3)
    harness.write_json(args, "train", rows)
    if args.kernels or args.json:
        ours = harness.Worker("bench.train", harness.OURS, options)
        tables = {name: ours.call(f"{name} kernels") for name in models}
        ours.close()
        for name, table in tables.items():
            show_kernels(name, table)
        if args.json:
            path = Path(args.json)
            everything = {**json.loads(path.read_text()), "train kernels": tables}
            path.write_text(json.dumps(everything, indent=2) + "\n")


def show_kernels(name: str, table: dict[str, Any]) -> None:
    """The five most expensive kernels of a step, and what all of them need."""
    if "failed" in table:
        print(f"\n{name}: {table['failed']}")
        return
    print(
        f"\n{name}: {table['kernels']} kernels in {table['ms']:.2f} ms, {table['gflop']:.3f} GFLOP,"
        f" arena {table['arena'] / 1e6:.1f} MB"
    )
    for line in table["worst"]:
        print(
            f"  {line['ms']:9.3f} ms  {line['gflops']:7.1f} GFLOP/s  {line['gbs']:6.1f} GB/s"
            f"  {line['flops'] / 1e6:9.2f} MFLOP  {line['name']}  [{line['opts']}]"
        )


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(*started)
