"""What this process spent on schedules and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter


@dataclass(slots=True)
class CompileStats:
    """Graphs scheduled (bodies of functions, and what lies between calls, count each once), kernels
    lowered, finished plans found on disk; and seconds in importing what only these need, in looking
    for finished plans and keeping them, in scheduling, in lowering, in rendering, in waiting for
    machine code (made beside the lowering of later kernels, or on disk), in making plans, and in
    running them."""

    scheduled: int = 0
    lowered: int = 0
    found: int = 0
    import_seconds: float = 0.0
    disk_seconds: float = 0.0
    schedule_seconds: float = 0.0
    lower_seconds: float = 0.0
    render_seconds: float = 0.0
    compile_seconds: float = 0.0
    plan_seconds: float = 0.0
    run_seconds: float = 0.0


stats = CompileStats()


@contextmanager
def importing() -> Iterator[None]:
    """Counts the block as the import of what is loaded only when it is needed."""
    start = perf_counter()
    try:
        yield
    finally:
        stats.import_seconds += perf_counter() - start
