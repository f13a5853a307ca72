"""The op table against the field guide's lists."""

from __future__ import annotations

import pytest

from morok.dtype import dtypes
from morok.ir import OPS, AxisId, AxisType, Category, DeviceSpec, GroupOp, Ops, ReduceOp

# The guide's quick reference by category.
GUIDE = {
    Category.LOOP: "RANGE END",
    Category.REDUCTION: "REDUCE_AXIS REDUCE ALLREDUCE",
    Category.MEMORY: "BUFFER BUFFER_VIEW BUFFERIZE INDEX POINTER_INDEX LOAD STORE",
    Category.KERNEL: "SINK CALL FUNCTION TUPLE GET_TUPLE PROGRAM LINEAR SOURCE PROGRAM_BINARY"
    " AFTER BARRIER",
    Category.VECTOR: "VECTORIZE GEP VCONST CAT PTRCAT",
    Category.EXPANSION: "UNROLL CONTRACT",
    Category.HARDWARE: "WMMA SPECIAL",
    Category.CONTROL: "IF ENDIF",
    Category.DEFINITION: "PARAM DEFINE_LOCAL DEFINE_VAR DEFINE_REG BIND UNIQUE LUNIQUE DEVICE"
    " CONST",
    Category.MOVEMENT: "RESHAPE PERMUTE EXPAND PAD SHRINK FLIP",
    Category.ADDITIONAL: "COPY MSTACK MSELECT MULTI GROUP DETACH CONTIGUOUS CONTIGUOUS_BACKWARD"
    " PRECAST NOOP CUSTOM CUSTOM_I CUSTOM_FUNCTION",
}
UNARY = (
    "NEG NOT SQRT RSQRT RECIPROCAL EXP EXP2 LOG LOG2 SIN COS TAN TRUNC FLOOR CEIL ROUND ABS SIGN"
    " ERF SQUARE"
)
BINARY = (
    "ADD SUB MUL FDIV IDIV MOD FLOORDIV FLOORMOD MAX MIN POW AND OR XOR SHL SHR LT LE GT GE EQ NE"
    " THREEFRY"
)
TERNARY = "WHERE MULACC"


def ops(names: str) -> frozenset[Ops]:
    return frozenset(Ops[name] for name in names.split())


def test_every_op_has_a_row_in_order_and_numbers_from_one():
    assert list(OPS) == list(Ops)
    assert [int(op) for op in Ops] == list(range(1, len(Ops) + 1))
    assert len(Ops) < 128  # sets of ops are two words in the core
    assert all(spec.doc and spec.op is op for op, spec in OPS.items())


@pytest.mark.parametrize("category", GUIDE, ids=lambda category: category.name)
def test_category_is_the_guides(category):
    assert {op for op, spec in OPS.items() if spec.category is category} == ops(GUIDE[category])


def test_alu_lists():
    assert GroupOp.Unary == ops(UNARY)
    assert GroupOp.Binary == ops(BINARY)
    assert GroupOp.Ternary == ops(TERNARY)
    assert ops(f"{UNARY} {BINARY} {TERNARY}") == GroupOp.ALU
    alu = {op for op, spec in OPS.items() if spec.category is Category.ALU}
    assert alu == GroupOp.ALU | ops("CAST BITCAST")
    assert GroupOp.Comparison == ops("LT LE GT GE EQ NE")
    assert GroupOp.Commutative == ops("ADD MUL MAX MIN AND OR XOR EQ NE")
    assert GroupOp.Movement == ops(GUIDE[Category.MOVEMENT])
    assert frozenset(Ops) == GroupOp.All


def test_range_ending_ops_are_the_guides():
    assert {op: spec.range_end for op, spec in OPS.items() if spec.range_end is not None} == {
        Ops.BUFFERIZE: 1,
        Ops.REDUCE: 1,
        Ops.STORE: 2,
        Ops.WMMA: 3,
        Ops.END: 1,
        Ops.CALL: 1,
        Ops.FUNCTION: 1,
    }
    assert GroupOp.InheritsEnded == ops("COPY BUFFER_VIEW AFTER")


