"""Stage 1, movement through indices, and stage 3, loops in parts."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok import Tensor, dtypes
from morok.engine import Normal, sink_of
from morok.ir import AxisId, AxisType, GroupOp, Ops, UOp, graph_rewrite
from morok.ir.interpret import interpret_kernel, interpret_tensor
from morok.rangeify import (
    early_movement_ops,
    movement_op_patterns,
    pm_syntactic_sugar,
    split_ranges,
)
from tests.rangeify.scheduling import schedule_of

_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD)


def _index(i: int) -> UOp:
    return UOp.const(dtypes.index, i)


def _memory(*shape: int) -> UOp:
    p = UOp(Ops.PARAM, dtypes.int32, (UOp.new_device(),), (0, prod(shape)))
    return UOp(Ops.RESHAPE, dtypes.int32, (p, UOp.shape_const(shape)))


def _at(x: UOp, *index: UOp) -> UOp:
    return UOp(Ops.INDEX, x.dtype, (x, *index), False)


# ---- stage 1 -------------------------------------------------------------------------------------


def test_the_same_index_twice_is_one() -> None:
    rules = movement_op_patterns() + pm_syntactic_sugar
    pointer = dtypes.int32.ptr()
    param = UOp(Ops.PARAM, pointer, (), (0, 8))
    address = UOp(Ops.INDEX, pointer, (param, _index(3)), False)
    assert graph_rewrite(_at(address, _index(3)), rules) is _at(param, _index(3))
    row = _at(_memory(4, 4), _index(3))
    assert row.shape == (4,)
    assert graph_rewrite(_at(row, _index(3)), rules) is _at(_memory(4, 4).src[0], _index(15))


def test_an_index_of_an_address_is_two_of_the_pointer() -> None:
    pointer = dtypes.int32.ptr()
    local = UOp(Ops.DEFINE_LOCAL, pointer, (), (0, 8))
    address = UOp(Ops.INDEX, pointer, (local, _index(3)), False)
    assert graph_rewrite(_at(address, _index(2)), pm_syntactic_sugar) is _at(
        local, _index(3), _index(2)
    )


def test_rows_of_rows_are_elements_and_both_gates_hold() -> None:
    x = _memory(2, 3, 4)
    data = np.arange(24)
    for gates in ((None, None), (True, None), (None, False), (True, True), (False, True)):
        conditions = [None if g is None else UOp.const(dtypes.bool, g) for g in gates]
        row = x.at(_index(1), gate=conditions[0])
        element = row.at(_index(2), _index(3), gate=conditions[1])
        flat = graph_rewrite(element, movement_op_patterns() + pm_syntactic_sugar)
        assert flat.src[0].op is Ops.PARAM
        want = 0 if False in gates else data[1 * 12 + 2 * 4 + 3]
        assert interpret_tensor(flat, {x.src[0]: data}) == want


def test_after_stage_1_no_element_is_read_through_a_movement_op() -> None:
    table, rows = Tensor(np.arange(12).reshape(3, 4)), Tensor(np.array([2, 0, 2]))
    t = table.T.flip(0).pad(((1, 1), (0, 0)))[rows]
    graph = Normal(sink_of([t.uop])).graph
    reads = [u for u in graph.toposort() if u.op is Ops.INDEX]
    assert any(read.src[0].op in GroupOp.Movement for read in reads)
    reads = [u for u in early_movement_ops(graph).toposort() if u.op is Ops.INDEX]
    assert reads
    assert not any(read.src[0].op in GroupOp.Movement for read in reads)
    framed = np.pad(np.arange(12).reshape(3, 4).T[::-1], ((1, 1), (0, 0)))
    np.testing.assert_array_equal(t.numpy(), framed[[2, 0, 2]])


def test_what_a_gate_hides_is_zero_and_not_a_function_of_zero() -> None:
    x, rows = np.arange(6.0, dtype=np.float32).reshape(3, 2), np.array([4, 0, 1, 3, 2])
    t = (Tensor(x) + 1).exp().pad(((1, 1), (0, 0)))[Tensor(rows)]
    np.testing.assert_allclose(t.numpy(), np.pad(np.exp(x + 1), ((1, 1), (0, 0)))[rows], rtol=1e-6)


# ---- stage 3 -------------------------------------------------------------------------------------


def _copied(end: int, index: object, size: int) -> UOp:
    """A kernel that reads `index(loop)` of a memory of `size` elements into each place."""
    assert callable(index)
    loop = UOp.range(end, 0)
    source, target = (
        UOp(Ops.PARAM, dtypes.int32.ptr(), (), (slot, n)) for slot, n in enumerate((size, end))
    )
    store = UOp(
        Ops.STORE,
        dtypes.void,
        (
            UOp(Ops.INDEX, dtypes.int32, (target, loop), False),
            UOp(Ops.INDEX, dtypes.int32, (source, index(loop)), False),
            loop,
        ),
    )
    return UOp(Ops.SINK, dtypes.void, (store,))


def _loops(sink: UOp) -> list[int]:
    loops = [u for u in sink.toposort() if u.op is Ops.RANGE]
    return [u.src[0].arg for u in sorted(loops, key=lambda u: u.arg[0].number)]


def _divided(sink: UOp) -> list[UOp]:
    """Counters divided by a divisor of their end."""
    return [
        u
        for u in sink.toposort()
        if u.op in _DIVISIONS
        and u.src[0].op is Ops.RANGE
        and u.src[1].op is Ops.CONST
        and u.src[0].src[0].arg % u.src[1].arg == 0
    ]


@pytest.mark.parametrize(
    ("end", "index", "loops"),
    [
        (12, lambda r: r % 4, [3, 4]),
        (12, lambda r: r // 4, [3, 4]),
        (12, lambda r: (r % 4) * 3 + r // 4, [3, 4]),
        (24, lambda r: (r % 4) * 6 + (r // 4 % 2) * 3 + r // 8, [3, 2, 4]),
        (13, lambda r: r % 4, [13]),
        (12, lambda r: r % 5, [12]),
        (12, lambda r: r + 0, [12]),
    ],
)
def test_a_loop_is_split_where_its_end_is_divided(
    end: int, index: object, loops: list[int]
) -> None:
    sink = _copied(end, index, end)
    split = split_ranges(sink)
    assert _loops(split) == loops
    assert not _divided(split)
    data = np.arange(end, dtype=np.int32) * 7
    for kernel in (sink, split):
        got = interpret_kernel(kernel, [data.copy(), np.zeros(end, np.int32)])[1]
        assert callable(index)
        np.testing.assert_array_equal(got, [data[index(r)] for r in range(end)])


@st.composite
def _factors(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    dims = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6]), min_size=2, max_size=4))
    return dims, draw(st.permutations(range(len(dims))))


@settings(deadline=None, max_examples=60)
@given(_factors(), _factors())
def test_no_loop_is_divided_by_a_divisor_of_its_end(
    one: tuple[list[int], list[int]], two: tuple[list[int], list[int]]
) -> None:
    """Rows in another order, and in yet another: whatever the strides, the loops are walked in
    parts."""
    (dims, order), (again, other) = one, two
    size = prod(dims) * prod(again)
    x = np.arange(size)

    def moved(t: Tensor) -> Tensor:
        t = t.reshape(*dims, prod(again)).permute(*order, len(dims))
        return t.reshape(prod(dims), *again).permute(0, *(1 + a for a in other)).reshape(size)

    t = moved(Tensor(x))
    for call in schedule_of(t + 1).calls:
        assert not _divided(call.src[0])
    want = x.reshape(*dims, prod(again)).transpose(*order, len(dims)).reshape(prod(dims), *again)
    want = want.transpose(0, *(1 + a for a in other)).reshape(size)
    np.testing.assert_array_equal(t.numpy(), want)


def test_the_loops_of_a_write_that_sees_earlier_ones_stay_whole() -> None:
    memory = UOp(Ops.PARAM, dtypes.int32.ptr(), (), (0, 13))
    loop = UOp(Ops.RANGE, dtypes.index, (_index(12),), (AxisId(0), AxisType.LOOP))
    earlier = UOp(Ops.INDEX, dtypes.int32, (memory.after(loop), loop % 4), False)
    target = UOp(Ops.INDEX, dtypes.int32, (memory.after(loop), loop + 1), False)
    store = UOp(Ops.STORE, dtypes.void, (target, earlier + 1, loop))
    assert _loops(split_ranges(UOp(Ops.SINK, dtypes.void, (store,)))) == [12]
