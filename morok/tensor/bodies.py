"""FUNCTIONs of tensors: bodies over formal PARAMs."""

from __future__ import annotations

from collections.abc import Sequence

from morok import engine
from morok.dtype import DType, dtypes
from morok.ir import CallInfo, Ops, UOp, room_of
from morok.runtime import Device
from morok.tensor import nodes
from morok.tensor.composed import replaced
from morok.tensor.nodes import Shape

_CPU = UOp.new_device()


def parameter(slot: int, dtype: DType, shape: Shape) -> UOp:
    """The PARAM of a function for a value of `shape`: flat, as all memory."""
    return UOp.param(slot, dtype, room_of(shape), _CPU)


def function_of(body: UOp, params: Sequence[UOp], info: CallInfo) -> UOp:
    """The FUNCTION of a TUPLE over memory, PARAMs or BUFFERs, which becomes the PARAMs 0, 1 … in
    this order. Compiled at once if `info` says precompile."""
    slots = {
        memory: UOp.param(i, memory.dtype, room_of(nodes.shape_of(memory)), _CPU)
        for i, memory in enumerate(params)
    }
    if any(old is not new for old, new in slots.items()):
        body = replaced(body, slots)
    function = UOp(Ops.FUNCTION, dtypes.void, (body, *slots.values()), info)
    if info.precompile:
        engine.compile_function(function, Device["CPU"])
    return function
