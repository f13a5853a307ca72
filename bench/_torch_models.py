"""The models of `bench/models.py` in PyTorch: same arguments, same names in the state."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f


class MLP(nn.Module):
    def __init__(self, sizes: tuple[int, ...] = (784, 512, 256, 10), batch: int = 128) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        return f.cross_entropy(self(tensor(batch["x"])), tensor(batch["y"]).long())


class CNN(nn.Module):
    def __init__(
        self,
        channels: tuple[int, int] = (32, 64),
        side: int = 28,
        classes: int = 10,
        batch: int = 128,
    ) -> None:
        super().__init__()
        first, second = channels
        self.conv1 = nn.Conv2d(1, first, 5)
        self.conv2 = nn.Conv2d(first, first, 5)
        self.norm1 = nn.BatchNorm2d(first)
        self.conv3 = nn.Conv2d(first, second, 3)
        self.conv4 = nn.Conv2d(second, second, 3)
        self.norm2 = nn.BatchNorm2d(second)
        left = ((side - 8) // 2 - 4) // 2
        self.linear = nn.Linear(second * left * left, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv2(self.conv1(x).relu()).relu()
        x = f.max_pool2d(self.norm1(x), 2)
        x = self.conv4(self.conv3(x).relu()).relu()
        x = f.max_pool2d(self.norm2(x), 2)
        return self.linear(x.flatten(1))

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        return f.cross_entropy(self(tensor(batch["x"])), tensor(batch["y"]).long())


def tensor(given: np.ndarray | torch.Tensor) -> torch.Tensor:
    return given if isinstance(given, torch.Tensor) else torch.from_numpy(given)
