"""Tensors out of nothing: constants, counters and masks. They take no memory until realised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from morok.dtype import DType, Scalar, acc_dtype, default_float, default_int, dtypes, max_value
from morok.errors import DTypeError, ShapeError
from morok.ir import Ops, UOp, shape_text
from morok.tensor import nodes
from morok.tensor.base import Number, fail, make_leaf, unique_leaf, weak_dtype
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp
from morok.tensor.scan import Scan
from morok.tensor.variable import Variable, as_value, checked, least, length_of


def shape_from(args: tuple[Any, ...]) -> Shape:
    """The shape meant by `zeros(2, 3)` or `zeros((2, 3))`."""
    if len(args) == 1 and not isinstance(args[0], Variable) and not hasattr(args[0], "__index__"):
        args = tuple(args[0])
    shape = tuple(map(length_of, args))
    if any(least(n) < 0 for n in shape):
        fail(ShapeError, f"a tensor cannot have shape {shape_text(shape)}")
    return shape


class Creation(Scan):
    """Constructors."""

    __slots__ = ()

    @classmethod
    def _created(cls, uop: UOp, requires_grad: bool = False) -> Self:
        """A new tensor; a gradient leaf if `requires_grad`."""
        if not requires_grad:
            return cls._wrap(uop)
        if uop.dtype.kind != "f":
            fail(DTypeError, f"only float tensors have gradients, not {uop.dtype}")
        tensor = cls._wrap(unique_leaf(uop))
        make_leaf(tensor)
        return tensor

    @classmethod
    def full(
        cls,
        shape: int | Sequence[int],
        fill_value: Number,
        *,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """`fill_value` everywhere, in its default dtype if none is given."""
        stamp()
        dtype = dtype or weak_dtype("full", fill_value)
        return cls._created(nodes.full(shape_from((shape,)), dtype, fill_value), requires_grad)

    @classmethod
    def zeros(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """0 everywhere, in the default float if no dtype is given."""
        return cls.full(
            shape_from(shape), 0, dtype=dtype or default_float(), requires_grad=requires_grad
        )

    @classmethod
    def ones(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """1 everywhere, in the default float if no dtype is given."""
        return cls.full(
            shape_from(shape), 1, dtype=dtype or default_float(), requires_grad=requires_grad
        )

    @classmethod
    def empty(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """Contents that do not matter: `zeros`, which are in no memory before they are needed."""
        return cls.zeros(*shape, dtype=dtype, requires_grad=requires_grad)

    def full_like(self, fill_value: Number, *, dtype: DType | None = None) -> Self:
        """`fill_value` in this shape, and in this dtype if none is given."""
        return self.full(self.shape, fill_value, dtype=dtype or self.dtype)

    def zeros_like(self, *, dtype: DType | None = None) -> Self:
        """0 in this shape, and in this dtype if none is given."""
        return self.full_like(0, dtype=dtype)

    def ones_like(self, *, dtype: DType | None = None) -> Self:
        """1 in this shape, and in this dtype if none is given."""
        return self.full_like(1, dtype=dtype)

    empty_like = zeros_like

    @classmethod
    def arange(
        cls,
        start: Number,
        stop: Number | None = None,
        step: Number = 1,
        *,
        dtype: DType | None = None,
    ) -> Self:
        """start, start + step … below `stop` (`arange(n)` from 0 on); ints give the default int."""
        if stop is None:
            start, stop = 0, start
        if any(isinstance(each, (UOp, Variable)) for each in (start, stop, step)):
            return cls._counted(start, stop, step, dtype)
        if step == 0:
            fail(ShapeError, "arange: a step of 0 never arrives")
        stamp()
        whole = all(isinstance(each, int) for each in (start, stop, step))
        length = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
        if whole:
            # Whole numbers are counted exactly and rounded once, whatever they are to become.
            last = start + max(length - 1, 0) * step
            if dtype is not None and dtype.kind in "iu":
                work = dtype
            else:
                work = weak_dtype("arange", start, last)
        else:
            work = acc_dtype(dtype) if dtype and dtype.kind == "f" else default_float()
        out = nodes.iota(int(length), work)
        if step != 1:
            out = nodes.alu(Ops.MUL, out, nodes.const(work, step))
        if start != 0:
            out = nodes.alu(Ops.ADD, out, nodes.const(work, start))
        return cls._wrap(nodes.cast(out, dtype or work))

    @classmethod
    def _counted(cls, start: Any, stop: Any, step: Any, dtype: DType | None) -> Self:
        """`arange` between numbers of variables."""
        if step != 1:
            fail(ShapeError, "arange: between variables the step is 1")
        bounds = [n if isinstance(n, int) else checked("arange", n) for n in (start, stop)]
        length = (UOp.const(dtypes.index, 0) + bounds[1] - bounds[0]).simplify()
        if length.vmin is None or length.vmin < 0:
            fail(ShapeError, "arange: the end may lie before the start: choose other bounds")
        stamp()
        work = dtype if dtype is not None and dtype.kind in "iu" else default_int()
        out = nodes.iota(length.arg if length.op is Ops.CONST else length, work)
        if not isinstance(start, int) or start != 0:
            out = nodes.alu(Ops.ADD, out, cls._number(start, work))
        return cls._wrap(nodes.cast(out, dtype or work))

    @staticmethod
    def _number(value: Any, dtype: DType) -> UOp:
        if isinstance(value, int):
            return nodes.const(dtype, value)
        return as_value("arange", value, dtype)

    @classmethod
    def linspace(
        cls, start: Number, end: Number, steps: int = 100, *, dtype: DType | None = None
    ) -> Self:
        """`steps` numbers evenly from `start` to `end`, both included."""
        if steps < 0:
            fail(ShapeError, f"linspace: {steps} steps")
        apart = (end - start) / max(steps - 1, 1)
        out = cls.arange(steps).cast(dtype if dtype and dtype.kind == "f" else default_float())
        out = out * apart + start
        return out if dtype is None else out.cast(dtype)

    @classmethod
    def eye(cls, n: int, m: int | None = None, *, dtype: DType | None = None) -> Self:
        """Ones on the diagonal of an n by m (or n by n) matrix."""
        rows, columns = cls.arange(n).unsqueeze(1), cls.arange(n if m is None else m)
        return (rows == columns).cast(dtype or default_float())

    def _triangle(self, method: str, diagonal: int) -> Self:
        """Where the column is at most the row plus `diagonal`."""
        if self.ndim < 2:
            fail(ShapeError, f"{method}: a matrix is needed, not shape {self.shape}")
        rows, columns = self.shape[-2:]
        return self.arange(columns) <= self.arange(rows).unsqueeze(1) + diagonal

    def tril(self, diagonal: int = 0) -> Self:
        """Zero above a diagonal of the last two dims."""
        return self._triangle("tril", diagonal).where(self, self.scalar_like(0))

    def triu(self, diagonal: int = 0) -> Self:
        """Zero below a diagonal of the last two dims."""
        return self._triangle("triu", diagonal - 1).where(self.scalar_like(0), self)

    def one_hot(self, num_classes: int) -> Self:
        """A new last dim of length `num_classes`: 1 at the place each int names (int32)."""
        return self._is_class(num_classes).cast(dtypes.int32)

    def _is_class(self, num_classes: int, dim: int | None = None) -> Self:
        """For class numbers: True where a new dim (the last one, or `dim`) names the class."""
        if self.dtype.kind not in "iu":
            fail(DTypeError, f"class numbers are ints, not {self.dtype}")
        stamp()
        rank = self.ndim
        dim = rank if dim is None else dim
        at = self.unsqueeze(dim)
        shape = tuple(num_classes if i == dim else 1 for i in range(rank + 1))
        # Counted in a dtype that holds every class: in a narrow one the numbers would come again.
        narrow = num_classes - 1 > max_value(self.dtype)
        classes = nodes.iota(num_classes, dtypes.int64 if narrow else self.dtype)
        return at == self._wrap(nodes.reshape(classes, shape))

    def scalar_like(self, value: Scalar) -> Self:
        """A 0-d constant of this dtype."""
        return self._wrap(nodes.const(self.dtype, value))
