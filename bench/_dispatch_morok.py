"""The dispatch benchmark in morok, by `mk.jit`."""

from __future__ import annotations

from collections.abc import Callable

import morok as mk
from bench import _dispatch_data as data
from bench.dispatch import CHAIN
from bench.harness import Step, Wait
from morok import Tensor

VERSION = mk.__version__


def train(adam: bool, jitted: bool = True) -> tuple[Step, Wait]:
    """A training step of the 8-8-8 perceptron."""
    w = {name: Tensor(value, requires_grad=True) for name, value in data.weights().items()}
    x, labels = map(Tensor, data.batch())
    made = (
        mk.optim.Adam(w.values(), data.ADAM_RATE)
        if adam
        else mk.optim.SGD(w.values(), data.SGD_RATE)
    )

    def step(x: Tensor, labels: Tensor) -> Tensor:
        made.zero_grad()
        hidden = (x @ w["w1"] + w["b1"]).relu()
        loss = (hidden @ w["w2"] + w["b2"]).cross_entropy(labels)
        loss.backward()
        made.step()
        return loss

    fast = mk.jit(step) if jitted else step
    return lambda: fast(x, labels), Tensor.item


def _tiny() -> tuple[Step, Wait]:
    x = Tensor(data.weights()["b1"])
    add = mk.jit(lambda x: x + 1)
    return lambda: add(x), _total


def _chain() -> tuple[Step, Wait]:
    x, w = Tensor(data.batch()[0]), Tensor(data.rotation())

    @mk.jit
    def chain(x: Tensor) -> Tensor:
        for _ in range(CHAIN):
            x = (x @ w).contiguous()
        return x

    return lambda: chain(x), _total


def _total(x: Tensor) -> float:
    return float(abs(x.numpy()).sum())


def makers(_: str) -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The cases by name."""
    return {
        "mlp sgd": lambda: train(adam=False),
        "mlp adam": lambda: train(adam=True),
        "tiny kernel": _tiny,
        "chain of 256": _chain,
    }
