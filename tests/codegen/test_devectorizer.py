"""Stages 11 to 14: accumulators, loads, widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from morok._core import toposort
from morok.codegen.devectorizer import add_loads, devectorize, remove_reduce, unshare_ranges
from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.dtype import AddrSpace, dtypes
from morok.ir import AxisType, GroupOp, Ops, ReduceOp, UOp
from tests.codegen import kernels
from tests.codegen.kernels import CASES, Builder, Kernel, capability, check, nodes, only, opted


def upto(kernel: Kernel, opts: str = "", lanes: int = 8) -> UOp:
    """The kernel before stage 11."""
    sink = post_opt_symbolic(opted(kernel, opts))
    return add_local_buffers(expander(sink, capability(lanes)))


def one_loop_each(sink: UOp) -> None:
    """What stage 11 promises: ENDs of one RANGE are one loop."""
    loops: dict[UOp, UOp] = {}
    for node in toposort(sink):
        if node.op is Ops.END:
            for rng in node.ended_ranges:
                other = loops.setdefault(rng, node)
                assert other.ended_ranges == node.ended_ranges
                assert other.open_ranges == node.open_ranges
                assert other is node or other not in node.backward_slice()


# ---- stage 11 ------------------------------------------------------------------------------------


def test_accumulator_has_the_agreed_form() -> None:
    kernel = kernels.row_reduce(3, 20, ReduceOp.ADD)
    before = upto(kernel)
    reduced = only(before, Ops.REDUCE)
    value, rng = reduced.src
    outer = reduced.open_ranges
    reg = UOp.define_reg(dtypes.float32, 1, 0)
    init = reg.after(*outer).at(0).store(UOp.const(dtypes.float32, 0.0))
    now = reg.after(init, rng)
    step = reg.after(init).at(0).store(now.at(0).load() + value)
    end = step.close(rng)
    expected = reg.after(end).at(0).load()
    after = remove_reduce(before)
    assert only(after, Ops.STORE, lambda n: n.src[0].src[0].op is Ops.PARAM).src[1] is expected


def test_accumulator_without_outer_loop_starts_at_once() -> None:
    after = remove_reduce(upto(kernels.full_sum(20)))
    init = only(after, Ops.STORE, lambda n: n.src[1].op is Ops.CONST)
    assert init.src[0].src[0].op is Ops.DEFINE_REG


def test_vector_accumulator() -> None:
    after = remove_reduce(upto(kernels.row_reduce(3, 64, ReduceOp.MAX), "UPCAST(1, 8)"))
    reg = only(after, Ops.DEFINE_REG)
    assert reg.dtype is dtypes.float32.vec(8).ptr(AddrSpace.REG)
    assert reg.arg == (1, 0)
    identity = only(after, Ops.VCONST, lambda n: n.dtype is dtypes.float32.vec(8))
    assert identity.arg == (-float("inf"),) * 8


@pytest.mark.parametrize(
    ("op", "dtype", "identity"),
    [
        (ReduceOp.ADD, dtypes.int32, 0),
        (ReduceOp.MUL, dtypes.float64, 1.0),
        (ReduceOp.MAX, dtypes.int8, -128),
        (ReduceOp.MIN, dtypes.uint16, 65535),
        (ReduceOp.MIN, dtypes.float32, float("inf")),
        (ReduceOp.MAX, dtypes.bool, False),
    ],
)
def test_identities(op: ReduceOp, dtype: kernels.DType, identity: object) -> None:
    kernel = kernels.row_reduce(2, 5, op, dtype)
    after = remove_reduce(upto(kernel))
    check(kernel, after)
    init = only(after, Ops.STORE, lambda n: n.src[1].op is Ops.CONST)
    assert init.src[1] is UOp.const(dtype, identity)


def test_halves_are_accumulated_in_float32_whoever_calls() -> None:
    kernel = kernels.half_sum(2, 48)
    after = remove_reduce(kernel.sink)
    check(kernel, after)
    assert only(after, Ops.DEFINE_REG).dtype.base is dtypes.float32


def test_sums_over_the_same_range_share_the_loop() -> None:
    after = remove_reduce(upto(kernels.two_sums(2, 40)))
    ends = nodes(after, Ops.END)
    assert len(ends) == 2
    assert ends[0].ended_ranges == ends[1].ended_ranges
    assert [node.arg for node in nodes(after, Ops.DEFINE_REG)] == [(1, 0), (1, 1)]


def test_reduction_that_needs_another_gets_its_own_loop() -> None:
    kernel = kernels.variance(3, 16)
    after = remove_reduce(upto(kernel))
    check(kernel, after)
    one_loop_each(after)
    loops = {rng for end in nodes(after, Ops.END) for rng in end.ended_ranges}
    assert len(loops) == 2


def test_reductions_in_different_scopes_get_their_own_loops() -> None:
    """sum_r a[i, r] * b[j, r] stands inside j, sum_r a[i, r] outside of it"""
    k = Builder()
    i, j, r = k.loop(3), k.loop(4), k.red(5)
    out, a, b = k.param(12), k.param(15), k.param(20)
    inner = (a.at(i * 5 + r) * b.at(j * 5 + r)).reduce(ReduceOp.ADD, r)
    outer = a.at(i * 5 + r).reduce(ReduceOp.ADD, r)
    kernel = k.kernel(out.at(i * 4 + j).store(inner + outer, i, j))
    after = remove_reduce(upto(kernel))
    check(kernel, after)
    one_loop_each(after)


def test_nothing_shared_is_the_same_graph() -> None:
    sink = upto(kernels.two_sums(2, 40))
    assert unshare_ranges(sink) is sink


def test_ranges_of_a_second_tuple_are_fresh() -> None:
    """REDUCE over (a, b) and over (b): not the same loop nest"""
    k = Builder()
    a, b = k.red(3), k.red(4)
    out, x, y = k.param(1), k.param(12), k.param(4)
    value = x.at(a * 4 + b).reduce(ReduceOp.ADD, a, b) + y.at(b).reduce(ReduceOp.ADD, b)
    kernel = k.kernel(out.at(0).store(value))
    after = remove_reduce(upto(kernel))
    check(kernel, after)
    one_loop_each(after)


@pytest.mark.parametrize("name", CASES)
def test_no_reduce_is_left(name: str) -> None:
    kernel = CASES[name]()
    after = remove_reduce(upto(kernel))
    assert not nodes(after, Ops.REDUCE)
    one_loop_each(after)
    check(kernel, after)


# ---- stage 13 ------------------------------------------------------------------------------------


def test_reads_are_loads_and_addresses_are_not() -> None:
    kernel = kernels.in_place(19)
    after = add_loads(upto(kernel))
    check(kernel, after)
    store = only(after, Ops.STORE)
    assert store.src[0].op is Ops.INDEX
    loads = nodes(after, Ops.LOAD)
    assert len(loads) == 2
    assert all(load.src == (load.src[1].src[0], load.src[1]) for load in loads)
    assert store.src[0] in [load.src[1] for load in loads]  # read where it is written


def test_gated_read_has_an_alternative() -> None:
    kernel = kernels.padded(13, 2, 1)
    after = add_loads(upto(kernel))
    check(kernel, after)
    load = only(after, Ops.LOAD)
    assert load.src[2] is UOp.const(dtypes.float32, 0.0)


def test_gated_vector_read_has_a_vector_alternative() -> None:
    k = Builder()
    i, j = k.loop(4), k.loop(8)
    out, a = k.param(32), k.param(24)
    kernel = k.kernel(out.at(i * 8 + j).store(a.at(i * 8 + j, gate=i < 3) + 1.0, i, j))
    load = only(add_loads(upto(kernel, "UPCAST(1, 8)")), Ops.LOAD)
    assert load.src[2] is UOp.vconst(dtypes.float32, (0.0,) * 8)


# ---- stage 14 ------------------------------------------------------------------------------------


def grouped(positions: Callable[[UOp], list[UOp]], lanes: int = 8) -> UOp:
    """What VECTORIZE of loads at these positions of one buffer becomes."""
    k = Builder()
    i = k.loop(4)
    out, x = k.param(64), k.param(64)
    elements = [x.at(position).load() for position in positions(i)]
    vector = UOp.vectorize(*elements)
    target = UOp(Ops.INDEX, vector.dtype, (out, i * len(elements)), False)
    kernel = k.kernel(target.store(vector, i))
    after = devectorize(kernel.sink, capability(lanes))
    check(kernel, after)
    return only(after, Ops.STORE).src[1]


def test_neighbours_are_one_load() -> None:
    value = grouped(lambda i: [i * 8 + lane for lane in range(8)])
    assert value.op is Ops.LOAD
    assert value.dtype is dtypes.float32.vec(8)


def test_reversed_neighbours_are_a_load_and_a_shuffle() -> None:
    value = grouped(lambda i: [i * 8 + (7 - lane) for lane in range(8)])
    assert value.op is Ops.GEP
    assert value.arg == (7, 6, 5, 4, 3, 2, 1, 0)
    assert value.src[0].op is Ops.LOAD


def test_two_runs_are_joined() -> None:
    value = grouped(lambda i: [i * 4 + lane + 20 * (lane // 4) for lane in range(8)])
    assert value.op is Ops.CAT
    assert [part.op for part in value.src] == [Ops.LOAD, Ops.LOAD]


def test_runs_of_one_element_are_broadcasts() -> None:
    value = grouped(lambda i: [i + lane // 4 for lane in range(8)])
    assert value.op is Ops.CAT
    assert [len(set(part.src)) for part in value.src] == [1, 1]


def test_strided_elements_stay_scalar() -> None:
    assert grouped(lambda i: [i + lane * 3 for lane in range(4)]).op is Ops.VECTORIZE


def test_elements_under_different_gates_stay_scalar() -> None:
    k = Builder()
    i = k.loop(4)
    out, x = k.param(16), k.param(16)
    elements = [
        x.at(i * 4 + lane, gate=i + lane < 5).load(UOp.const(dtypes.float32, 0.0))
        for lane in range(4)
    ]
    target = UOp(Ops.INDEX, dtypes.float32.vec(4), (out, i * 4), False)
    kernel = k.kernel(target.store(UOp.vectorize(*elements), i))
    after = devectorize(kernel.sink, capability())
    check(kernel, after)
    assert len(nodes(after, Ops.LOAD)) == 4


def test_elements_of_different_buffers_stay_scalar() -> None:
    k = Builder()
    i = k.loop(4)
    out, x, y = k.param(8), k.param(8), k.param(8)
    vector = UOp.vectorize(x.at(i).load(), y.at(i + 1).load())
    kernel = k.kernel(UOp(Ops.INDEX, vector.dtype, (out, i * 2), False).store(vector, i))
    after = devectorize(kernel.sink, capability())
    check(kernel, after)
    assert len(nodes(after, Ops.LOAD)) == 2


def loaded(kernel: Kernel, opts: str, lanes: int = 8) -> UOp:
    return add_loads(remove_reduce(upto(kernel, opts, lanes)))


def test_wide_vectors_are_cut() -> None:
    """Eight lanes on a target with two: four loads, four sums, four stores"""
    kernel = kernels.elementwise(3, 16)
    after = devectorize(loaded(kernel, "UPCAST(1, 8)"), capability(2))
    check(kernel, after)
    assert len(nodes(after, Ops.STORE)) == 4
    assert max(node.dtype.count for node in toposort(after)) == 2


def test_target_without_vector_arithmetic() -> None:
    kernel = kernels.elementwise(3, 16)
    after = devectorize(loaded(kernel, "UPCAST(1, 8)"), capability(8, vector_alu=False))
    check(kernel, after)
    assert [node.dtype.count for node in nodes(after, Ops.LOAD)] == [8, 8]
    assert all(node.dtype.count == 1 for node in toposort(after) if node.op in GroupOp.ALU)


def test_native_vectors_are_left_alone() -> None:
    sink = loaded(kernels.elementwise(3, 16), "UPCAST(1, 8)")
    assert devectorize(sink, capability(8)) is sink


TARGETS = {
    "4 lanes": capability(4),
    "2 lanes": capability(2),
    "scalar": capability(1),
    "8 lanes of memory": capability(8, vector_alu=False),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "opts"),
    [
        ("matmul 8x16x12", "UPCAST(1, 16); UPCAST(0, 4)"),
        ("row sum 3x64", "UPCAST(1, 32)"),
        ("column max uint8 8x32", "UPCAST(0, 32)"),
        ("compared 16", "UPCAST(0, 8)"),
        ("lower triangle 16", "UPCAST(1, 16)"),
        ("counting 24", "UPCAST(0, 8)"),
        ("softmax 3x16", "UPCAST(4, 16); UPCAST(3, 8); UPCAST(2, 16); UPCAST(1, 8)"),
        ("flipped 16", "UPCAST(0, 8)"),
        ("padded 16", "UPCAST(0, 8)"),
    ],
)
def test_cut_kernels_keep_their_values(name: str, opts: str, target: str) -> None:
    kernel = CASES[name]()
    after = devectorize(loaded(kernel, opts), TARGETS[target])
    check(kernel, after)
    for load in nodes(after, Ops.LOAD):
        if load.src[1].src[0].dtype.addrspace is not AddrSpace.REG:
            assert load.dtype.count in TARGETS[target].widths(load.dtype.scalar)


def test_no_loop_type_but_loops_is_left() -> None:
    after = loaded(kernels.matmul(8, 16, 12), "UPCAST(1, 16); UPCAST(0, 4); UNROLL(2, 3)")
    types = {node.arg[1] for node in nodes(after, Ops.RANGE)}
    assert types == {AxisType.LOOP, AxisType.REDUCE}
