"""Kernels from SINKs: lowered once per content, compiled together, kept in memory and on disk."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from morok import config
from morok.caches import Bounded
from morok.engine.beside import helpers
from morok.engine.stats import importing, stats
from morok.engine.variables import in_order
from morok.errors import MorokError
from morok.forking import held_at_fork
from morok.ir import Estimates, Ops, UOp
from morok.runtime import CpuDevice, ExecutionPlan, Kernel

Array = np.ndarray[Any, Any]
_lock = held_at_fork(RLock())
_cache: Bounded[tuple[UOp, str, bool], CompiledKernel] = Bounded("kernels", 2048, _lock)


class Texts:
    """Texts that nobody may ever ask for, kept compressed."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    @staticmethod
    def pack(texts: Sequence[str]) -> bytes:
        """What `Texts` takes."""
        return zlib.compress("\0".join(texts).encode(), 1)

    def __getitem__(self, number: int) -> str:
        return zlib.decompress(self._packed).decode().split("\0")[number]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel, ready to run. Its lowered graphs are let go: they take far more than the text."""

    name: str
    sink: UOp | None  # as scheduled; None where it comes from the disk
    text: str | tuple[Texts, int]  # that it was compiled from: see `source`
    kernel: Kernel
    scratch: int  # bytes
    variables: tuple[str, ...] = ()  # in the order it takes their values
    extent: int = 0  # iterations that threads may share out; 0: it runs as a whole
    split: int = 0  # 1: in many parts, 2: in few, as each begins with work of its own
    estimates: Estimates | None = None
    language: str = "c"  # of the text

    @property
    def source(self) -> str:
        """The text it was compiled from."""
        if isinstance(self.text, str):
            return self.text
        texts, number = self.text
        return texts[number]


def compile_kernels(sinks: Sequence[UOp], device: CpuDevice) -> list[CompiledKernel]:
    """The compiled kernel of each SINK. New ones are lowered one after another while machine code
    is made of those before.

    Raises CompileError or DeviceError; earlier kernels, and those of the batch that could be
    compiled, stay usable.
    """
    kernels = []
    for outcome in compile_all(sinks, device, stop=True, copies=False):
        if isinstance(outcome, Exception):
            raise outcome
        kernels.append(outcome)
    return kernels


def compile_all(
    sinks: Sequence[UOp],
    device: CpuDevice,
    *,
    stop: bool = False,
    copies: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CompiledKernel | MorokError]:
    """As `compile_kernels`, with errors in the place of kernels that cannot be lowered or compiled;
    where the first one that cannot be lowered does not `stop` it. `copies` of the process may lower
    some of them: a program that only runs a step never forks unasked. `progress(done, total)` is
    told how many new kernels are lowered."""
    identity, noopt = device.compiler.identity, config.get().noopt
    with _lock:
        keys = [(s, identity, noopt) for s in sinks]
        ready: dict[Any, CompiledKernel | MorokError] = {}
        missing = []
        for key in dict.fromkeys(keys):
            kernel = _cache.get(key)
            if kernel is None:
                missing.append(key)
            else:
                ready[key] = kernel
        if missing:
            made = _compile([key[0] for key in missing], device, stop, copies, progress)
            for key, outcome in zip(missing, made, strict=True):
                ready[key] = outcome
                if isinstance(outcome, CompiledKernel):
                    _cache.put(key, outcome)
        return [ready[key] for key in keys]


def _compile(
    sinks: Sequence[UOp],
    device: CpuDevice,
    stop: bool,
    copies: bool,
    progress: Callable[[int, int], None],
) -> list[CompiledKernel | MorokError]:
    with importing():
        from morok.engine.lower import Lowered, lower

        renderers = [device.renderer_of(sink) for sink in sinks]

    def lower_beside(number: int) -> tuple[Any, ...] | None:
        try:
            return tuple(lower(sinks[number], renderers[number]))
        except Exception:  # the caller will see for himself
            return None

    out: list[CompiledKernel | MorokError] = [_PENDING for _ in sinks]
    lowered: dict[int, Lowered] = {}
    # Helpers first: the building has a thread.
    with helpers(lower_beside, len(sinks), copies) as beside, device.building() as building:

        def have(number: int, made: Lowered) -> None:
            lowered[number] = made
            building.add(made.source)
            progress(len(lowered), len(sinks))

        def do(number: int) -> None:
            try:
                have(number, lower(sinks[number], renderers[number]))
            except MorokError as error:
                if stop:
                    raise
                out[number] = error

        while (number := beside.take()) is not None:
            do(number)
            for other, answer in beside.answers():
                have(other, Lowered(*answer))
        for other, answer in beside.late_answers():
            have(other, Lowered(*answer))
        for number in beside.left():
            do(number)
        start = perf_counter()
        kernels = building.outcomes()
        stats.compile_seconds += perf_counter() - start
    for (number, made), kernel in zip(lowered.items(), kernels, strict=True):
        if isinstance(kernel, MorokError):
            out[number] = kernel
            continue
        sink = sinks[number]
        out[number] = CompiledKernel(
            kernel.name,
            sink,
            made.text,
            kernel,
            made.scratch,
            made.variables,
            made.extent,
            made.split,
            sink.arg.estimates,
            made.language,
        )
    return out


_PENDING = MorokError("not compiled yet")


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
    return kernel.estimates.flops if kernel.estimates is not None else 0
