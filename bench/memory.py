"""What memory things take, and whether it grows.

    cnn peak           largest resident set of a process that trains the CNN of `train` for some
                       steps; `imported` of that before anything was made
    jitted steps       growth over 20 000 steps of the 8-8-8 perceptron under `mk.jit`: resident
                       set, live nodes, live buffers, bytes of memory in use
    lazy steps         the same over 3 000 steps without jit
    node               bytes a graph node takes
    kernels            bytes of memory a compiled kernel takes while 10 000 distinct ones are held
                       (by the compiler in force), how many of them are `left` when all are dropped,
                       and milliseconds of CPU to make one
    embedding V        gradient of rows 128 x 256 looked up in a table of V rows: floating-point
                       operations of its kernels, which must not grow with V, and its time, of which
                       the zeros of the table's gradient do
    cumsum N           running sum of N numbers, which must be linear; NumPy's time beside it

Every system runs in processes of its own. Growth, nodes and operations of kernels are ours alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench import _peers, harness

TABLES = (12_500, 50_000, 200_000)
LENGTHS = (1_000_000, 2_000_000, 4_000_000)
ROWS, WIDTH = 128, 256
PEAK_STEPS = 10
OWN: dict[str, tuple[tuple[str, str], ...]] = {
    "jitted steps": (("rss", "MB"), ("nodes", "more"), ("buffers", "more"), ("memory", "bytes")),
    "lazy steps": (("rss", "MB"), ("nodes", "more"), ("buffers", "more"), ("memory", "bytes")),
    "node": (("bytes", "bytes"),),
    "kernels": (("each", "bytes"), ("left", "bytes"), ("cpu", "ms")),
}
SECONDS = 0.3


def timings() -> tuple[str, ...]:
    """The names of the cases that every system is timed at."""
    return (*(f"embedding {v}" for v in TABLES), *(f"cumsum {n}" for n in LENGTHS))


def peak_of(start: Callable[[], tuple[harness.Step, harness.Wait]], before: float) -> harness.Case:
    """The case `cnn peak`: trains in this process and asks how large it ever was."""

    def run() -> dict[str, float]:
        step, wait = start()
        for _ in range(PEAK_STEPS):
            wait(step())
        return {"peak": harness.status("VmHWM"), "imported": before}

    return run


Make = Callable[[], tuple[harness.Step, harness.Wait]]


def timed(make: Make, seconds: float) -> dict[str, float]:
    """CPU milliseconds of a call."""
    cpu, _ = harness.steady(*make(), seconds)
    return {"ms": cpu * 1e3}


def worker(who: str, quick: bool) -> None:
    """Serves the cases of one system."""
    trains = _peers.load("train", who)
    system = trains if isinstance(trains, str) else _peers.load("memory", who)
    if isinstance(trains, str) or isinstance(system, str):
        harness.serve(None, "", missing=str(system))
        return
    start = partial(trains.start, who, "cnn", quick)
    cases: dict[str, harness.Case] = {"cnn peak": peak_of(start, harness.status("VmRSS"))}
    makers: Mapping[str, Make] = system.makers()
    if who == "torch.compile":  # one op each: nothing to compile
        makers = {}
    seconds = 0.01 if quick else SECONDS
    for name, make in makers.items():
        cases[name] = partial(timed, make, seconds)
    if who == harness.OURS:
        cases |= system.own(quick, {name: cases[name] for name in makers})
    harness.serve(cases, system.VERSION)


def main(args: argparse.Namespace) -> None:
    args.peers = _peers.spread(args.peers)
    options = ["--quick"] if args.quick else []
    peers = argparse.Namespace(**{**vars(args), "rounds": 1})
    rows: list[harness.Row] = []

    def run(
        cases: dict[str, tuple[str, str]], given: argparse.Namespace, **more: Any
    ) -> list[harness.Row]:
        return harness.compare("bench.memory", cases, given, options, **more)

    also = (("imported", "MB"),)
    rows += run({"cnn peak": ("peak", "MB")}, peers, also=also, warm_up=False)
    alone = argparse.Namespace(**{**vars(args), "peers": [], "rounds": 1})
    for name, (first, *others) in OWN.items():
        rows += run({name: first}, alone, also=others, warm_up=False)
    chosen = [name for name in timings() if not args.quick or name.endswith(("12500", "1000000"))]
    rows += run(
        dict.fromkeys(chosen, ("ms", "ms")), args, also=(("mflop", "MFLOP"), ("numpy", "ms"))
    )
    rows = [row for row in rows if row.figures]
    harness.show("memory", rows)
    harness.write_json(args, "memory", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(*started)
