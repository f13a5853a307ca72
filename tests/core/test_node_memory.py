"""Memory of nodes: how much one takes, and that all of it comes back."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from morok import _core
from morok.dtype import dtypes
from morok.errors import ShapeError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp, graph_rewrite
from morok.symbolic import symbolic

X = dtypes.index
STATM = Path("/proc/self/statm")
on_linux = pytest.mark.skipif(not STATM.exists(), reason="reads /proc/self/statm")

BYTES_A_NODE = f"""
import os
from morok.dtype import dtypes
from morok.ir import Ops, UOp

def resident():
    with open("{STATM}") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

x, one = UOp.range(7, 0), UOp.const(dtypes.index, 1)
before = resident()
for _ in range(1_000_000):
    x = UOp(Ops.ADD, dtypes.index, (x, one))
print((resident() - before) / 1_000_000)
"""


def resident() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@on_linux
def test_a_node_takes_at_most_256_bytes_with_its_place_in_the_table() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = [sys.executable, "-c", BYTES_A_NODE]
    output = subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout
    assert 200 < float(output) < 260, "256, and the rounding of the allocator"


def work() -> None:
    """Something of everything that makes and drops nodes."""
    i, j = UOp.range(8, 0), UOp.range(16, 1)
    index = i * 16 + j
    for number in range(40):
        index = (index * 4 + number) // 4
    buffer = UOp.new_buffer(dtypes.float32, 4096)
    value = buffer.at(index.simplify()).reduce(ReduceOp.ADD, j)
    moved = value.substitute({i: UOp.range(8, 2, AxisType.GLOBAL)})
    info = KernelInfo("kernel", (AxisType.GLOBAL,))
    sink = UOp.new_sink(moved, *(UOp.const(dtypes.int32, n) for n in range(50)), info=info)
    assert pickle.loads(pickle.dumps(sink)) is sink
    graph_rewrite(sink, symbolic)
    buffer.realized = UOp.new_buffer(dtypes.float32, 4096)
    _core.cut_realized(sink)
    sink.toposort(stop=lambda node: node is value)
    old = _core.set_provenance(("line", 1))
    try:
        with pytest.raises(ShapeError):
            buffer.reshape((5, 5))
        with pytest.raises(TypeError):
            UOp(Ops.CONST, X, (), (1, object()))
        with pytest.raises(TypeError):
            UOp(Ops.ADD, X, (i, 3))
    finally:
        _core.set_provenance(old)
    UOp(Ops.CONST, X, (), ("some", b"argument" * 400, 2**80, 1.5))


def test_all_nodes_and_arguments_go_away() -> None:
    work()
    gc.collect()
    before = _core.node_stats()
    for _ in range(20):
        work()
    gc.collect()
    after = _core.node_stats()
    assert after["live"] == before["live"]
    assert after["arguments"] == before["arguments"]
    assert after["built"] > before["built"] + 1000


@on_linux
def test_memory_stays_flat() -> None:
    for _ in range(30):
        work()
    gc.collect()
    before = resident()
    for _ in range(300):
        work()
    gc.collect()
    assert resident() - before < 1 << 20


def test_all_nodes_go_away_whoever_drops_them() -> None:
    """Threads build and drop the same nodes at the same time."""
    gc.collect()
    before = _core.node_stats()["live"]
    graphs: list[UOp] = []

    def build(seed: int) -> None:
        for number in range(100):
            x = UOp.range(7, number % 5)
            for n in range(50):
                x = x * 3 + (n + seed % 2)
            graphs.append(x)
            if len(graphs) > 20:
                graphs.pop(0)

    threads = [threading.Thread(target=build, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graphs.clear()
    assert _core.node_stats()["live"] == before


def test_the_table_survives_churn() -> None:
    """Nodes come and go in random places of a full table; each is found as long as it lives."""
    numbers = [(n * 2654435761) % (1 << 32) for n in range(60_000)]
    held = {n: UOp.const(X, n) for n in numbers[:30_000]}
    for drop, add in zip(numbers[:30_000], numbers[30_000:], strict=True):
        del held[drop]
        held[add] = UOp.const(X, add)
    built = _core.node_stats()["built"]
    assert all(UOp.const(X, n) is node for n, node in held.items())
    assert _core.node_stats()["built"] == built
