"""Compiles kernels with the compilers of this machine and runs them on arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

from morok.codegen import get_program, kernel_name, launch_extent, scratch_bytes, variable_names
from morok.ir import Ops, Renderer, UOp
from morok.renderers import CRenderer, LLVMRenderer
from morok.runtime import (
    Buffer,
    CCompiler,
    Device,
    ExecutionPlan,
    Kernel,
    KernelSource,
    LLVMCompiler,
)


@functools.cache
def renderer() -> Renderer:
    """What kernels are rendered by where nobody says otherwise."""
    return Device["CPU"].renderer


def compiler() -> CCompiler | LLVMCompiler:
    """What compiles where nobody says otherwise."""
    return Device["CPU"].compiler


@functools.cache
def c_renderer() -> CRenderer:
    return CRenderer.for_target(CCompiler().target.has)


@functools.cache
def llvm_renderer() -> LLVMRenderer:
    """Skips the test where llvmlite is not installed."""
    pytest.importorskip("llvmlite")
    return LLVMRenderer.for_target(LLVMCompiler().target.has)


def build(programs: Sequence[UOp]) -> list[Kernel]:
    """The loaded kernels of rendered PROGRAMs, compiled together."""
    sources = []
    for program in programs:
        text = source(program)
        language = "llvm" if text.startswith("define") else "c"
        sources.append(KernelSource(kernel_name(program.src[0]), text, language))
    return Device["CPU"].build(sources)


def memory_form(array: np.ndarray) -> np.ndarray:
    """An array as memory holds it: contiguous, a copy."""
    return np.array(array, order="C")


def launch(
    kernel: Kernel, program: UOp, arrays: Sequence[np.ndarray], variables: dict[str, int]
) -> list[np.ndarray]:
    """The contents of all buffers after a kernel; `arrays` are left alone. Guard bytes around each
    buffer must stay."""
    guard, held = 64, []
    for array in arrays:
        raw = np.full(array.nbytes + 2 * guard, 0xA5, np.uint8)
        raw[guard : guard + array.nbytes] = memory_form(array).reshape(-1).view(np.uint8)
        held.append(raw)
    buffers = [
        Buffer.from_object(raw).slice(guard, array.nbytes)
        for raw, array in zip(held, arrays, strict=True)
    ]
    extent = launch_extent(program)
    hi = 1 if extent is None else int(extent.vmax or 0)
    slots = tuple(range(len(arrays)))
    names = variable_names(program)
    given = tuple(range(len(names)))
    split = extent is not None
    entry = (kernel, slots, scratch_bytes(program), 0, hi, given, "kernel", split)
    plan = ExecutionPlan([entry], len(arrays), n_vars=len(names))
    plan.run(buffers, [variables[name] for name in names])
    out = []
    for raw, array in zip(held, arrays, strict=True):
        assert (raw[:guard] == 0xA5).all(), "written before the buffer"
        assert (raw[guard + array.nbytes :] == 0xA5).all(), "written behind the buffer"
        out.append(raw[guard : guard + array.nbytes].view(array.dtype).reshape(array.shape).copy())
    return out


def run_sink(
    sink: UOp,
    arrays: Sequence[np.ndarray],
    variables: dict[str, int] | None = None,
    target: Renderer | None = None,
) -> list[np.ndarray]:
    """A kernel through stages 8 to 22, a renderer and its compiler, on arrays."""
    program = get_program(sink, target or renderer())
    return launch(build([program])[0], program, arrays, variables or {})


def source(program: UOp) -> str:
    text = program.src[3]
    assert text.op is Ops.SOURCE
    return str(text.arg)
