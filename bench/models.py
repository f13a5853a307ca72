"""The models of the benchmarks in morok, with their losses and batches.

`bench/_torch_models.py` holds the same in PyTorch, with the same names in the state, so that one's
weights load into the other. The arguments' defaults are the sizes that are measured; `small` are
arguments for a model of the same form that is cheap to test. A batch is a dict of NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

import morok as mk
from morok.tensor import Tensor

Arrays = dict[str, np.ndarray]


class MLP:
    """A perceptron: 784-512-256-10, ReLU between."""

    small: ClassVar = {"sizes": (20, 16, 12, 5), "batch": 16}

    def __init__(self, sizes: tuple[int, ...] = (784, 512, 256, 10), batch: int = 128) -> None:
        self.sizes = sizes
        self.batch = batch
        self.layers = [mk.nn.Linear(*pair) for pair in pairwise(sizes)]

    def __call__(self, x: Tensor) -> Tensor:
        """(n, 784) -> (n, 10) scores"""
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        return self(_tensor(batch["x"])).cross_entropy(_tensor(batch["y"]))

    def make_batch(self, seed: int) -> Arrays:
        return classified((self.batch, self.sizes[0]), self.sizes[-1], seed)


class CNN:
    """Two 5x5 convolutions, batch norm, pool, two 3x3, batch norm, pool, linear; 28 x 28 images."""

    small: ClassVar = {"channels": (4, 6), "side": 20, "classes": 5, "batch": 8}

    def __init__(
        self,
        channels: tuple[int, int] = (32, 64),
        side: int = 28,
        classes: int = 10,
        batch: int = 128,
    ) -> None:
        first, second = channels
        self.side, self.classes, self.batch = side, classes, batch
        self.conv1 = mk.nn.Conv2d(1, first, 5)
        self.conv2 = mk.nn.Conv2d(first, first, 5)
        self.norm1 = mk.nn.BatchNorm2d(first)
        self.conv3 = mk.nn.Conv2d(first, second, 3)
        self.conv4 = mk.nn.Conv2d(second, second, 3)
        self.norm2 = mk.nn.BatchNorm2d(second)
        left = ((side - 8) // 2 - 4) // 2
        self.linear = mk.nn.Linear(second * left * left, classes)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, 1, 28, 28) -> (n, 10) scores"""
        x = self.conv2(self.conv1(x).relu()).relu()
        x = self.norm1(x).max_pool2d(2)
        x = self.conv4(self.conv3(x).relu()).relu()
        x = self.norm2(x).max_pool2d(2)
        return self.linear(x.flatten(1))

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        return self(_tensor(batch["x"])).cross_entropy(_tensor(batch["y"]))

    def make_batch(self, seed: int) -> Arrays:
        return classified((self.batch, 1, self.side, self.side), self.classes, seed)


def _tensor(given: Any) -> Tensor:
    return given if isinstance(given, Tensor) else Tensor(given)


def classified(shape: tuple[int, ...], classes: int, seed: int) -> Arrays:
    """Inputs "x" of this shape, a pattern for each class under noise, and their classes "y"."""
    patterns = np.random.default_rng(0).standard_normal((classes, *shape[1:]))
    rng = np.random.default_rng([1, seed])
    y = rng.integers(0, classes, shape[0])
    x = patterns[y] + rng.standard_normal(shape)
    return {"x": x.astype(np.float32), "y": y.astype(np.int32)}
