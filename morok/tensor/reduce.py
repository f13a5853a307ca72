"""Reductions: sums, extremes and what is made of them.

Every one takes `dim` (or NumPy's `axis`): an int, several, or None for all, and `keepdim` (or
`keepdims`) to leave the reduced dims in place with length 1. Accumulation follows page 7.2: narrow
ints and bool in 32 bits, halves in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypedDict, Unpack

from morok.dtype import DType, acc_dtype, default_float, dtypes, sum_dtype
from morok.errors import ShapeError
from morok.ir import Ops, ReduceOp, UOp
from morok.tensor import nodes
from morok.tensor.base import fail
from morok.tensor.casting import Casting
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp

Dims = int | Sequence[int] | None


class Names(TypedDict, total=False):
    """NumPy's names of what reductions take."""

    axis: Dims
    keepdims: bool


def _named(dim: Dims, keepdim: bool, names: Names) -> tuple[Dims, bool]:
    """`dim` and `keepdim`, by whichever names they were given. TypeError for an unknown one, or for
    `dim` by both."""
    unknown = names.keys() - Names.__annotations__.keys()
    if unknown:
        raise TypeError(f"a reduction has no argument {sorted(unknown)[0]!r}")
    axis = names.get("axis")
    if dim is not None and axis is not None:
        raise TypeError(f"a reduction takes dim or axis, not both: {dim} and {axis}")
    return dim if axis is None else axis, keepdim or names.get("keepdims", False)


