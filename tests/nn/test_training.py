"""Whole training loops: against PyTorch, and what they cost from step to step."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from morok import engine
from morok._core import node_stats
from morok.nn import Conv2d, Linear
from morok.nn.state import get_parameters
from morok.optim import SGD, Adam
from morok.tensor import Tensor, manual_seed


class Net:
    """Two convolutions, a pool and a linear layer for 1 x 10 x 10 images and 4 classes."""

    def __init__(self) -> None:
        self.first = Conv2d(1, 4, 3)
        self.second = Conv2d(4, 6, 3, stride=2, padding=1)
        self.last = Linear(24, 4)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu()).relu()
        return self.last(x.max_pool2d(2).flatten(1))


def batches(rng, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (rng.standard_normal((8, 1, 10, 10)).astype(np.float32), rng.integers(0, 4, 8))
        for _ in range(count)
    ]


def test_nothing_is_compiled_and_nothing_grows_after_the_second_step(rng) -> None:
    manual_seed(0)
    net = Net()
    optimizer = Adam(get_parameters(net), lr=1e-2)
    lowered, living = [], []
    for x, y in batches(rng, 6):
        optimizer.zero_grad()
        loss = net(Tensor(x)).cross_entropy(Tensor(y))
        loss.backward()
        optimizer.step()
        loss.item()
        lowered.append(engine.stats.lowered)
        gc.collect()  # what other tests left in cycles must not die between two counts
        living.append(node_stats()["live"])
    assert lowered[1:] == [lowered[1]] * 5
    assert living[2:] == [living[2]] * 4


def test_training_learns(rng) -> None:
    manual_seed(0)
    net = Net()
    optimizer = Adam(get_parameters(net), lr=1e-2)
    (x, y), *_ = batches(rng, 1)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = net(Tensor(x)).cross_entropy(Tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.torch
def test_training_is_pytorchs(rng) -> None:
    import torch

    manual_seed(3)
    net = Net()
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 6, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(24, 4),
    )
    ours = get_parameters(net)
    with torch.no_grad():
        for mine, their in zip(ours, theirs.parameters(), strict=True):
            their.copy_(torch.tensor(mine.numpy()))
    optimizer = SGD(ours, lr=0.05, momentum=0.9)
    their_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches(rng, 4):
        optimizer.zero_grad()
        loss = net(Tensor(x)).cross_entropy(Tensor(y))
        loss.backward()
        optimizer.step()
        their_optimizer.zero_grad()
        their_loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        their_loss.backward()
        their_optimizer.step()
        assert loss.item() == pytest.approx(their_loss.item(), rel=1e-4)
    for mine, their in zip(ours, theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), their.detach().numpy(), rtol=1e-3, atol=1e-5)
