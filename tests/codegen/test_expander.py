"""Stages 8 to 10: gates, vectors and replicated statements, local memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from morok._core import toposort
from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.dtype import AddrSpace, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from tests.codegen import kernels
from tests.codegen.kernels import CASES, Builder, Kernel, capability, check, nodes, only, opted


def expanded(kernel: Kernel, opts: str, lanes: int = 8) -> UOp:
    """The kernel after `opts` and stages 8 and 9, checked against the kernel itself."""
    result = expander(post_opt_symbolic(opted(kernel, opts)), capability(lanes))
    check(kernel, result)
    return result


def sunk(*stores: UOp) -> UOp:
    return UOp(Ops.SINK, dtypes.void, stores, KernelInfo())


# ---- stage 8 -------------------------------------------------------------------------------------


def test_condition_on_positions_becomes_a_gate() -> None:
    k = Builder()
    i = k.loop(8)
    out, x, limit = k.param(8), k.param(8), k.param(8)
    valid = i < 5
    before = k.kernel(out.at(i).store(valid.where(x.at(i), 0.0) + limit.at(i), i))
    read = only(post_opt_symbolic(before.sink), Ops.INDEX, lambda node: bool(node.arg))
    assert read.src == (x, i, valid)
    check(before, post_opt_symbolic(before.sink))


def test_condition_in_the_other_arm_is_negated() -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(8)
    before = k.kernel(out.at(i).store((i < 5).where(UOp.const(dtypes.float32, 0.0), x.at(i)), i))
    after = post_opt_symbolic(before.sink)
    assert not nodes(after, Ops.WHERE)
    check(before, after)


def test_gates_join() -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(8)
    value = (i < 5).where(x.at(i, gate=i >= 2), 0.0)
    before = k.kernel(out.at(i).store(value, i))
    after = post_opt_symbolic(before.sink)
    assert not nodes(after, Ops.WHERE)
    check(before, after)


@pytest.mark.parametrize("other", [-0.0, 1.0])
def test_another_alternative_than_zero_is_no_gate(other: float) -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(8)
    after = post_opt_symbolic(k.kernel(out.at(i).store((i < 5).where(x.at(i), other), i)).sink)
    assert len(nodes(after, Ops.WHERE)) == 1


def test_condition_on_data_stays_a_select() -> None:
    k = Builder()
    i = k.loop(8)
    out, x, mask = k.param(8), k.param(8), k.param(8, dtypes.bool)
    after = post_opt_symbolic(k.kernel(out.at(i).store(mask.at(i).where(x.at(i), 0.0), i)).sink)
    assert len(nodes(after, Ops.WHERE)) == 1
    assert not [node for node in nodes(after, Ops.INDEX) if node.arg]


def test_invalid_position_becomes_a_gate() -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(4)
    index = (i < 4).where(i, UOp.invalid())
    after = post_opt_symbolic(k.kernel(out.at(i).store(x.at(index), i)).sink)
    read = only(after, Ops.INDEX, lambda node: bool(node.arg))
    assert read.src == (x, i, i < 4)


def test_loops_of_one_iteration_are_gone() -> None:
    k = Builder()
    i, j, r = k.loop(1), k.loop(4), k.red(1)
    out, x = k.param(4), k.param(4)
    value = x.at(i * 4 + j + r).reduce(ReduceOp.ADD, r)
    after = post_opt_symbolic(k.kernel(out.at(i * 4 + j).store(value, i, j)).sink)
    assert nodes(after, Ops.RANGE) == [j]
    assert not nodes(after, Ops.REDUCE)


def test_unit_dimension_leaves_a_local_row() -> None:
    k = Builder()
    i, a, b = k.loop(4), k.loop(1), k.loop(4)
    out, x = k.param(4), k.param(4)
    row = x.at(a * 4 + b).exp().bufferize(a, b, opts=kernels.LOCAL)
    zero = UOp.const(dtypes.index, 0)
    kernel = k.kernel(out.at(i).store(row.at(zero, i), i))
    after = post_opt_symbolic(kernel.sink)
    assert only(after, Ops.BUFFERIZE).ended_ranges == (b,)
    check(kernel, after)


def test_sums_of_halves_are_accumulated_in_float32() -> None:
    after = post_opt_symbolic(kernels.half_sum(2, 48).sink)
    assert only(after, Ops.REDUCE).dtype is dtypes.float32
    largest = kernels.row_reduce(2, 8, ReduceOp.MAX, dtypes.float16)
    assert only(post_opt_symbolic(largest.sink), Ops.REDUCE).dtype is dtypes.float16


# ---- stage 9: lanes ------------------------------------------------------------------------------


def test_elementwise_becomes_one_vector_store() -> None:
    """a[i, j] is a run, b[j] too, 1.0 a constant vector"""
    store = only(expanded(kernels.elementwise(3, 16), "UPCAST(1, 8)"), Ops.STORE)
    assert store.src[0].dtype is dtypes.float32.vec(8)
    assert store.src[1].dtype is dtypes.float32.vec(8)
    reads = [node for node in toposort(store.src[1]) if node.op is Ops.INDEX]
    assert [read.dtype for read in reads] == [dtypes.float32.vec(8)] * 2
    assert len(store.ended_ranges) == 2


def test_lane_that_does_not_move_a_read_is_broadcast() -> None:
    k = Builder()
    i, j = k.loop(4), k.loop(8)
    out, a, b = k.param(32), k.param(4), k.param(8)
    kernel = k.kernel(out.at(i * 8 + j).store(a.at(i) * b.at(j), i, j))
    store = only(expanded(kernel, "UPCAST(1, 8)"), Ops.STORE)
    scalar = only(store, Ops.INDEX, lambda node: node.src[0] is a)
    assert scalar.dtype is dtypes.float32
    spread = only(store, Ops.VECTORIZE)
    assert spread.src == (scalar,) * 8


def test_strided_read_is_one_scalar_a_lane() -> None:
    result = expanded(kernels.transposed_add(4, 8), "UPCAST(1, 8)")
    vector = only(result, Ops.VECTORIZE)
    assert all(read.op is Ops.INDEX and read.dtype is dtypes.float32 for read in vector.src)
    assert len(set(vector.src)) == 8


def test_gate_without_the_lane_stays_a_scalar_gate() -> None:
    k = Builder()
    i, j = k.loop(4), k.loop(8)
    out, a = k.param(32), k.param(24)
    kernel = k.kernel(out.at(i * 8 + j).store(a.at(i * 8 + j, gate=i < 3) + 1.0, i, j))
    read = only(expanded(kernel, "UPCAST(1, 8)"), Ops.INDEX, lambda node: bool(node.arg))
    assert read.dtype is dtypes.float32.vec(8)
    assert read.src[-1] is (i < 3)


def test_gate_with_the_lane_is_a_select_when_the_run_is_in_bounds() -> None:
    result = expanded(kernels.lower_triangle(16), "UPCAST(1, 8)")
    select = only(result, Ops.WHERE)
    assert select.dtype is dtypes.float32.vec(8)
    assert select.src[0].dtype is dtypes.bool.vec(8)
    assert not [node for node in nodes(result, Ops.INDEX) if node.arg]


def test_gate_with_the_lane_is_a_gate_a_lane_when_the_run_may_leave_the_buffer() -> None:
    result = expanded(kernels.padded(13, 2, 1), "UPCAST(0, 8)")
    assert all(node.dtype.count == 1 for node in nodes(result, Ops.INDEX) if node.arg)
    assert not nodes(result, Ops.WHERE)


def test_gate_with_the_lane_is_a_mask_where_the_target_has_them() -> None:
    kernel = kernels.padded(13, 2, 1)
    target = replace(capability(8), predicated_memory=True)
    result = expander(post_opt_symbolic(opted(kernel, "UPCAST(0, 8)")), target)
    check(kernel, result)
    gated = nodes(result, Ops.INDEX, lambda node: bool(node.arg))
    assert gated
    assert all(node.dtype.count == node.src[-1].dtype.count == 8 for node in gated)


def test_gate_with_the_lane_below_a_remainder_is_a_gate_a_lane() -> None:
    """Lanes of remainders are no cheaper than conditions"""
    k = Builder()
    i = k.loop(16)
    out, x = k.param(16), k.param(14)
    at = i + -1
    kernel = k.kernel(out.at(i).store(x.at(at, gate=(at >= 0) & (at < 14) & (at % 3 < 2)), i))
    target = replace(capability(8), predicated_memory=True)
    result = expander(post_opt_symbolic(opted(kernel, "UPCAST(0, 8)")), target)
    check(kernel, result)
    assert all(node.dtype.count == 1 for node in nodes(result, Ops.INDEX) if node.arg)


def test_lanes_that_share_an_element_share_the_read() -> None:
    """x[(lane + 1) // 4]: eight lanes, three reads"""
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(3)
    result = expanded(k.kernel(out.at(i).store(x.at((i + 1) // 4), i)), "UPCAST(0, 8)")
    vector = only(result, Ops.VECTORIZE)
    assert len(vector.src) == 8
    assert len(set(vector.src)) == 3


def test_index_read_from_memory_is_a_vector_of_indices() -> None:
    k = Builder()
    j = k.loop(8)
    out, x = k.param(8), k.param(7)
    ids = k.param(8, dtypes.int32, kernels.np.arange(8, dtype="int32") * 3 % 7)
    kernel = k.kernel(out.at(j).store(x.at(ids.at(j).cast(dtypes.index)), j))
    result = expanded(kernel, "UPCAST(0, 8)")
    assert only(result, Ops.INDEX, lambda node: node.src[0] is ids).dtype.count == 8
    assert len([node for node in nodes(result, Ops.INDEX) if node.src[0] is x]) == 8


def test_counter_of_the_lane_is_a_constant_vector() -> None:
    store = nodes(expanded(kernels.counting(8), "UPCAST(0, 8)"), Ops.STORE)[0]
    assert only(store.src[1], Ops.VCONST) is not None


def test_store_without_unit_stride_is_replicated() -> None:
    k = Builder()
    i = k.loop(4)
    out, x = k.param(8), k.param(4)
    result = expanded(k.kernel(out.at(i * 2).store(x.at(i), i)), "UPCAST(0, 4)")
    assert [node.src[1].dtype for node in nodes(result, Ops.STORE)] == [dtypes.float32] * 4


def test_sum_of_neighbours_is_a_vector_however_it_is_stored() -> None:
    """out[2 i] = sum over j of x[j, i]: one vector accumulator, its elements stored one by one"""
    k = Builder()
    i, j = k.loop(4), k.red(3)
    out, x = k.param(8), k.param(12)
    total = x.at(j * 4 + i).reduce(ReduceOp.ADD, j)
    kernel = k.kernel(out.at(i * 2).store(total, i))
    result = expanded(kernel, "UPCAST(0, 4)")
    assert [node.dtype.count for node in nodes(result, Ops.REDUCE)] == [4]
    assert [node.src[1].op for node in nodes(result, Ops.STORE)] == [Ops.GEP] * 4


def test_width_keeps_to_where_the_lane_does_not_move_the_read() -> None:
    """x[lane // 4]: two statements of four lanes, each with one read"""
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(2)
    result = expanded(k.kernel(out.at(i).store(x.at(i // 4), i)), "UPCAST(0, 8)")
    assert [len(set(vector.src)) for vector in nodes(result, Ops.VECTORIZE)] == [1, 1]


def test_wide_axis_keeps_the_native_width() -> None:
    """32 iterations, 8 lanes: four vector STOREs"""
    stores = nodes(expanded(kernels.elementwise(2, 32), "UPCAST(1, 32)"), Ops.STORE)
    assert [store.src[1].dtype.count for store in stores] == [8] * 4


def test_width_follows_the_widest_type() -> None:
    """float64 among the values: four lanes of 32 bytes"""
    result = expanded(kernels.compared(16), "UPCAST(0, 16)")
    wide = [n for n in nodes(result, Ops.STORE) if n.src[1].dtype.scalar is dtypes.float64]
    assert [store.src[1].dtype.count for store in wide] == [4] * 4


def test_width_avoids_divisions_of_the_lane() -> None:
    """Rows of 12 read as x[j // 12, j % 12]: 4 lanes stay within a row, 8 do not"""
    k = Builder()
    j = k.loop(48)
    out, x = k.param(48), k.param(64)
    kernel = k.kernel(out.at(j).store(x.at(j // 12 * 16 + j % 12) + 1.0, j))
    stores = nodes(expanded(kernel, "UPCAST(0, 48)"), Ops.STORE)
    assert {store.src[1].dtype.count for store in stores} == {4}
    assert all(node.dtype.count == 4 for node in nodes(stores[0].src[1], Ops.INDEX))


def test_unroll_of_an_output_axis_replicates() -> None:
    result = expanded(kernels.elementwise(4, 5), "UNROLL(0, 2)")
    assert len(nodes(result, Ops.STORE)) == 2


# ---- stage 9: tiles and reductions ---------------------------------------------------------------


def test_tile_shares_its_loads() -> None:
    """4 rows of two vectors: 8 accumulators, 4 scalars and 2 vectors read"""
    result = expanded(kernels.matmul(8, 32, 12), "UPCAST(1, 16); UPCAST(0, 4)")
    sums = nodes(result, Ops.REDUCE)
    assert [node.dtype for node in sums] == [dtypes.float32.vec(8)] * 8
    assert len({node.ended_ranges for node in sums}) == 1
    reads = [node for node in nodes(result, Ops.INDEX) if node.src[0].arg[0] in (1, 2)]
    assert sorted(read.dtype.count for read in reads) == [1] * 4 + [8] * 2


def test_lane_of_a_reduction_is_added_across_by_halves() -> None:
    result = expanded(kernels.row_reduce(3, 64, ReduceOp.ADD), "UPCAST(1, 8)")
    total = only(result, Ops.STORE).src[1]
    assert only(result, Ops.REDUCE).dtype is dtypes.float32.vec(8)
    widths = [node.dtype.count for node in toposort(total) if node.op is Ops.ADD]
    assert [count for count in widths if count > 1] == [4, 2]
    assert total.op is Ops.ADD
    assert total.dtype is dtypes.float32


def test_upcast_of_a_reduction_makes_accumulators() -> None:
    result = expanded(kernels.column_reduce(32, 5, ReduceOp.ADD), "UPCAST(1, 4)")
    assert len(nodes(result, Ops.REDUCE)) == 4


def test_unroll_of_a_reduction_is_combined_in_its_body() -> None:
    result = expanded(kernels.matmul(2, 3, 12), "UNROLL(2, 4)")
    node = only(result, Ops.REDUCE)
    assert len(nodes(node.src[0], Ops.MUL, lambda n: n.dtype is dtypes.float32)) == 4
    assert node.ended_ranges[0].vmax == 2


def test_reduction_without_a_loop_left_is_plain_arithmetic() -> None:
    assert not nodes(expanded(kernels.strided(16, 2), "UNROLL(1, 2)"), Ops.REDUCE)


def test_sum_of_what_does_not_depend_on_the_axis() -> None:
    k = Builder()
    i, r = k.loop(4), k.red(16)
    out, x = k.param(4), k.param(4)
    kernel = k.kernel(out.at(i).store(x.at(i).reduce(ReduceOp.ADD, r), i))
    for opts in ("UPCAST(1, 8)", "UNROLL(1, 4)", "UPCAST(0, 4); UPCAST(1, 16)"):
        expanded(kernel, opts)


def test_inner_lane_and_outer_lane() -> None:
    """Both axes widened: the statement has the lane, the reduction several accumulators"""
    result = expanded(
        kernels.matmul(4, 8, 32, transposed=True), "UPCAST(2, 8); UPCAST(1, 8)", lanes=8
    )
    assert only(result, Ops.STORE).src[1].dtype.count == 8


def test_stores_with_a_closed_gate_vanish() -> None:
    """Of two vectors one is stored whole, the other not at all"""
    result = expanded(kernels.gated_store(16, 8), "UPCAST(0, 16)")
    store = only(result, Ops.STORE)
    assert store.src[1].dtype.count == 8
    assert not store.src[0].arg


def test_a_gate_that_differs_by_lane_is_a_vector() -> None:
    result = expanded(kernels.gated_store(16, 11), "UPCAST(0, 16)")
    gates = [store.src[0].src[-1] for store in nodes(result, Ops.STORE) if store.src[0].arg]
    assert [gate.dtype.count for gate in gates] == [8]


def test_nothing_to_expand_is_the_same_graph() -> None:
    sink = post_opt_symbolic(kernels.elementwise(3, 5).sink)
    assert expander(sink, capability()) is sink


def test_range_that_nothing_binds_is_refused() -> None:
    out = UOp.param(0, dtypes.float32.ptr(), 4)
    stray = UOp.range(4, 0, AxisType.UPCAST, renumbered=True)
    sink = sunk(out.at(stray).store(1.0))
    with pytest.raises(InvalidGraphError, match="no statement could expand"):
        expander(sink, capability())


def test_buffer_filled_inside_a_lane_is_refused() -> None:
    k = Builder()
    i = k.loop(8, AxisType.UPCAST)
    j, c = k.loop(4), k.loop(4)
    out, x = k.param(32), k.param(32)
    row = x.at(c * 8 + i).bufferize(c, opts=kernels.LOCAL)
    sink = sunk(out.at(j * 8 + i).store(row.at(j), i, j))
    with pytest.raises(InvalidGraphError, match="inside"):
        expander(sink, capability())


# ---- stage 10 ------------------------------------------------------------------------------------


def test_local_row_is_allocated_filled_and_read() -> None:
    kernel = kernels.softmax(3, 16)
    result = add_local_buffers(post_opt_symbolic(kernel.sink))
    check(kernel, result)
    memory = only(result, Ops.DEFINE_LOCAL)
    assert memory.dtype is dtypes.float32.ptr(AddrSpace.LOCAL)
    assert memory.arg == (0, 16)
    after = only(result, Ops.AFTER)
    assert after.src[0] is memory
    assert after.src[1].op is Ops.STORE
    assert all(n.src[0] is after for n in nodes(result, Ops.INDEX) if n.src[0].op is Ops.AFTER)


def test_local_buffer_of_two_dimensions_is_row_major() -> None:
    kernel = kernels.staged(8, 16)
    result = add_local_buffers(post_opt_symbolic(kernel.sink))
    check(kernel, result)
    assert only(result, Ops.DEFINE_LOCAL).arg == (0, 128)


def test_fill_is_widened_on_its_own() -> None:
    result = add_local_buffers(expanded(kernels.staged(8, 16), "UPCAST(3, 8)"))
    fill = only(result, Ops.AFTER).src[1]
    assert fill.src[1].dtype.count == 8


def test_hints_are_gone() -> None:
    k = Builder()
    i = k.loop(4)
    out, x = k.param(4), k.param(4)
    hinted = UOp(Ops.CONTIGUOUS, dtypes.float32, (x.at(i),))
    result = add_local_buffers(k.kernel(out.at(i).store(hinted, i)).sink)
    assert not nodes(result, Ops.CONTIGUOUS)


def test_global_buffer_inside_a_kernel_is_refused() -> None:
    k = Builder()
    i, c = k.loop(4), k.loop(4)
    out, x = k.param(4), k.param(4)
    row = x.at(c).bufferize(c)
    with pytest.raises(InvalidGraphError, match="LOCAL"):
        add_local_buffers(k.kernel(out.at(i).store(row.at(i), i)).sink)


# ---- all stages, all kernels ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_values_survive_without_actions(name: str) -> None:
    kernel = CASES[name]()
    sink = post_opt_symbolic(kernel.sink)
    check(kernel, sink)
    assert expander(sink, capability()) is sink
    check(kernel, add_local_buffers(sink))
