"""Kernels from SINKs: lowered once per content, compiled together, kept in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from morok import config
from morok.caches import Bounded
from morok.codegen import (
    get_program,
    has_prologue,
    kernel_name,
    launch_extent,
    scratch_bytes,
    variable_names,
)
from morok.engine.stats import stats
from morok.engine.variables import in_order
from morok.errors import InvalidGraphError
from morok.forking import held_at_fork
from morok.ir import Ops, UOp
from morok.optimizer import apply_opts
from morok.runtime import CpuDevice, ExecutionPlan, Kernel, KernelSource

Array = np.ndarray[Any, Any]
_lock = held_at_fork(RLock())
_cache: Bounded[tuple[UOp, str, bool], CompiledKernel] = Bounded("kernels", 2048, _lock)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel, ready to run. Its lowered graphs are let go: they take far more than the text."""

    name: str
    sink: UOp  # as scheduled
    source: str  # the text it was compiled from
    kernel: Kernel
    scratch: int  # bytes
    variables: tuple[str, ...] = ()  # in the order it takes their values
    extent: int = 0  # iterations that threads may share out; 0: it runs as a whole
    split: int = 0  # 1: in many parts, 2: in few, as each begins with work of its own


def program_source(program: UOp) -> str:
    """The text of a PROGRAM's SOURCE."""
    code: str = next(s for s in program.src if s.op is Ops.SOURCE).arg
    return code


def compile_kernels(sinks: Sequence[UOp], device: CpuDevice) -> list[CompiledKernel]:
    """The compiled kernel of each SINK; new ones are lowered and compiled together.

    Raises CompileError or DeviceError; nothing is kept of a failed batch, earlier kernels stay
    usable.
    """
    identity, noopt = device.compiler.identity, config.get().noopt
    with _lock:
        keys = [(s, identity, noopt) for s in sinks]
        found = {k: _cache.get(k) for k in keys}
        ready = {k: kernel for k, kernel in found.items() if kernel is not None}
        missing = [k for k in found if k not in ready]
        if missing:
            start = perf_counter()
            renderers = [device.renderer_of(sink) for sink, _, _ in missing]
            programs = [
                get_program(apply_opts(sink, renderer), renderer)
                for (sink, _, _), renderer in zip(missing, renderers, strict=True)
            ]
            stats.lowered += len(programs)
            stats.lower_seconds += perf_counter() - start
            start = perf_counter()
            kernels = device.build(
                [
                    KernelSource(kernel_name(p.src[0]), program_source(p), renderer.language)
                    for p, renderer in zip(programs, renderers, strict=True)
                ]
            )
            stats.compile_seconds += perf_counter() - start
            for key, program, kernel in zip(missing, programs, kernels, strict=True):
                text = program_source(program)
                ready[key] = CompiledKernel(
                    kernel.name,
                    key[0],
                    text,
                    kernel,
                    scratch_bytes(program),
                    variable_names(program),
                    _extent(program),
                    _split(program),
                )
                _cache.put(key, ready[key])
        return [ready[k] for k in keys]


def _extent(program: UOp) -> int:
    """The iterations of a PROGRAM's THREAD loop, at most, 0 without one."""
    extent = launch_extent(program)
    if extent is None:
        return 0
    if extent.vmax is None:
        raise InvalidGraphError("a THREAD loop needs an end with known bounds", node=extent)
    return int(extent.vmax)


def _split(program: UOp) -> int:
    """How a plan splits a PROGRAM among threads; see `CompiledKernel`."""
    return 0 if _extent(program) < 2 else 2 if has_prologue(program) else 1


def run_kernel(
    sink: UOp,
    arrays: Sequence[Array],
    device: CpuDevice,
    variables: Mapping[str, int] | None = None,
) -> list[Array]:
    """The contents of all buffers, flat, after one kernel; `arrays` (buffer i is slot i) are left
    alone. `variables` are the values of its DEFINE_VARs (ArgumentError if one is missing). A
    CUSTOM_FUNCTION runs the device's hook (DeviceError if there is none)."""
    values: tuple[int, ...] = ()
    if sink.op is Ops.CUSTOM_FUNCTION:
        kind, payload = sink.arg
        kernel, scratch, extent, split = device.hook(str(kind), payload), 0, 0, 0
    else:
        (ready,) = compile_kernels([sink], device)
        kernel, scratch, extent = ready.kernel, ready.scratch, ready.extent
        split = ready.split
        values = in_order(ready.variables, variables or {})
    out = [np.array(a).reshape(-1) for a in arrays]
    slots = tuple(range(len(out)))
    row = (kernel, slots, scratch, 0, max(extent, 1), None, kernel.name, split)
    plan = ExecutionPlan([row], len(out), n_vars=len(values))
    plan.run([device.allocator.wrap(a) for a in out], values)
    return out


def heaviest_kernel() -> CompiledKernel | None:
    """Of the kernels in memory, the one with the most floating-point operations a run."""
    with _lock:
        return max(_cache.values(), key=_flops, default=None)


def _flops(kernel: CompiledKernel) -> int:
    info = kernel.sink.arg
    return info.estimates.flops if info.estimates is not None else 0
