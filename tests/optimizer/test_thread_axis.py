"""THREAD: what it does, when it is refused, and that threads change no bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from morok import config
from morok.dtype import dtypes
from morok.errors import OptError
from morok.ir import AxisType, Estimates, KernelInfo, Ops, ReduceOp, Renderer, UOp
from morok.optimizer import Opt, OptOps, apply_opt, apply_opts, parse_opts, prepare
from morok.optimizer.threads import disjoint
from tests.codegen import kernels
from tests.codegen.compiled import c_renderer, llvm_renderer, renderer, run_sink
from tests.codegen.kernels import Builder, Kernel, capability, check, nodes, opted


def shared(kernel: Kernel, opts: str) -> UOp:
    """The kernel after `opts`, checked in the interpreter, and compiled on one thread and three."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    results = []
    for threads in (1, 3):
        with config.override(threads=threads):
            results.append(run_sink(sink, kernel.buffers))
    for one, many in zip(*results, strict=True):
        assert one.tobytes() == many.tobytes()
    return sink


def thread_axes(sink: UOp) -> list[int]:
    ranges = nodes(sink, Ops.RANGE, lambda node: node.arg[1] is AxisType.THREAD)
    return [rng.arg[0].number for rng in ranges]


@pytest.mark.parametrize(
    ("kernel", "opts"),
    [
        (kernels.elementwise(7, 16), "THREAD(0)"),
        (kernels.elementwise(1, 13), "THREAD(1)"),
        (kernels.elementwise(5, 24), "MERGE(0, 1); UPCAST(1, 8); THREAD(1)"),
        # a copy for each image and row, which together are the loop
        (
            kernels.convs(3, 2, 4, 8, 3),
            "SWAP(1, 2); WINDOW(4, 1, 12, 5, 6, 3); MERGE(0, 1); THREAD(1)",
        ),
        (kernels.matmul(13, 16, 11), "UPCAST(1, 8); THREAD(0)"),
        (kernels.matmul(13, 32, 11), "SWAP(0, 1); SPLIT(0, 8); LOCAL(3, 2, 1); THREAD(0)"),
        (kernels.row_reduce(9, 37, ReduceOp.ADD), "TAIL(1, 8); UPCAST(1, 8); THREAD(0)"),
        (kernels.column_reduce(9, 24, ReduceOp.MAX), "UPCAST(0, 8); THREAD(0)"),
        (kernels.softmax(11, 16), "THREAD(0)"),
        (kernels.conv(3, 4, 6, 3), "THREAD(0)"),
        (kernels.in_place(40), "UPCAST(0, 8); THREAD(0)"),
        (kernels.matmul(8, 16, 12), "LOCAL(2, 2, 1); THREAD(0)"),
        (kernels.staged(6, 8), "THREAD(0)"),
    ],
)
def test_threads_change_no_bit(kernel: Kernel, opts: str) -> None:
    sink = shared(kernel, opts)
    assert len(thread_axes(sink)) == 1
    assert sink.arg.applied_opts == parse_opts(opts)


def test_what_a_tail_leaves_over_is_done_once() -> None:
    kernel = kernels.elementwise(1, 77)
    sink = shared(kernel, "TAIL(1, 8); SPLIT(1, 8); THREAD(1)")
    assert len(nodes(sink, Ops.STORE)) == 2


def test_a_tail_in_place_is_done_once() -> None:
    """The rest is no addition to itself, however many parts the loop was run in"""
    shared(kernels.in_place(77), "TAIL(0, 8); UPCAST(0, 8); THREAD(0)")


@pytest.mark.parametrize(
    ("kernel", "opts", "reason"),
    [
        (kernels.matmul(8, 16, 12), "THREAD(1)", "axis 1 runs inside axis 0"),
        (kernels.matmul(8, 16, 12), "THREAD(2)", "axis 2 is Reduce: no sum is split"),
        (kernels.elementwise(3, 16), "UPCAST(0, 3); THREAD(0)", "has no axis 0"),
        (kernels.elementwise(3, 16), "THREAD(0); THREAD(1)", "has a THREAD axis already"),
        (kernels.elementwise(4, 16), "THREAD(0); SPLIT(0, 2)", "axis 0 is Thread, not a loop"),
        (
            kernels.broadcast_sum(1, 16, 8),
            "THREAD(1)",
            "a sum is formed outside axis 1, by every thread again",
        ),
    ],
)
def test_what_is_refused(kernel: Kernel, opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernel, opts)


def _writing(place_of_read: int, place_of_write: int, n: int = 8) -> Kernel:
    """p[i * place_of_write] = p[i + place_of_read] + 1, in place"""
    b = Builder()
    i = b.loop(n)
    out = b.param(4 * n)
    value = out.at(i + place_of_read) + 1.0
    return b.kernel(out.at(i * place_of_write).store(value, i))


@pytest.mark.parametrize(("read", "write"), [(1, 1), (0, 2)])
def test_reading_what_another_iteration_writes_is_refused(read: int, write: int) -> None:
    with pytest.raises(OptError, match="is read where another iteration may write it"):
        opted(_writing(read, write), "THREAD(0)")


