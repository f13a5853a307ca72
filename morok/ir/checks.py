"""The cheap part of well-formedness: what one node and its direct sources must satisfy.

Builders run these checks at once, the verifier runs them on every node. A check returns None or
the `Fault` it found: the field at fault, what was expected, what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from morok._core import Node
from morok.dtype import DType
from morok.errors import InvalidGraphError
from morok.ir.ops import (
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    InvalidType,
    KernelInfo,
    Ops,
    ReduceOp,
    WmmaMetadata,
)
from morok.ir.optable import OPS, GroupOp, OpSpec

_N = TypeVar("_N", bound=Node)

__all__ = ["Fault", "check_node", "fault_error", "fault_of", "is_laid_out"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule."""

    rule: str
    field: str
    expected: str
    got: str


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


_Check = Callable[[Any, tuple[Any, ...]], Fault | None]


def _count(spec: OpSpec) -> _Check:
    """Number of sources."""
    low = spec.min_src
    high = 1 << 62 if spec.max_src is None else spec.max_src

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        if low <= len(src) <= high:
            return None
        layout = ", ".join(map(str, spec.sources)) or "no sources"
        return Fault("source-count", "src", layout, f"{len(src)} sources")

    return check


def _whole(value: object, low: int = 0) -> bool:
    return type(value) is int and value >= low


def _whole_tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(_whole(item) for item in value)


def _pairs(value: object) -> bool:
    """((axis, factor), …)"""
    return isinstance(value, tuple) and all(
        _whole_tuple(pair) and len(pair) == 2 and pair[1] > 0 for pair in value
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


_STAGES = ("linear", "source", "binary")

_ARGUMENTS: dict[Ops, tuple[str, Callable[[Any], bool]]] = {
    Ops.RANGE: ("(AxisId, AxisType)", _fields(_is(AxisId), _is(AxisType))),
    Ops.REDUCE_AXIS: ("(ReduceOp, axes)", _fields(_is(ReduceOp), _whole_tuple)),
    Ops.REDUCE: ("a ReduceOp", _is(ReduceOp)),
    Ops.ALLREDUCE: ("a ReduceOp", _is(ReduceOp)),
    Ops.BUFFER: ("a number of elements", _whole),
    Ops.BUFFER_VIEW: ("(size, offset)", _fields(_whole, _whole)),
    Ops.BUFFERIZE: ("BufferizeOpts", _is(BufferizeOpts)),
    Ops.INDEX: ("a bool", _is(bool)),
    Ops.SINK: ("KernelInfo or None", _optional(_is(KernelInfo))),
    Ops.CALL: ("CallInfo", _is(CallInfo)),
    Ops.FUNCTION: ("CallInfo", _is(CallInfo)),
    Ops.GET_TUPLE: ("an index", _whole),
    Ops.PROGRAM: ("a head of ('linear', 'source', 'binary')", lambda v: v == _STAGES[: len(v)]),
    Ops.SOURCE: ("a str", _is(str)),
    Ops.PROGRAM_BINARY: ("bytes", _is(bytes)),
    Ops.GEP: ("a tuple of indices", lambda v: _whole_tuple(v) and len(v) > 0),
    Ops.VCONST: ("a tuple of numbers", lambda v: isinstance(v, tuple) and len(v) > 0),
    Ops.UNROLL: ("((axis, factor), …)", _pairs),
    Ops.CONTRACT: ("((axis, factor), …)", _pairs),
    Ops.WMMA: ("WmmaMetadata", _is(WmmaMetadata)),
    Ops.SPECIAL: ("a name", _is(str)),
    Ops.PARAM: ("(slot, size)", _fields(_whole, _whole)),
    Ops.DEFINE_LOCAL: ("(index, size)", _fields(_whole, _whole)),
    Ops.DEFINE_VAR: (
        "(name, min, max) with min <= max",
        lambda v: _fields(_is(str), _int, _int)(v) and v[1] <= v[2],
    ),
    Ops.DEFINE_REG: ("(size, id)", _fields(_whole, _whole)),
    Ops.UNIQUE: ("a number", _whole),
    Ops.LUNIQUE: ("a number", _whole),
    Ops.DEVICE: ("a DeviceSpec", _is(DeviceSpec)),
    Ops.PERMUTE: ("a tuple of axes", _whole_tuple),
    Ops.FLIP: ("a tuple of bools", lambda v: isinstance(v, tuple) and all(map(_is(bool), v))),
    Ops.MSELECT: ("a device index", _whole),
    Ops.MULTI: ("an axis or None", _optional(_whole)),
    Ops.DETACH: ("a mark or None", _optional(_whole)),
    Ops.CUSTOM: ("a format string", _is(str)),
    Ops.CUSTOM_I: ("a format string", _is(str)),
    Ops.CUSTOM_FUNCTION: (
        "(CustomFunctionKind, payload)",
        lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], CustomFunctionKind),
    ),
}
_FREE_ARGUMENT = frozenset({Ops.CONST, Ops.CONTIGUOUS})  # CONST is checked against its dtype


