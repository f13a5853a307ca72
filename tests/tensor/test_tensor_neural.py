"""Functions that networks are made of, with varying shapes, against PyTorch: pooling, attention,
normalisation; slopes of slopes; ties."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok.dtype import dtypes
from morok.tensor import Tensor, no_grad

pytestmark = pytest.mark.torch

FEW = settings(max_examples=8)


def agrees(
    mine: Callable[..., Tensor], theirs: Callable[..., Any], *arrays: np.ndarray, rtol: float = 1e-9
) -> None:
    """The value, and the gradient of a sum that tells its elements apart."""
    import torch

    xs = [Tensor(a, requires_grad=True) for a in arrays]
    ts = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, t = mine(*xs), theirs(*ts)
    assert y.shape == tuple(t.shape)
    weights = np.cos(np.arange(y.numel(), dtype=np.float64)).reshape(y.shape)
    (y * Tensor(weights)).sum().backward()
    (t * torch.tensor(weights)).sum().backward()
    Tensor.realize(y, *(x.grad for x in xs))
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=rtol, atol=1e-12)
    for x, other in zip(xs, ts, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=rtol, atol=1e-11)


# Pooling -----------------------------------------------------------------------------------------

windows = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(4, 8), st.integers(4, 8)
)


@given(windows, st.booleans(), st.booleans())
@FEW
def test_pools(window: tuple[int, ...], ceil: bool, pads_count: bool) -> None:
    import torch.nn.functional as f

    kernel, stride, padding, height, width = window
    padding = min(padding, kernel // 2)
    v = np.random.default_rng(height * 10 + width).standard_normal((1, 2, height, width))
    agrees(
        lambda x: x.max_pool2d(kernel, stride, padding, 1, ceil),
        lambda t: f.max_pool2d(t, kernel, stride, padding, 1, ceil),
        v,
    )
    agrees(
        lambda x: x.avg_pool2d(kernel, stride, padding, ceil, pads_count),
        lambda t: f.avg_pool2d(t, kernel, stride, padding, ceil, pads_count),
        v,
    )


def test_adaptive_pool_of_uneven_windows() -> None:
    """(3, 33, 8, 8) to 7 x 7, flattened and summed; a direct loop says what is right."""
    v = np.random.default_rng(0).standard_normal((3, 33, 8, 8))
    wanted = np.zeros((3, 33, 7, 7))
    for i in range(7):
        for j in range(7):
            rows = slice(i * 8 // 7, -(-(i + 1) * 8 // 7))
            columns = slice(j * 8 // 7, -(-(j + 1) * 8 // 7))
            wanted[:, :, i, j] = v[:, :, rows, columns].mean((2, 3))
    y = Tensor(v).adaptive_avg_pool2d(7)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12)
    np.testing.assert_allclose(y.flatten(1).sum(1).numpy(), wanted.sum((1, 2, 3)), rtol=1e-9)


def test_of_equal_maxima_in_a_window_the_first_gets_the_gradient() -> None:
    """PyTorch's choice; a maximum over an axis is shared instead, as `torch.amax`'s."""
    import torch

    v = np.array([[[[1.0, 2.0, 2.0, 0.0], [2.0, 1.0, 2.0, 2.0], [0.0] * 4, [0.0] * 4]]])
    for size, stride in ((2, 2), (3, 1)):
        x, t = Tensor(v, requires_grad=True), torch.tensor(v, requires_grad=True)
        x.max_pool2d(size, stride).sum().backward()
        torch.nn.functional.max_pool2d(t, size, stride).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), t.grad.numpy())
    x = Tensor([2.0, 2.0], requires_grad=True)
    x.max().backward()
    assert x.grad.tolist() == [0.5, 0.5]


# Attention ---------------------------------------------------------------------------------------


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from(["none", "causal", "bool", "float"]),
    st.sampled_from([None, 0.3]),
)
@FEW
def test_attention(shape: tuple[int, ...], mask: str, scale: float | None) -> None:
    """Masks with rows that may look at nothing."""
    import torch

    batch, heads, queries, keys = shape
    rng = np.random.default_rng(queries * 10 + keys)
    arrays = [rng.standard_normal((batch, heads, n, 4)) for n in (queries, keys, keys)]
    seen = rng.random((queries, keys)) < 0.6
    seen[-1] = False
    given_mask = {"bool": seen, "float": np.where(seen, 0.5, -math.inf)}.get(mask)
    agrees(
        lambda q, k, v: q.scaled_dot_product_attention(
            k,
            v,
            None if given_mask is None else Tensor(given_mask),
            is_causal=mask == "causal",
            scale=scale,
        ),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q,
            k,
            v,
            None if given_mask is None else torch.tensor(given_mask),
            is_causal=mask == "causal",
            scale=scale,
        ),
        *arrays,
    )


def test_attention_of_grouped_heads_and_halves(rng) -> None:
    import torch

    q = rng.standard_normal((2, 4, 3, 8))
    k, v = rng.standard_normal((2, 2, 2, 5, 8))
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(a) for a in (q, k, v)), enable_gqa=True
    ).numpy()
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-10)
    halves = [Tensor(a).half() for a in (q, k, v)]
    half = halves[0].scaled_dot_product_attention(*halves[1:], enable_gqa=True)
    assert half.dtype is dtypes.float16
    np.testing.assert_allclose(half.float().numpy(), wanted, atol=2e-3)


# Normalisation -----------------------------------------------------------------------------------


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(1, 3))
@FEW
def test_norms(shape: list[int], rank: int) -> None:
    import torch.nn.functional as f

    rank = min(rank, len(shape) - 1)
    row = tuple(shape[-rank:])
    rng = np.random.default_rng(sum(shape))
    v, w, b = rng.standard_normal(shape), rng.standard_normal(row), rng.standard_normal(row)
    agrees(lambda x, w, b: x.layer_norm(row, w, b), lambda x, w, b: f.layer_norm(x, row, w, b),
           v, w, b)  # fmt: skip
    agrees(lambda x, w: x.rms_norm(row, w), lambda x, w: f.rms_norm(x, row, w), v, w)
    channels = rng.standard_normal((2, shape[1]))
    agrees(
        lambda x, w, b: x.batch_norm(None, None, w, b, training=True),
        lambda x, w, b: f.batch_norm(x, None, None, w, b, training=True),
        v, *channels,
    )  # fmt: skip


def test_statistics_of_halves_are_computed_in_float32() -> None:
    """60 000 does not fit twice into float16, nor its square once."""
    x = Tensor(np.array([[60000, 60000, -60000, -60000]], np.float16))
    for y in (
        x.layer_norm(4),
        x.rms_norm(4),
        x.reshape(4, 1).batch_norm(None, None, training=True),
    ):
        assert y.dtype is dtypes.float16
        assert y.flatten().tolist() == [1, 1, -1, -1]


# Slopes of slopes --------------------------------------------------------------------------------

BENT: list[tuple[str, Callable[[Any], Any], list[float]]] = [
    ("prod", lambda x: x.prod(), [0.0, 3.0, 2.0]),
    ("prod of two zeros", lambda x: x.prod(), [0.0, 0.0, 2.0, 5.0]),
    ("prod", lambda x: x.prod(), [1.5, 3.0, -2.0]),
    ("var", lambda x: x.var(), [1.0, 3.0, -2.0]),
    ("std", lambda x: x.std(), [1.0, 3.0, -2.0]),
    ("sigmoid", lambda x: x.sigmoid(), [-3.0, 0.1, 2.0]),
    ("tanh", lambda x: x.tanh(), [-3.0, 0.1, 2.0]),
    ("softmax", lambda x: x.softmax(0), [-1.0, 0.1, 2.0]),
]


@pytest.mark.parametrize(("name", "function", "at"), BENT)
def test_second_derivatives_are_pytorchs(name: str, function: Callable[[Any], Any], at) -> None:
    import torch

    weights = np.cos(np.arange(len(at)))
    t = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    y = function(t)
    own = torch.tensor(np.arange(1.0, y.numel() + 1)).reshape(y.shape)
    (slope,) = torch.autograd.grad((y * y * own).sum(), t, create_graph=True)
    (wanted,) = torch.autograd.grad((slope * torch.tensor(weights)).sum(), t)
    x = Tensor(at, dtype=dtypes.float64, requires_grad=True)
    y = function(x)
    (mine,) = Tensor.gradient((y * y * Tensor(own.numpy())).sum(), x)
    (bend,) = Tensor.gradient((mine * Tensor(weights)).sum(), x)
    np.testing.assert_allclose(mine.numpy(), slope.detach().numpy(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(bend.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)


def test_slopes_by_value_are_the_long_ones(rng) -> None:
    """Sigmoid and tanh take their slope from their value; written out they have the same one."""
    v = rng.standard_normal(9) * 3
    for short, long in (
        (lambda x: x.sigmoid(), lambda x: 1 / (1 + (-x).exp())),
        (lambda x: x.tanh(), lambda x: 2 / (1 + (x * -2).exp()) - 1),
    ):
        x = Tensor(v, requires_grad=True)
        a, b = (Tensor.gradient(f(x).sum(), x)[0].numpy() for f in (short, long))
        np.testing.assert_allclose(a, b, rtol=1e-8)
        with no_grad():
            assert not short(x).requires_grad


def test_erfinv() -> None:
    import torch

    v = np.concatenate([np.linspace(-1, 1, 401), 1 - np.logspace(-7, -1, 30)]).astype(np.float32)
    np.testing.assert_allclose(
        Tensor(v).erfinv().numpy(), torch.erfinv(torch.tensor(v)).numpy(), rtol=5e-7, atol=1e-30
    )
    assert math.isnan(Tensor([1.5]).erfinv().item())
