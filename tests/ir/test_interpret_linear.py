"""The interpreter on LINEARs, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, Ops, UOp
from morok.ir.interpret import interpret_linear, interpret_program
from morok.ir.verify import Level, verify

F32, I32, VOID = dtypes.float32, dtypes.int32, dtypes.void


def loop(end, number, kind=AxisType.LOOP):
    return UOp(Ops.RANGE, I32, (end,), UOp.range(1, number, kind, renumbered=True).arg)


def i32(value):
    return UOp.const(I32, value)


def param(slot, size, dtype=F32):
    return UOp.param(slot, dtype.ptr(), size)


class Listing:
    """Builds a LINEAR: every op stands behind its sources, in order of mention."""

    def __init__(self):
        self.ops = {}

    def add(self, node):
        for source in node.toposort():
            self.ops.setdefault(source)
        return node

    @property
    def linear(self):
        return verify(UOp.new_linear(*self.ops), Level.LINEAR)


def matmul(m, n, k):
    code = Listing()
    out, a, b = (param(slot, size) for slot, size in enumerate((m * n, m * k, k * n)))
    i, j, r = (loop(i32(size), number) for number, size in enumerate((m, n, k)))
    reg = UOp.define_reg(F32, 1, 0)
    for head in (out, a, b, reg, i, j):
        code.add(head)
    zero = i32(0)
    init = code.add(reg.after(i, j)[zero].store(0.0))
    code.add(r)
    now = reg.after(init, r)[zero].load()
    step = reg.after(init)[zero].store(a[i * k + r].load().mulacc(b[r * n + j].load(), now))
    end = code.add(step.close(r))
    total = reg.after(end)[zero].load()
    code.add(out[i * n + j].store(total).close(j).close(i))
    return code.linear


def test_matrix_product(rng):
    a = rng.standard_normal((3, 5)).astype(np.float32)
    b = rng.standard_normal((5, 4)).astype(np.float32)
    linear = matmul(3, 4, 5)
    found = interpret_linear(linear, [np.zeros(12, np.float32), a, b])[0]
    np.testing.assert_allclose(found.reshape(3, 4), a @ b, rtol=1e-5)
    program = UOp.program(UOp.new_sink(), UOp.new_device(), linear)
    buffers = [np.zeros(12, np.float32), a, b]
    np.testing.assert_array_equal(interpret_program(program, buffers)[0], found)


def test_a_loop_that_never_runs():
    code = Listing()
    i = code.add(loop(i32(0), 0))
    code.add(param(0, 1)[i].store(1.0).close(i))
    assert interpret_linear(code.linear, [np.zeros(1, np.float32)])[0].tolist() == [0]


def test_variables_as_bounds():
    code = Listing()
    n = UOp.define_var("n", 0, 4, I32)
    i = code.add(loop(n, 0))
    code.add(param(0, 4, I32)[i].store(i * i).close(i))
    found = interpret_linear(code.linear, [np.full(4, -1, np.int32)], {"n": 3})[0]
    assert found.tolist() == [0, 1, 4, -1]
    with pytest.raises(InvalidGraphError, match="value of n"):
        interpret_linear(code.linear, [np.zeros(4, np.int32)])


def test_conditions():
    code = Listing()
    out = param(0, 5, I32)
    i = code.add(loop(i32(5), 0))
    odd = code.add((i & 1).eq(1))
    value = code.add(i * 10)
    write = out[i].store(value)
    block = UOp.if_(odd, write)
    code.add(out[i])
    code.ops.setdefault(block)
    code.add(write)
    code.ops.setdefault(block.endif())
    code.add(write.close(i))
    assert interpret_linear(code.linear, [np.zeros(5, np.int32)])[0].tolist() == [0, 10, 0, 30, 0]


def test_gates_and_alternatives():
    code = Listing()
    out, x = param(0, 6), param(1, 3)
    i = code.add(loop(i32(6), 0))
    read = x.at(i - 2, gate=(i > 1) & (i < 5)).load(UOp.const(F32, -1.0))
    code.add(out.at(i, gate=i.ne(3)).store(read).close(i))
    found = interpret_linear(code.linear, [np.full(6, 9, np.float32), np.array([1, 2, 3])])[0]
    assert found.tolist() == [-1, -1, 1, 9, 3, -1]


def test_vectors_and_vector_registers():
    code = Listing()
    out, x = param(0, 4), param(1, 12)
    reg = UOp(Ops.DEFINE_REG, F32.vec(4).ptr(UOp.define_reg(F32, 1, 0).dtype.addrspace), (), (1, 0))
    zero = i32(0)

    def slot(deps):
        return UOp(Ops.INDEX, F32.vec(4), (reg.after(*deps), zero), False)

    init = code.add(slot(()).store(UOp.vconst(F32, (0.5, 0.0, 0.0, 0.0))))
    i = code.add(loop(i32(3), 0))
    run = UOp(Ops.INDEX, F32.vec(4), (x, i * 4), False).load()
    end = code.add(slot((init,)).store(slot((init, i)).load() + run).close(i))
    total = slot((end,)).load()
    target = UOp(Ops.INDEX, F32.vec(4), (out, zero), False)
    swapped = UOp.cat(total.gep([2, 3]), UOp.vectorize(total.gep(0), total.gep(1)))
    code.add(target.store(swapped))
    x_values = np.arange(12, dtype=np.float32)
    found = interpret_linear(code.linear, [np.zeros(4, np.float32), x_values])[0]
    assert found.tolist() == [18, 21, 12.5, 15]


def test_int32_indices_wrap_as_machines_do():
    code = Listing()
    big = code.add(UOp.define_var("n", 0, 2**31 - 1, I32))
    code.add(param(0, 1, I32)[i32(0)].store(big + 1))
    found = interpret_linear(code.linear, [np.zeros(1, np.int32)], {"n": 2**31 - 1})[0]
    assert found.tolist() == [-(2**31)]


def test_pointers_in_bytes():
    code = Listing()
    out, x = param(0, 1), param(1, 8)
    behind = UOp(Ops.POINTER_INDEX, x.dtype, (x, i32(8)))
    address = UOp(Ops.POINTER_INDEX, x.dtype, (behind, i32(4)))
    read = UOp(Ops.LOAD, F32, (x, address))
    code.add(out[i32(0)].store(read))
    found = interpret_linear(code.linear, [np.zeros(1, np.float32), np.arange(8)])[0]
    assert found.tolist() == [3]


def test_work_items_share_local_memory_between_barriers():
    """Each group of 4 reverses its part of x through local memory."""
    code = Listing()
    out, x = param(0, 8), param(1, 8)
    local = UOp.define_local(F32, 4, 0)
    group = UOp(Ops.SPECIAL, I32, (i32(2),), "gidx0")
    item = UOp(Ops.SPECIAL, I32, (i32(4),), "lidx0")
    fill = local[item].store(x[group * 4 + item].load())
    ready = UOp(Ops.BARRIER, VOID, (fill,))
    read = local.after(ready)[3 - item].load()
    code.add(out[group * 4 + item].store(read))
    found = interpret_linear(code.linear, [np.zeros(8, np.float32), np.arange(8)])[0]
    assert found.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_work_items_diverge_in_conditions_only():
    code = Listing()
    out = param(0, 4, I32)
    item = code.add(UOp(Ops.SPECIAL, I32, (i32(4),), "lidx0"))
    write = out[item].store(item + 1)
    block = UOp.if_(item < 2, write)
    code.add(item < 2)
    code.add(item + 1)
    code.add(out[item])
    code.ops.setdefault(block)
    code.add(write)
    code.ops.setdefault(block.endif())
    assert interpret_linear(code.linear, [np.zeros(4, np.int32)])[0].tolist() == [1, 2, 0, 0]
    code = Listing()
    i = code.add(loop(item, 0))
    code.add(out[item].store(i).close(i))
    with pytest.raises(InvalidGraphError, match="all work-items agree"):
        interpret_linear(code.linear, [np.zeros(4, np.int32)])


def test_halves_in_memory():
    code = Listing()
    out, x = param(0, 2, dtypes.float16), param(1, 2, dtypes.float16)
    i = code.add(loop(i32(2), 0))
    wide = x[i].load().cast(F32)
    code.add(out[i].store((wide * wide).cast(dtypes.float16)).close(i))
    values = np.array([0.1, 300.0], np.float16)
    found = interpret_linear(code.linear, [np.zeros(2, np.float16), values])[0]
    assert found.tolist() == [float(np.float16(float(values[0]) ** 2)), np.inf]
    assert found.dtype == np.float16


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda i: param(0, 4)[i + 1].store(1.0), "index-bounds"),
        (lambda i: param(0, 4)[i - 1].store(1.0), "index-bounds"),
        (lambda i: param(3, 4)[i].store(1.0), "input"),
        (lambda i: param(0, 8)[i].store(1.0), "input"),
        (lambda i: param(0, 4)[i].store(UOp(Ops.CUSTOM_I, F32, (), "x")), "interpretable"),
    ],
)
def test_refusals(build, rule):
    code = Listing()
    i = code.add(loop(i32(4), 0))
    code.add(build(i).close(i))
    with pytest.raises(InvalidGraphError) as caught:
        interpret_linear(code.linear, [np.zeros(4, np.float32)])
    assert caught.value.rule == rule


def test_order_is_checked():
    out, i = param(0, 4), loop(i32(4), 0)
    write = out[i].store(UOp.const(F32, 1.0))
    with pytest.raises(InvalidGraphError, match="computed before"):
        interpret_linear(UOp.new_linear(out, write), [np.zeros(4, np.float32)])
    crossed = UOp.new_linear(*i.toposort(), out, write.close(loop(i32(4), 1)))
    with pytest.raises(InvalidGraphError, match="innermost open RANGE"):
        interpret_linear(crossed, [np.zeros(4, np.float32)])
