"""Conversion between dtypes.

The methods called `int`, `float` and `bool` stand in a room of their own: below them in a class
body those names would no longer be Python's types.
"""

from __future__ import annotations

from typing import Self

from morok.dtype import DType, dtypes
from morok.errors import DTypeError
from morok.ir import Ops, UOp
from morok.tensor import nodes
from morok.tensor.base import fail
from morok.tensor.elementwise import Elementwise
from morok.tensor.provenance import stamp


class Casting(Elementwise):
    """Methods that change the dtype."""

    __slots__ = ()

    def cast(self, dtype: DType) -> Self:
        """Converted to `dtype`: floats to ints truncate and saturate (NaN is 0), ints wrap, and
        anything but zero is True."""
        if self.dtype is dtype:
            return self._same()
        if not isinstance(dtype, DType) or dtype not in dtypes.all:
            fail(DTypeError, f"cast: {dtype!r} is no dtype of a tensor")
        stamp()
        return self._wrap(nodes.cast(self.uop, dtype), self._rg and dtype.kind == "f")

    type = astype = cast

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as another dtype of the same width."""
        if dtype.bits != self.dtype.bits:
            fail(DTypeError, f"bitcast: {self.dtype} and {dtype} differ in width")
        stamp()
        return self._wrap(UOp(Ops.BITCAST, dtype, (self.uop,)))

    def float(self) -> Self:
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        return self.cast(dtypes.bfloat16)

    def int(self) -> Self:
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        return self.cast(dtypes.bool_)
