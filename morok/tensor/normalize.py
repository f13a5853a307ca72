"""Normalisation: values brought to mean 0 and variance 1 within a batch, a channel, a group or a
row. Statistics of halves are computed, and applied, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Self, TypeVar

from morok.dtype import acc_dtype
from morok.errors import DTypeError, ShapeError
from morok.tensor import effects, memory
from morok.tensor.base import fail, no_grad
from morok.tensor.window import Window


class Normalize(Window):
    """Methods that normalise."""

    __slots__ = ()

    def _wide(self, method: str) -> Self:
        """In the dtype in which statistics are computed."""
        if self.dtype.kind != "f":
            fail(DTypeError, f"{method}: a float tensor is needed, not {self.dtype}")
        return self.cast(acc_dtype(self.dtype))

    def _standard(self, dims: tuple[int, ...], eps: float) -> Self:
        """(x - mean) / sqrt(var + eps) over `dims`, by the biased variance."""
        mean, var = self._moments(dims)
        return (self - mean) * (var + eps).rsqrt()

    def _row_dims(self, method: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
        """The last dims, whose lengths must be `normalized_shape`."""
        row = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if not row or self.shape[-len(row) :] != row:
            fail(ShapeError, f"{method}: shape {self.shape} does not end with {row}")
        return tuple(range(self.ndim - len(row), self.ndim))

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """Each row of the last dims, whose lengths are `normalized_shape`, to mean 0 and variance
        1, then times `weight` plus `bias` of that shape (Ba, Kiros and Hinton 2016)."""
        dims = self._row_dims("layer_norm", normalized_shape)
        out = self._wide("layer_norm")._standard(dims, eps)
        return out._affine(weight, bias).cast(self.dtype)

    def rms_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: Self | None = None,
        eps: float | None = None,
    ) -> Self:
        """Each row of the last dims over the root of its mean square, then times `weight` (Zhang
        and Sennrich 2019). `eps` defaults to the spacing of floats at 1."""
        dims = self._row_dims("rms_norm", normalized_shape)
        x = self._wide("rms_norm")
        eps = _SPACING[x.dtype.name] if eps is None else eps
        out = x * ((x * x).mean(dims, keepdim=True) + eps).rsqrt()
        return out._affine(weight, None).cast(self.dtype)

    def group_norm(
        self,
        num_groups: int,
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """(n, channels, …): each of `num_groups` groups of channels of each sample to mean 0 and
        variance 1, then times `weight` plus `bias`, of shape (channels,) (Wu and He 2018)."""
        shape = self.shape
        if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
            fail(ShapeError, f"group_norm: {num_groups} groups of channels in shape {shape}")
        x = self._wide("group_norm").reshape(shape[0], num_groups, -1)
        out = x._standard((2,), eps).reshape(shape)
        return out._affine(*_by_channel(len(shape), weight, bias)).cast(self.dtype)

    def instance_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """(n, channels, …): each channel of each sample to mean 0 and variance 1, then times
        `weight` plus `bias`, of shape (channels,) (Ulyanov et al. 2016)."""
        if self.ndim < 3:
            fail(ShapeError, f"instance_norm: (n, channels, …) is needed, not {self.shape}")
        out = self._wide("instance_norm")._standard(tuple(range(2, self.ndim)), eps)
        return out._affine(*_by_channel(self.ndim, weight, bias)).cast(self.dtype)

    def batch_norm(
        self,
        running_mean: Self | None,
        running_var: Self | None,
        weight: Self | None = None,
        bias: Self | None = None,
        training: bool = False,
        momentum: float | Self = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """(n, channels, …): each channel to mean 0 and variance 1 over all samples and places, then
        times `weight` plus `bias`, of shape (channels,) (Ioffe and Szegedy 2015).

        In training the batch's own statistics are used, and the running ones, where given, move
        towards them by the part `momentum` (the variance by its unbiased estimate). They change
        when what this returns is computed, or when they are read, and at the latest a few passes
        later. Otherwise the running ones are used, or the batch's where they are None.
        """
        shape = self.shape
        if len(shape) < 2:
            fail(ShapeError, f"batch_norm: (n, channels, …) is needed, not {shape}")
        for name, given in (("mean", running_mean), ("var", running_var)):
            if given is not None and given.shape != shape[1:2]:
                fail(
                    ShapeError,
                    f"batch_norm: running_{name} of shape {given.shape} does not go with the "
                    f"channels of {shape}",
                )
        x = self._wide("batch_norm")
        weight, bias = _by_channel(len(shape), weight, bias)
        if training or running_mean is None or running_var is None:
            dims = (0, *range(2, len(shape)))
            count = prod(shape) // max(shape[1], 1)
            if training and count == 1:
                fail(ShapeError, f"batch_norm: one value per channel in shape {shape} to train on")
            mean, var = x._moments(dims)
            if training:
                rise = count / max(count - 1, 1)
                mean._leads(running_mean, 1.0, momentum)
                var._leads(running_var, rise, momentum)
                memory.realize(effects.overdue())
        else:
            mean, var = _by_channel(len(shape), running_mean, running_var)
        scale = (var + eps).rsqrt()
        scale = scale if weight is None else scale * weight
        return ((x - mean) * scale)._affine(None, bias).cast(self.dtype)

    def _leads(self, running: Self | None, rise: float, part: float | Self) -> None:
        """Has a running statistic move by `part` towards `rise` times this one."""
        if running is None:
            return
        with no_grad():
            now = self.detach().reshape(running.shape)
            now = now * rise if rise != 1 else now
            effects.change(running, running * (1.0 - part) + now * part, self.uop)

    def _affine(self, weight: Self | None, bias: Self | None) -> Self:
        out = self if weight is None else self * weight
        return out if bias is None else out + bias


T = TypeVar("T", bound=Normalize | None)
_SPACING = {"float32": 2.0**-23, "float64": 2.0**-52}


def _by_channel(rank: int, *given: T) -> list[T]:
    """Vectors over the channels, where there are any, for (n, channels, …)."""
    apart = (1, -1, *(1,) * (rank - 2))
    return [each if each is None else each.reshape(apart) for each in given]
