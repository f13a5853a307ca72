"""The verifier: good graphs pass, each rule refuses its offender by name."""

from __future__ import annotations

import pytest

from morok import config
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, CallInfo, KernelInfo, Ops, ReduceOp, UOp
from morok.ir.verify import RULES, Level, check_stage, find_faults, verify

F32, I32, IDX = dtypes.float32, dtypes.int32, dtypes.index


def loop(size, number, kind=AxisType.LOOP):
    return UOp.range(size, number, kind, renumbered=True)


def param(slot, size=32):
    return UOp.param(slot, F32.ptr(), size)


def kernel(*statements):
    return UOp.new_sink(*statements, info=KernelInfo("k"))


def sums():
    """out[i] = sum over k of x[i, k]"""
    i, k = loop(4, 0), loop(8, 1, AxisType.REDUCE)
    return kernel(param(0, 4)[i].store(param(1)[i * 8 + k].reduce(ReduceOp.ADD, k), i))


def refused(root, level, rule, op, expected="", got="", **options):
    with pytest.raises(InvalidGraphError) as caught:
        verify(root, level, stage="stage 7", **options)
    error = caught.value
    assert (error.rule, error.node.op, error.stage) == (rule, op, "stage 7")
    assert expected in error.expected
    assert got in error.got
    assert f"{op.name}" in str(error)


# Tensor level ------------------------------------------------------------------------------------


def test_a_tensor_graph_passes():
    x = UOp.new_buffer(F32, 6).reshape((2, 3))
    y = x.permute((1, 0)).reduce_axis(ReduceOp.ADD, (0,)) + 1.0
    written = x.after(x.store(x * 2.0))
    r = UOp.range(4, 0)
    ramp = r.cast(F32).bufferize(r)
    root = UOp.new_sink(y, written, ramp)
    assert verify(root, Level.TENSOR) is root


def test_kernels_within_a_tensor_graph_are_checked_as_kernels():
    out, x = UOp.new_buffer(F32, 4), UOp.new_buffer(F32, 32)
    good = out.after(sums().call(out, x, info=CallInfo()))
    assert verify(good, Level.TENSOR) is good
    i = loop(5, 0)
    bad = kernel(param(0, 4)[i].store(1.0, i))
    refused(out.after(bad.call(out)), Level.TENSOR, "index-bounds", Ops.INDEX)


def test_ops_of_lower_levels_are_refused_in_a_tensor_graph():
    reg = UOp.define_reg(F32, 1, 0)
    refused(reg, Level.TENSOR, "level-ops", Ops.DEFINE_REG, "an op of the tensor level")


def test_an_open_range_is_refused():
    r = UOp.range(4, 0)
    refused(r.cast(F32), Level.TENSOR, "ranges-closed", Ops.RANGE, got="U0 left open")


def test_a_store_needs_a_view_of_memory_of_its_shape():
    x = UOp.new_buffer(F32, 6).reshape((2, 3))
    computed = x + 1.0
    refused(computed.after(computed.store(x)), Level.TENSOR, "store-target", Ops.STORE, got="ADD")
    narrow = x.shrink((0, 0), (1, 3))
    bad = x.after(narrow.store(x))
    refused(bad, Level.TENSOR, "store-shape", Ops.STORE, "(1, 3)", "(2, 3)")
    verify(x.after(narrow.store(UOp.const(F32, 1.0))), Level.TENSOR)


def test_multi_dimensional_index_bounds():
    x = UOp.new_buffer(F32, 6).reshape((2, 3))
    i, j = UOp.range(2, 0), UOp.range(3, 1)
    verify((x[i, j] + 1.0).bufferize(i, j), Level.TENSOR)
    bad = x[j, i].bufferize(i, j)
    refused(bad, Level.TENSOR, "index-bounds", Ops.INDEX, "within 0..1 or a gate", "0..2")


# Kernel level ------------------------------------------------------------------------------------


