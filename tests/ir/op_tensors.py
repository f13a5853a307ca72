"""A small tensor graph for every op that stands in no kernel, with its value in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from morok.dtype import dtypes
from morok.ir import AxisType, CallInfo, KernelInfo, Ops, ReduceOp, UOp

F32 = dtypes.float32
Example = tuple[UOp, dict[UOp, np.ndarray], Any]
"""A graph, the contents of its buffers, its value (of a TUPLE: a list)."""


def buffer(*shape: int, device: str = "CPU") -> tuple[UOp, UOp]:
    """A BUFFER and a view of it of this shape."""
    node = UOp.new_buffer(F32, int(np.prod(shape)), device)
    return node, node.reshape(shape)


def of_one(value: Callable[[UOp], UOp], wanted: Callable[[np.ndarray], Any]) -> Example:
    """`value` of a (3, 4) tensor."""
    memory, x = buffer(3, 4)
    data = np.arange(12, dtype=np.float32) ** 2 % 23
    return value(x), {memory: data}, wanted(data.reshape(3, 4))


def of_two(value: Callable[[UOp, UOp], UOp], wanted: Callable[..., Any]) -> Example:
    """`value` of a vector on each of two devices."""
    (a, _), (b, _) = buffer(4), buffer(4, device="CPU:1")
    data = {a: np.arange(4, dtype=np.float32), b: np.array([5, 3, 1, 0], np.float32)}
    return value(a, b), data, wanted(*data.values())


def doubling() -> UOp:
    """The kernel out[i] = 2 * x[i] over 12 elements."""
    i = UOp.range(12, 0, AxisType.LOOP, renumbered=True)
    out, x = (UOp.param(slot, F32.ptr(), 12) for slot in (0, 1))
    return UOp.new_sink(out.at(i).store(x.at(i) * 2.0, i), info=KernelInfo("double"))


def called(body: UOp) -> Example:
    """A buffer after the call of a kernel that fills it."""
    memory, _ = buffer(12)
    out = UOp.new_buffer(F32, 12)
    data = np.arange(12, dtype=np.float32)
    call = body.call(out, memory, info=CallInfo(name="double"))
    return out.after(call), {memory: data, out: np.zeros(12, np.float32)}, data * 2


def function() -> UOp:
    params = (UOp.param(slot, F32.ptr(), 12) for slot in (0, 1))
    return doubling().function(*params, info=CallInfo(name="double"))


def identified(unique: UOp) -> Example:
    """Two buffers that only their identity keeps apart."""
    a, b = UOp.new_buffer(F32, 4, unique=UOp.new_lunique(0)), UOp.new_buffer(F32, 4, unique=unique)
    x, y = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    return a + b, {a: x, b: y}, x + y


TENSORS: dict[Ops, Callable[[], Example]] = {
    Ops.REDUCE_AXIS: lambda: of_one(
        lambda x: x.reduce_axis(ReduceOp.MIN, (0,)), lambda x: x.min(0)
    ),
    Ops.RESHAPE: lambda: of_one(lambda x: x.reshape((2, 6)), lambda x: x.reshape(2, 6)),
    Ops.PERMUTE: lambda: of_one(lambda x: x.permute((1, 0)), lambda x: x.T),
    Ops.EXPAND: lambda: of_one(
        lambda x: x.reshape((3, 1, 4)).expand((3, 2, 4)), lambda x: np.stack([x, x], 1)
    ),
    Ops.PAD: lambda: of_one(lambda x: x.pad((1, 0), (0, 2)), lambda x: np.pad(x, [(1, 0), (0, 2)])),
    Ops.SHRINK: lambda: of_one(lambda x: x.shrink((1, 0), (3, 3)), lambda x: x[1:3, 0:3]),
    Ops.FLIP: lambda: of_one(lambda x: x.flip((True, False)), lambda x: x[::-1]),
    Ops.BUFFER: lambda: of_one(lambda x: x.src[0], np.ravel),
    Ops.BUFFER_VIEW: lambda: of_one(lambda x: x.src[0].buffer_view(5, 3), lambda x: x.ravel()[3:8]),
    Ops.DETACH: lambda: of_one(lambda x: x.detach(1), lambda x: x),
    Ops.CONTIGUOUS_BACKWARD: lambda: of_one(lambda x: x.contiguous_backward(), lambda x: x),
    Ops.COPY: lambda: of_one(lambda x: x.copy_to("CPU:1"), lambda x: x),
    Ops.ALLREDUCE: lambda: of_two(
        lambda a, b: UOp.mstack(a, b).allreduce(ReduceOp.MIN, "CPU"), np.minimum
    ),
    Ops.MSTACK: lambda: of_two(
        lambda a, b: UOp.mstack(a, b).multi(0), lambda a, b: np.concatenate([a, b])
    ),
    Ops.MULTI: lambda: of_two(
        lambda a, b: UOp.mstack(a, b).multi(0) * 2.0, lambda a, b: np.concatenate([a, b]) * 2
    ),
    Ops.MSELECT: lambda: of_two(lambda a, b: UOp.mstack(a, b).mselect(1), lambda a, b: b),
    Ops.CALL: lambda: called(doubling()),
    Ops.FUNCTION: lambda: called(function()),
    Ops.TUPLE: lambda: of_one(lambda x: UOp.new_tuple(x, x + 1.0), lambda x: [x, x + 1]),
    Ops.GET_TUPLE: lambda: of_one(
        lambda x: UOp.new_tuple(x, x + 1.0).get_tuple(1), lambda x: x + 1
    ),
    Ops.UNIQUE: lambda: identified(UOp.new_unique()),
    Ops.LUNIQUE: lambda: identified(UOp.new_lunique(1)),
    Ops.DEVICE: lambda: of_one(lambda x: x.copy_to("CPU:3"), lambda x: x),
}
"""Every op that has a value outside of kernels, or gives one to its users."""

NO_VALUE = {
    Ops.CUSTOM_FUNCTION: "a device's own function",
    Ops.PROGRAM: "`interpret_program` runs it: as a tensor it has no value",
    Ops.LINEAR: "`interpret_linear` runs it: as a tensor it has no value",
    Ops.SOURCE: "text",
    Ops.PROGRAM_BINARY: "machine code",
    Ops.SPECIAL: "a loop of the hardware's: it is open as long as nothing closes it",
}
"""Ops whose value as a tensor is refused, and why."""
