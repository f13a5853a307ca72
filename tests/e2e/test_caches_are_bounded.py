"""Every shape is another graph: whatever a process computes, what it remembers stays bounded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import pytest

import morok as mk
from morok import caches, engine
from morok._core import node_stats
from morok.engine.compile import _cache as kernels
from morok.engine.schedule import _plans as schedules
from morok.tensor import Tensor


@contextmanager
def bounds(count: int) -> Iterator[None]:
    before = schedules.bound, kernels.bound
    schedules.bound = kernels.bound = count
    try:
        yield
    finally:
        schedules.bound, kernels.bound = before


def work(n: int) -> None:
    """Elementwise, a reduction, a write to a part: all of a size of its own."""
    x = Tensor(np.arange(n, dtype=np.float32)).realize()
    x[1:] += 1
    total = (x * 2).sum()
    assert total.item() == n * (n - 1) + 2 * (n - 1)


def test_distinct_shapes() -> None:
    """Counts of entries and of living nodes, which would grow with anything that is kept."""
    with bounds(4):
        found = []
        for n in range(3, 19):
            work(n)
            gc.collect()
            info = mk.cache_info()
            assert all(entry.entries <= entry.bound for entry in info.values())
            found.append((info["schedules"], info["kernels"], node_stats()["live"]))
        assert found[-1][:2] == ((4, 4), (4, 4))
        # Shapes stand in memo tables; the graphs of schedules do not.
        assert (found[-1][2] - found[5][2]) / 10 < 20, found


def test_what_was_forgotten_is_made_again() -> None:
    work(21)
    mk.clear_caches()
    assert all(entry.entries == 0 for entry in mk.cache_info().values())
    lowered = engine.stats.lowered
    work(21)
    assert engine.stats.lowered > lowered


def test_jitted_functions_forget_too() -> None:
    @mk.jit
    def f(x: Tensor) -> Tensor:
        return x * 2 + 1

    for i in range(4):
        assert f(Tensor([i])).item() == 2 * i + 1
    assert f.captures == 1
    assert mk.cache_info()["recordings"].entries >= 1
    mk.clear_caches()
    assert f.captures == 0
    for i in range(4):
        assert f(Tensor([i])).item() == 2 * i + 1


def test_the_oldest_is_forgotten_first() -> None:
    cache: caches.Bounded[str, int] = caches.Bounded("of this test", 2, Lock())
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)
    assert list(cache.values()) == [1, 3]
    assert caches.cache_info()["of this test"] == (2, 2)
    with pytest.raises(ValueError, match="a cache 'of this test' already"):
        caches.Bounded("of this test", 2, Lock())
