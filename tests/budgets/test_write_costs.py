"""What writes to parts of a tensor cost, and contiguous parts that are read."""

from __future__ import annotations

import numpy as np
from costs import CostOf

from morok.tensor import Tensor

FLOAT = 4  # bytes
ROWS, WIDTH = 5000, 64


def table() -> Tensor:
    return Tensor(np.zeros((ROWS, WIDTH), np.float32)).realize()


def test_a_row(cost_of: CostOf) -> None:
    """One kernel reads the new row and writes it; the other rows are not touched."""
    t, row = table(), Tensor(np.ones(WIDTH, np.float32)).realize()
    t[4321] = row
    cost = cost_of(t.realize)
    assert (cost.kernels, cost.flops, cost.bytes) == (1, 0, 2 * WIDTH * FLOAT)
    t[4321] += row
    cost = cost_of(t.realize)
    assert (cost.kernels, cost.flops, cost.bytes) == (1, WIDTH, 3 * WIDTH * FLOAT)
    assert t[4320:4322].sum(1).tolist() == [0, 2 * WIDTH]


def test_parts_that_are_apart(cost_of: CostOf) -> None:
    """Elementwise updates share a kernel, wherever they stand."""
    t, row = table(), Tensor(np.ones(WIDTH, np.float32)).realize()
    for i in (7, 70, 700):
        t[i] = row * 2
        t[i + 1, 3:5] = 5
    cost = cost_of(t.realize)
    assert cost.kernels == 1
    assert cost.bytes <= 3 * (2 * WIDTH + 2 * 2) * FLOAT
    assert t.sum().item() == 3 * (2 * WIDTH + 2 * 5)


def test_columns(cost_of: CostOf) -> None:
    """Not side by side in memory, yet only they are touched."""
    t = table()
    t[:, 3:5] = 1
    cost = cost_of(t.realize)
    assert cost.kernels == 1
    assert cost.bytes <= (2 * ROWS + 1) * FLOAT
    assert t.sum(0).tolist() == [0, 0, 0, ROWS, ROWS, *[0] * (WIDTH - 5)]


def test_a_part_that_moves_within_itself(cost_of: CostOf) -> None:
    """Overlapping places: through a buffer of the part's size."""
    t = Tensor(np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)).realize()
    before = t.numpy().copy()
    t[100:110] = t[101:111]
    cost = cost_of(t.realize)
    assert cost.kernels <= 2
    assert cost.bytes <= 4 * 11 * WIDTH * FLOAT
    before[100:110] = before[101:111]
    np.testing.assert_array_equal(t.numpy(), before)
