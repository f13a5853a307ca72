"""TC: dot products of short numbers, on targets with an instruction for them and without."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest

from morok.codegen import get_program, kernel_name
from morok.dtype import DType, dtypes
from morok.errors import OptError
from morok.ir import Ops, ReduceOp
from morok.ir.interpret import interpret_kernel, interpret_linear
from morok.optimizer import apply_opts, parse_opts, prepare, replay
from morok.renderers import CRenderer
from morok.runtime import CCompiler, Device, KernelSource
from tests.codegen import kernels
from tests.codegen.compiled import launch, run_sink, source
from tests.codegen.kernels import Builder, Kernel, check, opted

BF16 = dtypes.bfloat16
DOTS = CRenderer(["sse2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512bf16"])
"""The C of a processor with the instruction, whatever this one has."""


def rounded(builder: Builder, size: int) -> np.ndarray:
    """Random numbers that bfloat16 holds."""
    values = builder.random.standard_normal(size).astype(np.float32)
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def product(m: int, n: int, k: int, dtype: DType = BF16, *, transposed: bool = False) -> Kernel:
    data = rounded if dtype is BF16 else None
    return kernels.short_product(m, n, k, dtype, transposed=transposed, data=data)


OPTS = (
    "TC(2, 2)",
    "TC(2, 12)",
    "TC(2, 3); UPCAST(1, 16)",
    "TC(2, 2); UPCAST(1, 16); UPCAST(0, 5)",
    "TC(2, 2); UNROLL(2, 3); UPCAST(1, 32)",
    "TC(2, 2); UPCAST(2, 2); UPCAST(1, 16)",
    "TC(2, 2); UPCAST(0, 5)",
    "SPLIT(2, 2); LOCAL(2, 2, 1, 3); TC(3, 2); UPCAST(1, 16)",
    "LOCAL(2, 2, 1); TC(2, 2); UPCAST(1, 16); THREAD(0)",
)


@pytest.mark.parametrize("opts", OPTS)
@pytest.mark.parametrize("dtype", [BF16, dtypes.float16, dtypes.int8, dtypes.uint8], ids=str)
def test_values(dtype: DType, opts: str) -> None:
    """As the kernel itself: the graph, and its LINEAR for a processor with the instruction."""
    for transposed in (False, True):
        kernel = product(5, 32, 12, dtype, transposed=transposed)
        sink = opted(kernel, opts)
        assert sink.arg.applied_opts == parse_opts(opts)
        check(kernel, sink)
        linear = get_program(sink, DOTS).src[2]
        want = interpret_kernel(kernel.sink, kernel.buffers)[0]
        got = interpret_linear(linear, kernel.buffers)[0]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 17, 6), (2, 5, 14), (7, 48, 10)])
def test_odd_shapes(shape: tuple[int, int, int]) -> None:
    kernel = product(*shape)
    check(kernel, opted(kernel, "TC(2, 2)"))
    check(kernel, replay(prepare(kernel.sink), apply_opts(kernel.sink, DOTS).arg.applied_opts))


@pytest.mark.parametrize(
    ("kernel", "opts", "reason"),
    [
        (product(4, 16, 8), "TC(0, 2)", "axis 0 binds other than sums of short products"),
        (product(4, 16, 7), "TC(2, 2)", "2 does not divide the 7 iterations"),
        (product(4, 16, 8), "TC(2, 1)", "changes nothing"),
        (product(4, 16, 8), "TC(2, 2); TC(2, 2)", "other than sums of short products"),
        (product(4, 16, 8), "UPCAST(2, 8); TC(3, 2)", "axis 3 is Upcast, not a loop"),
        (kernels.matmul(4, 16, 8), "TC(2, 2)", "other than sums of short products"),
        (kernels.row_reduce(4, 16, ReduceOp.MAX), "TC(1, 2)", "other than sums of short products"),
    ],
)
def test_what_is_refused(kernel: Kernel, opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernel, opts)


def test_a_lane_makes_a_tile_of_the_instruction() -> None:
    """Pairs that lie side by side are read as they are."""
    sink = opted(product(5, 32, 12), "SPLIT(2, 2); LOCAL(2, 2, 1, 3); TC(3, 2); UPCAST(1, 16)")
    ops = get_program(sink, DOTS).src[2].src
    (dot,) = (op for op in ops if op.op is Ops.WMMA)
    assert dot.arg.dims == (1, 16, 2)
    assert [source.op for source in dot.src] == [Ops.LOAD, Ops.LOAD, Ops.LOAD]
    assert not any(op.op is Ops.ADD and op.dtype.count == 16 for op in ops)  # WMMA adds


def test_factors_that_both_differ_by_lane_are_plain_arithmetic() -> None:
    b = Builder()
    j, r = b.loop(16), b.red(8)
    out, x, y = b.param(16), b.param(128, dtypes.float16), b.param(128, dtypes.float16)
    terms = x.at(r * 16 + j).cast(dtypes.float32) * y.at(r * 16 + j).cast(dtypes.float32)
    kernel = b.kernel(out.at(j).store(terms.reduce(ReduceOp.ADD, r), j))
    sink = opted(kernel, "TC(1, 2); UPCAST(0, 16)")
    check(kernel, sink)
    assert not get_program(sink, DOTS).src[2].has(Ops.WMMA)


def test_a_target_without_the_instruction_computes_the_same() -> None:
    for dtype in (dtypes.float16, dtypes.int8):
        kernel = product(5, 32, 12, dtype)
        for opts in OPTS:
            got = run_sink(opted(kernel, opts), kernel.buffers)[0]
            want = run_sink(prepare(kernel.sink), kernel.buffers)[0]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64, 64), (512, 512, 512), (500, 500, 500)])
def test_it_is_chosen_where_the_processor_has_it(shape: tuple[int, int, int]) -> None:
    kernel = product(*shape)
    assert [opt for opt in apply_opts(kernel.sink, DOTS).arg.applied_opts if str(opt.op) == "TC"]
    plain = apply_opts(kernel.sink, CRenderer(["avx2", "avx512f"])).arg.applied_opts
    assert not [opt for opt in plain if str(opt.op) == "TC"]


def test_it_is_not_chosen_for_sums_that_no_pair_serves() -> None:
    """Odd lengths, few lanes, other types."""
    for kernel in (product(16, 32, 7), product(16, 3, 8), product(16, 32, 8, dtypes.float16)):
        chosen = apply_opts(kernel.sink, DOTS).arg.applied_opts
        assert not [opt for opt in chosen if str(opt.op) == "TC"]


# ---- the text ------------------------------------------------------------------------------------

TWIN = """
typedef float twin_f32x16 __attribute__((vector_size(64)));
typedef unsigned short twin_u16x32 __attribute__((vector_size(64)));
static float twin_float(unsigned short bits) {
  union { unsigned word; float value; } x = { (unsigned)bits << 16 };
  return x.value;
}
static twin_f32x16 twin_dot(twin_f32x16 c, twin_u16x32 a, twin_u16x32 b) {
  for (int i = 0; i < 16; i++)
    for (int k = 1; k >= 0; k--)
      c[i] += twin_float(a[2 * i + k]) * twin_float(b[2 * i + k]);
  return c;
}
#define __builtin_ia32_dpbf16ps_v16sf(c, a, b) twin_dot(c, (twin_u16x32)(a), (twin_u16x32)(b))
"""


@pytest.mark.parametrize("shape", [(5, 32, 12), (13, 80, 10), (64, 64, 64), (33, 100, 36)])
def test_the_text_with_a_twin_of_the_instruction(shape: tuple[int, int, int]) -> None:
    """What is compiled for a processor with `vdpbf16ps`, on this one."""
    m, n, k = shape
    kernel = product(m, n, k)
    program = get_program(apply_opts(kernel.sink, DOTS), DOTS)
    code = source(program)
    assert "dot_bf16x32(" in code
    text = TWIN + code.replace("defined(__clang__)", "0").replace("__GNUC__ >= 13", "0")
    (built,) = Device["CPU"].build([KernelSource(kernel_name(program.src[0]), text, "c")])
    out, x, y = kernel.buffers
    halves = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in (x, y)]
    got = launch(built, program, [out, *halves], {})[0]
    right = x.reshape(m, k).astype(np.float64) @ y.reshape(k, n)
    np.testing.assert_allclose(got.reshape(m, n), right, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an instruction of x86")
def test_the_text_compiles_to_the_instruction(tmp_path: Path) -> None:
    program = get_program(apply_opts(product(64, 64, 64).sink, DOTS), DOTS)
    (tmp_path / "k.c").write_text(source(program))
    flags = ["-O2", "-mavx512bf16", "-mavx512bw", "-mavx512f", "-mfma", "-S", "-o", "k.s", "k.c"]
    command = CCompiler().command
    subprocess.run([*command, *flags], cwd=tmp_path, check=True)
    assert (tmp_path / "k.s").read_text().count("vdpbf16ps") >= 16
