"""Stage 2: sums whose terms are chosen by the loop counter, as arithmetic.

A sum of `WHERE(condition, a, 0)` over k < n iterates for nothing where the condition says which k
count:

    l <= k < h, a the same for all k        a * max(min(h, n) - max(l, 0), 0)
    l <= k < h, a = c * k + d, whole        c * (l + ... + h-1) + d * (h - l), cut off likewise
    k == i                                  a at k = i, if 0 <= i < n

The parts of the condition and of `a` that do not depend on k (a load among them) are like variables
with known bounds. What is a gather from a one-hot mask becomes one load, a count becomes a clamp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from morok._core import affine_split, substitute
from morok.dtype import DType, dtypes, max_value, min_value
from morok.ir import Ops, Pat, ReduceOp, RuleSet, UOp, graph_rewrite
from morok.optimizer import has_known_end

pm_load_collapse = RuleSet("pm_load_collapse")

_ZERO, _ONE = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 1)


@pm_load_collapse.opaque(Pat(Ops.REDUCE, arg=ReduceOp.ADD, name="total"), pure=True)
def collapse(total: UOp) -> UOp | None:
    """REDUCE(WHERE(k == i, a, 0), k) -> a at k = i; REDUCE(WHERE(k < h, a, 0), k) -> a * h"""
    if total.dtype.count != 1 or total.dtype.kind not in "iuf":
        return None
    value = total.src[0]
    left = list(total.ended_ranges)
    for k in total.ended_ranges:
        if k.op is Ops.RANGE and has_known_end(k):
            chosen = _chosen(value, k)
            if chosen is not None:
                value = chosen
                left.remove(k)
    if len(left) == len(total.ended_ranges):
        return None
    return UOp(Ops.REDUCE, total.dtype, (value, *left), total.arg) if left else value


def load_collapse(sink: UOp) -> UOp:
    """Stage 2. Before: a kernel. After: no REDUCE is left over a range that chooses its terms."""
    return graph_rewrite(sink, pm_load_collapse, name="load collapse")


def _chosen(value: UOp, k: UOp) -> UOp | None:
    """The sum of `value` over the iterations of `k`, without a loop; None if it needs one."""
    conditions, a = _term(value)
    outside: list[UOp] = []
    chosen = _Choice(int(k.src[0].arg))
    inside: list[UOp] = []
    for condition in conditions:
        if k not in condition.open_ranges:
            outside.append(condition)
        elif not chosen.narrow(condition, k):
            inside.append(condition)
    if chosen.at is None:
        if inside:
            return None
        if k in a.open_ranges:
            series = _series(a, k, chosen)
            return _guarded(outside, series) if outside and series is not None else series
        if not conditions:
            return None
        count = (chosen.high - chosen.low).maximum(_ZERO)
        total = _times(a, count)
        return _guarded([*outside, count > 0], total) if outside or _may_vanish(a) else total
    # One iteration at most: its value, if it is one of the loop and meets all other conditions.
    last = UOp.const(dtypes.index, chosen.end - 1)
    at = {k: chosen.at.maximum(_ZERO).minimum(last)}
    valid = [chosen.at >= chosen.low, chosen.at < chosen.high]
    inside = [substitute(c, at, open_only=True) for c in inside]
    return _guarded([*outside, *valid, *inside], substitute(a, at, open_only=True))


def _term(value: UOp) -> tuple[list[UOp], UOp]:
    """`value` as (conditions, a): a where all of them hold, else 0."""
    conditions: list[UOp] = []
    while True:
        if value.op is Ops.CAST and value.src[0].dtype is dtypes.bool_:
            conditions += _conjuncts(value.src[0])
            return conditions, UOp.const(value.dtype, 1)
        if value.op is not Ops.WHERE:
            return conditions, value
        condition, yes, no = value.src
        if _is_zero(no):
            conditions += _conjuncts(condition)
            value = yes
        elif _is_zero(yes):
            conditions.append(UOp(Ops.NOT, dtypes.bool_, (condition,)))
            value = no
        else:
            return conditions, value


def _series(a: UOp, k: UOp, chosen: _Choice) -> UOp | None:
    """The sum of a = c * k + d over the iterations from low to high; None where a is not that, a
    whole number, or the sum might not be one of `index`."""
    whole = _whole(a.src[0] if a.op is Ops.CAST and a.dtype.kind == "f" else a)
    split = None if whole is None else affine_split(whole.simplify(), k)
    if split is None:
        return None
    step, rest = split
    low = chosen.low.minimum(UOp.const(dtypes.index, chosen.end))
    high = chosen.high.maximum(low)
    count = high - low
    total = (high + low - 1) * count // 2 * step + rest * count
    least, most = total.vmin, total.vmax
    if least is None or most is None or least < -_FAR or most > _FAR:
        return None
    return UOp(Ops.CAST, a.dtype, (total,))


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg == 0


def _behind(u: UOp) -> UOp:
    """The value of what reads a scratch row: INDEX(BUFFERIZE(a, k), i) -> a at k = i"""
    while u.op is Ops.INDEX and u.src[0].op is Ops.BUFFERIZE and u.gate is None:
        row = u.src[0]
        u = substitute(
            row.src[0], dict(zip(row.ended_ranges, u.indices, strict=True)), open_only=True
        )
    return u


def _conjuncts(condition: UOp) -> list[UOp]:
    """The parts of which all must hold."""
    condition = _behind(condition).simplify()
    if condition.op is Ops.AND:
        return [part for source in condition.src for part in _conjuncts(source)]
    return [condition]


def _guarded(conditions: list[UOp], value: UOp) -> UOp:
    both = conditions[0]
    for condition in conditions[1:]:
        both = both & condition
    return UOp(Ops.WHERE, value.dtype, (both, value, UOp.const(value.dtype, 0)))


def _may_vanish(a: UOp) -> bool:
    """Whether 0 times `a` might not be 0."""
    return a.dtype.kind == "f" and not (a.op is Ops.CONST and math.isfinite(a.arg))


def _times(a: UOp, count: UOp) -> UOp:
    number = UOp(Ops.CAST, a.dtype, (count,))
    return number if a.op is Ops.CONST and a.arg == 1 else a * number


_LINEAR = (Ops.ADD, Ops.SUB, Ops.MUL)
_SWAPPED = {Ops.GT: Ops.LT, Ops.GE: Ops.LE}
_NEGATED = {Ops.LT: Ops.GE, Ops.LE: Ops.GT, Ops.GT: Ops.LE, Ops.GE: Ops.LT}


@dataclass(slots=True)
class _Choice:
    """Which iterations of a loop of `end` count: those from low to high, or only `at`."""

    end: int
    low: UOp = _ZERO
    high: UOp = _ZERO
    at: UOp | None = None

    def __post_init__(self) -> None:
        self.high = UOp.const(dtypes.index, self.end)

    def narrow(self, condition: UOp, k: UOp) -> bool:
        """Take in a condition on `k`; False where it does not say which iterations count."""
        op = condition.op
        if op is Ops.NOT:
            condition = condition.src[0]
            op = _NEGATED.get(condition.op, Ops.NOOP)
        if op not in (Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ):
            return False
        a, b = (_side(source, k) for source in condition.src)
        if a is None or b is None:
            return False
        if op in _SWAPPED:
            a, b, op = b, a, _SWAPPED[op]
        split = affine_split((a - b).simplify(), k)
        if split is None or abs(split[0]) != 1:
            return False
        step, rest = int(split[0]), split[1]
        if op is Ops.EQ:  # step * k + rest == 0
            if self.at is not None:
                return False
            self.at = -rest if step == 1 else rest
        elif step == 1:  # k < -rest, or k <= -rest
            bound = -rest if op is Ops.LT else -rest + 1
            self.high = self.high.minimum(bound)
        else:  # k > rest, or k >= rest
            bound = rest + 1 if op is Ops.LT else rest
            self.low = self.low.maximum(bound)
        return True


_FAR = 1 << 61
"""Beyond this no counter lies, and sums of two such numbers are still far from overflow."""


def _side(u: UOp, k: UOp) -> UOp | None:
    """A side of a comparison on which bounds can be computed without overflow: one without `k` may
    be cut off far beyond any counter, where the comparison does not change."""
    whole = _whole(u)
    if whole is None:
        return None
    low, high = whole.vmin, whole.vmax
    if low is not None and high is not None and low >= -_FAR and high <= _FAR:
        return whole
    if k in whole.open_ranges:
        return None
    far = UOp.const(dtypes.index, _FAR)
    return whole.maximum(-far).minimum(far)


def _whole(u: UOp) -> UOp | None:
    """An int expression as the `index` of the same value, where no step of it can wrap."""
    u = _behind(u)
    if u.dtype is dtypes.index:
        return u
    if u.dtype.count != 1 or u.dtype.kind not in "iu":
        return None
    if u.op is Ops.CONST:
        return UOp.const(dtypes.index, u.arg)
    if u.op is Ops.CAST and u.src[0].dtype.kind in "iux":
        inner = _whole(u.src[0])
        if inner is not None and _fits(inner, u.dtype):
            return inner
    if u.op in _LINEAR:
        a, b = (_whole(source) for source in u.src)
        if a is not None and b is not None:
            whole = UOp(u.op, dtypes.index, (a, b))
            if _fits(whole, u.dtype):
                return whole
    if u.dtype is dtypes.uint64:
        return None
    return UOp(Ops.CAST, dtypes.index, (u,))


def _fits(u: UOp, dtype: DType) -> bool:
    low, high = u.vmin, u.vmax
    if low is None or high is None:
        return False
    return bool(low >= min_value(dtype) and high <= max_value(dtype))
