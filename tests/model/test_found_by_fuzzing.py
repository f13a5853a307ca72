"""Sessions that went wrong once, made small."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import morok as mk
from bench.state_machine import run
from morok import config
from morok.tensor import Tensor


@pytest.mark.parametrize("first", ["written", "kept"])
def test_index_arrays_write_memory_of_their_own(first: str) -> None:
    """Sessions 300080: the loop that writes began as the very node that `contiguous` makes, and ran
    in the memory of that."""
    x = Tensor(np.arange(6, dtype=np.int32).reshape(2, 3)).realize()
    kept = x.contiguous()
    written = x.clone()
    written[[0, 1]] = Tensor(100) + 0
    Tensor.realize(*((written, kept) if first == "written" else (kept, written)))
    assert written.tolist() == [[100] * 3] * 2
    assert kept.tolist() == x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_index_arrays_write_beside_a_realised_contiguous_value() -> None:
    x = Tensor([1, 2, 3])
    kept = (x * 2).contiguous().realize()
    written = x * 2
    written[[2, 0]] = 7
    assert written.tolist() == [7, 4, 7]
    assert kept.tolist() == [2, 4, 6]


def test_running_sums_do_not_run_in_zeros_that_somebody_has() -> None:
    zeros = Tensor.zeros(4).contiguous().realize()
    assert Tensor([1.0, 2.0, 3.0, 4.0]).cumsum(0).tolist() == [1, 3, 6, 10]
    assert zeros.tolist() == [0, 0, 0, 0]


def test_sessions_with_a_gathered_read_whose_lanes_lie_in_two_arrays() -> None:
    """Sessions 804200: the place of one lane was taken to have the bounds of the whole
    vector's."""
    with config.override(verify=True):
        run(804200)


@pytest.mark.parametrize("at_once", [True, False])
def test_functions_beside_ordered_loops(at_once: bool) -> None:
    """Dags 70004, 70016, 70086: a graph with calls was cut within the loops of running sums and of
    index writes."""

    @mk.function
    def difference(a: Tensor, b: Tensor) -> Tensor:
        return a * 2 - b

    a = np.arange(6, dtype=np.float32)
    x, y = Tensor(a), Tensor(a[::-1].copy())
    called = difference(x, y)
    summed = called.cumsum(0)
    written = x.clone()
    written[[3, -1, 3]] = called[:3]
    again = difference(written, summed)
    results = [called, summed, written, again]
    if at_once:
        Tensor.realize(*results)
    want_called = a * 2 - a[::-1]
    want_written = a.copy()
    want_written[[3, -1, 3]] = want_called[:3]
    want_summed = want_called.cumsum()
    want = [want_called, want_summed, want_written, want_written * 2 - want_summed]
    for got, expected in zip(results, want, strict=True):
        assert got.tolist() == expected.tolist()


def test_the_schedules_of_functions_keep_no_memory() -> None:
    """Dags 70033: a value made of constants alone stayed as long as the schedule of the call that
    took it."""
    twice = mk.function(lambda a, b: a * 2 + b)
    numbers = Tensor.arange(7)
    node = weakref.ref(numbers.uop)
    result = twice(numbers, numbers)
    Tensor.realize(result, numbers)
    assert result.tolist() == [0, 3, 6, 9, 12, 15, 18]
    del numbers, result
    gc.collect()
    assert node() is None


def test_a_place_that_is_wanted_before_and_after_a_call() -> None:
    """Dags 10652: the place of a single element, an index of no loop, was to be kept in memory."""
    difference = mk.function(lambda a, b: a * 2 - b)
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = Tensor(a)
    x[3:] = x[[2]]
    result = difference(x, x.square())
    a[3:] = a[[2]]
    assert result.tolist() == (a * 2 - a * a).tolist()


@pytest.mark.parametrize("condition", [True, False])
def test_all_of_a_tensor_is_chosen_by_one_condition(condition: bool) -> None:
    """Dags 13591: `where` of a single condition and the tensor itself was taken for a write to a
    part."""
    x = Tensor([3.0, 2.0, 1.0])
    x.assign(Tensor(condition).where(x.flip(0), x))
    assert x.tolist() == ([1.0, 2.0, 3.0] if condition else [3.0, 2.0, 1.0])
    x.assign(Tensor(condition).where(Tensor(7.0), x))
    assert x.tolist() == ([7.0] * 3 if condition else [3.0, 2.0, 1.0])
    x.assign(Tensor.full((3,), True).where(5.0, x))
    assert x.tolist() == [5.0] * 3
