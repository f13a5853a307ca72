"""Layers. A layer is a plain object: its tensors are attributes, calling it applies it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from morok.dtype import DType
from morok.tensor import Tensor


def _initial(shape: tuple[int, ...], fan_in: int, dtype: DType | None) -> Tensor:
    """Even within 1 / sqrt(fan-in), as PyTorch starts its linear and convolution layers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return Tensor.uniform(shape, low=-bound, high=bound, dtype=dtype, requires_grad=True)


class Linear:
    """x @ weight.T + bias over the last dim; `weight` is (out, in), `bias` (out,) or None."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: DType | None = None
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = _initial((out_features, in_features), in_features, dtype)
        self.bias = _initial((out_features,), in_features, dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) -> (…, out)"""
        return x.linear(self.weight, self.bias)

    def __repr__(self) -> str:
        return f"Linear({self.in_features}, {self.out_features}, bias={self.bias is not None})"


class Conv2d:
    """Cross-correlation of images; `weight` is (out, in / groups, *kernel), `bias` (out,) or None.

    `stride`, `dilation` are one number or one an axis; `padding` may also be four numbers (left,
    right, top, bottom).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        kernel = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.kernel_size = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        fan_in = in_channels // groups * math.prod(kernel)
        self.weight = _initial((out_channels, in_channels // groups, *kernel), fan_in, dtype)
        self.bias = _initial((out_channels,), fan_in, dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in, height, width) -> (n, out, height', width')"""
        return x.conv2d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def __repr__(self) -> str:
        out, each, *_ = self.weight.shape
        return f"Conv2d({each * self.groups}, {out}, kernel_size={self.kernel_size})"
