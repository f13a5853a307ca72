"""The models of `bench/models.py` in tinygrad, as classes with the same names in the state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tinygrad import Tensor, nn

from bench import _sizes
from bench import _train_data as data


class MLP:
    def __init__(self) -> None:
        self.layers = [nn.Linear(*pair) for pair in pairwise(_sizes.MLP)]

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x).cross_entropy(labels)


class CNN:
    def __init__(self) -> None:
        few, many = _sizes.CNN_CHANNELS
        self.conv1, self.conv2 = nn.Conv2d(1, few, 5), nn.Conv2d(few, few, 5)
        self.norm1 = nn.BatchNorm(few)
        self.conv3, self.conv4 = nn.Conv2d(few, many, 3), nn.Conv2d(many, many, 3)
        self.norm2 = nn.BatchNorm(many)
        self.linear = nn.Linear(9 * many, 10)

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x).relu()).relu()
        x = self.norm1(x).max_pool2d()
        x = self.conv4(self.conv3(x).relu()).relu()
        x = self.norm2(x).max_pool2d()
        return self.linear(x.flatten(1)).cross_entropy(labels)


class BasicBlock:
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm(width)
        self.downsample: list[Any] = []
        if stride > 1:
            short = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.downsample = [short, nn.BatchNorm(width)]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        return (x.sequential(self.downsample) + y).relu()


class ResNet18:
    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm(64)
        inputs = 64
        for stage, (width, stride) in enumerate(data.STAGES, 1):
            blocks = [BasicBlock(inputs, width, stride), BasicBlock(width, width, 1)]
            setattr(self, f"layer{stage}", blocks)
            inputs = width
        self.fc = nn.Linear(512, data.CLASSES)

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu().max_pool2d(3, stride=2, padding=1)
        for stage in range(1, len(data.STAGES) + 1):
            x = x.sequential(getattr(self, f"layer{stage}"))
        return self.fc(x.mean((2, 3))).cross_entropy(labels)


class Block:
    def __init__(self, size: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.queries, self.keys, self.values = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape

        def split(y: Tensor) -> Tensor:
            return y.reshape(batch, length, data.HEADS, size // data.HEADS).transpose(1, 2)

        y = self.norm1(x)
        q, k, v = split(self.queries(y)), split(self.keys(y)), split(self.values(y))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    def __init__(self) -> None:
        self.tokens = nn.Embedding(data.VOCABULARY, data.SIZE)
        self.positions = nn.Embedding(data.LENGTH, data.SIZE)
        self.blocks = [Block(data.SIZE) for _ in range(data.LAYERS)]
        self.norm = nn.LayerNorm(data.SIZE)
        self.head = nn.Linear(data.SIZE, data.VOCABULARY)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.head(self.norm(x.sequential(self.blocks)))
        return x.reshape(-1, data.VOCABULARY).cross_entropy(targets.reshape(-1))


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": MLP,
    "cnn": CNN,
    "gpt": GPT,
    "resnet18": ResNet18,
}
