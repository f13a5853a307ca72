"""Checks that single ops have beyond those of every row: operands, widths, lanes.

A check gets a node with the sources and the argument that its row asks for, and returns None or
the `Fault` it found.
"""

from __future__ import annotations

from math import prod
from string import Formatter
from typing import Any

from morok._core import Node
from morok.dtype import AddrSpace, DType
from morok.ir.call_checks import CALL_CHECKS
from morok.ir.faults import DEVICES, Check, Fault, is_whole, is_whole_tuple, typed
from morok.ir.ops import InvalidType, Ops
from morok.ir.optable import GroupOp

__all__ = ["SPECIAL_CHECKS", "check_alu"]


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


def check_alu(node: Node, src: tuple[Any, ...]) -> Fault | None:
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
        return is_whole_tuple(value)
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
    for dep in src[1:]:
        if dep.op is not Ops.RANGE:
            return Fault("operands", "deps", "RANGE nodes", dep.op.name)
    end = src[0]
    if end.dtype.kind not in "xiu" or end.dtype.count != 1:
        return Fault("range-end", "end", "an index", str(end.dtype))
    if end.op is Ops.CONST and not is_whole(end.arg):
        return Fault("range-end", "end", "a number that is not negative", repr(end.arg))
    return None


def _index(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if node.arg and len(src) < 2:
        return Fault("source-count", "src", "buffer, *indices, [gate]", f"{len(src)} sources")
    if node.arg and src[-1].dtype.kind != "b":
        return Fault("index-gate", "gate", "Bool", str(src[-1].dtype))
    if node.arg and src[-1].dtype.count not in (1, node.dtype.base.count):
        lanes = f"Bool with lanes of {node.dtype}"
        return Fault("index-gate", "gate", lanes, str(src[-1].dtype))
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
    if address.op is Ops.INDEX and address.src[0] is not src[0]:
        return Fault("operands", "buffer", "the buffer of its INDEX", src[0].op.name)
    if address.dtype.base.scalar is not node.dtype.scalar:
        return Fault("dtype", "dtype", f"lanes of {address.dtype.base.scalar}", str(node.dtype))
    if len(src) == 3:
        if src[2].dtype is not node.dtype:
            return Fault("operands", "alt", str(node.dtype), str(src[2].dtype))
        if address.op is Ops.INDEX and not address.arg:
            return Fault("alt-without-gate", "alt", "a gated INDEX", "an INDEX without gate")
    return None


def _pointer_index(node: Node, src: tuple[Any, ...]) -> Fault | None:
    pointer, offset = src
    if not pointer.dtype.is_ptr:
        return Fault("operands", "ptr", "a pointer", str(pointer.dtype))
    if offset.dtype.kind not in "xiu":
        return Fault("operands", "offset", "a number of bytes", str(offset.dtype))
    return None


def _store(node: Node, src: tuple[Any, ...]) -> Fault | None:
    target, value = src[:2]
    element = target.dtype.base.scalar if target.dtype.is_ptr else target.dtype.scalar
    if value.dtype.scalar is not element:
        return Fault("operands", "value", str(element), str(value.dtype))
    if target.op is Ops.INDEX and value.dtype.count > target.dtype.base.count:
        lanes = f"{target.dtype.base.count} lanes, as its INDEX has"
        return Fault("operands", "value", lanes, str(value.dtype))
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


def _ptrcat(node: Node, src: tuple[Any, ...]) -> Fault | None:
    for source in src:
        if source.op not in (Ops.INDEX, Ops.POINTER_INDEX):
            return Fault("operands", "sources", "INDEX or POINTER_INDEX nodes", source.op.name)
    return _cat(node, src)


def _unroll(node: Node, src: tuple[Any, ...]) -> Fault | None:
    lanes, versions = src[0].dtype.count, _product(node.arg)
    if lanes % versions:
        return Fault("lane", "unroll_axes", f"factors that divide {lanes} lanes", str(node.arg))
    return _lanes_of(node, src[0].dtype, lanes // versions)


def _contract(node: Node, src: tuple[Any, ...]) -> Fault | None:
    return _lanes_of(node, src[0].dtype, src[0].dtype.count * _product(node.arg))


def _lanes_of(node: Node, dtype: DType, lanes: int) -> Fault | None:
    if node.dtype.scalar is dtype.scalar and node.dtype.count == lanes:
        return None
    return Fault("dtype", "dtype", f"{lanes} lanes of {dtype.scalar}", str(node.dtype))


def _product(axes: tuple[tuple[int, int], ...]) -> int:
    """Of the factors of (axis, factor) pairs."""
    return prod(factor for _, factor in axes)


def _wmma(node: Node, src: tuple[Any, ...]) -> Fault | None:
    tile = node.arg
    axes = tile.upcast_axes
    operands = (
        ("a", tile.dtype_in, axes.a),
        ("b", tile.dtype_in, axes.b),
        ("c", tile.dtype_out, axes.c),
    )
    for (name, dtype, own), operand in zip(operands, src, strict=False):
        if operand.dtype.scalar is not dtype:
            return Fault("operands", name, f"lanes of {dtype}", str(operand.dtype))
        if own and operand.dtype.count != _product(own):
            return Fault("operands", name, f"{_product(own)} lanes", str(operand.dtype))
    return _lanes_of(node, src[2].dtype, src[2].dtype.count)


def _bitcast(node: Node, src: tuple[Any, ...]) -> Fault | None:
    before, after = src[0].dtype, node.dtype
    if before.bits * before.count != after.bits * after.count:
        return Fault("bitcast-width", "dtype", f"as many bits as {before}", str(after))
    return None


def _format(node: Node, src: tuple[Any, ...]) -> Fault | None:
    """The format string names its operands by number, or in turn."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(node.arg) if name is not None]
    except ValueError as error:
        return Fault("format", "format", "a format string", f"{node.arg!r}: {error}")
    named = [name for name in fields if name]
    values = sum(source.dtype.kind != "v" for source in src)
    if named and len(named) != len(fields):
        return Fault("format", "format", "{} or {0}, not both", repr(node.arg))
    for name in named or map(str, range(len(fields))):
        if not name.isdecimal() or int(name) >= values:
            known = f"values numbered below {values}"
            return Fault("format", "format", known, f"{{{name}}} in {node.arg!r}")
    return None


def _custom_expression(node: Node, src: tuple[Any, ...]) -> Fault | None:
    return _expression(node, src) or _format(node, src)


def _expression(node: Node, src: tuple[Any, ...]) -> Fault | None:
    return None if node.dtype.kind != "v" else Fault("dtype", "dtype", "that of a value", "Void")


def _cast(node: Node, src: tuple[Any, ...]) -> Fault | None:
    before, after = src[0].dtype, node.dtype
    if after.kind == "v":
        return _expression(node, src)
    if before.is_ptr and not after.is_ptr:
        return Fault("cast-pointer", "dtype", "a pointer", str(after))
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
    if value.dtype is not variable.dtype:
        return Fault("operands", "value", str(variable.dtype), str(value.dtype))
    name, low, high = variable.arg
    if value.op is Ops.CONST and not low <= value.arg <= high:
        return Fault("bind-bounds", "value", f"{name} within {low}..{high}", repr(value.arg))
    return None


def _buffer_view(node: Node, src: tuple[Any, ...]) -> Fault | None:
    size, offset = node.arg
    shape = src[0].shape
    if shape is None or len(shape) != 1:
        return Fault("view-bounds", "buffer", "a flat buffer", f"shape {shape}")
    if offset + size > shape[0]:
        return Fault(
            "view-bounds", "size", f"to end within {shape[0]} elements", f"{offset + size}"
        )
    return None


def _memory_dtype(space: AddrSpace | None) -> Check:
    """A check that the node's dtype is that of elements (None), or a pointer to memory."""
    expected = "an element" if space is None else f"a pointer, {space.name}"

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        dtype = node.dtype
        if dtype.kind != "v" and dtype.addrspace is space:
            return None
        return Fault("dtype", "dtype", expected, str(dtype))

    return check


def _buffer(node: Node, src: tuple[Any, ...]) -> Fault | None:
    return _buffer_fields(node, src) or _buffer_dtype(node, src)


def _param(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if node.dtype.kind == "v":
        return Fault("dtype", "dtype", "an element, or a pointer to one", str(node.dtype))
    return typed(device=DEVICES)(node, src)


_buffer_fields = typed(unique=frozenset({Ops.UNIQUE, Ops.LUNIQUE}), device=DEVICES)
_buffer_dtype = _memory_dtype(None)
SPECIAL_CHECKS: dict[Ops, Check] = {
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
    Ops.CUSTOM: _format,
    Ops.CUSTOM_I: _custom_expression,
    Ops.CAST: _cast,
    Ops.IF: _if,
    Ops.BIND: _bind,
    Ops.BUFFER_VIEW: _buffer_view,
    Ops.ENDIF: typed(if_op=frozenset({Ops.IF})),
    Ops.BUFFER: _buffer,
    Ops.COPY: typed(device=DEVICES),
    Ops.ALLREDUCE: typed(device=DEVICES),
    Ops.PARAM: _param,
    Ops.DEFINE_REG: _memory_dtype(AddrSpace.REG),
    Ops.DEFINE_LOCAL: _memory_dtype(AddrSpace.LOCAL),
    Ops.POINTER_INDEX: _pointer_index,
    Ops.PTRCAT: _ptrcat,
    Ops.UNROLL: _unroll,
    Ops.CONTRACT: _contract,
    Ops.WMMA: _wmma,
    **CALL_CHECKS,
}
