# ruff: noqa: N999 - the benchmark is called so
"""What importing costs over bare Python with NumPy, in fresh processes, interleaved.

    name    `import morok` alone: names are loaded when they are first used
    use     what a training program uses: Tensor, nn, optim and jit
    lower   what the first graph that is on no disk needs besides: stages, rules, renderers

Figures: CPU milliseconds after NumPy was imported, and wall ones. A first process of each, which
may have to compile Python files, is not counted. Peers are imported whole.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench import harness

_OURS = {
    "name": "import morok",
    "use": "import morok; morok.Tensor; morok.jit; from morok import nn, optim",
    "lower": "import morok; morok.Tensor; morok.jit; from morok import nn, optim; "
    "import morok.engine.lower, morok.rangeify, morok.renderers",
}
_PEERS = {
    "jax": "import jax, jax.numpy",
    "torch": "import torch",
    "tinygrad": "import tinygrad, tinygrad.nn.optim",
}
_PROGRAM = """
import numpy, time
wall, cpu = time.perf_counter(), time.process_time()
{}
print(time.process_time() - cpu, time.perf_counter() - wall)
"""


def _milliseconds(statement: str) -> tuple[float, float] | None:
    """(CPU, wall) of one process; None if it cannot import that."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(statement)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parent.parent,
        check=False,
    )
    if done.returncode != 0:
        return None
    cpu, wall = map(float, done.stdout.split())
    return 1e3 * cpu, 1e3 * wall


def main(args: argparse.Namespace) -> None:
    statements = {
        **_OURS,
        **{peer: _PEERS[peer] for peer in args.peers if peer in _PEERS},
    }
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in statements}
    for number in range(args.rounds + 1):
        for name, statement in statements.items():
            pair = _milliseconds(statement)
            if pair is not None and number:
                seen[name].append(pair)
    rows = []
    for what, figures in seen.items():
        if not figures:
            print(f"{what}: not installed")
            continue
        row = harness.Row(what, "ms")
        row.figures = {
            name: statistics.median(pair[i] for pair in figures)
            for i, name in enumerate(("cpu", "wall"))
        }
        rows.append(row)
    harness.show("import", rows)
    harness.write_json(args, "import", rows)
