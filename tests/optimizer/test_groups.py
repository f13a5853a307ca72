"""GROUP, GROUPTOP and NOLOCALS: what they do, when they are refused."""

from __future__ import annotations

import pytest

from morok.codegen.expander import expander, post_opt_symbolic
from morok.errors import OptError
from morok.ir import AxisType, Ops, ReduceOp, UOp
from morok.optimizer import Opt, OptOps, parse_opts
from tests.codegen import kernels
from tests.codegen.compiled import run_sink
from tests.codegen.kernels import Kernel, capability, check, nodes, only, opted


def applied(kernel: Kernel, opts: str) -> UOp:
    """The kernel after `opts`: interpreted, interpreted after stage 9, and compiled."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    expanded = expander(post_opt_symbolic(sink), capability(8))
    assert not nodes(
        expanded,
        Ops.RANGE,
        lambda node: node.arg[1] in (AxisType.GROUP_REDUCE, AxisType.UPCAST, AxisType.UNROLL),
    )
    check(kernel, expanded)
    wanted = kernels.run(kernel.sink, kernel.buffers)
    for got, want in zip(run_sink(sink, kernel.buffers), wanted, strict=True):
        assert got == pytest.approx(want, rel=1e-4, abs=1e-4)
    return sink


def axes(sink: UOp) -> list[tuple[int, int, str]]:
    ranges = nodes(sink, Ops.RANGE)
    return sorted((rng.arg[0].number, rng.vmax + 1, str(rng.arg[1])) for rng in ranges)


def test_group_takes_neighbours_apart() -> None:
    sink = applied(kernels.row_reduce(3, 24, ReduceOp.ADD), "GROUP(1, 8)")
    assert axes(sink) == [(0, 3, "Loop"), (1, 3, "Reduce"), (2, 8, "GroupReduce")]


def test_grouptop_takes_runs_apart() -> None:
    sink = applied(kernels.row_reduce(3, 24, ReduceOp.ADD), "GROUPTOP(1, 8)")
    assert axes(sink) == [(0, 3, "Loop"), (1, 8, "GroupReduce"), (2, 3, "Reduce")]


def test_stage_nine_makes_a_buffer_and_a_second_reduction() -> None:
    sink = opted(kernels.row_reduce(3, 24, ReduceOp.MAX), "GROUP(1, 8)")
    expanded = expander(post_opt_symbolic(sink), capability(8))
    buffer = only(expanded, Ops.BUFFERIZE)
    assert [rng.vmax + 1 for rng in buffer.ended_ranges] == [8]
    assert len(nodes(expanded, Ops.REDUCE)) == 2


@pytest.mark.parametrize(
    ("kernel", "opts"),
    [
        (kernels.full_sum(91), "GROUP(0, 7)"),
        (kernels.full_sum(91), "GROUPTOP(0, 13)"),
        (kernels.full_sum(13), "GROUP(0, 13)"),
        (kernels.full_sum(13), "GROUPTOP(0, 13)"),
        (kernels.full_sum(96), "GROUP(0, 8); UPCAST(0, 4)"),
        (kernels.full_sum(96), "GROUPTOP(0, 8); UPCAST(1, 4)"),
        (kernels.full_sum(97), "TAIL(0, 32); GROUP(0, 8)"),
        (kernels.matmul(5, 16, 12), "GROUP(2, 4); THREAD(0)"),
        (kernels.matmul(5, 16, 12), "GROUPTOP(2, 3); UNROLL(3, 2)"),
        (kernels.matmul(4, 16, 12), "UPCAST(2, 4); GROUP(2, 3)"),
        (kernels.column_reduce(24, 5, ReduceOp.MUL), "GROUP(1, 6)"),
        (kernels.conv(3, 2, 5, 3), "GROUP(4, 3)"),
        (kernels.softmax(3, 16), "GROUP(2, 4)"),
        (kernels.variance(3, 16), "GROUPTOP(1, 4)"),
        (kernels.nested_sum(3, 4, 6), "GROUP(2, 2)"),
    ],
)
def test_groups_keep_the_values(kernel: Kernel, opts: str) -> None:
    assert applied(kernel, opts).arg.applied_opts == parse_opts(opts)


@pytest.mark.parametrize(
    ("opts", "reason"),
    [
        ("GROUP(0, 2)", "axis 0 is no reduction"),
        ("GROUP(2, 5)", "5 does not divide the 12 iterations"),
        ("GROUP(2, 4); GROUP(2, 3)", "has groups already"),
        ("GROUP(2, 4); UPCAST(1, 8)", "partial sums are kept inside axis 1"),
        ("UPCAST(1, 8); GROUP(2, 4)", "inside an axis that is no loop any more"),
        ("NOLOCALS(); GROUP(2, 4)", "is to have no local buffers"),
        ("NOLOCALS(); GROUPTOP(2, 4)", "is to have no local buffers"),
        ("NOLOCALS(); LOCAL(2, 2, 1)", "is to have no local buffers"),
        ("NOLOCALS(); ACCUMULATE(2, 1)", "is to have no local buffers"),
        ("NOLOCALS(); NOLOCALS()", "no local buffers already"),
    ],
)
def test_what_is_refused(opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernels.matmul(8, 16, 12), opts)


def test_nolocals_is_a_flag_and_names_no_axis() -> None:
    kernel = kernels.matmul(8, 16, 12)
    sink = opted(kernel, "NOLOCALS(); UPCAST(1, 8)")
    check(kernel, sink)
    assert sink.arg.dont_use_locals
    assert sink.arg.applied_opts[0] == Opt(OptOps.NOLOCALS)
    assert str(Opt(OptOps.NOLOCALS)) == "NOLOCALS()"
    assert parse_opts("NOLOCALS()") == (Opt(OptOps.NOLOCALS),)


@pytest.mark.parametrize("text", ["NOLOCALS", "NOLOCALS(1)", "GROUP(1)", "THREAD()", "UPCAST()"])
def test_text_that_is_no_action(text: str) -> None:
    with pytest.raises(OptError, match="is no action"):
        parse_opts(text)
