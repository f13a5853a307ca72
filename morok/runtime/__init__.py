"""Running kernels: devices, memory, compilers, the cache on disk, plans and profiles.

C or LLVM IR goes in, running kernels come out; only a device's renderer knows the IR.
"""

from morok._core import (
    Buffer,
    ExecutionPlan,
    Kernel,
    Library,
    clear_pool,
    memory_stats,
    pool_stats,
    reset_peak,
    set_pool_limit,
    stop_workers,
)
from morok.runtime.build import (
    Building,
    KernelSource,
    Place,
    build_kernels,
    load_kernel,
    place_of,
)
from morok.runtime.compiler import CCompiler, Target, worker_count
from morok.runtime.device import CpuDevice, Device, DeviceRegistry
from morok.runtime.diskcache import DiskCache, default_cache
from morok.runtime.llvm import LLVMCompiler
from morok.runtime.profile import kernel_line, profiling, record, record_kernels, save, span

__all__ = [
    "Buffer",
    "Building",
    "CCompiler",
    "CpuDevice",
    "Device",
    "DeviceRegistry",
    "DiskCache",
    "ExecutionPlan",
    "Kernel",
    "KernelSource",
    "LLVMCompiler",
    "Library",
    "Place",
    "Target",
    "build_kernels",
    "clear_pool",
    "default_cache",
    "kernel_line",
    "load_kernel",
    "memory_stats",
    "place_of",
    "pool_stats",
    "profiling",
    "record",
    "record_kernels",
    "reset_peak",
    "save",
    "set_pool_limit",
    "span",
    "stop_workers",
    "worker_count",
]
