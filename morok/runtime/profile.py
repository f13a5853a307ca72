"""What took how long: spans for a Chrome trace (MOROK_PROFILE), and a kernel's line in words.

    MOROK_PROFILE=trace.json python train.py      # open in chrome://tracing or ui.perfetto.dev

With profiling off a span costs one look at the settings.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from morok import config

MAX_EVENTS = 1_000_000  # the newest are kept

_events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
_process = os.getpid()
_saves_at_exit = False


def profiling() -> bool:
    """Whether spans are recorded here."""
    return config.get().profile is not None


@contextmanager
def span(category: str, name: str, **facts: Any) -> Iterator[None]:
    """Records how long the block takes, if profiling is on."""
    if not profiling():
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        record(category, name, start, time.perf_counter_ns() - start, **facts)


def record(category: str, name: str, start_ns: int, duration_ns: int, **facts: Any) -> None:
    """Records a span that is over; the clock is `time.perf_counter_ns`."""
    global _saves_at_exit
    if not _saves_at_exit:
        _saves_at_exit = True
        atexit.register(_save_at_exit, config.get().profile)
    _events.append(
        {
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": start_ns / 1000,
            "dur": duration_ns / 1000,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "args": facts,
        }
    )


def record_kernels(names: Iterable[str], start_ns: int, durations_ns: Iterable[int]) -> None:
    """Records what `ExecutionPlan.run_profiled` returned: kernels that ran one after another."""
    for name, duration in zip(names, durations_ns, strict=True):
        record("kernel", name, start_ns, duration)
        start_ns += duration


def save(path: Path | str | None = None) -> Path | None:
    """Writes all spans recorded so far as a Chrome trace; the file, or None if there is no path.

    `path` defaults to the setting `profile`. A forked child adds its process number to the name.
    """
    import json  # only needed when there is something to save

    path = path if path is not None else config.get().profile
    if path is None:
        return None
    path = Path(path)
    if os.getpid() != _process:
        path = path.with_name(f"{path.stem}-{os.getpid()}{path.suffix}")
    path.write_text(json.dumps({"traceEvents": list(_events), "displayTimeUnit": "ns"}))
    return path


def clear() -> None:
    """Forgets all spans."""
    _events.clear()


def kernel_line(name: str, ns: int, *, bytes_moved: int = 0, flops: int = 0) -> str:
    """A kernel in words: its time, GB/s and GFLOP/s (bytes and operations over nanoseconds)."""
    line = f"{name:<40} {ns / 1000:>10.1f} us"
    line += f" {bytes_moved / ns:>8.1f} GB/s" if bytes_moved and ns else ""
    line += f" {flops / ns:>8.1f} GFLOP/s" if flops and ns else ""
    return line


def _save_at_exit(path: Path | None) -> None:
    try:
        save(path)
    except OSError as error:
        print(f"morok: cannot write the profile: {error}", file=sys.stderr)


os.register_at_fork(after_in_child=clear)
