"""The kernels benchmark in PyTorch, eager or by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional as f

from bench._kernels_data import CHAIN
from bench._torch_common import compiled

VERSION = torch.__version__
torch.set_num_threads(1)


def use_threads(count: int) -> None:
    """Kernels may run on so many threads."""
    torch.set_num_threads(count)


def _chain(x: Any) -> Any:
    for _ in range(CHAIN // 2):
        x = x * 1.01 + 0.5
    return x


def _backward(stride: int, wanted: int, shape: tuple[int, ...], known: Any, g: Any) -> Any:
    """The gradient of a convolution's input (`wanted` 0) or weight (1), of the other one."""
    both = [torch.empty(shape), known] if wanted == 0 else [known, torch.empty(shape)]
    taps = both[1].shape[2]
    mask = [wanted == 0, wanted == 1, False]
    by = [taps // 2] * 2
    back = torch.ops.aten.convolution_backward
    return back(g, *both, None, [stride] * 2, by, [1, 1], False, [0, 0], 1, mask)[wanted]


_WORK: dict[str, Callable[..., Any]] = {
    "chain 4M": _chain,
    "gelu 4M": f.gelu,
    "A @ Bt 512": lambda a, b: a @ b.T,
    "At @ B 512": lambda a, b: a.T @ b,
    "bias relu 512": lambda a, b, bias: (a @ b + bias).relu(),
    "softmax 2048": lambda x: x.softmax(-1),
    "layernorm 4096x1024": lambda x: f.layer_norm(x, (1024,)),
    "conv 3x3": lambda x, w: f.conv2d(x, w, padding=1),
    "conv 3x3 to input": partial(_backward, 1, 0, (8, 64, 56, 56)),
    "conv 3x3 to weight": partial(_backward, 1, 1, (64, 64, 3, 3)),
    "conv 7x7 s2": lambda x, w: f.conv2d(x, w, stride=2, padding=3),
    "conv 7x7 s2 to input": partial(_backward, 2, 0, (8, 3, 224, 224)),
    "conv 7x7 s2 to weight": partial(_backward, 2, 1, (64, 3, 7, 7)),
    "attention": f.scaled_dot_product_attention,
    "sum 64M": torch.sum,
    "row sums 8192": lambda x: x.sum(1),
    "column sums 8192": lambda x: x.sum(0),
    "transpose 4096": lambda x: x.T.contiguous(),
}


def start(who: str, name: str, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A call that computes one row, compiled and warm."""
    torch._dynamo.reset()  # rows share functions: none is to be the one of a function's many shapes
    work = compiled(_WORK.get(name, torch.matmul), who == "torch.compile")
    given = [torch.from_numpy(array) for array in arrays]

    def step() -> Any:
        with torch.no_grad():
            return work(*given)

    for _ in range(3):
        step()
    return step


def values(answer: Any) -> np.ndarray:
    """The numbers of an answer."""
    out: np.ndarray = answer.numpy()
    return out


def wait(answer: Any) -> None:
    """Returns when the answer has been computed, which it has."""
