"""The models of the compile benchmark, written once against the part of a Tensor class that morok
and tinygrad spell alike. Parameters are uninitialised: only the graph matters here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from bench import _sizes

Tensor = Any  # either system's


class Net:
    """Base: keeps what `param` makes, so that an optimizer finds it."""

    def __init__(self, tensor: type[Any]) -> None:
        self.tensor = tensor
        self.params: list[Tensor] = []

    def param(self, *shape: int) -> Tensor:
        made = self.tensor.empty(*shape)
        if hasattr(made, "requires_grad_"):  # elsewhere optimizers see to it
            made.requires_grad_()
        self.params.append(made)
        return made


class Linear:
    def __init__(self, net: Net, inputs: int, outputs: int) -> None:
        self.weight = net.param(outputs, inputs)
        self.bias = net.param(outputs)

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight.transpose(0, 1) + self.bias


class Conv:
    """A convolution; with `norm` followed by batch norm as inference has it: scale and shift."""

    def __init__(
        self, net: Net, inputs: int, outputs: int, size: int, stride: int = 1, norm: bool = False
    ) -> None:
        self.weight = net.param(outputs, inputs, size, size)
        self.bias = None if norm else net.param(outputs)
        self.affine = (net.param(outputs), net.param(outputs)) if norm else None
        self.stride = stride
        self.padding = size // 2

    def __call__(self, x: Tensor) -> Tensor:
        x = x.conv2d(self.weight, self.bias, stride=self.stride, padding=self.padding)
        if self.affine is None:
            return x
        scale, shift = self.affine
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)


class LayerNorm:
    def __init__(self, net: Net, size: int) -> None:
        self.weight = net.param(size)
        self.bias = net.param(size)

    def __call__(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * (variance + 1e-5).rsqrt() * self.weight + self.bias


# ---- the small convolutional network and the perceptron ------------------------------------------


class SmallCnn(Net):
    """Two convolutions, a pooling, two linear layers, on 8 x 8 digits (the demo's net)."""

    def __init__(self, tensor: type[Any]) -> None:
        super().__init__(tensor)
        self.conv1 = Conv(self, 1, 16, 3)
        self.conv2 = Conv(self, 16, 32, 3)
        self.linear1 = Linear(self, 32 * 4 * 4, 64)
        self.linear2 = Linear(self, 64, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x).relu()).relu().max_pool2d(2)
        return self.linear2(self.linear1(x.flatten(1)).relu())


