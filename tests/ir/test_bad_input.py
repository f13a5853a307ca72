"""Every op built wrongly, in every way that applies to it: refused, at construction or by the
verifier, with the op, the field, what was expected and what was there.

What follows from an op's row (too few or many sources, a wrong argument, a wrong dtype) is tried
for all ops alike; what only the op knows stands in the table below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from morok.dtype import AddrSpace, dtypes
from morok.errors import InvalidGraphError, ShapeError
from morok.ir import (
    OPS,
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    GroupOp,
    KernelInfo,
    Level,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    check_node,
    verify,
)
from morok.tools.examples import example

F32, F16, I32, IDX, BOOL, VOID = (
    dtypes.float32,
    dtypes.float16,
    dtypes.int32,
    dtypes.index,
    dtypes.bool_,
    dtypes.void,
)
Build = Callable[[], UOp]


def refused(op: Ops, build: Build, fields: str, expected: str = "", got: str = "") -> None:
    """`build` fails, or gives a node that the verifier refuses, with an error about `op` and one of
    its `fields` (names, separated by commas)."""
    with pytest.raises((InvalidGraphError, ShapeError)) as caught:
        check_node(build())
    message = caught.value.message
    found = re.fullmatch(rf"{op.name}\.([a-z_0-9, ]+): expected (.+), got (.+)", message, re.S)
    assert found is not None, message
    assert set(found[1].split(", ")) & set(fields.split(", ")), message
    assert expected in found[2]
    assert got in found[3]


# From the rows ------------------------------------------------------------------------------------

BOUNDED = [op for op, spec in OPS.items() if spec.min_src or spec.max_src is not None]
EXTRA = UOp.new_sink()


def rebuilt(node: UOp, **parts: Any) -> Build:
    return lambda: node.replace(**parts)


@pytest.mark.parametrize("op", BOUNDED, ids=lambda op: op.name)
def test_number_of_sources(op: Ops) -> None:
    """One less than the least, one more than the most."""
    node, spec = example(op), OPS[op]
    if spec.min_src:
        names = ", ".join(["src", *(source.name for source in spec.sources)])
        refused(op, rebuilt(node, src=node.src[: spec.min_src - 1]), names)
    if spec.max_src is not None:
        most = (*node.src, *(EXTRA,) * (spec.max_src + 1 - len(node.src)))
        refused(op, rebuilt(node, src=most), "src", got=f"{spec.max_src + 1} sources")


def test_ops_that_take_any_number_of_sources() -> None:
    assert {op.name for op in set(Ops) - set(BOUNDED)} == {
        *("SINK", "TUPLE", "LINEAR", "GROUP", "CUSTOM", "CUSTOM_I", "CUSTOM_FUNCTION")
    }


@pytest.mark.parametrize(
    "op", [op for op in Ops if op is not Ops.CONTIGUOUS], ids=lambda op: op.name
)
def test_argument(op: Ops) -> None:
    """An argument of the wrong kind; CONTIGUOUS takes any hint."""
    spec = OPS[op]
    names = ", ".join(spec.args) or "arg"
    if op is Ops.INDEX:
        names += ", indices"  # what was the gate is one index too many
    wrong = "1" if op is Ops.CONST else -1.5
    refused(op, rebuilt(example(op), arg=wrong), names)


ANY_DTYPE = {
    Ops.CUSTOM: "its text says what it is",
    Ops.AFTER: "a statement may come after another",
    Ops.BARRIER: "a statement may wait",
    Ops.CALL: "that of its body, tested below",
}


@pytest.mark.parametrize("op", [op for op in Ops if op not in ANY_DTYPE], ids=lambda op: op.name)
def test_dtype(op: Ops) -> None:
    """A value where there is none, none where there is one."""
    node = example(op)
    wrong = F32 if node.dtype is VOID else VOID
    refused(op, rebuilt(node, dtype=wrong), "dtype, value, values", got="")


@pytest.mark.parametrize("op", sorted(GroupOp.ALU), ids=lambda op: op.name)
def test_operands_of_arithmetic(op: Ops) -> None:
    """A source without a value; operands of different dtypes."""
    node = example(op)
    refused(op, rebuilt(node, src=(EXTRA, *node.src[1:])), "a")
    if OPS[op].arity > 1:
        other = UOp.const(I32 if node.src[-1].dtype is F32 else F32, 1)
        refused(op, rebuilt(node, src=(*node.src[:-1], other)), "b, c", str(node.src[-1].dtype))


# Of single ops ------------------------------------------------------------------------------------

ONE = UOp.const(F32, 1.0)
INT = UOp.const(I32, 1)
ZERO = UOp.const(IDX, 0)
TRUE = UOp.const(BOOL, True)
LOOP = UOp.range(4, 0)
MEMORY = UOp.param(0, F32.ptr(), 8)
OTHER = UOp.param(1, F32.ptr(), 8)
X = UOp.new_buffer(F32, 6).reshape((2, 3))
CPU = UOp.new_device()
KERNEL = UOp.new_sink(info=KernelInfo("k"))
VEC = UOp.vconst(F32, (1.0, 2.0))
STORE = MEMORY.at(LOOP).store(ONE)
STACK = UOp.mstack(X, X)
PAIR = UOp.new_tuple(X, X.cast(I32))
DOUBLE = KERNEL.function(MEMORY, OTHER)
TILE = WmmaMetadata("t", (1, 2, 1), F16, F32, "none", 1)


def ranged(op: Ops, start: int) -> dict[str, tuple[Ops, Build, str, str, str]]:
    """A range-ending op that closes what is no range, and one range twice."""
    node = example(op)
    opened = node.src[:start]

    def closing(*ended: UOp) -> Build:
        return rebuilt(node, src=(*opened, *ended))

    return {
        f"{op.name} of no range": (op, closing(ONE.cast(I32)), "ranges", "RANGE", "CAST"),
        f"{op.name} of a range twice": (op, closing(LOOP, LOOP), "ranges", "once", "twice"),
    }


TABLE: dict[str, tuple[Ops, Build, str, str, str]] = {
    **ranged(Ops.END, 1),
    **ranged(Ops.REDUCE, 1),
    **ranged(Ops.BUFFERIZE, 1),
    **ranged(Ops.STORE, 2),
    **ranged(Ops.WMMA, 3),
    "range of a float": (Ops.RANGE, lambda: UOp.range(ONE, 0), "end", "an index", "Float32"),
    "range below zero": (Ops.RANGE, lambda: UOp.range(-1, 0), "end", "not negative", "-1"),
    "range after a store": (
        *(Ops.RANGE, lambda: UOp.range(4, 0, deps=(STORE,)), "deps", "RANGE", "STORE"),
    ),
    "work-items of a float": (
        *(Ops.SPECIAL, lambda: UOp.special("lidx0", ONE), "end", "an index", "Float32"),
    ),
    "axis out of range": (
        *(Ops.REDUCE_AXIS, lambda: X.reduce_axis(ReduceOp.ADD, (2,)), "axes", "(2, 3)", "(2,)"),
    ),
    "reduction on no device": (
        *(Ops.ALLREDUCE, lambda: X.allreduce(ReduceOp.ADD, X), "device", "DEVICE", "RESHAPE"),
    ),
    "buffer without identity": (
        *(Ops.BUFFER, lambda: UOp.new_buffer(F32, 4, CPU, CPU), "unique", "UNIQUE", "DEVICE"),
    ),
    "buffer on no device": (
        *(Ops.BUFFER, lambda: UOp.new_buffer(F32, 4, ONE), "device", "DEVICE", "CONST"),
    ),
    "buffer of pointers": (
        *(Ops.BUFFER, lambda: UOp.new_buffer(F32.ptr(), 4), "dtype", "an element", "Float32*"),
    ),
    "view behind the end": (
        *(Ops.BUFFER_VIEW, lambda: X.src[0].buffer_view(4, 3), "size", "6 elements", "7"),
    ),
    "view of no flat buffer": (
        *(Ops.BUFFER_VIEW, lambda: X.buffer_view(1, 0), "buffer", "a flat buffer", "(2, 3)"),
    ),
    "too many indices": (
        *(Ops.INDEX, lambda: X.at(LOOP, LOOP, LOOP), "indices", "at most 2", "3 indices"),
    ),
    "index of a float": (Ops.INDEX, lambda: MEMORY.at(ONE), "indices", "an index", "Float32"),
    "gate not bool": (Ops.INDEX, lambda: MEMORY.at(0, gate=ONE), "gate", "Bool", "Float32"),
    "offset from no pointer": (
        *(Ops.POINTER_INDEX, lambda: ONE.pointer_index(4), "ptr", "a pointer", "Float32"),
    ),
    "offset of a float": (
        *(Ops.POINTER_INDEX, lambda: MEMORY.pointer_index(ONE), "offset", "bytes", "Float32"),
    ),
    "load of no address": (Ops.LOAD, ONE.load, "index", "an INDEX", "CONST"),
    "load of another buffer": (
        Ops.LOAD,
        lambda: UOp(Ops.LOAD, F32, (OTHER, MEMORY.at(0))),
        *("buffer", "the buffer of its INDEX", "PARAM"),
    ),
    "alternative without gate": (
        *(Ops.LOAD, lambda: MEMORY.at(0).load(ONE), "alt", "a gated INDEX", "without gate"),
    ),
    "alternative of another dtype": (
        *(Ops.LOAD, lambda: MEMORY.at(0, gate=TRUE).load(INT), "alt", "Float32", "Int32"),
    ),
    "store of another dtype": (
        *(Ops.STORE, lambda: MEMORY.at(0).store(INT), "value", "Float32", "Int32"),
    ),
    "sink of an index": (
        *(Ops.SINK, lambda: UOp.new_sink(LOOP + 1), "sources", "statements", "ADD of Index"),
    ),
    "call with a statement": (Ops.CALL, lambda: KERNEL.call(STORE), "args", "values", "STORE"),
    "call with too few": (Ops.CALL, lambda: DOUBLE.call(X), "args", "2 arguments", "1 arguments"),
    "call as a value": (
        *(Ops.CALL, lambda: UOp(Ops.CALL, F32, (KERNEL,), CallInfo()), "dtype", "Void", "Float32"),
    ),
    "function of a value": (
        *(Ops.FUNCTION, lambda: KERNEL.function(ONE), "args", "PARAM", "CONST"),
    ),
    "item of a value": (Ops.GET_TUPLE, lambda: X.get_tuple(0), "src", "a TUPLE", "RESHAPE"),
    "item out of range": (Ops.GET_TUPLE, lambda: PAIR.get_tuple(2), "index", "below 2", "2"),
    "item of a call out of range": (
        *(Ops.GET_TUPLE, lambda: PAIR.function().call().get_tuple(5), "index", "below 2", "5"),
    ),
    "item of another dtype": (
        *(Ops.GET_TUPLE, lambda: UOp(Ops.GET_TUPLE, F32, (PAIR,), 1), "dtype", "Int32", "Float32"),
    ),
    "after, of another dtype": (
        *(Ops.AFTER, lambda: UOp(Ops.AFTER, I32, (ONE, STORE)), "dtype", "Float32", "Int32"),
    ),
    "barrier of another dtype": (
        *(Ops.BARRIER, lambda: UOp(Ops.BARRIER, I32, (ONE,)), "dtype", "Float32", "Int32"),
    ),
    "vector of vectors": (
        *(Ops.VECTORIZE, lambda: UOp.vectorize(ONE, VEC), "elements", "scalars", "<2 x Float32>"),
    ),
    "lane out of range": (Ops.GEP, lambda: VEC.gep([0, 2]), "indices", "below 2", "[0, 2]"),
    "constants too few": (
        Ops.VCONST,
        lambda: UOp(Ops.VCONST, F32.vec(3), (), (1.0, 2.0)),
        *("values", "3 values", "2"),
    ),
    "joined with another dtype": (
        *(Ops.CAT, lambda: UOp.cat(VEC, UOp.vconst(I32, (1, 2))), "sources", "Float32", "Int32"),
    ),
    "joined values as addresses": (
        *(Ops.PTRCAT, lambda: UOp.ptrcat(ONE, ONE), "sources", "INDEX", "CONST"),
    ),
    "unrolled unevenly": (
        Ops.UNROLL,
        lambda: UOp(Ops.UNROLL, F32, (VEC,), ((0, 3),)),
        *("unroll_axes", "2 lanes", "((0, 3),)"),
    ),
    "unrolled along an axis twice": (
        Ops.UNROLL,
        lambda: UOp(Ops.UNROLL, F32, (VEC,), ((0, 2), (0, 1))),
        *("unroll_axes", "(axis, factor)", "((0, 2), (0, 1))"),
    ),
    "unrolled to too many lanes": (
        Ops.UNROLL,
        lambda: UOp(Ops.UNROLL, F32.vec(2), (VEC,), ((0, 2),)),
        *("dtype", "1 lanes", "<2 x Float32>"),
    ),
    "contracted to too few": (
        Ops.CONTRACT,
        lambda: UOp(Ops.CONTRACT, F32.vec(2), (ONE,), ((0, 4),)),
        *("dtype", "4 lanes", "<2 x Float32>"),
    ),
    "tile of another dtype": (
        Ops.WMMA,
        lambda: UOp.wmma(VEC, ONE.cast(F16), VEC, TILE),
        "a",
        "Float16",
        "Float32",
    ),
    "tile of other lanes": (
        Ops.WMMA,
        lambda: rebuilt(
            example(Ops.WMMA),
            src=(
                *example(Ops.WMMA).src[:1],
                *example(Ops.WMMA).src[:1],
                *example(Ops.WMMA).src[2:],
            ),
        )(),
        *("b", "4 lanes", "<8 x Float16>"),
    ),
    "condition not bool": (Ops.IF, lambda: UOp.if_(ONE, STORE), "condition", "Bool", "Float32"),
    "end of no if": (Ops.ENDIF, STORE.endif, "if_op", "IF", "STORE"),
    "parameter on no device": (
        *(Ops.PARAM, lambda: UOp.param(0, F32, 4, ONE), "device", "DEVICE", "CONST"),
    ),
    "local memory elsewhere": (
        Ops.DEFINE_LOCAL,
        lambda: UOp(Ops.DEFINE_LOCAL, F32.ptr(), (), (0, 4)),
        *("dtype", "LOCAL", "Float32*"),
    ),
    "register elsewhere": (
        Ops.DEFINE_REG,
        lambda: UOp(Ops.DEFINE_REG, F32.ptr(AddrSpace.LOCAL), (), (4, 0)),
        *("dtype", "REG", "Float32"),
    ),
    "bounds upside down": (
        *(Ops.DEFINE_VAR, lambda: UOp.define_var("n", 3, 1), "max_val", "min <= max", "3"),
    ),
    "bound number": (Ops.BIND, lambda: ZERO.bind(0), "var", "DEFINE_VAR", "CONST"),
    "bound out of bounds": (
        *(Ops.BIND, lambda: UOp.define_var("n", 1, 3).bind(4), "value", "n within 1..3", "4"),
    ),
    "bound to another dtype": (
        *(Ops.BIND, lambda: UOp.define_var("n", 1, 3).bind(INT), "value", "Index", "Int32"),
    ),
    "constant too wide": (
        *(Ops.CONST, lambda: UOp(Ops.CONST, dtypes.uint8, (), 256), "value", "UInt8", "256"),
    ),
    "other size": (Ops.RESHAPE, lambda: X.reshape((4, 2)), "new_shape", "6 elements", "8"),
    "expanded where it is": (Ops.EXPAND, lambda: X.expand((2, 6)), "new_shape", "size 3", "6"),
    "axis twice": (Ops.PERMUTE, lambda: X.permute((0, 0)), "axes", "permutation", "(0, 0)"),
    "pads too few": (Ops.PAD, lambda: X.pad((1,), (0, 0)), "begin_pads", "two pads", "(1,)"),
    "region outside": (Ops.SHRINK, lambda: X.shrink((0, 0), (2, 4)), "ends", "<= 3", "(2, 4)"),
    "flags too few": (Ops.FLIP, lambda: X.flip((True,)), "axes", "one flag", "(True,)"),
    "copy to no device": (Ops.COPY, lambda: X.copy_to(ONE), "device", "DEVICE", "CONST"),
    "stack of dtypes": (
        *(Ops.MSTACK, lambda: UOp.mstack(X, X.cast(I32)), "buffers", "Float32", "Int32"),
    ),
    "stack of shapes": (
        *(Ops.MSTACK, lambda: UOp.mstack(X, X.permute((1, 0))), "buffers", "(2, 3)", "(3, 2)"),
    ),
    "one of a single value": (
        *(Ops.MSELECT, lambda: X.mselect(0), "buffer", "MSTACK or MULTI", "RESHAPE"),
    ),
    "device out of range": (
        *(Ops.MSELECT, lambda: STACK.mselect(2), "device_index", "below 2", "2"),
    ),
    "shards of a single value": (Ops.MULTI, lambda: X.multi(0), "src", "MSTACK", "RESHAPE"),
    "shards along no axis": (Ops.MULTI, lambda: STACK.multi(2), "axis", "(2, 3)", "2"),
    "bits of another width": (
        *(Ops.BITCAST, lambda: ONE.bitcast(dtypes.int16), "dtype", "as many bits", "Int16"),
    ),
    "cast to lanes": (
        *(Ops.CAST, lambda: UOp(Ops.CAST, F32.vec(2), (INT,)), "dtype", "1 lanes", "<2 x Float32>"),
    ),
    "shapes that differ": (
        *(Ops.ADD, lambda: X + X.permute((1, 0)), "src", "one shape", "(2, 3) and (3, 2)"),
    ),
    "no elements": (Ops.VECTORIZE, lambda: UOp.vectorize(), "src", "elements", "0 sources"),
    "nothing to join": (Ops.CAT, lambda: UOp.cat(), "src", "sources", "0 sources"),
    "device without a name": (
        *(Ops.DEVICE, lambda: UOp.new_device(""), "spec", "name in capitals", "name=''"),
    ),
    "axis id below zero": (*(Ops.RANGE, lambda: UOp.range(4, -1), "axis_id", "AxisId", "-1"),),
    "more lanes than the place has": (
        Ops.STORE,
        lambda: MEMORY.at(7).store(UOp.vconst(F32, (1.0, 2.0))),
        *("value", "1 lanes", "<2 x Float32>"),
    ),
    "gate of other lanes": (
        Ops.INDEX,
        lambda: MEMORY.at(0, gate=UOp.vconst(BOOL, (True, False))),
        *("gate", "lanes of Float32", "<2 x Bool>"),
    ),
    "number of an address": (Ops.CAST, lambda: MEMORY.cast(F32), "dtype", "a pointer", "Float32"),
    "format of nothing": (Ops.CUSTOM, lambda: UOp.custom("f({0})"), "format", "below 0", "{0}"),
    "format of a word": (
        *(Ops.CUSTOM_I, lambda: UOp.custom_i("{x}", F32, ONE), "format", "below 1", "{x}"),
    ),
    "format without end": (
        *(Ops.CUSTOM_I, lambda: UOp.custom_i("{0", F32, ONE), "format", "a format string", "{0"),
    ),
    "format in two ways": (
        *(Ops.CUSTOM_I, lambda: UOp.custom_i("{} {0}", F32, ONE), "format", "not both", "{} {0}"),
    ),
    "program filled out of order": (
        Ops.PROGRAM,
        lambda: UOp.program(KERNEL, CPU, UOp.new_source("")),
        *("linear", "LINEAR", "SOURCE"),
    ),
}
for _op in (Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.PRECAST, Ops.NOOP):
    TABLE[f"{_op.name} of a statement"] = (
        *(_op, lambda op=_op: UOp(op, VOID, (STORE,)), "src", "a value", "STORE"),
    )


@pytest.mark.parametrize("name", TABLE)
def test_what_only_the_op_knows(name: str) -> None:
    refused(*TABLE[name])


# Of whole graphs ----------------------------------------------------------------------------------


def loop(number: int, size: int = 4) -> UOp:
    return UOp.range(size, number, AxisType.LOOP, renumbered=True)


I = loop(0)  # noqa: E741
WRITE = MEMORY.at(I).store(OTHER.at(I))
REG = UOp.define_reg(F32, 1, 0)
FOUR = UOp.const(I32, 4)
PLACEHOLDER = UOp.range(4, 0, AxisType.PLACEHOLDER, renumbered=True)
GRAPHS: dict[str, tuple[UOp, Level, Ops, str, str]] = {
    "range closed twice": (
        UOp.new_sink(MEMORY.at(I).store(ONE, I).close(I), info=KernelInfo("k")),
        *(Level.KERNEL, Ops.END, "ranges open", "R0, which is not"),
    ),
    "range left open": (
        UOp.new_sink(WRITE, info=KernelInfo("k")),
        *(Level.KERNEL, Ops.RANGE, "every range closed", "R0 left open"),
    ),
    "axis of two ranges": (
        UOp.new_sink(
            WRITE.close(I), MEMORY.at(loop(0, 2)).store(ONE, loop(0, 2)), info=KernelInfo("k")
        ),
        *(Level.KERNEL, Ops.RANGE, "one RANGE", "R0"),
    ),
    "placeholder in a kernel": (
        UOp.new_sink(MEMORY.at(PLACEHOLDER).store(ONE, PLACEHOLDER), info=KernelInfo("k")),
        *(Level.KERNEL, Ops.RANGE, "a loop of the kernel", "Placeholder"),
    ),
    "index outside": (
        UOp.new_sink(MEMORY.at(loop(0, 9)).store(ONE, loop(0, 9)), info=KernelInfo("k")),
        *(Level.KERNEL, Ops.INDEX, "within 0..7", "0..8"),
    ),
    "store to a value": (
        X.after((X + 1.0).store(X)),
        *(Level.TENSOR, Ops.STORE, "a view of a buffer", "ADD"),
    ),
    "store of another shape": (
        X.after(X.store(X.shrink((0, 0), (1, 3)))),
        *(Level.TENSOR, Ops.STORE, "shape (2, 3)", "shape (1, 3)"),
    ),
    "register in a tensor graph": (REG, Level.TENSOR, Ops.DEFINE_REG, "tensor level", "DEFINE_REG"),
    "parameter that is no pointer": (
        UOp.new_sink(UOp.param(0, F32, 8).at(I).store(ONE, I), info=KernelInfo("k")),
        *(Level.KERNEL, Ops.PARAM, "a pointer", "Float32"),
    ),
    "kernel of nothing": (
        UOp.new_sink(info=KernelInfo("k")),
        *(Level.KERNEL, Ops.SINK, "statements", "none"),
    ),
    "kernel of a value": (
        UOp.new_sink(ONE, info=KernelInfo("k")),
        *(Level.KERNEL, Ops.SINK, "statements", "CONST of Float32"),
    ),
    "sum stored in the loop it has closed": (
        UOp.new_sink(
            MEMORY.at(0).store(MEMORY.at(I).reduce(ReduceOp.ADD, I), I), info=KernelInfo("k")
        ),
        *(Level.KERNEL, Ops.STORE, "open in the computation", "R0"),
    ),
    "sum of a sum over its loop": (
        UOp.new_sink(
            MEMORY.at(0).store(MEMORY.at(I).reduce(ReduceOp.ADD, I).reduce(ReduceOp.MAX, I)),
            info=KernelInfo("k"),
        ),
        *(Level.KERNEL, Ops.REDUCE, "open in the computation", "R0"),
    ),
    "sequence out of order": (
        UOp.new_linear(INT, UOp(Ops.NEG, I32, (FOUR,)), FOUR),
        *(Level.LINEAR, Ops.NEG, "earlier in the list", "CONST"),
    ),
    "index dtype in a sequence": (
        UOp.new_linear(ZERO),
        *(Level.LINEAR, Ops.CONST, "a concrete int", "Index"),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_verifier_refuses_graphs(name: str) -> None:
    root, level, op, expected, got = GRAPHS[name]
    with pytest.raises(InvalidGraphError) as caught:
        verify(root, level, stage="a stage")
    error = caught.value
    assert error.node.op is op
    assert expected in str(error.expected)
    assert got in str(error.got)
    assert error.message.startswith(op.name)
    assert "a stage" in str(error)


def test_every_kind_of_range_is_known() -> None:
    """An AxisId and an AxisType are needed, whatever the order."""
    wrong = UOp(Ops.RANGE, IDX, (UOp.const(IDX, 4),), (AxisType.LOOP, AxisId(0)))
    refused(Ops.RANGE, lambda: wrong, "axis_id, axis_type", "(AxisId, AxisType)")


def test_a_dimension_of_one_may_be_a_constant_in_a_bufferize() -> None:
    node = UOp(Ops.BUFFERIZE, F32, (ONE, ZERO, LOOP), BufferizeOpts())
    assert check_node(node) is node
