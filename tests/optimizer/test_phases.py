"""Gradients of strided windows: even and odd sizes, few and many channels, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from morok import Tensor

pytestmark = pytest.mark.torch

# images, channels, results, side, taps, stride, padding
_CASES = [
    (1, 3, 16, 24, 7, 2, 3),
    (2, 3, 8, 25, 3, 2, 1),
    (1, 1, 16, 32, 5, 2, 2),
    (1, 16, 16, 17, 3, 2, 1),
    (1, 2, 16, 33, 4, 3, 2),
    (1, 3, 8, 21, 3, 2, 0),
    (2, 2, 3, 9, 2, 3, 0),
    (1, 2, 4, 16, 3, 5, 1),
]


@pytest.mark.parametrize("case", _CASES)
def test_gradient_of_strided_windows(case: tuple[int, ...]) -> None:
    import torch

    n, channels, results, side, taps, stride, padding = case
    make = np.random.default_rng(0).standard_normal
    x = make((n, channels, side, side), dtype=np.float32)
    w = make((results, channels, taps, taps), dtype=np.float32)
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out = torch.nn.functional.conv2d(theirs, torch.tensor(w), stride=stride, padding=padding)
    g = make(out.shape, dtype=np.float32)
    out.backward(torch.tensor(g))
    ours.conv2d(Tensor(w), stride=stride, padding=padding).backward(Tensor(g))
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-4)
