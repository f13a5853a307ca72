"""Graphs as text for people: trees in the form of the field guide, and Python source.

    [0] RANGE(end=128, axis_id=R0, type=Global) : Index
    └── [1] CONST(128) : Index

`tree(ids=True)` is complete: every fact of a node is in its line, a node printed before is
`→ [id]`, and what lies deeper than MAX_DEPTH is printed as a further tree below, so that the text
grows with the graph however deep it is. `tree(ids=False)` is for reading: the guide's own lines,
without what they leave out. Nothing here recurses along the graph.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

from morok import _core
from morok._core import Node
from morok.dtype import AddrSpace, DType, dtypes, to_bits
from morok.ir.checks import is_laid_out
from morok.ir.ops import AxisId, BufferizeOpts, DeviceSpec, InvalidType, KernelInfo, Ops
from morok.ir.optable import OPS, GroupOp

__all__ = ["MAX_DEPTH", "line", "pyrender", "tree"]

MAX_DEPTH = 200
"""Levels of one printed tree; deeper nodes start a tree of their own."""

RENAMED = {"axis_type": "type", "min_val": "min", "max_val": "max"}
# Fields printed without their name, as the guide does.
BARE = frozenset(
    {"slot", "value", "values", "reduce_op", "n", "spec", "code", "bytes", "kind", "format"}
)
BARE_OPS = {Ops.GEP: "indices", Ops.GET_TUPLE: "index", Ops.DEFINE_LOCAL: "index"}
# Record fields printed even when they have their default value.
_ALWAYS: dict[type, frozenset[str]] = {
    BufferizeOpts: frozenset({"addrspace"}),
    KernelInfo: frozenset({"name"}),
}
# Constant sources that the guide repeats in the op's own parentheses.
SHAPE_SOURCES = frozenset({"new_shape", "begin_pads", "end_pads", "begins", "ends"})


# Values ------------------------------------------------------------------------------------------


def _record(value: Any) -> str:
    always = _ALWAYS.get(type(value), frozenset())
    parts = []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name in always or item != field.default:
            parts.append(f"{field.name}={_value(item)}")
    # Records of layers above say what they are; those of the IR are known from where they stand.
    name = "" if type(value).__module__.startswith("morok.ir") else type(value).__name__
    return name + "{" + ", ".join(parts) + "}"


def _value(value: Any) -> str:
    """One argument value."""
    if isinstance(value, AxisId | DeviceSpec | DType | InvalidType):
        return str(value)
    if isinstance(value, AddrSpace):
        return value.name.capitalize()
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_item, value)) + "]"
    if dataclasses.is_dataclass(value):
        return _record(value)
    return repr(value)


def _item(value: Any) -> str:
    """One item of a list: tuples of numbers within keep their parentheses, as in [(0, 4)]."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_item, value)) + ("," if len(value) == 1 else "") + ")"
    return _value(value)


def _float(value: float) -> str:
    """`repr`, and the bits of a NaN that is not the usual one."""
    if value == value or to_bits(math.nan, dtypes.float64) == _bits(value):
        return repr(value)
    return f"nan:{_bits(value):016x}"


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


# Lines -------------------------------------------------------------------------------------------


def _shape_text(node: Node) -> str | None:
    """The dims of a constant shape operand."""
    if node.op is Ops.CONST and isinstance(node.arg, tuple):
        return _value(node.arg)
    return None


