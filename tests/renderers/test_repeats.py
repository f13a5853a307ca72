"""Loops that do the work of several iterations in one."""

from __future__ import annotations

import numpy as np
import pytest

from morok.codegen import get_program
from morok.renderers import CRenderer, LLVMRenderer
from tests.codegen import kernels
from tests.codegen.compiled import build, c_renderer, launch, llvm_renderer, source

FEATURES = ("sse2", "sse4_1", "avx", "avx2", "fma", "f16c")
TILE = "UPCAST(1, 8); UPCAST(0, 4)"


def texts(kernel: kernels.Kernel, opts: str) -> tuple[str, str]:
    """In C and in LLVM IR."""
    sink = kernels.opted(kernel, opts)
    c, llvm = CRenderer(FEATURES), LLVMRenderer(FEATURES)
    return source(get_program(sink, c)), source(get_program(sink, llvm))


@pytest.mark.parametrize(("depth", "times"), [(16, 4), (40, 4), (18, 2), (12, 2), (17, 1), (6, 1)])
def test_a_tile_multiplies_several_times_a_turn(depth: int, times: int) -> None:
    c, llvm = texts(kernels.matmul(4, 8, depth), TILE)
    assert (f"#pragma GCC unroll {times}\n" in c) == (times > 1)
    assert c.count("#pragma") == (times > 1)
    assert llvm.count("@llvm.fma.v8f32(") == 4 * times + 1  # its declaration
    assert f", {times}\n" in llvm.partition("next0 = add")[2]


def test_what_does_not_pay_stays() -> None:
    """One sum waits for itself; a sum without products is about memory."""
    for kernel, opts in (
        (kernels.matmul(4, 8, 16), "UPCAST(1, 8)"),
        (kernels.column_reduce(16, 32, kernels.ReduceOp.ADD), "UPCAST(0, 32)"),
    ):
        c, llvm = texts(kernel, opts)
        assert "#pragma" not in c
        assert "fma" not in llvm or llvm.count("call <8 x float> @llvm.fma") == 1


@pytest.mark.parametrize("depth", [16, 18, 17])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_same_bits(depth: int, transposed: bool) -> None:
    kernel = kernels.matmul(9, 24, depth, transposed=transposed, epilogue=True)
    sink = kernels.opted(kernel, "TAIL(0, 4); UPCAST(2, 8); UPCAST(0, 4)")
    results = []
    for target in (c_renderer(), llvm_renderer()):
        program = get_program(sink, target)
        (built,) = build([program])
        results.append(launch(built, program, kernel.buffers, {})[0])
    assert results[0].tobytes() == results[1].tobytes()
    wanted = kernels.run(kernel.sink, kernel.buffers)[0]
    np.testing.assert_allclose(results[0], wanted, rtol=1e-4, atol=1e-4)
