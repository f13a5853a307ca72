"""The kernels benchmark in morok, by `mk.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import morok as mk
from bench._kernels_data import CHAIN
from morok import Tensor

VERSION = mk.__version__


def use_threads(count: int) -> None:
    """Kernels may run on so many threads."""
    mk.config.set(threads=count)


def _chain(x: Tensor) -> Tensor:
    for _ in range(CHAIN // 2):
        x = x * 1.01 + 0.5
    return x


def _to_input(stride: int, side: int, w: Tensor, g: Tensor) -> Tensor:
    x = Tensor.empty(g.shape[0], w.shape[1], side, side, requires_grad=True)
    x.conv2d(w, stride=stride, padding=w.shape[2] // 2).backward(g)
    assert x.grad is not None
    return x.grad


def _to_weight(stride: int, taps: int, x: Tensor, g: Tensor) -> Tensor:
    w = Tensor.empty(g.shape[1], x.shape[1], taps, taps, requires_grad=True)
    x.conv2d(w, stride=stride, padding=taps // 2).backward(g)
    assert w.grad is not None
    return w.grad


_WORK: dict[str, Callable[..., Tensor]] = {
    "chain 4M": _chain,
    "gelu 4M": Tensor.gelu,
    "A @ Bt 512": lambda a, b: a @ b.T,
    "At @ B 512": lambda a, b: a.T @ b,
    "bias relu 512": lambda a, b, bias: (a @ b + bias).relu(),
    "softmax 2048": lambda x: x.softmax(-1),
    "layernorm 4096x1024": lambda x: x.layer_norm((1024,)),
    "conv 3x3": lambda x, w: x.conv2d(w, padding=1),
    "conv 3x3 to input": partial(_to_input, 1, 56),
    "conv 3x3 to weight": partial(_to_weight, 1, 3),
    "conv 7x7 s2": lambda x, w: x.conv2d(w, stride=2, padding=3),
    "conv 7x7 s2 to input": partial(_to_input, 2, 224),
    "conv 7x7 s2 to weight": partial(_to_weight, 2, 7),
    "attention": lambda q, k, v: q.scaled_dot_product_attention(k, v),
    "sum 64M": Tensor.sum,
    "row sums 8192": lambda x: x.sum(1),
    "column sums 8192": lambda x: x.sum(0),
    "transpose 4096": lambda x: x.T.contiguous(),
}


def start(who: str, name: str, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A call that computes one row, compiled and warm."""
    work: Callable[..., Tensor] = _WORK.get(name, Tensor.matmul)
    given = [Tensor(array).realize() for array in arrays]

    def computed(*xs: Tensor) -> Tensor:
        return work(*xs).realize()

    fast = mk.jit(computed)
    for _ in range(4):
        fast(*given)
    return lambda: fast(*given)


def values(answer: Tensor) -> np.ndarray:
    """The numbers of an answer."""
    return answer.numpy()


def wait(answer: Tensor) -> None:
    """Returns when the answer has been computed, which it has."""
