"""Many small computations in JAX, by a `jit` each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._bulk_data import COUNT, arrays


@jax.jit
def work(a: Any, b: Any) -> Any:
    """What is computed."""
    return (jnp.maximum(a * 2 + b, 0) - a.mean(1, keepdims=True)).sum(0)


def run(_: str, count: int = COUNT) -> float:
    """Compile them, run each once; the sum of all results."""
    return float(sum(np.asarray(work(*arrays(number))).sum() for number in range(count)))