def test_kernels_pass():
    verify(sums(), Level.KERNEL)
    i = loop(8, 0)
    guarded = (i < 7).where(i + 1, UOp.invalid())
    read = param(1, 8)[guarded]
    verify(kernel(param(0, 8)[i].store(read, i)), Level.KERNEL)
    gated = param(1, 8).at(i + 1, gate=i < 7)
    verify(kernel(param(0, 8)[i].store(gated, i)), Level.KERNEL)
    wide = UOp(Ops.INDEX, F32.vec(4), (param(1, 8), i % 2 * 4), False)
    first = UOp(Ops.INDEX, F32.vec(4), (param(0, 8), i % 2 * 4), False)
    verify(kernel(first.store(wide.load(), i)), Level.KERNEL)


def test_the_root_must_be_a_sink():
    i = loop(4, 0)
    refused(param(0)[i].store(1.0, i), Level.KERNEL, "root", Ops.STORE, "SINK as root")


def test_movement_and_buffers_are_refused_in_a_kernel():
    i = loop(4, 0)
    moved = UOp.new_buffer(F32, 4).reshape((2, 2)).permute((1, 0)).reshape((4,))[i]
    refused(kernel(param(0)[i].store(moved, i)), Level.KERNEL, "level-ops", Ops.UNIQUE)


def test_ops_that_a_stage_removed_are_refused():
    verify(sums(), Level.KERNEL, absent={Ops.LOAD})
    refused(sums(), Level.KERNEL, "level-ops", Ops.REDUCE, "no such op", absent={Ops.REDUCE})


def test_local_faults_are_found_in_place():
    i = loop(4, 0)
    bad = UOp(Ops.ADD, F32, (param(1)[i], UOp.const(I32, 1)))
    refused(
        kernel(param(0)[i].store(bad, i)), Level.KERNEL, "operands", Ops.ADD, "Float32", "Int32"
    )


def test_ranges_are_closed_exactly_once():
    i, j = loop(4, 0), loop(8, 1)
    place = param(0)[i * 8 + j]
    refused(
        kernel(place.store(1.0, i)), Level.KERNEL, "ranges-closed", Ops.RANGE, got="R1 left open"
    )
    verify(kernel(place.store(1.0, i).close(j)), Level.KERNEL)
    twice = kernel(place.store(1.0, i, j).close(j))
    refused(twice, Level.KERNEL, "closed-once", Ops.END, "open in the computation", "R1")


def test_axis_ids_are_renumbered_and_unique():
    u = UOp.range(4, 0)
    refused(
        kernel(param(0)[u].store(1.0, u)), Level.KERNEL, "axis-id", Ops.RANGE, "renumbered", "U0"
    )
    a, b = loop(4, 0), loop(8, 0)
    both = kernel(param(0)[a].store(1.0, a), param(1)[b].store(1.0, b))
    refused(both, Level.KERNEL, "axis-id", Ops.RANGE, "one RANGE", "two different of R0")


def test_params_agree():
    i = loop(4, 0)
    plain = UOp.param(1, F32, 4)
    bad = kernel(param(0)[i].store(UOp(Ops.INDEX, F32, (plain, i), False), i))
    refused(bad, Level.KERNEL, "params", Ops.PARAM, "a pointer", "Float32")
    bad = kernel(param(0)[i].store(param(0, 16)[i], i))
    refused(bad, Level.KERNEL, "params", Ops.PARAM, "one PARAM for each slot", "slot 0")
    n, m = UOp.define_var("n", 0, 3), UOp.define_var("n", 0, 2)
    bad = kernel(param(0)[i].store(param(1)[n] + param(1)[m], i))
    refused(bad, Level.KERNEL, "params", Ops.DEFINE_VAR, "one DEFINE_VAR", "n")


def test_stores_and_indices_need_memory():
    i = loop(4, 0)
    bad = kernel(UOp(Ops.STORE, dtypes.void, (UOp.const(F32, 1.0), UOp.const(F32, 1.0))))
    refused(bad, Level.KERNEL, "store-target", Ops.STORE, "an INDEX", "CONST")
    computed = UOp(Ops.INDEX, F32, (param(1)[i] + 1.0,), False)
    bad = kernel(param(0)[i].store(computed, i))
    refused(bad, Level.KERNEL, "index-buffer", Ops.INDEX, "memory of the kernel", "ADD")


