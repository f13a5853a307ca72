"""Stages 3 to 5 on one kernel: the loops get simpler, what they compute stays."""

from __future__ import annotations

import itertools
from itertools import pairwise
from math import prod

from morok._core import affine_form
from morok.dtype import dtypes
from morok.ir import AxisId, GroupOp, Ops, Pat, ReduceOp, RuleSet, UOp, graph_rewrite
from morok.optimizer import has_known_end, range_end

LONG_SUM = 1 << 14  # steps of a float sum beyond which it is cut into blocks
BLOCK = 1 << 12  # steps of the innermost block, dealt out over 16 and more accumulators
LEVEL = 64  # block sums added up in one accumulator

pm_flatten_range = RuleSet("pm_flatten_range")


@pm_flatten_range.opaque(Pat(GroupOp.RangeEnding, name="binder"), need=(Ops.CONST,), pure=True)
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
    if not (has_known_end(outer) and has_known_end(inner)):
        return False
    n = inner.src[0].arg
    return all(f.get(outer, 0) == f.get(inner, 0) * n for f in forms)


pm_simplify_ranges = RuleSet("pm_simplify_ranges")


@pm_simplify_ranges.opaque(Pat(Ops.SINK, name="sink"))
def merge_adjacent(sink: UOp) -> UOp | None:
    """RANGE(4), RANGE(8) -> RANGE(32), where every index sees them as 8 * outer + inner (or not at
    all): all pairs of neighbours that do not share a loop at once."""
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
            replace[inner] = UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, n),), outer.arg)
    if not replace:
        return None
    merged = graph_rewrite(sink.substitute(replace), pm_flatten_range, name="flatten ranges")
    return merged.simplify()


def simplify_merge_adjacent(sink: UOp) -> UOp:
    """Stage 5. Goal: fewer loops.

    Before: a kernel SINK. After: the same values, no two neighbouring loops that could be one; no
    index gained a division.
    """
    return graph_rewrite(sink, pm_simplify_ranges, name="merge ranges")


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


pm_block_sums = RuleSet("pm_block_sums")


@pm_block_sums.opaque(Pat(Ops.REDUCE, name="total"))
def block_sum(total: UOp, ctx: itertools.count[int]) -> UOp | None:
    """sum over r < n -> sum over a of sum over b of x[r := a * d + b]"""
    loops = total.ended_ranges
    if not all(map(has_known_end, loops)):
        return None
    count = prod(range_end(r) for r in loops)
    if total.arg is not ReduceOp.ADD or total.dtype.kind != "f" or count <= LONG_SUM:
        return None
    return _blocked(total.src[0], loops, BLOCK, ctx)


def _blocked(value: UOp, loops: tuple[UOp, ...], block: int, ctx: itertools.count[int]) -> UOp:
    """The sum over the loops in blocks of at most `block` steps, those sums in blocks of LEVEL."""
    inner: list[UOp] = []
    outer = list(loops)
    size = 1
    while outer and size * range_end(outer[-1]) <= block:
        size *= range_end(outer[-1])
        inner.insert(0, outer.pop())
    room = block // size
    if outer and room > 1:
        r = outer.pop()
        d = _divisor(range_end(r), room)
        # A length without a good divisor is cut into full blocks and a rest.
        blocks = range_end(r) // (d if 4 * d >= room else room)
        d = range_end(r) // blocks if 4 * d >= room else room
        high = UOp.range(blocks, r.arg[0].number, r.arg[1])
        low = UOp.range(d, next(ctx), r.arg[1])
        # Loops run in the order of their numbers: those inside of r stay inside of its parts.
        value, inner = _after(value, inner, ctx)
        rest = range_end(r) - blocks * d
        main = value.substitute({r: high * d + low}).simplify()
        if rest:
            last = UOp.range(rest, next(ctx), r.arg[1])
            tail = value.substitute({r: last + blocks * d}).simplify()
            main_sum = _blocked(main, (*outer, high, low, *inner), block, ctx)
            tail, inner = _after(tail, inner, ctx)
            return main_sum + _blocked(tail, (*outer, last, *inner), block, ctx)
        value = main
        outer.append(high)
        inner.insert(0, low)
    if not inner:
        return UOp(Ops.REDUCE, value.dtype, (value, *outer), ReduceOp.ADD)
    value = UOp(Ops.REDUCE, value.dtype, (value, *inner), ReduceOp.ADD)
    if not outer:
        return value
    return _blocked(value, tuple(outer), LEVEL, ctx)


def _after(value: UOp, loops: list[UOp], ctx: itertools.count[int]) -> tuple[UOp, list[UOp]]:
    """`value` with these loops numbered after all others, in the same order; and the new loops."""
    new = {r: UOp.range(range_end(r), next(ctx), r.arg[1]) for r in loops}
    return value.substitute(new), list(new.values())


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`."""
    return next(d for d in range(max(min(most, n), 1), 0, -1) if n % d == 0)


def block_sums(sink: UOp) -> UOp:
    """Long float sums in blocks, so that no accumulator takes more than some dozen steps and the
    rounding error does not grow with the length (Higham, The accuracy of floating point summation,
    1993: blocked summation).

    So a long reduction is split in two where a factor exists, within its kernel. Two kernels with a
    buffer of partial sums between them serve hardware with more work-groups than there are results;
    a kernel here is one function, which would only store and read again what it has in registers.
    Sums of integers and extremes are the same in any order and stay whole.
    """
    numbers = [u.arg[0].number for u in sink.toposort() if u.op is Ops.RANGE]
    fresh = itertools.count(max(numbers, default=-1) + 1)
    return graph_rewrite(sink, pm_block_sums, ctx=fresh, name="block sums")


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
