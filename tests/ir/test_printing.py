"""Trees in the guide's form, and Python source that rebuilds a node."""

from __future__ import annotations

import pytest

from morok.dtype import AddrSpace, dtypes
from morok.ir import (
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    WmmaUpcastAxes,
)
from morok.ir.printing import MAX_DEPTH

F32 = dtypes.float32


def const(value):
    return UOp.const(F32, value)


# The guide's example trees -----------------------------------------------------------------------


def test_range():
    r = UOp.range(128, 0, AxisType.GLOBAL, renumbered=True)
    assert r.tree(ids=False) == (
        "RANGE(end=128, axis_id=R0, type=Global)\n"
        "└── CONST(128) : Index"
    )  # fmt: skip
    assert r.tree() == (
        "[0] RANGE(end=128, axis_id=R0, type=Global) : Index\n"
        "└── [1] CONST(128) : Index"
    )  # fmt: skip


def test_reduce_axis_of_a_shaped_buffer():
    x = UOp.new_buffer(F32, 200).reshape((10, 20))
    assert x.reduce_axis(ReduceOp.ADD, (1,)).tree(ids=False) == (
        "REDUCE_AXIS(Add, axes=[1])\n"
        "└── BUFFER[10, 20] : Float32"
    )  # fmt: skip


def test_reshape():
    x = UOp.new_buffer(F32, 24).reshape((2, 3, 4)).reshape((6, 4))
    assert x.tree(ids=False) == (
        "RESHAPE(new_shape=[6, 4]) : Shape[6, 4]\n"
        "├── BUFFER[2, 3, 4] : Float32\n"
        "└── CONST([6, 4]) : Shape"
    )


def test_vectors():
    v = UOp.vectorize(const(1.0), const(2.0), const(3.0), const(4.0))
    assert v.gep([0, 2]).tree(ids=False) == (
        "GEP([0, 2]) : <2 x Float32>\n"
        "└── VECTORIZE : <4 x Float32>\n"
        "    ├── CONST(1.0)\n"
        "    ├── CONST(2.0)\n"
        "    ├── CONST(3.0)\n"
        "    └── CONST(4.0)"
    )
    assert UOp.cat(v, v).tree(ids=False).splitlines()[0] == "CAT : <8 x Float32>"


def test_contract_of_unroll():
    lanes = UOp.vconst(F32, (0.0, 1.0, 2.0, 3.0)).unroll(((0, 4),))
    assert lanes.contract(((0, 4),)).tree(ids=False).splitlines()[:2] == [
        "CONTRACT(upcast_ranges=[(0, 4)]) : <4 x Float32>",
        "└── UNROLL(unroll_axes=[(0, 4)])",
    ]


def test_a_kernel():
    i = UOp.range(4, 0, AxisType.GLOBAL, renumbered=True)
    k = UOp.range(64, 1, AxisType.REDUCE, renumbered=True)
    a, b, c = (UOp.param(slot, F32.ptr(), 256) for slot in (1, 2, 0))
    product = a[i * 64 + k].load() * b[k].load()
    sink = UOp.new_sink(c[i].store(product.reduce(ReduceOp.ADD, k), i))
    assert sink.tree(ids=False) == (
        "SINK\n"
        "└── STORE\n"
        "    ├── INDEX : Float32\n"
        "    │   ├── PARAM(0)\n"
        "    │   └── RANGE(end=4, axis_id=R0, type=Global)\n"
        "    │       └── CONST(4) : Index\n"
        "    ├── REDUCE(Add)\n"
        "    │   ├── MUL\n"
        "    │   │   ├── LOAD : Float32\n"
        "    │   │   │   ├── PARAM(1)\n"
        "    │   │   │   └── INDEX : Float32\n"
        "    │   │   │       ├── PARAM(1)\n"
        "    │   │   │       └── ADD\n"
        "    │   │   │           ├── MUL\n"
        "    │   │   │           │   ├── RANGE(R0, Global)\n"
        "    │   │   │           │   └── CONST(64) : Index\n"
        "    │   │   │           └── RANGE(end=64, axis_id=R1, type=Reduce)\n"
        "    │   │   │               └── CONST(64) : Index\n"
        "    │   │   └── LOAD : Float32\n"
        "    │   │       ├── PARAM(2)\n"
        "    │   │       └── INDEX : Float32\n"
        "    │   │           ├── PARAM(2)\n"
        "    │   │           └── RANGE(R1, Reduce)\n"
        "    │   └── RANGE(R1, Reduce)\n"
        "    └── RANGE(R0, Global)"
    )


