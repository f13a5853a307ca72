"""What random sessions are made of: jitted functions and what they mean, arrays and indices by
number, and what goes with what."""

from __future__ import annotations

from typing import Any

import numpy as np

import morok as mk
from bench.numpy_model import Array, ModelTensor
from morok.tensor import Tensor

LIMIT = 1e5
"""Values stay below, so that float sums in another order stay close."""


# Jitted functions and what they mean -------------------------------------------------------------


def functions() -> dict[str, Any]:
    """New ones for every program, each with its own recordings."""

    @mk.jit
    def both(x: Tensor, others: list[Tensor]) -> tuple[Tensor, ...]:
        return x + others[0], x - others[0] * 2

    @mk.jit
    def chain(x: Tensor, others: list[Tensor]) -> tuple[Tensor, ...]:
        y = x.maximum(others[0])
        return y.flip(0) if y.ndim else y, (y * 2).sum(), y.cumsum(0) if y.ndim else y

    @mk.jit
    def write(x: Tensor, others: list[Tensor]) -> tuple[Tensor, ...]:
        before = x * 1
        x += others[0]
        return before, x - others[0]

    @mk.jit
    def part(x: Tensor, others: list[Tensor]) -> tuple[Tensor, ...]:
        if not x.ndim:
            return (x + 1,)
        x[:1] = others[0][-1:] + 1
        x[-1:] -= others[0][:1]
        return (x * 1,)

    return {"both": both, "chain": chain, "write": write, "part": part}


def _both(x: ModelTensor, y: ModelTensor) -> list[ModelTensor]:
    return [x.binary("add", y), ModelTensor(x.array - y.array * y.array.dtype.type(2))]


def _chain(x: ModelTensor, y: ModelTensor) -> list[ModelTensor]:
    top = x.binary("maximum", y)
    twice = ModelTensor(top.array * top.array.dtype.type(2)).reduce("sum", None)
    if not top.shape:
        return [top, twice, top]
    return [top.flip(0), twice, top.cumsum(0)]


def _write(x: ModelTensor, y: ModelTensor) -> list[ModelTensor]:
    before = ModelTensor(x.array)
    x.assign(x.binary("add", y))
    return [before, x.binary("sub", y)]


def _part(x: ModelTensor, y: ModelTensor) -> list[ModelTensor]:
    if not x.shape:
        return [ModelTensor(x.array + x.array.dtype.type(1))]
    x[:1] = ModelTensor(y.array[-1:] + x.array.dtype.type(1))
    x[-1:] = ModelTensor(x.array[-1:] - y.array[:1])
    return [ModelTensor(x.array)]


MEANINGS = {"both": _both, "chain": _chain, "write": _write, "part": _part}


# What goes with what -----------------------------------------------------------------------------


def array_of(number: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """The array of a number: small whole numbers."""
    return np.asarray(np.random.default_rng(number).integers(-8, 9, shape).astype(dtype))


def index_arrays(number: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """An index with arrays in it, for `Tensor` and for NumPy."""
    rng = np.random.default_rng(number)

    def places(length: int, *count: int) -> Array:
        return rng.integers(-length, length, count)

    kind = number % 6
    if kind == 0:
        at = places(shape[0], 4)
        return at.tolist(), at
    if kind == 1:
        at = places(shape[0], 2, 2)
        return Tensor(at), at
    if kind == 2:
        at = rng.random(shape) < 0.5
        return at, at
    if kind == 3:
        at = rng.random(shape[:1]) < 0.5
        return at.tolist(), at
    arrays = tuple(places(n, 3) for n in shape)
    if kind == 4 or len(shape) < 2:
        return arrays, arrays
    mixed = (arrays[0], *[slice(None)] * (len(shape) - 2), arrays[-1])
    return mixed, mixed


def places_along(number: int, shape: tuple[int, ...], axis: int) -> Array:
    """Places along one axis, for gather and scatter."""
    rng = np.random.default_rng(number)
    counts = [n if i != axis else 1 + number % 4 for i, n in enumerate(shape)]
    return rng.integers(0, shape[axis], counts)


def is_small(array: Array) -> bool:
    """Whether all of it stays below LIMIT."""
    return bool(np.abs(array.astype(np.float64)).max(initial=0) < LIMIT)


def is_number(model: ModelTensor) -> bool:
    """Neither bools nor out of hand."""
    return model.array.dtype.kind != "b" and is_small(model.array)


def is_float(model: ModelTensor) -> bool:
    return bool(model.array.dtype.kind == "f")


def has_axes(model: ModelTensor) -> bool:
    return model.array.ndim > 0


def takes(model: ModelTensor, index: Any) -> bool:
    """Whether a basic index goes with a shape."""
    try:
        model.array[index]
    except IndexError:
        return False
    return True


def like(model: ModelTensor, other: ModelTensor) -> bool:
    """Of the same dtype."""
    return bool(model.array.dtype == other.array.dtype)


def meets(*shapes: tuple[int, ...]) -> bool:
    """Whether shapes broadcast."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether a value of this shape can be written to a place of the other."""
    return meets(shape, into) and np.broadcast_shapes(shape, into) == into