def test_two_iterations_that_write_one_place_are_refused() -> None:
    b = Builder()
    i, j = b.loop(4), b.loop(4)
    out = b.param(16)
    kernel = b.kernel(out.at(i + j).store((i * 4 + j).cast(dtypes.float32), i, j))
    with pytest.raises(OptError, match="may write the same places"):
        opted(kernel, "THREAD(0)")


def _two_stores(begin: int) -> Kernel:
    """p[i] = 1 for i < 9, p[begin + j] = 2 for j < 3; a TAIL on another axis before."""
    b = Builder()
    out, second = b.param(77), b.param(77)
    i, k, j = b.loop(9), b.loop(7), b.loop(3)
    stores = (
        out.at(i * 8).store(1.0, i),
        second.at(k).store(1.0, k),
        out.at(j * 8 + begin).store(2.0, j),
    )
    return b.kernel(*stores)


def test_stores_that_may_meet_are_refused_whatever_came_before() -> None:
    """A TAIL elsewhere says nothing about two STOREs of one buffer."""
    with pytest.raises(OptError, match="may write the same places of the buffer in slot 0"):
        opted(_two_stores(16), "TAIL(1, 4); THREAD(0)")


@pytest.mark.parametrize("begin", [3, 72 - 16 + 1])
def test_stores_that_never_meet_need_no_tail(begin: int) -> None:
    """8 apart, and begun elsewhere: to the base 8 the last digits differ."""
    shared(_two_stores(begin), "THREAD(0)")


@pytest.mark.parametrize(
    "opts",
    [
        "TAIL(0, 4); TAIL(2, 8); THREAD(0)",
        "TAIL(1, 8); TAIL(0, 4); SPLIT(0, 2); THREAD(0)",
        "SWAP(0, 1); TAIL(0, 8); SPLIT(0, 8); THREAD(0)",
        "TAIL(1, 16); TAIL(2, 4); SWAP(0, 1); THREAD(0)",
    ],
)
def test_what_tails_leave_over_is_proved_apart(opts: str) -> None:
    shared(kernels.matmul(7, 29, 5), opts)


def test_positions_that_never_meet() -> None:
    b = Builder()
    i, j, k = b.loop(7), b.loop(9), b.loop(5)
    first = i * 77 + j * 8
    assert disjoint(first, i * 77 + k + 72)
    assert disjoint(i * 80 + j * 8, k * 80 + j * 8 + 3)
    assert not disjoint(first, i * 77 + k + 64)
    assert not disjoint(first, first)
    assert disjoint(i, k + 7)
    assert not disjoint(i, k + 6)


@pytest.mark.parametrize("target", [c_renderer, llvm_renderer])
def test_a_loop_whose_end_is_symbolic(target: Callable[[], Renderer]) -> None:
    """As many iterations as the variable says, whatever parts the launcher hands out."""
    out, n = UOp.param(0, dtypes.float32.ptr(), 640), UOp.define_var("n", 1, 64)
    i, j = UOp.range(n, 0, renumbered=True), UOp.range(10, 1, renumbered=True)
    store = out.at(i * 10 + j).store((i * 10 + j).cast(dtypes.float32), i, j)
    sink = apply_opt(UOp(Ops.SINK, dtypes.void, (store,), KernelInfo("k")), Opt(OptOps.THREAD, 0))
    for threads in (1, 3):
        with config.override(threads=threads):
            for count in (1, 2, 33, 64):
                start = np.full(640, -1, np.float32)
                (got,) = run_sink(sink, [start], {"n": count}, target())
                right = np.where(np.arange(640) < 10 * count, np.arange(640), -1)
                np.testing.assert_array_equal(got, right)


# ---- the choice ----------------------------------------------------------------------------------


def _with_cost(kernel: Kernel, flops: int) -> UOp:
    return UOp(
        Ops.SINK,
        dtypes.void,
        kernel.sink.src,
        KernelInfo("test", estimates=Estimates(flops=flops)),
    )


def test_work_is_shared_where_there_is_enough() -> None:
    kernel = kernels.matmul(64, 64, 64)
    sink = apply_opts(_with_cost(kernel, 1 << 24), renderer())
    assert len(thread_axes(sink)) == 1
    check(kernel, sink)
    assert thread_axes(apply_opts(_with_cost(kernel, 1 << 10), renderer())) == []


def test_a_target_without_threads_gets_none() -> None:
    class Plain:
        capability = capability(8)
        pre_matcher = None

        def render(self, linear: UOp, name: str) -> str:
            return ""

    sink = apply_opts(_with_cost(kernels.matmul(64, 64, 64), 1 << 24), Plain())
    assert thread_axes(sink) == []


def test_a_short_axis_is_merged_with_the_next() -> None:
    kernel = kernels.conv(2, 3, 12, 3)
    sink = apply_opts(_with_cost(kernel, 1 << 24), renderer())
    assert [str(opt.op) for opt in sink.arg.applied_opts][-1] == "THREAD"
    check(kernel, sink)


def test_a_sum_of_everything_is_not_shared() -> None:
    kernel = kernels.full_sum(4096)
    sink = apply_opts(_with_cost(kernel, 1 << 24), renderer())
    assert thread_axes(sink) == []
    check(kernel, prepare(sink))
