"""What a run of a schedule cost: reports for programs, and what MOROK_DEBUG and MOROK_PROFILE
show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from morok import config
from morok.engine.planned import Planned
from morok.ir import Estimates
from morok.runtime import kernel_line, profiling, record_kernels

Watcher = Callable[[Planned, Sequence[int]], None]
watchers: list[Watcher] = []


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel of a run. Operations and bytes are counted on its graph: each float operation as
    often as it is carried out, each distinct element of a buffer once for each direction."""

    name: str
    flops: int
    bytes_read: int
    bytes_written: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """One schedule that ran. `str` makes a table of it.

    peak_memory: bytes the run needed beside the memory of its inputs: results, and the arena of
    intermediate values with the kernels' scratch.
    """

    kernels: tuple[KernelReport, ...]  # in the order in which they ran
    peak_memory: int

    @property
    def flops(self) -> int:
        """Of all kernels."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def bytes_read(self) -> int:
        """From buffers, by all kernels."""
        return sum(kernel.bytes_read for kernel in self.kernels)

    @property
    def bytes_written(self) -> int:
        """To buffers, by all kernels."""
        return sum(kernel.bytes_written for kernel in self.kernels)

    @property
    def nanoseconds(self) -> int:
        """Of all kernels, one after another."""
        return sum(kernel.nanoseconds for kernel in self.kernels)

    def __str__(self) -> str:
        width = max((len(kernel.name) for kernel in self.kernels), default=0)
        head = f"{'kernel'.ljust(width)}  {'us':>10}  {'flops':>9}  {'read':>9}  {'written':>9}"
        rows = [_row(k.name.ljust(width), k) for k in self.kernels]
        count = f"{len(self.kernels)} kernels"
        return "\n".join(
            [head, *rows, f"{_row(count.ljust(width), self)}  peak {scaled(self.peak_memory)}B"]
        )


def _row(name: str, cost: KernelReport | ScheduleReport) -> str:
    cells = (scaled(cost.flops), f"{scaled(cost.bytes_read)}B", f"{scaled(cost.bytes_written)}B")
    numbers = "  ".join(cell.rjust(9) for cell in cells)
    return f"{name}  {cost.nanoseconds / 1000:>10.1f}  {numbers}"


def scaled(n: float) -> str:
    """A count in words: `823`, `1.50 k`, `16.8 M`."""
    for unit in ("", " k", " M", " G"):
        if n < 1000:
            return f"{n:.3g}{unit}" if unit else f"{n:.0f} "
        n /= 1000
    return f"{n:.3g} T"


def schedule_report(planned: Planned, durations: Sequence[int]) -> ScheduleReport:
    """The report of one run of a plan; `durations` in nanoseconds."""
    kernels = []
    for kernel, ns in zip(planned.kernels, durations, strict=True):
        cost = kernel.estimates or Estimates()
        kernels.append(
            KernelReport(kernel.name, cost.flops, cost.bytes_read, cost.bytes_written, ns)
        )
    results = sum(planned.fresh)
    return ScheduleReport(tuple(kernels), planned.plan.lease_bytes + results)


@contextmanager
def watch_schedules() -> Iterator[list[ScheduleReport]]:
    """The reports of the schedules that run inside the block, in a list that grows as they do.

        with mk.watch_schedules() as seen:
            loss.backward()
            optimizer.step()
        print(seen[-1])

    Each `realize` of something that was not computed yet is one schedule; a call of a jitted
    function is one from its third on. Kernels run one after another and are timed.
    """
    seen: list[ScheduleReport] = []
    with watch_kernels(lambda planned, durations: seen.append(schedule_report(planned, durations))):
        yield seen


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
        for call in planned.calls:
            function = f" in {', '.join(call.metadata)}" if call.metadata else ""
            print(f"  {call.name}({', '.join(call.arguments)}){function}", file=sys.stderr)
    if level >= 3:
        for kernel in planned.kernels:
            print(kernel.source, file=sys.stderr)


def report_kernels(planned: Planned, began: int, durations: Sequence[int], total_ns: int) -> None:
    """MOROK_DEBUG 1: a line a kernel with GB/s and GFLOP/s, and one of the schedule; 2: what each
    kernel computes, reads and writes too. MOROK_PROFILE: spans of the trace; watchers."""
    for watcher in list(watchers):
        watcher(planned, durations)
    if profiling():
        record_kernels([k.name for k in planned.kernels], began, durations)
    level = config.get().debug
    if level < 1:
        return
    report = schedule_report(planned, durations)
    if level >= 2:
        print(report, file=sys.stderr)
    else:
        for k in report.kernels:
            moved = k.bytes_read + k.bytes_written
            line = kernel_line(k.name, k.nanoseconds, bytes_moved=moved, flops=k.flops)
            print(line, file=sys.stderr)
    print(
        f"  {len(durations)} kernels in {total_ns / 1e6:.3f} ms, {scaled(report.flops)}flops, "
        f"{scaled(report.bytes_read)}B read, {scaled(report.bytes_written)}B written, "
        f"peak {scaled(report.peak_memory)}B",
        file=sys.stderr,
    )
