"""Scheduling is linear: a GPT's training step with 4, 8, 16 and 32 layers, from the finished graph
to the kernels.

    ms               CPU time, with normalisation
    built, visited   nodes made, nodes visited by rewrites
    python           rules that ran in Python
    calls            of Python functions

Beside each its exponent in the number of kernels, from half as many layers on: 1 is linear. Each
run is a fresh fork. `--quick` takes a narrow network of 2, 4 and 8 layers.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
from functools import partial

from bench import _compile_models as models
from bench import harness

LAYERS, QUICK = (4, 8, 16, 32), (2, 4, 8)
FIGURES = ("ms", "built", "visited", "python", "calls")


class Narrow(models.Gpt):
    """Small, as only the number of nodes matters."""

    VOCABULARY, LENGTH, SIZE, HEADS = 16, 8, 16, 2


def scheduled(network: type[models.Gpt], layers: int, profiled: bool) -> dict[str, float]:
    """What scheduling a training step of `network` with so many layers takes; kernels to run.
    `calls` are counted by a profiler, which takes far more time than they do: no `ms` then."""
    from bench._compile_morok import stepper
    from morok import _core, engine
    from morok.rangeify import run_kernel_split_pipeline

    def totals() -> dict[str, float]:
        return {
            "built": _core.node_stats()["built"],
            "visited": _core.rewrite_stats()["visited"],
            "python": sum(entries for _, _, entries, _ in _core.rule_stats().values()),
        }

    deep = type(network.__name__, (network,), {"LAYERS": layers})
    shape = (2, network.LENGTH, network.VOCABULARY)
    roots = stepper(deep, shape, "AdamW")()
    before = totals()
    profile = cProfile.Profile()
    if profiled:
        profile.enable()
    seconds, schedule = harness.timed(
        lambda: run_kernel_split_pipeline(engine.Normal(engine.sink_of(roots)).graph)
    )
    profile.disable()
    after = totals()
    counts = {name: float(after[name] - before[name]) for name in after}
    if profiled:
        calls: int = vars(pstats.Stats(profile))["total_calls"]
        return {"kernels": float(len(schedule.calls)), "calls": float(calls), **counts}
    return {"kernels": float(len(schedule.calls)), "ms": seconds * 1e3, **counts}


def exponent(less: dict[str, float], more: dict[str, float], name: str) -> float:
    """Of a figure in the number of kernels."""
    return math.log(more[name] / less[name]) / math.log(more["kernels"] / less["kernels"])


def runs(
    network: type[models.Gpt], layers: tuple[int, ...], *, profiled: bool
) -> list[dict[str, float]]:
    """`scheduled` for each number of layers, each in a fork of its own."""
    return [harness.forked(partial(scheduled, network, count, profiled))() for count in layers]


def main(args: argparse.Namespace) -> None:
    network, layers = (Narrow, QUICK) if args.quick else (models.Gpt, LAYERS)
    timed, counted = (runs(network, layers, profiled=profiled) for profiled in (False, True))
    found = [{**more, **run} for run, more in zip(timed, counted, strict=True)]
    rows = []
    for i, (count, run) in enumerate(zip(layers, found, strict=True)):
        for name in ("kernels", *FIGURES):
            rows.append(harness.Row(f"{count} layers: {name}", "", {harness.OURS: run[name]}))
            if i and name in FIGURES:
                rows[-1].unit = f"^{exponent(found[i - 1], run, name):.2f}"
    harness.show("depth", rows)
    harness.write_json(args, "depth", rows)
