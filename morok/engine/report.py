"""What MOROK_DEBUG and MOROK_PROFILE show of a run, and who else is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from morok import config
from morok.engine.schedule import Planned
from morok.runtime import kernel_line, profiling, record_kernels

Watcher = Callable[[Planned, Sequence[int]], None]
watchers: list[Watcher] = []


@contextmanager
def watch_kernels(watcher: Watcher) -> Iterator[None]:
    """Inside the block, `watcher(planned, nanoseconds of each kernel)` after every run."""
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


def watched() -> bool:
    """Whether anybody wants to know how long kernels take."""
    return bool(watchers) or profiling() or config.get().debug > 0


def report_schedule(planned: Planned) -> None:
    """MOROK_DEBUG 2: the kernels and their arguments; 3: their sources."""
    level = config.get().debug
    if level >= 2:
        for call in planned.schedule.calls:
            args = ", ".join(
                f"in{a.arg[0]}" if a.op.name == "PARAM" else f"buf{a.src[0].arg}"
                for a in call.src[1:]
            )
            print(f"  {call.arg.name}({args})", file=sys.stderr)
    if level >= 3:
        for kernel in planned.kernels:
            print(kernel.source, file=sys.stderr)


def report_kernels(planned: Planned, began: int, durations: Sequence[int], total_ns: int) -> None:
    """MOROK_DEBUG 1: a line a kernel with GB/s and GFLOP/s; MOROK_PROFILE: spans of the trace;
    watchers."""
    for watcher in list(watchers):
        watcher(planned, durations)
    if profiling():
        record_kernels([k.name for k in planned.kernels], began, durations)
    if config.get().debug < 1:
        return
    for call, kernel, ns in zip(planned.schedule.calls, planned.kernels, durations, strict=True):
        cost = call.src[0].arg.estimates
        line = kernel_line(kernel.name, ns, bytes_moved=cost.bytes_moved, flops=cost.flops)
        print(line, file=sys.stderr)
    print(f"  {len(durations)} kernels in {total_ns / 1e6:.3f} ms", file=sys.stderr)
