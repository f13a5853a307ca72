"""Windows sliding over an image: convolution and pooling, by movement alone.

A window axis is cut out of an axis so that both the forward index and the index of its automatic
adjoint are affine in the loop counters: see `windows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Self

from morok.dtype import Scalar, acc_dtype, dtypes, min_value
from morok.errors import DTypeError, ShapeError
from morok.ir import Ops, ReduceOp, UOp
from morok.tensor import nodes
from morok.tensor.base import common_dtype, fail
from morok.tensor.gradient import FIRST_WINS
from morok.tensor.indexing import every, take
from morok.tensor.linalg import Linalg
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp

Per = int | Sequence[int]
"""One number for every axis, or one each."""


def window_count(length: int, kernel: int, stride: int, dilation: int) -> int:
    """How many windows fit in an axis."""
    return (length - dilation * (kernel - 1) - 1) // stride + 1


def windows(u: UOp, axis: int, kernel: int, stride: int, dilation: int) -> UOp:
    """The axis (length h) as two: (kernel, windows).

    Element (c, o) of the result is element o * stride + c * dilation of the axis.

        h -> pad -> L = P + h + … -> kernel copies in a row -> rows of L + dilation -> columns
        P, P + stride, …     with P = (kernel - 1) * dilation

    In row c, column P + o * stride is flat place c * (L + dilation) + P + o * stride
    = c * L + (P + o * stride + c * dilation): because 0 <= P + o * stride < L + dilation and
    P + o * stride + c * dilation < L, row c is found by interval reasoning alone, and no element of
    the padding is read. Backwards the place c * L + P + i lies in row c at column
    P + i - c * dilation, again within the row.
    """
    shape = nodes.shape_of(u)
    count = window_count(shape[axis], kernel, stride, dilation)
    front, back = shape[:axis], shape[axis + 1 :]
    if stride == kernel and dilation == 1 and count * stride == shape[axis]:
        # Windows side by side: nothing is read twice.
        u = nodes.reshape(u, (*front, count, kernel, *back))
        order = list(range(len(shape) + 1))
        order[axis], order[axis + 1] = axis + 1, axis
        return nodes.permute(u, order)
    if kernel == 1:
        u = take(u, axis, 0, count, stride)
        return nodes.reshape(u, (*front, 1, count, *back))
    if stride > 1 and dilation == 1:
        return _by_phase(u, axis, kernel, stride, count)
    before = (kernel - 1) * dilation
    length = before + shape[axis]
    # The last window's row of `stride` columns must lie within the row.
    short = max(0, before + count * stride - (length + dilation))
    u = _padded(u, axis, before, short)
    length += short
    u = nodes.reshape(u, (*front, 1, length, *back))
    u = nodes.expand(u, (*front, kernel, length, *back))
    u = nodes.reshape(u, (*front, kernel * length, *back))
    u = _padded(u, axis, 0, kernel * dilation)
    u = nodes.reshape(u, (*front, kernel, length + dilation, *back))
    whole = nodes.shape_of(u)
    begins = [before if i == axis + 1 else 0 for i in range(len(whole))]
    ends = [before + count * stride if i == axis + 1 else n for i, n in enumerate(whole)]
    u = nodes.shrink(u, begins, ends)
    return every(u, axis + 1, stride) if stride > 1 else u


def _by_phase(u: UOp, axis: int, kernel: int, stride: int, count: int) -> UOp:
    """`windows` that begin every `stride` elements and overlap.

        h -> (rows, stride) -> (rows of kernel, windows, stride) -> (kernel, windows)

    Element c of window o is element c % stride of row o + c // stride. Backwards an element gets a
    term from as many windows as reach its row, none of which is zero by a condition on its place.
    """
    shape = nodes.shape_of(u)
    front, back = shape[:axis], shape[axis + 1 :]
    rows = -(-kernel // stride)
    length = (count + rows - 1) * stride
    if length > shape[axis]:
        u = _padded(u, axis, 0, length - shape[axis])
    elif length < shape[axis]:
        ends = tuple(length if i == axis else n for i, n in enumerate(shape))
        u = nodes.shrink(u, (0,) * len(shape), ends)
    u = nodes.reshape(u, (*front, length // stride, stride, *back))
    u = windows(u, axis, rows, 1, 1)
    order = list(range(len(nodes.shape_of(u))))
    order[axis + 1], order[axis + 2] = axis + 2, axis + 1
    u = nodes.reshape(nodes.permute(u, order), (*front, rows * stride, count, *back))
    whole = nodes.shape_of(u)
    ends = tuple(kernel if i == axis else n for i, n in enumerate(whole))
    return nodes.shrink(u, (0,) * len(whole), ends)


def _padded(u: UOp, axis: int, lead: int, tail: int) -> UOp:
    rank = len(nodes.shape_of(u))
    begins = [lead if i == axis else 0 for i in range(rank)]
    return nodes.pad(u, begins, [tail if i == axis else 0 for i in range(rank)])


class Window(Linalg):
    """Convolution and pooling over the last dims; images are (batch, channels, height, width)."""

    __slots__ = ()

    def _per(self, method: str, name: str, value: Per, rank: int, least: int) -> Shape:
        """One number for each of `rank` axes."""
        try:
            each = value if isinstance(value, Sequence) else (value,) * rank
            numbers = tuple(map(index, each))
        except TypeError:
            fail(
                DTypeError,
                f"{method}: {name} is a whole number or one for each of {rank} axes, not {value!r}",
            )
        if len(numbers) != rank or any(n < least for n in numbers):
            fail(ShapeError, f"{method}: {name}={value} for {rank} axes (each at least {least})")
        return numbers

    def _conv_pads(
        self, padding: Per | str, kernel: Shape, stride: Shape, dilation: Shape
    ) -> list[tuple[int, int]]:
        """As `_pads`; "valid" is none, "same" what keeps the shape (the odd one behind)."""
        if not isinstance(padding, str):
            return self._pads("conv2d", padding, len(kernel))
        if padding not in ("same", "valid") or (padding == "same" and set(stride) != {1}):
            fail(
                ShapeError,
                f"conv2d: padding={padding!r} with stride {stride}: it is 'valid', or 'same' with "
                "stride 1, or numbers",
            )
        if padding == "valid":
            return [(0, 0)] * len(kernel)
        totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]

    def _pads(self, method: str, padding: Per, rank: int) -> list[tuple[int, int]]:
        """(before, after) for each axis: one number, one an axis, or two an axis from the last axis
        on as in `pad`."""
        if isinstance(padding, Sequence) and len(padding) == 2 * rank and rank > 1:
            flat = self._per(method, "padding", padding, 2 * rank, 0)
            return list(zip(flat[::2], flat[1::2], strict=True))[::-1]
        return [(n, n) for n in self._per(method, "padding", padding, rank, 0)]

    def _windows(
        self,
        method: str,
        u: UOp,
        kernel: Shape,
        stride: Shape,
        dilation: Shape,
        pads: list[tuple[int, int]],
    ) -> UOp:
        """The last axes of `u`, each as (kernel, windows), after zeros around them all: one image
        with a frame, not one for each axis."""
        rank = len(kernel)
        shape = nodes.shape_of(u)
        first = len(shape) - rank
        for i in range(rank):
            length = shape[first + i] + sum(pads[i])
            if window_count(length, kernel[i], stride[i], dilation[i]) < 1:
                fail(
                    ShapeError,
                    f"{method}: a window of {kernel} (dilation {dilation}) does not fit in shape "
                    f"{self.shape} with padding {pads}",
                )
        if any(map(any, pads)):
            around = [(0, 0)] * first + pads
            u = nodes.pad(u, [lead for lead, _ in around], [tail for _, tail in around])
        for i in reversed(range(rank)):
            u = windows(u, first + i, kernel[i], stride[i], dilation[i])
        return u

    # convolution ---------------------------------------------------------------------------------

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Per = 1,
        padding: Per | str = 0,
        dilation: Per = 1,
        groups: int = 1,
    ) -> Self:
        """Cross-correlation of images (n, in, *axes) with weights (out, in / groups, *axes).

        As many axes as the weight has behind its first two; padding may be two numbers an axis,
        "valid" (none) or "same" (what keeps the lengths). Halves are accumulated in float32.
        """
        stamp()
        rank = weight.ndim - 2
        shape, filters = self.shape, weight.shape
        (groups,) = self._per("conv2d", "groups", groups, 1, 1)
        if rank < 1 or self.ndim != rank + 2:
            fail(ShapeError, f"conv2d: shapes {shape} and {filters} with groups={groups}")
        batch, channels = shape[:2]
        out = filters[0]
        if filters[1] * groups != channels or out % groups:
            fail(
                ShapeError,
                f"conv2d: shapes {shape} and {filters}: {channels} channels in groups={groups} "
                f"need weights of shape ({out}, {channels // groups}, …)",
            )
        kernel = filters[2:]
        steps = self._per("conv2d", "stride", stride, rank, 1)
        spread = self._per("conv2d", "dilation", dilation, rank, 1)
        pads = self._conv_pads(padding, kernel, steps, spread)
        dtype = common_dtype("conv2d", self.dtype, weight.dtype)
        work = acc_dtype(dtype)
        u = self._windows("conv2d", nodes.cast(self.uop, work), kernel, steps, spread, pads)
        # (n, in, k0, o0, k1, o1 …) -> (n, groups, 1, o0, o1 …, in / groups, k0, k1 …)
        sizes = nodes.shape_of(u)[3::2]
        each = channels // groups
        u = nodes.reshape(u, (batch, groups, each, *nodes.shape_of(u)[2:]))
        places = [4 + 2 * i for i in range(rank)]
        u = nodes.permute(u, [0, 1, *places, 2, *(place - 1 for place in places)])
        u = nodes.reshape(u, (batch, groups, 1, *sizes, each, *kernel))
        w = nodes.cast(weight.uop, work)
        w = nodes.reshape(w, (1, groups, out // groups, *(1,) * rank, each, *kernel))
        full = (batch, groups, out // groups, *sizes, each, *kernel)
        u, w = nodes.broadcast_to(u, full), nodes.broadcast_to(w, full)
        summed = tuple(range(3 + rank, 4 + 2 * rank))
        product = nodes.reduce(nodes.alu(Ops.MUL, u, w), ReduceOp.ADD, summed)
        product = nodes.reshape(nodes.cast(product, dtype), (batch, out, *sizes))
        result = self._wrap(product, (self._rg or weight._rg) and dtype.kind == "f")
        if bias is None:
            return result
        return result + bias.reshape(out, *(1,) * rank)

    # pooling -------------------------------------------------------------------------------------

    def _pooled(
        self,
        method: str,
        kernel_size: Per,
        stride: Per | None,
        padding: Per,
        dilation: Per,
        ceil_mode: bool,
        fill: Scalar,
    ) -> tuple[UOp, Shape, Shape]:
        """Windows of the last two axes with `fill` around the image, their axes, and the shape
        without those."""
        if self.ndim < 3:
            fail(ShapeError, f"{method}: images are (…, channels, height, width), not {self.shape}")
        kernel = self._per(method, "kernel_size", kernel_size, 2, 1)
        steps = self._per(method, "stride", kernel if stride is None else stride, 2, 1)
        spread = self._per(method, "dilation", dilation, 2, 1)
        pads = self._pads(method, padding, 2)
        if ceil_mode:
            sizes = zip(self.shape[-2:], pads, kernel, steps, spread, strict=True)
            pads = [_overhanging(*size) for size in sizes]
        start = self
        if fill != 0 and any(map(any, pads)):
            around: list[tuple[int, int] | None] = [None] * (self.ndim - 2)
            start = self.pad([*around, *pads], value=fill)
            pads = [(0, 0), (0, 0)]
        u = self._windows(method, start.uop, kernel, steps, spread, pads)
        first = self.ndim - 2
        shape = nodes.shape_of(u)
        return u, (first, first + 2), (*shape[:first], shape[first + 1], shape[first + 3])

    def max_pool2d(
        self,
        kernel_size: Per = 2,
        stride: Per | None = None,
        padding: Per = 0,
        dilation: Per = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """The largest element of each window (`stride` defaults to the window); padding never wins.
        With `ceil_mode` a last window may hang over the edge. Of equal largest elements the first
        gets the gradient."""
        stamp()
        fill = min_value(self.dtype)
        u, axes, _ = self._pooled(
            "max_pool2d", kernel_size, stride, padding, dilation, ceil_mode, fill
        )
        if self._rg:
            u = UOp(Ops.NOOP, u.dtype, (u,), FIRST_WINS)
        return self._wrap(nodes.reduce(u, ReduceOp.MAX, axes), self._rg)

    def avg_pool2d(
        self,
        kernel_size: Per = 2,
        stride: Per | None = None,
        padding: Per = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window (`stride` defaults to the window); padding counts as zeros unless
        `count_include_pad` is False. With `ceil_mode` a last window may hang over the edge; what
        lies beyond the padding never counts."""
        name = "avg_pool2d"
        if self.dtype.kind != "f":
            fail(DTypeError, f"{name}: float images are needed, not {self.dtype}")
        stamp()
        dtype = self.dtype
        work = acc_dtype(dtype)
        wide = self.cast(work)
        u, axes, left = wide._pooled(name, kernel_size, stride, padding, 1, ceil_mode, 0)
        total = self._wrap(nodes.reduce(u, ReduceOp.ADD, axes), self._rg)
        if count_include_pad and not ceil_mode:
            return (total / math.prod(nodes.shape_of(u)[axis] for axis in axes)).cast(dtype)
        ones = self._wrap(nodes.full(self.shape, dtypes.int32, 1))
        if count_include_pad:
            # The padding asked for counts, what a window hangs over does not.
            pads = self._pads(name, padding, 2)
            whole: list[tuple[int, int] | None] = [None] * (self.ndim - 2)
            framed = ones.pad([*whole, *pads], value=1)
            c, _, _ = framed._pooled(name, kernel_size, stride, 0, 1, ceil_mode, 0)
            count = nodes.reduce(c, ReduceOp.ADD, axes)
            cuts = [(0, n) for n in left]
            counts = self._wrap(count).shrink(cuts)
        else:
            c, _, _ = ones._pooled(name, kernel_size, stride, padding, 1, ceil_mode, 0)
            counts = self._wrap(nodes.reduce(c, ReduceOp.ADD, axes))
        return (total / counts.cast(work)).cast(dtype)

    def adaptive_avg_pool2d(self, output_size: int | Sequence[int | None]) -> Self:
        """The means of `output_size` windows along the last two axes (one number for both, None
        keeps a length): window i of o along length n is floor(i n / o) … ceil((i + 1) n / o) - 1,
        as PyTorch's."""
        name = "adaptive_avg_pool2d"
        if self.ndim < 3 or self.dtype.kind != "f":
            fail(ShapeError, f"{name}: float images (…, height, width) are needed: {self.shape}")
        sizes = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
        lengths = self.shape[-2:]
        if len(sizes) != 2:
            fail(ShapeError, f"{name}: output_size={output_size} for two axes")
        wanted = [n if size is None else size for size, n in zip(sizes, lengths, strict=True)]
        if any(size < 1 for size in wanted):
            fail(ShapeError, f"{name}: output_size={output_size}")
        if all(n % size == 0 for size, n in zip(wanted, lengths, strict=True)):
            return self.avg_pool2d([n // size for size, n in zip(wanted, lengths, strict=True)])
        out = self.cast(acc_dtype(self.dtype))
        for axis, size in ((-1, wanted[1]), (-2, wanted[0])):
            out = out.transpose(axis, -1)._shared_out(size).transpose(axis, -1)
        return out.cast(self.dtype)

    def _shared_out(self, size: int) -> Self:
        """The means of `size` windows that share out the last axis."""
        length = self.shape[-1]
        place, window = self.arange(length), self.arange(size).unsqueeze(1)
        begin = window * length // size
        end = ((window + 1) * length + size - 1) // size
        inside = (place >= begin) & (place < end)
        return self.matmul((inside.cast(self.dtype) / (end - begin).cast(self.dtype)).T)


def _overhanging(
    length: int, pad: tuple[int, int], kernel: int, stride: int, dilation: int
) -> tuple[int, int]:
    """The padding with which the last window, begun within the image or the padding in front of
    it, fits."""
    before, after = pad
    reach = dilation * (kernel - 1) + 1
    count = -(-(length + before + after - reach) // stride) + 1
    if (count - 1) * stride >= length + before:
        count -= 1
    return before, max(after, (count - 1) * stride + reach - length - before)