def _argument(spec: OpSpec) -> _Check:
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


def _source_dtype(position: int) -> _Check:
    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        expected = src[position].dtype
        if node.dtype is expected:
            return None
        return Fault("dtype", "dtype", str(expected), str(node.dtype))

    return check


_DTYPES: dict[str, _Check] = {
    "void": _void_dtype,
    "bool": _bool_dtype,
    "index": _index_dtype,
    "vector": _vector_dtype,
    "src0": _source_dtype(0),
    "src1": _source_dtype(1),
}
_OWN_DTYPE = frozenset({Ops.REDUCE, Ops.LOAD})  # their own checks know about lanes


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


# ALU ---------------------------------------------------------------------------------------------

_FLOAT_ONLY = frozenset(
    {
        Ops.SQRT,
        Ops.RSQRT,
        Ops.RECIPROCAL,
        Ops.EXP,
        Ops.EXP2,
        Ops.LOG,
        Ops.LOG2,
        Ops.SIN,
        Ops.COS,
        Ops.TAN,
        Ops.ERF,
        Ops.FDIV,
    }
)
_BITS_ONLY = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.NOT})
_INT_ONLY = frozenset({Ops.SHL, Ops.SHR})
_NOT_BOOL = frozenset(
    {Ops.NEG, Ops.ABS, Ops.SIGN, Ops.SUB, Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.POW}
)


def _operand_kinds(op: Ops) -> str:
    """The dtype classes that an op computes on."""
    if op in _FLOAT_ONLY:
        return "f"
    if op in _BITS_ONLY:
        return "biux"
    if op in _INT_ONLY:
        return "iux"
    if op is Ops.THREEFRY:
        return "u"
    return "iufx" if op in _NOT_BOOL else "biufx"


_OPERAND_KINDS = {op: _operand_kinds(op) for op in GroupOp.ALU}
_KIND_NAMES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "x": "index"}


