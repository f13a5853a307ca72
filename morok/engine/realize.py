"""Realize: lazy tensor nodes become memory."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, perf_counter_ns

from morok.engine.buffers import (
    base_of,
    bind,
    hold,
    is_buffer_view,
    is_write,
    new_buffer,
    new_version,
)
from morok.engine.normal import Normal, arguments, sink_of
from morok.engine.planned import Planned
from morok.engine.record import recording
from morok.engine.report import report_kernels, report_schedule, watched
from morok.engine.schedule import plan
from morok.engine.stats import stats
from morok.engine.variables import in_order
from morok.ir import Ops, UOp, laid_out, room_of
from morok.runtime import Buffer, Device


def realize(roots: Sequence[UOp]) -> list[UOp]:
    """Compute all roots together; for each, the buffer view that holds its value.

    A root is a tensor-level value, or a write `AFTER(view, STORE(view, value))`. Every read in the
    call means the contents before any of its writes. A write's answer is its view on a new BUFFER
    node of the same memory; the old node is dead. On an error nothing was written: earlier tensors
    are intact.
    """
    found: dict[UOp, UOp] = {}
    todo: list[UOp] = []
    for root in dict.fromkeys(roots):
        if is_buffer_view(root):
            found[root] = root
        elif root.realized is not None:
            found[root] = root.realized
        elif room_of(root.shape or ()) == 0:
            found[root] = laid_out(new_buffer(root.dtype, 0), root.shape or ())
        else:
            todo.append(root)
    if todo:
        found.update(zip(todo, _run(todo), strict=True))
    return [found[r] for r in roots]


def _run(roots: list[UOp]) -> list[UOp]:
    device = Device["CPU"]
    normal = Normal(sink_of(roots))
    planned = plan(normal, device)
    memory = run_plan(planned, normal, arguments(normal))
    out: list[UOp] = []
    renewed: dict[UOp, UOp] = {}
    for root, slot in zip(roots, planned.results, strict=True):
        if is_write(root):
            old = base_of(root.src[0])
            if old not in renewed:
                renewed[old] = new_version(old)
            out.append(root.src[0].substitute(renewed))
        else:
            shape = root.shape or ()
            fresh = bind(UOp.new_buffer(root.dtype, room_of(shape)), memory[slot])
            view = laid_out(fresh, shape)
            if root.op is not Ops.CONST:  # which stands in every graph that has this number
                hold(root, view)
            out.append(view)
    return out


def run_plan(planned: Planned, normal: Normal, memory: Sequence[Buffer]) -> list[Buffer]:
    """Run the plan of a normalised sink on the memory of its windows; the memory of all slots,
    results included. ArgumentError for a variable without a value."""
    given = {name: value for name, (_, value) in normal.variables.items()}
    values = in_order(planned.variables, given)
    every = [*memory, *map(Buffer, planned.fresh)]
    record = recording()
    if record is not None:
        record.run(planned, normal.windows, every, values)
    if watched():
        _run_watched(planned, every, values)
    else:
        start = perf_counter()
        planned.plan.run(every, values)
        stats.run_seconds += perf_counter() - start
    return every


def _run_watched(planned: Planned, memory: list[Buffer], values: tuple[int, ...]) -> None:
    report_schedule(planned)
    start = perf_counter_ns()
    began, durations = planned.plan.run_profiled(memory, values)
    report_kernels(planned, began, durations, perf_counter_ns() - start)
