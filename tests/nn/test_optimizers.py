"""Optimisers, step by step, against PyTorch's; and what a step costs."""

from __future__ import annotations

import numpy as np
import pytest

from morok import engine
from morok.errors import ArgumentError
from morok.optim import SGD, Adam, AdamW
from morok.tensor import Tensor

KINDS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
]
MINE = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW}


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_steps_are_pytorchs(rng, name: str, options: dict) -> None:
    """The second parameter has no gradient in step 3; the learning rate changes in step 4."""
    import torch

    starts = [rng.standard_normal((3, 2)), rng.standard_normal(4)]
    theirs = [torch.tensor(v, requires_grad=True) for v in starts]
    mine = [Tensor(v, requires_grad=True) for v in starts]
    their_optimizer = getattr(torch.optim, name)(theirs, **options)
    optimizer = MINE[name](mine, **options)
    for step in range(5):
        if step == 4:
            their_optimizer.param_groups[0]["lr"] = 0.03
            optimizer.lr = 0.03
        their_optimizer.zero_grad()
        optimizer.zero_grad()
        for params, make in ((theirs, torch.tensor), (mine, Tensor)):
            loss = (params[0] * params[0] * make(np.arange(6.0).reshape(3, 2))).sum()
            if step != 3:
                loss = loss + (params[1] * 3 - params[1] * params[1]).sum()
            loss.backward()
        their_optimizer.step()
        optimizer.step()
        for ours, their in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(ours.numpy(), their.detach().numpy(), rtol=1e-10, atol=1e-13)


def test_a_step_is_one_schedule_and_repeats_itself(monkeypatch) -> None:
    """From the second step on the graph handed to the engine is the same but for its buffers."""
    calls = []
    realize = engine.realize

    def watched(roots):
        calls.append(len(roots))
        return realize(roots)

    params = [Tensor([1.0, 2.0], requires_grad=True), Tensor([[3.0]], requires_grad=True)]
    optimizer = Adam(params, lr=0.1)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "realize", watched)
        for _ in range(3):
            optimizer.zero_grad()
            (params[0].sum() * params[1]).sum().backward()
            optimizer.step()
    # 2 parameters, 2 gradients, 4 moments, the number of steps, 2 powers of the betas
    assert calls == [11] * 3


def test_lazy_loss_is_the_one_before_the_step() -> None:
    x = Tensor([3.0], requires_grad=True)
    optimizer = SGD([x, x, Tensor([1.0])], lr=0.5)
    assert len(optimizer.params) == 1
    loss = (x * x).sum()
    loss.backward()
    grad = x.grad
    optimizer.step()
    assert (loss.item(), x.item(), grad.item()) == (9, 0, 6)
    assert x.requires_grad
    optimizer.zero_grad()
    optimizer.step()
    assert x.item() == 0


def test_what_an_optimizer_refuses() -> None:
    with pytest.raises(ArgumentError, match="there are none"):
        SGD([Tensor([1.0])])
    with pytest.raises(ArgumentError, match="Nesterov"):
        SGD([Tensor([1.0], requires_grad=True)], nesterov=True)


def test_training_fits_a_line() -> None:
    x = Tensor(np.linspace(-1, 1, 16, dtype=np.float32))
    y = x * 3 - 1
    w, b = Tensor.zeros(1, requires_grad=True), Tensor.zeros(1, requires_grad=True)
    optimizer = Adam([w, b], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        (x * w + b).mse_loss(y).backward()
        optimizer.step()
    assert w.item() == pytest.approx(3, abs=0.05)
    assert b.item() == pytest.approx(-1, abs=0.05)