def _arguments(node: Node, *, full: bool) -> list[str]:
    """What stands in the parentheses behind the op's name."""
    op, arg, src = node.op, node.arg, node.src
    spec = OPS[op]
    if not is_laid_out(node):  # errors print ill-formed nodes
        return [] if arg is None else [f"arg={_value(arg)}"]
    if op is Ops.RANGE:
        end = _end(src[0], full=full)
        axis_id, axis_type = arg
        return [*end, f"axis_id={axis_id}", f"type={axis_type}"]
    if op is Ops.SPECIAL:
        return [f"name={_value(arg)}", *_end(src[0], full=full)]
    if op is Ops.INDEX:
        return ["gated"] if arg else []
    if op is Ops.WMMA:
        shown = ("dims", "dtype_in", "dtype_out")
        names = [field.name for field in dataclasses.fields(arg)] if full else shown
        return [f"{name}={_wmma_value(getattr(arg, name))}" for name in names]
    if op is Ops.PROGRAM_BINARY and not full:
        return [f"{len(arg)} bytes"]
    parts = []
    for position, source in enumerate(spec.sources):
        if source.name in SHAPE_SOURCES and position < len(src):
            text = _shape_text(src[position])
            if text is not None:
                parts.append(f"{source.name}={text}")
    values = (arg,) if len(spec.args) == 1 else arg
    for name, value in zip(spec.args, values or (), strict=False):
        if value is None and name != "axis":
            continue
        if not full and op in (Ops.PARAM, Ops.DEFINE_LOCAL) and name == "size":
            continue
        bare = name in BARE or BARE_OPS.get(op) == name
        parts.append(_value(value) if bare else f"{RENAMED.get(name, name)}={_value(value)}")
    return parts


def _end(end: Node, *, full: bool) -> list[str]:
    """`end=` of a RANGE or SPECIAL whose end is a constant."""
    return [f"end={_value(end.arg)}"] if end.op is Ops.CONST else []


def _wmma_value(value: Any) -> str:
    """Tuples of dims print as the guide has them: (16, 16, 16)."""
    return _item(value) if isinstance(value, tuple) else _value(value)


# Ops whose dtype the guide's lines leave out; kernels are read for structure.
_UNTYPED = (
    GroupOp.ALU
    | GroupOp.Identity
    | frozenset(
        {
            Ops.RANGE,
            Ops.PARAM,
            Ops.REDUCE_AXIS,
            Ops.REDUCE,
            Ops.BUFFERIZE,
            Ops.UNROLL,
            Ops.WMMA,
            Ops.AFTER,
            Ops.BARRIER,
        }
    )
)


def line(node: Node, *, full: bool = True) -> str:
    """One node without its id and children; `full` says all of it, else the guide's line."""
    if not full and _is_shaped_memory(node):
        memory = node.src[0] if node.op is Ops.RESHAPE else node
        if memory.op is Ops.BUFFER:
            return f"BUFFER{_value(node.shape)} : {node.dtype}"
        node = memory
    arguments = ", ".join(_arguments(node, full=full))
    head: str = node.op.name + (f"({arguments})" if arguments else "")
    if node.op is Ops.CONST and isinstance(node.arg, tuple):
        return f"{head} : Shape"
    if node.dtype is dtypes.void:
        return head
    if full:
        return f"{head} : {node.dtype}"
    if node.op in GroupOp.Movement and node.shape is not None:
        return f"{head} : Shape{_value(node.shape)}"
    return head if node.op in _UNTYPED else f"{head} : {node.dtype}"


def _is_shaped_memory(node: Node) -> bool:
    """A BUFFER, which the guide prints as BUFFER[10, 20], or a RESHAPE of one or of a PARAM, which
    the guide does not show."""
    if node.op is Ops.RESHAPE:
        return node.src[0].op in (Ops.BUFFER, Ops.PARAM)
    return node.op is Ops.BUFFER and node.shape is not None


# Trees -------------------------------------------------------------------------------------------


