"""Arithmetic on nodes as Python writes it.

`+ - * // % & | ^ ~ << >> < <= > >=` build the op of that name, `/` is for floats only, and
`==` stays identity (`eq` and `ne` build nodes). A Python number becomes a constant of the other
operand's dtype; two nodes must have one dtype. Nothing is folded here: building is not simplifying.
"""

from __future__ import annotations

from typing import Any, Self

from morok import _core
from morok.dtype import DType, Scalar, cast_value, dtypes
from morok.errors import DTypeError
from morok.ir.ops import InvalidType, Ops
from morok.ir.optable import GroupOp

__all__ = ["Operators", "constant"]

_build = _core.build
_node = _core.node


def constant(dtype: DType, value: Scalar | InvalidType) -> Any:
    """CONST of `value` in `dtype`; every lane of a VCONST for a vector.

    Ints become floats where the dtype asks for it, and wrap to its width. DTypeError for a float
    in an integer dtype, and for anything but a truth value (or 0 and 1) in bool.
    """
    if isinstance(value, InvalidType):
        if dtype is not dtypes.index:
            raise DTypeError(f"Invalid is a constant of dtype index, not of {dtype}")
        return _node(Ops.CONST, dtype, (), value)
    kind = dtype.kind
    if kind in "vp" or not isinstance(value, int | float):
        raise DTypeError(f"{value!r} cannot be a constant of {dtype}")
    if kind in "iux" and isinstance(value, float):
        raise DTypeError(f"{value!r} is no integer: a constant of {dtype} needs one")
    if kind == "b" and value not in (0, 1):
        raise DTypeError(f"{value!r} is no truth value: a constant of {dtype} needs one")
    lane = cast_value(value, dtype.scalar)
    if dtype.count == 1:
        return _node(Ops.CONST, dtype, (), lane)
    return _node(Ops.VCONST, dtype, (), (lane,) * dtype.count)


def _operand(like: Any, other: Any) -> Any:
    """`other` as a node of the dtype of `like`."""
    if type(other) is not type(like):
        return constant(like.dtype, other)
    if other.dtype is not like.dtype:
        raise DTypeError(f"operands of different dtypes: {like.dtype} and {other.dtype}; cast one")
    return other


def _binary(op: Ops, a: Any, b: Any) -> Any:
    return _build(op, (a, _operand(a, b)))


