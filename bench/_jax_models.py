"""The models of `bench/models.py` as JAX functions of their weights by name.

`weights` are trained; `held` are the running statistics of batch norms, which a step replaces.
A loss is `loss(weights, held, inputs, targets) -> (loss, new held)`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench import _sizes
from bench import _train_data as data
from bench._jax_common import cross_entropy

Values = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Loss = Callable[[Values, Values, Any, Any], tuple[Any, Values]]


def linear(w: Values, name: str, x: Any) -> Any:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def conv(w: Values, name: str, x: Any, stride: int = 1, padding: int = 0) -> Any:
    x = lax.conv_general_dilated(x, w[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2)
    bias = w.get(f"{name}.bias")
    return x if bias is None else x + bias[:, None, None]


def max_pool(x: Any, size: int, stride: int, padding: int = 0) -> Any:
    pad = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), pad)


def batch_norm(w: Values, held: Values, name: str, x: Any) -> tuple[Any, Values]:
    """By the batch's statistics; with the running ones moved a tenth towards them."""
    mean = x.mean((0, 2, 3))
    apart = x - mean[:, None, None]
    var = (apart * apart).mean((0, 2, 3))
    count = x.size // x.shape[1]
    new = {
        f"{name}.running_mean": 0.9 * held[f"{name}.running_mean"] + 0.1 * mean,
        f"{name}.running_var": 0.9 * held[f"{name}.running_var"]
        + 0.1 * var * (count / (count - 1)),
    }
    scale = w[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
    return apart * scale[:, None, None] + w[f"{name}.bias"][:, None, None], new


def layer_norm(w: Values, name: str, x: Any) -> Any:
    apart = x - x.mean(-1, keepdims=True)
    var = (apart * apart).mean(-1, keepdims=True)
    return apart * lax.rsqrt(var + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def held_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.running_mean": (width,), f"{name}.running_var": (width,)}


# ---- the perceptron ------------------------------------------------------------------------------

_MLP = ("layers.0", "layers.1", "layers.2")


def mlp_shapes() -> tuple[Shapes, Shapes]:
    shapes: Shapes = {}
    for name, (inputs, outputs) in zip(_MLP, pairwise(_sizes.MLP), strict=True):
        shapes |= linear_shapes(name, inputs, outputs)
    return shapes, {}


def mlp_loss(w: Values, held: Values, x: Any, labels: Any) -> tuple[Any, Values]:
    for name in _MLP[:-1]:
        x = jax.nn.relu(linear(w, name, x))
    return cross_entropy(linear(w, _MLP[-1], x), labels), held


# ---- the convolutional network -------------------------------------------------------------------


def cnn_shapes() -> tuple[Shapes, Shapes]:
    few, many = _sizes.CNN_CHANNELS
    convs = {"conv1": (few, 1, 5), "conv2": (few, few, 5)}
    convs |= {"conv3": (many, few, 3), "conv4": (many, many, 3)}
    shapes: Shapes = {}
    for name, (out, inputs, size) in convs.items():
        shapes |= {f"{name}.weight": (out, inputs, size, size), f"{name}.bias": (out,)}
    shapes |= norm_shapes("norm1", few) | norm_shapes("norm2", many)
    shapes |= linear_shapes("linear", 9 * many, 10)
    return shapes, held_shapes("norm1", few) | held_shapes("norm2", many)


def cnn_loss(w: Values, held: Values, x: Any, labels: Any) -> tuple[Any, Values]:
    x = jax.nn.relu(conv(w, "conv1", x))
    x = jax.nn.relu(conv(w, "conv2", x))
    x, first = batch_norm(w, held, "norm1", x)
    x = max_pool(x, 2, 2)
    x = jax.nn.relu(conv(w, "conv3", x))
    x = jax.nn.relu(conv(w, "conv4", x))
    x, second = batch_norm(w, held, "norm2", x)
    x = max_pool(x, 2, 2)
    return cross_entropy(linear(w, "linear", x.reshape(len(x), -1)), labels), first | second


# ---- ResNet18 ------------------------------------------------------------------------------------


def _blocks() -> list[tuple[str, int, int, int]]:
    """(name, inputs, width, stride) of the basic blocks."""
    blocks = []
    inputs = 64
    for stage, (width, stride) in enumerate(data.STAGES, 1):
        for i in range(2):
            blocks.append((f"layer{stage}.{i}", inputs, width, stride if i == 0 else 1))
            inputs = width
    return blocks


def resnet18_shapes() -> tuple[Shapes, Shapes]:
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7)} | norm_shapes("bn1", 64)
    held = held_shapes("bn1", 64)
    for name, inputs, width, stride in _blocks():
        convs = {f"{name}.conv1": (inputs, 3), f"{name}.conv2": (width, 3)}
        norms = [f"{name}.bn1", f"{name}.bn2"]
        if stride > 1:
            convs[f"{name}.downsample.0"] = (inputs, 1)
            norms.append(f"{name}.downsample.1")
        shapes |= {f"{c}.weight": (width, n, size, size) for c, (n, size) in convs.items()}
        for norm in norms:
            shapes |= norm_shapes(norm, width)
            held |= held_shapes(norm, width)
    return shapes | linear_shapes("fc", 512, data.CLASSES), held


