"""The kernels benchmark in JAX, by `jax.jit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._kernels_data import CHAIN

VERSION = jax.__version__


def use_threads(count: int) -> None:
    """Kernels may run on so many threads: XLA read how many from the environment."""


def _chain(x: Any) -> Any:
    for _ in range(CHAIN // 2):
        x = x * 1.01 + 0.5
    return x


def _convolution(stride: int, x: Any, w: Any) -> Any:
    by = w.shape[2] // 2
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(by, by)] * 2)


def _to_input(stride: int, shape: tuple[int, ...], w: Any, g: Any) -> Any:
    _, back = jax.vjp(lambda x: _convolution(stride, x, w), jnp.zeros(shape))
    return back(g)[0]


def _to_weight(stride: int, shape: tuple[int, ...], x: Any, g: Any) -> Any:
    _, back = jax.vjp(lambda w: _convolution(stride, x, w), jnp.zeros(shape))
    return back(g)[0]


def _layernorm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return jax.nn.softmax(scores) @ v


_WORK: dict[str, Callable[..., Any]] = {
    "chain 4M": _chain,
    "gelu 4M": partial(jax.nn.gelu, approximate=False),
    "A @ Bt 512": lambda a, b: a @ b.T,
    "At @ B 512": lambda a, b: a.T @ b,
    "bias relu 512": lambda a, b, bias: jax.nn.relu(a @ b + bias),
    "softmax 2048": jax.nn.softmax,
    "layernorm 4096x1024": _layernorm,
    "conv 3x3": partial(_convolution, 1),
    "conv 3x3 to input": partial(_to_input, 1, (8, 64, 56, 56)),
    "conv 3x3 to weight": partial(_to_weight, 1, (64, 64, 3, 3)),
    "conv 7x7 s2": partial(_convolution, 2),
    "conv 7x7 s2 to input": partial(_to_input, 2, (8, 3, 224, 224)),
    "conv 7x7 s2 to weight": partial(_to_weight, 2, (64, 3, 7, 7)),
    "attention": _attention,
    "sum 64M": jnp.sum,
    "row sums 8192": lambda x: x.sum(1),
    "column sums 8192": lambda x: x.sum(0),
    "transpose 4096": lambda x: x.T,
}


def start(who: str, name: str, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A call that computes one row, compiled and warm."""
    fast = jax.jit(_WORK.get(name, jnp.matmul))
    given = [jnp.asarray(array) for array in arrays]
    for _ in range(2):
        wait(fast(*given))
    return lambda: fast(*given)


def values(answer: Any) -> np.ndarray:
    """The numbers of an answer."""
    return np.asarray(answer)


def wait(answer: Any) -> None:
    """Returns when the answer has been computed."""
    answer.block_until_ready()
