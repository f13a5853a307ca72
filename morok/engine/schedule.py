"""From a normalised graph to a plan, looked up by structure: a training step lowers nothing the
second time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import RLock

from morok import config
from morok.engine.compile import CompiledKernel, compile_kernels
from morok.forking import held_at_fork
from morok.ir import Level, Ops, UOp, check_stage
from morok.rangeify import Schedule, run_kernel_split_pipeline
from morok.runtime import CpuDevice, ExecutionPlan

_PLANS = 1024  # schedules kept in memory
_ALIGN = 64
_plans: OrderedDict[tuple[bytes, str, bool], Planned] = OrderedDict()
_lock = held_at_fork(RLock())


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule ready to run. Slots: the caller's buffers, then the results."""

    schedule: Schedule
    kernels: tuple[CompiledKernel, ...]
    plan: ExecutionPlan
    results: tuple[int, ...]  # for each source of the sink: its slot
    fresh: tuple[UOp, ...]  # BUFFERs of the result slots that the caller must allocate
    arena_bytes: int


def plan(normal: UOp, n_params: int, device: CpuDevice) -> Planned:
    """The plan of a normalised sink, from the cache or made now."""
    # By content: a graph kept here would keep the memory of the values computed from it.
    key = (normal.key, device.compiler.identity, config.get().noopt)
    with _lock:
        found = _plans.get(key)
        if found is None:
            check_stage(normal, Level.TENSOR, "normalise")
            found = _plans[key] = _make(run_kernel_split_pipeline(normal), n_params, device)
            while len(_plans) > _PLANS:
                _plans.popitem(last=False)
        _plans.move_to_end(key)
        return found


def _make(schedule: Schedule, n_params: int, device: CpuDevice) -> Planned:
    kernels = compile_kernels([c.src[0] for c in schedule.calls], device)
    slots: dict[UOp, int] = {}
    fresh: list[UOp] = []
    for b in schedule.outputs:
        if b.op is Ops.BUFFER and b not in slots:
            slots[b] = n_params + len(fresh)
            fresh.append(b)
    n_slots = n_params + len(fresh)
    offsets, arena_bytes = _place(schedule, slots)
    slots.update({b: n_slots + i for i, b in enumerate(offsets)})
    rows = []
    for call, kernel in zip(schedule.calls, kernels, strict=True):
        places = tuple(a.arg[0] if a.op is Ops.PARAM else slots[a] for a in call.src[1:])
        rows.append((kernel.kernel, places, kernel.scratch, 0, 1, None, kernel.name))
    ready = ExecutionPlan(rows, n_slots, arena=list(offsets.values()), arena_bytes=arena_bytes)
    results = tuple(b.arg[0] if b.op is Ops.PARAM else slots[b] for b in schedule.outputs)
    return Planned(schedule, tuple(kernels), ready, results, tuple(fresh), arena_bytes)


def _place(schedule: Schedule, taken: dict[UOp, int]) -> tuple[dict[UOp, int], int]:
    """Offsets of the intermediate buffers in one arena: best fit over their lifetimes."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for time, call in enumerate(schedule.calls):
        for a in call.src[1:]:
            if a.op is Ops.BUFFER and a not in taken:
                first.setdefault(a, time)
                last[a] = time
    free: list[tuple[int, int]] = []  # (size, offset)
    offsets: dict[UOp, int] = {}
    top = 0
    starting: dict[int, list[UOp]] = {}
    ending: dict[int, list[UOp]] = {}
    for b, t in first.items():
        starting.setdefault(t, []).append(b)
        ending.setdefault(last[b], []).append(b)
    for time in range(len(schedule.calls)):
        for b in starting.get(time, ()):
            size = _bytes(b)
            fits = [f for f in free if f[0] >= size]
            if fits:
                best = min(fits)
                free.remove(best)
                offsets[b] = best[1]
                if best[0] > size:
                    free.append((best[0] - size, best[1] + size))
            else:
                offsets[b] = top
                top += size
        for b in ending.get(time, ()):
            free.append((_bytes(b), offsets[b]))
    return offsets, top


def _bytes(b: UOp) -> int:
    nbytes: int = b.arg * b.dtype.itemsize
    return max(-(-nbytes // _ALIGN), 1) * _ALIGN


def clear_plans() -> None:
    """Forget every schedule."""
    with _lock:
        _plans.clear()
