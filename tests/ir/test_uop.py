"""UOp: fields by the guide's names, operators, builders, structure."""

from __future__ import annotations

import pickle

import pytest

from morok.dtype import AddrSpace, dtypes
from morok.errors import DTypeError, InvalidGraphError, ShapeError
from morok.ir import (
    FIELD_NAMES,
    OPS,
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    DeviceSpec,
    GroupOp,
    Invalid,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
)
from morok.ir.fields import Fields, fields_of

F32 = dtypes.float32


def loop(size, number=0, kind=AxisType.LOOP):
    return UOp.range(size, number, kind)


@pytest.fixture
def memory():
    return UOp.param(0, F32.ptr(), 64)


# Fields ------------------------------------------------------------------------------------------


def test_range_fields():
    r = UOp.range(128, 0, AxisType.GLOBAL, renumbered=True, deps=(loop(4, 1),))
    assert r.end is UOp.const(dtypes.index, 128)
    assert r.axis_id == AxisId(0, renumbered=True)
    assert r.axis_type is AxisType.GLOBAL
    assert r.axis_priority == 0
    assert r.deps == (loop(4, 1),)


def test_store_index_and_load_fields(memory):
    i, j = loop(8), loop(8, 1)
    gate = i < 3
    address = memory.at(i * 8 + j, gate=gate)
    assert address.buffer is memory
    assert address.indices == (i * 8 + j,)
    assert address.gate is gate
    assert memory.at(i).gate is None
    assert address.has_gate
    store = address.store(1.0, i, j)
    assert store.index is address
    assert store.value is UOp.const(F32, 1.0)
    assert store.ranges == store.ended_ranges == (i, j)
    assert store.open_ranges == ()
    load = address.load(UOp.const(F32, 2.0))
    assert (load.buffer, load.index, load.alt) == (memory, address, UOp.const(F32, 2.0))
    assert memory.at(i).load().alt is None


def test_ranges_is_the_field_where_there_is_one_and_the_open_ranges_elsewhere(memory):
    i, k = loop(4), loop(8, 1, AxisType.REDUCE)
    total = (memory[i * 8 + k]).reduce(ReduceOp.ADD, k)
    assert total.ranges == (k,)
    assert total.open_ranges == (i,)
    assert (total + 1.0).ranges == (total + 1.0).open_ranges == (i,)
    assert (total + 1.0).ended_ranges == ()
    row = total.bufferize(i)
    assert row.ranges == (i,)
    assert row.opts == BufferizeOpts()
    assert row.shape == (4,)
    assert row.close(k).ranges == (k,)


def test_buffer_param_and_device_fields():
    buffer = UOp.new_buffer(F32, 24, "CPU:1")
    assert buffer.size == 24
    assert buffer.unique.op is Ops.UNIQUE
    assert buffer.device.spec == DeviceSpec("CPU", 1)
    assert (buffer + 1.0).device is buffer.device
    param = UOp.param(3, F32, 24, buffer.device)
    assert (param.slot, param.size, param.device) == (3, 24, buffer.device)
    assert UOp.param(3, F32, 24).device is None
    view = buffer.buffer_view(4, 20)
    assert (view.size, view.offset, view.shape) == (4, 20, (4,))
    assert UOp.new_buffer(F32, 24) is not UOp.new_buffer(F32, 24)


def test_wmma_and_custom_fields():
    half = UOp.vconst(dtypes.float16, (1.0,) * 8)
    acc = UOp.vconst(F32, (0.0,) * 8)
    metadata = WmmaMetadata("__hmma", (16, 16, 16), dtypes.float16, F32, "CUDA")
    k = loop(4)
    wmma = UOp.wmma(half, half, acc, metadata, k)
    assert (wmma.a, wmma.b, wmma.c) == (half, half, acc)
    assert wmma.metadata.dims == (16, 16, 16)
    assert wmma.metadata.tile_grid == (1, 1)
    assert wmma.ended_ranges == (k,)


def test_a_missing_field_names_those_there_are(memory):
    with pytest.raises(AttributeError, match=r"PARAM has no field 'gate'.*device, slot, size"):
        _ = memory.gate


def test_every_field_is_declared_for_type_checkers_and_src_stays_the_sources():
    names = {s.name for spec in OPS.values() for s in spec.sources}
    names |= {name for spec in OPS.values() for name in spec.args}
    assert names - {"src"} == FIELD_NAMES
    import inspect

    declared = inspect.getsource(Fields)
    for name in FIELD_NAMES:
        assert f"        {name}: " in declared
    reduced = loop(4).reduce(ReduceOp.ADD, loop(4))
    assert reduced.src == (loop(4), loop(4))


def test_fields_lists_all(memory):
    store = memory[0].store(1.0)
    assert list(fields_of(store)) == ["index", "value", "ranges"]
    assert list(memory.fields) == ["device", "slot", "size"]


