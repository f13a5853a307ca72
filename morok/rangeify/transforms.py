"""Stages 3 to 5 on one kernel: the loops get simpler, what they compute stays."""

from __future__ import annotations

from itertools import pairwise

from morok._core import affine_form
from morok.dtype import dtypes
from morok.ir import AxisId, GroupOp, Ops, Pat, RuleSet, UOp, graph_rewrite

pm_flatten_range = RuleSet("pm_flatten_range")


@pm_flatten_range.opaque(Pat(GroupOp.RangeEnding, name="binder"), pure=True)
def flatten_range(binder: UOp) -> UOp | None:
    """STORE(i, v, r, 0) -> STORE(i, v, r): a loop that became a constant is no loop."""
    start = len(binder.src) - len(binder.ended_ranges)
    kept = [r for r in binder.src[start:] if r.op is not Ops.CONST]
    if len(kept) == len(binder.src) - start:
        return None
    if binder.op is Ops.REDUCE and not kept:
        value: UOp = binder.src[0]
        return value
    return UOp(binder.op, binder.dtype, (*binder.src[:start], *kept), binder.arg)


def _addresses(sink: UOp) -> tuple[list[dict[UOp, int]], set[UOp]]:
    """The affine forms of all indices, and the loops that occur otherwise than linearly in them."""
    forms: dict[UOp, dict[UOp, int]] = {}
    fixed: set[UOp] = set()
    for u in sink.toposort():
        ended = set(u.ended_ranges)
        for place, s in enumerate(u.src):
            if s.dtype is not dtypes.index or u.dtype is dtypes.index or s in ended:
                continue
            if u.op is not Ops.INDEX or place == 0:
                fixed.update(s.open_ranges)
            elif s not in forms:
                terms, _ = affine_form(s)
                forms[s] = dict(terms)
                for atom, _ in terms:
                    if atom.op is not Ops.RANGE:
                        fixed.update(atom.open_ranges)
    return list(forms.values()), fixed


def _mergeable(outer: UOp, inner: UOp, forms: list[dict[UOp, int]], fixed: set[UOp]) -> bool:
    if outer in fixed or inner in fixed or outer.arg[1] is not inner.arg[1]:
        return False
    n = inner.src[0].arg
    return all(f.get(outer, 0) == f.get(inner, 0) * n for f in forms)


def simplify_merge_adjacent(sink: UOp) -> UOp:
    """RANGE(4), RANGE(8) -> RANGE(32), where every index sees them as 8 * outer + inner (or not at
    all).

    Before: a kernel SINK. After: the same values with fewer loops; no index gained a division.
    """
    while True:
        forms, fixed = _addresses(sink)
        binders = [u for u in sink.toposort() if u.op in GroupOp.RangeEnding]
        nests = [u.ended_ranges for u in binders]
        replace: dict[UOp, UOp] = {}
        # The loops of a BUFFERIZE are the dims by which it is read: they stay.
        for loops in dict.fromkeys(u.ended_ranges for u in binders if u.op is not Ops.BUFFERIZE):
            for outer, inner in pairwise(loops):
                if outer in replace or inner in replace:
                    continue
                if not _mergeable(outer, inner, forms, fixed) or not _closed_together(
                    outer, inner, nests
                ):
                    continue
                # Both occur only as outer * n + inner, which runs through the merged loop: outer
                # becomes 0.
                n = outer.src[0].arg * inner.src[0].arg
                replace[outer] = UOp.const(dtypes.index, 0)
                replace[inner] = UOp(
                    Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, n),), outer.arg
                )
        if not replace:
            return sink
        sink = graph_rewrite(sink.substitute(replace), pm_flatten_range, name="merge ranges")
        sink = sink.simplify()


def _closed_together(outer: UOp, inner: UOp, nests: list[tuple[UOp, ...]]) -> bool:
    """Every op that closes one of the two loops closes both, one after the other."""
    for loops in nests:
        if outer in loops:
            place = loops.index(outer) + 1
            if place == len(loops) or loops[place] is not inner:
                return False
        elif inner in loops:
            return False
    return True


def renumber(sink: UOp) -> UOp:
    """Axis ids U7, U9, U12 -> R0, R1, R2 in loop order, so that equal kernels are the same node."""
    loops = sorted(
        (u for u in sink.toposort() if u.op is Ops.RANGE), key=lambda r: (r.arg[0].number, r.key)
    )
    return sink.substitute(
        {
            r: UOp(Ops.RANGE, dtypes.index, r.src, (AxisId(i, True), r.arg[1]))
            for i, r in enumerate(loops)
        }
    )