def _alu(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if node.op is Ops.WHERE:
        condition, *rest = src
        if condition.dtype.kind != "b" or condition.dtype.count != node.dtype.count:
            lanes = f"Bool with lanes of {node.dtype}"
            return Fault("operands", "a", lanes, str(condition.dtype))
    else:
        rest = list(src)
        allowed = _OPERAND_KINDS[node.op]
        if rest[0].dtype.kind not in allowed:
            expected = " or ".join(_KIND_NAMES[kind] for kind in allowed)
            return Fault("operand-class", "a", expected, str(rest[0].dtype))
    first = rest[0]
    names = "bc" if node.op is Ops.WHERE else "abc"
    for name, other in zip(names[1:], rest[1:], strict=False):
        if other.dtype is not first.dtype:
            return Fault("operands", name, str(first.dtype), str(other.dtype))
    return None


# One op each -------------------------------------------------------------------------------------

_PYTHON_KINDS: dict[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "x": (int, InvalidType, tuple),
    "f": (float,),
}


def _fits(value: object, dtype: DType) -> bool:
    kinds = _PYTHON_KINDS.get(dtype.kind, ())
    if type(value) not in kinds:
        return False
    if isinstance(value, tuple):
        return _whole_tuple(value)
    if dtype.kind in "iu" and isinstance(value, int):
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        return low <= value < low + (1 << dtype.bits)
    return True


def _const(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if _fits(node.arg, node.dtype):
        return None
    return Fault("constant", "value", f"a value of {node.dtype}", repr(node.arg))


def _vconst(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if len(node.arg) != node.dtype.count:
        return Fault("constant", "values", f"{node.dtype.count} values", f"{len(node.arg)}")
    for value in node.arg:
        if not _fits(value, node.dtype.scalar):
            return Fault("constant", "values", f"values of {node.dtype.scalar}", repr(value))
    return None


def _range(node: Node, src: tuple[Any, ...]) -> Fault | None:
    end = src[0]
    if end.dtype.kind not in "xiu" or end.dtype.count != 1:
        return Fault("range-end", "end", "an index", str(end.dtype))
    if end.op is Ops.CONST and not _whole(end.arg):
        return Fault("range-end", "end", "a number that is not negative", repr(end.arg))
    return None


def _index(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if node.arg and len(src) < 2:
        return Fault("source-count", "src", "buffer, *indices, [gate]", f"{len(src)} sources")
    if node.arg and src[-1].dtype.kind != "b":
        return Fault("index-gate", "gate", "Bool", str(src[-1].dtype))
    for position in src[1:-1] if node.arg else src[1:]:
        if position.dtype.kind not in "xiu":
            return Fault("index-dtype", "indices", "an index", str(position.dtype))
    dtype, element = node.dtype, src[0].dtype.base
    if dtype is not element and dtype.scalar is not element.scalar and not dtype.is_ptr:
        return Fault("dtype", "dtype", f"the element type {element}", str(node.dtype))
    return None


_ADDRESSES = frozenset({Ops.INDEX, Ops.PTRCAT, Ops.POINTER_INDEX, Ops.CAST, Ops.GEP, Ops.CAT})


def _load(node: Node, src: tuple[Any, ...]) -> Fault | None:
    address = src[1]
    if address.op not in _ADDRESSES:
        return Fault("address", "index", "an INDEX", address.op.name)
    if address.dtype.base.scalar is not node.dtype.scalar:
        return Fault("dtype", "dtype", f"lanes of {address.dtype.base.scalar}", str(node.dtype))
    if len(src) == 3:
        if src[2].dtype is not node.dtype:
            return Fault("operands", "alt", str(node.dtype), str(src[2].dtype))
        if address.op is Ops.INDEX and not address.arg:
            return Fault("alt-without-gate", "alt", "a gated INDEX", "an INDEX without gate")
    return None


def _store(node: Node, src: tuple[Any, ...]) -> Fault | None:
    target, value = src[:2]
    element = target.dtype.base.scalar if target.dtype.is_ptr else target.dtype.scalar
    if value.dtype.scalar is not element:
        return Fault("operands", "value", str(element), str(value.dtype))
    return None


def _reduce(node: Node, src: tuple[Any, ...]) -> Fault | None:
    source = src[0].dtype
    # Lanes beyond those of the result are reduced as well (an unrolled reduction).
    if node.dtype.scalar is not source.scalar or source.count % node.dtype.count:
        return Fault("dtype", "dtype", str(source), str(node.dtype))
    return None


def _vectorize(node: Node, src: tuple[Any, ...]) -> Fault | None:
    for element in src:
        if element.dtype.count != 1 or element.dtype is not src[0].dtype:
            return Fault("operands", "elements", f"scalars of {src[0].dtype}", str(element.dtype))
    return None


def _gep(node: Node, src: tuple[Any, ...]) -> Fault | None:
    lanes = src[0].dtype.count
    if any(lane >= lanes for lane in node.arg):
        return Fault("lane", "indices", f"lanes below {lanes}", str(list(node.arg)))
    if node.dtype.scalar is not src[0].dtype.scalar or node.dtype.count != len(node.arg):
        return Fault(
            "dtype", "dtype", f"{len(node.arg)} lanes of {src[0].dtype.scalar}", str(node.dtype)
        )
    return None


def _cat(node: Node, src: tuple[Any, ...]) -> Fault | None:
    lanes = sum(source.dtype.count for source in src)
    if node.dtype.count != lanes:
        return Fault("dtype", "dtype", f"{lanes} lanes", str(node.dtype))
    for source in src:
        if source.dtype.scalar is not node.dtype.scalar:
            return Fault("operands", "sources", str(node.dtype.scalar), str(source.dtype.scalar))
    return None


def _bitcast(node: Node, src: tuple[Any, ...]) -> Fault | None:
    before, after = src[0].dtype, node.dtype
    if before.bits * before.count != after.bits * after.count:
        return Fault("bitcast-width", "dtype", f"as many bits as {before}", str(after))
    return None


def _cast(node: Node, src: tuple[Any, ...]) -> Fault | None:
    before, after = src[0].dtype, node.dtype
    if not after.is_ptr and before.count != after.count:
        return Fault("cast-lanes", "dtype", f"{before.count} lanes", str(after))
    return None


def _if(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if src[0].dtype.kind != "b":
        return Fault("condition", "condition", "Bool", str(src[0].dtype))
    return None


def _bind(node: Node, src: tuple[Any, ...]) -> Fault | None:
    variable, value = src
    if variable.op is not Ops.DEFINE_VAR:
        return Fault("operands", "var", "DEFINE_VAR", variable.op.name)
    name, low, high = variable.arg
    if value.op is Ops.CONST and not low <= value.arg <= high:
        return Fault("bind-bounds", "value", f"{name} within {low}..{high}", repr(value.arg))
    return None


def _buffer_view(node: Node, src: tuple[Any, ...]) -> Fault | None:
    size, offset = node.arg
    shape = src[0].shape
    if shape is not None and len(shape) == 1 and offset + size > shape[0]:
        return Fault(
            "view-bounds", "size", f"to end within {shape[0]} elements", f"{offset + size}"
        )
    return None


def _typed(**fields: frozenset[Ops]) -> _Check:
    """A check that the named sources, in order of the row, have one of the ops given."""

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        names = [source.name for source in OPS[node.op].sources]
        for name, allowed in fields.items():
            position = names.index(name)
            if position < len(src) and src[position].op not in allowed:
                expected = " or ".join(sorted(op.name for op in allowed))
                return Fault("operands", name, expected, src[position].op.name)
        return None

    return check


_DEVICE = frozenset({Ops.DEVICE})
_SPECIAL: dict[Ops, _Check] = {
    Ops.CONST: _const,
    Ops.VCONST: _vconst,
    Ops.RANGE: _range,
    Ops.SPECIAL: _range,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.REDUCE: _reduce,
    Ops.VECTORIZE: _vectorize,
    Ops.GEP: _gep,
    Ops.CAT: _cat,
    Ops.BITCAST: _bitcast,
    Ops.CAST: _cast,
    Ops.IF: _if,
    Ops.BIND: _bind,
    Ops.BUFFER_VIEW: _buffer_view,
    Ops.ENDIF: _typed(if_op=frozenset({Ops.IF})),
    Ops.BUFFER: _typed(unique=frozenset({Ops.UNIQUE, Ops.LUNIQUE}), device=_DEVICE),
    Ops.COPY: _typed(device=_DEVICE),
    Ops.ALLREDUCE: _typed(device=_DEVICE),
    Ops.PARAM: _typed(device=_DEVICE),
    Ops.GET_TUPLE: _typed(src=frozenset({Ops.TUPLE, Ops.FUNCTION, Ops.CALL})),
    Ops.PROGRAM: _typed(
        sink=frozenset({Ops.SINK}),
        device=_DEVICE,
        linear=frozenset({Ops.LINEAR}),
        source=frozenset({Ops.SOURCE}),
        binary=frozenset({Ops.PROGRAM_BINARY}),
    ),
}


def _checks(spec: OpSpec) -> tuple[_Check, ...]:
    """All checks of an op; the first two are about the layout."""
    op = spec.op
    checks = [_count(spec), _argument(spec)]
    if spec.dtype_kind in _DTYPES and op not in _OWN_DTYPE:
        checks.append(_DTYPES[spec.dtype_kind])
    if spec.range_end is not None and op not in _CALLS:
        checks.append(_ended)
    if op in GroupOp.ALU:
        checks.append(_alu)
    elif op in _SPECIAL:
        checks.append(_SPECIAL[op])
    return tuple(checks)


_CHECKS: list[tuple[_Check, ...]] = [(), *(_checks(spec) for spec in OPS.values())]