@pytest.mark.parametrize(
    ("index", "got"),
    [
        (lambda i: i + 29, "29..32"),
        (lambda i: i - 1, "-1..2"),
        (lambda i: param(2)[i].cast(IDX), "unknown bounds"),
        (lambda i: param(2)[i].cast(I32).cast(IDX), "-2147483648..2147483647"),
    ],
)
def test_an_index_is_proved_within_its_buffer(index, got):
    i = loop(4, 0)
    bad = kernel(param(0)[i].store(param(1)[index(i)], i))
    refused(bad, Level.KERNEL, "index-bounds", Ops.INDEX, "within 0..31 or a gate", got)


def test_lanes_and_local_memory_are_within_their_buffer():
    i = loop(4, 0)
    wide = UOp(Ops.INDEX, F32.vec(4), (param(1, 15), i * 4), False)
    out = UOp(Ops.INDEX, F32.vec(4), (param(0, 16), i * 4), False)
    refused(kernel(out.store(wide.load(), i)), Level.KERNEL, "index-bounds", Ops.INDEX, got="0..12")
    local = UOp.define_local(F32, 3, 0)
    refused(kernel(local[i].store(1.0, i)), Level.KERNEL, "index-bounds", Ops.INDEX, "0..2")
    reg = UOp.define_reg(F32, 1, 0)
    refused(kernel(reg[1].store(1.0)), Level.KERNEL, "index-bounds", Ops.INDEX, "0..0")


# LINEAR ------------------------------------------------------------------------------------------


def i32(value):
    return UOp.const(I32, value)


def copy_loop():
    """for i in 0..4: out[i] = x[i]"""
    end = i32(4)
    i = UOp(Ops.RANGE, I32, (end,), loop(4, 0).arg)
    out, x = param(0, 4), param(1, 4)
    source, target = x[i], out[i]
    read = source.load()
    write = target.store(read)
    return [out, x, end, i, source, target, read, write, write.close(i)]


def linear(ops):
    return UOp.new_linear(*ops)


def test_a_linear_passes():
    verify(linear(copy_loop()), Level.LINEAR)
    out, zero, read = param(0, 4), i32(0), param(1, 4)
    condition = UOp.define_var("n", 0, 4, I32) < 3
    place = out[zero]
    one = UOp.const(F32, 1.0)
    write = place.store(one)
    block = UOp.if_(condition, write)
    ops = [out, read, zero, *condition.src, condition, one, place, block, write, block.endif()]
    verify(linear(ops), Level.LINEAR)


def test_a_linear_needs_definitions_before_uses():
    ops = copy_loop()
    refused(linear(ops[1:]), Level.LINEAR, "sequence", Ops.INDEX, "earlier in the list", "PARAM")
    refused(linear([*ops, ops[-1]]), Level.LINEAR, "sequence", Ops.END, "each op once")


def test_a_linear_needs_nested_blocks():
    ops = copy_loop()
    refused(linear(ops[:-1]), Level.LINEAR, "nesting", Ops.RANGE, got="RANGE left open")
    i = ops[3]
    j = UOp(Ops.RANGE, I32, (ops[2],), loop(4, 1).arg)
    crossed = [*ops[:4], j, *ops[4:]]
    refused(linear(crossed), Level.LINEAR, "nesting", Ops.END, "innermost open RANGE", "R1")
    read = ops[6]
    outside = [*ops, UOp(Ops.NEG, F32, (read,))]
    refused(linear(outside), Level.LINEAR, "sequence", Ops.NEG, "in scope", "LOAD")
    assert i.op is Ops.RANGE