class _Printer:
    """Lines of a graph, node by node; remembers which node has which id."""

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.ids: dict[Node, int] = {}

    def first(self, node: Node, above: Node | None) -> str:
        """The line of a node not printed yet, below the line of another."""
        if self.full:
            return f"[{self.ids[node]}] {line(node)}"
        text = line(node, full=False)
        if node.op is not Ops.CONST or above is None or above.dtype.scalar is not node.dtype:
            return text
        # Its dtype is that of the line above, if that says one: VECTORIZE : <4 x Float32>.
        said = line(above, full=False).endswith(f" : {above.dtype}")
        return text.removesuffix(f" : {node.dtype}") if said else text

    def again(self, node: Node, above: Node | None) -> str:
        """The line that refers to a node printed elsewhere."""
        if self.full:
            return f"→ [{self.ids[node]}]"
        if node.op is Ops.RANGE:
            return f"RANGE({node.arg[0]}, {node.arg[1]})"
        return self.first(node, above) + (" …" if self.children(node) else "")

    def children(self, node: Node) -> tuple[Node, ...]:
        if not self.full and _is_shaped_memory(node):
            return ()
        return node.src

    def lines(self, root: Node) -> Iterator[str]:
        printed: set[Node] = set()
        roots = [root]  # grows: nodes that lie too deep in an earlier tree
        for top in roots:
            if top in printed:
                continue
            # node, the one above, what stands in front of its line and of its children's, depth
            stack: list[tuple[Node, Node | None, str, str, int]] = [(top, None, "", "", 0)]
            while stack:
                node, above, before, below, depth = stack.pop()
                self.ids.setdefault(node, len(self.ids))
                children = self.children(node)
                if node in printed or (depth >= MAX_DEPTH and children):
                    if node not in printed:
                        roots.append(node)
                    yield before + self.again(node, above)
                    continue
                printed.add(node)
                yield before + self.first(node, above)
                tee, pipe = "└── ", "    "
                for child in reversed(children):
                    stack.append((child, node, below + tee, below + pipe, depth + 1))
                    tee, pipe = "├── ", "│   "


def tree(root: Node, *, ids: bool = True) -> str:
    """The graph below `root`, one line a node."""
    return "\n".join(_Printer(full=ids).lines(root))


# Python source -----------------------------------------------------------------------------------


class _Source:
    """Spells values as Python expressions and collects the imports they need."""

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {"morok.ir": {"Ops", "UOp"}}

    def name(self, module: str, name: str) -> str:
        face = "morok.ir" if module.startswith("morok.ir") else module
        self.imports.setdefault(face, set()).add(name)
        return name

    def dtype(self, dtype: DType) -> str:
        self.name("morok.dtype", "dtypes")
        if dtype.count != 1:
            return f"{self.dtype(dtype.scalar)}.vec({dtype.count})"
        if dtype.addrspace is not None:
            return f"{self.dtype(dtype.base)}.ptr({self.value(dtype.addrspace)})"
        return f"dtypes.{dtype.name}"

    def value(self, value: Any) -> str:
        if isinstance(value, DType):
            return self.dtype(value)
        if isinstance(value, enum.Enum):
            return f"{self.name(type(value).__module__, type(value).__name__)}.{value.name}"
        if isinstance(value, tuple):
            items = [self.value(item) for item in value]
            return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"
        if isinstance(value, float) and not math.isfinite(value):
            if math.isinf(value):
                return f"float({str(value)!r})"
            bits = self.name("morok.dtype", "from_bits")
            return f"{bits}({_bits(value):#x}, {self.dtype(dtypes.float64)})"
        if dataclasses.is_dataclass(value):
            given = [
                f"{field.name}={self.value(getattr(value, field.name))}"
                for field in dataclasses.fields(value)
                if getattr(value, field.name) != field.default
            ]
            kind = self.name(type(value).__module__, type(value).__name__)
            return f"{kind}({', '.join(given)})"
        return repr(value)

    def header(self) -> list[str]:
        return [
            f"from {module} import {', '.join(sorted(names))}"
            for module, names in sorted(self.imports.items())
        ]


def pyrender(root: Node) -> str:
    """Python source that rebuilds `root` under that name, one statement a node."""
    source = _Source()
    names: dict[Node, str] = {}
    body = []
    nodes = _core.toposort(root)
    for node in nodes:
        name = "root" if node is root else f"u{len(names)}"
        parts = [f"Ops.{node.op.name}", source.dtype(node.dtype)]
        if node.src or node.arg is not None:
            items = [names[child] for child in node.src]
            parts.append("(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")")
        if node.arg is not None:
            parts.append(source.value(node.arg))
        body.append(f"{name} = UOp({', '.join(parts)})")
        names[node] = name
    return "\n".join([*source.header(), "", *body, ""])
