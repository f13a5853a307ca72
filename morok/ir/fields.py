"""Field access by the guide's names: `range.end`, `store.value`, `wmma.metadata`.

The accessors are generated from the op table. A name means what the op's row says: `value` is a
source of STORE and the argument of CONST. A field that the op does not have raises AttributeError;
an optional source that is absent is None.

`src`, a field of many rows, stays the tuple of all sources. `ranges` and `device` are facts of
every node; the field wins on the ops whose row has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from morok._core import Node
from morok.ir.ops import Ops
from morok.ir.optable import OPS, OpSpec

if TYPE_CHECKING:
    from morok.ir.uop import UOp

__all__ = ["FIELD_NAMES", "Fields", "fields_of"]

_Getter = Callable[[Any], Any]
_KEPT = frozenset({"src"})  # the core's attribute of this name is meant


def _source_getter(spec: OpSpec, position: int) -> _Getter:
    source = spec.sources[position]
    if spec.op is Ops.INDEX and source.name == "indices":
        return lambda node: node.src[1:-1] if node.arg else node.src[1:]
    if spec.op is Ops.INDEX and source.name == "gate":
        return lambda node: node.src[-1] if node.arg else None
    if source.variadic:
        return lambda node: node.src[position:]
    if source.optional:
        return lambda node: node.src[position] if len(node.src) > position else None
    return lambda node: node.src[position]


def _arg_getter(spec: OpSpec, position: int) -> _Getter:
    if len(spec.args) == 1:
        return lambda node: node.arg
    return lambda node: node.arg[position]


def _getters(spec: OpSpec) -> dict[str, _Getter]:
    """The fields of one op, in the order of its row: sources, then arguments."""
    fields = {
        source.name: _source_getter(spec, position) for position, source in enumerate(spec.sources)
    }
    fields.update({name: _arg_getter(spec, position) for position, name in enumerate(spec.args)})
    return fields


_FIELDS: dict[Ops, dict[str, _Getter]] = {op: _getters(spec) for op, spec in OPS.items()}

FIELD_NAMES: frozenset[str] = (
    frozenset(name for fields in _FIELDS.values() for name in fields) - _KEPT
)
"""Every name that `Fields` answers to."""


def fields_of(node: Node) -> dict[str, Any]:
    """The node's fields by name, in the order of its row; absent optional sources are None."""
    return {name: getter(node) for name, getter in _FIELDS[node.op].items()}


class _Field:
    """Descriptor of one field name over all ops that have it."""

    __slots__ = ("fallback", "getters", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.getters: list[_Getter | None] = [None] * (max(OPS) + 1)
        for op, fields in _FIELDS.items():
            self.getters[op] = fields.get(name)
        # `ranges` and `device`: what the core knows of every node.
        self.fallback: _Getter | None = getattr(Node, name).__get__ if hasattr(Node, name) else None

    def __get__(self, node: Any, owner: type | None = None) -> Any:
        if node is None:
            return self
        getter = self.getters[node.op] or self.fallback
        if getter is None:
            own = ", ".join(_FIELDS[node.op]) or "none"
            raise AttributeError(f"{node.op.name} has no field {self.name!r}; its fields: {own}")
        return getter(node)


class Fields:
    """Mix-in with one property per field name of the op table."""

    __slots__ = ()

    if TYPE_CHECKING:
        a: UOp
        alt: UOp | None
        args: tuple[UOp, ...]
        axes: Any  # axes of REDUCE_AXIS and PERMUTE, flags of FLIP
        axis: int | None
        axis_id: Any
        axis_type: Any
        b: UOp
        begin_pads: UOp
        begins: UOp
        binary: UOp | None
        body: Any  # a UOp; of an IF, several
        buffer: UOp
        buffers: tuple[UOp, ...]
        bytes: Any
        c: UOp
        code: str
        computation: UOp
        compute: UOp
        condition: UOp
        deps: tuple[UOp, ...]
        device: Any
        device_index: int
        elements: tuple[UOp, ...]
        end: UOp
        end_pads: UOp
        ends: UOp
        format: str
        gate: UOp | None
        has_gate: bool
        hints: Any
        id: int
        if_op: UOp
        index: Any  # a UOp of LOAD and STORE, a number of GET_TUPLE and DEFINE_LOCAL
        indices: Any  # UOps of INDEX, numbers of GEP
        info: Any
        kind: Any
        linear: UOp | None
        mark: int | None
        max_val: int
        metadata: Any
        min_val: int
        n: int
        name: str
        note: str | None
        new_shape: UOp
        offset: Any  # a UOp of POINTER_INDEX, a number of BUFFER_VIEW
        ops: tuple[UOp, ...]
        opts: Any
        passthrough: UOp
        payload: Any
        ptr: UOp
        ranges: tuple[UOp, ...]
        reduce_op: Any
        sink: UOp
        size: int
        slot: int
        source: UOp | None
        sources: tuple[UOp, ...]
        spec: Any
        stages: tuple[str, ...]
        unique: UOp
        unroll_axes: tuple[tuple[int, int], ...]
        upcast_ranges: tuple[tuple[int, int], ...]
        value: Any  # a UOp of STORE and BIND, a number of CONST
        values: tuple[Any, ...]
        var: UOp
        vector: UOp


for _name in FIELD_NAMES:
    setattr(Fields, _name, _Field(_name))
