"""text -> graph -> text is the identity: every op's arguments, every stage of kernels, errors."""

from __future__ import annotations

import math
import sys

import pytest

from morok.codegen import watch_stages
from morok.codegen.pipeline import run_pipeline
from morok.dtype import AddrSpace, dtypes, from_bits
from morok.errors import InvalidGraphError
from morok.ir import (
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    Invalid,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    WmmaUpcastAxes,
    parse,
)
from morok.optimizer import apply_opts
from tests.codegen import kernels
from tests.codegen.compiled import renderer

F32 = dtypes.float32
X = UOp.new_buffer(F32, 24)
R = UOp.range(4, 3, AxisType.GROUP_REDUCE, renumbered=True)
U = UOp.range(8, 1, AxisType.LOOP)
MMA = WmmaMetadata(
    "__hmma",
    (8, 16, 16),
    dtypes.float16,
    F32,
    "CUDA",
    upcast_axes=WmmaUpcastAxes(((0, 2),), (), ((1, 2), (2, 2))),
    reduce_axes=((3, 2),),
    tile_grid=(2, 1),
)
GRAPHS = [
    *(UOp.const(F32, v) for v in (1.5, -0.0, math.inf, -math.inf, math.nan, 1e-45)),
    UOp.const(F32, from_bits(0xFFF8000000000001, dtypes.float64)),
    *(UOp.const(dtypes.int64, v) for v in (0, -(1 << 63), (1 << 63) - 1)),
    UOp.const(dtypes.uint64, (1 << 64) - 1),
    UOp.const(dtypes.bool_, True),
    UOp.const(dtypes.bfloat16, 0.5),
    UOp(Ops.CONST, dtypes.index, (), Invalid),
    UOp.vconst(F32, (1.0, math.nan, -0.0, 2.5)),
    UOp.vconst(dtypes.bool_, (True, False)),
    UOp.shape_const((6, 4)),
    UOp.shape_const(()),
    UOp.new_binary(b""),
    R,
    X.reshape((2, 3, 4)).permute((2, 0, 1)),
    UOp(Ops.FLIP, F32, (X.reshape((4, 6)),), (True, False)),
    UOp(Ops.PAD, F32, (X, UOp.shape_const((1,)), UOp.shape_const((2,)))),
    X.reduce_axis(ReduceOp.MIN, (0,)),
    X.at(U),
    X.at(U, gate=U < 3),
    X.at(U).bufferize(U, opts=BufferizeOpts(DeviceSpec("CPU", 1), AddrSpace.LOCAL, False)),
    X.at(U).bufferize(U, opts=BufferizeOpts()),
    UOp(Ops.DEFINE_REG, F32.vec(8).ptr(AddrSpace.REG), (), (2, 5)),
    UOp(Ops.DEFINE_LOCAL, F32.ptr(AddrSpace.LOCAL), (), (1, 64)),
    UOp.param(3, F32.ptr(), 100),
    UOp(Ops.DEFINE_VAR, dtypes.index, (), ("n_1", 1, 64)),
    UOp.vconst(F32, (0.0, 1.0, 2.0, 3.0)).unroll(((0, 4),)).contract(((0, 4),)),
    UOp.vconst(F32, (0.0, 1.0)).gep([1, 0]),
    UOp(Ops.SOURCE, dtypes.void, (), 'int a = "\\n";\n// ünï, [0] CONST(1) : Int32\n'),
    UOp(Ops.PROGRAM_BINARY, dtypes.void, (), bytes(range(256))),
    UOp(Ops.SINK, dtypes.void, (X.at(U).store(X.at(U), U),), KernelInfo("k, {x}=[1]")),
    UOp(Ops.SINK, dtypes.void, (X,)),
    UOp(Ops.CUSTOM_FUNCTION, dtypes.void, (X,), (CustomFunctionKind.GRAPH, None)),
    UOp(Ops.CUSTOM, F32, (UOp.const(F32, 1.0),), 'f({0}, "}}")'),
    UOp(Ops.DETACH, F32, (X,), 7),
    UOp(Ops.DETACH, F32, (X,)),
    UOp(Ops.NOOP, F32, (X,), "first wins"),
    UOp(Ops.NOOP, F32, (X,)),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=[f"{i}-{g.op.name}" for i, g in enumerate(GRAPHS)])
def test_what_was_printed_parses_to_the_same_node(graph: UOp) -> None:
    assert parse(graph.tree()) is graph


def test_calls_and_tensor_cores() -> None:
    body = UOp(Ops.SINK, dtypes.void, (UOp.param(0, F32, 24),))
    info = CallInfo(name="f", metadata=("a", "b, c"), precompile=True)
    call = UOp(Ops.CALL, dtypes.void, (body, X), info)
    assert parse(call.tree()) is call
    a, b = (
        UOp(Ops.UNROLL, dtypes.float16.vec(n), (UOp.vconst(dtypes.float16, (0.0,) * n),), ())
        for n in (2, 4)
    )
    c = UOp.vconst(F32, (0.0,) * 4)
    wmma = UOp(Ops.WMMA, F32.vec(4), (a, b, c), MMA)
    assert parse(wmma.tree()) is wmma


@pytest.mark.parametrize("name", sorted(kernels.CASES))
def test_kernels_at_every_stage(name: str) -> None:
    sink = apply_opts(kernels.CASES[name]().sink, renderer())
    seen: list[str] = []

    def check(stage: object, graph: UOp) -> None:
        text = graph.tree()
        assert parse(text) is graph
        seen.append(text)

    with watch_stages(check):
        run_pipeline(sink, renderer())
    assert parse(sink.tree()) is sink
    assert len(seen) > 10


def test_deep_graphs_need_no_deep_stack() -> None:
    x = X
    for i in range(3000):
        x = x + float(i)
    text = x.tree()
    limit = sys.getrecursionlimit()
    assert parse(text) is x
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty text"),
        ("CONST(1) : Int32", "line 1: expected"),
        ("[0] CONSTANT(1) : Int32", "no op CONSTANT"),
        ("[0] CONST(1) : Int31", "Int31"),
        ("[0] CONST(1] : Int32", "line 1"),
        ("[0] RANGE(end=1, axis_id=R0, type=Lop) : Index\n└── [1] CONST(1) : Index", "Lop"),
        ("[0] NEG : Int32\n└── → [3]", r"\[3\] is named and stands nowhere"),
        ("[0] NEG : Int32\n└── → [0]", "below itself"),
        ("[0] NEG : Int32\n    └── [1] CONST(1) : Int32", "deeper"),
        ("[0] NEG : Int32\n└── [0] CONST(1) : Int32", "second time"),
        (f"[{'9' * 5000}] CONST(1) : Int32", "line 1: expected"),
        (f"[0] CONST(1) : <{'9' * 5000} x Int32>", "is not a dtype"),
        ("[0] CONST(1) : <99999 x Int32>", "1 to 65535 lanes"),
        (f"[0] CONST({'9' * 5000}) : Int32", "arguments of CONST"),
        ("[0] CONST({True) : Bool", "fields in braces"),
        ('[0] SINK(info={nam="x"})', "no field 'nam'"),
        ("[0] GEP([0], 1) : Int32\n└── [1] VCONST([1, 2]) : <2 x Int32>", "left over"),
    ],
)
def test_what_is_no_graph_names_the_line(text: str, why: str) -> None:
    with pytest.raises(InvalidGraphError, match=why):
        parse(text)
