"""The interpreter on ranged kernels, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import AddrSpace, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from morok.ir.interpret import interpret_kernel, interpret_program

F32, I32, IDX = dtypes.float32, dtypes.int32, dtypes.index


def loop(size, number, kind=AxisType.LOOP):
    return UOp.range(size, number, kind, renumbered=True)


def param(slot, size, dtype=F32):
    return UOp.param(slot, dtype.ptr(), size)


def kernel(*statements):
    return UOp.new_sink(*statements, info=KernelInfo("k"))


def zeros(size, dtype=np.float32):
    return np.zeros(size, dtype)


def product(m, n, k):
    """C[i, j] = sum over k of A[i, k] * B[k, j]"""
    i, j, r = loop(m, 0), loop(n, 1), loop(k, 2, AxisType.REDUCE)
    out, a, b = param(0, m * n), param(1, m * k), param(2, k * n)
    value = (a[i * k + r] * b[r * n + j]).reduce(ReduceOp.ADD, r)
    return out, i, j, value


def test_matrix_product_leaves_its_inputs_alone(rng):
    a = rng.standard_normal((3, 5)).astype(np.float32)
    b = rng.standard_normal((5, 4)).astype(np.float32)
    out, i, j, value = product(3, 4, 5)
    sink = kernel(out[i * 4 + j].store(value, i, j))
    before = zeros(12)
    found, same_a, _ = interpret_kernel(sink, [before, a, b])
    np.testing.assert_allclose(found.reshape(3, 4), a @ b, rtol=1e-6)
    np.testing.assert_array_equal(same_a, a.ravel())
    assert not before.any()
    program = UOp.program(sink, UOp.new_device())
    np.testing.assert_array_equal(interpret_program(program, [before, a, b])[0], found)


def test_nested_reductions_and_reductions_that_ignore_their_range():
    i, j = loop(3, 0, AxisType.REDUCE), loop(4, 1, AxisType.REDUCE)
    inner = (i * 10 + j).cast(I32).reduce(ReduceOp.MAX, j)
    total = inner.reduce(ReduceOp.ADD, i)
    count = UOp.const(I32, 1).reduce(ReduceOp.ADD, i, j)
    sink = kernel(param(0, 2, I32)[0].store(total), param(0, 2, I32)[1].store(count))
    assert interpret_kernel(sink, [zeros(2, np.int32)])[0].tolist() == [39, 12]


def test_gated_reads_and_writes(rng):
    x = rng.standard_normal(6).astype(np.float32)
    i = loop(8, 0)
    read = param(1, 6).at(i - 1, gate=(i >= 1) & (i < 7))
    padded = kernel(param(0, 8)[i].store(read, i))
    assert interpret_kernel(padded, [zeros(8), x])[0].tolist() == [0, *x.tolist(), 0]
    loaded = kernel(param(0, 8)[i].store(read.load(UOp.const(F32, 7.0)), i))
    assert interpret_kernel(loaded, [zeros(8), x])[0].tolist() == [7, *x.tolist(), 7]
    some = kernel(param(0, 4).at(i, gate=i < 3).store(param(1, 6).at(i, gate=i < 6), i))
    assert interpret_kernel(some, [zeros(4) + 9, x])[0].tolist() == [*x[:3].tolist(), 9]


def softmax(inplace):
    rows, columns = 3, 6
    out, x = param(0, 18), param(1, 18)
    r = loop(rows, 0)
    top, fill, add, last = (
        loop(columns, n, kind) for n, kind in enumerate((AxisType.REDUCE, AxisType.LOOP) * 2, 1)
    )
    largest = x[r * columns + top].reduce(ReduceOp.MAX, top)
    value = (x[r * columns + fill] - largest).exp()
    if inplace:
        row, start = out.after(out[r * columns + fill].store(value, fill)), r * columns
    else:
        row, start = value.bufferize(fill, addrspace=AddrSpace.LOCAL), UOp.const(IDX, 0)
    total = row[start + add].reduce(ReduceOp.ADD, add)
    return kernel(out[r * columns + last].store(row[start + last] / total, r, last))


@pytest.mark.parametrize("inplace", [False, True], ids=["local row", "row in the output"])
def test_softmax(inplace, rng):
    x = rng.standard_normal((3, 6)).astype(np.float32)
    exponentials = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    expected = exponentials / exponentials.sum(1, keepdims=True)
    found = interpret_kernel(softmax(inplace), [zeros(18), x])[0]
    np.testing.assert_allclose(found.reshape(3, 6), expected, rtol=1e-6)


def test_statements_that_share_a_loop(rng):
    x = rng.standard_normal(8).astype(np.float32)
    k, i = loop(8, 1, AxisType.REDUCE), loop(8, 0)
    mean = param(1, 8)[k].reduce(ReduceOp.ADD, k) * 0.125
    centred = param(0, 8)[i].store(param(1, 8)[i] - mean, i)
    squares = param(2, 1)[0].store(param(1, 8)[k].square().reduce(ReduceOp.ADD, k))
    a, _, b = interpret_kernel(kernel(centred, squares), [zeros(8), x, zeros(1)])
    np.testing.assert_allclose(a, x - x.mean(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(b, [(x.astype(np.float64) ** 2).sum()], rtol=1e-6)


def test_reads_without_after_see_the_memory_as_it_was():
    i = loop(3, 0)
    p, q = param(0, 3), param(1, 3)
    sink = kernel(p[i].store(p[i] + 1.0, i), q[i].store(p[i], i))
    a, b = interpret_kernel(sink, [np.array([1, 2, 3], np.float32), zeros(3)])
    assert (a.tolist(), b.tolist()) == ([2, 3, 4], [1, 2, 3])
    first = p[i].store(p[i] + 1.0, i)
    j = loop(3, 1)
    sink = kernel(q[j].store(p.after(first)[j], j))
    _, b = interpret_kernel(sink, [np.array([1, 2, 3], np.float32), zeros(3)])
    assert b.tolist() == [2, 3, 4]


def test_of_writes_to_one_place_the_last_stays():
    i = loop(5, 0)
    place = (i // 2).cast(IDX)
    sink = kernel(param(0, 3, I32)[place].store(i.cast(I32), i))
    assert interpret_kernel(sink, [zeros(3, np.int32)])[0].tolist() == [1, 3, 4]


# Ordered loops -----------------------------------------------------------------------------------


def test_scan(rng):
    x = rng.standard_normal((2, 10)).astype(np.float32)
    out, source = param(0, 20), param(1, 20)
    row, i = loop(2, 0), loop(10, 1)
    before = out.after(i).at(row * 10 + i - 1, gate=i > 0)
    sink = kernel(out[row * 10 + i].store(before + source[row * 10 + i], row, i))
    found = interpret_kernel(sink, [zeros(20), x])[0].reshape(2, 10)
    np.testing.assert_allclose(found, np.cumsum(x.astype(np.float64), 1), rtol=1e-5)


def test_two_recurrences_in_one_loop():
    """Fibonacci numbers and their sums."""
    fib, sums = param(0, 10, I32), param(1, 10, I32)
    i = loop(10, 0)
    previous = fib.after(i).at(i - 1, gate=i > 0)
    older = fib.after(i).at(i - 2, gate=i > 1)
    value = (i < 2).where(UOp.const(I32, 1), previous + older)
    first = fib[i].store(value, i)
    total = sums.after(i).at(i - 1, gate=i > 0) + value
    sink = kernel(first, sums[i].store(total, i))
    a, b = interpret_kernel(sink, [zeros(10, np.int32), zeros(10, np.int32)])
    assert a.tolist() == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
    assert b.tolist() == np.cumsum(a).tolist()


def test_scatter_add():
    """Many indices may name one place: an ordered loop adds them all."""
    out, places = param(0, 4, I32), param(1, 6, I32)
    i = loop(6, 0)
    place = places[i].cast(IDX)
    sink = kernel(out[place].store(out.after(i)[place] + 1, i))
    at = np.array([1, 3, 1, 1, 0, 3], np.int32)
    assert interpret_kernel(sink, [zeros(4, np.int32), at])[0].tolist() == [1, 3, 0, 2]


def accumulated():
    """The matrix product after stage 11: a register instead of the REDUCE."""
    out, i, j, value = product(3, 4, 5)
    multiplied, k = value.src
    reg = UOp.define_reg(F32, 1, 0)
    init = reg.after(i, j)[0].store(0.0)
    now = reg.after(init, k)
    step = reg.after(init)[0].store(now[0].load() + multiplied)
    total = reg.after(step.close(k))[0].load()
    return kernel(out[i * 4 + j].store(total).close(i, j))


def test_registers_are_private_to_the_loops_around_them(rng):
    a = rng.standard_normal((3, 5)).astype(np.float32)
    b = rng.standard_normal((5, 4)).astype(np.float32)
    found = interpret_kernel(accumulated(), [zeros(12), a, b])[0]
    np.testing.assert_allclose(found.reshape(3, 4), a @ b, rtol=1e-5)


def test_unwritten_registers_are_not_zero():
    reg = UOp.define_reg(F32, 1, 0)
    sink = kernel(param(0, 1)[0].store(reg[0].load()))
    assert np.isnan(interpret_kernel(sink, [zeros(1)])[0]).all()


# Vectors -----------------------------------------------------------------------------------------


def test_vectors_load_compute_and_store():
    i = loop(2, 0)
    x = np.arange(8, dtype=np.float32)
    run = UOp(Ops.INDEX, F32.vec(4), (param(1, 8), i * 4), False).load()
    backward = run.gep([3, 2, 1, 0]) + UOp.vconst(F32, (0.0, 10.0, 20.0, 30.0))
    halves = UOp.cat(backward.gep([2, 3]), UOp.vectorize(backward.gep(0), backward.gep(1)))
    target = UOp(Ops.INDEX, F32.vec(4), (param(0, 8), i * 4), False)
    found = interpret_kernel(kernel(target.store(halves, i)), [zeros(8), x])[0]
    assert found.tolist() == [21, 30, 3, 12, 25, 34, 7, 16]


def test_vector_gates_and_gathers():
    lanes = UOp.vconst(IDX, (0, 2, 4, 6))
    gate = UOp.vconst(IDX, (0, 1, 2, 3)) < UOp.const(IDX.vec(4), 3)
    x = np.arange(6, dtype=np.float32) + 1
    read = param(1, 6).at(lanes, gate=gate)
    assert read.dtype is F32.vec(4)
    total = UOp(Ops.REDUCE, F32, (read,), ReduceOp.ADD)  # all lanes
    turned = param(0, 4).at(UOp.vconst(IDX, (3, 2, 1, 0)))
    sink = kernel(turned.store(read), param(2, 1)[0].store(total))
    a, _, b = interpret_kernel(sink, [zeros(4), x, zeros(1)])
    assert (a.tolist(), b.tolist()) == ([0, 5, 3, 1], [9])


def test_hardware_indices_are_parallel_loops():
    group, item = UOp.special("gidx0", 2), UOp.special("lidx0", 3)
    sink = kernel(param(0, 6, I32)[group * 3 + item].store((group * 10 + item).cast(I32)))
    assert interpret_kernel(sink, [zeros(6, np.int32)])[0].tolist() == [0, 1, 2, 10, 11, 12]


# Refusals ----------------------------------------------------------------------------------------


def test_out_of_bounds_is_refused():
    i = loop(5, 0)
    for bad in (
        kernel(param(0, 4)[i].store(1.0, i)),
        kernel(param(0, 8)[i].store(param(0, 8)[i - 1], i)),
    ):
        with pytest.raises(InvalidGraphError) as caught:
            interpret_kernel(bad, [zeros(bad.sources[0].index.buffer.size)])
        assert caught.value.rule == "index-bounds"


def test_loops_whose_length_varies_are_refused():
    i = loop(3, 0)
    j = UOp.range(i + 1, 1, AxisType.REDUCE, renumbered=True)
    sink = kernel(param(0, 3, I32)[i].store(j.cast(I32).reduce(ReduceOp.ADD, j), i))
    with pytest.raises(InvalidGraphError, match="no other loop changes"):
        interpret_kernel(sink, [zeros(3, np.int32)])
