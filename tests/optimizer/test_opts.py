"""Actions: what they do to ranges, when they are refused, that they can be replayed."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bench._opts_actions import random_opts
from morok._core import toposort
from morok.codegen.expander import expander, post_opt_symbolic
from morok.dtype import dtypes
from morok.errors import OptError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from morok.optimizer import (
    MAX_INSTANCES,
    MAX_LOCAL_BYTES,
    Opt,
    OptOps,
    apply_opt,
    parse_opts,
    prepare,
    replay,
)
from tests.codegen import kernels
from tests.codegen.kernels import CASES, Builder, Kernel, capability, check, nodes, only, opted


def axes(sink: UOp) -> list[tuple[int, int, str]]:
    """(number, end, type) of the ranges, by number."""
    ranges = nodes(sink, Ops.RANGE)
    return sorted((rng.arg[0].number, rng.vmax + 1, str(rng.arg[1])) for rng in ranges)


def applied(kernel: Kernel, opts: str) -> UOp:
    """The kernel after `opts`, checked against the kernel itself."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    return sink


# ---- text ----------------------------------------------------------------------------------------


def test_opts_print_and_parse() -> None:
    opts = (Opt(OptOps.UPCAST, 1, 8), Opt(OptOps.SWAP, 0, 1), Opt(OptOps.LOCAL, 3, (2, 10, 4)))
    text = "; ".join(map(str, opts))
    assert text == "UPCAST(1, 8); SWAP(0, 1); LOCAL(3, 2, 10, 4)"
    assert parse_opts(text) == opts
    assert parse_opts(text.replace("; ", "\n")) == opts
    assert parse_opts("") == ()


@pytest.mark.parametrize(
    "text", ["UPCAST", "UPCAST(1)", "FLY(1, 2)", "UPCAST(1, -2)", "upcast(1,2)", "UPCAST(1, 2, 3)"]
)
def test_text_that_is_no_action(text: str) -> None:
    with pytest.raises(OptError, match="is no action"):
        parse_opts(text)


def test_applied_actions_are_recorded() -> None:
    sink = applied(kernels.matmul(8, 16, 12), "UPCAST(1, 8); SWAP(0, 1)")
    info = sink.arg
    assert isinstance(info, KernelInfo)
    assert info.name == "test"
    assert info.applied_opts == parse_opts("UPCAST(1, 8); SWAP(0, 1)")
    assert [str(axis) for axis in info.axis_types] == ["Loop", "Loop", "Reduce", "Upcast"]


def test_replay_is_deterministic() -> None:
    text = "SPLIT(0, 2); UPCAST(2, 8); UNROLL(3, 3); TAIL(3, 3)"
    assert opted(kernels.matmul(8, 16, 12), text) is opted(kernels.matmul(8, 16, 12), text)


def test_error_names_the_action() -> None:
    with pytest.raises(OptError) as error:
        applied(kernels.elementwise(3, 16), "UPCAST(1, 5)")
    assert error.value.opt == Opt(OptOps.UPCAST, 1, 5)
    assert "5 does not divide the 16 iterations" in str(error.value)
    assert "UPCAST(1, 5)" in str(error.value)


# ---- each action ---------------------------------------------------------------------------------


def test_upcast_splits_off_an_inner_part() -> None:
    sink = applied(kernels.elementwise(3, 16), "UPCAST(1, 8)")
    assert axes(sink) == [(0, 3, "Loop"), (1, 2, "Loop"), (2, 8, "Upcast")]
    store = only(sink, Ops.STORE)
    assert [rng.arg[0].number for rng in store.ended_ranges] == [0, 1, 2]


def test_upcast_of_a_whole_axis_leaves_no_loop() -> None:
    sink = applied(kernels.elementwise(3, 16), "UPCAST(1, 16)")
    assert axes(sink) == [(0, 3, "Loop"), (2, 16, "Upcast")]


def test_unroll() -> None:
    sink = applied(kernels.matmul(2, 3, 12), "UNROLL(2, 4)")
    assert axes(sink) == [(0, 2, "Loop"), (1, 3, "Loop"), (2, 3, "Reduce"), (3, 4, "Unroll")]


def test_split_moves_the_axes_above_it() -> None:
    sink = applied(kernels.matmul(8, 6, 5), "SPLIT(0, 2)")
    assert axes(sink) == [(0, 4, "Loop"), (1, 2, "Loop"), (2, 6, "Loop"), (3, 5, "Reduce")]