@pytest.mark.parametrize(
    ("node", "guide", "full"),
    [
        (UOp.param(0, F32.ptr(), 24), "PARAM(0)", "PARAM(0, size=24) : Float32*"),
        (UOp.range(9, 3), "RANGE(end=9, axis_id=U3, type=Loop)", None),
        (
            UOp.define_var("batch_size", 1, 128),
            'DEFINE_VAR(name="batch_size", min=1, max=128) : Index',
            None,
        ),
        (
            UOp.special("blockIdx.x", 128),
            'SPECIAL(name="blockIdx.x", end=128) : Index',
            None,
        ),
        (UOp.define_local(F32, 16, 0), "DEFINE_LOCAL(0) : Float32*local", None),
        (UOp.define_reg(F32, 4, 1), "DEFINE_REG(size=4, id=1) : Float32*reg", None),
        (UOp.shape_const((6, 4)), "CONST([6, 4]) : Shape", "CONST([6, 4]) : Shape"),
        (UOp.invalid(), "CONST(Invalid) : Index", None),
        (const(float("nan")), "CONST(nan) : Float32", None),
        (UOp.const(dtypes.bool_, True), "CONST(True) : Bool", None),
        (UOp.vconst(dtypes.int32, (1, 2)), "VCONST([1, 2]) : <2 x Int32>", None),
        (UOp.new_device("CPU:1"), "DEVICE(CPU:1)", "DEVICE(CPU:1)"),
        (UOp.new_unique(7), "UNIQUE(7)", "UNIQUE(7)"),
        (UOp.new_source('a "b"'), 'SOURCE("a \\"b\\"")', 'SOURCE("a \\"b\\"")'),
        (UOp.new_binary(b"\x01\xff"), "PROGRAM_BINARY(2 bytes)", "PROGRAM_BINARY(01ff)"),
        (UOp.new_sink(info=KernelInfo("k")), 'SINK(info={name="k"})', 'SINK(info={name="k"})'),
        (
            UOp.new_sink(info=KernelInfo("k", axis_types=(AxisType.GLOBAL,), streaming=True)),
            'SINK(info={name="k", axis_types=[Global], streaming=True})',
            None,
        ),
        (const(1.0).bufferize(), "BUFFERIZE(opts={addrspace=Global})", None),
        (
            const(1.0).bufferize(addrspace=AddrSpace.LOCAL, removable=False),
            "BUFFERIZE(opts={addrspace=Local, removable=False})",
            None,
        ),
        (UOp.param(0, F32.ptr(), 4)[1], "INDEX : Float32", "INDEX : Float32"),
        (
            UOp.param(0, F32.ptr(), 4).at(1, gate=UOp.const(dtypes.bool_, True)),
            "INDEX(gated) : Float32",
            None,
        ),
        (const(1.0) + 2.0, "ADD", "ADD : Float32"),
        (const(1.0).cast(dtypes.int32), "CAST : Int32", "CAST : Int32"),
        (
            UOp.new_buffer(F32, 6).reshape((2, 3)).permute((1, 0)),
            "PERMUTE(axes=[1, 0]) : Shape[3, 2]",
            "PERMUTE(axes=[1, 0]) : Float32",
        ),
        (
            UOp.new_buffer(F32, 6).pad((1,), (2,)),
            "PAD(begin_pads=[1], end_pads=[2]) : Shape[9]",
            None,
        ),
        (
            UOp.new_buffer(F32, 6).flip((True,)),
            "FLIP(axes=[True]) : Shape[6]",
            None,
        ),
        (
            UOp.new_tuple().function(info=CallInfo("f", metadata=("a",))),
            'FUNCTION(info={name="f", metadata=["a"]})',
            None,
        ),
        (
            UOp(Ops.CUSTOM_FUNCTION, dtypes.void, (), (CustomFunctionKind.ENC_DEC, "x")),
            'CUSTOM_FUNCTION(EncDec, payload="x")',
            None,
        ),
    ],
)
def test_lines(node, guide, full):
    assert node.tree(ids=False).splitlines()[0] == guide
    if full is not None:
        assert node.tree().splitlines()[0] == f"[0] {full}"


