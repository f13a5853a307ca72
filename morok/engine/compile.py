"""Kernels from SINKs: lowered once per content, compiled together, kept in memory and on disk."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from time import perf_counter

from morok._core.launch import Kernel, Library
from morok.codegen import get_program, scratch_bytes
from morok.ir import Ops, UOp
from morok.optimizer import apply_opts
from morok.runtime import CPUDevice, worker_count

_KERNELS = 4096  # compiled kernels kept in memory
_cache: OrderedDict[tuple[UOp, str], CompiledKernel] = OrderedDict()
_lock = RLock()


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel, ready to run."""

    name: str
    program: UOp  # PROGRAM with sink, linear and source
    kernel: Kernel
    scratch: int  # bytes

    @property
    def source(self) -> str:
        """The text it was compiled from."""
        code: str = program_source(self.program)
        return code


@dataclass(slots=True)
class CompileStats:
    """What this process spent: kernels lowered and compiled, compiler runs saved by the disk, seconds."""

    lowered: int = 0
    compiled: int = 0
    from_disk: int = 0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0


stats = CompileStats()


def program_source(program: UOp) -> str:
    """The text of a PROGRAM's SOURCE."""
    code: str = next(s for s in program.src if s.op is Ops.SOURCE).arg
    return code


def compile_kernels(sinks: Sequence[UOp], device: CPUDevice) -> list[CompiledKernel]:
    """The compiled kernel of each SINK; new ones are lowered and compiled together.

    Raises CompileError or DeviceError; nothing is kept of a failed batch, earlier kernels stay usable.
    """
    identity = device.compiler.identity
    with _lock:
        keys = [(s, identity) for s in sinks]
        missing = list(dict.fromkeys(k for k in keys if k not in _cache))
        if missing:
            start = perf_counter()
            programs = [
                get_program(apply_opts(sink, device.renderer), device.renderer)
                for sink, _ in missing
            ]
            stats.lowered += len(programs)
            stats.lower_seconds += perf_counter() - start
            start = perf_counter()
            kernels = _machine_code(programs, device)
            stats.compile_seconds += perf_counter() - start
            for key, program, kernel in zip(missing, programs, kernels, strict=True):
                _cache[key] = CompiledKernel(kernel.name, program, kernel, scratch_bytes(program))
        for k in keys:
            _cache.move_to_end(k)
        out = [_cache[k] for k in keys]
        while len(_cache) > _KERNELS:
            _cache.popitem(last=False)
        return out


def _machine_code(programs: list[UOp], device: CPUDevice) -> list[Kernel]:
    """Each program's function, from the disk cache or from as many compiler runs as there are workers."""
    sources = [program_source(p) for p in programs]
    names = [_function(s) for s in sources]
    identity = device.compiler.identity.encode()
    keys = [hashlib.sha256(b"kernel\0" + identity + b"\0" + s.encode()).digest() for s in sources]
    found: dict[bytes, Kernel] = {}
    libraries: dict[bytes, Library | None] = {}
    for key, name in zip(keys, names, strict=True):
        unit = device.cache.get(key)
        if unit is None:
            continue
        if unit not in libraries:
            image = device.cache.get(unit)
            libraries[unit] = None if image is None else Library(image)
        library = libraries[unit]
        if library is not None:
            found[key] = library.kernel(name)
            stats.from_disk += 1
    todo = [i for i, key in enumerate(keys) if key not in found]
    units = [u for u in (todo[i :: worker_count()] for i in range(worker_count())) if u]
    images = device.compiler.compile_units([[sources[i] for i in u] for u in units])
    for unit_members, image in zip(units, images, strict=True):
        unit = hashlib.sha256(b"unit\0" + b"".join(keys[i] for i in unit_members)).digest()
        library = Library(image)
        device.cache.put(unit, image)
        for i in unit_members:
            found[keys[i]] = library.kernel(names[i])
            device.cache.put(keys[i], unit)
            stats.compiled += 1
    return [found[k] for k in keys]


def _function(source: str) -> str:
    """The name of the kernel function in a source: the identifier before the ABI's parameter list."""
    head = source.split("(void **bufs", 1)[0]
    return head.rsplit(None, 1)[-1].lstrip("*")


def clear_kernels() -> None:
    """Forget every compiled kernel that no plan holds."""
    with _lock:
        _cache.clear()
