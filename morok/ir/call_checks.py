"""Checks of the ops that call kernels, and of values on several devices; see `op_checks`."""

from __future__ import annotations

from typing import Any

from morok._core import Node
from morok.ir.faults import DEVICES, Check, Fault, typed
from morok.ir.ops import Ops

__all__ = ["CALL_CHECKS", "PROGRAM_STAGES"]

_CALLABLES = (Ops.CALL, Ops.FUNCTION)
_FORMAL = frozenset({Ops.PARAM, Ops.DEFINE_VAR, Ops.RANGE})

PROGRAM_STAGES = ("linear", "source", "binary")
"""What a PROGRAM is filled with, in this order and in no other."""


def _program(node: Node, src: tuple[Any, ...]) -> Fault | None:
    if len(node.arg) != len(src) - 2:
        filled = PROGRAM_STAGES[: len(src) - 2]
        return Fault("stages", "stages", repr(filled), repr(node.arg))
    return _program_fields(node, src)


def _sink(node: Node, src: tuple[Any, ...]) -> Fault | None:
    for source in src:
        if source.dtype.scalar.kind == "x":
            got = f"{source.op.name} of {source.dtype}"
            return Fault("operands", "sources", "statements, or values that memory holds", got)
    return None


def _function(node: Node, src: tuple[Any, ...]) -> Fault | None:
    for arg in src[1:]:
        if arg.op not in _FORMAL:
            return Fault("operands", "args", "PARAM, DEFINE_VAR or RANGE nodes", arg.op.name)
    return None


def _call(node: Node, src: tuple[Any, ...]) -> Fault | None:
    body, *args = src
    for arg in args:
        if arg.dtype.kind == "v":
            return Fault("operands", "args", "values", f"{arg.op.name}, Void")
    if body.op is Ops.FUNCTION:
        wanted = sum(arg.op is not Ops.RANGE for arg in body.src[1:])
        given = sum(arg.op is not Ops.RANGE for arg in args)
        if given != wanted:
            return Fault("operands", "args", f"{wanted} arguments", f"{given} arguments")
    return None


def _get_tuple(node: Node, src: tuple[Any, ...]) -> Fault | None:
    body = src[0]
    while body.op in _CALLABLES and body.src:
        body = body.src[0]
    if body.op is not Ops.TUPLE:
        return Fault("tuple-index", "src", "a TUPLE, FUNCTION or CALL of one", body.op.name)
    if node.arg >= len(body.src):
        return Fault("tuple-index", "index", f"an index below {len(body.src)}", str(node.arg))
    element = body.src[node.arg].dtype
    if node.dtype is not element:
        return Fault("dtype", "dtype", str(element), str(node.dtype))
    return None


# Several devices ---------------------------------------------------------------------------------


def _mstack(node: Node, src: tuple[Any, ...]) -> Fault | None:
    for buffer in src:
        if buffer.dtype is not node.dtype:
            return Fault("operands", "buffers", str(node.dtype), str(buffer.dtype))
        if buffer.shape != src[0].shape:
            return Fault("operands", "buffers", f"shape {src[0].shape}", f"shape {buffer.shape}")
    return None


def _mselect(node: Node, src: tuple[Any, ...]) -> Fault | None:
    stack = src[0]
    if stack.op is Ops.MULTI and stack.src:
        stack = stack.src[0]
    if stack.op is not Ops.MSTACK:
        return Fault("operands", "buffer", "MSTACK or MULTI", src[0].op.name)
    if node.arg >= len(stack.src):
        expected = f"a device below {len(stack.src)}"
        return Fault("device-index", "device_index", expected, str(node.arg))
    return None


_program_fields = typed(
    sink=frozenset({Ops.SINK}),
    device=DEVICES,
    linear=frozenset({Ops.LINEAR}),
    source=frozenset({Ops.SOURCE}),
    binary=frozenset({Ops.PROGRAM_BINARY}),
)

CALL_CHECKS: dict[Ops, Check] = {
    Ops.SINK: _sink,
    Ops.CALL: _call,
    Ops.FUNCTION: _function,
    Ops.GET_TUPLE: _get_tuple,
    Ops.PROGRAM: _program,
    Ops.MSTACK: _mstack,
    Ops.MSELECT: _mselect,
    Ops.MULTI: typed(src=frozenset({Ops.MSTACK})),
}
