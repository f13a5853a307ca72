"""The models of `bench/models.py` in PyTorch: same arguments, same names in the state."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f

from bench import _sizes


class MLP(nn.Module):
    def __init__(self, sizes: tuple[int, ...] = _sizes.MLP, batch: int = 128) -> None:
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
        channels: tuple[int, int] = _sizes.CNN_CHANNELS,
        side: int = _sizes.CNN_SIDE,
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


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(inputs, 4 * width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    block: type[BasicBlock] | type[Bottleneck] = BasicBlock
    blocks: tuple[int, ...] = ()

    def __init__(
        self,
        width: int = 64,
        side: int = 64,
        classes: int = 1000,
        batch: int = 16,
        blocks: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.blocks = blocks or self.blocks
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(self.blocks):
            size = width << stage
            made = []
            for i in range(count):
                made.append(self.block(inputs, size, 2 if stage > 0 and i == 0 else 1))
                inputs = size * self.block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*made))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in range(len(self.blocks)):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        return f.cross_entropy(self(tensor(batch["x"])), tensor(batch["y"]).long())


class ResNet18(ResNet):
    block = BasicBlock
    blocks = _sizes.RESNET18


class ResNet50(ResNet):
    block = Bottleneck
    blocks = _sizes.RESNET50


class Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.queries, self.keys, self.values = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(batch, length, self.heads, size // self.heads).transpose(1, 2)

        y = self.norm1(x)
        q, k, v = split(self.queries(y)), split(self.keys(y)), split(self.values(y))
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(f.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(
        self,
        vocabulary: int = _sizes.GPT_VOCABULARY,
        length: int = _sizes.GPT_LENGTH,
        size: int = _sizes.GPT_SIZE,
        heads: int = _sizes.GPT_HEADS,
        layers: int = _sizes.GPT_LAYERS,
        batch: int = _sizes.GPT_BATCH,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.positions = nn.Embedding(length, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens.long()) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        scores = self(tensor(batch["x"]))
        return f.cross_entropy(scores.flatten(0, 1), tensor(batch["y"]).flatten().long())


class LSTMClassifier(nn.Module):
    def __init__(
        self,
        vocabulary: int = 1000,
        length: int = 32,
        size: int = 64,
        hidden: int = 128,
        classes: int = 10,
        batch: int = 32,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        _, (last, _) = self.lstm(self.tokens(tokens.long()))
        return self.linear(last[0])

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        return f.cross_entropy(self(tensor(batch["x"])), tensor(batch["y"]).long())


def tensor(given: np.ndarray | torch.Tensor) -> torch.Tensor:
    return given if isinstance(given, torch.Tensor) else torch.from_numpy(given)