class Mlp(Net):
    """784-512-256-10."""

    def __init__(self, tensor: type[Any]) -> None:
        super().__init__(tensor)
        self.layers = [Linear(self, *sizes) for sizes in pairwise(_sizes.MLP)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


# ---- ResNet50 (He et al. 2015, table 1) ----------------------------------------------------------


class Bottleneck:
    def __init__(self, net: Net, inputs: int, width: int, stride: int) -> None:
        self.reduce = Conv(net, inputs, width, 1, norm=True)
        self.middle = Conv(net, width, width, 3, stride, norm=True)
        self.widen = Conv(net, width, 4 * width, 1, norm=True)
        same = inputs == 4 * width
        self.shortcut = None if same else Conv(net, inputs, 4 * width, 1, stride, norm=True)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.widen(self.middle(self.reduce(x).relu()).relu())
        return (out + (x if self.shortcut is None else self.shortcut(x))).relu()


class ResNet50(Net):
    def __init__(self, tensor: type[Any]) -> None:
        super().__init__(tensor)
        self.stem = Conv(self, 3, 64, 7, 2, norm=True)
        self.blocks: list[Bottleneck] = []
        inputs = 64
        for stage, (width, blocks) in enumerate(
            zip((64, 128, 256, 512), _sizes.RESNET50, strict=True)
        ):
            for i in range(blocks):
                stride = 2 if stage > 0 and i == 0 else 1
                self.blocks.append(Bottleneck(self, inputs, width, stride))
                inputs = 4 * width
        self.linear = Linear(self, inputs, 1000)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu().max_pool2d(3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.linear(x.mean((2, 3)))


# ---- GPT (Radford et al. 2019) -------------------------------------------------------------------


class Block:
    """Causal self-attention and a perceptron with GELU, each behind a layer norm."""

    def __init__(self, net: Net, size: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = LayerNorm(net, size), LayerNorm(net, size)
        self.queries, self.keys, self.values = (Linear(net, size, size) for _ in range(3))
        self.out = Linear(net, size, size)
        self.up, self.down = Linear(net, size, 4 * size), Linear(net, 4 * size, size)

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, size = x.shape

        def split(y: Tensor) -> Tensor:
            return y.reshape(batch, length, self.heads, size // self.heads).transpose(1, 2)

        y = self.norm1(x)
        q, k, v = split(self.queries(y)), split(self.keys(y)), split(self.values(y))
        scores = q @ k.transpose(2, 3) * (size // self.heads) ** -0.5 + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, size)
        x = x + self.out(y)
        y = self.up(self.norm2(x))
        y = y * 0.5 * (1 + ((y + y * y * y * 0.044715) * 0.7978845608).tanh())
        return x + self.down(y)


class Gpt(Net):
    """Token and position embeddings, blocks, a norm, and scores of the next token.

    Tokens come one-hot, so that an embedding is a product, in every system alike.
    """

    VOCABULARY, LENGTH, SIZE = _sizes.GPT_VOCABULARY, _sizes.GPT_LENGTH, _sizes.GPT_SIZE
    HEADS, LAYERS = _sizes.GPT_HEADS, _sizes.GPT_LAYERS

    def __init__(self, tensor: type[Any]) -> None:
        super().__init__(tensor)
        self.tokens = self.param(self.VOCABULARY, self.SIZE)
        self.positions = self.param(self.LENGTH, self.SIZE)
        self.blocks = [Block(self, self.SIZE, self.HEADS) for _ in range(self.LAYERS)]
        self.norm = LayerNorm(self, self.SIZE)
        self.head = Linear(self, self.SIZE, self.VOCABULARY)

    def __call__(self, x: Tensor) -> Tensor:
        mask = self.tensor.full((self.LENGTH, self.LENGTH), float("-inf")).triu(1)
        x = x @ self.tokens + self.positions
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


# ---- cases ---------------------------------------------------------------------------------------


def small_shapes(tensor: type[Any], count: int = 300) -> list[Tensor]:
    """Graphs that differ in their shapes only, as programs with varying sizes make them."""

    def graph(i: int) -> Tensor:
        a, b = tensor.empty(3 + i % 20, 5 + i // 20), tensor.empty(3 + i % 20, 1)
        return ((a * 2 + b).relu() - a.mean(1, keepdim=True)).sum(0)

    return [graph(i) for i in range(count)]


TRAINED: dict[str, tuple[Callable[[type[Any]], Any], tuple[int, ...], str]] = {
    "cnn step": (SmallCnn, (64, 1, 8, 8), "Adam"),
    "mlp step": (Mlp, (128, _sizes.MLP[0]), "Adam"),
    "gpt step": (Gpt, (_sizes.GPT_BATCH, Gpt.LENGTH, Gpt.VOCABULARY), "AdamW"),
}
"""Network, shape of the input, optimizer."""


def loss_of(
    net: Callable[[Tensor], Tensor], tensor: type[Any], shape: tuple[int, ...], labels: Tensor
) -> Tensor:
    """Cross entropy of the network's scores on an input of that shape."""
    scores = net(tensor.empty(*shape))
    return scores.reshape(-1, scores.shape[-1]).cross_entropy(labels)


def label_count(shape: tuple[int, ...]) -> int:
    """How many labels go with an input: one an image, one a token."""
    return shape[0] * shape[1] if len(shape) == 3 else shape[0]
