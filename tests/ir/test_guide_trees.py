"""The example trees of the field guide, line by line: built, printed and parsed back.

The guide shortens: `STORE(...)` and `KERNEL(...)` (a CALL) stand for whole trees, `...` for
anything, `RANGE(R0, Global)` for a RANGE with its end, `INDEX[R0, R1]` for an INDEX by these
ranges, `A fragment : dtype` for a value. Every other line must be the one that is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import pytest

from morok.dtype import dtypes
from morok.ir import (
    AxisType,
    BufferizeOpts,
    CallInfo,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    parse,
)
from morok.ir.printing import line

F32, F16 = dtypes.float32, dtypes.float16


def loop(number: int, kind: AxisType = AxisType.GLOBAL, end: int = 64) -> UOp:
    return UOp.range(end, number, kind, renumbered=True)


R0, R1, R2 = loop(0), loop(1), loop(2, AxisType.REDUCE)
L1 = loop(1, AxisType.LOCAL)
LOOP1 = loop(1, AxisType.LOOP)


def param(slot: int, *shape: int) -> UOp:
    """A buffer argument; of a shape, which the guide's lines leave out."""
    dims = shape or (64,)
    return UOp.param(slot, F32, prod(dims)).reshape(dims)


def total() -> UOp:
    return (param(1, 64, 64).at(R0, R2).load() * param(2, 64, 64).at(R2, R1).load()).reduce(
        ReduceOp.ADD, R2
    )


def shaped(*dims: int) -> UOp:
    return UOp.new_buffer(F32, prod(dims)).reshape(dims)


def quarters() -> UOp:
    return UOp.vectorize(*(UOp.const(F32, value) for value in (1.0, 2.0, 3.0, 4.0)))


def kernels() -> UOp:
    """Two CALLs, the second of which uses a buffer after the first."""
    first, second = (
        UOp.new_sink(info=KernelInfo(name)).call(UOp.param(0, F32, 8), info=CallInfo(name=name))
        for name in ("a", "b")
    )
    return UOp.new_sink(UOp.param(0, F32, 8).after(first), second)


def condition() -> UOp:
    stores = (param(slot).at(R0).store(1.0) for slot in (0, 1))
    return UOp.if_(R0 < 9, *stores)


def tile() -> UOp:
    metadata = WmmaMetadata("__hmma", (16, 16, 16), F16, F32, "CUDA")
    a, b = (UOp.vconst(F16, (value,) * 8) for value in (1.0, 2.0))
    return UOp.wmma(a, b, UOp.vconst(F32, (0.0,) * 8), metadata)


def load() -> UOp:
    return param(0).at(R0).load()


