"""Stage 3: a loop whose counter is only wanted in parts becomes a loop for each part.

    i < 12, used as i // 4 and i % 4   ->   a < 3, b < 4, with i = 4 * a + b

so that no division is left where the array is walked: the inner loop goes through neighbours, the
outer one from row to row.
"""

from __future__ import annotations

from collections import Counter

from morok.dtype import dtypes
from morok.ir import AxisId, Ops, UOp
from morok.optimizer import range_end, rename_ranges

_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD})


def split_ranges(sink: UOp) -> UOp:
    """Stage 3. Goal: what is wanted in parts is walked in parts.

    Before: a kernel, whose indices are simplified first. After: no counter is divided by a divisor
    of its loop's end, but in loops whose iterations see each other. The loops keep their order;
    where several divisors are in use, the most frequent goes first, and what is left of the others
    follows: every part is shorter than the whole, so that this ends.
    """
    sink = sink.simplify()
    while lengths := _lengths(sink):
        sink = _split(sink, lengths).simplify()
    return sink


def _lengths(sink: UOp) -> dict[UOp, int]:
    """For each loop to be split, the length of the inner one."""
    found: dict[UOp, Counter[int]] = {}
    ordered: set[UOp] = set()
    for u in sink.toposort():
        if u.op is Ops.AFTER:
            ordered.update(dep for dep in u.src[1:] if dep.op is Ops.RANGE)
        if u.op not in _DIVISIONS or u.dtype is not dtypes.index:
            continue
        counter, by = u.src
        if counter.op is Ops.RANGE and counter.src[0].op is Ops.CONST and by.op is Ops.CONST:
            end, n = range_end(counter), by.arg
            if 1 < n < end and end % n == 0:
                found.setdefault(counter, Counter())[n] += 1
    return {
        r: max(counts, key=lambda n: (counts[n], n))
        for r, counts in found.items()
        if r not in ordered
    }


def _split(sink: UOp, lengths: dict[UOp, int]) -> UOp:
    """Every loop of `lengths` as two, all loops numbered anew in their order."""
    loops = [u for u in sink.toposort() if u.op is Ops.RANGE]
    loops.sort(key=lambda r: (r.arg[0].number, r.key))
    parts: dict[UOp, tuple[UOp, ...]] = {}
    number = 0
    for r in loops:
        if r in lengths:
            ends = [UOp.const(dtypes.index, n) for n in (range_end(r) // lengths[r], lengths[r])]
        else:
            ends = [r.src[0]]
        parts[r] = tuple(
            UOp(Ops.RANGE, r.dtype, (end,), (AxisId(number + i), r.arg[1]))
            for i, end in enumerate(ends)
        )
        number += len(ends)
    return rename_ranges(sink, parts)
