"""Arithmetic on nodes as Python writes it.

`+ - * // % & | ^ ~ << >> < <= > >=` build the op of that name, `/` is for floats only, and
`==` stays identity (`eq` and `ne` build nodes). A Python number becomes a constant of the other
operand's dtype; two nodes must have one dtype. Nothing is folded here: building is not simplifying.
"""

from __future__ import annotations

from typing import Any, Self, TypeVar

from morok import _core
from morok.dtype import DType, Scalar, cast_value, dtypes
from morok.errors import DTypeError, ShapeError
from morok.ir.ops import InvalidType, Ops
from morok.ir.optable import GroupOp

__all__ = ["Operators", "constant"]

_T = TypeVar("_T", bound="Operators")
_build = _core.build
_node = _core.node
_EXACT = float(1 << 24)  # integers up to here are float32 numbers


# Enum members are slow to look up on their class (before Python 3.12); operators are hot.
_ADD = Ops.ADD
_SUB = Ops.SUB
_MUL = Ops.MUL
_FDIV = Ops.FDIV
_FLOORDIV = Ops.FLOORDIV
_FLOORMOD = Ops.FLOORMOD
_IDIV = Ops.IDIV
_MOD = Ops.MOD
_POW = Ops.POW
_AND = Ops.AND
_OR = Ops.OR
_XOR = Ops.XOR
_SHL = Ops.SHL
_SHR = Ops.SHR
_LT = Ops.LT
_LE = Ops.LE
_GT = Ops.GT
_GE = Ops.GE
_EQ = Ops.EQ
_NE = Ops.NE
_MAX = Ops.MAX
_MIN = Ops.MIN
_THREEFRY = Ops.THREEFRY
_NEG = Ops.NEG
_NOT = Ops.NOT
_ABS = Ops.ABS
_SQRT = Ops.SQRT
_RSQRT = Ops.RSQRT
_RECIPROCAL = Ops.RECIPROCAL
_EXP = Ops.EXP
_EXP2 = Ops.EXP2
_LOG = Ops.LOG
_LOG2 = Ops.LOG2
_SIN = Ops.SIN
_COS = Ops.COS
_TAN = Ops.TAN
_TRUNC = Ops.TRUNC
_FLOOR = Ops.FLOOR
_CEIL = Ops.CEIL
_ROUND = Ops.ROUND
_SIGN = Ops.SIGN
_ERF = Ops.ERF
_SQUARE = Ops.SQUARE
_WHERE = Ops.WHERE
_MULACC = Ops.MULACC
_CAST = Ops.CAST
_BITCAST = Ops.BITCAST
_CONST = Ops.CONST
_INDEX = dtypes.index


def _is_exact(dtype: DType, value: object) -> bool:
    """A quick look that most constants pass: `value` is one of scalar `dtype` as it is."""
    if type(value) is int:
        return dtype is _INDEX or (dtype.kind in "iu" and dtype.count == 1 and 0 <= value < 128)
    if type(value) is float and (dtype is dtypes.float32 or dtype is dtypes.float64):
        return value.is_integer() and -_EXACT <= value <= _EXACT
    return False


def constant(dtype: DType, value: object) -> Any:
    """CONST of `value` in `dtype`; every lane of a VCONST for a vector.

    Ints become floats where the dtype asks for it, and wrap to its width. DTypeError for a float
    in an integer dtype, and for anything but a truth value (or 0 and 1) in bool.
    """
    if _is_exact(dtype, value):
        return _node(_CONST, dtype, (), value)
    if isinstance(value, InvalidType):
        if dtype is not dtypes.index:
            raise DTypeError(f"Invalid is a constant of dtype index, not of {dtype}")
        return _node(_CONST, dtype, (), value)
    kind = dtype.kind
    if kind in "vp" or not isinstance(value, int | float):
        raise DTypeError(f"{value!r} cannot be a constant of {dtype}")
    if kind in "iux" and isinstance(value, float):
        raise DTypeError(f"{value!r} is no integer: a constant of {dtype} needs one")
    if kind == "b" and value not in (0, 1):
        raise DTypeError(f"{value!r} is no truth value: a constant of {dtype} needs one")
    lane = cast_value(value, dtype.scalar)
    if dtype.count == 1:
        return _node(_CONST, dtype, (), lane)
    return _node(Ops.VCONST, dtype, (), (lane,) * dtype.count)


