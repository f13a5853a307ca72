"""From a normalised graph to a plan, looked up by structure: a training step lowers nothing the
second time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING

from morok import config
from morok.caches import Bounded
from morok.engine.compile import CompiledKernel, compile_all, compile_kernels
from morok.engine.finished import kernel_row, load_plan, store_plan
from morok.engine.functions import function_schedule, make_schedule
from morok.engine.normal import Normal, normal_function
from morok.engine.planned import Call, Planned
from morok.engine.plans import build_plan, designed, stored_slots
from morok.engine.stats import stats
from morok.errors import InvalidGraphError, MorokError
from morok.forking import held_at_fork
from morok.ir import Level, Ops, UOp, check_stage
from morok.runtime import CpuDevice

if TYPE_CHECKING:
    from morok.rangeify import Schedule

_lock = held_at_fork(RLock())
_plans: Bounded[tuple[bytes, str, bool], Planned] = Bounded("schedules", 1024, _lock)


def plan(normal: Normal, device: CpuDevice) -> Planned:
    """The plan of a normalised sink, from the caches or made now."""
    key = _key(normal, device)
    with _lock:
        found = _plans.get(key) or _finished(normal, device)
        if found is None:
            schedule = _schedule(normal)
            kernels = compile_kernels([call.src[0] for call in schedule.calls], device)
            found = _keep(_assemble(normal, schedule, kernels), device)
        _plans.put(key, found)
        return found


def plan_all(
    normals: Sequence[Normal],
    device: CpuDevice,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Planned | MorokError]:
    """The plan of each sink: new kernels of all of them are compiled together. Errors stand in the
    place of what cannot be scheduled, lowered or compiled; `progress` as for `compile_all`.
    DeviceError without a compiler."""
    with _lock:
        _ = device.compiler
        out: list[Planned | MorokError | Schedule] = []
        for normal in normals:
            try:
                found = _plans.get(_key(normal, device)) or _finished(normal, device)
                out.append(_schedule(normal) if found is None else found)
            except MorokError as error:
                out.append(error)
        sinks = {
            call.src[0]: None
            for each in out
            if not isinstance(each, Planned | MorokError)
            for call in each.calls
        }
        compiled = dict(zip(sinks, compile_all([*sinks], device, progress=progress), strict=True))
        plans: list[Planned | MorokError] = []
        for normal, each in zip(normals, out, strict=True):
            if not isinstance(each, Planned | MorokError):
                kernels = [compiled[call.src[0]] for call in each.calls]
                wrong = next((k for k in kernels if isinstance(k, MorokError)), None)
                good = [k for k in kernels if isinstance(k, CompiledKernel)]
                each = wrong or _keep(_assemble(normal, each, good), device)
            if isinstance(each, Planned):
                _plans.put(_key(normal, device), each)
            plans.append(each)
        return plans


def _key(normal: Normal, device: CpuDevice) -> tuple[bytes, str, bool]:
    """By content: a graph kept here would keep the memory of the values computed from it."""
    if config.get().verify and normal.graph.key != normal.key:
        raise InvalidGraphError(
            "the key of a graph that was not built is not the graph's",
            node=normal.graph,
            stage="normalise",
            rule="key",
        )
    return normal.key, device.compiler.identity, config.get().noopt


def _finished(normal: Normal, device: CpuDevice) -> Planned | None:
    """The plan that the disk has."""
    start = perf_counter()
    found = load_plan(normal.key, device)
    stats.disk_seconds += perf_counter() - start
    stats.found += found is not None
    return found


def _keep(planned: Planned, device: CpuDevice) -> Planned:
    """The disk has it from now on."""
    start = perf_counter()
    store_plan(planned, device)
    stats.disk_seconds += perf_counter() - start
    return planned


def _schedule(normal: Normal) -> Schedule:
    return make_schedule(check_stage(normal.graph, Level.TENSOR, "normalise"))


def compile_function(function: UOp, device: CpuDevice) -> None:
    """Schedule the body of a FUNCTION and compile its kernels now, not when it is called first."""
    with _lock:
        schedule = function_schedule(normal_function(function)[0])
        compile_kernels([call.src[0] for call in schedule.calls], device)


def _assemble(normal: Normal, schedule: Schedule, kernels: Sequence[CompiledKernel]) -> Planned:
    """The plan of a schedule whose kernels are compiled."""
    start = perf_counter()
    n_params = len(normal.windows)
    slots: dict[UOp, int] = {}
    fresh: list[int] = []
    for b in schedule.outputs:
        if b.op is Ops.BUFFER and b not in slots:
            slots[b] = n_params + len(fresh)
            fresh.append(b.arg * b.dtype.itemsize)
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
    stores = {sink: stored_slots(sink) for sink in {call.src[0] for call in schedule.calls}}
    for call, kernel in zip(schedule.calls, kernels, strict=True):
        places = tuple(a.arg[0] if a.op is Ops.PARAM else slots[a] for a in call.src[1:])
        taken = tuple(number[name] for name in kernel.variables)
        rows.append(kernel_row(kernel, places, stores[call.src[0]], taken))
    design = designed(rows, n_given, sizes)
    ready = build_plan(rows, n_given, sizes, n_vars=len(variables), design=design)
    results = tuple(b.arg[0] if b.op is Ops.PARAM else slots[b] for b in schedule.outputs)
    stats.plan_seconds += perf_counter() - start
    return Planned(
        normal.key,
        tuple(map(_in_words, schedule.calls)),
        tuple(kernels),
        ready,
        results,
        tuple(fresh),
        tuple(rows),
        n_given,
        tuple(sizes),
        variables,
        design,
    )


def _in_words(call: UOp) -> Call:
    arguments = (
        f"in{a.arg[0]}" if a.op is Ops.PARAM else f"buf{a.src[0].arg}" for a in call.src[1:]
    )
    return Call(call.arg.name, tuple(arguments), tuple(call.arg.metadata))
