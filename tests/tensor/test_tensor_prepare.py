"""Computations compiled once and run many times."""

from __future__ import annotations

import re

import numpy as np
import pytest

from morok import engine
from morok.errors import InvalidGraphError
from morok.tensor import Tensor


def test_it_reads_what_the_memory_holds_now() -> None:
    array = np.zeros(4, np.float32)
    x = Tensor.from_numpy(array)
    y = (x + 1).sum()
    plan = (x * 2).prepare(y)
    lowered = engine.stats.lowered
    kept = []
    for i in range(4):
        array[:] = i
        doubled, total = plan.execute()
        assert doubled.tolist() == [2.0 * i] * 4
        assert total.item() == 4 * (i + 1)
        kept.append(doubled)
    assert [k[0].item() for k in kept] == [0, 2, 4, 6]
    assert engine.stats.lowered - lowered <= 1  # the indexing above
    assert plan.outputs[0] is kept[-1]


def test_its_kernels_are_watched() -> None:
    plan = (Tensor([1.0, 2.0]) + 1).prepare()
    seen: list[int] = []
    with engine.watch_kernels(lambda planned, times: seen.append(len(times))):
        plan.execute()
    assert seen == [1]


def test_kernels_and_sources() -> None:
    plan = (Tensor(np.ones((4, 4), np.float32)) + 1).sum(0).prepare()
    assert len(plan.kernels) == 1
    name = plan.kernels[0].rpartition("_")[0]
    assert re.search(rf"\bvoid @?{name}\(", plan.sources()[0])
    assert plan.outputs == []
    assert plan.execute()[0].tolist() == [8.0] * 4


def test_values_in_memory_and_without_elements() -> None:
    x = Tensor([1.0, 2.0])
    plan = x.prepare(Tensor.zeros(0, 3) + 1)
    own, empty = plan.execute()
    own += 1
    assert (own.tolist(), x.tolist(), empty.shape) == ([2.0, 3.0], [1.0, 2.0], (0, 3))


def test_what_was_overwritten_is_gone() -> None:
    x = Tensor([1.0, 2.0])
    plan = (x + 1).prepare()
    x += 1
    x.realize()
    with pytest.raises(InvalidGraphError, match="overwritten"):
        plan.execute()