class Operators:
    """Mix-in with the operators of UOp."""

    __slots__ = ()

    dtype: DType

    def alu(self, op: Ops, *others: Self | Scalar) -> Self:
        """`op` with this as its first source; Python numbers become constants."""
        if op not in GroupOp.ALU:
            raise DTypeError(f"{op.name} is no ALU op")
        if op is Ops.WHERE:
            return self.where(*others)
        return _build(op, (self, *(_operand(self, other) for other in others)))

    def __bool__(self) -> bool:
        raise TypeError("a UOp has no truth value: ask `is None`, or compare its vmin and vmax")

    def __add__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.ADD, self, other)

    def __radd__(self, other: Scalar) -> Self:
        return _build(Ops.ADD, (_operand(self, other), self))

    def __sub__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Self:
        return _build(Ops.SUB, (_operand(self, other), self))

    def __mul__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Self:
        return _build(Ops.MUL, (_operand(self, other), self))

    def __truediv__(self, other: Self | Scalar) -> Self:
        if self.dtype.kind != "f":
            raise DTypeError(f"/ divides floats, not {self.dtype}: write // or cast first")
        return _binary(Ops.FDIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Self:
        if self.dtype.kind != "f":
            raise DTypeError(f"/ divides floats, not {self.dtype}: write // or cast first")
        return _build(Ops.FDIV, (_operand(self, other), self))

    def __floordiv__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> Self:
        return _build(Ops.FLOORDIV, (_operand(self, other), self))

    def __mod__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.FLOORMOD, self, other)

    def __rmod__(self, other: Scalar) -> Self:
        return _build(Ops.FLOORMOD, (_operand(self, other), self))

    def idiv(self, other: Self | Scalar) -> Self:
        """Quotient truncated toward zero, as C's `/`."""
        return _binary(Ops.IDIV, self, other)

    def mod(self, other: Self | Scalar) -> Self:
        """Remainder with the sign of the dividend, as C's `%`."""
        return _binary(Ops.MOD, self, other)

    def __pow__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.POW, self, other)

    def __rpow__(self, other: Scalar) -> Self:
        return _build(Ops.POW, (_operand(self, other), self))

    def __and__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.AND, self, other)

    def __rand__(self, other: Scalar) -> Self:
        return _build(Ops.AND, (_operand(self, other), self))

    def __or__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.OR, self, other)

    def __ror__(self, other: Scalar) -> Self:
        return _build(Ops.OR, (_operand(self, other), self))

    def __xor__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.XOR, self, other)

    def __rxor__(self, other: Scalar) -> Self:
        return _build(Ops.XOR, (_operand(self, other), self))

    def __lshift__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.SHL, self, other)

    def __rshift__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.SHR, self, other)

    def __lt__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.LT, self, other)

    def __le__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.LE, self, other)

    def __gt__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.GT, self, other)

    def __ge__(self, other: Self | Scalar) -> Self:
        return _binary(Ops.GE, self, other)

    def eq(self, other: Self | Scalar) -> Self:
        return _binary(Ops.EQ, self, other)

    def ne(self, other: Self | Scalar) -> Self:
        return _binary(Ops.NE, self, other)

    def maximum(self, other: Self | Scalar) -> Self:
        return _binary(Ops.MAX, self, other)

    def minimum(self, other: Self | Scalar) -> Self:
        return _binary(Ops.MIN, self, other)

    def threefry(self, key: Self) -> Self:
        """Random bits from this counter and `key`, both uint64."""
        return _binary(Ops.THREEFRY, self, key)

    def __neg__(self) -> Self:
        return _build(Ops.NEG, (self,))

    def __invert__(self) -> Self:
        return _build(Ops.NOT, (self,))

    def __abs__(self) -> Self:
        return _build(Ops.ABS, (self,))

    def sqrt(self) -> Self:
        return _build(Ops.SQRT, (self,))

    def rsqrt(self) -> Self:
        return _build(Ops.RSQRT, (self,))

    def reciprocal(self) -> Self:
        return _build(Ops.RECIPROCAL, (self,))

    def exp(self) -> Self:
        return _build(Ops.EXP, (self,))

    def exp2(self) -> Self:
        return _build(Ops.EXP2, (self,))

    def log(self) -> Self:
        return _build(Ops.LOG, (self,))

    def log2(self) -> Self:
        return _build(Ops.LOG2, (self,))

    def sin(self) -> Self:
        return _build(Ops.SIN, (self,))

    def cos(self) -> Self:
        return _build(Ops.COS, (self,))

    def tan(self) -> Self:
        return _build(Ops.TAN, (self,))

    def trunc(self) -> Self:
        return _build(Ops.TRUNC, (self,))

    def floor(self) -> Self:
        return _build(Ops.FLOOR, (self,))

    def ceil(self) -> Self:
        return _build(Ops.CEIL, (self,))

    def round(self) -> Self:
        return _build(Ops.ROUND, (self,))

    def sign(self) -> Self:
        return _build(Ops.SIGN, (self,))

    def erf(self) -> Self:
        return _build(Ops.ERF, (self,))

    def square(self) -> Self:
        return _build(Ops.SQUARE, (self,))

    def where(self, a: Self | Scalar, b: Self | Scalar) -> Self:
        """`a` where this condition holds, else `b`; one of them must be a node."""
        if type(a) is type(self):
            return _build(Ops.WHERE, (self, a, _operand(a, b)))
        if type(b) is type(self):
            return _build(Ops.WHERE, (self, _operand(b, a), b))
        raise DTypeError("where() of two Python numbers has no dtype: make one a constant")

    def mulacc(self, b: Self | Scalar, c: Self | Scalar) -> Self:
        """this * b + c"""
        return _build(Ops.MULACC, (self, _operand(self, b), _operand(self, c)))

    def cast(self, dtype: DType) -> Self:
        """The value in `dtype` (of as many lanes as this has); this node if it is in it already."""
        count = self.dtype.count
        if count != 1 and dtype.count == 1 and not dtype.is_ptr:
            dtype = dtype.vec(count)
        return self if dtype is self.dtype else _node(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as `dtype`."""
        return self if dtype is self.dtype else _node(Ops.BITCAST, dtype, (self,))