def test_swap_exchanges_numbers() -> None:
    sink = applied(kernels.elementwise(3, 16), "SWAP(0, 1)")
    assert axes(sink) == [(0, 16, "Loop"), (1, 3, "Loop")]


def test_swap_of_a_loop_that_a_second_statement_shares() -> None:
    """The rows left over keep the loops of the columns, in another order"""
    sink = applied(kernels.matmul(7, 12, 5), "TAIL(0, 4); SPLIT(0, 2); SWAP(0, 3)")
    assert axes(sink)[:4] == [(0, 12, "Loop"), (1, 2, "Loop"), (2, 3, "Loop"), (3, 2, "Loop")]


def test_order_deals_numbers_out_again() -> None:
    sink = applied(kernels.conv(2, 4, 6, 3), "ORDER(1, 2, 0)")
    assert [end for _, end, _ in axes(sink)[:3]] == [6, 6, 4]
    swapped = applied(kernels.conv(2, 4, 6, 3), "SWAP(0, 1); SWAP(1, 2)")
    assert sink.src == swapped.src
    applied(kernels.conv(2, 4, 6, 3), "ORDER(5, 3, 4)")


def test_merge_makes_one_loop_of_two() -> None:
    sink = applied(kernels.elementwise(3, 16), "MERGE(0, 1)")
    assert axes(sink) == [(1, 48, "Loop")]
    store = only(sink, Ops.STORE)
    assert store.src[0].src[1] is store.ended_ranges[0]  # no quotient, no remainder


def test_merge_of_rows_that_are_not_neighbours() -> None:
    """The window walks on where a row ends: quotients and remainders, and the same values"""
    sink = applied(kernels.conv(2, 4, 6, 3), "MERGE(1, 2)")
    assert axes(sink)[:2] == [(0, 4, "Loop"), (2, 36, "Loop")]


def test_tail_repeats_the_store() -> None:
    sink = applied(kernels.elementwise(2, 13), "TAIL(1, 8)")
    assert axes(sink) == [(0, 2, "Loop"), (1, 8, "Loop"), (2, 5, "Loop")]
    stores = nodes(sink, Ops.STORE)
    assert sink.src == tuple(stores)
    assert [len(store.ended_ranges) for store in stores] == [2, 2]


def test_tail_of_one_iteration_has_no_loop() -> None:
    sink = applied(kernels.elementwise(2, 9), "TAIL(1, 8)")
    assert axes(sink) == [(0, 2, "Loop"), (1, 8, "Loop")]


def test_tail_of_a_reduction_adds_two() -> None:
    sink = applied(kernels.row_reduce(2, 37, ReduceOp.ADD), "TAIL(1, 16)")
    assert [node.ended_ranges[0].vmax + 1 for node in nodes(sink, Ops.REDUCE)] == [32, 5]
    assert only(sink, Ops.STORE).src[1].op is Ops.ADD


def test_tail_of_a_largest_value() -> None:
    sink = applied(kernels.row_reduce(2, 9, ReduceOp.MAX), "TAIL(1, 8)")
    assert only(sink, Ops.STORE).src[1].op is Ops.MAX
    assert len(nodes(sink, Ops.REDUCE)) == 1


def test_padto_gates_reads_and_the_store() -> None:
    sink = applied(kernels.elementwise(2, 13), "PADTO(1, 8)")
    assert axes(sink) == [(0, 2, "Loop"), (1, 16, "Loop")]
    assert all(index.arg for index in nodes(sink, Ops.INDEX))


def test_padto_leaves_what_does_not_know_the_axis() -> None:
    sink = applied(kernels.matmul(5, 13, 7), "PADTO(1, 8); UPCAST(1, 8)")
    plain = [index.src[0].arg[0] for index in nodes(sink, Ops.INDEX) if not index.arg]
    assert plain == [1]


@pytest.mark.parametrize("op", [ReduceOp.ADD, ReduceOp.MAX, ReduceOp.MUL])
def test_padto_of_a_reduction_takes_the_identity(op: ReduceOp) -> None:
    for text in ("PADTO(1, 8)", "PADTO(1, 8); UPCAST(1, 8)", "PADTO(1, 16); UNROLL(1, 4)"):
        applied(kernels.row_reduce(3, 21, op), text)


