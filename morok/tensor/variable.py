"""Symbolic variables: numbers that may be others from run to run and compile nothing new.

A variable bound to a value is an index UOp. It stands where NumPy takes an int: in arithmetic with
tensors, as a bound of a slice or as an index, as the length of an `arange`; sums and products of it
do too. A dim of a shape may be such a UOp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from morok.dtype import DType, default_int, dtypes, max_value, min_value
from morok.errors import ArgumentError, DTypeError
from morok.ir import Dim, Ops, UOp, simple_dim
from morok.tensor import nodes
from morok.tensor.base import fail

_BIGGEST = (1 << 31) - 1  # of a bound: products of a few of them are 64-bit numbers still


@dataclass(frozen=True, slots=True)
class Variable:
    """A number from `min` to `max`, both included, that `bind` gives a value.

    One schedule and one set of kernels serve all values. In one run a variable has one value.
    ArgumentError for a name or bounds that are none.
    """

    name: str
    min: int
    max: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ArgumentError(f"Variable: {self.name!r} is no name: use letters, digits and _")
        for field in ("min", "max"):
            bound = getattr(self, field)
            if not hasattr(bound, "__index__"):
                got = type(bound).__name__
                raise ArgumentError(f"Variable: {field} of {self.name!r} is an int, got {got}")
            object.__setattr__(self, field, bound.__index__())
        if not -_BIGGEST <= self.min <= self.max <= _BIGGEST:
            raise ArgumentError(
                f"Variable: {self.name!r} is to lie within {self.min}..{self.max}: the first must "
                f"not be above the second, and neither beyond {_BIGGEST}"
            )

    def bind(self, value: int) -> UOp:
        """This variable with a value. ArgumentError for one out of bounds."""
        if not hasattr(value, "__index__"):
            raise ArgumentError(
                f"bind: variable {self.name!r} takes an int, got {type(value).__name__}"
            )
        number = value.__index__()
        if not self.min <= number <= self.max:
            raise ArgumentError(
                f"bind: variable {self.name!r} lies within {self.min}..{self.max}, got {number}"
            )
        return UOp.define_var(self.name, self.min, self.max).bind(number)


def checked(method: str, value: Any) -> UOp:
    """A number of bound variables that a method was given. DTypeError for another UOp or a Variable
    itself, ArgumentError for one without a value."""
    if isinstance(value, Variable):
        fail(ArgumentError, f"{method}: variable {value.name!r} has no value: use its bind(…)")
    if not isinstance(value, UOp) or value.dtype is not dtypes.index or value.open_ranges:
        fail(DTypeError, f"{method}: expected a number of bound variables, got {value!r}")
    own = value.toposort(stop=lambda u: u.op is Ops.BIND)
    bound = {u.src[0] for u in own if u.op is Ops.BIND}
    for u in own:
        if u.op is Ops.DEFINE_VAR and u not in bound:
            fail(ArgumentError, f"{method}: variable {u.arg[0]!r} has no value: use bind(…) of it")
    return value


def length_of(dim: Any) -> Any:
    """A dim that a method was given, as a `Dim`: what has `__index__` as an int, else a number of
    bound variables. (Shapes are typed as ints, which they nearly always are.)"""
    if isinstance(dim, (UOp, Variable)):
        return simple_dim(checked("shape", dim))
    return dim.__index__()


def least(dim: Dim) -> int:
    """The lowest value of a dim."""
    low = dim.vmin if isinstance(dim, UOp) else dim
    return -1 if low is None else int(low)


def as_value(method: str, value: Any, dtype: DType | None = None) -> UOp:
    """A number of bound variables as a 0-d value of `dtype` (a default int if None). DTypeError for
    an int dtype that cannot hold all of its values."""
    number = checked(method, value)
    dtype = dtype or default_int()
    low, high = number.vmin, number.vmax
    if dtype.kind in "iu" and not (
        low is not None and high is not None and min_value(dtype) <= low <= high <= max_value(dtype)
    ):
        fail(DTypeError, f"{method}: a number within {low}..{high} does not fit in {dtype}")
    return nodes.cast(number, dtype)
