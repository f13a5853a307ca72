"""The nine computations whose fusion is counted, written once against the part of a Tensor class
that morok and tinygrad spell alike, and how many float operations the mathematics of each asks for.

A multiply-add is two operations, a function, a comparison, a step of a maximum one. An operation
that is carried out for every element counts; those of a row or a channel do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from bench import _compile_models as models
from bench import _sizes

Tensor = models.Tensor


@dataclass(frozen=True)
class Computation:
    """`build` gives the values to compute together; optimizers add theirs to `loss` and `params`.

    build      (tensor class) -> what is computed, as Tensors
    network    for a training step: (network, shape of its input, optimizer), instead of `build`
    flops      analytic
    """

    flops: int
    build: Callable[[type[Any]], list[Tensor]] | None = None
    network: tuple[Callable[[type[Any]], Any], tuple[int, ...], str] | None = None


# ---- forward computations ------------------------------------------------------------------------

ROWS, COLUMNS = 512, 1000
NORM = (1024, 256)
IMAGES = (16, 32, 28, 28)


def _softmax(tensor: type[Any]) -> list[Tensor]:
    return [tensor.empty(ROWS, COLUMNS).softmax(-1)]


def _nll(tensor: type[Any]) -> list[Tensor]:
    """Log-softmax written out, and the mean of what it says of the right classes."""
    scores = tensor.empty(ROWS, COLUMNS)
    wanted = tensor.empty(ROWS, COLUMNS)  # one-hot
    return [-(scores.log_softmax(-1) * wanted).sum() / ROWS]


def _layer_norm(tensor: type[Any]) -> list[Tensor]:
    net = models.Net(tensor)
    return [models.LayerNorm(net, NORM[1])(tensor.empty(*NORM))]


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In training: (normalised images, mean, variance)."""
    mean = x.mean((0, 2, 3), keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean((0, 2, 3), keepdim=True)
    scale = (variance + 1e-5).rsqrt() * weight.reshape(1, -1, 1, 1)
    return centred * scale + bias.reshape(1, -1, 1, 1), mean, variance


def _batch_norm(tensor: type[Any]) -> list[Tensor]:
    """Images, running statistics, and the gradients of images, weight and bias."""
    net = models.Net(tensor)
    channels = IMAGES[1]
    x, weight, bias = net.param(*IMAGES), net.param(channels), net.param(channels)
    running = [tensor.empty(1, channels, 1, 1) for _ in range(2)]
    y, *seen = batch_norm(x, weight, bias)
    moved = [old * 0.9 + new.detach() * 0.1 for old, new in zip(running, seen, strict=True)]
    grads = (y * tensor.empty(*IMAGES)).sum().gradient(x, weight, bias)
    return [y, *moved, *grads]


def _attention_block(tensor: type[Any]) -> list[Tensor]:
    net = models.Net(tensor)
    length, size = _sizes.GPT_LENGTH, _sizes.GPT_SIZE
    block = models.Block(net, size, _sizes.GPT_HEADS)
    mask = tensor.full((length, length), float("-inf")).triu(1)
    return [block(tensor.empty(_sizes.GPT_BATCH, length, size), mask)]


def _resnet50(tensor: type[Any]) -> list[Tensor]:
    return [models.ResNet50(tensor)(tensor.empty(*RESNET))]


# ---- training steps ------------------------------------------------------------------------------

CNN_BATCH, CNN_CHANNELS, CNN_SIDE = 32, 32, 28
RESNET = (64, 3, 224, 224)


class ConvNet(models.Net):
    """Padded convolutions, batch norm in training, relu and pooling on digits, and ten scores."""

    def __init__(self, tensor: type[Any]) -> None:
        super().__init__(tensor)
        few = CNN_CHANNELS
        self.conv1, self.conv2 = self.param(few, 1, 3, 3), self.param(few, few, 3, 3)
        self.weight, self.bias = self.param(few), self.param(few)
        self.linear = models.Linear(self, few * (CNN_SIDE // 2) ** 2, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.conv2d(self.conv1, padding=1).relu().conv2d(self.conv2, padding=1)
        x, _, _ = batch_norm(x, self.weight, self.bias)
        return self.linear(x.relu().max_pool2d(2).flatten(1))


# ---- what the mathematics asks for ---------------------------------------------------------------


def mlp_flops(batch: int) -> int:
    """Of a step: products forward and for both gradients but that of the images, and Adam."""
    sizes = _sizes.MLP
    products = [a * b for a, b in pairwise(sizes)]
    parameters = sum(products) + sum(sizes[1:])
    return 2 * batch * (3 * sum(products) - products[0]) + ADAM * parameters


ADAM = 14
"""Operations of Adam for each parameter: three for the mean of the gradient, four for that of its
square, three for the scale, four for the step. AdamW decays too: two more."""


def conv_flops() -> int:
    """Of a step of `ConvNet` with Adam."""
    few = CNN_CHANNELS
    pixels = CNN_BATCH * few * CNN_SIDE**2
    conv1, conv2, linear = 9 * pixels, 9 * few * pixels, CNN_BATCH * few * (CNN_SIDE // 2) ** 2 * 10
    products = 2 * (2 * conv1 + 3 * conv2 + 3 * linear)
    # Batch norm 7 forward and 10 backward, relus and the pool's choice a few.
    around = (17 + 8) * pixels
    parameters = 9 * few * (1 + few) + 2 * few + linear // CNN_BATCH + 10
    return products + around + ADAM * parameters


def block_flops(*, training: bool) -> int:
    """Of an attention block on one batch; three times as many products in training."""
    batch, length, size = _sizes.GPT_BATCH, _sizes.GPT_LENGTH, _sizes.GPT_SIZE
    tokens = batch * length
    linear = 2 * tokens * size * size * (4 + 8)
    scores = tokens * length * _sizes.GPT_HEADS
    attention = 2 * 2 * tokens * length * size
    # Two norms, two biases with a residual, softmax with scale and mask, GELU.
    forward = tokens * size * (2 * 8 + 6 + 4 * 10) + 7 * scores
    backward = tokens * size * (2 * 13 + 6 + 4 * 16) + 6 * scores
    products = linear + attention
    return 3 * products + forward + backward if training else products + forward


def gpt_flops() -> int:
    """Of a step of the GPT with one-hot tokens and AdamW: no gradient of the tokens."""
    tokens = _sizes.GPT_BATCH * _sizes.GPT_LENGTH
    size, vocabulary = _sizes.GPT_SIZE, _sizes.GPT_VOCABULARY
    ends = 2 * tokens * size * vocabulary * (2 + 3) + 12 * tokens * vocabulary
    block = size * size * 12 + size * 13
    parameters = _sizes.GPT_LAYERS * block + size * (2 * vocabulary + _sizes.GPT_LENGTH + 2)
    steps = (ADAM + 2) * (parameters + vocabulary)
    return _sizes.GPT_LAYERS * block_flops(training=True) + ends + steps


def resnet50_flops(batch: int, side: int) -> int:
    """Convolutions (He et al. 2015, table 1), scale and shift after each, relus, residuals, pools
    and the linear layer."""
    total = 0

    def conv(inputs: int, outputs: int, size: int, side: int, after: int) -> None:
        nonlocal total
        total += outputs * side * side * (2 * inputs * size * size + 2 + after)

    side = (side + 1) // 2
    conv(3, 64, 7, side, 1)
    side = (side + 1) // 2
    total += 9 * 64 * side * side
    inputs = 64
    for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), _sizes.RESNET50, strict=True)):
        for i in range(blocks):
            before = side
            if stage > 0 and i == 0:
                side = (side + 1) // 2
            conv(inputs, width, 1, before, 1)
            conv(width, width, 3, side, 1)
            conv(width, 4 * width, 1, side, 2)
            if i == 0:
                conv(inputs, 4 * width, 1, side, 0)
            inputs = 4 * width
    total += inputs * side * side + 2 * inputs * 1000
    return batch * total


COMPUTATIONS: dict[str, Computation] = {
    "softmax": Computation(5 * ROWS * COLUMNS, _softmax),
    "log-softmax + NLL": Computation(8 * ROWS * COLUMNS, _nll),
    "layernorm": Computation(8 * prod(NORM), _layer_norm),
    "batch norm training": Computation(17 * prod(IMAGES), _batch_norm),
    "attention block": Computation(block_flops(training=False), _attention_block),
    "mlp step": Computation(mlp_flops(128), network=models.TRAINED["mlp step"]),
    "conv + bn + relu + pool step": Computation(
        conv_flops(), network=(ConvNet, (CNN_BATCH, 1, CNN_SIDE, CNN_SIDE), "Adam")
    ),
    "gpt step": Computation(gpt_flops(), network=models.TRAINED["gpt step"]),
    "resnet50 forward": Computation(resnet50_flops(RESNET[0], RESNET[2]), _resnet50),
}
