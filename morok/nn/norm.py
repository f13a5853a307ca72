"""Layers that normalise. Arguments, defaults and names are PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from morok.dtype import DType, default_float, dtypes
from morok.errors import ShapeError
from morok.tensor import Tensor, effects, no_grad


class _BatchNorm:
    """Each channel to mean 0 and variance 1 over a batch, then times `weight` plus `bias`.

    In training (`training`, see `nn.train`) by the batch's own statistics, after which
    `running_mean` and `running_var` move towards those by the part `momentum` (None: they are the
    mean over all batches); in evaluation by the running ones. Input: (n, channels, …).
    """

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DType | None = None,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.training = True
        self.weight, self.bias = _affine((num_features,), affine, affine, dtype)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = _kept(np.zeros(num_features), dtype)
            self.running_var = _kept(np.ones(num_features), dtype)
            self.num_batches_tracked = Tensor(0, dtype=dtypes.int64)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__}: shape {x.shape} has {x.ndim} dims, expected "
                f"{' or '.join(map(str, self.ranks))}"
            )
        count = self.num_batches_tracked if self.training else None
        part: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if count is not None:
            with no_grad():
                after = count + 1
                part = 1.0 / after.cast(dtypes.float32) if self.momentum is None else part
        out = x.batch_norm(
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            part,
            self.eps,
        )
        if count is not None:
            effects.change(count, after, out.uop)
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_features}, eps={self.eps})"


class BatchNorm1d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    ranks = (5,)


class LayerNorm:
    """Each row of the last dims (`normalized_shape`) to mean 0 and variance 1, then times `weight`
    plus `bias` of that shape."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        self.normalized_shape = _row(normalized_shape)
        self.eps = eps
        self.weight, self.bias = _affine(
            self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype
        )

    def __call__(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def __repr__(self) -> str:
        return f"LayerNorm({self.normalized_shape}, eps={self.eps})"


class RMSNorm:
    """Each row of the last dims (`normalized_shape`) over the root of its mean square, then times
    `weight` of that shape. `eps` defaults to the spacing of floats at 1."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DType | None = None,
    ) -> None:
        self.normalized_shape = _row(normalized_shape)
        self.eps = eps
        self.weight, _ = _affine(self.normalized_shape, elementwise_affine, False, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def __repr__(self) -> str:
        return f"RMSNorm({self.normalized_shape}, eps={self.eps})"


class GroupNorm:
    """Each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then times
    `weight` plus `bias` of shape (channels,). Input: (n, channels, …)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DType | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels in {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight, self.bias = _affine((num_channels,), affine, affine, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def __repr__(self) -> str:
        return f"GroupNorm({self.num_groups}, {self.num_channels}, eps={self.eps})"


class InstanceNorm:
    """Each channel of each sample to mean 0 and variance 1; with `affine` then times `weight` plus
    `bias` of shape (channels,). Input: (n, channels, …), however many dims follow."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.weight, self.bias = _affine((num_features,), affine, affine, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return x.instance_norm(self.weight, self.bias, self.eps)

    def __repr__(self) -> str:
        return f"InstanceNorm({self.num_features}, eps={self.eps})"


def _kept(start: np.ndarray, dtype: DType | None) -> Tensor:
    """A tensor in memory of its own: its first change has the form of all others."""
    return Tensor(start, dtype=dtype or default_float())


def _row(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _affine(
    shape: tuple[int, ...], weight: bool, bias: bool, dtype: DType | None
) -> tuple[Tensor | None, Tensor | None]:
    """Ones and zeros to be trained, those that are wanted."""
    return (
        Tensor.ones(shape, dtype=dtype, requires_grad=True) if weight else None,
        Tensor.zeros(shape, dtype=dtype, requires_grad=True) if bias else None,
    )
