"""The dispatch benchmark in tinygrad, by `TinyJit`."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad import Tensor, TinyJit
from tinygrad.nn import optim

from bench import _dispatch_data as data
from bench import _tinygrad_common as common
from bench.dispatch import CHAIN
from bench.harness import Step, Wait

VERSION = common.VERSION


def _train(adam: bool) -> tuple[Step, Wait]:
    w = {name: Tensor(value) for name, value in data.weights().items()}
    x, labels = map(Tensor, data.batch())
    params = list(w.values())
    made = optim.Adam(params, data.ADAM_RATE) if adam else optim.SGD(params, data.SGD_RATE)

    def loss_of(x: Tensor, labels: Tensor) -> Tensor:
        hidden = (x @ w["w1"] + w["b1"]).relu()
        return (hidden @ w["w2"] + w["b2"]).cross_entropy(labels)

    return common.trained(loss_of, made, (x, labels))


def _tiny() -> tuple[Step, Wait]:
    x = Tensor(data.weights()["b1"]).realize()
    add = TinyJit(lambda x: (x + 1).realize())
    return lambda: add(x), _total


def _chain() -> tuple[Step, Wait]:
    x, w = Tensor(data.batch()[0]).realize(), Tensor(data.rotation()).realize()

    @TinyJit
    def chain(x: Tensor) -> Tensor:
        for _ in range(CHAIN):
            x = (x @ w).contiguous()
        return x.realize()

    return lambda: chain(x), _total


def _total(x: Tensor) -> float:
    return float(abs(x.numpy()).sum())


def makers(_: str) -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The cases by name."""
    return {
        "mlp sgd": lambda: _train(adam=False),
        "mlp adam": lambda: _train(adam=True),
        "tiny kernel": _tiny,
        "chain of 256": _chain,
    }
