"""The dispatch benchmark in PyTorch: eager, or `torch.compile`d as far as its users do (the loss,
and the optimizer's step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench import _dispatch_data as data
from bench._torch_common import compiled
from bench.dispatch import CHAIN
from bench.harness import Step, Wait

VERSION = torch.__version__
torch.set_num_threads(1)


def _train(adam: bool, compiling: bool) -> tuple[Step, Wait]:
    w = {name: torch.from_numpy(v).requires_grad_() for name, v in data.weights().items()}
    x, labels = map(torch.from_numpy, data.batch())
    labels = labels.long()
    optimizer = (
        torch.optim.Adam(w.values(), data.ADAM_RATE)
        if adam
        else torch.optim.SGD(w.values(), data.SGD_RATE)
    )

    def forward() -> Any:
        hidden = (x @ w["w1"] + w["b1"]).relu()
        return torch.nn.functional.cross_entropy(hidden @ w["w2"] + w["b2"], labels)

    loss_of = compiled(forward, compiling)
    update = compiled(optimizer.step, compiling)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        update()
        return loss.detach()

    return step, float


def _tiny(compiling: bool) -> tuple[Step, Wait]:
    x = torch.from_numpy(data.weights()["b1"])
    add = compiled(lambda x: x + 1, compiling)
    return lambda: add(x), _total


def _chain(compiling: bool) -> tuple[Step, Wait]:
    x, w = torch.from_numpy(data.batch()[0]), torch.from_numpy(data.rotation())

    def chain(x: Any) -> Any:
        for _ in range(CHAIN):
            x = x @ w
        return x

    fast = compiled(chain, compiling)

    def step() -> Any:
        with torch.no_grad():
            return fast(x)

    return step, _total


def _total(x: Any) -> float:
    return float(x.abs().sum())


def makers(who: str) -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The cases by name."""
    compiling = who == "torch.compile"
    return {
        "mlp sgd": lambda: _train(False, compiling),
        "mlp adam": lambda: _train(True, compiling),
        "tiny kernel": lambda: _tiny(compiling),
        "chain of 256": lambda: _chain(compiling),
    }
