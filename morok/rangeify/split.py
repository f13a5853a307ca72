"""Stage 3: a loop whose counter is only wanted in parts becomes a loop for each part.

    i < 12, used as i // 4 and i % 4   ->   a < 3, b < 4, with i = 4 * a + b

so that no division is left where the array is walked: the inner loop goes through neighbours, the
outer one from row to row.
"""

from __future__ import annotations

from collections import Counter

from morok.dtype import dtypes
from morok.ir import AxisId, Ops, Pat, RuleSet, UOp, graph_rewrite
from morok.optimizer import range_end, rename_ranges

_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD})


class Parts:
    """What `pm_split_ranges` collects on its way to the SINK."""

    def __init__(self) -> None:
        self.divisors: dict[UOp, Counter[int]] = {}  # of a counter: how often by which number
        self.ordered: set[UOp] = set()  # loops whose iterations see each other

    def lengths(self) -> dict[UOp, int]:
        """For each loop to be split the length of the inner one: the divisor that is used most."""
        return {
            r: max(counts, key=lambda n: (counts[n], n))
            for r, counts in self.divisors.items()
            if r not in self.ordered
        }


pm_split_ranges = RuleSet("pm_split_ranges")


@pm_split_ranges.opaque(
    Pat(
        _DIVISIONS,
        (Pat(Ops.RANGE, (Pat(Ops.CONST),), rest=True, name="counter"), Pat(Ops.CONST, name="by")),
        dtype=dtypes.index,
    )
)
def divided(counter: UOp, by: UOp, ctx: Parts) -> None:
    """Notes r % c and r // c where c divides the end of r."""
    end, n = range_end(counter), by.arg
    if 1 < n < end and end % n == 0:
        ctx.divisors.setdefault(counter, Counter())[n] += 1


@pm_split_ranges.opaque(Pat(Ops.AFTER, name="after"))
def ordered(after: UOp, ctx: Parts) -> None:
    """Notes the loops that memory is seen within."""
    ctx.ordered.update(dep for dep in after.src[1:] if dep.op is Ops.RANGE)


@pm_split_ranges.opaque(Pat(Ops.SINK, name="sink"))
def split(sink: UOp, ctx: Parts) -> UOp | None:
    """RANGE(12) -> RANGE(3) * 4 + RANGE(4), everywhere at once."""
    lengths = ctx.lengths()
    ctx.divisors.clear()
    return _split(sink, lengths).simplify() if lengths else None


def split_ranges(sink: UOp) -> UOp:
    """Stage 3. Goal: what is wanted in parts is walked in parts.

    Before: a kernel, whose indices are simplified first. After: no counter is divided by a divisor
    of its loop's end, but in loops whose iterations see each other. The loops keep their order;
    where several divisors are in use, the most frequent goes first, and what is left of the others
    follows: every part is shorter than the whole, so that this ends.
    """
    return graph_rewrite(sink.simplify(), pm_split_ranges, ctx=Parts(), name="split ranges")


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
