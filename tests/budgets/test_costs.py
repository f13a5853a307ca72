"""Kernels, float operations and bytes of common computations, together, against the analytic
figures.

A budget of flops allows nothing that the mathematics does not ask for; one of bytes lets every
input be read and every output be written once. Both are counted on the kernels' graphs; where
nothing but plain arithmetic is done, the statements that are rendered are counted too. Fewer
kernels must not be bought with recomputation, nor fewer flops with memory: so all three are
asserted of one schedule. The values are compared with NumPy too.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from costs import Cost, CostOf, executed

from morok.optim import Adam
from morok.tensor import Tensor

FLOAT = 4  # bytes


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("shape", [(64, 100), (33, 257)])
def test_softmax(rng: np.random.Generator, cost_of: CostOf, shape: tuple[int, int]) -> None:
    """One kernel a row at a time. Each element: maximum, difference, exponential, sum, product
    with the row's one reciprocal; the row's exponentials stay in scratch memory, so that none is
    computed twice and the result is written once."""
    x, n = floats(rng, *shape), prod(shape)
    y = Tensor(x).softmax(1)
    cost = cost_of(y.realize)
    assert (cost.kernels, cost.flops, cost.bytes) == (1, 5 * n + shape[0], 2 * n * FLOAT)
    np.testing.assert_allclose(y.numpy(), softmax(x), rtol=2e-6)


def test_log_softmax(rng: np.random.Generator, cost_of: CostOf) -> None:
    """As softmax, but the difference is cheaper to compute again than to keep: one more an element,
    and a logarithm a row."""
    rows, columns = 64, 100
    x, n = floats(rng, rows, columns), rows * columns
    y = Tensor(x).log_softmax(1)
    cost = cost_of(y.realize)
    assert (cost.kernels, cost.bytes) == (1, 2 * n * FLOAT)
    assert 5 * n + rows <= cost.flops <= 6 * n + 2 * rows
    np.testing.assert_allclose(y.numpy(), np.log(softmax(x)), rtol=2e-6, atol=1e-6)


def test_cross_entropy(rng: np.random.Generator, cost_of: CostOf) -> None:
    """Log-softmax, the choice of one element a row, and the mean, without writing any of it: the
    scores and labels are read once and one number is written. At most eight operations an element:
    six of log-softmax and two for the choice, which multiplies and adds what it does not choose as
    zeros."""
    rows, columns = 64, 100
    x, labels = floats(rng, rows, columns), rng.integers(0, columns, rows).astype(np.int32)
    loss = Tensor(x).cross_entropy(Tensor(labels))
    cost = cost_of(loss.realize)
    assert (cost.kernels, cost.bytes) == (1, (rows * columns + rows + 1) * FLOAT)
    assert cost.flops <= 8 * rows * columns + 8 * rows
    wanted = -np.log(softmax(x))[np.arange(rows), labels].mean()
    assert loss.item() == pytest.approx(wanted, rel=1e-6)


def test_layer_norm(rng: np.random.Generator, cost_of: CostOf) -> None:
    """One kernel, each row read from memory once. Eight an element (sum, distance, square, sum;
    distance, quotient, scale, shift) and six a row (two divisions, eps, root, and the first step of
    each sum)."""
    rows, columns = 64, 100
    x, scale, shift = floats(rng, rows, columns), floats(rng, columns), floats(rng, columns)
    t = Tensor(x)
    apart = t - t.mean(-1, keepdim=True)
    spread = (t.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    y = apart / spread * Tensor(scale) + Tensor(shift)
    cost = cost_of(y.realize)
    assert (cost.kernels, cost.bytes) == (1, (2 * rows * columns + 2 * columns) * FLOAT)
    assert cost.flops <= 8 * rows * columns + 6 * rows
    exact = x.astype(np.float64)
    wanted = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y.numpy(), wanted * scale + shift, rtol=1e-5, atol=1e-5)


def test_linear_with_bias_and_relu(rng: np.random.Generator, cost_of: CostOf) -> None:
    """One kernel: bias and relu are done where the sum is finished, in a register. A multiply-add
    is two, a bias and a relu one each; every matrix is read once (by the caches' leave) and the
    result written once."""
    i, j, k = 32, 48, 64
    x, weight, bias = floats(rng, i, k), floats(rng, j, k), floats(rng, j)
    y = Tensor(x).linear(Tensor(weight), Tensor(bias)).relu()
    cost = cost_of(y.realize)
    assert (cost.kernels, cost.bytes) == (1, (i * k + j * k + j + i * j) * FLOAT)
    for flops in (cost.flops, executed(cost)):
        assert 2 * i * j * k + i * j <= flops <= 2 * i * j * k + 2 * i * j
    wanted = np.maximum(x.astype(np.float64) @ weight.T + bias, 0)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", [0, 1])
def test_convolution_with_bias_and_relu(
    rng: np.random.Generator, cost_of: CostOf, padding: int
) -> None:
    """One kernel, the padding included: 27 multiply-adds a result, a bias and a relu. The image is
    read once, its windows are never written out."""
    n, channels, out, size = 4, 3, 8, 10
    x, weight = floats(rng, n, channels, size, size), floats(rng, out, channels, 3, 3)
    bias = floats(rng, out)
    y = Tensor(x).conv2d(Tensor(weight), Tensor(bias), padding=padding).relu()
    cost = cost_of(y.realize)
    side = size - 2 + 2 * padding
    results = n * out * side * side
    read = x.size + weight.size + bias.size
    assert (cost.kernels, cost.bytes) == (1, (read + results) * FLOAT)
    assert 2 * 27 * results + results <= cost.flops <= 2 * 27 * results + 2 * results
    framed = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(framed, (3, 3), (2, 3))
    wanted = np.einsum("ncyxhw,ochw->noyx", windows, weight) + bias[:, None, None]
    np.testing.assert_allclose(y.numpy(), np.maximum(wanted, 0), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_convolution_never_stores_products(
    rng: np.random.Generator, cost_of: CostOf
) -> None:
    """What flows back to the image is the sum of products gradient * weight, of which there are 25
    for each result and channel. However much work the gradient is, it is that which gets a buffer,
    and not the products."""
    x = Tensor(floats(rng, 4, 8, 16, 16), requires_grad=True)
    y = x.conv2d(Tensor(floats(rng, 8, 8, 5, 5)))
    (y.tanh() * y.sigmoid()).sum().backward()
    assert x.grad is not None
    cost = cost_of(x.grad.realize)
    results, products = y.numel(), y.numel() * 8 * 25
    passes = 8 * (x.numel() + results) * FLOAT  # a few kernels over images and results
    assert cost.bytes <= passes < products * FLOAT


def test_a_chain_of_elementwise_operations(rng: np.random.Generator, cost_of: CostOf) -> None:
    """One kernel, however long the chain: one read, one write, each operation once."""
    x = floats(rng, 50, 128)
    y = Tensor(x)
    for k in range(10):
        y = y * 0.5 + k
    cost = cost_of(y.realize)
    assert cost == Cost(1, 20 * x.size, 2 * x.nbytes)
    assert executed(cost) == 20 * x.size
    wanted = x.astype(np.float64)
    for k in range(10):
        wanted = wanted * 0.5 + k
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6)


SHAPES = ((16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (64, 128), (64,))
"""Of six parameters: two convolutions and a linear layer."""


def test_a_step_of_adam_over_six_parameters(rng: np.random.Generator, cost_of: CostOf) -> None:
    """Two kernels: all parameters and moments in one, the number of steps and the powers of the
    betas to it, which that one reads, in another.

    Seven arrays pass: parameter, gradient and two moments are read, all but the gradient written;
    and some single numbers: the rate, the powers, the steps. Fourteen operations an element: three
    for the mean of the gradient, four for that of its square, three for the scale, four for the
    step; and six a parameter for the new corrections, which are cheaper to compute again than to
    wait for."""
    starts = [floats(rng, *shape) for shape in SHAPES]
    slopes = [[floats(rng, *shape) for shape in SHAPES] for _ in range(3)]
    params = [Tensor(start, requires_grad=True) for start in starts]
    optimizer = Adam(params, lr=0.01)
    n = sum(start.size for start in starts)
    costs = []
    for grads in slopes:
        for param, grad in zip(params, grads, strict=True):
            param.grad = Tensor(grad)
        costs.append(cost_of(optimizer.step))
    assert len(set(costs)) == 1, "the steps differ"
    cost = costs[0]
    assert cost.kernels == 2
    assert 7 * n * FLOAT <= cost.bytes <= 7 * n * FLOAT + 128
    assert cost.flops <= 14 * n + 6 * (len(SHAPES) + 1)
    # No parameter's size is a multiple of a vector: what is left over is computed one by one.
    assert executed(cost) <= 14 * n + 200 * len(SHAPES)

    for i, param in enumerate(params):
        value, mean, square = starts[i].astype(np.float64), 0.0, 0.0
        for t, grads in enumerate(slopes, 1):
            mean = 0.9 * mean + 0.1 * grads[i].astype(np.float64)
            square = 0.999 * square + 0.001 * grads[i].astype(np.float64) ** 2
            value -= 0.01 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(param.numpy(), value, rtol=1e-5, atol=1e-5)


def test_of_a_sum_with_a_buffer_only_what_is_wanted_is_computed(
    rng: np.random.Generator, cost_of: CostOf
) -> None:
    """The part of a sum that is cut off by all who read it is not summed: 20 of 32 columns, read
    twice."""
    rows, depth = 64, 48
    x, weight = floats(rng, rows, depth), floats(rng, depth, 32)
    part = (Tensor(x) @ Tensor(weight))[:, 4:24]
    y = part.exp().reshape(rows, 20, 1) + part.reshape(rows, 1, 20)
    cost = cost_of(y.realize)
    assert (cost.kernels, cost.flops) == (2, (2 * depth + 1) * rows * 20 + y.numel())
    wanted = (x.astype(np.float64) @ weight)[:, 4:24]
    wanted = np.exp(wanted)[:, :, None] + wanted[:, None, :]
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)
