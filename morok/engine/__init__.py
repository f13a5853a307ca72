"""Execution: schedules, plans, caches, realize."""

from morok.engine import buffers
from morok.engine.buffers import base_of, hold, is_buffer_view, is_write
from morok.engine.compile import (
    CompiledKernel,
    CompileStats,
    clear_kernels,
    compile_kernels,
    heaviest_kernel,
    run_kernel,
    stats,
)
from morok.engine.normal import Window, arguments, normalise, sink_of
from morok.engine.realize import realize
from morok.engine.report import watch_kernels
from morok.engine.schedule import Planned, clear_plans, plan

__all__ = [
    "CompileStats",
    "CompiledKernel",
    "Planned",
    "Window",
    "arguments",
    "base_of",
    "buffers",
    "clear_kernels",
    "clear_plans",
    "compile_kernels",
    "heaviest_kernel",
    "hold",
    "is_buffer_view",
    "is_write",
    "normalise",
    "plan",
    "realize",
    "run_kernel",
    "sink_of",
    "stats",
    "watch_kernels",
]