TREES: dict[str, tuple[Callable[[], UOp], str]] = {
    "range": (
        lambda: loop(0, end=128),
        """
RANGE(end=128, axis_id=R0, type=Global)
└── CONST(128) : Index
""",
    ),
    "end": (
        lambda: param(0, 64, 64).at(R0, L1).store(1.0).close(R0, L1),
        """
END
├── STORE(...)           — computation
├── RANGE(R0, Global)    — the first range closed
└── RANGE(R1, Local)     — the second range closed
""",
    ),
    "reduce_axis": (
        lambda: shaped(10, 20).reduce_axis(ReduceOp.ADD, (1,)),
        """
REDUCE_AXIS(Add, axes=[1])
└── BUFFER[10, 20] : Float32
""",
    ),
    "reduce": (
        total,
        """
REDUCE(Add)
├── MUL                      — the value to accumulate
│   ├── LOAD(A, ...)
│   └── LOAD(B, ...)
└── RANGE(R2, Reduce)        — the range being reduced
    └── CONST(64)
""",
    ),
    "bufferize": (
        lambda: total().bufferize(R0, R1, opts=BufferizeOpts()),
        """
BUFFERIZE(opts={addrspace=Global})
├── REDUCE(Add, ...)         — computation
├── RANGE(R0, Global)        — output dim 0
└── RANGE(R1, Global)        — output dim 1
""",
    ),
    "index": (
        lambda: param(0, 64, 64, 128).at(R0, LOOP1, R0 * 2),
        """
INDEX : Float32
├── PARAM(0)
├── RANGE(R0, Global)        — index of dim 0
├── RANGE(R1, Loop)          — index of dim 1
└── MUL(...)                 — index of dim 2
""",
    ),
    "load": (
        lambda: param(1, 64, 64).at(R0, R2).load(),
        """
LOAD : Float32
├── PARAM(1)
└── INDEX
    ├── PARAM(1)
    ├── RANGE(R0)
    └── RANGE(R2)
""",
    ),
    "store": (
        lambda: param(0, 64, 64).at(R0, R1).store(total(), R0, R1),
        """
STORE
├── INDEX[R0, R1]            — address
├── REDUCE(Add, ...)         — value
├── RANGE(R0, Global)        — output dim 0 (closed)
└── RANGE(R1, Global)        — output dim 1 (closed)
""",
    ),
    "sink": (
        lambda: UOp.new_sink(*(param(s).at(R0).store(1.0, R0) for s in range(3))),
        """
SINK
├── STORE(output_0, ...)
├── STORE(output_1, ...)
└── STORE(output_2, ...)
""",
    ),
    "after": (
        kernels,
        """
SINK
├── AFTER
│   ├── PARAM(0)     — passthrough
│   └── KERNEL(...)          — must be complete
└── KERNEL(...)              — can use the buffer
""",
    ),
    "vectorize": (
        quarters,
        """
VECTORIZE : <4 x Float32>
├── CONST(1.0)
├── CONST(2.0)
├── CONST(3.0)
└── CONST(4.0)
""",
    ),
    "gep": (
        lambda: quarters().gep([0, 2]),
        """
GEP([0, 2]) : <2 x Float32>
└── VECTORIZE : <4 x Float32>
    └── ...
""",
    ),
    "cat": (
        lambda: UOp.cat(quarters(), UOp.vectorize(*(UOp.const(F32, 0.0),) * 4)),
        """
CAT : <8 x Float32>
├── VECTORIZE : <4 x Float32>
└── VECTORIZE : <4 x Float32>
""",
    ),
    "contract": (
        lambda: UOp.vectorize(load(), load(), load(), load()).unroll(((0, 4),)).contract(((0, 4),)),
        """
CONTRACT(upcast_ranges=[(0, 4)]) : <4 x Float32>
└── UNROLL(unroll_axes=[(0, 4)])
    └── ...
""",
    ),
    "wmma": (
        tile,
        """
WMMA(dims=(16, 16, 16), dtype_in=Float16, dtype_out=Float32)
├── A fragment : <8 x Float16>
├── B fragment : <8 x Float16>
└── C accumulator : <8 x Float32>
""",
    ),
    "if": (
        condition,
        """
IF
├── LT(idx, bound)           — condition (src[0])
├── STORE(...)               — body[0]
└── STORE(...)               — body[1]
""",
    ),
    "endif": (
        lambda: condition().endif(),
        """
ENDIF
└── IF(...)                  — the IF
""",
    ),
    "define_var": (
        lambda: UOp.define_var("batch_size", 1, 128),
        """
DEFINE_VAR(name="batch_size", min=1, max=128) : Index
""",
    ),
    "special": (
        lambda: UOp.special("blockIdx.x", 128),
        """
SPECIAL(name="blockIdx.x", end=128) : Index
└── CONST(128)
""",
    ),
    "reshape": (
        lambda: shaped(2, 3, 4).reshape((6, 4)),
        """
RESHAPE(new_shape=[6, 4]) : Shape[6, 4]
├── BUFFER[2, 3, 4] : Float32
└── CONST([6, 4]) : Shape
""",
    ),
}
WHOLE = ("range", "reduce_axis", "vectorize", "define_var", "special", "reshape")
"""Trees that the guide spells out: the text as a whole is what is printed."""


@dataclass
class Line:
    """A line of the guide, without its remark, and the lines below."""

    text: str
    children: list[Line] = field(default_factory=list)


def read(text: str) -> Line:
    above: list[Line] = []
    root: Line | None = None
    for written in text.strip("\n").splitlines():
        box = re.match(r"(?:[│├└ ][ ─]{2} )*", written)
        assert box is not None
        found = Line(written[box.end() :].partition(" — ")[0].strip())
        depth = box.end() // 4
        if root is None:
            root = found
        else:
            above[depth - 1].children.append(found)
        above[depth:] = [found]
    assert root is not None
    return root


def compare(node: UOp, guide: Line) -> None:
    """Whether a node is what the guide shows."""
    text = guide.text
    if text == "...":
        return
    shortened = re.fullmatch(r"([A-Z_]+)\(.*(?:\.\.\.|bound)\)", text)
    if shortened is not None:
        assert node.op.name == shortened[1].replace("KERNEL", "CALL")
        return
    axis = re.fullmatch(r"RANGE\((R\d)(?:, (\w+))?\)", text)
    indices = re.fullmatch(r"INDEX\[(.*)\]", text)
    value = re.fullmatch(r"(?:A fragment|B fragment|C accumulator) : (.*)", text)
    if axis is not None:
        assert node.op is Ops.RANGE
        assert str(node.axis_id) == axis[1]
        assert axis[2] in (None, str(node.axis_type))
    elif indices is not None:
        assert node.op is Ops.INDEX
        assert ", ".join(str(i.axis_id) for i in node.indices) == indices[1]
    elif value is not None:
        assert str(node.dtype) == value[1]
    else:
        printed = line(node, full=False)
        assert text in (printed, printed.removesuffix(f" : {node.dtype}"))
    if guide.children and guide.children[0].text != "...":
        sources = () if printed_whole(node) else node.src
        assert len(sources) == len(guide.children)
        for source, child in zip(sources, guide.children, strict=True):
            compare(source, child)


def printed_whole(node: UOp) -> bool:
    """Whether a node's line stands for what is below it as well."""
    return line(node, full=False).startswith(("BUFFER[", "PARAM"))


@pytest.mark.parametrize("name", TREES)
def test_the_tree_is_the_guides(name: str) -> None:
    build, text = TREES[name]
    node = build()
    compare(node, read(text))
    assert parse(node.tree()) is node
    assert parse(node.tree()).tree(ids=False) == node.tree(ids=False)
    if name in WHOLE:
        assert node.tree(ids=False) == text.strip("\n")
