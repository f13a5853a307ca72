"""Running lazy tensors on the reference interpreter instead of compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from morok.dtype import DType, dtypes, to_numpy
from morok.engine import CompiledKernel, Row
from morok.ir import Ops, UOp, numeric
from morok.ir.interpret import interpret_kernel
from morok.runtime import Buffer, CpuDevice

_BITS = {
    dtypes.bfloat16: dtypes.uint16,
    dtypes.fp8e4m3: dtypes.uint8,
    dtypes.fp8e5m2: dtypes.uint8,
}
Watcher = Callable[[UOp, list[np.ndarray]], None]
"""Sees a kernel and what its buffers hold before it runs; it may keep the arrays."""


def stored(dtype: DType) -> np.dtype[Any]:
    """What NumPy sees in memory of a dtype: bits where it has no such numbers."""
    return np.dtype(f"u{dtype.itemsize}") if dtype in _BITS else to_numpy(dtype)


def from_stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    """What the interpreter wants for memory: values. The array itself where it holds them."""
    return numeric.bitcast(array, _BITS[dtype], dtype) if dtype in _BITS else array


def to_stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The inverse of `from_stored`."""
    return numeric.bitcast(array, dtype, _BITS[dtype]) if dtype in _BITS else array


class _Plans(dict[Any, Any]):
    """Plans of one block: those that run compiled kernels are no use here, nor these there."""

    def put(self, key: Any, planned: Any) -> None:
        self[key] = planned


class _Plan:
    """The rows of an `ExecutionPlan`, their functions being SINKs."""

    def __init__(self, rows: Sequence[Row], sizes: Sequence[int], watcher: Watcher | None) -> None:
        self._rows, self._sizes, self._watcher = rows, sizes, watcher

    def run(self, given: Sequence[Buffer], values: Sequence[int] = ()) -> None:
        """Kernel after kernel, on the caller's memory and some for the slots after it; none takes
        values of variables."""
        assert not values
        memory = [*given, *map(Buffer, self._sizes)]
        for row in self._rows:
            sink: Any = row.function
            params = _params(sink)
            held = [
                memory[slot].view(stored(p.dtype.base), (p.arg[1],))
                for slot, p in zip(row.places, params, strict=True)
            ]
            arrays = [from_stored(a, p.dtype.base) for a, p in zip(held, params, strict=True)]
            if self._watcher is not None:
                self._watcher(sink, [array.copy() for array in arrays])
            after = interpret_kernel(sink, arrays)
            for position in row.stores:
                held[position][...] = to_stored(after[position], params[position].dtype.base)


def _params(sink: UOp) -> list[UOp]:
    found = [u for u in sink.toposort() if u.op is Ops.PARAM]
    return sorted(found, key=lambda u: u.arg[0])


@contextmanager
def interpreted(watcher: Watcher | None = None) -> Iterator[list[UOp]]:
    """Within the block plans are run kernel by kernel on the interpreter, and nothing is compiled.
    Gives the list of the SINKs that were planned, which grows. `watcher` sees what is run."""
    schedule = import_module("morok.engine.schedule")
    sinks: list[UOp] = []

    def compile_kernels(asked: Sequence[UOp], device: CpuDevice) -> list[CompiledKernel]:
        sinks.extend(asked)
        return [CompiledKernel(s.arg.name, s, "", s, 0) for s in asked]  # type: ignore[arg-type]

    def build_plan(rows: Sequence[Row], n_given: int, sizes: Sequence[int], **_: Any) -> _Plan:
        return _Plan(rows, sizes, watcher)

    with (
        mock.patch.object(schedule, "_plans", _Plans()),
        mock.patch.object(schedule, "compile_kernels", compile_kernels),
        mock.patch.object(schedule, "build_plan", build_plan),
        mock.patch.object(schedule, "load_plan", return_value=None),
        mock.patch.object(schedule, "store_plan", return_value=False),
    ):
        yield sinks
