"""Kernels, float operations and bytes of what networks are made of, forward and backward, against
the analytic figures. No reduction is computed twice: see `test_costs.py`."""

from __future__ import annotations

import numpy as np
import pytest
from costs import CostOf

from morok.tensor import Tensor

FLOAT = 4  # bytes


def floats(rng: np.random.Generator, *shape: int, grad: bool = True) -> Tensor:
    return Tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=grad)


def test_layer_norm(rng: np.random.Generator, cost_of: CostOf) -> None:
    """Forward one kernel: rows are read once. Backward, with what it needs of the forward pass:
    mean, variance and distances again; two sums a row and two a column. An element costs 8 forward,
    and 13 backward: 6 for the gradient of x, two multiply-adds and a product for the row sums, as
    much for the column sums."""
    rows, columns = 64, 96
    n = rows * columns
    x, w, b = floats(rng, rows, columns), floats(rng, columns), floats(rng, columns)
    forward = cost_of(lambda: x.layer_norm(columns, w, b).detach().realize())
    assert (forward.kernels, forward.bytes) == (1, (2 * n + 2 * columns) * FLOAT)
    assert forward.flops <= 8.1 * n
    loss = (x.layer_norm(columns, w, b) * floats(rng, rows, columns, grad=False)).sum()
    both = cost_of(lambda: Tensor.realize(*Tensor.gradient(loss, x, w, b)))
    assert both.kernels <= 6
    assert both.flops <= 1.1 * 21 * n
    assert both.bytes <= 11 * n * FLOAT


def test_batch_norm_in_training(rng: np.random.Generator, cost_of: CostOf) -> None:
    """Forward three kernels: the statistics of each channel; the images; what moves the running
    statistics, in the same schedule though nobody asked. Backward the sums of each channel do not
    wait for each other: the statistics, three sums, and the gradient of the images with the last
    of them."""
    batch, channels, side = 8, 16, 10
    n = batch * channels * side * side
    x = floats(rng, batch, channels, side, side)
    w, b = floats(rng, channels), floats(rng, channels)
    mean, var = Tensor(np.zeros(channels, np.float32)), Tensor(np.ones(channels, np.float32))
    forward = cost_of(lambda: x.batch_norm(mean, var, w, b, training=True).detach().realize())
    assert forward.kernels <= 3
    assert forward.flops <= 1.1 * 7 * n
    assert forward.bytes <= 3.1 * n * FLOAT
    assert abs(mean.numpy()).max() > 0
    weights = floats(rng, batch, channels, side, side, grad=False)
    loss = (x.batch_norm(None, None, w, b, training=True) * weights).sum()
    both = cost_of(lambda: Tensor.realize(*Tensor.gradient(loss, x, w, b)))
    assert both.kernels <= 4
    assert both.flops <= 1.1 * 17 * n
    assert both.bytes <= 7.1 * n * FLOAT


@pytest.mark.parametrize("length", [32, 48])
def test_causal_attention(rng: np.random.Generator, cost_of: CostOf, length: int) -> None:
    """Forward two products and the softmax between; backward four more, the first again. The mask
    is made of counters and takes no part in the float operations. Eleven operations a score around
    the products."""
    batch, heads, size = 2, 4, 16
    q, k, v = (floats(rng, batch, heads, length, size) for _ in range(3))
    Tensor.realize(q, k, v)
    scores = batch * heads * length * length
    product = 2 * scores * size

    def attend() -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=True)

    forward = cost_of(lambda: attend().detach().realize())
    assert forward.kernels <= 4
    assert forward.flops <= 1.1 * (2 * product + 7 * scores)
    loss = (attend() * floats(rng, batch, heads, length, size, grad=False)).sum()
    both = cost_of(lambda: Tensor.realize(*Tensor.gradient(loss, q, k, v)))
    assert both.kernels <= 10
    assert both.flops <= 1.1 * (5 * product + 11 * scores)


def test_activations_take_their_slope_from_their_value(
    rng: np.random.Generator, cost_of: CostOf
) -> None:
    """One kernel for the gradient, in which the function itself is computed once: it costs at most
    five operations more than the function."""
    x = floats(rng, 50, 128)
    weights = floats(rng, 50, 128, grad=False)
    for function in (Tensor.sigmoid, Tensor.tanh):
        value = cost_of(lambda f=function: (f(x) * weights).detach().realize())
        slope = Tensor.gradient((function(x) * weights).sum(), x)[0]
        cost = cost_of(slope.realize)
        assert cost.kernels == 1
        assert cost.flops <= value.flops + 5 * 50 * 128
