"""Reductions of everything in parts: values, rounding, the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import morok as mk
from morok import Tensor, config
from morok.ir import AxisType
from morok.optimizer import apply_opts
from morok.runtime import Device
from tests.rangeify.scheduling import schedule_of

Array = np.ndarray


def values_on_threads(make: Callable[[], Tensor]) -> Array:
    """What `make` computes, asserted to have the same bits on one thread and more."""
    results = []
    for threads in (1, 2, 5):
        with config.override(threads=threads):
            results.append(make().numpy())
    assert len({result.tobytes() for result in results}) == 1
    return results[0]


@pytest.mark.parametrize("shape", [(1 << 18,), (300_007,), (601, 499), (3, 1 << 17), (7, 5, 9001)])
def test_sums_of_everything(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """Lengths with good divisors, primes, few long rows."""
    x, y = rng.standard_normal((2, *shape), dtype=np.float32)
    a, b = Tensor(x).realize(), Tensor(y).realize()
    right = np.sum(x * y.astype(np.float64))
    assert abs(values_on_threads(lambda: (a * b).sum()) - right) < 1e-6 * np.abs(x * y).sum()
    assert values_on_threads(a.max) == x.max()
    assert values_on_threads(a.min) == x.min()
    mean = x.mean(dtype=np.float64)
    assert abs(values_on_threads(lambda: (a - a.mean()).square().sum()) / x.size - x.var()) < 1e-5
    assert abs(values_on_threads(a.mean) - mean) < 1e-6


def test_partial_results_are_shared_out_to_threads() -> None:
    first, last = schedule_of(Tensor.empty(1 << 20).realize().sum()).calls
    renderer = Device["CPU"].renderer
    assert AxisType.THREAD in apply_opts(first.src[0], renderer).arg.axis_types
    assert last.src[0].arg.estimates.bytes_read == 4 * (1 << 20) // (1 << 14)


def test_sums_of_rows_are_partial_results() -> None:
    """A loss of many rows: the mean of what is computed of each row."""
    x = Tensor.empty(1024, 1024).realize()
    first, last = schedule_of(x.exp().sum(1).log().mean()).calls
    assert first.src[0].arg.estimates.bytes_read == 4 << 20
    assert last.src[0].arg.estimates.bytes_read <= 4 * 1024


@pytest.mark.parametrize("shape", [(1000,), (64, 1024), (512, 1024)])
def test_others_stay_whole(shape: tuple[int, ...]) -> None:
    """Short ones, and those that have results enough."""
    x = Tensor.empty(*shape).realize()
    whole = x.sum() if x.numel() < 1 << 18 else x.sum(1)
    assert len(schedule_of(whole).calls) == 1


def test_halves_are_rounded_once(rng: np.random.Generator) -> None:
    x = rng.standard_normal(1 << 18).astype(np.float16)
    right = x.astype(np.float64).sum()
    a = Tensor(x).realize()
    total = values_on_threads(a.sum)
    assert total.dtype == np.float16
    assert total == np.float16(right)


def test_whole_numbers_wrap_and_bools_count(rng: np.random.Generator) -> None:
    x = rng.integers(-(1 << 31), 1 << 31, 1 << 18).astype(np.int32)
    a = Tensor(x).realize()
    assert values_on_threads(a.sum) == x.sum(dtype=np.int32)
    assert values_on_threads((a > 0).sum) == (x > 0).sum()
    assert values_on_threads((a > 0).all) == np.False_
    assert values_on_threads(a.argmax) == x.argmax()


def test_not_a_number_is_kept_wherever_it_stands() -> None:
    for place in (0, 16_383, 16_384, 299_999, 300_006):
        x = np.zeros(300_007, np.float32)
        x[place] = np.nan
        a = Tensor(x).realize()
        assert np.isnan(a.sum().numpy())
        assert np.isnan(a.max().numpy())


def test_gradients_through_partial_results(rng: np.random.Generator) -> None:
    x = rng.standard_normal((601, 499), dtype=np.float32)
    a = Tensor(x, requires_grad=True)
    (a * a).sum().backward()
    grad = a.grad
    assert grad is not None
    np.testing.assert_array_equal(grad.numpy(), 2 * x)


def test_a_jitted_sum(rng: np.random.Generator) -> None:
    x = rng.standard_normal(1 << 18, dtype=np.float32)
    step = mk.jit(lambda t: t.square().sum().realize())
    for scale in (1, 2, 3, 4):
        total = step(Tensor(scale * x).realize()).numpy()
        assert abs(total / np.sum(np.square(scale * x, dtype=np.float64)) - 1) < 1e-6


def test_a_reduction_below_an_update_in_place() -> None:
    a = Tensor.ones(1 << 18).contiguous().realize()
    a.assign(a / a.sum())
    assert a.realize().numpy()[0] == np.float32(2.0**-18)