def test_a_linear_has_concrete_dtypes_and_flat_indices():
    zero = UOp.const(IDX, 0)
    refused(linear([zero]), Level.LINEAR, "no-index-dtype", Ops.CONST, "a concrete int", "Index")
    refused(linear([UOp.invalid()]), Level.LINEAR, "no-invalid", Ops.CONST, "a number")
    refused(
        linear([*copy_loop(), UOp.new_sink().function()]), Level.LINEAR, "level-ops", Ops.FUNCTION
    )
    refused(UOp.new_sink(), Level.LINEAR, "root", Ops.SINK, "LINEAR as root")
    end = i32(4)
    far = param(0, 4)[end]
    refused(linear([param(0, 4), end, far]), Level.LINEAR, "index-bounds", Ops.INDEX, got="4..4")
    reg, zero = UOp.define_reg(F32, 4, 0), i32(0)
    twice = UOp(Ops.INDEX, F32, (reg, zero, zero), False)
    refused(linear([reg, zero, twice]), Level.LINEAR, "flat-index", Ops.INDEX, got="2 indices")


# Threads -----------------------------------------------------------------------------------------


def test_a_thread_loop_is_the_outermost_of_its_statements():
    i, j = loop(4, 0), loop(8, 1)
    outer, inner = loop(4, 0, AxisType.THREAD), loop(8, 1, AxisType.THREAD)
    verify(kernel(param(0)[outer * 8 + j].store(1.0, outer, j)), Level.KERNEL)
    within = kernel(param(0)[i * 8 + inner].store(1.0, i, inner))
    refused(within, Level.KERNEL, "threads", Ops.STORE, "outermost", "R0 Loop, R1 Thread")
    refused(within, Level.LOWERED, "threads", Ops.STORE)
    other = loop(8, 2, AxisType.THREAD)
    both = kernel(
        param(0)[outer * 8 + j].store(1.0, outer, j), param(1, 8)[other].store(1.0, other)
    )
    refused(both, Level.KERNEL, "threads", Ops.RANGE, "one extent")


def test_no_reduction_goes_through_a_thread_loop():
    k = loop(8, 0, AxisType.THREAD)
    total = kernel(param(0, 1)[0].store(param(1)[k].reduce(ReduceOp.ADD, k)))
    refused(total, Level.KERNEL, "threads", Ops.REDUCE, "no THREAD loop", "R0")


def test_a_thread_loop_of_a_linear_stands_in_no_block():
    ops = copy_loop()
    end, i = ops[2], ops[3]
    shared = UOp(Ops.RANGE, I32, (end,), loop(4, 1, AxisType.THREAD).arg)
    verify(linear([end, shared, UOp(Ops.END, dtypes.void, (end, shared))]), Level.LINEAR)
    within = [end, i, shared, UOp(Ops.END, dtypes.void, (end, shared))]
    refused(linear(within), Level.LINEAR, "threads", Ops.RANGE, "outermost", "another block")


# Around ------------------------------------------------------------------------------------------


def test_every_rule_says_what_it_is():
    assert all(rule.name and rule.doc and rule.levels for rule in RULES)


def test_all_faults_can_be_listed():
    i = loop(64, 0)
    faults = list(find_faults(kernel(param(0)[i].store(param(1)[i])), Level.KERNEL))
    assert [(node.op, fault.rule) for node, fault in faults] == [
        (Ops.RANGE, "ranges-closed"),
        (Ops.INDEX, "index-bounds"),
        (Ops.INDEX, "index-bounds"),
    ]


def test_of_fields_that_cannot_be_read_only_that_is_said():
    broken = UOp(Ops.RANGE, IDX), UOp(Ops.STORE, dtypes.void)
    faults = list(find_faults(UOp(Ops.SINK, dtypes.void, broken, KernelInfo("k")), Level.KERNEL))
    assert {(node.op, fault.rule) for node, fault in faults} >= {
        (Ops.RANGE, "source-count"),
        (Ops.STORE, "source-count"),
    }


def test_between_stages_the_setting_decides():
    bad = kernel(param(0)[loop(4, 0)].store(1.0))
    with config.override(verify=False):
        assert check_stage(bad, Level.KERNEL, "stage 3") is bad
    with config.override(verify=True), pytest.raises(InvalidGraphError, match="stage 3"):
        check_stage(bad, Level.KERNEL, "stage 3")


def test_a_deep_graph_is_verified_without_recursion():
    node = UOp.new_buffer(F32, 4)
    for _ in range(100_000):
        node = node + 1.0
    assert verify(node, Level.TENSOR) is node
