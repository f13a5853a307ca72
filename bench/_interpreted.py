"""Running lazy tensors on the reference interpreter instead of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from morok.dtype import to_numpy
from morok.engine import CompiledKernel, Row
from morok.ir import Ops, UOp
from morok.ir.interpret import interpret_kernel
from morok.runtime import Buffer, CpuDevice


class _Plans(dict[Any, Any]):
    """Plans of one block: those that run compiled kernels are no use here, nor these there."""

    def put(self, key: Any, planned: Any) -> None:
        self[key] = planned


class _Plan:
    """The rows of an `ExecutionPlan`, their functions being SINKs."""

    def __init__(self, rows: Sequence[Row], sizes: Sequence[int]) -> None:
        self._rows, self._sizes = rows, sizes

    def run(self, given: Sequence[Buffer], values: Sequence[int] = ()) -> None:
        """Kernel after kernel, on the caller's memory and some for the slots after it; none takes
        values of variables."""
        assert not values
        memory = [*given, *map(Buffer, self._sizes)]
        for row in self._rows:
            sink: Any = row.function
            arrays = [
                memory[slot].view(to_numpy(p.dtype.base), (p.arg[1],))
                for slot, p in zip(row.places, _params(sink), strict=True)
            ]
            after = interpret_kernel(sink, arrays)
            for position in row.stores:
                arrays[position][...] = after[position]


def _params(sink: UOp) -> list[UOp]:
    found = [u for u in sink.toposort() if u.op is Ops.PARAM]
    return sorted(found, key=lambda u: u.arg[0])


@contextmanager
def interpreted() -> Iterator[list[UOp]]:
    """Within the block plans are run kernel by kernel on the interpreter, and nothing is compiled.
    Gives the list of the SINKs that were planned, which grows."""
    schedule = import_module("morok.engine.schedule")
    sinks: list[UOp] = []

    def compile_kernels(asked: Sequence[UOp], device: CpuDevice) -> list[CompiledKernel]:
        sinks.extend(asked)
        return [CompiledKernel(s.arg.name, s, "", s, 0) for s in asked]  # type: ignore[arg-type]

    def build_plan(
        rows: Sequence[Row], n_given: int, sizes: Sequence[int], n_vars: int = 0
    ) -> _Plan:
        return _Plan(rows, sizes)

    with (
        mock.patch.object(schedule, "_plans", _Plans()),
        mock.patch.object(schedule, "compile_kernels", compile_kernels),
        mock.patch.object(schedule, "build_plan", build_plan),
    ):
        yield sinks
