"""How far the results of a kernel may lie from the exact ones, whatever the order of its sums.

`error_bounds` runs a running error analysis (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., 3.3 and 4.2) beside a kernel: beside each value a bound of its error, to first
order, written as a graph of its own in float64 and evaluated by the interpreter.

    a + b            E(a) + E(b) + u |a + b|
    a * b            |a| E(b) + |b| E(a) + E(a) E(b) + u |a * b|
    sum of n terms   sum E(x) + n u sum |x|, for every way to add them up
    f(a)             |f'(a)| E(a) + 4 u |f(a)|
    a < b ? x : y    max(E(x), E(y)) + |x - y| where |a - b| <= E(a) + E(b)

Sums and products of whole numbers up to 1 / u are exact: no error there. A value of which nothing
can be said has an infinite bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from morok.dtype import DType, dtypes
from morok.float_format import FORMATS
from morok.ir import AddrSpace, BufferizeOpts, GroupOp, Ops, ReduceOp, UOp
from morok.ir.interpret import interpret_kernel

__all__ = ["error_bounds", "unit_roundoff"]

Array = np.ndarray
_FUNCTION_ERROR = 8.0  # units of roundoff: 4 ulp
_SLACK = 1.25  # for what first order leaves out


def unit_roundoff(dtype: DType) -> float:
    """The largest relative error of rounding to a float dtype."""
    known = {dtypes.float32: 24, dtypes.float64: 53}
    precision = known.get(dtype) or FORMATS[dtype.name].precision
    return math.ldexp(1.0, -precision)


def error_bounds(sink: UOp, arrays: Sequence[Array]) -> list[Array | None]:
    """For every buffer, a bound of the error of each of its elements after the kernel; None where a
    buffer is exact, infinite where there is no bound. `arrays` are what the buffers hold before."""
    analysis = _Analysis([_all_whole(array) for array in arrays])
    blank = [np.zeros(array.size) for array in arrays]
    stores = []
    with np.errstate(all="ignore"):
        for store in sink.src:
            stores += analysis.store(store, len(arrays))
        out: list[Array | None] = [None] * len(arrays)
        if stores:
            bounds = UOp(Ops.SINK, dtypes.void, tuple(stores), sink.arg)
            after = interpret_kernel(bounds, [*arrays, *blank])
            for node in stores:
                slot = node.src[0].src[0].arg[0] - len(arrays)
                out[slot] = after[slot + len(arrays)] * _SLACK
    return out


def _all_whole(array: Array) -> bool:
    if array.dtype.kind != "f":
        return True
    with np.errstate(invalid="ignore"):
        return bool((array == np.rint(array)).all())


def _f(value: float) -> UOp:
    return UOp.const(dtypes.float64, value)


_NO_BOUND = math.inf


class _Analysis:
    """Error bounds node by node: a float64 node, or None for an exact value. The bound of a bool
    is a bool: whether it may be wrong."""

    def __init__(self, whole: Sequence[bool]) -> None:
        self._whole_slots = whole
        self._errors: dict[UOp, UOp | None] = {}
        self._whole: dict[UOp, bool] = {}

    def store(self, store: UOp, above: int) -> list[UOp]:
        """A STORE of the bounds to the slot that many above; none where all is exact."""
        if store.op is Ops.GROUP:
            return [made for part in store.src for made in self.store(part, above)]
        if store.op is not Ops.STORE:
            return []
        index, value, *ranges = store.src
        buffer = index.src[0]
        exact = all(u.op not in (Ops.AFTER, Ops.BARRIER) for u in store.toposort())
        error = self.error(value) if exact else _f(_NO_BOUND)
        if error is None:
            return []
        if error.dtype is dtypes.bool:
            error = error.where(_f(1.0), _f(0.0))
        while buffer.op is Ops.AFTER:
            buffer = buffer.src[0]
        slot, size = buffer.arg
        target = UOp.param(slot + above, dtypes.float64.ptr(), size)
        place = UOp(Ops.INDEX, dtypes.float64, (target, *index.src[1:]), index.arg)
        return [UOp(Ops.STORE, dtypes.void, (place, error, *ranges))]

    def error(self, root: UOp) -> UOp | None:
        for node in root.toposort():
            if node not in self._errors:
                self._whole[node] = self._is_whole(node)
                self._errors[node] = self._error(node)
        return self._errors[root]

    def _is_whole(self, node: UOp) -> bool:
        """Is the exact value a whole number, if the inputs are what they are?"""
        if node.dtype.kind != "f":
            return True
        if node.op is Ops.CONST:
            return float(node.arg).is_integer()
        if node.op is Ops.INDEX:
            source = node.src[0]
            return (
                self._whole_slots[source.arg[0]] if source.op is Ops.PARAM else self._whole[source]
            )
        if node.op in _ROUNDING:
            return True
        if node.op in _WHOLE or node.op in (Ops.REDUCE, Ops.BUFFERIZE):
            return all(self._whole.get(s, True) for s in node.src)
        return False

    def _error(self, node: UOp) -> UOp | None:
        kind = node.dtype.kind
        if kind not in "bfiux" or node.dtype.is_ptr or node.op in (Ops.PARAM, Ops.RANGE):
            return None
        errors = [self._errors.get(source) for source in node.src]
        if node.op is Ops.BUFFERIZE:
            if errors[0] is None:
                return None
            opts = BufferizeOpts(addrspace=AddrSpace.LOCAL)
            return UOp(Ops.BUFFERIZE, errors[0].dtype, (errors[0], *node.src[1:]), opts)
        if node.op is Ops.INDEX:
            if any(error is not None for error in errors[1:]):
                return self._none(kind)
            if errors[0] is None:
                return None
            return UOp(Ops.INDEX, errors[0].dtype, (errors[0], *node.src[1:]), node.arg)
        if kind == "b":
            return self._doubt(node, errors)
        own = self._rounding(node)
        if all(error is None for error in errors):
            return own
        made = self._propagated(node, [_as_number(error) for error in errors])
        return made if own is None else made + own

    def _none(self, kind: str) -> UOp:
        return UOp.const(dtypes.bool, True) if kind == "b" else _f(_NO_BOUND)

    def _rounding(self, node: UOp) -> UOp | None:
        """What the op itself adds."""
        if node.dtype.kind != "f" or node.op in _EXACT or node.op not in _ROUNDED:
            return None
        u = unit_roundoff(node.dtype.scalar)
        if node.op is Ops.REDUCE:
            if node.arg not in (ReduceOp.ADD, ReduceOp.MUL):
                return None
            count = math.prod(int(rng.vmax or 0) + 1 for rng in node.ended_ranges)
            if node.arg is ReduceOp.MUL:
                return _size(node) * (u * count)
            total = UOp(Ops.REDUCE, dtypes.float64, (_size(node.src[0]), *node.src[1:]), node.arg)
            error = total * (u * count)
            return self._unless_whole(node, total, error, u)
        factor = _FUNCTION_ERROR if node.op in _FUNCTIONS else 1.0
        error = _size(node) * (factor * u) + _f(1e-45 if node.dtype is dtypes.float32 else 1e-323)
        if node.dtype.itemsize < 4:
            error = error + _f(1e-7)  # half of a smallest number of float16
        return self._unless_whole(node, _size(node), error, u)

    def _unless_whole(self, node: UOp, size: UOp, error: UOp, u: float) -> UOp:
        if not self._whole[node]:
            return error
        exact: UOp = (size <= _f(1 / u)).where(_f(0.0), error)
        return exact

    def _doubt(self, node: UOp, errors: list[UOp | None]) -> UOp | None:
        """Whether a bool may be wrong."""
        known = [error for error in errors if error is not None]
        if not known:
            return None
        if node.op in GroupOp.Comparison and node.src[0].dtype.kind != "b":
            a, b = (source.cast(dtypes.float64) for source in node.src)
            width = _as_number(errors[0]) + _as_number(errors[1])
            near: UOp = ((a - b).alu(Ops.ABS) <= width) & (width > _f(0.0))
            return near
        if all(error.dtype is dtypes.bool for error in known):
            if node.op is Ops.REDUCE:
                return UOp(Ops.REDUCE, dtypes.bool, (known[0], *node.src[1:]), ReduceOp.MAX)
            either: UOp = functools.reduce(UOp.__or__, known)
            return either
        return UOp.const(dtypes.bool, True)

    def _propagated(self, node: UOp, e: list[UOp]) -> UOp:
        """What the errors of the operands make of the result."""
        if node.op is Ops.REDUCE:
            if node.arg is ReduceOp.MUL:
                return _f(_NO_BOUND)
            return UOp(
                Ops.REDUCE,
                dtypes.float64,
                (e[0], *node.src[1:]),
                node.arg if node.arg is ReduceOp.ADD else ReduceOp.MAX,
            )
        if node.op is Ops.WHERE:
            condition, yes, no = node.src
            doubt = self._errors.get(condition)
            plain: UOp = condition.where(e[1], e[2])
            if doubt is None:
                return plain
            gap = (_value(yes) - _value(no)).alu(Ops.ABS)
            unsure: UOp = doubt.where(e[1].maximum(e[2]) + gap, plain)
            return unsure
        rule = _RULES.get(node.op)
        if rule is None:
            clean = functools.reduce(UOp.maximum, e) <= _f(0.0)
            unknown: UOp = clean.where(_f(0.0), _f(_NO_BOUND))
            return unknown
        return rule(node, [_value(source) for source in node.src], e)


def _value(node: UOp) -> UOp:
    return node.cast(dtypes.float64)


def _size(node: UOp) -> UOp:
    """|value| in float64."""
    return _value(node).alu(Ops.ABS)


def _as_number(error: UOp | None) -> UOp:
    if error is None:
        return _f(0.0)
    return error.where(_f(1.0), _f(0.0)) if error.dtype is dtypes.bool else error


Rule = Callable[[UOp, list[UOp], list[UOp]], UOp]


def _times(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
    return v[0].alu(Ops.ABS) * e[1] + v[1].alu(Ops.ABS) * e[0] + e[0] * e[1]


def _over(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
    below = v[1].alu(Ops.ABS) - e[1]
    away = (e[0] + _size(node) * e[1]) / below
    return (below > _f(0.0)).where(away, _f(_NO_BOUND))


def _root(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
    return (v[0] > e[0] * 2.0).where(e[0] / v[0].alu(Ops.SQRT), e[0].alu(Ops.SQRT) * 2.0)


def _relative(factor: float, power: float) -> Rule:
    """|f(a)| grows by that factor of E(a) / |a| ** power."""

    def rule(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
        near = v[0].alu(Ops.ABS) - e[0]
        size = _f(1.0) if power == 1.0 else _size(node)
        return (near > e[0]).where(size * e[0] * factor / near, _f(_NO_BOUND))

    return rule


def _exponential(factor: float) -> Rule:
    def rule(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
        return (e[0] < _f(0.5)).where(_size(node) * e[0] * (1.4 * factor), _f(_NO_BOUND))

    return rule


def _stepped(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
    return (e[0] > _f(0.0)).where(e[0] + 1.0, _f(0.0))


def _converted(node: UOp, v: list[UOp], e: list[UOp]) -> UOp:
    source = node.src[0].dtype
    if source.kind == "f" and node.dtype.kind != "f":
        return (e[0] > _f(0.0)).where(_f(_NO_BOUND), _f(0.0))
    return e[0]


_SUM: Rule = lambda node, v, e: e[0] + e[1]  # noqa: E731
_MOST: Rule = lambda node, v, e: e[0].maximum(e[1])  # noqa: E731
_SAME: Rule = lambda node, v, e: e[0]  # noqa: E731

_RULES: dict[Ops, Rule] = {
    **dict.fromkeys((Ops.ADD, Ops.SUB), _SUM),
    **dict.fromkeys((Ops.MAX, Ops.MIN), _MOST),
    **dict.fromkeys((Ops.NEG, Ops.ABS, Ops.SIN, Ops.COS), _SAME),
    **dict.fromkeys((Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.TRUNC), _stepped),
    Ops.CAST: _converted,
    Ops.MUL: _times,
    Ops.SQUARE: lambda node, v, e: v[0].alu(Ops.ABS) * e[0] * 2.0 + e[0] * e[0],
    Ops.FDIV: _over,
    Ops.RECIPROCAL: lambda node, v, e: _over(node, [_f(1.0), v[0]], [_f(0.0), e[0]]),
    Ops.SQRT: _root,
    Ops.RSQRT: _relative(1.0, 2.0),
    Ops.EXP: _exponential(1.0),
    Ops.EXP2: _exponential(0.7),
    Ops.LOG: _relative(1.0, 1.0),
    Ops.LOG2: _relative(1.45, 1.0),
    Ops.ERF: lambda node, v, e: e[0] * 1.2,
    Ops.TAN: lambda node, v, e: e[0] * (_size(node) * _size(node) + 1.0) * 1.5,
}
_FUNCTIONS = frozenset(
    {Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF, Ops.POW, Ops.RSQRT}
)
_ROUNDED = _FUNCTIONS | {
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.SQUARE, Ops.FDIV, Ops.RECIPROCAL, Ops.SQRT, Ops.CAST),
    *(Ops.REDUCE, Ops.FLOORMOD, Ops.FLOORDIV, Ops.MULACC),
}
_EXACT = frozenset({Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.WHERE})
_ROUNDING = frozenset({Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.TRUNC, Ops.SIGN})
_WHOLE = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.SQUARE, Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.WHERE),
        Ops.CAST,
    }
)
