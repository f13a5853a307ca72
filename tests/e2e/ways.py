"""Three ways to compute the same: lazily, realised after every operation, and folded as
constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from morok.dtype import DType, dtypes, from_numpy, to_numpy
from morok.ir import Ops
from morok.tensor import Tensor
from morok.tensor.base import Base

Function = Callable[..., Tensor]


@contextmanager
def realised_after_every_operation() -> Iterator[None]:
    """Within the block no tensor stays lazy: nothing fuses and nothing folds."""
    lazy = Base._wrap.__func__

    def at_once(cls: type[Tensor], uop: object, requires_grad: bool = False) -> Tensor:
        return lazy(cls, uop, requires_grad).realize()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Base, "_wrap", classmethod(at_once))
        yield


def tensors(arrays: Sequence[np.ndarray], dtype: DType | None) -> list[Tensor]:
    return [Tensor(array, dtype=dtype) for array in arrays]


def as_array(tensor: Tensor) -> np.ndarray:
    """The contents; of a bfloat16 in float32, which holds them."""
    return (tensor if tensor.dtype is not dtypes.bfloat16 else tensor.float()).numpy()


def lazy(functions: Sequence[Function], *arrays: np.ndarray, dtype: DType | None = None) -> list:
    """All functions of the same arguments in one schedule."""
    xs = tensors(arrays, dtype)
    results = [function(*xs) for function in functions]
    Tensor.realize(*results)
    return [as_array(result) for result in results]


def stepwise(
    functions: Sequence[Function], *arrays: np.ndarray, dtype: DType | None = None
) -> list:
    """Each operation a schedule of its own."""
    with realised_after_every_operation():
        xs = tensors(arrays, dtype)
        return [as_array(function(*xs)) for function in functions]


def folded(functions: Sequence[Function], *arrays: np.ndarray, dtype: DType | None = None) -> list:
    """Elementwise functions of constants, element by element: what the compiler itself computes. No
    kernel runs; what does not become a constant is an error."""
    rows = np.broadcast_arrays(*arrays)
    out = []
    for function in functions:
        values = []
        for element in zip(*(row.reshape(-1) for row in rows), strict=True):
            xs = [
                Tensor.full((), value.item(), dtype=dtype or from_numpy(value.dtype))
                for value in element
            ]
            node = function(*xs).uop.simplify()
            assert node.op is Ops.CONST, f"not folded: {node.tree()}"
            values.append(node.arg)
        kind = np.dtype(np.float32) if node.dtype is dtypes.bfloat16 else to_numpy(node.dtype)
        out.append(np.array(values, kind).reshape(rows[0].shape))
    return out


WAYS = [lazy, stepwise, folded]


def same(got: np.ndarray, wanted: object, note: str = "") -> None:
    """Equal bit for bit, dtype and sign of zero included; any NaN is a NaN."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype, f"{note}: {got.dtype}, not {wanted.dtype}"
    np.testing.assert_array_equal(got, wanted, err_msg=note)
    if wanted.dtype.kind == "f":
        zero = wanted == 0
        np.testing.assert_array_equal(
            np.signbit(got)[zero], np.signbit(wanted)[zero], err_msg=f"{note}: sign of zero"
        )