# Operators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "op"),
    [
        (lambda a, b: a + b, Ops.ADD),
        (lambda a, b: a - b, Ops.SUB),
        (lambda a, b: a * b, Ops.MUL),
        (lambda a, b: a // b, Ops.FLOORDIV),
        (lambda a, b: a % b, Ops.FLOORMOD),
        (lambda a, b: a.idiv(b), Ops.IDIV),
        (lambda a, b: a.mod(b), Ops.MOD),
        (lambda a, b: a**b, Ops.POW),
        (lambda a, b: a & b, Ops.AND),
        (lambda a, b: a | b, Ops.OR),
        (lambda a, b: a ^ b, Ops.XOR),
        (lambda a, b: a << b, Ops.SHL),
        (lambda a, b: a >> b, Ops.SHR),
        (lambda a, b: a < b, Ops.LT),
        (lambda a, b: a <= b, Ops.LE),
        (lambda a, b: a > b, Ops.GT),
        (lambda a, b: a >= b, Ops.GE),
        (lambda a, b: a.eq(b), Ops.EQ),
        (lambda a, b: a.ne(b), Ops.NE),
        (lambda a, b: a.maximum(b), Ops.MAX),
        (lambda a, b: a.minimum(b), Ops.MIN),
    ],
)
def test_binary_operators(build, op):
    a, b = UOp.define_var("a", 0, 9, dtypes.int32), UOp.define_var("b", 0, 9, dtypes.int32)
    node = build(a, b)
    assert (node.op, node.src) == (op, (a, b))
    assert node.dtype is (dtypes.bool_ if op.name in "LT LE GT GE EQ NE" else dtypes.int32)
    assert build(a, 3) is build(a, UOp.const(dtypes.int32, 3))


def test_unary_methods():
    x = UOp.const(F32, 2.0)
    operators = {Ops.NEG, Ops.NOT, Ops.ABS}
    for op in GroupOp.Unary - operators:
        node = getattr(x, op.name.lower())()
        assert (node.op, node.src, node.dtype) == (op, (x,), F32)


