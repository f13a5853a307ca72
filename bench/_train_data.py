"""What every system trains with: the same first weights, batches and optimizers.

A model's weights follow from their names and shapes alone, so that systems which name them alike
start alike, whatever order they are made in.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import _sizes

Array = npt.NDArray[Any]

VOCABULARY, LENGTH, SIZE = _sizes.GPT_VOCABULARY, _sizes.GPT_LENGTH, _sizes.GPT_SIZE
HEADS, LAYERS = _sizes.GPT_HEADS, _sizes.GPT_LAYERS
"""Of the GPT."""

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
CLASSES = 1000
"""Of the ResNet18: width and first stride of each stage; what it tells apart."""


@dataclass(frozen=True)
class Task:
    """A model's training: `batch(size)` are its inputs and targets."""

    optimizer: str
    rate: float
    size: int
    quick: int  # the batch of a smoke test
    batch: Callable[[int], tuple[Array, Array]]


def _images(*shape: int) -> Callable[[int], tuple[Array, Array]]:
    def make(size: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        images = rng.normal(size=(size, *shape)).astype(np.float32)
        return images, rng.integers(0, 10, size).astype(np.int32)

    return make


def _text(size: int) -> tuple[Array, Array]:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (size, LENGTH + 1)).astype(np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


TASKS = {
    "mlp": Task("adam", 1e-3, 128, 8, _images(_sizes.MLP[0])),
    "cnn": Task("adam", 3e-4, 128, 2, _images(1, _sizes.CNN_SIDE, _sizes.CNN_SIDE)),
    "gpt": Task("adamw", 3e-4, _sizes.GPT_BATCH, 1, _text),
    "resnet18": Task("sgd", 0.001, 16, 1, _images(3, 64, 64)),
}
MOMENTUM, DECAY = 0.9, 0.01
"""Of SGD, and of AdamW."""


def initial(name: str, shape: tuple[int, ...]) -> Array:
    """The first value of a weight: ones and zeros of norms, small numbers else."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if name.endswith(("running_var", "running_mean")):
        return np.full(shape, name.endswith("var"), np.float32)
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    if len(shape) == 1 and name.endswith("weight"):
        return np.ones(shape, np.float32)
    if len(shape) == 1:  # above 0, so that no channel is dead behind a ReLU
        return rng.uniform(0.02, 0.1, shape).astype(np.float32)
    bound = math.sqrt(3 / math.prod(shape[1:]))
    return rng.uniform(-bound, bound, shape).astype(np.float32)
