"""Start values, written into a tensor; names, arguments and formulas are PyTorch's.

Each returns its tensor. Random ones take their numbers from `manual_seed`'s generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from morok.errors import ArgumentError, ShapeError
from morok.tensor import Tensor, no_grad

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much the weights before a nonlinearity are larger; `param` is leaky ReLU's slope."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(
            f"calculate_gain: no nonlinearity {nonlinearity!r}: there are leaky_relu, "
            f"{', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def _set(tensor: Tensor, value: Tensor | float) -> Tensor:
    with no_grad():
        return tensor.assign(value)


def constant_(tensor: Tensor, val: float) -> Tensor:
    return _set(tensor, val)


def zeros_(tensor: Tensor) -> Tensor:
    return _set(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    return _set(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: a matrix is needed, not shape {tensor.shape}")
    return _set(tensor, Tensor.eye(*tensor.shape))


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Even in [a, b)."""
    return _set(tensor, Tensor.uniform(tensor.shape, low=a, high=b, dtype=tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _set(tensor, Tensor.normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normal, of that only what lies in [a, b]: the inverse distribution function of a number even
    between the bounds'."""
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    even = Tensor.uniform(tensor.shape, low=low, high=high)
    drawn = even.erfinv() * (std * math.sqrt(2)) + mean
    return _set(tensor, drawn.clamp(a, b))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Even, with the variance that keeps both activations and gradients at theirs (Glorot and
    Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """As `xavier_uniform_`, normal."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Even, with the variance that keeps activations (`mode="fan_out"`: gradients) at theirs behind
    a nonlinearity, leaky ReLU of slope `a` if none is named (He et al. 2015)."""
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """As `kaiming_uniform_`, normal."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """A random orthogonal matrix times `gain`, the dims behind the first as one (Saxe et al. 2013):
    of a normal one the Q of its QR decomposition, with the signs that make it even over all."""
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: at least two dims are needed, not shape {tensor.shape}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    flat = Tensor.normal(rows, columns).numpy().astype(np.float64)
    q, r = np.linalg.qr(flat if rows >= columns else flat.T)
    q = q * np.sign(np.diag(r))
    q = q if rows >= columns else q.T
    return _set(tensor, Tensor((gain * q).astype(np.float32).reshape(tensor.shape)))


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"kaiming: mode is 'fan_in' or 'fan_out', not {mode!r}")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output has, and outputs an input, for weights (out, in, *axes)."""
    shape: Sequence[int] = tensor.shape
    if len(shape) < 2:
        raise ShapeError(f"fan in and out: at least two dims are needed, not shape {shape}")
    field = math.prod(shape[2:])
    return max(shape[1] * field, 1), max(shape[0] * field, 1)
