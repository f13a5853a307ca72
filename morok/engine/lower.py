"""From a kernel's SINK to its text. Imported when there is one to lower: a process that finds its
plans on disk needs nothing of this."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

from morok.codegen import (
    do_linearize,
    do_render,
    has_prologue,
    kernel_name,
    launch_extent,
    scratch_bytes,
    variable_names,
)
from morok.engine.stats import stats
from morok.errors import InvalidGraphError
from morok.ir import Ops, Renderer, UOp
from morok.optimizer import apply_opts
from morok.runtime import KernelSource

_CPU = UOp.new_device()


class Lowered(NamedTuple):
    """A kernel's text, and what a plan must know of it; see `CompiledKernel`."""

    name: str
    text: str
    language: str
    scratch: int
    variables: tuple[str, ...]
    extent: int
    split: int

    @property
    def source(self) -> KernelSource:
        """As compilers want it."""
        return KernelSource(self.name, self.text, self.language)


def lower(sink: UOp, renderer: Renderer) -> Lowered:
    """Choose actions, linearise, render. InvalidGraphError for what cannot be."""
    start = perf_counter()
    program = do_linearize(UOp.program(apply_opts(sink, renderer), _CPU), renderer)
    middle = perf_counter()
    program = do_render(program, renderer)
    text: str = next(s for s in program.src if s.op is Ops.SOURCE).arg
    stats.lowered += 1
    stats.lower_seconds += middle - start
    stats.render_seconds += perf_counter() - middle
    end = launch_extent(program)
    extent = 0 if end is None else _most(end)
    split = 0 if extent < 2 else 2 if has_prologue(program) else 1
    return Lowered(
        kernel_name(program.src[0]),
        text,
        renderer.language,
        scratch_bytes(program),
        variable_names(program),
        extent,
        split,
    )


def _most(end: UOp) -> int:
    """The iterations of a THREAD loop, at most."""
    if end.vmax is None:
        raise InvalidGraphError("a THREAD loop needs an end with known bounds", node=end)
    return int(end.vmax)
