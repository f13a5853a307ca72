"""Products of vectors, matrices and stacks of matrices."""

from __future__ import annotations

from typing import Any, Self

from morok.dtype import acc_dtype, sum_dtype
from morok.errors import ShapeError
from morok.ir import Ops, ReduceOp
from morok.tensor import nodes
from morok.tensor.base import broadcast_shapes, common_dtype, fail
from morok.tensor.creation import Creation
from morok.tensor.provenance import stamp


class Linalg(Creation):
    """Methods that multiply and add along a dim."""

    __slots__ = ()

    def matmul(self, other: Any) -> Self:
        """The matrix product by NumPy's rules: vectors are rows on the left and columns on the
        right, dims in front of the last two broadcast.

        Ints narrower than 32 bits are multiplied and added in 32; halves in float32.
        """
        if not isinstance(other, Linalg):
            other = self._operand("matmul", other)
            if not isinstance(other, Linalg):
                fail(ShapeError, "matmul: a scalar has no rows or columns: use *")
        stamp()
        a, b = self.uop, other.uop
        left, right = nodes.shape_of(a), nodes.shape_of(b)
        misfit = _misfit(left, right)
        if misfit is not None:
            fail(ShapeError, f"matmul: shapes {left} and {right}: {misfit}")
        dtype = common_dtype("matmul", a.dtype, b.dtype)
        work = acc_dtype(dtype)
        a, b = nodes.cast(a, work), nodes.cast(b, work)
        row, column = len(left) == 1, len(right) == 1
        if row:
            a = nodes.reshape(a, left := (1, *left))
        if column:
            b = nodes.reshape(b, right := (*right, 1))
        batch = broadcast_shapes("matmul", left[:-2], right[:-2])
        m, k, n = left[-2], left[-1], right[-1]
        # (…, m, 1, k) times (…, 1, n, k), summed over the last: both read along k in place.
        order = (*range(len(right) - 2), len(right) - 1, len(right) - 2)
        a = nodes.reshape(a, (*left[:-1], 1, k))
        b = nodes.permute(b, order)
        b = nodes.reshape(b, (*right[:-2], 1, n, k))
        full = (*batch, m, n, k)
        a, b = nodes.broadcast_to(a, full), nodes.broadcast_to(b, full)
        out = nodes.reduce(nodes.alu(Ops.MUL, a, b), ReduceOp.ADD, (len(full) - 1,))
        out = nodes.cast(out, sum_dtype(dtype))
        kept = batch + (() if row else (m,)) + (() if column else (n,))
        out = nodes.reshape(out, kept)
        return self._wrap(out, (self._rg or other._rg) and out.dtype.kind == "f")

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        left = self._operand("matmul", other)
        if not isinstance(left, Linalg):
            fail(ShapeError, "matmul: a scalar has no rows or columns: use *")
        return left.matmul(self)

    def dot(self, other: Any) -> Self:
        """As matmul; NumPy's sum of products for vectors."""
        return self.matmul(other)

    def mm(self, other: Self) -> Self:
        """The product of two matrices."""
        if self.ndim != 2 or other.ndim != 2:
            fail(ShapeError, f"mm: two matrices are needed, not {self.shape} and {other.shape}")
        return self.matmul(other)

    def bmm(self, other: Self) -> Self:
        """The products of two stacks of matrices."""
        if self.ndim != 3 or other.ndim != 3 or self.shape[0] != other.shape[0]:
            fail(ShapeError, f"bmm: stacks of one length are needed: {self.shape}, {other.shape}")
        return self.matmul(other)

    def outer(self, other: Self) -> Self:
        """Every product of an element of one vector with one of the other."""
        if self.ndim != 1 or other.ndim != 1:
            fail(ShapeError, f"outer: two vectors are needed, not {self.shape} and {other.shape}")
        return self.unsqueeze(1) * other.unsqueeze(0)

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight.T + bias, with weight of shape (out, in) or (in,)."""
        own, wanted = self.shape, weight.shape
        if not own or own[-1:] != wanted[-1:]:
            fail(ShapeError, f"linear: shape {own} does not go with a weight of shape {wanted}")
        out = self.matmul(weight.T)
        return out if bias is None else out + bias


def _misfit(left: nodes.Shape, right: nodes.Shape) -> str | None:
    """Why there is no product of these shapes; None where there is one."""
    if not left or not right:
        return "a scalar has no rows or columns, use *"
    axis = -2 if len(right) > 1 else -1
    if left[-1] != right[axis]:
        return f"{left[-1]} along axis -1 meets {right[axis]} along axis {axis}"
    for axis in range(-min(len(left), len(right)), -2):
        if left[axis] != right[axis] and 1 not in (left[axis], right[axis]):
            return f"along axis {axis} lengths {left[axis]} and {right[axis]} do not broadcast"
    return None
