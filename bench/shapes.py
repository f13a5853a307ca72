"""`python -m bench shapes`: computations of 2,000 distinct shapes in one process; memory and caches
must not grow with them.

Each shape is new to every cache: elementwise work, a sum, a product, a write to a part. The
resident memory is printed as the run goes on; after the caches are full (the second half) it must
stay flat.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from time import perf_counter

import numpy as np

import morok as mk
from bench import harness
from morok._core import memory_stats, node_stats
from morok.tensor import Tensor


def resident() -> float:
    """MB of this process in memory."""
    return harness.status("VmRSS")


def work(n: int) -> None:
    """Three schedules of a size of its own."""
    x = Tensor(np.ones((n, 3), np.float32)).realize()
    x[1:] *= 2
    y = (x.relu() + 1).sum(0)
    product = x.T @ x
    assert y.tolist() == [2 + 3 * (n - 1)] * 3
    assert product[0, 0].item() == 1 + 4 * (n - 1)


def main(argv: Sequence[str]) -> int:
    """1 if memory grew by more than the allowance in the second half."""
    parser = argparse.ArgumentParser(prog="python -m bench shapes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--allow", type=float, default=16.0, help="MB in the second half")
    options = parser.parse_args(argv)
    began, middle = perf_counter(), 0.0
    for i in range(options.shapes):
        work(i + 2)
        if (i + 1) % max(options.shapes // 10, 1) == 0:
            gc.collect()
            info = mk.cache_info()
            full = " ".join(f"{name.rpartition('.')[2]} {n}/{b}" for name, (n, b) in info.items())
            print(
                f"{i + 1:5} shapes {perf_counter() - began:6.0f} s  {resident():7.1f} MB  "
                f"{node_stats()['live']} nodes  {memory_stats()['live_bytes'] / 1e6:.2f} MB live  "
                f"{full}",
                flush=True,
            )
            if i + 1 <= options.shapes // 2:
                middle = resident()
    grown = resident() - middle
    mk.clear_caches()
    gc.collect()
    print(f"grown by {grown:.1f} MB in the second half; {resident():.1f} MB with caches emptied")
    return 1 if grown > options.allow else 0