def test_reflected_operators_keep_the_order():
    a = UOp.define_var("a", 0, 9)
    seven = UOp.const(dtypes.index, 7)
    assert (7 - a).src == (seven, a)
    assert (7 // a).src == (seven, a)
    assert (7 % a).src == (seven, a)
    assert (1.0 / UOp.const(F32, 2.0)).op is Ops.FDIV
    assert (-a).op is Ops.NEG
    assert abs(a).op is Ops.ABS
    assert (~a).op is Ops.NOT


def test_equality_is_identity_and_truth_is_refused():
    a = UOp.define_var("a", 0, 9)
    assert a == a
    assert a != a + 0
    assert len({a, a + 0, UOp.define_var("a", 0, 9)}) == 2
    with pytest.raises(TypeError, match="no truth value"):
        bool(a < 3)
    with pytest.raises(TypeError):
        iter(UOp.param(0, F32.ptr(), 4))


def test_operands_must_agree():
    x, i = UOp.const(F32, 1.0), UOp.const(dtypes.int32, 1)
    with pytest.raises(DTypeError, match="Float32 and Int32"):
        _ = x + i
    with pytest.raises(DTypeError, match="is no integer"):
        _ = i + 1.5
    with pytest.raises(DTypeError, match="divides floats"):
        _ = i / i
    with pytest.raises(DTypeError, match="no truth value"):
        _ = (i < 1) & 2
    assert (x + 1).src[1].arg == 1.0
    assert type((x + 1).src[1].arg) is float
    assert ((i < 1) | 1).src[1].arg is True


def test_where_takes_its_dtype_from_a_node():
    cond, x = UOp.const(dtypes.bool_, True), UOp.const(F32, 1.0)
    assert cond.where(x, 0.0).dtype is F32
    assert cond.where(0, x).src[1] is UOp.const(F32, 0.0)
    assert cond.alu(Ops.WHERE, x, 0.0) is cond.where(x, 0.0)
    with pytest.raises(DTypeError, match="no dtype"):
        cond.where(1, 0)
    assert x.mulacc(2.0, 3.0).op is Ops.MULACC


def test_cast_of_vectors_and_of_nothing():
    x = UOp.vconst(F32, (1.0, 2.0))
    assert x.cast(dtypes.int32).dtype is dtypes.int32.vec(2)
    assert x.cast(F32) is x
    assert x.bitcast(dtypes.int32.vec(2)).op is Ops.BITCAST


# Constants ---------------------------------------------------------------------------------------


def test_constants_convert_and_wrap():
    assert UOp.const(dtypes.uint8, 257).arg == 1
    assert UOp.const(dtypes.int8, 200).arg == -56
    assert UOp.const(dtypes.float16, 0.1).arg == 0.0999755859375
    assert UOp.const(F32.vec(4), 1).op is Ops.VCONST
    assert UOp.const(F32.vec(4), 1).values == (1.0,) * 4
    assert UOp.invalid().arg is Invalid
    with pytest.raises(DTypeError, match="Invalid"):
        UOp.const(F32, Invalid)
    assert UOp.shape_const([6, 4]).value == (6, 4)


# Builders ----------------------------------------------------------------------------------------


def test_movement_shapes():
    x = UOp.new_buffer(F32, 24).reshape((2, 3, 4))
    assert x.new_shape.arg == (2, 3, 4)
    assert x.permute((2, 0, 1)).shape == (4, 2, 3)
    assert x.flip((True, False, True)).axes == (True, False, True)
    assert x.pad((0, 1, 0), (2, 0, 0)).shape == (4, 4, 4)
    assert x.shrink((0, 1, 0), (1, 3, 4)).shape == (1, 2, 4)
    assert x.reshape((1, 24)).expand((5, 24)).shape == (5, 24)
    assert x.reduce_axis(ReduceOp.MAX, [0, 2]).shape == (3,)
    with pytest.raises(ShapeError):
        x.reshape((5, 5))
    with pytest.raises(ShapeError):
        x.expand((2, 3, 5))


def test_vectors_and_expansion():
    a, b = UOp.const(F32, 1.0), UOp.const(F32, 2.0)
    v = UOp.vectorize(a, b)
    assert v.dtype is F32.vec(2)
    assert UOp.vectorize(a) is a
    assert v.gep(1).dtype is F32
    assert v.gep([0, 1, 0]).dtype is F32.vec(3)
    assert UOp.cat(v, v).dtype is F32.vec(4)
    lanes = UOp.vconst(dtypes.index, range(4)).unroll(((0, 4),))
    assert lanes.dtype is dtypes.index
    assert lanes.contract(((0, 4),)).dtype is dtypes.index.vec(4)


def test_callables_and_tuples():
    p = UOp.param(0, F32, 4)
    body = UOp.new_tuple(p * 2.0, (p < 0.0))
    function = body.function(p, info=CallInfo(name="f"))
    assert function.dtype is dtypes.void
    call = function.call(UOp.new_buffer(F32, 4))
    assert call.get_tuple(1).dtype is dtypes.bool_
    assert call.get_tuple(1).index == 1
    with pytest.raises(InvalidGraphError, match="GET_TUPLE"):
        call.get_tuple(2)
    with pytest.raises(InvalidGraphError, match="GET_TUPLE"):
        p.get_tuple(0)


def test_program_fills_its_stages_in_order():
    sink = UOp.new_sink(info=KernelInfo("k"))
    cpu = UOp.new_device()
    program = UOp.program(sink, cpu)
    assert (program.sink, program.linear, program.source, program.binary) == (
        sink,
        None,
        None,
        None,
    )
    linear = UOp.new_linear(sink)
    program = UOp.program(sink, cpu, linear, UOp.new_source("int x;"))
    assert program.stages == ("linear", "source")
    assert program.linear is linear
    assert program.source.code == "int x;"
    assert UOp.new_binary(b"\x7f").bytes == b"\x7f"


def test_memory_definitions():
    reg = UOp.define_reg(F32, 4, 1)
    assert (reg.size, reg.id, reg.dtype.addrspace) == (4, 1, AddrSpace.REG)
    local = UOp.define_local(F32, 16, 2)
    assert (local.index, local.size, local.dtype.addrspace) == (2, 16, AddrSpace.LOCAL)
    var = UOp.define_var("n", 1, 64)
    assert (var.name, var.min_val, var.max_val) == ("n", 1, 64)
    bound = var.bind(8)
    assert (bound.var, bound.value.arg, bound.vmin, bound.vmax) == (var, 8, 1, 64)
    with pytest.raises(InvalidGraphError, match=r"BIND\.value"):
        var.bind(65)
    condition = UOp.const(dtypes.bool_, True)
    block = UOp.if_(condition, reg)
    assert (block.condition, block.body) == (condition, (reg,))
    assert block.endif().if_op is block


def test_indices_with_lanes_make_a_vector(memory):
    lanes = UOp.vconst(dtypes.index, (0, 3, 6, 9))
    assert memory[lanes].dtype is F32.vec(4)
    assert memory[1].dtype is F32
    grid = UOp.new_buffer(F32, 12).reshape((3, 4))
    assert grid[1, 2].indices == (UOp.const(dtypes.index, 1), UOp.const(dtypes.index, 2))
    assert (grid[1, 2].shape, grid[1].shape) == ((), (4,))
    with pytest.raises(ShapeError, match="3 indices"):
        _ = grid[1, 2, 0]


# Structure ---------------------------------------------------------------------------------------


def test_replace_substitute_and_slices(memory):
    i = loop(8)
    node = memory[i] + 1.0
    assert node.replace() is node
    assert node.replace(op=Ops.MUL) is memory[i] * 1.0
    assert node.replace(arg=None) is node
    j = loop(4, 7)
    assert node.substitute({i: j}) is memory[j] + 1.0
    assert node.toposort()[-1] is node
    assert set(node.toposort()) == node.backward_slice()
    assert i.src[0] not in node.toposort(stop={i})


def test_pickle_keeps_identity(memory):
    node = memory[loop(8)].store(2.0, loop(8))
    assert pickle.loads(pickle.dumps(node)) is node
