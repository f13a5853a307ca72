"""Elementwise operations: operators, comparisons, functions of one element, choices between two.

Operands meet by NumPy's broadcasting and by page 7.2's promotion (JAX's lattice, weak Python
scalars). Results are bit-exact wherever page 7.2 says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from morok.dtype import DType, Scalar, default_float, dtypes, max_value, min_value
from morok.errors import ConfigError, DTypeError, ShapeError
from morok.ir import Ops, UOp
from morok.tensor import nodes
from morok.tensor.base import Number, broadcast_shapes, common_dtype, fail, weak_dtype
from morok.tensor.movement import Movement
from morok.tensor.nodes import const
from morok.tensor.provenance import stamp
from morok.tensor.variable import Variable, as_value

_COMPARISONS = frozenset({Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE})
_NOT_FOR_BOOL = frozenset({Ops.SUB, Ops.FLOORDIV, Ops.FLOORMOD, Ops.POW})
_INT_ONLY = frozenset({Ops.SHL, Ops.SHR})
_INT_OR_BOOL = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_SCALARS = frozenset({bool, int, float})


class Elementwise(Movement):
    """Operators and functions that work element by element."""

    __slots__ = ()

    # operands ------------------------------------------------------------------------------------

    def _operand(self, method: str, other: Any) -> Self | Number:
        """`other` as a tensor or a Python scalar."""
        if isinstance(other, Elementwise):
            return other  # type: ignore[return-value]
        if isinstance(other, float):  # np.float64 is one
            return float(other)
        if isinstance(other, (bool, int)):
            return other
        if isinstance(other, (UOp, Variable)):
            return self._wrap(as_value(method, other))
        try:
            return type(self)(other)  # type: ignore[call-arg]
        except ConfigError:
            raise
        except (TypeError, ValueError):
            fail(DTypeError, f"{method}: a tensor does not meet {type(other).__name__}")

    def _weak(self, method: str, other: Number, floats: bool = False) -> tuple[DType, UOp]:
        """The dtype in which this tensor meets a Python scalar, and the scalar in it.

        DTypeError for an int that the tensor's int dtype cannot hold.
        """
        dtype = self.uop.dtype
        kind = dtype.kind
        # The common case, without the lattice: a scalar of the same or a lower kind.
        plain = kind == "f" or (kind in "iu" and type(other) is not float)
        if not plain and not (kind == "b" and type(other) is bool):
            dtype = common_dtype(method, dtype, weak=(type(other),))
        if floats and dtype.kind != "f":
            dtype = default_float()
        if dtype.kind in "iu" and not min_value(dtype) <= other <= max_value(dtype):
            fail(DTypeError, f"{method}: {other} does not fit in {dtype}")
        return dtype, const(dtype, other)

    def _meet(self, method: str, other: Any, floats: bool = False) -> tuple[UOp, UOp, bool]:
        """Both operands in one dtype (a float one if `floats`) and in shapes that go together, and
        whether the result takes part in gradients."""
        a = self.uop
        if isinstance(other, UOp):  # weak, as Python's ints are
            dtype = a.dtype
            if dtype.kind == "b":
                dtype = common_dtype(method, dtype, weak=(int,))
            if floats and dtype.kind != "f":
                dtype = default_float()
            return nodes.cast(a, dtype), as_value(method, other, dtype), self._rg
        if type(other) in _SCALARS or not isinstance(other, Elementwise):
            other = self._operand(method, other)
            if not isinstance(other, Elementwise):
                dtype, b = self._weak(method, other, floats)
                return nodes.cast(a, dtype), b, self._rg
        b = other.uop
        dtype = a.dtype
        if dtype is not b.dtype:
            dtype = common_dtype(method, dtype, b.dtype)
        if floats and dtype.kind != "f":
            dtype = default_float()
        a, b = nodes.cast(a, dtype), nodes.cast(b, dtype)
        left, right = a.shape, b.shape
        if left != right and left and right:
            shape = broadcast_shapes(method, left, right)
            a, b = nodes.broadcast_to(a, shape), nodes.broadcast_to(b, shape)
        return a, b, self._rg or other._rg

    def _binary(
        self, op: Ops, method: str, other: Any, swapped: bool = False, floats: bool = False
    ) -> Self:
        stamp()
        a, b, rg = self._meet(method, other, floats)
        if op in _COMPARISONS:
            return self._wrap(UOp(op, dtypes.bool_, (b, a) if swapped else (a, b)))
        dtype = a.dtype
        if dtype.kind != "f":
            rg = False
            if dtype.kind == "b" and (op in _NOT_FOR_BOOL or op in _INT_ONLY):
                fail(DTypeError, f"{method}: bool tensors have no such operation: cast first")
        elif op in _INT_ONLY or op in _INT_OR_BOOL:
            fail(DTypeError, f"{method}: {dtype} has no bits to work on: cast to an int dtype")
        return self._wrap(UOp(op, dtype, (b, a) if swapped else (a, b)), rg)

    def _unary(self, op: Ops, floats: bool = True) -> Self:
        """`op` of each element; ints are made floats first if `floats`."""
        stamp()
        u = self.uop
        if floats and u.dtype.kind != "f":
            u = nodes.cast(u, default_float())
        return self._wrap(UOp(op, u.dtype, (u,)), self._rg)

    # arithmetic ----------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Self:
        return self._binary(Ops.ADD, "add", other)

    def __radd__(self, other: Any) -> Self:
        return self._binary(Ops.ADD, "add", other, True)

    def __sub__(self, other: Any) -> Self:
        return self._binary(Ops.SUB, "sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary(Ops.SUB, "sub", other, True)

    def __mul__(self, other: Any) -> Self:
        return self._binary(Ops.MUL, "mul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._binary(Ops.MUL, "mul", other, True)

    def __truediv__(self, other: Any) -> Self:
        return self._binary(Ops.FDIV, "div", other, floats=True)

    def __rtruediv__(self, other: Any) -> Self:
        return self._binary(Ops.FDIV, "div", other, True, floats=True)

    def __floordiv__(self, other: Any) -> Self:
        """The quotient rounded down; ints divided by zero give 0, floats what IEEE says."""
        return self._binary(Ops.FLOORDIV, "floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._binary(Ops.FLOORDIV, "floor_divide", other, True)

    def __mod__(self, other: Any) -> Self:
        """What floor division leaves, with the sign of the divisor; 0 for an int divisor 0."""
        return self._binary(Ops.FLOORMOD, "remainder", other)

    def __rmod__(self, other: Any) -> Self:
        return self._binary(Ops.FLOORMOD, "remainder", other, True)

    def __pow__(self, other: Any) -> Self:
        """Powers; small whole and half exponents are products, roots and reciprocals (PyTorch)."""
        if type(other) in _SCALARS:
            special = _POWERS.get(float(other))
            whole = self.dtype.kind in "iu" and type(other) is int and other in (1, 2, 3)
            if special is not None and (whole or self.dtype.kind == "f"):
                result: Self = special(self)
                return result
        return self._binary(Ops.POW, "pow", other)

    def __rpow__(self, other: Any) -> Self:
        if type(other) in _SCALARS and other == 2 and self.dtype.kind == "f":
            return self.exp2()
        return self._binary(Ops.POW, "pow", other, True)

    def __lshift__(self, other: Any) -> Self:
        return self._binary(Ops.SHL, "bitwise_left_shift", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._binary(Ops.SHL, "bitwise_left_shift", other, True)

    def __rshift__(self, other: Any) -> Self:
        return self._binary(Ops.SHR, "bitwise_right_shift", other)

    def __rrshift__(self, other: Any) -> Self:
        return self._binary(Ops.SHR, "bitwise_right_shift", other, True)

    def __and__(self, other: Any) -> Self:
        return self._binary(Ops.AND, "bitwise_and", other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Self:
        return self._binary(Ops.OR, "bitwise_or", other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Self:
        return self._binary(Ops.XOR, "bitwise_xor", other)

    __rxor__ = __xor__

    def __invert__(self) -> Self:
        if self.dtype.kind == "f":
            fail(DTypeError, f"bitwise_not: {self.dtype} has no bits to work on")
        return self._unary(Ops.NOT, floats=False)

    def __neg__(self) -> Self:
        if self.dtype.kind == "b":
            fail(DTypeError, "neg: bool tensors have no minus: use ~ for the logical complement")
        return self._unary(Ops.NEG, floats=False)

    def __pos__(self) -> Self:
        return self._same()

    def __abs__(self) -> Self:
        return self._same() if self.dtype.kind in "bu" else self._unary(Ops.ABS, floats=False)

    def add(self, other: Any, alpha: Number = 1) -> Self:
        """self + alpha * other, broadcast."""
        return self._binary(Ops.ADD, "add", other if alpha == 1 else other * alpha)

    def sub(self, other: Any, alpha: Number = 1) -> Self:
        """self - alpha * other, broadcast."""
        return self._binary(Ops.SUB, "sub", other if alpha == 1 else other * alpha)

    subtract = sub
    mul = multiply = __mul__
    div = divide = true_divide = __truediv__
    floor_divide = __floordiv__
    remainder = __mod__
    pow = __pow__
    neg = negative = __neg__
    abs = absolute = __abs__
    bitwise_and, bitwise_or, bitwise_xor = __and__, __or__, __xor__
    bitwise_not = __invert__

    # comparison ----------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Self:
        return self._binary(Ops.LT, "lt", other)

    def __le__(self, other: Any) -> Self:
        return self._binary(Ops.LE, "le", other)

    def __gt__(self, other: Any) -> Self:
        return self._binary(Ops.GT, "gt", other)

    def __ge__(self, other: Any) -> Self:
        return self._binary(Ops.GE, "ge", other)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return self._binary(Ops.EQ, "eq", other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return self._binary(Ops.NE, "ne", other)

    __hash__ = Movement.__hash__

    lt = less = __lt__
    le = less_equal = __le__
    gt = greater = __gt__
    ge = greater_equal = __ge__
    eq, ne = __eq__, __ne__

    def isnan(self) -> Self:
        """Where the elements are NaN, as bools."""
        return self.ne(self)  # only a NaN does not equal itself

    def isinf(self) -> Self:
        """Where the elements are infinite, as bools."""
        return self.abs().eq(math.inf) if self.dtype.kind == "f" else self.ne(self)

    def isfinite(self) -> Self:
        """Where the elements are neither infinite nor NaN, as bools."""
        return self.abs() < math.inf if self.dtype.kind == "f" else self.eq(self)

    def logical_not(self) -> Self:
        """Where the elements are 0, as bools."""
        return self.eq(0) if self.dtype.kind != "b" else ~self

    def logical_and(self, other: Self) -> Self:
        """Where both are other than 0, as bools."""
        return self.ne(0) & other.ne(0)

    def logical_or(self, other: Self) -> Self:
        """Where one of both is other than 0, as bools."""
        return self.ne(0) | other.ne(0)

    def logical_xor(self, other: Self) -> Self:
        """Where just one of both is other than 0, as bools."""
        return self.ne(0) ^ other.ne(0)

    # choice --------------------------------------------------------------------------------------

    def maximum(self, other: Any) -> Self:
        """The larger of two; NaN if either is. Where they tie, each gets half the gradient."""
        return self._binary(Ops.MAX, "maximum", other)

    def minimum(self, other: Any) -> Self:
        """The smaller of two; NaN if either is. Where they tie, each gets half the gradient."""
        return self._binary(Ops.MIN, "minimum", other)

    def where(self, x: Any, y: Any) -> Self:
        """`Tensor.where(condition, x, y)`: x where the condition holds, else y.

        On a tensor that is no condition it is PyTorch's method: `x.where(condition, y)`.
        """
        if self.dtype.kind != "b":
            if not isinstance(x, Elementwise) or x.dtype.kind != "b":
                fail(DTypeError, f"where: the condition must be a bool tensor, not {self.dtype}")
            self, x = x, self  # type: ignore[assignment]
        stamp()
        condition = self.uop
        x, y = self._operand("where", x), self._operand("where", y)
        if isinstance(x, Elementwise):
            a, b, rg = x._meet("where", y)
        elif isinstance(y, Elementwise):
            b, a, rg = y._meet("where", x)
        else:
            dtype, rg = weak_dtype("where", x, y), False
            a, b = const(dtype, x), const(dtype, y)
        shapes = [u.shape for u in (condition, a, b) if u.shape]
        if len(set(shapes)) > 1:
            shape = broadcast_shapes("where", *shapes)
            condition, a, b = (
                nodes.broadcast_to(u, shape) if u.shape else u for u in (condition, a, b)
            )
        return self._wrap(nodes.where(condition, a, b), rg and a.dtype.kind == "f")

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where the mask holds."""
        return mask.where(value, self)

    def clamp(self, min: Any = None, max: Any = None) -> Self:  # noqa: A002 - PyTorch's names
        """Limited to min <= x <= max; NaN stays. The gradient flows where x is within the bounds,
        the bounds included."""
        out = self
        if min is None and max is None:
            fail(ShapeError, "clamp: at least one of min and max must be given")
        if min is not None:
            out = (out < min).where(min, out)
        if max is not None:
            out = (out > max).where(max, out)
        return out

    clip = clamp

    # functions of one element --------------------------------------------------------------------

    def sqrt(self) -> Self:
        """The square root; NaN below 0."""
        return self._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / the square root."""
        return self._unary(Ops.RSQRT)

    def reciprocal(self) -> Self:
        """1 / x."""
        return self._unary(Ops.RECIPROCAL)

    def exp(self) -> Self:
        """e**x."""
        return self._unary(Ops.EXP)

    def exp2(self) -> Self:
        """2**x."""
        return self._unary(Ops.EXP2)

    def log(self) -> Self:
        """The natural logarithm; -inf at 0, NaN below."""
        return self._unary(Ops.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2; -inf at 0, NaN below."""
        return self._unary(Ops.LOG2)

    def log10(self) -> Self:
        """The logarithm to base 10; -inf at 0, NaN below."""
        return self.log2() * math.log10(2)

    def sin(self) -> Self:
        """The sine of an angle in radians."""
        return self._unary(Ops.SIN)

    def cos(self) -> Self:
        """The cosine of an angle in radians."""
        return self._unary(Ops.COS)

    def tan(self) -> Self:
        """The tangent of an angle in radians."""
        return self._unary(Ops.TAN)

    def erf(self) -> Self:
        """The error function."""
        return self._unary(Ops.ERF)

    def square(self) -> Self:
        """x * x."""
        return self * self

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays NaN."""
        return self._same() if self.dtype.kind == "b" else self._unary(Ops.SIGN, floats=False)

    def _rounded(self, op: Ops) -> Self:
        return self._unary(op) if self.dtype.kind == "f" else self._same()

    def floor(self) -> Self:
        """The largest whole number not above x; ints stay."""
        return self._rounded(Ops.FLOOR)

    def ceil(self) -> Self:
        """The smallest whole number not below x; ints stay."""
        return self._rounded(Ops.CEIL)

    def trunc(self) -> Self:
        """The whole number next to x in the direction of 0; ints stay."""
        return self._rounded(Ops.TRUNC)

    def round(self) -> Self:
        """To the nearest whole number, halves to the even one; the sign of zero is kept."""
        return self._rounded(Ops.ROUND)


def _constant(value: Scalar) -> Callable[[Elementwise], Any]:
    return lambda x: x._wrap(nodes.full(x.shape, x.dtype, value))


_POWERS: dict[float, Callable[[Any], Any]] = {
    -1.0: lambda x: x.reciprocal(),
    -0.5: lambda x: x.sqrt().reciprocal(),
    0.0: _constant(1),
    0.5: lambda x: x.sqrt(),
    1.0: lambda x: x._same(),
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}
