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
from bench import _sizes
from morok.tensor import Tensor

Arrays = dict[str, np.ndarray]


class MLP:
    """A perceptron: 784-512-256-10, ReLU between."""

    small: ClassVar[dict[str, Any]] = {"sizes": (20, 16, 12, 5), "batch": 16}

    def __init__(self, sizes: tuple[int, ...] = _sizes.MLP, batch: int = 128) -> None:
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

    small: ClassVar[dict[str, Any]] = {"channels": (4, 6), "side": 20, "classes": 5, "batch": 8}

    def __init__(
        self,
        channels: tuple[int, int] = _sizes.CNN_CHANNELS,
        side: int = _sizes.CNN_SIDE,
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


# ---- ResNet (He et al. 2015), with torchvision's names -------------------------------------------


class BasicBlock:
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = mk.nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = mk.nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


class Bottleneck:
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = mk.nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = mk.nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        self.bn3 = mk.nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(inputs, 4 * width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> mk.nn.Conv2d:
    return mk.nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> mk.nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return mk.nn.Sequential(_conv(inputs, outputs, 1, stride), mk.nn.BatchNorm2d(outputs))


class ResNet:
    """A stem, four stages of blocks, the mean over the image and a linear layer."""

    block: type[BasicBlock] | type[Bottleneck] = BasicBlock
    blocks: tuple[int, ...] = ()
    small: ClassVar[dict[str, Any]] = {
        "width": 4,
        "side": 32,
        "classes": 5,
        "batch": 8,
        "blocks": (1, 1),
    }

    def __init__(
        self,
        width: int = 64,
        side: int = 64,
        classes: int = 1000,
        batch: int = 16,
        blocks: tuple[int, ...] | None = None,
    ) -> None:
        self.blocks = blocks or self.blocks
        self.side, self.classes, self.batch = side, classes, batch
        self.conv1 = mk.nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = mk.nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(self.blocks):
            size = width << stage
            made = []
            for i in range(count):
                made.append(self.block(inputs, size, 2 if stage > 0 and i == 0 else 1))
                inputs = size * self.block.expansion
            setattr(self, f"layer{stage + 1}", mk.nn.Sequential(*made))
        self.fc = mk.nn.Linear(inputs, classes)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, 3, side, side) -> (n, classes) scores"""
        x = self.bn1(self.conv1(x)).relu().max_pool2d(3, 2, 1)
        for stage in range(len(self.blocks)):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        return self(_tensor(batch["x"])).cross_entropy(_tensor(batch["y"]))

    def make_batch(self, seed: int) -> Arrays:
        return classified((self.batch, 3, self.side, self.side), self.classes, seed)


class ResNet18(ResNet):
    block = BasicBlock
    blocks = _sizes.RESNET18


class ResNet50(ResNet):
    block = Bottleneck
    blocks = _sizes.RESNET50


# ---- GPT (Radford et al. 2019) -------------------------------------------------------------------


class Block:
    """Causal self-attention and a perceptron with GELU, each behind a layer norm."""

    def __init__(self, size: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = mk.nn.LayerNorm(size), mk.nn.LayerNorm(size)
        self.queries, self.keys, self.values = (mk.nn.Linear(size, size) for _ in range(3))
        self.out = mk.nn.Linear(size, size)
        self.up, self.down = mk.nn.Linear(size, 4 * size), mk.nn.Linear(4 * size, size)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape

        def split(y: Tensor) -> Tensor:
            return y.reshape(batch, length, self.heads, size // self.heads).transpose(1, 2)

        y = self.norm1(x)
        q, k, v = split(self.queries(y)), split(self.keys(y)), split(self.values(y))
        y = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(self.up(self.norm2(x)).gelu("tanh"))


class GPT:
    """Token and position embeddings, blocks, a norm, and scores of the next token."""

    small: ClassVar[dict[str, Any]] = {
        "vocabulary": 16, "length": 12, "size": 16, "heads": 2, "layers": 2, "batch": 4,
    }  # fmt: skip

    def __init__(
        self,
        vocabulary: int = _sizes.GPT_VOCABULARY,
        length: int = _sizes.GPT_LENGTH,
        size: int = _sizes.GPT_SIZE,
        heads: int = _sizes.GPT_HEADS,
        layers: int = _sizes.GPT_LAYERS,
        batch: int = _sizes.GPT_BATCH,
    ) -> None:
        self.vocabulary, self.length, self.batch = vocabulary, length, batch
        self.tokens = mk.nn.Embedding(vocabulary, size)
        self.positions = mk.nn.Embedding(length, size)
        self.blocks = [Block(size, heads) for _ in range(layers)]
        self.norm = mk.nn.LayerNorm(size)
        self.head = mk.nn.Linear(size, vocabulary)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(n, length) -> (n, length, vocabulary) scores"""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        scores = self(_tensor(batch["x"]))
        return scores.flatten(0, 1).cross_entropy(_tensor(batch["y"]).flatten())

    def make_batch(self, seed: int) -> Arrays:
        walk = counting((self.batch, self.length + 1), self.vocabulary, seed)
        return {"x": walk[:, :-1].copy(), "y": walk[:, 1:].copy()}


# ---- LSTM ----------------------------------------------------------------------------------------


class LSTMClassifier:
    """Tokens, an LSTM over them, and scores of the class from its last output."""

    small: ClassVar[dict[str, Any]] = {
        "vocabulary": 12, "length": 6, "size": 8, "hidden": 8, "classes": 3, "batch": 8,
    }  # fmt: skip

    def __init__(
        self,
        vocabulary: int = 1000,
        length: int = 32,
        size: int = 64,
        hidden: int = 128,
        classes: int = 10,
        batch: int = 32,
    ) -> None:
        self.vocabulary, self.length, self.classes, self.batch = vocabulary, length, classes, batch
        self.tokens = mk.nn.Embedding(vocabulary, size)
        self.lstm = mk.nn.LSTM(size, hidden, batch_first=True)
        self.linear = mk.nn.Linear(hidden, classes)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(n, length) -> (n, classes) scores"""
        _, (last, _) = self.lstm(self.tokens(tokens))
        return self.linear(last[0])

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        return self(_tensor(batch["x"])).cross_entropy(_tensor(batch["y"]))

    def make_batch(self, seed: int) -> Arrays:
        """Sequences whose class is the first token's, modulo the number of classes."""
        walk = counting((self.batch, self.length), self.vocabulary, seed)
        return {"x": walk, "y": walk[:, 0] % self.classes}


# ---- batches -------------------------------------------------------------------------------------


def _tensor(given: Any) -> Tensor:
    return given if isinstance(given, Tensor) else Tensor(given)


def classified(shape: tuple[int, ...], classes: int, seed: int) -> Arrays:
    """Inputs "x" of this shape, a pattern for each class under noise, and their classes "y"."""
    rng = np.random.default_rng([1, seed])
    y = rng.integers(0, classes, shape[0])
    x = rng.standard_normal(shape)
    for row, number in zip(x, y, strict=True):
        row += np.random.default_rng([0, number]).standard_normal(shape[1:])
    return {"x": x.astype(np.float32), "y": y.astype(np.int32)}


def counting(shape: tuple[int, int], count: int, seed: int) -> np.ndarray:
    """Rows of tokens, each mostly the one before plus a step of the row's own."""
    rng = np.random.default_rng([2, seed])
    steps = rng.integers(1, 4, (shape[0], 1)) + (rng.random(shape) < 0.1)
    return (np.cumsum(steps, 1) + rng.integers(0, count, (shape[0], 1))).astype(np.int32) % count
