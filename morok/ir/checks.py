"""The cheap part of well-formedness: what one node and its direct sources must satisfy.

Builders run these checks at once, the verifier runs them on every node. A check returns None or
the `Fault` it found: the field at fault, what was expected, what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from morok._core import Node
from morok.errors import InvalidGraphError
from morok.ir.call_checks import PROGRAM_STAGES
from morok.ir.faults import Check, Fault, is_whole, is_whole_tuple
from morok.ir.op_checks import SPECIAL_CHECKS, check_alu
from morok.ir.ops import (
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    KernelInfo,
    Ops,
    ReduceOp,
    WmmaMetadata,
)
from morok.ir.optable import OPS, GroupOp, OpSpec

_N = TypeVar("_N", bound=Node)

__all__ = ["PROGRAM_STAGES", "Fault", "check_node", "fault_error", "fault_of", "is_laid_out"]


def fault_error(node: Node, fault: Fault, stage: str | None = None) -> InvalidGraphError:
    """The error that reports `fault` of `node`."""
    where = f"{node.op.name}.{fault.field}" if fault.field else node.op.name
    return InvalidGraphError(
        f"{where}: expected {fault.expected}, got {fault.got}",
        node=node,
        stage=stage,
        rule=fault.rule,
        expected=fault.expected,
        got=fault.got,
    )


def check_node(node: _N, stage: str | None = None) -> _N:
    """Return `node`; InvalidGraphError if it is ill-formed by itself."""
    fault = fault_of(node)
    if fault is not None:
        raise fault_error(node, fault, stage)
    return node


def fault_of(node: Node) -> Fault | None:
    """The first local rule that `node` breaks."""
    src = node.src
    for check in _CHECKS[int(node.op)]:
        fault = check(node, src)
        if fault is not None:
            return fault
    return None


def is_laid_out(node: Node) -> bool:
    """Whether sources and argument have the layout of the op's row, so that fields can be read."""
    count, argument = _CHECKS[int(node.op)][:2]
    src = node.src
    return count(node, src) is None and argument(node, src) is None


# General -----------------------------------------------------------------------------------------


def _count(spec: OpSpec) -> Check:
    """Number of sources."""
    low = spec.min_src
    high = 1 << 62 if spec.max_src is None else spec.max_src

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        if low <= len(src) <= high:
            return None
        layout = ", ".join(map(str, spec.sources)) or "no sources"
        if spec.at_least:
            layout += f" ({spec.at_least} or more)"
        return Fault("source-count", "src", layout, f"{len(src)} sources")

    return check


def _pairs(value: object) -> bool:
    """((axis, factor), …), each axis once"""
    return (
        isinstance(value, tuple)
        and all(is_whole_tuple(pair) and len(pair) == 2 and pair[1] > 0 for pair in value)
        and len(dict(value)) == len(value)
    )