def resnet18_loss(w: Values, held: Values, x: Any, labels: Any) -> tuple[Any, Values]:
    new: Values = {}

    def norm(name: str, x: Any) -> Any:
        out, statistics = batch_norm(w, held, name, x)
        new.update(statistics)
        return out

    x = jax.nn.relu(norm("bn1", conv(w, "conv1", x, 2, 3)))
    x = max_pool(x, 3, 2, 1)
    for name, _, _, stride in _blocks():
        y = jax.nn.relu(norm(f"{name}.bn1", conv(w, f"{name}.conv1", x, stride, 1)))
        y = norm(f"{name}.bn2", conv(w, f"{name}.conv2", y, 1, 1))
        if stride > 1:
            x = norm(f"{name}.downsample.1", conv(w, f"{name}.downsample.0", x, stride))
        x = jax.nn.relu(x + y)
    return cross_entropy(linear(w, "fc", x.mean((2, 3))), labels), new


# ---- the GPT -------------------------------------------------------------------------------------


def gpt_shapes() -> tuple[Shapes, Shapes]:
    size = data.SIZE
    shapes: Shapes = {"tokens.weight": (data.VOCABULARY, size)}
    shapes["positions.weight"] = (data.LENGTH, size)
    for i in range(data.LAYERS):
        block = f"blocks.{i}"
        shapes |= norm_shapes(f"{block}.norm1", size) | norm_shapes(f"{block}.norm2", size)
        for name in ("queries", "keys", "values", "out"):
            shapes |= linear_shapes(f"{block}.{name}", size, size)
        shapes |= linear_shapes(f"{block}.up", size, 4 * size)
        shapes |= linear_shapes(f"{block}.down", 4 * size, size)
    return shapes | norm_shapes("norm", size) | linear_shapes("head", size, data.VOCABULARY), {}


def gpt_loss(w: Values, held: Values, tokens: Any, targets: Any) -> tuple[Any, Values]:
    batch, length = tokens.shape
    each = data.SIZE // data.HEADS

    def attention(name: str, x: Any) -> Any:
        def split(part: str) -> Any:
            y = linear(w, f"{name}.{part}", x)
            return y.reshape(batch, length, data.HEADS, each).swapaxes(1, 2)

        q, k, v = split("queries"), split("keys"), split("values")
        scores = q @ k.swapaxes(2, 3) * each**-0.5
        causal = jnp.tril(jnp.ones((length, length), bool))
        mixed = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)) @ v
        return linear(w, f"{name}.out", mixed.swapaxes(1, 2).reshape(batch, length, data.SIZE))

    x = w["tokens.weight"][tokens] + w["positions.weight"][:length]
    for i in range(data.LAYERS):
        name = f"blocks.{i}"
        x = x + attention(name, layer_norm(w, f"{name}.norm1", x))
        y = jax.nn.gelu(linear(w, f"{name}.up", layer_norm(w, f"{name}.norm2", x)))
        x = x + linear(w, f"{name}.down", y)
    scores = linear(w, "head", layer_norm(w, "norm", x))
    return cross_entropy(scores.reshape(-1, data.VOCABULARY), targets.reshape(-1)), held


MODELS: dict[str, tuple[Callable[[], tuple[Shapes, Shapes]], Loss]] = {
    "mlp": (mlp_shapes, mlp_loss),
    "cnn": (cnn_shapes, cnn_loss),
    "gpt": (gpt_shapes, gpt_loss),
    "resnet18": (resnet18_shapes, resnet18_loss),
}