def test_expandable_ops_are_the_guides():
    named = (
        "CAST BITCAST GEP VECTORIZE LOAD STORE INDEX POINTER_INDEX REDUCE END AFTER BUFFERIZE WMMA"
    )
    assert GroupOp.ALU | ops(named) == GroupOp.Expandable


@pytest.mark.parametrize(
    ("op", "sources", "args"),
    [
        (Ops.RANGE, "end *deps", "axis_id axis_type"),
        (Ops.END, "computation *ranges", ""),
        (Ops.REDUCE_AXIS, "src", "reduce_op axes"),
        (Ops.BUFFER, "unique device", "size"),
        (Ops.BUFFERIZE, "compute *ranges", "opts"),
        (Ops.INDEX, "buffer *indices [gate]", "has_gate"),
        (Ops.LOAD, "buffer index [alt]", ""),
        (Ops.STORE, "index value *ranges", ""),
        (Ops.PROGRAM, "sink device [linear] [source] [binary]", "stages"),
        (Ops.WMMA, "a b c *ranges", "metadata"),
        (Ops.PARAM, "[device]", "slot size"),
        (Ops.PAD, "src begin_pads end_pads", ""),
        (Ops.DEFINE_VAR, "", "name min_val max_val"),
        (Ops.WHERE, "a b c", ""),
    ],
    ids=lambda value: value.name if isinstance(value, Ops) else "",
)
def test_layout(op, sources, args):
    spec = OPS[op]
    assert " ".join(map(str, spec.sources)) == sources
    assert " ".join(spec.args) == args


def test_number_of_sources():
    assert (OPS[Ops.LOAD].min_src, OPS[Ops.LOAD].max_src) == (2, 3)
    assert (OPS[Ops.STORE].min_src, OPS[Ops.STORE].max_src) == (2, None)
    assert (OPS[Ops.CONST].min_src, OPS[Ops.CONST].max_src) == (0, 0)


def test_axis_priorities_are_the_guides():
    priorities = {axis.name: axis.priority for axis in AxisType}
    assert priorities == {
        "PLACEHOLDER": -3,
        "LOOP": -1,
        "GLOBAL": 0,
        "THREAD": 0,
        "WARP": 1,
        "LOCAL": 2,
        "GROUP_REDUCE": 2,
        "UPCAST": 3,
        "REDUCE": 4,
        "UNROLL": 5,
    }
    assert str(AxisType.GROUP_REDUCE) == "GroupReduce"
    assert [axis for axis in AxisType if axis.is_reduce] == [
        AxisType.GROUP_REDUCE,
        AxisType.REDUCE,
        AxisType.UNROLL,
    ]


@pytest.mark.parametrize(
    ("op", "dtype", "identity"),
    [
        (ReduceOp.ADD, dtypes.int32, 0),
        (ReduceOp.MUL, dtypes.float32, 1.0),
        (ReduceOp.MAX, dtypes.float32, float("-inf")),
        (ReduceOp.MAX, dtypes.int8, -128),
        (ReduceOp.MAX, dtypes.bool_, False),
        (ReduceOp.MIN, dtypes.float64, float("inf")),
        (ReduceOp.MIN, dtypes.uint16, 65535),
        (ReduceOp.MIN, dtypes.bool_, True),
        (ReduceOp.ADD, dtypes.float32.vec(4), 0.0),
    ],
)
def test_identity_of_reductions(op, dtype, identity):
    found = op.identity(dtype)
    assert found == identity
    assert type(found) is type(identity)


def test_names_of_records():
    assert str(AxisId(3)) == "U3"
    assert str(AxisId(3, renumbered=True)) == "R3"
    assert str(DeviceSpec()) == "CPU"
    assert DeviceSpec.parse("cpu:2") == DeviceSpec("CPU", 2)
    assert str(DeviceSpec.parse("opencl:1")) == "OPENCL:1"
    assert [op.alu for op in ReduceOp] == [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN]
