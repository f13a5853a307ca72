"""Training for long: nothing grows, and after the second step nothing is lowered or compiled."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morok as mk
from bench import models
from morok import _core, engine
from morok.caches import cache_info
from morok.tensor import base

STEPS = 500
WARM_UP = 50
"""Steps after which what a process fills once (free lists, the pool, tables) is full."""
SLACK = 1 << 18
"""RSS may grow by this much in the steps after: some 600 bytes a step, less than three forgotten
nodes (208 bytes) where a step builds hundreds. Pages that malloc takes and gives back are a few of
it."""

Step = Callable[[np.ndarray, np.ndarray], mk.Tensor]


def mlp() -> Step:
    layers = [mk.nn.Linear(64, 32), mk.nn.Linear(32, 10)]
    optimizer = mk.optim.Adam(mk.nn.state.get_parameters(layers), lr=1e-3)

    def step(images: np.ndarray, labels: np.ndarray) -> mk.Tensor:
        optimizer.zero_grad()
        hidden = layers[0](mk.Tensor(images).flatten(1)).relu()
        loss = layers[1](hidden).cross_entropy(mk.Tensor(labels))
        loss.backward()
        optimizer.step()
        return loss

    return step


def cnn() -> Step:
    conv, linear = mk.nn.Conv2d(1, 4, 3, padding=1), mk.nn.Linear(64, 10)
    optimizer = mk.optim.SGD(mk.nn.state.get_parameters([conv, linear]), lr=0.02, momentum=0.9)

    def step(images: np.ndarray, labels: np.ndarray) -> mk.Tensor:
        optimizer.zero_grad()
        hidden = conv(mk.Tensor(images)).relu().max_pool2d(2).flatten(1)
        loss = linear(hidden).cross_entropy(mk.Tensor(labels))
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("kind", [models.MLP, models.CNN, models.GPT])
def test_the_second_step_is_the_first_ones_plan(kind: Callable[..., Any]) -> None:
    """It is looked up: no schedule is made, no rule tried, nothing lowered or compiled."""
    mk.clear_caches()
    mk.manual_seed(0)
    model = kind(**kind.small)
    optimizer = mk.optim.Adam(mk.nn.state.get_parameters(model), lr=1e-3)

    def step(number: int) -> float:
        optimizer.zero_grad()
        loss = model.loss(model.make_batch(number))
        loss.backward()
        optimizer.step()
        return loss.item()

    def work() -> list[int]:
        return [
            engine.stats.scheduled,
            engine.stats.lowered,
            cache_info()["schedules"].entries,
            cache_info()["kernels"].entries,
            *_core.rewrite_stats().values(),
        ]

    plans: list[engine.Planned] = []
    before = work()
    with engine.watch_kernels(lambda planned, _: plans.append(planned)):
        losses = [step(0)]
        after_first = work()
        losses += [step(number) for number in range(1, 4)]
    assert all(a > b for a, b in zip(after_first, before, strict=True))
    assert work() == after_first
    assert len(plans) == 4  # one a step
    assert all(plan is plans[0] for plan in plans)
    assert len(plans[0].kernels) > 5
    assert len(set(losses)) == 4


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def living() -> dict[str, int]:
    gc.collect()
    memory = _core.memory_stats()
    return {
        "nodes": _core.node_stats()["live"],
        "arguments": _core.node_stats()["arguments"],
        "buffers": memory["live_buffers"],
        "bytes": memory["live_bytes"],
        "external": memory["external_buffers"],
        "pooled": memory["pooled_bytes"],
        "tensors": len(base.all_tensors()),
    }


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("make", [mlp, cnn])
def test_nothing_grows(make: Callable[[], Step], rng: np.random.Generator) -> None:
    mk.manual_seed(0)
    step = make()
    images = rng.uniform(0, 1, (8, 16, 1, 8, 8)).astype(np.float32)
    labels = rng.integers(0, 10, (8, 16)).astype(np.int32)
    losses = []
    compiled, at_warm_up, half_way, resident_then = None, {}, {}, 0
    for i in range(STEPS):
        losses.append(step(images[i % 8], labels[i % 8]).item())
        now = (engine.stats.lowered, engine.stats.lower_seconds, engine.stats.compile_seconds)
        if i == 1:
            compiled = now
        elif i > 1:
            assert now == compiled, f"step {i} lowered or compiled something"
        if i == WARM_UP:
            at_warm_up, resident_then = living(), resident()
        elif i == (WARM_UP + STEPS) // 2:
            half_way = living()
    at_end, grown = living(), resident() - resident_then
    # What tests before this one left may go once, what a step leaves would grow in both halves.
    assert half_way in (at_warm_up, at_end), (at_warm_up, half_way, at_end)
    assert grown < SLACK, f"{grown / 1024:.0f} KB more after {STEPS - WARM_UP} steps"
    assert np.mean(losses[-8:]) < np.mean(losses[:8]) - 0.1, "it does not train"
