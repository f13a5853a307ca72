"""Stages 15 and 16: index arithmetic in int32 or int64."""

from __future__ import annotations

import pytest

from morok._core import toposort
from morok.codegen.devectorizer import add_loads, devectorize, remove_reduce
from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.codegen.lower_index import lower_index_dtype, post_index_symbolic
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import KernelInfo, Ops, UOp
from tests.codegen import kernels
from tests.codegen.kernels import CASES, Builder, capability, check, nodes, only

BIG = 1 << 20


def lowered(value: UOp) -> UOp:
    """An index expression, lowered: what STORE's address has."""
    out = UOp.param(0, dtypes.float32.ptr(), 1 << 45)
    ranges = value.open_ranges
    sink = UOp(Ops.SINK, dtypes.void, (out.at(value).store(1.0, *ranges),), KernelInfo())
    after = lower_index_dtype(sink)
    assert not [node for node in toposort(after) if node.dtype.scalar is dtypes.index]
    return only(after, Ops.STORE).src[0].src[1]


def loop(end: int, number: int = 0) -> UOp:
    return UOp.range(end, number, renumbered=True)


def test_small_positions_are_int32() -> None:
    value = lowered(loop(100) * 50 + loop(50, 1))
    assert value.dtype is dtypes.int32
    assert {node.dtype for node in toposort(value)} == {dtypes.int32}


def test_large_positions_are_int64_and_their_small_parts_are_cast() -> None:
    row = loop(BIG)
    value = lowered(row * BIG + loop(50, 1))
    assert value.dtype is dtypes.int64
    assert only(value, Ops.RANGE, lambda node: node.vmax == BIG - 1).dtype is dtypes.int32
    assert len(nodes(value, Ops.CAST)) == 2
    assert only(value, Ops.CONST, lambda node: node.dtype is dtypes.int64).arg == BIG


@pytest.mark.parametrize(("last", "dtype"), [((1 << 31) - 1, "int32"), (1 << 31, "int64")])
def test_the_border_between_the_widths(last: int, dtype: str) -> None:
    assert lowered(loop(2) * last).dtype.name == dtype


def test_loop_of_more_than_int32() -> None:
    value = lowered(loop(1 << 40))
    assert value.dtype is dtypes.int64
    assert value.src[0].dtype is dtypes.int64


def test_quotient_of_a_large_number_is_computed_in_int64() -> None:
    value = lowered((loop(BIG) * BIG) // (1 << 30))
    assert value.dtype is dtypes.int64


def test_floor_division_of_what_is_not_negative_truncates() -> None:
    value = lowered(loop(100) // 7 * 7 + (loop(100) + 3) % 5)
    assert not nodes(value, Ops.FLOORDIV)
    assert not nodes(value, Ops.FLOORMOD)
    assert nodes(value, Ops.IDIV)
    assert nodes(value, Ops.MOD)


def test_floor_division_of_what_may_be_negative_stays() -> None:
    assert nodes(lowered((loop(100) + -3) // 7 + 1), Ops.FLOORDIV)


def test_division_by_what_may_be_negative_stays() -> None:
    divisor = UOp.define_var("d", -4, 4)
    assert nodes(lowered(loop(100) // divisor), Ops.FLOORDIV)


def test_comparison_of_different_widths() -> None:
    out = UOp.param(0, dtypes.float32.ptr(), 1 << 45)
    i = loop(BIG)
    gate = i * BIG < UOp.define_var("n", 0, 100)
    store = out.at(i, gate=gate).store(1.0, i)
    after = lower_index_dtype(UOp(Ops.SINK, dtypes.void, (store,), KernelInfo()))
    less = only(after, Ops.LT)
    assert [source.dtype for source in less.src] == [dtypes.int64, dtypes.int64]


def test_variables_have_the_width_of_their_bounds() -> None:
    assert lowered(UOp.define_var("n", 0, 100)).dtype is dtypes.int32
    assert lowered(UOp.define_var("n", 0, 1 << 40)).dtype is dtypes.int64


def test_index_of_a_loaded_int() -> None:
    """int64 ids have no bounds: they stay; int32 ids need no cast at all"""
    for dtype, count in ((dtypes.int64, 0), (dtypes.int32, 0), (dtypes.uint8, 1)):
        ids = UOp.param(1, dtype.ptr(), 4)
        read = ids.at(loop(4)).load()
        value = lowered(read.cast(dtypes.index))
        assert len(nodes(value, Ops.CAST)) == count


def test_value_made_of_a_position() -> None:
    """CAST(index) of the same width disappears, of another is an ordinary cast"""
    kernel = kernels.counting(5)
    after = lower_index_dtype(add_loads(kernel.sink))
    check(kernel, after)
    assert {node.dtype for node in nodes(after, Ops.CAST)} == {dtypes.float32}


def test_vectors_of_positions() -> None:
    kernel = kernels.counting(24)
    sink = expander(post_opt_symbolic(kernels.opted(kernel, "UPCAST(0, 8)")), capability())
    after = lower_index_dtype(sink)
    check(kernel, after)
    assert only(after, Ops.VCONST, lambda node: node.arg[0] == 0).dtype is dtypes.int32.vec(8)
    assert not [node for node in toposort(after) if node.dtype.scalar is dtypes.index]


def test_invalid_index_of_a_load_becomes_a_gate_with_an_alternative() -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(4)
    index = (i < 4).where(i, UOp.invalid())
    after = lower_index_dtype(k.kernel(out.at(i).store(x.at(index).load(), i)).sink)
    load = only(after, Ops.LOAD)
    assert load.src[1].arg is True
    assert load.src[2] is UOp.const(dtypes.float32, 0.0)


def test_gate_that_is_true_takes_the_alternative_along() -> None:
    k = Builder()
    i = k.loop(8)
    out, x = k.param(8), k.param(8)
    gate = UOp.const(dtypes.bool, True)
    load = x.at(i, gate=gate).load(UOp.const(dtypes.float32, 0.0))
    after = lower_index_dtype(k.kernel(out.at(i).store(load, i)).sink)
    assert len(only(after, Ops.LOAD).src) == 2


def test_invalid_elsewhere_is_refused() -> None:
    i = loop(8)
    with pytest.raises(InvalidGraphError, match="Invalid"):
        lowered((i < 4).where(i, UOp.invalid()) + 1)


@pytest.mark.parametrize("name", CASES)
def test_all_stages_keep_the_values(name: str) -> None:
    kernel = CASES[name]()
    sink = add_loads(remove_reduce(add_local_buffers(post_opt_symbolic(kernel.sink))))
    after = post_index_symbolic(lower_index_dtype(devectorize(sink, capability())))
    check(kernel, after)
    assert not [node for node in toposort(after) if node.dtype.scalar is dtypes.index]
