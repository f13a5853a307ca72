"""The dispatch benchmark in JAX, by `jax.jit` with donated parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bench import _dispatch_data as data
from bench import _jax_common as common
from bench.dispatch import CHAIN
from bench.harness import Step, Wait

VERSION = jax.__version__


def _train(adam: bool) -> tuple[Step, Wait]:
    x, labels = map(jnp.asarray, data.batch())

    def loss_of(w: dict[str, Any], x: Any, labels: Any) -> Any:
        hidden = jax.nn.relu(x @ w["w1"] + w["b1"])
        return common.cross_entropy(hidden @ w["w2"] + w["b2"], labels)

    update = common.adam(data.ADAM_RATE) if adam else common.sgd(data.SGD_RATE)
    return common.trained(loss_of, update, data.weights(), (x, labels))


def _tiny() -> tuple[Step, Wait]:
    x = jnp.asarray(data.weights()["b1"])
    add = jax.jit(lambda x: x + 1)
    return lambda: add(x), _total


def _chain() -> tuple[Step, Wait]:
    x, w = jnp.asarray(data.batch()[0]), jnp.asarray(data.rotation())

    @jax.jit
    def chain(x: Any, w: Any) -> Any:
        for _ in range(CHAIN):
            x = x @ w
        return x

    return lambda: chain(x, w), _total


def _total(x: Any) -> float:
    return float(abs(x).sum())


def makers(_: str) -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The cases by name."""
    return {
        "mlp sgd": lambda: _train(adam=False),
        "mlp adam": lambda: _train(adam=True),
        "tiny kernel": _tiny,
        "chain of 256": _chain,
    }
