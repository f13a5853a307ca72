"""Kernels written by hand."""

from __future__ import annotations

from morok.runtime import CCompiler, DiskCache, Kernel, KernelSource, build_kernels

ABI = "(void **bufs, const long *vars, void *scratch, long lo, long hi)"


def kernel_source(name: str, body: str) -> KernelSource:
    """A kernel with this body; `bufs`, `vars`, `scratch`, `lo` and `hi` are its arguments."""
    return KernelSource(name, f"void {name}{ABI} {{ {body} }}")


class Toolbox:
    """Compiles kernels for a test."""

    def __init__(self, compiler: CCompiler, cache: DiskCache) -> None:
        self.compiler = compiler
        self.cache = cache

    def kernel(self, name: str, body: str) -> Kernel:
        return self.kernels((name, body))[0]

    def kernels(self, *bodies: tuple[str, str]) -> list[Kernel]:
        sources = [kernel_source(name, body) for name, body in bodies]
        return build_kernels(sources, self.compiler, self.cache)