def test_wmma_line():
    half = UOp.vconst(dtypes.float16, (1.0,) * 8)
    metadata = WmmaMetadata(
        "__hmma", (16, 16, 16), dtypes.float16, F32, "CUDA", upcast_axes=WmmaUpcastAxes(a=((0, 8),))
    )
    wmma = UOp.wmma(half, half, UOp.vconst(F32, (0.0,) * 8), metadata)
    assert wmma.tree(ids=False).splitlines()[0] == (
        "WMMA(dims=(16, 16, 16), dtype_in=Float16, dtype_out=Float32)"
    )
    assert wmma.tree().splitlines()[0] == (
        '[0] WMMA(name="__hmma", dims=(16, 16, 16), dtype_in=Float16, dtype_out=Float32, '
        'device="CUDA", threads=32, upcast_axes={a=[(0, 8)]}, reduce_axes=(), tile_grid=(1, 1)) '
        ": <8 x Float32>"
    )


def test_ill_formed_nodes_print():
    bad = UOp(Ops.REDUCE, F32, (const(1.0),), (1, 2))
    assert bad.tree(ids=False).splitlines()[0] == "REDUCE(arg=[1, 2])"


# Sharing, depth, size ----------------------------------------------------------------------------


def test_a_node_printed_before_is_referred_to():
    x = const(1.0) + 2.0
    assert (x * x).tree() == (
        "[0] MUL : Float32\n"
        "├── [1] ADD : Float32\n"
        "│   ├── [2] CONST(1.0) : Float32\n"
        "│   └── [3] CONST(2.0) : Float32\n"
        "└── → [1]"
    )
    assert (x * x).tree(ids=False).splitlines()[-1] == "└── ADD …"


def test_text_grows_with_the_graph_not_with_its_paths():
    node = const(1.0)
    for _ in range(100):
        node = node + node
    assert len(node.tree().splitlines()) == 201
    assert len(node.tree(ids=False).splitlines()) == 201


def test_a_deep_chain_prints_as_several_trees():
    node = UOp.define_var("x", 0, 1)
    depth = 50_000
    for _ in range(depth):
        node = node + 1
    text = node.tree()
    lines = text.splitlines()
    assert len(text) < 900 * depth
    assert sum(line.endswith("ADD : Index") for line in lines) == depth
    assert f"[{2 * MAX_DEPTH}]" in text
    # Every node referred to is printed once, at the margin.
    assert sum(line.startswith("[") for line in lines) == -(-depth // MAX_DEPTH)
    assert len(node.pyrender().splitlines()) == depth + 5


def test_ids_count_from_the_root_in_order_of_appearance():
    lines = ((const(1.0) + 2.0) * 3.0).tree().splitlines()
    assert [int(line.split("[")[1].split("]")[0]) for line in lines] == [0, 1, 2, 3, 4]


# Python source -----------------------------------------------------------------------------------


def rebuilt(node):
    scope = {}
    exec(node.pyrender(), scope)
    return scope["root"]


def test_pyrender_reads_like_python():
    r = UOp.range(4, 0, AxisType.GLOBAL, renumbered=True)
    assert (r + 1).pyrender() == (
        "from morok.dtype import dtypes\n"
        "from morok.ir import AxisId, AxisType, Ops, UOp\n"
        "\n"
        "u0 = UOp(Ops.CONST, dtypes.index, (), 4)\n"
        "u1 = UOp(Ops.RANGE, dtypes.index, (u0,), "
        "(AxisId(number=0, renumbered=True), AxisType.GLOBAL))\n"
        "u2 = UOp(Ops.CONST, dtypes.index, (), 1)\n"
        "root = UOp(Ops.ADD, dtypes.index, (u1, u2))\n"
    )


@pytest.mark.parametrize(
    "node",
    [
        const(float("inf")) + const(float("-inf")) * const(float("nan")) - const(-0.0),
        UOp.new_buffer(dtypes.bfloat16, 24, "CPU:1")
        .reshape((4, 6))
        .permute((1, 0))
        .flip((True, False)),
        UOp.define_local(F32, 4, 0)[UOp.vconst(dtypes.index, (0, 1))].load(),
        UOp.new_sink(
            UOp.define_reg(F32, 1, 0)[0].store(0.0),
            info=KernelInfo("k", (AxisType.UPCAST,), (("UPCAST", 0, 4),), estimates=None),
        ),
        UOp(Ops.BUFFERIZE, F32, (const(1.0),), BufferizeOpts(addrspace=AddrSpace.LOCAL)),
        UOp.new_binary(b"\x00\xff"),
        UOp.invalid(),
        UOp.const(dtypes.uint64, 2**64 - 1),
    ],
    ids=range(8),
)
def test_pyrender_rebuilds_the_node(node):
    assert rebuilt(node) is node


def test_repr_is_one_line():
    assert repr(const(1.0) + 2.0) == "<UOp ADD : Float32>"
