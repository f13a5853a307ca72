"""The demo's network trained here and in PyTorch, from the same parameters on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from digits_net import BATCH, digits, network, start_values

import morok as mk

STEPS = 50
RELATIVE = 1e-4
"""How far losses may be apart. Sums in another order differ by some 1e-7, and a step multiplies
that by little more than one; a wrong gradient differs by far more."""


def twin(arrays: dict[str, np.ndarray]) -> Any:
    """The same network in PyTorch; its parameters come in the order of `arrays`."""
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    with torch.no_grad():
        for parameter, array in zip(net.parameters(), arrays.values(), strict=True):
            parameter.copy_(torch.from_numpy(array))
    return net


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """PyTorch's threads wait for each other by spinning, which takes seconds beside other work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


Setup = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _adam() -> Setup:
    import torch

    return (
        lambda params: mk.optim.Adam(params, lr=2e-3),
        lambda params: torch.optim.Adam(params, lr=2e-3),
    )


def _momentum() -> Setup:
    import torch

    return (
        lambda params: mk.optim.SGD(params, lr=0.05, momentum=0.9),
        lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    )


@pytest.mark.torch
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("setup", [_adam, _momentum], ids=["adam", "momentum"])
def test_losses_of_fifty_steps_and_first_gradients(setup: Callable[[], Setup]) -> None:
    import torch

    arrays = start_values(3)
    mine, theirs = network(arrays), twin(arrays)
    my_optimizer, their_optimizer = setup()
    parameters = mk.nn.state.get_state_dict(mine)
    assert list(parameters) == list(arrays)
    my_optimizer = my_optimizer(parameters.values())
    their_optimizer = their_optimizer(theirs.parameters())
    images, labels = digits(STEPS * BATCH, 5)
    my_losses, their_losses = [], []
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        my_optimizer.zero_grad()
        loss = mine(mk.Tensor(images[batch])).cross_entropy(mk.Tensor(labels[batch]))
        loss.backward()
        my_optimizer.step()
        my_losses.append(loss.item())

        their_optimizer.zero_grad()
        their_loss = torch.nn.functional.cross_entropy(
            theirs(torch.from_numpy(images[batch])), torch.from_numpy(labels[batch]).long()
        )
        their_loss.backward()
        their_optimizer.step()
        their_losses.append(their_loss.item())

        if step == 0:
            for (name, parameter), other in zip(
                parameters.items(), theirs.parameters(), strict=True
            ):
                wanted = other.grad.numpy()
                np.testing.assert_allclose(
                    parameter.grad.numpy(),
                    wanted,
                    rtol=1e-5,
                    atol=1e-5 * abs(wanted).max(),
                    err_msg=f"gradient of {name}",
                )
    assert their_losses[-1] < their_losses[0] / 2, "nothing was learnt, so nothing is compared"
    np.testing.assert_allclose(my_losses, their_losses, rtol=RELATIVE)
    for parameter, other in zip(parameters.values(), theirs.parameters(), strict=True):
        wanted = other.detach().numpy()
        np.testing.assert_allclose(
            parameter.numpy(), wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max()
        )
