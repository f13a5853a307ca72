"""Layers that multiply by weights.

A layer is a plain object: its tensors are attributes, calling it applies it. Arguments, defaults,
the names of the tensors and the way these start are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from morok.dtype import DType
from morok.errors import AxisError, ShapeError
from morok.tensor import Tensor

Per = int | Sequence[int]
"""One number for every axis, or one each."""


def uniform(shape: Sequence[int], fan_in: int, dtype: DType | None) -> Tensor:
    """A parameter even within 1 / sqrt(fan-in)."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return Tensor.uniform(shape, low=-bound, high=bound, dtype=dtype, requires_grad=True)


class Linear:
    """x @ weight.T + bias over the last dim; `weight` is (out, in), `bias` (out,) or None."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: DType | None = None
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = uniform((out_features, in_features), in_features, dtype)
        self.bias = uniform((out_features,), in_features, dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) -> (…, out)"""
        return x.linear(self.weight, self.bias)

    def __repr__(self) -> str:
        return f"Linear({self.in_features}, {self.out_features}, bias={self.bias is not None})"


class _Conv:
    """A cross-correlation over `rank` axes."""

    rank = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Per,
        stride: Per = 1,
        padding: Per | str = 0,
        dilation: Per = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        kernel = (kernel_size,) * self.rank if isinstance(kernel_size, int) else tuple(kernel_size)
        name = type(self).__name__
        if len(kernel) != self.rank:
            raise ShapeError(f"{name}: kernel_size={kernel_size} for {self.rank} axes")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: {in_channels} channels in and {out_channels} out do not fall into "
                f"groups={groups}"
            )
        self.kernel_size = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        fan_in = in_channels // groups * math.prod(kernel)
        self.weight = uniform((out_channels, in_channels // groups, *kernel), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in, *axes) -> (n, out, *axes')"""
        return x.conv2d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def __repr__(self) -> str:
        out, each, *_ = self.weight.shape
        name = type(self).__name__
        return f"{name}({each * self.groups}, {out}, kernel_size={self.kernel_size})"


class Conv1d(_Conv):
    """Cross-correlation of sequences (n, in, length); otherwise as `Conv2d`."""

    rank = 1


class Conv2d(_Conv):
    """Cross-correlation of images (n, in, height, width); `weight` is (out, in / groups, *kernel),
    `bias` (out,) or None.

    `stride`, `dilation` are one number or one an axis; `padding` may also be two numbers an axis,
    the last axis first (left, right, top, bottom), or "same" or "valid".
    """

    rank = 2


class Conv3d(_Conv):
    """Cross-correlation of volumes (n, in, depth, height, width); otherwise as `Conv2d`."""

    rank = 3


class Embedding:
    """A row of `weight` (num_embeddings, embedding_dim) for each whole number.

    The row `padding_idx` starts as zeros and gets no gradient.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AxisError(f"Embedding: padding_idx {padding_idx} of {num_embeddings} rows")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        start = Tensor.normal(num_embeddings, embedding_dim, dtype=dtype)
        if self.padding_idx is not None:
            start = start * (Tensor.arange(num_embeddings) != self.padding_idx).unsqueeze(1)
        self.weight = start.cast(dtype or start.dtype).requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        """(…) whole numbers -> (…, embedding_dim)"""
        rows = self.weight[x]
        if self.padding_idx is None:
            return rows
        return (x == self.padding_idx).unsqueeze(-1).where(rows.detach(), rows)

    def __repr__(self) -> str:
        return f"Embedding({self.num_embeddings}, {self.embedding_dim})"
