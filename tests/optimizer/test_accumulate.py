"""Sums made in a buffer: the action, when it is refused, which kernels get it."""

from __future__ import annotations

import numpy as np
import pytest

from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.dtype import DType, dtypes
from morok.errors import OptError
from morok.ir import AxisType, Ops, ReduceOp, UOp
from morok.optimizer import MAX_LOCAL_BYTES, accumulates, apply_opts
from tests.codegen import kernels
from tests.codegen.kernels import Builder, Kernel, capability, check, nodes, only, opted
from tests.optimizer.test_heuristic import Target, chosen


def lowered(kernel: Kernel, opts: str, lanes: int = 8) -> UOp:
    """The kernel after `opts` and stages 8 to 10, checked after each."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    sink = expander(post_opt_symbolic(sink), capability(lanes))
    check(kernel, sink)
    sink = add_local_buffers(sink)
    check(kernel, sink)
    return sink


def moments(m: int, n: int) -> Kernel:
    """out[j] = sum of x[:, j], other[j] = sum of x[:, j]**2 minus it"""
    k = Builder(31)
    j, r = k.loop(n), k.red(m)
    out, other, x = k.param(n), k.param(n), k.param(m * n)
    value = x.at(r * n + j)
    total = value.reduce(ReduceOp.ADD, r)
    squares = (value * value).reduce(ReduceOp.ADD, r)
    return k.kernel(out.at(j).store(total, j), other.at(j).store(squares - total, j))


def variance(m: int, n: int) -> Kernel:
    """out[j] = sum of (x[:, j] - sum of x[:, j])**2: one reduction needs the other"""
    k = Builder(32)
    j, r, s = k.loop(n), k.red(m), k.red(m)
    out, x = k.param(n), k.param(m * n)
    total = x.at(r * n + j).reduce(ReduceOp.ADD, r)
    rest = x.at(s * n + j) - total
    return k.kernel(out.at(j).store((rest * rest).reduce(ReduceOp.ADD, s), j))


def test_reduction_becomes_the_outer_loop() -> None:
    """Axis 1 of 5 rows and axis 0 of 12 columns become 2 and 3, the rows outside."""
    kernel = kernels.column_reduce(5, 12, ReduceOp.ADD)
    sink = opted(kernel, "ACCUMULATE(1, 0)")
    buffer = only(sink, Ops.BUFFERIZE)
    assert [rng.arg[0].number for rng in buffer.ended_ranges] == [3]
    assert [rng.arg[0].number for rng in only(sink, Ops.REDUCE).ended_ranges] == [2]
    assert accumulates(buffer)
    assert not nodes(lowered(kernel, "ACCUMULATE(1, 0)"), Ops.REDUCE)


def test_layout_is_the_order_of_the_names() -> None:
    sink = opted(kernels.matmul(3, 8, 6), "ACCUMULATE(2, 1, 0)")
    assert [rng.vmax + 1 for rng in only(sink, Ops.BUFFERIZE).ended_ranges] == [8, 3]


def test_reductions_over_one_range_go_together() -> None:
    kernel = moments(6, 16)
    sink = lowered(kernel, "ACCUMULATE(1, 0); UPCAST(3, 8); UNROLL(2, 2); UPCAST(0, 8)")
    loops = [rng for rng in nodes(sink, Ops.RANGE) if rng.arg[1] is AxisType.REDUCE]
    assert len(nodes(sink, Ops.DEFINE_LOCAL)) == 2
    assert len(loops) == 1


def test_a_reduction_may_need_the_sums_of_another() -> None:
    lowered(variance(6, 16), "ACCUMULATE(1, 0); ACCUMULATE(2, 0)")


@pytest.mark.parametrize("op", list(ReduceOp))
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int8, dtypes.bool_])
def test_every_reduction(op: ReduceOp, dtype: DType) -> None:
    kernel = kernels.column_reduce(7, 16, op, dtype)
    lowered(kernel, "ACCUMULATE(1, 0)")
    lowered(kernel, "SPLIT(0, 8); ACCUMULATE(2, 1); UPCAST(4, 8)")


@pytest.mark.parametrize(
    "opts",
    [
        "ACCUMULATE(2, 0)",
        "ACCUMULATE(2, 1)",
        "ACCUMULATE(2, 0, 1); UPCAST(3, 3)",
        "ACCUMULATE(2, 1, 0); UPCAST(4, 8); UPCAST(5, 2)",
        "SWAP(0, 1); SPLIT(0, 8); ACCUMULATE(3, 2, 1); UPCAST(6, 8); UNROLL(4, 3); UPCAST(5, 2)",
        "TAIL(2, 2); ACCUMULATE(2, 1); UNROLL(4, 2)",
        "TAIL(1, 5); ACCUMULATE(3, 1); UPCAST(5, 5)",
        "ACCUMULATE(2, 1); ACCUMULATE(3, 4)",
    ],
)
def test_rows_tails_and_copies(opts: str) -> None:
    lowered(kernels.matmul(4, 24, 9), opts)


@pytest.mark.parametrize(
    ("kernel", "opts", "reason"),
    [
        (lambda: kernels.matmul(4, 8, 6), "ACCUMULATE(0, 1)", "axis 0 is no reduction"),
        (lambda: kernels.matmul(4, 8, 6), "ACCUMULATE(2, 1, 1)", "named twice"),
        (lambda: kernels.matmul(4, 8, 6), "ACCUMULATE(2, 2)", "depends on all these axes"),
        (lambda: kernels.matmul(4, 8, 6), "UNROLL(2, 3); ACCUMULATE(2, 1)", "no loop any more"),
        (lambda: kernels.matmul(4, 8, 6), "UPCAST(0, 2); ACCUMULATE(2, 1)", "no loop any more"),
        (lambda: kernels.matmul(1024, 2048, 2), "ACCUMULATE(2, 0, 1)", str(MAX_LOCAL_BYTES)),
        (lambda: kernels.elementwise(3, 8), "ACCUMULATE(1, 0)", "axis 1 is no reduction"),
    ],
)
def test_refused(kernel: kernels.Callable[[], Kernel], opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernel(), opts)


def test_reductions_that_need_each_other_are_refused() -> None:
    k = Builder(33)
    j, r = k.loop(8), k.red(5)
    out, x = k.param(8), k.param(40)
    total = x.at(r * 8 + j).reduce(ReduceOp.ADD, r)
    kernel = k.kernel(out.at(j).store((x.at(r * 8 + j) - total).reduce(ReduceOp.MAX, r), j))
    with pytest.raises(OptError, match="need each other"):
        opted(kernel, "ACCUMULATE(1, 0)")


# ---- the choice ----------------------------------------------------------------------------------


def test_column_sums_of_long_rows() -> None:
    opts = "SPLIT(0, 16); ACCUMULATE(2, 0, 1); UPCAST(5, 16); UNROLL(3, 8); UPCAST(1, 16)"
    assert chosen(kernels.column_reduce(40, 128, ReduceOp.ADD)) == opts


def test_few_rows_share_what_is_read() -> None:
    opts = chosen(kernels.matmul(8, 128, 48))
    assert opts == (
        "SWAP(0, 1); SPLIT(0, 8); ACCUMULATE(3, 0, 2, 1); UPCAST(7, 8); UPCAST(6, 8); "
        "UNROLL(4, 8); UPCAST(1, 8)"
    )


def test_short_rows_stay_in_registers() -> None:
    assert "ACCUMULATE" not in chosen(kernels.column_reduce(512, 16, ReduceOp.ADD))
    assert "ACCUMULATE" not in chosen(kernels.matmul(16, 64, 48))


def test_several_kinds_of_sums_of_one_kernel() -> None:
    assert chosen(moments(64, 128)).count("ACCUMULATE") == 1
    assert chosen(variance(64, 128)).count("ACCUMULATE") == 2


def test_random_shapes(rng: np.random.Generator) -> None:
    for _ in range(12):
        m, n, depth = (int(rng.choice(sizes)) for sizes in ([1, 2, 5, 8], [64, 67, 131], [16, 37]))
        kernel = kernels.matmul(m, n, depth)
        width = int(rng.choice([4, 8, 16]))
        sink = apply_opts(kernel.sink, Target(capability(width)))
        check(kernel, sink)
        check(kernel, add_local_buffers(expander(post_opt_symbolic(sink), capability(width))))


# ---- rows side by side ---------------------------------------------------------------------------


def test_rows_are_read_side_by_side() -> None:
    assert chosen(kernels.row_reduce(8, 64, ReduceOp.ADD)) == "UPCAST(1, 16); UNROLL(0, 4)"
    assert chosen(kernels.row_reduce(3, 64, ReduceOp.ADD)) == "UPCAST(1, 32)"
    odd = "TAIL(1, 16); TAIL(2, 8); UPCAST(2, 8); UPCAST(1, 16); TAIL(0, 4); UNROLL(0, 4)"
    assert chosen(kernels.row_reduce(9, 203, ReduceOp.ADD)) == odd


def test_few_rows_share_the_operand_that_is_read_most() -> None:
    opts = chosen(kernels.matmul(2, 64, 128, transposed=True))
    assert opts == "UPCAST(2, 8); UNROLL(1, 4); UNROLL(0, 2)"


def test_rows_in_which_more_goes_on_stay_one_by_one() -> None:
    assert "UNROLL" not in chosen(kernels.softmax(8, 64))


def test_one_long_row_is_read_in_several_places() -> None:
    n = (1 << 20) + 7
    i = UOp.range(n, 0, AxisType.REDUCE, renumbered=True)
    x, out = (UOp.param(slot, dtypes.float32.ptr(), size) for slot, size in ((1, n), (0, 1)))
    store = out.at(0).store(x.at(i).reduce(ReduceOp.ADD, i))
    sink = UOp(Ops.SINK, dtypes.void, (store,), kernels.KernelInfo())
    opts = apply_opts(sink, Target(capability(8))).arg.applied_opts
    assert "; ".join(map(str, opts)) == (
        "TAIL(0, 16384); SPLIT(0, 16384); SPLIT(1, 4096); UPCAST(1, 4); UPCAST(2, 16)"
    )
