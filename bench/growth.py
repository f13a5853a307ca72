"""How compile time grows with the graph: GPT with 4, 8, 16, 32 and 64 layers, forward, backward and
AdamW, from Python to the source of every kernel, without a C compiler.

Figures: CPU milliseconds in all, and of these in building the graph, in scheduling it, and in
lowering the kernels that differ, which are as many at any depth. `growth` is the exponent of time
over layers, by least squares: 1 is in proportion. It is stated for each part, as what is lowered
once would hide a part that grows faster. Each run is a fork of a process that has compiled one
small kernel.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from math import log

import numpy as np

from bench import harness

LAYERS = (4, 8, 16, 32, 64)
QUICK = (2, 4)
PARTS = ("all", "graph", "schedule", "lowering")


def exponent(times: Mapping[int, float]) -> float:
    """The slope of log(time) over log(size), by least squares."""
    sizes = [log(size) for size in times]
    seconds = [log(max(time, 1e-9)) for time in times.values()]
    return float(np.polyfit(sizes, seconds, 1)[0])


def worker() -> None:
    """Serves a case for each depth."""
    from bench import _compile_morok as system

    system.warm_up()
    depths = dict.fromkeys((*QUICK, *LAYERS))
    cases = {_case(n): harness.forked(partial(system.deep_gpt, n)) for n in depths}
    harness.serve(cases, system.VERSION)


def _case(layers: int) -> str:
    return f"gpt, {layers} layers"


def main(args: argparse.Namespace) -> None:
    args.peers = []
    layers = QUICK if args.quick else LAYERS
    also = [(part, "ms") for part in PARTS[1:]]
    also += [("kernels", "run"), ("unique", "kernels")]
    cases = {_case(n): (PARTS[0], "ms") for n in layers}
    rows = harness.compare("bench.growth", cases, args, also=also, warm_up=False)
    each = len(rows) // len(layers)
    for position, part in enumerate(PARTS):
        of_part = rows[position : each * len(layers) : each]
        times = {n: row.figures[harness.OURS] for n, row in zip(layers, of_part, strict=True)}
        name = "growth" if position == 0 else f"  {part}"
        rows.append(harness.Row(name, "exponent", {harness.OURS: exponent(times)}))
    harness.show("growth", rows)
    harness.write_json(args, "growth", rows)


if __name__ == "__main__" and harness.worker_of(sys.argv) is not None:
    worker()