@pytest.mark.parametrize(
    "opts",
    [
        "SWAP(0, 1); PADTO(0, 8); LOCAL(2, 2, 0); UPCAST(4, 8); UPCAST(0, 8)",
        "PADTO(0, 4); UPCAST(0, 4); PADTO(1, 8); UPCAST(1, 8); PADTO(2, 4); UNROLL(2, 4)",
        "TAIL(1, 8); PADTO(2, 4); UPCAST(2, 4); UPCAST(1, 8)",
    ],
)
def test_padto_with_other_actions(opts: str) -> None:
    for kernel in (kernels.matmul(7, 15, 11), kernels.matmul(7, 15, 11, epilogue=True)):
        sink = applied(kernel, opts)
        for lanes in (4, 8, 16):
            check(kernel, expander(post_opt_symbolic(sink), capability(lanes)))


def test_actions_reach_every_statement_of_an_axis() -> None:
    sink = applied(kernels.two_sums(2, 40), "UPCAST(1, 8)")
    assert all(len(node.ended_ranges) == 2 for node in nodes(sink, Ops.REDUCE))


def test_layout_of_a_local_buffer_follows_its_axes() -> None:
    sink = applied(kernels.staged(8, 16), "SPLIT(3, 4); UPCAST(2, 2)")
    row = only(sink, Ops.BUFFERIZE)
    assert [rng.vmax + 1 for rng in row.ended_ranges] == [4, 2, 4, 4]
    read = only(sink, Ops.INDEX, lambda node: node.src[0] is row)
    assert len(read.src) == 5


def test_local_copies_what_a_read_sees() -> None:
    sink = applied(kernels.matmul(8, 16, 12), "SWAP(0, 1); SPLIT(0, 8); LOCAL(3, 2, 1)")
    row = only(sink, Ops.BUFFERIZE)
    assert [(rng.arg[0].number, rng.vmax + 1) for rng in row.ended_ranges] == [(4, 12), (5, 8)]
    assert [rng.arg[0].number for rng in row.open_ranges] == [0]
    assert row.src[0].src[0].arg[0] == 2
    read = only(sink, Ops.INDEX, lambda node: node.src[0] is row)
    assert [rng.arg[0].number for rng in read.src[1:]] == [3, 1]


def test_local_takes_the_gate_along() -> None:
    sink = applied(kernels.conv(2, 4, 8, 3), "SWAP(0, 1); SWAP(1, 2); LOCAL(3, 1, 4, 5, 1)")
    read = only(sink, Ops.INDEX, lambda node: bool(node.arg))
    assert read in only(sink, Ops.BUFFERIZE).backward_slice()


def test_local_takes_the_zeros_around_an_image_along() -> None:
    """The reduction reads the copy and asks nothing."""
    sink = applied(kernels.framed_conv(2, 4, 8), "LOCAL(3, 1, 4, 5, 2)")
    row = only(sink, Ops.BUFFERIZE)
    assert row.src[0].op is Ops.WHERE
    product = only(sink, Ops.REDUCE).src[0]
    assert {source.op for source in product.src} == {Ops.INDEX}


def test_local_leaves_reads_by_other_axes_alone() -> None:
    """The tail's read does not depend on the tile's axis"""
    sink = applied(kernels.matmul(4, 13, 5), "SWAP(0, 1); TAIL(0, 4); SPLIT(0, 4); LOCAL(4, 2, 1)")
    assert len(nodes(sink, Ops.BUFFERIZE)) == 1
    assert len(nodes(sink, Ops.INDEX, lambda n: n.src[0].op is Ops.PARAM and n.src[0].arg[0] == 2))


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opt", "reason"),
    [
        ("UPCAST(7, 2)", "no axis 7"),
        ("UPCAST(1, 5)", "does not divide"),
        ("UPCAST(1, 1)", "changes nothing"),
        ("UNROLL(2, 5)", "does not divide"),
        ("SPLIT(1, 16)", "two parts"),
        ("SWAP(0, 0)", "another one"),
        ("SWAP(0, 2)", "differ in type"),
        ("ORDER(0, 1)", "in this order already"),
        ("ORDER(1, 0, 1)", "named twice"),
        ("ORDER(2, 1, 0)", "differ in type"),
        ("MERGE(0, 0)", "not loops of the same"),
        ("MERGE(0, 2)", "not loops of the same"),
        ("TAIL(1, 8)", "nothing is left over"),
        ("TAIL(1, 17)", "no part of"),
        ("PADTO(1, 8)", "a multiple of 8 already"),
        ("PADTO(1, 1)", "changes nothing"),
        ("PADTO(1, 35)", "would do nothing"),
        ("UPCAST(1, 8); UPCAST(3, 2)", "not a loop"),
        ("LOCAL(2, 0, 1)", "writes the buffer"),
        ("LOCAL(2, 1, 1)", "0 reads of slot 1"),
        ("LOCAL(2, 2, 2)", "named twice"),
        ("UPCAST(1, 8); LOCAL(2, 2)", "no loop any more"),
    ],
)
def test_refused_on_a_matrix_product(opt: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernels.matmul(8, 16, 12), opt)


