"""What this process spent on schedules and kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CompileStats:
    """Graphs scheduled (bodies of functions, and what lies between calls, count each once), kernels
    lowered, and seconds in lowering, in getting machine code (from the C compiler or the disk), and
    in running plans."""

    scheduled: int = 0
    lowered: int = 0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    run_seconds: float = 0.0


stats = CompileStats()
