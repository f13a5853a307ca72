"""What the JAX side of the benchmarks shares: optimizers as PyTorch defines them, and a jitted
step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bench.harness import Step, Wait

Params = dict[str, Any]
State = dict[str, Any]
Start = Callable[[Params], State]
Change = Callable[[Params, Params, State], tuple[Params, State]]
Optimizer = tuple[Start, Change]


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The mean of minus the log-softmax at the label."""
    logs = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()


def sgd(rate: float, momentum: float = 0.0, decay: float = 0.0) -> Optimizer:
    """Gradient descent, with momentum as PyTorch defines it (the velocity starts at 0)."""

    def start(params: Params) -> State:
        return {"v": {k: jnp.zeros_like(p) for k, p in params.items()}} if momentum else {}

    def change(params: Params, grads: Params, state: State) -> tuple[Params, State]:
        grads = {k: g + decay * params[k] for k, g in grads.items()} if decay else grads
        if momentum:
            grads = {k: momentum * state["v"][k] + g for k, g in grads.items()}
            state = {"v": grads}
        return {k: p - rate * grads[k] for k, p in params.items()}, state

    return start, change


def adam(
    rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.0,
) -> Optimizer:
    """Adam; with `decay` AdamW."""
    b1, b2 = betas

    def start(params: Params) -> State:
        zeros = {k: jnp.zeros_like(p) for k, p in params.items()}
        also = {k: jnp.zeros_like(p) for k, p in params.items()}
        return {"m": zeros, "v": also, "t": jnp.zeros((), jnp.int32)}

    def change(params: Params, grads: Params, state: State) -> tuple[Params, State]:
        t = state["t"] + 1
        m = {k: b1 * state["m"][k] + (1 - b1) * g for k, g in grads.items()}
        v = {k: b2 * state["v"][k] + (1 - b2) * g * g for k, g in grads.items()}
        c1, c2 = 1 - b1 ** t.astype(jnp.float32), 1 - b2 ** t.astype(jnp.float32)
        new = {
            k: p * (1 - rate * decay) - rate * (m[k] / c1) / (jnp.sqrt(v[k] / c2) + eps)
            for k, p in params.items()
        }
        return new, {"m": m, "v": v, "t": t}

    return start, change


def trained(
    loss_of: Callable[..., Any],
    optimizer: Optimizer,
    weights: Mapping[str, Any],
    batch: tuple[Any, ...],
    held: Mapping[str, Any] | None = None,
) -> tuple[Step, Wait]:
    """A jitted training step of `loss_of(params, *batch)`, whose parameters are donated.

    With `held` (running statistics) it is `loss_of(params, held, *batch) -> (loss, new held)`.
    """
    start, change = optimizer
    params = {k: jnp.asarray(v) for k, v in weights.items()}
    state = start(params)
    kept = None if held is None else {k: jnp.asarray(v) for k, v in held.items()}

    def whole(params: Params, state: State, kept: Any, batch: tuple[Any, ...]) -> Any:
        if kept is None:
            loss, grads = jax.value_and_grad(loss_of)(params, *batch)
        else:
            (loss, kept), grads = jax.value_and_grad(loss_of, has_aux=True)(params, kept, *batch)
        return (*change(params, grads, state), kept, loss)

    fast = jax.jit(whole, donate_argnums=(0, 1, 2))

    def step() -> Any:
        nonlocal params, state, kept
        params, state, kept, loss = fast(params, state, kept, batch)
        return loss

    return step, float
