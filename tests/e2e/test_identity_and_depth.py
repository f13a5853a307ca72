"""What holds of graphs whatever their size and from whichever thread: identity, rewriting,
depth."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from morok import _core
from morok.dtype import dtypes
from morok.ir import AxisType, Ops, UOp, graph_rewrite
from morok.symbolic import sym
from morok.tensor import Tensor

DEEP = 1_000_000


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of `work(0) … work(count - 1)`, begun together, each in a thread of its own."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture
def _quick_switches() -> Any:
    """Threads change over 5000 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def index_graph(size: int) -> UOp:
    """Index arithmetic over two loops in which much simplifies."""
    i, j = UOp.range(64, 0), UOp.range(48, 1, AxisType.REDUCE)
    flat = i * 48 + j
    total = flat
    for k in range(1, size):
        part = (flat // (k % 7 + 1)) * (k % 5) + flat % (k % 11 + 1)
        total = (total + part) % (4096 + k) + (flat * 6 + k) // 3
    return total


@pytest.mark.usefixtures("_quick_switches")
def test_the_same_structure_is_the_same_object_from_eight_threads() -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))

    def build(_: int) -> list[UOp]:
        graphs = [index_graph(30)]
        y = x
        for k in range(60):
            y = ((y + k).reshape(4, 3).permute(1, 0) * 1.5).exp()
            graphs.append(y.sum(0).uop)
        return graphs

    first, *others = in_threads(8, build)
    for other in others:
        assert all(a is b for a, b in zip(first, other, strict=True))


@pytest.mark.usefixtures("_quick_switches")
def test_four_threads_rewrite_one_graph_to_one_node() -> None:
    for round_number in range(10):
        graph = index_graph(60 + round_number)
        roots = [graph, (graph + 1) * 2, graph % 17, (graph < 90).where(graph, 90)]
        alone = [graph_rewrite(root, sym) for root in roots]

        fresh = index_graph(200 + round_number)  # nothing of it was simplified yet
        one, *others = in_threads(4, lambda _, fresh=fresh: fresh.simplify())
        assert all(other is one for other in others)
        assert fresh.simplify() is one
        mixed = in_threads(4, lambda i, roots=roots: graph_rewrite(roots[i], sym))
        assert all(a is b for a, b in zip(alone, mixed, strict=True))


def test_what_threads_made_of_a_graph_is_right() -> None:
    """The four simplified forms, evaluated, are the graph's own values."""
    graph = index_graph(40)
    (simple,) = set(in_threads(4, lambda _: graph.simplify()))
    loops = sorted(graph.open_ranges, key=lambda r: r.arg[0].number)
    for at in ((0, 0), (63, 47), (17, 5), (40, 31), (1, 46)):
        fixed = {r: UOp.const(dtypes.index, n) for r, n in zip(loops, at, strict=True)}
        flat = at[0] * 48 + at[1]
        total = flat
        for k in range(1, 40):
            part = (flat // (k % 7 + 1)) * (k % 5) + flat % (k % 11 + 1)
            total = (total + part) % (4096 + k) + (flat * 6 + k) // 3
        assert simple.substitute(fixed).simplify().arg == total


def live_after_collecting() -> int:
    gc.collect()
    return _core.node_stats()["live"]


def test_a_million_deep_chain_is_built_rewritten_and_freed() -> None:
    before = live_after_collecting()
    limit = sys.getrecursionlimit()
    i = UOp.range(7, 0)
    zero, addends = UOp.const(dtypes.index, 0), [UOp.const(dtypes.index, k) for k in range(1, 9)]
    u = i
    for k in range(DEEP // 2):
        u = UOp(Ops.MAX, dtypes.index, (UOp(Ops.ADD, dtypes.index, (u, addends[k % 8])), zero))
    assert _core.node_stats()["live"] - before >= DEEP
    simple = u.simplify()
    # i >= 0 and all that is added is positive, so every maximum goes and one sum is left.
    total = sum(k % 8 + 1 for k in range(DEEP // 2))
    assert simple is (i + total).simplify()
    assert (simple.vmin, simple.vmax) == (total, total + 6)
    assert sys.getrecursionlimit() == limit <= 1000
    del u, simple, i, zero, addends
    assert abs(live_after_collecting() - before) < 16


def test_a_deep_lazy_tensor_is_built_and_freed() -> None:
    """What nobody asks for is never scheduled, and costs nothing once it is gone."""
    before = live_after_collecting()
    x = Tensor([1.0, 2.0])
    y = x
    for _ in range(20_000):
        y = y * 0.5 + x
    assert y.shape == (2,)
    assert y.uop.has(Ops.BUFFER)
    del y
    del x
    assert abs(live_after_collecting() - before) < 64
