"""What `Tensor` means, eagerly: the specification that the lazy one is driven against.

A model tensor owns one NumPy array, and every operation makes a new one at once: there are no
views, no pending writes and no shared memory, so program order is plain to see. Ints wrap in their
own width, sums of narrow ints are 32 bits wide. Only what was lent is a view of somebody else's
array, as `Tensor.from_numpy` promises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "lt": np.less,
    "eq": np.equal,
}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": np.negative, "abs": np.abs, "square": np.square}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
}


def _narrowed(value: Any) -> Array:
    """NumPy's wider results (argmax, sums of bools) in the default int."""
    array = np.asarray(value)
    return array.astype(np.int32) if array.dtype.kind in "iu" else array


class ModelTensor:
    """The eager twin of `Tensor`; methods have the same names and arguments."""

    def __init__(self, array: Any) -> None:
        self.array: Array = np.array(array)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.array.shape
        return shape

    def binary(self, name: str, other: ModelTensor) -> ModelTensor:
        """Elementwise `name` of two tensors of one dtype."""
        return ModelTensor(BINARY[name](self.array, other.array))

    def unary(self, name: str) -> ModelTensor:
        return ModelTensor(UNARY[name](self.array))

    def where(self, x: ModelTensor, y: ModelTensor) -> ModelTensor:
        return ModelTensor(np.where(self.array, x.array, y.array))

    def reduce(self, name: str, dim: int | None) -> ModelTensor:
        return ModelTensor(_narrowed(REDUCTIONS[name](self.array, axis=dim)))

    def reshape(self, *shape: int) -> ModelTensor:
        return ModelTensor(self.array.reshape(shape))

    def permute(self, *axes: int) -> ModelTensor:
        return ModelTensor(self.array.transpose(axes))

    def flip(self, dim: int) -> ModelTensor:
        return ModelTensor(np.flip(self.array, dim))

    def expand(self, *shape: int) -> ModelTensor:
        return ModelTensor(np.broadcast_to(self.array, shape))

    def pad(self, pairs: list[tuple[int, int]], value: int) -> ModelTensor:
        return ModelTensor(np.pad(self.array, pairs, constant_values=value))

    def cat(self, other: ModelTensor, dim: int) -> ModelTensor:
        return ModelTensor(np.concatenate([self.array, other.array], dim))

    def __getitem__(self, index: Any) -> ModelTensor:
        return ModelTensor(self.array[index])

    def matmul(self, other: ModelTensor) -> ModelTensor:
        return ModelTensor(self.array @ other.array)

    def gather(self, dim: int, index: Array) -> ModelTensor:
        return ModelTensor(np.take_along_axis(self.array, index, dim))

    def scatter(self, dim: int, index: Array, src: ModelTensor, add: bool) -> ModelTensor:
        """Element after element: the last of several in one place stays, or all are added."""
        new = self.array.copy()
        for at in np.ndindex(index.shape):
            to = (*at[:dim], index[at], *at[dim + 1 :])
            new[to] = new[to] + src.array[at] if add else src.array[at]
        return ModelTensor(new)

    def cumsum(self, dim: int) -> ModelTensor:
        return ModelTensor(np.cumsum(self.array, dim, dtype=self.array.dtype))

    def assign(self, value: ModelTensor) -> None:
        """The whole tensor; what was computed from it before does not change."""
        self.array = np.array(np.broadcast_to(value.array, self.shape).astype(self.array.dtype))

    def __setitem__(self, index: Any, value: ModelTensor) -> None:
        new = self.array.copy()
        new[index] = value.array
        self.array = new


class LentModel(ModelTensor):
    """A tensor on memory that others have too: it is written itself, and seen by them."""

    def __init__(self, view: Array) -> None:
        self.array = view

    def assign(self, value: ModelTensor) -> None:
        self.array[...] = np.array(np.broadcast_to(value.array, self.shape))

    def __setitem__(self, index: Any, value: ModelTensor) -> None:
        self.array[index] = value.array.copy()
