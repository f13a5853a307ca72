"""Stores that bypass the caches: when they may, and which kernels get them."""

from __future__ import annotations

import numpy as np
import pytest

from morok.errors import OptError
from morok.ir import KernelInfo, Ops, UOp
from morok.optimizer import apply_opts, parse_opts, prepare, replay
from tests.codegen import compiled, kernels
from tests.codegen.kernels import Builder, Kernel, capability, check, opted
from tests.optimizer.test_heuristic import Target


def streams(sink: UOp) -> bool:
    assert isinstance(sink.arg, KernelInfo)
    return sink.arg.streaming


def test_stores_bypass_the_caches() -> None:
    sink = opted(kernels.elementwise(3, 64), "STREAM(1); UPCAST(1, 8)")
    assert streams(sink)
    assert str(sink.arg.applied_opts[0]) == "STREAM(1)"
    check(kernels.elementwise(3, 64), sink)


@pytest.mark.parametrize("n", [64, 67, 8, 3])
def test_streamed_values(n: int) -> None:
    """On rows that do and do not begin at a multiple of a vector."""
    kernel = kernels.elementwise(5, n)
    program = compiled.get_program(
        replay(apply_opts(kernel.sink, compiled.renderer()), parse_opts("")), compiled.renderer()
    )
    streamed = replay(prepare(kernel.sink), parse_opts("STREAM(1)"))
    if n % 8 == 0:
        streamed = replay(streamed, parse_opts("UPCAST(1, 8)"))
    other = compiled.get_program(streamed, compiled.renderer())
    plain, fast = compiled.build([program]), compiled.build([other])
    want = compiled.launch(plain[0], program, kernel.buffers, {})[0]
    got = compiled.launch(fast[0], other, kernel.buffers, {})[0]
    np.testing.assert_array_equal(got, want)


def test_an_output_that_is_read_is_refused() -> None:
    k = Builder(41)
    i = k.loop(16)
    out, x = k.param(16), k.param(16)
    kernel = k.kernel(out.at(i).store(out.at(i) + x.at(i), i))
    with pytest.raises(OptError, match="read by the kernel itself"):
        opted(kernel, "STREAM(0)")


@pytest.mark.parametrize(
    ("kernel", "opts", "reason"),
    [
        (kernels.elementwise(4, 16), "STREAM(0)", "neighbours along axis 0"),
        (kernels.row_reduce(4, 16, kernels.ReduceOp.ADD), "STREAM(1)", "does not write along"),
        (kernels.elementwise(4, 16), "UPCAST(1, 16); STREAM(1)", "has no axis 1"),
    ],
)
def test_refused(kernel: Kernel, opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernel, opts)


def chosen(sink: UOp) -> bool:
    return streams(apply_opts(sink, Target(capability(8))))


def copy(rows: int, columns: int) -> UOp:
    """out[i, j] = x[i, j]"""
    out, x = (UOp.param(slot, kernels.dtypes.float32.ptr(), rows * columns) for slot in (0, 1))
    i, j = (UOp.range(end, n, renumbered=True) for n, end in enumerate((rows, columns)))
    store = out.at(i * columns + j).store(x.at(i * columns + j), i, j)
    return UOp(Ops.SINK, kernels.dtypes.void, (store,), KernelInfo())


def test_large_outputs_written_in_whole_lines() -> None:
    assert chosen(copy(2048, 1024))
    assert not chosen(copy(1024, 1024))  # 4 MB: may be in a cache when it is read
    assert not chosen(copy(2048, 1030))  # rows begin within a line
    assert not chosen(kernels.matmul(2048, 1024, 32).sink)
