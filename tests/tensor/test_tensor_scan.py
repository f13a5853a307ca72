"""cumsum and cumprod against NumPy; their gradients against differences and PyTorch."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok import Tensor, dtypes
from morok.errors import AxisError
from tests.rangeify.scheduling import schedule_of


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_running_sums_and_products_are_numpys(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    a = np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.int64)
    assert np.array_equal(Tensor(a).cumsum(axis).numpy(), np.cumsum(a, axis))
    assert np.array_equal(Tensor(a).cumprod(axis=axis).numpy(), np.cumprod(a, axis))


def test_narrow_ints_and_bools_are_added_in_32_bits() -> None:
    t = Tensor(np.array([200, 100, 50], np.uint8)).cumsum(0)
    assert t.tolist() == [200, 300, 350]
    assert t.dtype is dtypes.uint32
    counts = Tensor(np.array([True, True, False, True])).cumsum(0)
    assert (counts.tolist(), counts.dtype) == ([1, 2, 2, 3], dtypes.int32)
    assert Tensor(5.0).cumsum(0).item() == 5.0
    assert Tensor(np.zeros((0, 3), np.float32)).cumsum(1).shape == (0, 3)
    assert Tensor([1.0, 2.0]).cumsum(0, dtype=dtypes.int32).tolist() == [1, 3]


def test_halves_are_added_in_float32() -> None:
    a = np.full(5000, 0.1, np.float16)
    want = np.cumsum(a.astype(np.float64)).astype(np.float16)
    got = Tensor(a).cumsum(0)
    assert got.dtype is dtypes.float16
    assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("shape", [(5000,), (3, 9001), (4100, 2)])
def test_error_of_long_sums_does_not_grow_with_the_length(shape: tuple[int, ...]) -> None:
    axis = int(np.argmax(shape))
    a = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    want = np.cumsum(a.astype(np.float64), axis)
    got = Tensor(a).cumsum(axis).numpy()
    # Two levels of at most 1024 steps, each of half an ulp: far fewer in practice.
    assert np.max(np.abs(got - want) / want) < 1200 * 2.0**-24


def test_work_is_linear() -> None:
    assert _steps(Tensor(np.zeros(1 << 16, np.int32)).cumsum(0)) == 2 * (1 << 16)  # fill, and run


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.bool_])
def test_multiples_take_no_running(dtype: type) -> None:
    """What is the same along the axis is multiplied: nothing is filled first, nothing carried on.
    Sums of halves are exact."""
    a = (np.arange(4).reshape(4, 1) / 2).astype(dtype)
    t = Tensor(a).realize()
    ones = np.ones((4, 100), dtype)
    wide = np.broadcast_to(a, (4, 100))
    for got, want in (
        (Tensor(ones[0, 0]).expand(4, 100).cumsum(1), ones.cumsum(1)),
        (Tensor.full((4, 100), 1, dtype=t.dtype).cumsum(), ones.cumsum()),
        (t.expand(4, 100).cumsum(1), wide.cumsum(1)),
        (t.expand(4, 100).flip(1).cast(dtypes.float64).cumsum(-1), wide.cumsum(1)),
        ((t.expand(4, 100) * t).cumsum(1), (wide * a).cumsum(1)),
    ):
        assert _steps(got) == 400
        np.testing.assert_array_equal(got.numpy(), want)


def test_what_differs_along_the_axis_is_run_through() -> None:
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    column, row = Tensor(a[:, :1]), Tensor(a[:1])
    for got, want in (
        (column.expand(3, 4).cumsum(0), np.broadcast_to(a[:, :1], (3, 4)).cumsum(0)),
        ((column + row).cumsum(1), (a[:, :1] + a[:1]).cumsum(1)),
        (column.expand(3, 4).cumsum(), np.broadcast_to(a[:, :1], (3, 4)).cumsum()),
        (column.expand(3, 4).T.cumsum(0), np.broadcast_to(a[:, :1], (3, 4)).T.cumsum(0)),
        (Tensor.ones(5).pad((1, 2)).cumsum(0), np.pad(np.ones(5), (1, 2)).cumsum(0)),
    ):
        np.testing.assert_array_equal(got.numpy(), want)


def test_the_gradient_of_multiples() -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)
    (x.reshape(2, 1).expand(2, 3).cumsum(1) * Tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1 + 20 + 300] * 2


def _steps(t: Tensor) -> int:
    """Elements that all kernels of a value store."""
    stores = [store for call in schedule_of(t).calls for store in call.src[0].src]
    return sum(prod(r.src[0].arg for r in store.ended_ranges) for store in stores)


@pytest.mark.parametrize("method", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_are_those_of_differences(method: str, axis: int) -> None:
    rng = np.random.default_rng(1)
    a, w = rng.standard_normal((2, 4, 5))
    a[1, 2] = a[3, 2] = a[1, 4] = 0  # a product with zeros has no quotient to use
    x = Tensor(a, requires_grad=True)
    (got,) = (getattr(x, method)(axis) * Tensor(w)).sum().gradient(x)
    scan = getattr(np, method)
    want = np.zeros_like(a)
    for place in np.ndindex(a.shape):
        up, down = a.copy(), a.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        want[place] = ((scan(up, axis) - scan(down, axis)) * w).sum() / 2e-6
    assert np.allclose(got.numpy(), want, atol=1e-7)


@pytest.mark.torch
@pytest.mark.parametrize("method", ["cumsum", "cumprod"])
def test_first_and_second_gradients_are_pytorchs(method: str) -> None:
    import torch

    rng = np.random.default_rng(2)
    a, w, v = rng.standard_normal((3, 3, 6))
    a[0, 1] = a[2, 3] = a[2, 4] = 0
    x, theirs = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    (first,) = (getattr(x.sin(), method)(1) * Tensor(w)).sum().gradient(x)
    loss = (getattr(theirs.sin(), method)(1) * torch.tensor(w)).sum()
    (want,) = torch.autograd.grad(loss, theirs, create_graph=True)
    assert np.allclose(first.numpy(), want.detach().numpy(), atol=1e-12)
    (second,) = (first * Tensor(v)).sum().gradient(x)
    (want,) = torch.autograd.grad((want * torch.tensor(v)).sum(), theirs)
    assert np.allclose(second.numpy(), want.numpy(), atol=1e-12)


def test_a_wrong_axis_says_so() -> None:
    with pytest.raises(AxisError, match="cumsum: axis 2"):
        Tensor([[1.0]]).cumsum(2)