@pytest.mark.parametrize("opt", ["UPCAST(0, 2)", "UNROLL(0, 2)", "TAIL(0, 3)", "SWAP(0, 1)"])
def test_refused_where_a_buffer_is_filled_inside(opt: str) -> None:
    with pytest.raises(OptError, match=r"local buffer|not loops of the same"):
        opted(kernels.softmax(4, 16), opt)


def test_refused_where_iterations_depend_on_each_other() -> None:
    """out[i] = out[i - 1] + x[i]: the loop is in the memory's AFTER"""
    k = Builder()
    i = k.loop(8)
    out, x = k.param(9), k.param(8)
    kernel = k.kernel(out.at(i + 1).store(out.after(i).at(i) + x.at(i), i))
    for opt in ("UPCAST(0, 4)", "UNROLL(0, 2)", "TAIL(0, 3)"):
        with pytest.raises(OptError, match="ordered write"):
            opted(kernel, opt)


def test_tail_of_a_fill_is_refused() -> None:
    with pytest.raises(OptError, match="fills a local buffer"):
        opted(kernels.staged(8, 15), "TAIL(3, 4)")


def test_padto_of_a_fill_is_refused() -> None:
    with pytest.raises(OptError, match="fills a local buffer"):
        opted(kernels.staged(8, 15), "PADTO(3, 4)")


def test_swap_of_loops_of_different_statements_is_refused() -> None:
    for opt in ("SWAP(0, 2)", "ORDER(2, 1, 0)"):
        with pytest.raises(OptError, match="not loops of the same statements"):
            opted(kernels.staged(8, 16), opt)


def test_local_copy_that_is_too_large_is_refused() -> None:
    with pytest.raises(OptError, match=f"more than {MAX_LOCAL_BYTES} bytes"):
        opted(kernels.matmul(4, 2048, 1024), "LOCAL(2, 2, 1)")


def test_too_many_copies_are_refused() -> None:
    with pytest.raises(OptError, match=f"{MAX_INSTANCES} allowed"):
        opted(kernels.elementwise(64, 64), "UPCAST(1, 64); UPCAST(0, 16)")


def test_symbolic_axis_is_refused() -> None:
    out = UOp.param(0, dtypes.float32.ptr(), 64)
    i = UOp.range(UOp.define_var("n", 1, 64), 0, renumbered=True)
    sink = UOp(Ops.SINK, dtypes.void, (out.at(i).store(1.0, i),), KernelInfo())
    with pytest.raises(OptError, match="symbolic"):
        apply_opt(sink, Opt(OptOps.UPCAST, 0, 2))


def test_ambiguous_axis_is_refused() -> None:
    out, other = (UOp.param(slot, dtypes.float32.ptr(), 8) for slot in (0, 1))
    i, j = UOp.range(8, 0, renumbered=True), UOp.range(4, 0, renumbered=True)
    stores = (out.at(i).store(1.0, i), other.at(j).store(1.0, j))
    sink = UOp(Ops.SINK, dtypes.void, stores, KernelInfo())
    with pytest.raises(OptError, match="share the axis number"):
        apply_opt(sink, Opt(OptOps.UPCAST, 0, 2))


def test_refused_action_changes_nothing() -> None:
    sink = prepare(kernels.elementwise(3, 16).sink)
    before = sink.key
    with pytest.raises(OptError):
        apply_opt(sink, Opt(OptOps.UPCAST, 1, 5))
    assert sink.key == before


# ---- random combinations -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_random_actions_keep_the_values(name: str, rng: np.random.Generator) -> None:
    random = Random(int(rng.integers(1 << 30)))
    kernel = CASES[name]()
    start = prepare(kernel.sink)
    for _ in range(4):
        sink = random_opts(start, random, 5)
        assert replay(start, sink.arg.applied_opts) is sink
        check(kernel, sink)
        expanded = expander(post_opt_symbolic(sink), capability(int(rng.choice([4, 8, 16]))))
        assert not [
            node
            for node in toposort(expanded)
            if node.op is Ops.RANGE and node.arg[1] in (AxisType.UPCAST, AxisType.UNROLL)
        ]
        check(kernel, expanded)