def _operand(like: _T, other: object) -> _T:
    """`other` as a node of the dtype of `like`."""
    if isinstance(other, type(like)):
        if other.dtype is not like.dtype:
            raise DTypeError(
                f"operands of different dtypes: {like.dtype} and {other.dtype}; cast one"
            )
        return other
    made: _T = constant(like.dtype, other)
    return made


def _unary(op: Ops, a: _T) -> _T:
    made: _T = _build(op, (a,))
    return made


def _binary(op: Ops, a: _T, b: object) -> _T:
    made: _T
    dtype = a.dtype
    if isinstance(b, type(a)):
        if dtype is b.dtype:
            made = _build(op, (a, b))
            return made
    elif type(b) is int and dtype is _INDEX:
        made = _build(op, (a, _node(_CONST, _INDEX, (), b)))
        return made
    elif hasattr(type(b), "__array_priority__"):
        made = NotImplemented  # a tensor or an array: its own operator knows both
        return made
    made = _build(op, (a, _operand(a, b)))
    return made


def _reflected(op: Ops, b: _T, a: object) -> _T:
    made: _T = _build(op, (_operand(b, a), b))
    return made


_UNKNOWN = (
    "this needs to know the value of a variable while the graph is built, and does not work on "
    "symbolic dims: pad to an int, or pass an int"
)