class Reduce(Casting):
    """Methods that reduce dims."""

    __slots__ = ()

    def _reduced(
        self,
        op: ReduceOp,
        method: str,
        dim: Dims,
        keepdim: bool,
        work: DType | None = None,
        result: DType | None = None,
    ) -> Self:
        """Reduced with `op`, computed in dtype `work` and returned in `result`."""
        stamp()
        u = self.uop
        axes = self._axes(method, dim)
        before = nodes.shape_of(u)
        if 0 in before and op in (ReduceOp.MAX, ReduceOp.MIN) and any(before[a] == 0 for a in axes):
            fail(ShapeError, f"{method}: nothing to choose from along {axes} of shape {before}")
        work = work or u.dtype
        u = nodes.cast(nodes.reduce(nodes.cast(u, work), op, axes), result or work)
        if keepdim:
            u = nodes.reshape(u, nodes.keep_axes(before, axes))
        return self._wrap(u, self._rg and u.dtype.kind == "f")

    # sums and products ---------------------------------------------------------------------------

    def sum(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
        **names: Unpack[Names],
    ) -> Self:
        """The sum; of nothing it is 0. `dtype` converts first."""
        return self._accumulated(ReduceOp.ADD, "sum", dtype, *_named(dim, keepdim, names))

    def prod(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
        **names: Unpack[Names],
    ) -> Self:
        """The product; of nothing it is 1. `dtype` converts first."""
        return self._accumulated(ReduceOp.MUL, "prod", dtype, *_named(dim, keepdim, names))

    def _accumulated(
        self, op: ReduceOp, method: str, dtype: DType | None, dim: Dims, keepdim: bool
    ) -> Self:
        start = self if dtype is None else self.cast(dtype)
        work, result = acc_dtype(start.dtype), sum_dtype(start.dtype)
        return start._reduced(op, method, dim, keepdim, work, result)

    def _count(self, method: str, dim: Dims) -> Any:
        """How many elements one result is made of: an int, or a number of variables."""
        return math.prod(self.shape[axis] for axis in self._axes(method, dim))

    def mean(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """The mean, a float; of nothing it is NaN."""
        dim, keepdim = _named(dim, keepdim, names)
        own = self.dtype if self.dtype.kind == "f" else default_float()
        work = acc_dtype(own)
        total = self.cast(work)._reduced(ReduceOp.ADD, "mean", dim, keepdim)
        mean: Self = total / self._count("mean", dim)
        return mean.cast(own)

    def _moments(self, dim: Dims, correction: int = 0) -> tuple[Self, Self]:
        """Mean and variance over `dim`, kept as 1; of a tensor that accumulates in its own dtype.

        The distances are taken from the mean as a constant: what the mean's own part adds to a
        gradient, n (mean - constant)**2, has slope 0 but not curvature 0, so it is subtracted where
        gradients flow. This way no gradient of the variance needs a sum over the elements.
        """
        count = self._count("var", dim)
        if isinstance(count, UOp):
            return self._moments_counted(dim, count, (count - correction).maximum(0))
        freedom = max(count - correction, 0)
        mean = self._reduced(ReduceOp.ADD, "var", dim, True) / count
        fixed = mean.detach()
        apart = self - fixed
        var = (apart * apart)._reduced(ReduceOp.ADD, "var", dim, True) / freedom
        if self._rg and count and freedom:
            off = mean - fixed
            var = var - off * off * (count / freedom)
        return mean, var

    def _moments_counted(self, dim: Dims, count: UOp, freedom: UOp) -> tuple[Self, Self]:
        """`_moments` where the count is a number of variables."""
        mean = self._reduced(ReduceOp.ADD, "var", dim, True) / count
        fixed = mean.detach()
        apart, off = self - fixed, mean - fixed
        var = (apart * apart)._reduced(ReduceOp.ADD, "var", dim, True) - off * off * count
        return mean, var / freedom

    def var(
        self, dim: Dims = None, correction: int = 1, keepdim: bool = False, **names: Unpack[Names]
    ) -> Self:
        """The variance: squared distances from the mean over n - correction (NaN for 0 / 0)."""
        dim, keepdim = _named(dim, keepdim, names)
        own = self.dtype if self.dtype.kind == "f" else default_float()
        _, out = self.cast(acc_dtype(own))._moments(dim, correction)
        return (out if keepdim else out.reshape(self._left("var", dim))).cast(own)

    def std(
        self, dim: Dims = None, correction: int = 1, keepdim: bool = False, **names: Unpack[Names]
    ) -> Self:
        """The square root of the variance; its gradient at 0 is 0, as PyTorch's."""
        dim, keepdim = _named(dim, keepdim, names)
        return self.var(dim, correction, keepdim)._root()

    def _root(self) -> Self:
        """The square root, with gradient 0 at 0."""
        zero = self.eq(0)
        return zero.where(0.0, zero.where(1.0, self).sqrt())

    def norm(
        self, p: float = 2, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]
    ) -> Self:
        """The p-norm; `math.inf` and `-math.inf` give the extremes, 0 counts what is not zero. The
        gradient of the 2-norm at 0 is 0."""
        dim, keep = _named(dim, keepdim, names)
        start = self._floating()
        # Powers of halves that overflow may have a root that does not.
        return start.cast(acc_dtype(start.dtype))._norm(p, dim, keep).cast(start.dtype)

    def _norm(self, p: float, dim: Dims, keep: bool) -> Self:
        if p == 2:
            return (self * self).sum(dim, keep)._root()
        if p == math.inf:
            return self.abs().max(dim, keep)
        if p == -math.inf:
            return self.abs().min(dim, keep)
        if p == 0:
            return self.ne(0).cast(self.dtype).sum(dim, keep)
        if p == 1:
            return self.abs().sum(dim, keep)
        return (self.abs() ** p).sum(dim, keep) ** (1 / p)

    # extremes ------------------------------------------------------------------------------------

    def max(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """The largest element, NaN if there is one; its place is `argmax`'s. Equal largest elements
        share the gradient."""
        dim, keepdim = _named(dim, keepdim, names)
        return self._reduced(ReduceOp.MAX, "max", dim, keepdim)

    def min(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """The smallest element, NaN if there is one; its place is `argmin`'s. Equal smallest
        elements share the gradient."""
        dim, keepdim = _named(dim, keepdim, names)
        return self._reduced(ReduceOp.MIN, "min", dim, keepdim)

    amax, amin = max, min  # noqa: A003

    def _argument(self, op: ReduceOp, method: str, dim: int | None, keepdim: bool) -> Self:
        """The first place, in logical order, of an extreme; of a NaN if there is one."""
        if dim is None:
            flat = self.reshape(self.numel())._argument(op, method, 0, False)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        axis = self._axis(method, dim)
        if not self.ndim:
            return self._wrap(nodes.const(dtypes.int32, 0))
        stamp()
        shape = self.shape
        if shape[axis] == 0:
            fail(ShapeError, f"{method}: nothing to choose from along axis {axis} of {shape}")
        u, length = self.uop, shape[axis]
        kept = nodes.keep_axes(shape, (axis,))
        found = nodes.is_extreme(u, op, (axis,))
        if u.dtype.kind == "f":
            # A NaN wins but does not equal itself; where there is none this adds nothing.
            found = nodes.alu(Ops.OR, found, nodes.compare(Ops.NE, u, u))
        along = tuple(length if i == axis else 1 for i in range(len(shape)))
        place = nodes.broadcast_to(nodes.reshape(nodes.iota(length, dtypes.int32), along), shape)
        place = nodes.where(found, place, nodes.const(dtypes.int32, length))
        out = nodes.reduce(place, ReduceOp.MIN, (axis,))
        return self._wrap(nodes.reshape(out, kept) if keepdim else out)

    def argmax(
        self, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None
    ) -> Self:
        """The first place of the largest element (int32), in the flat tensor without `dim`."""
        dim = dim if axis is None else axis
        return self._argument(ReduceOp.MAX, "argmax", dim, keepdim)

    def argmin(
        self, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None
    ) -> Self:
        """The first place of the smallest element (int32), in the flat tensor without `dim`."""
        dim = dim if axis is None else axis
        return self._argument(ReduceOp.MIN, "argmin", dim, keepdim)

    # truth ---------------------------------------------------------------------------------------

    def any(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """Whether anything is not zero; of nothing it is False."""
        dim, keepdim = _named(dim, keepdim, names)
        return self._truth(ReduceOp.MAX, dim, keepdim)

    def all(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """Whether nothing is zero; of nothing it is True."""
        dim, keepdim = _named(dim, keepdim, names)
        return self._truth(ReduceOp.MIN, dim, keepdim)

    def _truth(self, op: ReduceOp, dim: Dims, keepdim: bool) -> Self:
        stamp()
        truth = self.uop if self.dtype.kind == "b" else self.ne(0).uop
        axes = self._axes("any" if op is ReduceOp.MAX else "all", dim)
        out = nodes.reduce(truth, op, axes)
        if keepdim:
            out = nodes.reshape(out, nodes.keep_axes(self.shape, axes))
        return self._wrap(out)

    def count_nonzero(self, dim: Dims = None) -> Self:
        """How many elements are not zero."""
        return self.ne(0).sum(dim)

    # exponentials --------------------------------------------------------------------------------

    def logsumexp(self, dim: Dims = None, keepdim: bool = False, **names: Unpack[Names]) -> Self:
        """log(sum(exp(x))), without overflow; -inf where all is -inf."""
        dim, keepdim = _named(dim, keepdim, names)
        start = self._settled()
        top = start.max(dim, keepdim=True).detach()
        top = (top.abs().eq(math.inf)).where(0.0, top)
        out = (start - top).exp().sum(dim, keepdim=True).log() + top
        return out if keepdim else out.reshape(self._left("logsumexp", dim))

    def _left(self, method: str, dim: Dims) -> Shape:
        """The shape without the reduced axes."""
        axes = self._axes(method, dim)
        return tuple(n for axis, n in enumerate(self.shape) if axis not in axes)

    def _floating(self) -> Self:
        return self if self.dtype.kind == "f" else self.cast(default_float())

    def _settled(self) -> Self:
        """As floats, of which an extreme may be subtracted although it was rounded on its way."""
        start = self._floating()
        return start._wrap(nodes.settled(start.uop), start._rg)

    def softmax(
        self, dim: int = -1, dtype: DType | None = None, *, axis: int | None = None
    ) -> Self:
        """exp(x) over its sum along `dim`, without overflow."""
        start = (self if dtype is None else self.cast(dtype))._settled()
        dim = self._axis("softmax", dim if axis is None else axis)
        if 0 in self.shape:
            return start._same()
        raised = (start - start.max(dim, keepdim=True).detach()).exp()
        return raised * raised.sum(dim, keepdim=True).reciprocal()

    def log_softmax(
        self, dim: int = -1, dtype: DType | None = None, *, axis: int | None = None
    ) -> Self:
        """The logarithm of softmax, without losing the small ones."""
        start = (self if dtype is None else self.cast(dtype))._settled()
        dim = self._axis("log_softmax", dim if axis is None else axis)
        if 0 in self.shape:
            return start._same()
        apart = start - start.max(dim, keepdim=True).detach()
        return apart - apart.exp().sum(dim, keepdim=True).log()
