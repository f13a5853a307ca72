"""Watches what is scheduled, and lowers the demo's step in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from costs import Cost, CostOf

from morok import config, engine
from morok.runtime import Device

PROGRAM = Path(__file__).with_name("demo_step.py")


@pytest.fixture
def cost_of(monkeypatch: pytest.MonkeyPatch) -> CostOf:
    """Runs a function and says what the one schedule that it realises costs."""

    def measure(work: Callable[[], object]) -> Cost:
        costs = []
        real = engine.realize

        def watched(roots: list[Any]) -> list[Any]:
            with config.override(cache_size=0):  # no plan from the disk, which has no graphs
                plan = engine.plan(engine.Normal(engine.sink_of(roots)), Device["CPU"])
            sinks = [kernel.sink for kernel in plan.kernels]
            estimates = [sink.arg.estimates for sink in sinks]
            costs.append(
                Cost(
                    len(sinks),
                    sum(e.flops for e in estimates),
                    sum(e.bytes_moved for e in estimates),
                    tuple(sinks),
                )
            )
            return real(roots)

        with monkeypatch.context() as patch:
            patch.setattr(engine, "realize", watched)
            work()
        (cost,) = costs
        return cost

    return measure


@pytest.fixture(scope="session")
def demo_steps() -> list[dict[str, Any]]:
    """What `demo_step.py` prints under two seeds of Python's hashes."""
    running = []
    for seed in ("1", "4242"):
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("MOROK_")},
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(PROGRAM.parents[2]),
        }
        running.append(
            subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, env=environment
            )
        )
    answers = [process.communicate()[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return [json.loads(answer) for answer in answers]
