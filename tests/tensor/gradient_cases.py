"""Differentiable functions, each written to run on morok's tensors and on PyTorch's alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`function` of tensors of these shapes, drawn from low … high."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 4),)
    low: float = -2.0
    high: float = 2.0
    torch: Callable[..., Any] | None = None  # where PyTorch spells it differently

    def inputs(self) -> list[np.ndarray]:
        seed = np.random.default_rng(sum(map(ord, self.name)))
        return [seed.uniform(self.low, self.high, shape) for shape in self.shapes]

    def __str__(self) -> str:
        return self.name


def functional(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """torch.nn.functional's function of that name."""

    def call(x: Any, *others: Any) -> Any:
        import torch.nn.functional as f

        return getattr(f, name)(x, *others, *args, **kwargs)

    return call


def torch_where(x: Any, y: Any) -> Any:
    import torch

    return torch.where(x > y, x * x, y * 3)


def torch_ties(x: Any) -> Any:
    import torch

    return torch.maximum(x, x * 2 - x.detach())


PAIR = ((3, 4), (3, 4))
OUTER = ((3, 1), (2, 1, 4))
IMAGE = ((2, 4, 7, 8), (6, 2, 3, 2))

CASES = [
    # operators
    Case("add", lambda x, y: x + y, OUTER),
    Case("sub", lambda x, y: x - y * 2, OUTER),
    Case("mul", lambda x, y: x * y, OUTER),
    Case("div", lambda x, y: x / y, PAIR, low=0.5),
    Case("floor_mod", lambda x, y: x % y, PAIR, low=0.7),
    Case("pow", lambda x, y: x**y, PAIR, low=0.3),
    Case("pow_scalars", lambda x: x**2 + x**3 + x**-1 + x**0.5 + x**1.3 + 2**x, low=0.3),
    Case("neg_abs", lambda x: -abs(x)),
    Case("scalar_meets_tensor", lambda x, y: x.sum() * y + y / x.mean() - x.sum() + y, PAIR),
    Case("maximum", lambda x, y: x.maximum(y), PAIR),
    Case("minimum", lambda x, y: x.minimum(y), PAIR),
    Case("ties", lambda x: x.maximum(x * 2 - x.detach()), torch=torch_ties),
    Case("where", lambda x, y: (x > y).where(x * x, y * 3), PAIR, torch=torch_where),
    Case("clamp", lambda x: x.clamp(-0.5, 1.0)),
    # functions
    Case("sqrt", lambda x: x.sqrt() + x.rsqrt() + x.reciprocal(), low=0.2),
    Case("exponentials", lambda x: x.exp() + x.exp2()),
    Case("logarithms", lambda x: x.log() * x.log2() + x.log10(), low=0.2),
    Case("trigonometry", lambda x: x.sin() * x.cos() + (x / 2).tan()),
    Case("erf", lambda x: x.erf()),
    Case("hyperbolic", lambda x: x.tanh() + x.sinh() * x.cosh()),
    Case("steps", lambda x: x.floor() * x + x.ceil() * x + x.round() + x.trunc() + x.sign() * x),
    Case("square", lambda x: x.square()),
    # activations
    Case("relu", lambda x: x.relu()),
    Case("relu6", lambda x: (x * 4).relu6(), torch=lambda x: functional("relu6")(x * 4)),
    Case("sigmoid", lambda x: (x * 30).sigmoid()),
    Case("silu", lambda x: x.silu(), torch=functional("silu")),
    Case("gelu", lambda x: x.gelu(), torch=functional("gelu")),
    Case("gelu_tanh", lambda x: x.gelu("tanh"), torch=functional("gelu", approximate="tanh")),
    Case("softplus", lambda x: x.softplus(), torch=functional("softplus")),
    Case("elu", lambda x: x.elu(), torch=functional("elu")),
    Case("leaky_relu", lambda x: x.leaky_relu(0.2), torch=functional("leaky_relu", 0.2)),
    Case("mish", lambda x: x.mish(), torch=functional("mish")),
    Case(
        "hardswish",
        lambda x: (x * 3).hardswish(),
        torch=lambda x: functional("hardswish")(x * 3),
    ),
    # movement
    Case("reshape_permute", lambda x: x.reshape(2, 3, 2).permute(2, 0, 1) * x.sum()),
    Case("expand", lambda x: (x.expand(4, 3, 5) * x.exp()).sum(0), ((3, 1),)),
    Case("flip_slice", lambda x: x.flip((0, 1))[1:, ::2] * x[0, 1]),
    Case("squeeze_pad", lambda x: x.unsqueeze(0).squeeze(0).T.flatten() * 2),
    Case("roll_repeat", lambda x: x.roll(1, 0).repeat(2, 1) * 3),
    # reductions
    Case("sum", lambda x: x.sum(1) * x.sum()),
    Case("mean", lambda x: x.mean(0) * x.mean()),
    Case("prod", lambda x: x.prod(1)),
    Case("amax", lambda x: x.amax(1) + x.amax()),
    Case("amax_ties", lambda x: (x.round() + x * 0).amax(1)),
    Case("amin", lambda x: x.amin(0)),
    Case("var", lambda x: x.var(1, correction=1)),
    Case("std", lambda x: x.std(1, correction=0)),
    Case("norm", lambda x: x.norm() + x.norm(2, 0) + x.norm(3, 0)),
    Case("logsumexp", lambda x: x.logsumexp(1)),
    Case("softmax", lambda x: x.softmax(1)),
    Case("log_softmax", lambda x: x.log_softmax(0)),
    # products
    Case("matmul", lambda x, y: x @ y, ((3, 4), (4, 5))),
    Case("matmul_batched", lambda x, y: x @ y, ((2, 1, 3, 4), (5, 4, 2))),
    Case("matmul_vectors", lambda x, y: (x @ y) * x, ((4,), (4,))),
    Case(
        "conv2d",
        lambda x, w: x.conv2d(w, None, (2, 3), (1, 2), (2, 1), 2),
        IMAGE,
        torch=functional("conv2d", None, (2, 3), (1, 2), (2, 1), 2),
    ),
    Case(
        "conv2d_remainder",
        lambda x, w: x.conv2d(w, stride=3, padding=2),
        ((1, 2, 16, 16), (2, 2, 7, 7)),
        torch=functional("conv2d", stride=3, padding=2),
    ),
    Case(
        "max_pool2d",
        lambda x: x.max_pool2d(3, 2, 1),
        ((1, 2, 6, 7),),
        torch=functional("max_pool2d", 3, 2, 1),
    ),
    Case(
        "avg_pool2d",
        lambda x: x.avg_pool2d((2, 3), (1, 2)),
        ((1, 2, 6, 7),),
        torch=functional("avg_pool2d", (2, 3), (1, 2)),
    ),
    Case(
        "pool_blocks",
        lambda x: x.max_pool2d(2) * x.avg_pool2d(2),
        ((1, 2, 6, 8),),
        torch=lambda x: functional("max_pool2d", 2)(x) * functional("avg_pool2d", 2)(x),
    ),
    Case(
        "losses",
        lambda x, y: x.mse_loss(y) + x.l1_loss(y) + x.huber_loss(y),
        PAIR,
        torch=lambda x, y: (
            functional("mse_loss")(x, y)
            + functional("l1_loss")(x, y)
            + functional("huber_loss")(x, y)
        ),
    ),
]
