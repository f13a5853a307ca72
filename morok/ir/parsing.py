"""Text back to graphs: the inverse of `uop.tree()`.

A line is `[id] OP(arguments) : dtype`, or `→ [id]` for a node that stands elsewhere in the text;
its depth is the width of the box drawing in front. What an argument means follows from the op table
and from the fields of the records. Nothing here recurses along the graph.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import typing
from types import NoneType, UnionType
from typing import Any, NoReturn

from morok.caches import memoized
from morok.dtype import AddrSpace, DType, dtypes, from_bits, parse_dtype
from morok.errors import DTypeError, InvalidGraphError
from morok.ir.checks import fault_error, fault_of
from morok.ir.ops import (
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    Invalid,
    KernelInfo,
    Ops,
    ReduceOp,
    WmmaMetadata,
)
from morok.ir.optable import OPS
from morok.ir.printing import BARE, BARE_OPS, RENAMED, SHAPE_SOURCES
from morok.ir.uop import UOp

__all__ = ["parse", "register_record"]

_KINDS: dict[str, Any] = {
    "axis_id": AxisId,
    "axis_type": AxisType,
    "reduce_op": ReduceOp,
    "opts": BufferizeOpts,
    "metadata": WmmaMetadata,
    "spec": DeviceSpec,
    "kind": CustomFunctionKind,
    "name": str,
    "note": str,
    "code": str,
    "format": str,
    "bytes": bytes,
}
"""The types of arguments; all others are numbers, or lists of them."""
_INFO: dict[Ops, Any] = {Ops.SINK: KernelInfo, Ops.CALL: CallInfo, Ops.FUNCTION: CallInfo}
_records: dict[str, type] = {}


def register_record(kind: type) -> type:
    """Has a dataclass of a layer above, which prints as `Name{field=value, …}`, parsed; `kind`."""
    _records[kind.__name__] = kind
    return kind


def parse(text: str) -> UOp:
    """The graph that `tree()` printed: the same node.

    InvalidGraphError names the line at fault, and what is ill-formed in a node that is.
    """
    lines = [_Line.read(number, line) for number, line in enumerate(text.splitlines(), 1)]
    if not lines:
        raise InvalidGraphError("an empty text is no graph", stage="parse")
    made: dict[int, _Line] = {}
    above: list[_Line] = []
    for line in lines:
        if line.depth > len(above):
            line.fail("it stands deeper than a child of the line before")
        del above[line.depth :]
        if above:
            above[-1].children.append(line.id)
        if line.op is not None:
            if line.id in made:
                line.fail(f"[{line.id}] stands here a second time")
            made[line.id] = line
        above.append(line)
    return _built(lines[0], made)


def _built(root: _Line, made: dict[int, _Line]) -> UOp:
    nodes: dict[int, UOp] = {}
    stack = [root.id]
    waiting: set[int] = set()
    while stack:
        here = stack[-1]
        line = made.get(here)
        if line is None:
            root.fail(f"[{here}] is named and stands nowhere")
        missing = [child for child in line.children if child not in nodes]
        if here in nodes or not missing:
            stack.pop()
            if here not in nodes:
                nodes[here] = line.node([nodes[child] for child in line.children])
            continue
        if here in waiting:
            line.fail(f"[{here}] is below itself")
        waiting.add(here)
        stack += missing
    return nodes[root.id]


_LINE = re.compile(
    r"(?P<box>(?:[│├└ ] {3}|[├└]── )*)"
    r"(?:→ \[(?P<again>\d{1,18})\]|\[(?P<id>\d{1,18})\] (?P<rest>.+))"
)
_NODE = re.compile(r"(?P<op>[A-Z][A-Z0-9_]*)(?P<arguments>\(.*\))?(?: : (?P<dtype>[^\"]+))?")


@dataclasses.dataclass(slots=True)
class _Line:
    """A line taken apart. `op` is None for a reference to a node that stands elsewhere."""

    number: int
    text: str
    depth: int
    id: int
    op: Ops | None = None
    dtype: DType = dtypes.void
    shape: bool = False  # a constant list of dims
    arguments: str = ""
    children: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, number: int, text: str) -> _Line:
        found = _LINE.fullmatch(text)
        line = cls(number, text, 0, 0)
        if found is None:
            line.fail("expected [id] OP(…) : dtype, or → [id]")
        line.depth = len(found["box"]) // 4
        line.id = int(found["again"] or found["id"])
        if found["again"] is None:
            line._read_node(found["rest"])
        return line

    def _read_node(self, rest: str) -> None:
        found = _NODE.fullmatch(rest)
        if found is None:
            self.fail(f"{rest!r} is no OP(…) : dtype")
        self.op = Ops.__members__.get(found["op"])
        if self.op is None:
            self.fail(f"there is no op {found['op']}")
        self.arguments = (found["arguments"] or "()")[1:-1]
        self.shape = found["dtype"] == "Shape"
        try:
            if self.shape:
                self.dtype = dtypes.index
            elif found["dtype"]:
                self.dtype = parse_dtype(found["dtype"])
        except DTypeError as error:
            self.fail(error.message)

    def fail(self, why: str) -> NoReturn:
        raise InvalidGraphError(
            f"line {self.number}: {why}", stage="parse", rule="text", got=self.text
        )

    def node(self, src: list[UOp]) -> UOp:
        assert self.op is not None
        try:
            arg = self._arg(self.op)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self.fail(f"arguments of {self.op.name}: {error}")
        node = UOp(self.op, self.dtype, tuple(src), arg)
        fault = fault_of(node)
        if fault is not None:
            self.fail(fault_error(node, fault).message)
        return node

    def _arg(self, op: Ops) -> Any:
        if op is Ops.INDEX:
            return self.arguments == "gated"
        cursor = _Cursor(self.arguments)
        if op in (Ops.RANGE, Ops.SPECIAL):
            cursor.skip_named("end")
        spec = OPS[op]
        for source in spec.sources:
            if source.name in SHAPE_SOURCES:
                cursor.skip_named(source.name)
        if op is Ops.WMMA:
            return cursor.record(WmmaMetadata, "")
        found = {name: self._field(op, name, cursor) for name in spec.args}
        if op is Ops.RANGE:
            return found["axis_id"], found["axis_type"]
        if op is Ops.SPECIAL:
            cursor.skip_named("end")
        cursor.end()
        if len(spec.args) == 1:
            return found[spec.args[0]]
        return tuple(found.values()) if any(v is not None for v in found.values()) else None

    def _field(self, op: Ops, name: str, cursor: _Cursor) -> Any:
        bare = name in BARE or BARE_OPS.get(op) == name
        shown = RENAMED.get(name, name)
        if not (cursor.left() if bare else cursor.named(shown)):
            return b"" if name == "bytes" else None
        kind = _INFO[op] if name == "info" else _KINDS.get(name)
        if name == "value":
            kind = tuple if self.shape else self.dtype
        elif name == "values":
            kind = self.dtype
        value = cursor.value(kind)
        cursor.comma()
        return value


_NAMED_RECORD = re.compile(r"([A-Z]\w*)\{")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+\-:<>* ]+?(?=[,)\]}=]|$)')


class _Cursor:
    """Reads values from the text of arguments, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def left(self) -> bool:
        return self.at < len(self.text)

    def end(self) -> None:
        if self.left():
            raise ValueError(f"{self.text[self.at :]!r} is left over")

    def comma(self) -> bool:
        """Past a comma, if one comes."""
        comes = self.text.startswith(", ", self.at)
        self.at += 2 * comes
        return comes

    def take(self, mark: str) -> bool:
        """Past `mark`, if it comes."""
        comes = self.text.startswith(mark, self.at)
        self.at += len(mark) * comes
        return comes

    def named(self, name: str) -> bool:
        return self.take(f"{name}=")

    def skip_named(self, name: str) -> None:
        """Past what the source of that name repeats."""
        if self.named(name):
            self.value(None)
            self.comma()

    def value(self, kind: Any) -> Any:
        """A value of this type: None tells numbers and lists by their looks, a dtype says what the
        numbers are."""
        named = _NAMED_RECORD.match(self.text, self.at)
        if named is not None:
            if named[1] not in _records:
                raise ValueError(f"no record {named[1]} is known")
            self.at = named.end()
            return self.record(_records[named[1]], "}")
        if self.take("["):
            return self.items(kind, "]")
        if self.take("("):
            return self.items(kind, ")")
        if self.take("{"):
            return self.record(kind, "}")
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise ValueError(f"no value at {self.text[self.at :]!r}")
        self.at = found.end()
        return _scalar(found[0], kind)

    def items(self, kind: Any, close: str) -> tuple[Any, ...]:
        of = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
        of = None if of is tuple else of
        out = []
        while not self.take(close):
            out.append(self.value(of))
            if not (self.comma() or self.take(",")) and self.text[self.at] != close:
                raise ValueError(f"expected , or {close} at {self.text[self.at :]!r}")
        return tuple(out)

    def record(self, kind: Any, close: str) -> Any:
        kind = next((k for k in typing.get_args(kind) if k is not NoneType), kind)
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise ValueError("fields in braces, where a number, a word or a list belongs")
        given = {}
        kinds = _field_kinds(kind)
        while self.left() and not (close and self.take(close)):
            name, _, _ = self.text[self.at :].partition("=")
            if name not in kinds:
                raise ValueError(f"{kind.__name__} has no field {name!r}")
            self.named(name)
            given[name] = self.value(kinds[name])
            self.comma()
        return kind(**given)


