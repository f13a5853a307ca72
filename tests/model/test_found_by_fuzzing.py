"""Sessions that went wrong once, made small."""

from __future__ import annotations

import numpy as np
import pytest

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
