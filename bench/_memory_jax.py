"""The memory benchmark in JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bench import _memory_data as data
from bench.harness import Step, Wait
from bench.memory import LENGTHS, TABLES

VERSION = jax.__version__


def _embedding(rows: int) -> tuple[Step, Wait]:
    weight, tokens, slopes = map(jnp.asarray, (data.table(rows), data.tokens(rows), data.slopes()))

    def loss(weight: Any, tokens: Any, slopes: Any) -> Any:
        return (weight[tokens] * slopes).sum()

    grad = jax.jit(jax.grad(loss))
    return lambda: grad(weight, tokens, slopes), lambda g: float(g[-1, -1])


def _cumsum(count: int) -> tuple[Step, Wait]:
    x = jnp.asarray(data.numbers(count))
    cumsum = jax.jit(jnp.cumsum)
    return lambda: cumsum(x), lambda y: float(y[-1])


def makers() -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The timed cases by name."""
    return {
        **{f"embedding {v}": partial(_embedding, v) for v in TABLES},
        **{f"cumsum {n}": partial(_cumsum, n) for n in LENGTHS},
    }