@memoized(64)
def _field_kinds(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _scalar(text: str, kind: Any) -> Any:
    """One word as a value of a type."""
    if isinstance(kind, UnionType):
        if text == "None":
            return None
        kinds = [k for k in typing.get_args(kind) if k is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else None
    if text == "Invalid":
        return Invalid
    if text.startswith('"'):
        return json.loads(text)
    if isinstance(kind, DType):
        return _number(text, kind)
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return _member(kind, text)
        if kind is AxisId:
            return AxisId(int(text[1:]), text[0] == "R")
        if kind is DeviceSpec:
            return DeviceSpec.parse(text)
        if kind is DType:
            return parse_dtype(text)
        if kind is bytes:
            return bytes.fromhex(text)
    return _plain(text)


def _member(kind: type[enum.Enum], text: str) -> enum.Enum:
    for member in kind:
        if text in (str(member), member.name.capitalize() if kind is AddrSpace else member.name):
            return member
    raise ValueError(f"{text!r} is no {kind.__name__}")


def _number(text: str, dtype: DType) -> Any:
    if dtype.scalar.kind == "f":
        if text.startswith("nan:"):
            return from_bits(int(text[4:], 16), dtypes.float64)
        return float(text)
    return _plain(text)


def _plain(text: str) -> Any:
    constants = {"True": True, "False": False, "None": None}
    if text in constants:
        return constants[text]
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
