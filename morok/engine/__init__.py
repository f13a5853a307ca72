"""Execution: schedules, plans, caches, realize."""

import sys

from morok.engine import buffers
from morok.engine.buffers import base_of, hold, is_buffer_view, is_write
from morok.engine.compile import (
    CompiledKernel,
    compile_kernels,
    heaviest_kernel,
    run_kernel,
)
from morok.engine.normal import Normal, Window, arguments, sink_of
from morok.engine.own import own_nodes, replace_own
from morok.engine.planned import Call, Planned
from morok.engine.plans import Row, build_plan
from morok.engine.realize import realize, run_plan
from morok.engine.record import (
    Copy,
    Draw,
    Record,
    Run,
    Seed,
    duplicate,
    record_into,
    recording,
    thread_record,
)
from morok.engine.report import (
    KernelReport,
    ScheduleReport,
    report_kernels,
    report_schedule,
    schedule_report,
    watch_kernels,
    watch_schedules,
    watched,
    watchers,
)
from morok.engine.schedule import compile_function, plan, plan_all
from morok.engine.stats import CompileStats, stats
from morok.ir import UOp, register_simplifier


def _simplify_first(node: UOp) -> UOp:
    """The symbolic layer, which makes itself known when it is imported: that takes a while, and
    many programs do without."""
    from morok.symbolic import simplify

    return simplify(node)


if "morok.symbolic" not in sys.modules:
    register_simplifier(_simplify_first)

__all__ = [
    "Call",
    "CompileStats",
    "CompiledKernel",
    "Copy",
    "Draw",
    "KernelReport",
    "Normal",
    "Planned",
    "Record",
    "Row",
    "Run",
    "ScheduleReport",
    "Seed",
    "Window",
    "arguments",
    "base_of",
    "buffers",
    "build_plan",
    "compile_function",
    "compile_kernels",
    "duplicate",
    "heaviest_kernel",
    "hold",
    "is_buffer_view",
    "is_write",
    "own_nodes",
    "plan",
    "plan_all",
    "realize",
    "record_into",
    "recording",
    "replace_own",
    "report_kernels",
    "report_schedule",
    "run_kernel",
    "run_plan",
    "schedule_report",
    "sink_of",
    "stats",
    "thread_record",
    "watch_kernels",
    "watch_schedules",
    "watched",
    "watchers",
]
