"""Local well-formedness: what is refused, by op, field, expected and got, and what passes.

`test_bad_input` builds every op wrongly; here are the finer points: lanes, kinds, limits of values.
"""

from __future__ import annotations

import pytest

from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import (
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    Invalid,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    check_node,
)

F32, I32, IDX, BOOL, VOID = (
    dtypes.float32,
    dtypes.int32,
    dtypes.index,
    dtypes.bool_,
    dtypes.void,
)


def const(value, dtype=F32):
    return UOp.const(dtype, value)


ONE, TWO = const(1.0), const(2.0)
ZERO = const(0, IDX)
TRUE = const(True, BOOL)
LOOP = UOp.range(4, 0)
MEMORY = UOp.param(0, F32.ptr(), 8)
PLACE = MEMORY[LOOP]
GATED = MEMORY.at(LOOP, gate=LOOP < 3)
CPU = UOp.new_device()
SINK = UOp.new_sink(info=KernelInfo("k"))
VEC = UOp.vconst(F32, (1.0, 2.0))

# (what is built, field at fault, part of what was expected, part of what was got)
REFUSED = {
    # source counts
    "store without value": (UOp(Ops.STORE, VOID, (PLACE,)), "src", "index, value", "1 sources"),
    "load of four": (UOp(Ops.LOAD, F32, (MEMORY, PLACE, ONE, ONE)), "src", "[alt]", "4 sources"),
    "gate missing": (
        UOp(Ops.INDEX, F32, (UOp.define_reg(F32, 1, 0),), True),
        "src",
        "[gate]",
        "1 sources",
    ),
    # arguments
    "range of int": (UOp(Ops.REDUCE, F32, (ONE,), "ADD"), "reduce_op", "a ReduceOp", "'ADD'"),
    "buffer of -1": (UOp(Ops.BUFFER, F32, (UOp.new_unique(), CPU), -1), "size", "elements", "-1"),
    "bufferize": (UOp(Ops.BUFFERIZE, F32, (ONE, LOOP)), "opts", "BufferizeOpts", "None"),
    "index": (UOp(Ops.INDEX, F32, (MEMORY, ZERO)), "has_gate", "a bool", "None"),
    "sink": (UOp(Ops.SINK, VOID, (), 3), "info", "KernelInfo or None", "3"),
    "call": (UOp(Ops.CALL, VOID, (SINK,)), "info", "CallInfo", "None"),
    "gep": (UOp(Ops.GEP, F32, (VEC,), 0), "indices", "a tuple of indices", "0"),
    "special": (UOp(Ops.SPECIAL, IDX, (ZERO,), 3), "name", "a name", "3"),
    "param": (UOp(Ops.PARAM, F32, (), (0, -4)), "slot, size", "(slot, size)", "(0, -4)"),
    "variable": (
        UOp(Ops.DEFINE_VAR, IDX, (), ("n", 5, 1)),
        "name, min_val, max_val",
        "min <= max",
        "5",
    ),
    "permute": (UOp(Ops.DETACH, F32, (ONE,), -1), "mark", "a mark or None", "-1"),
    "program": (UOp(Ops.PROGRAM, VOID, (SINK, CPU), ("source",)), "stages", "a head of", "source"),
    "custom": (
        UOp(Ops.CUSTOM_FUNCTION, VOID, (), (CustomFunctionKind.GRAPH,)),
        "kind, payload",
        "(CustomFunctionKind, payload)",
        "GRAPH",
    ),
    # constants
    "int in float": (UOp(Ops.CONST, F32, (), 1), "value", "a value of Float32", "1"),
    "float in int": (UOp(Ops.CONST, I32, (), 1.0), "value", "a value of Int32", "1.0"),
    "bool in int": (UOp(Ops.CONST, I32, (), True), "value", "a value of Int32", "True"),
    "invalid float": (UOp(Ops.CONST, F32, (), Invalid), "value", "a value of Float32", "Invalid"),
    "vconst kind": (UOp(Ops.VCONST, F32.vec(2), (), (1.0, 2)), "values", "Float32", "2"),
    # dtypes
    "comparison": (UOp(Ops.LT, F32, (ONE, TWO)), "dtype", "Bool", "Float32"),
    "sum": (UOp(Ops.ADD, I32, (ONE, TWO)), "dtype", "Float32", "Int32"),
    "range": (
        UOp(Ops.RANGE, F32, (ZERO,), (AxisId(0), AxisType.LOOP)),
        "dtype",
        "Index or a concrete int",
        "Float32",
    ),
    "vector": (UOp(Ops.VECTORIZE, F32.vec(3), (ONE, TWO)), "dtype", "2 lanes of Float32", "3"),
    "element": (
        UOp(Ops.INDEX, I32, (MEMORY, ZERO), False),
        "dtype",
        "element type Float32",
        "Int32",
    ),
    "load": (UOp(Ops.LOAD, I32, (MEMORY, PLACE)), "dtype", "lanes of Float32", "Int32"),
    "reduce": (UOp(Ops.REDUCE, I32, (ONE, LOOP), ReduceOp.ADD), "dtype", "Float32", "Int32"),
    # operands
    "mixed sum": (UOp(Ops.ADD, F32, (ONE, const(1, I32))), "b", "Float32", "Int32"),
    "arms": (UOp(Ops.WHERE, F32, (TRUE, ONE, const(1, I32))), "c", "Float32", "Int32"),
    "condition": (UOp(Ops.WHERE, F32, (ONE, ONE, TWO)), "a", "Bool", "Float32"),
    "condition lanes": (UOp(Ops.WHERE, F32.vec(2), (TRUE, VEC, VEC)), "a", "<2 x Float32>", "Bool"),
    "sqrt of int": (UOp(Ops.SQRT, I32, (const(1, I32),)), "a", "float", "Int32"),
    "and of float": (UOp(Ops.AND, F32, (ONE, TWO)), "a", "bool or int", "Float32"),
    "shift of bool": (UOp(Ops.SHL, BOOL, (TRUE, TRUE)), "a", "int", "Bool"),
    "neg of bool": (UOp(Ops.NEG, BOOL, (TRUE,)), "a", "int or uint or float", "Bool"),
    "gep width": (UOp(Ops.GEP, F32, (VEC,), (0, 1)), "dtype", "2 lanes of Float32", "Float32"),
    "cat width": (UOp(Ops.CAT, F32.vec(3), (VEC, VEC)), "dtype", "4 lanes", "<3 x Float32>"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    node, field, expected, got = REFUSED[name]
    with pytest.raises(InvalidGraphError) as caught:
        check_node(node, "some stage")
    error = caught.value
    assert error.node is node
    assert error.stage == "some stage"
    assert error.rule
    assert expected in error.expected
    assert got in error.got
    text = str(error)
    assert text.startswith(f"{node.op.name}.{field}: expected")
    assert f"[0] {node.op.name}" in text  # the printed sub-tree


ACCEPTED = [
    GATED.load(ONE),
    UOp(Ops.RANGE, I32, (const(4, I32),), (AxisId(0), AxisType.LOOP)),  # lowered
    UOp(Ops.REDUCE, F32, (VEC, LOOP), ReduceOp.ADD),  # lanes are reduced as well
    MEMORY[UOp.vconst(IDX, (0, 2))].store(VEC),
    UOp(Ops.BUFFERIZE, F32, (ONE, ZERO, LOOP), BufferizeOpts()),  # a dimension of size 1
    UOp(Ops.CALL, VOID, (SINK, UOp.new_buffer(F32, 4), LOOP), CallInfo()),
    UOp(Ops.CONST, IDX, (), Invalid),
    ONE.detach(3),
    ONE.contiguous("hint"),
    TRUE + TRUE,
]


@pytest.mark.parametrize("node", ACCEPTED, ids=lambda node: node.op.name)
def test_accepted(node):
    assert check_node(node) is node


def test_builders_check_at_once():
    with pytest.raises(InvalidGraphError, match=r"STORE\.value"):
        PLACE.store(const(1, I32))
    with pytest.raises(InvalidGraphError, match=r"REDUCE\.ranges"):
        ONE.reduce(ReduceOp.ADD, LOOP, LOOP)
    with pytest.raises(InvalidGraphError, match=r"RANGE\.end"):
        UOp.range(-1, 0)
    with pytest.raises(InvalidGraphError, match=r"LOAD\.alt"):
        PLACE.load(ONE)
