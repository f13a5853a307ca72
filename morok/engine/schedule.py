"""From a normalised graph to a plan, looked up by structure: a training step lowers nothing the
second time."""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock

from morok import config
from morok.caches import Bounded
from morok.engine.compile import CompiledKernel, compile_kernels
from morok.engine.functions import function_schedule, make_schedule
from morok.engine.normal import Normal, normal_function
from morok.engine.plans import Row, build_plan, stored_slots
from morok.errors import InvalidGraphError
from morok.forking import held_at_fork
from morok.ir import Level, Ops, UOp, check_stage
from morok.rangeify import Schedule
from morok.runtime import CpuDevice, ExecutionPlan

_lock = held_at_fork(RLock())
_plans: Bounded[tuple[bytes, str, bool], Planned] = Bounded("schedules", 1024, _lock)


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule ready to run. Slots: the caller's buffers, then the results."""

    key: bytes  # of the graph it computes
    schedule: Schedule
    kernels: tuple[CompiledKernel, ...]
    plan: ExecutionPlan
    results: tuple[int, ...]  # for each source of the sink: its slot
    fresh: tuple[UOp, ...]  # BUFFERs of the result slots that the caller must allocate
    rows: tuple[Row, ...]  # the kernels as the plan has them
    given: int  # slots that the caller fills; the others lie in the plan's arena
    sizes: tuple[int, ...]  # bytes of each of those
    variables: tuple[str, ...] = ()  # in the order the plan takes their values


def plan(normal: Normal, device: CpuDevice) -> Planned:
    """The plan of a normalised sink, from the cache or made now."""
    # By content: a graph kept here would keep the memory of the values computed from it.
    key = (normal.key, device.compiler.identity, config.get().noopt)
    if config.get().verify and normal.graph.key != normal.key:
        raise InvalidGraphError(
            "the key of a graph that was not built is not the graph's",
            node=normal.graph,
            stage="normalise",
            rule="key",
        )
    with _lock:
        found = _plans.get(key)
        if found is None:
            graph = check_stage(normal.graph, Level.TENSOR, "normalise")
            schedule = make_schedule(graph)
            found = _make(normal.key, schedule, len(normal.windows), device)
            _plans.put(key, found)
        return found


def compile_function(function: UOp, device: CpuDevice) -> None:
    """Schedule the body of a FUNCTION and compile its kernels now, not when it is called first."""
    with _lock:
        schedule = function_schedule(normal_function(function)[0])
        compile_kernels([call.src[0] for call in schedule.calls], device)


def _make(key: bytes, schedule: Schedule, n_params: int, device: CpuDevice) -> Planned:
    kernels = compile_kernels([c.src[0] for c in schedule.calls], device)
    slots: dict[UOp, int] = {}
    fresh: list[UOp] = []
    for b in schedule.outputs:
        if b.op is Ops.BUFFER and b not in slots:
            slots[b] = n_params + len(fresh)
            fresh.append(b)
    n_given = n_params + len(fresh)
    sizes: list[int] = []
    for call in schedule.calls:
        for b in call.src[1:]:
            if b.op is Ops.BUFFER and b not in slots:
                slots[b] = n_given + len(sizes)
                sizes.append(b.arg * b.dtype.itemsize)
    rows = []
    variables = tuple(sorted({name for kernel in kernels for name in kernel.variables}))
    number = {name: i for i, name in enumerate(variables)}
    stores = {call.src[0]: stored_slots(call.src[0]) for call in schedule.calls}
    for call, kernel in zip(schedule.calls, kernels, strict=True):
        places = tuple(a.arg[0] if a.op is Ops.PARAM else slots[a] for a in call.src[1:])
        written = stores[call.src[0]]
        taken = tuple(number[name] for name in kernel.variables)
        rows.append(
            Row(
                kernel.kernel,
                places,
                kernel.scratch,
                0,
                max(kernel.extent, 1),
                kernel.name,
                written,
                taken,
                split=kernel.split,
            )
        )
    ready = build_plan(rows, n_given, sizes, n_vars=len(variables))
    results = tuple(b.arg[0] if b.op is Ops.PARAM else slots[b] for b in schedule.outputs)
    return Planned(
        key,
        schedule,
        tuple(kernels),
        ready,
        results,
        tuple(fresh),
        tuple(rows),
        n_given,
        tuple(sizes),
        variables,
    )
