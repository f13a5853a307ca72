"""Containers, and layers without weights: dropout, activations, pooling. Arguments, defaults and
names are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from morok.errors import ArgumentError, AxisError, ShapeError
from morok.nn.layers import Per
from morok.tensor import Tensor

Layer = Callable[..., Any]


class Sequential:
    """One layer after another. Any function of a tensor is a layer; the names in the state are the
    numbers of the layers."""

    def __init__(self, *layers: Layer) -> None:
        for i, layer in enumerate(layers):
            setattr(self, str(i), layer)

    def __call__(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Layer]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, index: int) -> Layer:
        if not -len(self) <= index < len(self):
            raise AxisError(f"Sequential: no layer {index} of {len(self)}")
        return list(self)[index]

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self))})"


class Identity:
    """x"""

    def __call__(self, x: Tensor) -> Tensor:
        return x


class Flatten:
    """Dims `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class Dropout:
    """In training (`training`, see `nn.train`) each element is 0 with probability p and the others
    are divided by 1 - p; in evaluation x is unchanged (Srivastava et al. 2014)."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: {p} is no probability")
        self.p = p
        self.training = True

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class Dropout2d(Dropout):
    """As `Dropout`, whole channels of (n, channels, height, width) at once."""

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise ShapeError(f"Dropout2d: (n, channels, height, width) is needed, not {x.shape}")
        kept = Tensor.ones(*x.shape[:2], 1, 1, dtype=x.dtype).dropout(self.p, self.training)
        return x * kept


# activations -------------------------------------------------------------------------------------


class ReLU:
    """max(x, 0)"""

    def __call__(self, x: Tensor) -> Tensor:
        return x.relu()


class LeakyReLU:
    """x, and `negative_slope` times x below 0"""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def __call__(self, x: Tensor) -> Tensor:
        return x.leaky_relu(self.negative_slope)


class GELU:
    """x times the normal distribution function of x, exactly or (`approximate="tanh"`) nearly."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def __call__(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)


class SiLU:
    """x * sigmoid(x)"""

    def __call__(self, x: Tensor) -> Tensor:
        return x.silu()


class Sigmoid:
    """1 / (1 + e**-x)"""

    def __call__(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class Tanh:
    """The hyperbolic tangent."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.tanh()


class Softmax:
    """exp(x) over its sum along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.softmax(self.dim)


# pooling -----------------------------------------------------------------------------------------


class MaxPool2d:
    """The largest element of each window; see `Tensor.max_pool2d`."""

    def __init__(
        self,
        kernel_size: Per,
        stride: Per | None = None,
        padding: Per = 0,
        dilation: Per = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def __call__(self, x: Tensor) -> Tensor:
        return x.max_pool2d(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )


class AvgPool2d:
    """The mean of each window; see `Tensor.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Per,
        stride: Per | None = None,
        padding: Per = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def __call__(self, x: Tensor) -> Tensor:
        return x.avg_pool2d(
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class AdaptiveAvgPool2d:
    """The means of windows that share out the image evenly; see `Tensor.adaptive_avg_pool2d`."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        self.output_size = output_size

    def __call__(self, x: Tensor) -> Tensor:
        return x.adaptive_avg_pool2d(self.output_size)