class Operators:
    """Mix-in with the operators of UOp."""

    __slots__ = ()

    dtype: DType

    def alu(self, op: Ops, *others: Self | Scalar) -> Self:
        """`op` with this as its first source; Python numbers become constants."""
        if op not in GroupOp.ALU:
            raise DTypeError(f"{op.name} is no ALU op")
        if op is _WHERE:
            return self.where(*others)
        made: Self = _build(op, (self, *(_operand(self, other) for other in others)))
        return made

    def __index__(self) -> int:
        if self.dtype is _INDEX and any(u.op is Ops.BIND for u in _core.toposort(self)):
            raise ShapeError(_UNKNOWN)
        raise TypeError(f"a UOp of {self.dtype} is no int: ask its vmin and vmax, or its arg")

    def __bool__(self) -> bool:
        if any(u.op is Ops.BIND for u in _core.toposort(self)):
            raise ShapeError(_UNKNOWN)
        raise TypeError("a UOp has no truth value: ask `is None`, or compare its vmin and vmax")

    def __add__(self, other: Self | Scalar) -> Self:
        return _binary(_ADD, self, other)

    def __radd__(self, other: Scalar) -> Self:
        return _reflected(_ADD, self, other)

    def __sub__(self, other: Self | Scalar) -> Self:
        return _binary(_SUB, self, other)

    def __rsub__(self, other: Scalar) -> Self:
        return _reflected(_SUB, self, other)

    def __mul__(self, other: Self | Scalar) -> Self:
        return _binary(_MUL, self, other)

    def __rmul__(self, other: Scalar) -> Self:
        return _reflected(_MUL, self, other)

    def __truediv__(self, other: Self | Scalar) -> Self:
        if self.dtype.kind != "f":
            raise DTypeError(f"/ divides floats, not {self.dtype}: write // or cast first")
        return _binary(_FDIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Self:
        if self.dtype.kind != "f":
            raise DTypeError(f"/ divides floats, not {self.dtype}: write // or cast first")
        return _reflected(_FDIV, self, other)

    def __floordiv__(self, other: Self | Scalar) -> Self:
        return _binary(_FLOORDIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> Self:
        return _reflected(_FLOORDIV, self, other)

    def __mod__(self, other: Self | Scalar) -> Self:
        return _binary(_FLOORMOD, self, other)

    def __rmod__(self, other: Scalar) -> Self:
        return _reflected(_FLOORMOD, self, other)

    def idiv(self, other: Self | Scalar) -> Self:
        """Quotient truncated toward zero, as C's `/`."""
        return _binary(_IDIV, self, other)

    def mod(self, other: Self | Scalar) -> Self:
        """Remainder with the sign of the dividend, as C's `%`."""
        return _binary(_MOD, self, other)

    def __pow__(self, other: Self | Scalar) -> Self:
        return _binary(_POW, self, other)

    def __rpow__(self, other: Scalar) -> Self:
        return _reflected(_POW, self, other)

    def __and__(self, other: Self | Scalar) -> Self:
        return _binary(_AND, self, other)

    def __rand__(self, other: Scalar) -> Self:
        return _reflected(_AND, self, other)

    def __or__(self, other: Self | Scalar) -> Self:
        return _binary(_OR, self, other)

    def __ror__(self, other: Scalar) -> Self:
        return _reflected(_OR, self, other)

    def __xor__(self, other: Self | Scalar) -> Self:
        return _binary(_XOR, self, other)

    def __rxor__(self, other: Scalar) -> Self:
        return _reflected(_XOR, self, other)

    def __lshift__(self, other: Self | Scalar) -> Self:
        return _binary(_SHL, self, other)

    def __rshift__(self, other: Self | Scalar) -> Self:
        return _binary(_SHR, self, other)

    def __lt__(self, other: Self | Scalar) -> Self:
        return _binary(_LT, self, other)

    def __le__(self, other: Self | Scalar) -> Self:
        return _binary(_LE, self, other)

    def __gt__(self, other: Self | Scalar) -> Self:
        return _binary(_GT, self, other)

    def __ge__(self, other: Self | Scalar) -> Self:
        return _binary(_GE, self, other)

    def eq(self, other: Self | Scalar) -> Self:
        return _binary(_EQ, self, other)

    def ne(self, other: Self | Scalar) -> Self:
        return _binary(_NE, self, other)

    def maximum(self, other: Self | Scalar) -> Self:
        return _binary(_MAX, self, other)

    def minimum(self, other: Self | Scalar) -> Self:
        return _binary(_MIN, self, other)

    def threefry(self, key: Self) -> Self:
        """Random bits from this counter and `key`, both uint64."""
        return _binary(_THREEFRY, self, key)

    def __neg__(self) -> Self:
        return _unary(_NEG, self)

    def __invert__(self) -> Self:
        return _unary(_NOT, self)

    def __abs__(self) -> Self:
        return _unary(_ABS, self)

    def sqrt(self) -> Self:
        return _unary(_SQRT, self)

    def rsqrt(self) -> Self:
        return _unary(_RSQRT, self)

    def reciprocal(self) -> Self:
        return _unary(_RECIPROCAL, self)

    def exp(self) -> Self:
        return _unary(_EXP, self)

    def exp2(self) -> Self:
        return _unary(_EXP2, self)

    def log(self) -> Self:
        return _unary(_LOG, self)

    def log2(self) -> Self:
        return _unary(_LOG2, self)

    def sin(self) -> Self:
        return _unary(_SIN, self)

    def cos(self) -> Self:
        return _unary(_COS, self)

    def tan(self) -> Self:
        return _unary(_TAN, self)

    def trunc(self) -> Self:
        return _unary(_TRUNC, self)

    def floor(self) -> Self:
        return _unary(_FLOOR, self)

    def ceil(self) -> Self:
        return _unary(_CEIL, self)

    def round(self) -> Self:
        return _unary(_ROUND, self)

    def sign(self) -> Self:
        return _unary(_SIGN, self)

    def erf(self) -> Self:
        return _unary(_ERF, self)

    def square(self) -> Self:
        return _unary(_SQUARE, self)

    def where(self, a: Self | Scalar, b: Self | Scalar) -> Self:
        """`a` where this condition holds, else `b`; one of them must be a node."""
        if isinstance(a, type(self)):
            b = _operand(a, b)
        elif isinstance(b, type(self)):
            a = _operand(b, a)
        else:
            raise DTypeError("where() of two Python numbers has no dtype: make one a constant")
        made: Self = _build(_WHERE, (self, a, b))
        return made

    def mulacc(self, b: Self | Scalar, c: Self | Scalar) -> Self:
        """this * b + c"""
        made: Self = _build(_MULACC, (self, _operand(self, b), _operand(self, c)))
        return made

    def cast(self, dtype: DType) -> Self:
        """The value in `dtype` (of as many lanes as this has); this node if it is in it already."""
        count = self.dtype.count
        if count != 1 and dtype.count == 1 and not dtype.is_ptr:
            dtype = dtype.vec(count)
        if dtype is self.dtype:
            return self
        made: Self = _node(_CAST, dtype, (self,))
        return made

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as `dtype`."""
        if dtype is self.dtype:
            return self
        made: Self = _node(_BITCAST, dtype, (self,))
        return made
