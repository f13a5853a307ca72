"""The interpreter on tensor graphs, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from morok.ir.interpret import interpret_tensor

F32, I32 = dtypes.float32, dtypes.int32


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 3, 4)).astype(np.float32)


def buffer_of(array, dtype=F32):
    buffer = UOp.new_buffer(dtype, array.size)
    return buffer, buffer.reshape(array.shape)


def run(node, **inputs):
    return interpret_tensor(node, inputs)


def test_movement(x):
    buffer, t = buffer_of(x)
    cases = {
        t.permute((2, 0, 1)): x.transpose(2, 0, 1),
        t.reshape((4, 6)): x.reshape(4, 6),
        t.flip((True, False, True)): x[::-1, :, ::-1],
        t.pad((1, 0, 2), (0, 1, 0)): np.pad(x, ((1, 0), (0, 1), (2, 0))),
        t.shrink((0, 1, 1), (1, 3, 4)): x[0:1, 1:3, 1:4],
        t.reshape((1, 24)).expand((3, 24)): np.broadcast_to(x.reshape(1, 24), (3, 24)),
        t.permute((1, 0, 2)).reshape((3, 8)).shrink((0, 2), (3, 7)).flip((False, True)): (
            x.transpose(1, 0, 2).reshape(3, 8)[:, 2:7][:, ::-1]
        ),
    }
    for node, expected in cases.items():
        np.testing.assert_array_equal(interpret_tensor(node, {buffer: x}), expected)


def test_elementwise_with_scalars_and_where(x):
    buffer, t = buffer_of(x)
    node = (t * 2.0 > 0.5).where(t.sqrt(), t - 1.0)
    found = interpret_tensor(node, {buffer: x})
    with np.errstate(invalid="ignore"):
        expected = np.where(x * 2 > 0.5, np.sqrt(x), x - np.float32(1))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float32


def test_reductions(x):
    buffer, t = buffer_of(x)
    for op, function in {
        ReduceOp.ADD: np.sum,
        ReduceOp.MUL: np.prod,
        ReduceOp.MAX: np.max,
        ReduceOp.MIN: np.min,
    }.items():
        found = interpret_tensor(t.reduce_axis(op, (0, 2)), {buffer: x})
        expected = function(x.astype(np.float64), axis=(0, 2)).astype(np.float32)
        np.testing.assert_array_equal(found, expected)


def test_matrix_product(rng):
    a = rng.standard_normal((3, 5)).astype(np.float32)
    b = rng.standard_normal((5, 4)).astype(np.float32)
    (ba, ta), (bb, tb) = buffer_of(a), buffer_of(b)
    left = ta.reshape((3, 1, 5)).expand((3, 4, 5))
    right = tb.permute((1, 0)).reshape((1, 4, 5)).expand((3, 4, 5))
    node = (left * right).reduce_axis(ReduceOp.ADD, (2,))
    np.testing.assert_allclose(interpret_tensor(node, {ba: a, bb: b}), a @ b, rtol=1e-6)


def test_identities_and_bitcast(x):
    buffer, t = buffer_of(x)
    node = t.detach(1).contiguous().contiguous_backward().copy_to("CPU:1").bitcast(I32)
    np.testing.assert_array_equal(interpret_tensor(node, {buffer: x}), x.view(np.int32))


def test_halves_round_at_borders_only():
    values = np.array([60000.0, 2.0**-24], np.float16)
    buffer = UOp.new_buffer(dtypes.float16, 2)
    doubled = buffer + buffer
    found = interpret_tensor(doubled, {buffer: values})
    assert found.dtype == np.float16
    assert found.tolist() == [np.inf, 2.0**-23]
    halved = interpret_tensor(doubled * 0.5, {buffer: values})
    assert halved.tolist() == values.tolist()  # no rounding in between
    rounded = doubled.contiguous() * 0.5
    assert interpret_tensor(rounded, {buffer: values}).tolist()[0] == np.inf


def test_bfloat16_comes_as_float32_values():
    buffer = UOp.new_buffer(dtypes.bfloat16, 2)
    found = interpret_tensor(buffer * 3.0, {buffer: np.array([1.0, 1.0078125], np.float32)})
    assert found.dtype == np.float32
    assert found.tolist() == [3.0, 3.03125]  # half way: to even


# Ranged values -----------------------------------------------------------------------------------


def test_bufferized_ranges():
    r = UOp.range(5, 0)
    ramp = r.cast(I32).bufferize(r)
    assert interpret_tensor(ramp).tolist() == [0, 1, 2, 3, 4]
    assert interpret_tensor((ramp * ramp).flip((True,))).tolist() == [16, 9, 4, 1, 0]
    one = UOp.const(dtypes.index, 0)
    row = UOp(Ops.BUFFERIZE, I32, (r.cast(I32), one, r), ramp.arg)
    assert interpret_tensor(row).tolist() == [[0, 1, 2, 3, 4]]
    s = UOp.range(2, 1)
    grid = (r * 10 + s).cast(I32).bufferize(s, r)
    assert interpret_tensor(grid).tolist() == [[0, 10, 20, 30, 40], [1, 11, 21, 31, 41]]


def test_index_of_tensors_and_of_bufferized_values(x):
    buffer, t = buffer_of(x)
    i, j, k = (UOp.range(size, number) for number, size in enumerate(x.shape))
    turned = t[i, j, k].bufferize(k, i, j)
    np.testing.assert_array_equal(interpret_tensor(turned, {buffer: x}), x.transpose(2, 0, 1))
    through = turned[k, i, j].reduce(ReduceOp.ADD, k).bufferize(j, i)
    expected = x.astype(np.float64).sum(2).T.astype(np.float32)
    np.testing.assert_array_equal(interpret_tensor(through, {buffer: x}), expected)
    rows = t[1].pad((0, 0), (0, 1))
    expected = np.pad(x[1], ((0, 0), (0, 1)))
    np.testing.assert_array_equal(interpret_tensor(rows, {buffer: x}), expected)


def test_an_invalid_index_reads_zero():
    values = np.arange(1, 5, dtype=np.float32)
    buffer = UOp.new_buffer(F32, 4)
    r = UOp.range(6, 0)
    inside = (r >= 1) & (r < 5)
    place = inside.where(r - 1, UOp.invalid()) + 0
    padded = buffer[place].bufferize(r)
    assert interpret_tensor(padded, {buffer: values}).tolist() == [0, 1, 2, 3, 4, 0]


# Memory ------------------------------------------------------------------------------------------


def test_writes_are_seen_by_what_comes_after_them_only():
    values = np.arange(6, dtype=np.float32)
    buffer, t = buffer_of(values.reshape(2, 3))
    left = t.shrink((0, 0), (2, 2))
    right = t.shrink((0, 1), (2, 3))
    write = right.store(left * 10.0)  # overlapping: reads see the old contents
    old, new = interpret_tensor(UOp.new_sink(t + 0.0, t.after(write)), {buffer: values})
    np.testing.assert_array_equal(old, values.reshape(2, 3))
    np.testing.assert_array_equal(new, [[0, 0, 10], [3, 30, 40]])


def test_writes_in_order_and_swaps():
    a, b = UOp.new_buffer(F32, 2), UOp.new_buffer(F32, 2)
    inputs = {a: np.array([1, 2], np.float32), b: np.array([3, 4], np.float32)}
    swapped = UOp.new_sink(a.after(a.store(b)), b.after(b.store(a)))
    first, second = interpret_tensor(swapped, inputs)
    assert (first.tolist(), second.tolist()) == ([3, 4], [1, 2])
    once = a.after(a.store(a + 1.0))
    twice = once.after(once.store(once * 10.0))
    assert interpret_tensor(twice, inputs).tolist() == [20, 30]
    part = once.shrink((1,), (2,))
    assert interpret_tensor(once.after(part.store(0.0)), inputs).tolist() == [2, 0]
    assert inputs[a].tolist() == [1, 2]


def test_buffer_views():
    buffer = UOp.new_buffer(F32, 6)
    view = buffer.buffer_view(3, 2)
    values = np.arange(6, dtype=np.float32)
    assert interpret_tensor(view * 2.0, {buffer: values}).tolist() == [4, 6, 8]
    written = buffer.after(view.store(-view))
    assert interpret_tensor(written, {buffer: values}).tolist() == [0, 1, -2, -3, -4, 5]


# Calls and variables -----------------------------------------------------------------------------


def test_calls_of_functions():
    p, q = UOp.param(0, F32, 3), UOp.param(1, F32, 3)
    function = UOp.new_tuple(p + q, p < q).function(p, q)
    a, b = UOp.new_buffer(F32, 3), UOp.new_buffer(F32, 3)
    inputs = {a: np.array([1, 5, 3], np.float32), b: np.array([2, 2, 2], np.float32)}
    call = function.call(a, b * 2.0)
    assert interpret_tensor(call.get_tuple(0), inputs).tolist() == [5, 9, 7]
    assert interpret_tensor(call.get_tuple(1), inputs).tolist() == [True, False, True]
    assert interpret_tensor((p * p).call(a), inputs).tolist() == [1, 25, 9]


def test_calls_of_kernels():
    i = UOp.range(4, 0, AxisType.GLOBAL, renumbered=True)
    out, source = UOp.param(0, F32.ptr(), 4), UOp.param(1, F32.ptr(), 4)
    kernel = UOp.new_sink(out[i].store(source[i] * 2.0, i), info=KernelInfo("double"))
    a, b, c = (UOp.new_buffer(F32, 4) for _ in range(3))
    middle = b.after(kernel.call(b, a))
    last = c.after(kernel.call(c, middle))
    inputs = {buffer: np.zeros(4, np.float32) for buffer in (b, c)}
    inputs[a] = np.arange(4, dtype=np.float32)
    assert interpret_tensor(last.reshape((2, 2)), inputs).tolist() == [[0, 4], [8, 12]]


def test_variables():
    n = UOp.define_var("n", 1, 8)
    buffer = UOp.new_buffer(I32, 4)
    node = buffer + n.bind(3).cast(I32)
    assert interpret_tensor(node, {buffer: np.zeros(4, np.int32)}).tolist() == [3] * 4
    free = n.cast(I32)
    assert interpret_tensor(free, {}, {"n": 5}) == 5
    r = UOp.range(n, 0)
    assert interpret_tensor(r.reduce(ReduceOp.ADD, r).cast(I32), {}, {"n": 5}) == 10
    for wrong in ({}, {"n": 9}):
        with pytest.raises(InvalidGraphError, match=r"value of n within 1\.\.8"):
            interpret_tensor(free, {}, wrong)


# Refusals ----------------------------------------------------------------------------------------


def test_what_has_no_value_is_refused():
    buffer = UOp.new_buffer(F32, 4)
    four = np.zeros(4, np.float32)
    with pytest.raises(InvalidGraphError, match="an array for this memory"):
        interpret_tensor(buffer + 1.0)
    with pytest.raises(InvalidGraphError, match="4 elements, got 3"):
        interpret_tensor(buffer, {buffer: np.zeros(3)})
    r = UOp.range(5, 0)
    with pytest.raises(InvalidGraphError, match=r"within 0\.\.3, got 4"):
        interpret_tensor(buffer[r].bufferize(r), {buffer: four})
    with pytest.raises(InvalidGraphError, match="no open range"):
        interpret_tensor(r.cast(F32))
    computed = buffer + 1.0
    with pytest.raises(InvalidGraphError, match="a view of memory, got ADD"):
        interpret_tensor(buffer.after(computed.store(0.0)), {buffer: four})
    with pytest.raises(InvalidGraphError, match="meaning on plain arrays"):
        interpret_tensor(UOp(Ops.CUSTOM_I, F32, (), "x"))


def test_a_deep_graph_is_evaluated_without_recursion():
    buffer = UOp.new_buffer(I32, 1)
    node = buffer
    for _ in range(20_000):
        node = node + 1
    assert interpret_tensor(node, {buffer: np.zeros(1, np.int32)}).tolist() == [20_000]
