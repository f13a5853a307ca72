"""A computation compiled once and run many times: what `Tensor.prepare` gives."""

from __future__ import annotations

from typing import Generic, TypeVar

from morok import engine
from morok.engine import buffers
from morok.ir import UOp, laid_out, room_of
from morok.runtime import Buffer, Device
from morok.tensor import nodes
from morok.tensor.base import Base

T = TypeVar("T", bound=Base)


class Prepared(Generic[T]):
    """The kernels that compute some tensors, compiled.

    Each `execute` reads the memory that the tensors were computed from as it is then, and gives new
    tensors. What was written since under another name (a tensor assigned to) is gone:
    InvalidGraphError.
    """

    def __init__(self, tensors: list[T]) -> None:
        self._class = type(tensors[0])
        self._roots = [tensor.uop for tensor in tensors]
        lazy = [u for u in self._roots if u.shape is not None and 0 not in u.shape]
        normal = engine.Normal(engine.sink_of(lazy))
        self._normal = normal
        self._planned = engine.plan(normal, Device["CPU"])
        self._slots = dict(zip(lazy, self._planned.results, strict=True))
        self.outputs: list[T] = []

    @property
    def kernels(self) -> tuple[str, ...]:
        """Their names, in the order they run."""
        return self._planned.plan.names

    def sources(self) -> tuple[str, ...]:
        """The text each was compiled from."""
        return tuple(kernel.source for kernel in self._planned.kernels)

    def execute(self) -> list[T]:
        """Run the kernels; the results, which are `outputs` until the next time."""
        for window in self._normal.windows:
            buffers.buffer_of(window.node)  # or the error
        memory = [window.memory for window in self._normal.windows]
        memory = engine.run_plan(self._planned, self._normal, memory)
        self.outputs = [self._result(root, memory) for root in self._roots]
        return self.outputs

    def _result(self, root: UOp, memory: list[Buffer]) -> T:
        shape = nodes.shape_of(root)
        slot = self._slots.get(root)
        if slot is None:  # no elements
            return self._class._wrap(nodes.full(shape, root.dtype, 0))
        node = UOp.new_buffer(root.dtype, room_of(shape))
        return self._class._wrap(laid_out(buffers.bind(node, memory[slot]), shape))

    def __repr__(self) -> str:
        return f"<Prepared: {len(self.kernels)} kernels, {len(self._roots)} results>"