def _fields(*kinds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A tuple whose items satisfy `kinds`, one each."""
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(kinds)
        and all(kind(item) for kind, item in zip(kinds, value, strict=True))
    )


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _optional(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or test(value)


def _int(value: object) -> bool:
    return type(value) is int


def _axis_id(value: object) -> bool:
    return isinstance(value, AxisId) and is_whole(value.number)


def _device(value: object) -> bool:
    if not isinstance(value, DeviceSpec):
        return False
    name = value.name
    return name.isidentifier() and name == name.upper() and is_whole(value.index)


_ARGUMENTS: dict[Ops, tuple[str, Callable[[Any], bool]]] = {
    Ops.RANGE: ("(AxisId, AxisType)", _fields(_axis_id, _is(AxisType))),
    Ops.REDUCE_AXIS: ("(ReduceOp, axes)", _fields(_is(ReduceOp), is_whole_tuple)),
    Ops.REDUCE: ("a ReduceOp", _is(ReduceOp)),
    Ops.ALLREDUCE: ("a ReduceOp", _is(ReduceOp)),
    Ops.BUFFER: ("a number of elements", is_whole),
    Ops.BUFFER_VIEW: ("(size, offset)", _fields(is_whole, is_whole)),
    Ops.BUFFERIZE: ("BufferizeOpts", _is(BufferizeOpts)),
    Ops.INDEX: ("a bool", _is(bool)),
    Ops.SINK: ("KernelInfo or None", _optional(_is(KernelInfo))),
    Ops.CALL: ("CallInfo", _is(CallInfo)),
    Ops.FUNCTION: ("CallInfo", _is(CallInfo)),
    Ops.GET_TUPLE: ("an index", is_whole),
    Ops.PROGRAM: (
        "a head of ('linear', 'source', 'binary')",
        lambda v: isinstance(v, tuple) and v == PROGRAM_STAGES[: len(v)],
    ),
    Ops.SOURCE: ("a str", _is(str)),
    Ops.PROGRAM_BINARY: ("bytes", _is(bytes)),
    Ops.GEP: ("a tuple of indices", lambda v: is_whole_tuple(v) and len(v) > 0),
    Ops.VCONST: ("a tuple of numbers", lambda v: isinstance(v, tuple) and len(v) > 0),
    Ops.UNROLL: ("((axis, factor), …)", _pairs),
    Ops.CONTRACT: ("((axis, factor), …)", _pairs),
    Ops.WMMA: ("WmmaMetadata", _is(WmmaMetadata)),
    Ops.SPECIAL: ("a name", _is(str)),
    Ops.PARAM: ("(slot, size)", _fields(is_whole, is_whole)),
    Ops.DEFINE_LOCAL: ("(index, size)", _fields(is_whole, is_whole)),
    Ops.DEFINE_VAR: (
        "(name, min, max) with min <= max",
        lambda v: _fields(_is(str), _int, _int)(v) and v[1] <= v[2],
    ),
    Ops.DEFINE_REG: ("(size, id)", _fields(is_whole, is_whole)),
    Ops.UNIQUE: ("a number", is_whole),
    Ops.LUNIQUE: ("a number", is_whole),
    Ops.DEVICE: ("a DeviceSpec of a name in capitals and a number", _device),
    Ops.PERMUTE: ("a tuple of axes", is_whole_tuple),
    Ops.FLIP: ("a tuple of bools", lambda v: isinstance(v, tuple) and all(map(_is(bool), v))),
    Ops.MSELECT: ("a device index", is_whole),
    Ops.MULTI: ("an axis or None", _optional(is_whole)),
    Ops.DETACH: ("a mark or None", _optional(is_whole)),
    Ops.NOOP: ("a note or None", _optional(_is(str))),
    Ops.CUSTOM: ("a format string", _is(str)),
    Ops.CUSTOM_I: ("a format string", _is(str)),
    Ops.CUSTOM_FUNCTION: (
        "(CustomFunctionKind, payload)",
        lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], CustomFunctionKind),
    ),
}
_FREE_ARGUMENT = frozenset({Ops.CONST, Ops.CONTIGUOUS})  # CONST is checked against its dtype


def _argument(spec: OpSpec) -> Check:
    """Layout of the argument."""
    expected, test = _ARGUMENTS.get(spec.op, ("no argument", lambda value: value is None))
    if spec.op in _FREE_ARGUMENT:
        return lambda node, src: None
    field = ", ".join(spec.args) or "arg"

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        arg = node.arg
        return None if test(arg) else Fault("argument", field, expected, repr(arg))

    return check


def _void_dtype(node: Node, src: tuple[Any, ...]) -> Fault | None:
    dtype = node.dtype
    return None if dtype.kind == "v" else Fault("dtype", "dtype", "Void", str(dtype))


def _bool_dtype(node: Node, src: tuple[Any, ...]) -> Fault | None:
    dtype, operand = node.dtype, src[0].dtype
    if dtype.kind == "b" and dtype.count == operand.count:
        return None
    return Fault("dtype", "dtype", f"Bool with lanes of {operand}", str(dtype))


def _index_dtype(node: Node, src: tuple[Any, ...]) -> Fault | None:
    dtype = node.dtype
    if dtype.kind in "xiu" and dtype.count == 1:
        return None
    return Fault("dtype", "dtype", "Index or a concrete int", str(dtype))


def _vector_dtype(node: Node, src: tuple[Any, ...]) -> Fault | None:
    dtype, element = node.dtype, src[0].dtype
    if dtype.scalar is element and dtype.count == len(src):
        return None
    return Fault("dtype", "dtype", f"{len(src)} lanes of {element}", str(dtype))


def _source_dtype(position: int) -> Check:
    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        expected = src[position].dtype
        if node.dtype is expected:
            return None
        return Fault("dtype", "dtype", str(expected), str(node.dtype))

    return check


_DTYPES: dict[str, Check] = {
    "void": _void_dtype,
    "bool": _bool_dtype,
    "index": _index_dtype,
    "vector": _vector_dtype,
    "src0": _source_dtype(0),
    "src1": _source_dtype(1),
}
_OWN_DTYPE = frozenset({Ops.REDUCE, Ops.LOAD})  # their own checks know about lanes


def _has_value(node: Node, src: tuple[Any, ...]) -> Fault | None:
    """Ops that pass a value on need one."""
    if src[0].dtype.kind != "v":
        return None
    return Fault("operands", OPS[node.op].sources[0].name, "a value", f"{src[0].op.name}, Void")


# What a statement can pass through: it is complete, or the body of a call.
_PASS_STATEMENTS = frozenset({Ops.AFTER, Ops.BARRIER, Ops.CALL})


_ENDED = {
    Ops.BUFFERIZE: frozenset({Ops.RANGE, Ops.CONST}),  # a CONST stands for a dimension of size 1
}
_ENDED_DEFAULT = frozenset({Ops.RANGE})
_CALLS = frozenset({Ops.CALL, Ops.FUNCTION})  # their arguments may be anything


def _ended(node: Node, src: tuple[Any, ...]) -> Fault | None:
    start = OPS[node.op].range_end
    allowed = _ENDED.get(node.op, _ENDED_DEFAULT)
    ended = src[start:]
    for closed in ended:
        if closed.op not in allowed:
            return Fault("ended-ranges", "ranges", "RANGE nodes", closed.op.name)
    loops = [closed for closed in ended if closed.op is Ops.RANGE]
    if len(set(loops)) != len(loops):
        return Fault("ended-ranges", "ranges", "each range once", "a range twice")
    return None


def _checks(spec: OpSpec) -> tuple[Check, ...]:
    """All checks of an op; the first two are about the layout."""
    op = spec.op
    checks = [_count(spec), _argument(spec)]
    if spec.dtype_kind == "src0" and op not in _PASS_STATEMENTS:
        checks.append(_has_value)
    if spec.dtype_kind in _DTYPES and op not in _OWN_DTYPE:
        checks.append(_DTYPES[spec.dtype_kind])
    if spec.range_end is not None and op not in _CALLS:
        checks.append(_ended)
    if op in GroupOp.ALU:
        checks.append(check_alu)
    elif op in SPECIAL_CHECKS:
        checks.append(SPECIAL_CHECKS[op])
    return tuple(checks)


_CHECKS: list[tuple[Check, ...]] = [(), *(_checks(spec) for spec in OPS.values())]
