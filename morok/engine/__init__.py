"""Execution: schedules, plans, caches, realize."""

from morok.engine import buffers
from morok.engine.compile import (
    CompiledKernel,
    CompileStats,
    clear_kernels,
    compile_kernels,
    heaviest_kernel,
    run_kernel,
    stats,
)
from morok.engine.realize import realize
from morok.engine.schedule import Planned, clear_plans, normalise, plan, sink_of

__all__ = [
    "CompileStats",
    "CompiledKernel",
    "Planned",
    "buffers",
    "clear_kernels",
    "clear_plans",
    "compile_kernels",
    "heaviest_kernel",
    "normalise",
    "plan",
    "realize",
    "run_kernel",
    "sink_of",
    "stats",
]
