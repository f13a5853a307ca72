"""How the worker of a benchmark gets its system, or the reason why not."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from types import ModuleType

COMPILERS = ("c", "llvm")
"""Peers that are ourselves, with kernels made by another compiler (the setting `cpu_compiler`)."""
_CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))


def spread(peers: Sequence[str]) -> list[str]:
    """The peers, PyTorch also in its compiled form unless `torch.eager` is asked for."""
    also = {"torch": ["torch", "torch.compile"], "torch.eager": ["torch"]}
    return [who for peer in peers for who in also.get(peer, [peer])]


def load(benchmark: str, who: str, threads: int = 1) -> ModuleType | str:
    """The module that serves a benchmark for one system, on so many threads; or why it cannot."""
    confine(threads)
    if who in COMPILERS:
        os.environ["MOROK_CPU_COMPILER"] = who
        who = "morok"
    if who == "tinygrad":
        clang = next(filter(None, map(shutil.which, _CLANGS)), None)
        if clang is None:
            return "its CPU device needs clang, which is not on the PATH"
        os.environ.setdefault("DEV", "CPU")
        os.environ.setdefault("CC", clang)
    if who == "torch.compile" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "torch.compile needs a C++ compiler: no g++ on the PATH, and CXX is not set"
    return _module(benchmark, who.partition(".")[0])


def load_compiler(benchmark: str, who: str, otherwise: str) -> ModuleType | str:
    """The module that serves a benchmark of compilers for morok or tinygrad, or why it cannot:
    `otherwise` for a system that shows nothing of the kind."""
    return _module(benchmark, who) if who in ("morok", "tinygrad") else otherwise


def _module(benchmark: str, system: str) -> ModuleType | str:
    try:
        return importlib.import_module(f"bench._{benchmark}_{system}")
    except ImportError as error:
        return f"not installed ({error})"


def one_thread() -> None:
    """Confines this process, and all it starts, to one CPU and asks libraries for one thread."""
    confine(1)


def confine(threads: int) -> None:
    """Asks libraries for so many threads; for one also confines this process, and all it starts, to
    one CPU.

    To be called before any of them is imported: they read the environment when they are.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_COUNT"):
        os.environ[name] = str(threads)
    if threads == 1:  # else as many as there are
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}"
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[os.getppid() % len(cpus)]})  # the same for one run's workers
