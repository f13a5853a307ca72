"""THREAD: the iterations of one output axis are shared out to threads.

    for i: out[i] = …   ->   for i from lo to hi: out[i] = …

The launcher calls the kernel for parts of 0 … n, in any order and at the same time, so no iteration
may see what another one writes. A local buffer outside of the loop is filled in every call, each
thread having its own; a sum would be formed so often too, and is refused. STOREs without that axis
(what a TAIL left over) are for the call that has the first part. Where the number of iterations is
symbolic, parts of the most there can be are handed out, and the kernel goes no further than it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from morok._core import affine_form, affine_split, toposort
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.legality import axis_number, binders_of, loop_axis, require
from morok.optimizer.ranges import (
    flat_index,
    memory_of,
    moved_range,
    rename_ranges,
    simplify_all,
)

__all__ = ["disjoint", "is_one_place", "thread"]


def thread(sink: UOp, axis: int) -> UOp:
    """`sink` with a LOOP as its THREAD loop; OptError if its iterations are not independent."""
    rng = loop_axis(sink, axis, symbolic=True)
    require(rng.arg[1] is AxisType.LOOP, f"axis {axis} is {rng.arg[1]}: no sum is split")
    order = toposort(sink)
    shared = [node for node in order if node.op is Ops.RANGE and node.arg[1] is AxisType.THREAD]
    require(not shared, "the kernel has a THREAD axis already")
    binders = binders_of(sink, rng)
    require(
        bool(binders) and all(node.op is Ops.STORE and node in sink.src for node in binders),
        f"axis {axis} is no loop of the output",
    )
    for store in binders:
        outer = [r for r in store.ended_ranges if r.op is Ops.RANGE and r.arg[1] is AxisType.LOOP]
        number = min(map(axis_number, outer))
        require(number == axis, f"axis {axis} runs inside axis {number}")
        _check_outside(store, rng)
    _check_memory(sink, order, rng)
    return rename_ranges(sink, {rng: (moved_range(rng, axis, AxisType.THREAD),)})


def _check_outside(store: UOp, rng: UOp) -> None:
    """No sum is formed before the loop starts."""
    sums = [node for node in toposort(store) if node.op is Ops.REDUCE and not node.open_ranges]
    require(not sums, f"a sum is formed outside axis {axis_number(rng)}, by every thread again")


def _check_memory(sink: UOp, order: list[UOp], rng: UOp) -> None:
    """Each iteration writes places of its own, and of what is written reads only those."""
    stores = [node for node in order if node.op is Ops.STORE]
    written = dict.fromkeys(memory_of(store.src[0]) for store in stores)
    touched = [node for node in order if node.op is Ops.INDEX and memory_of(node) in written]
    where = dict(zip(touched, simplify_all([flat_index(node) for node in touched]), strict=True))
    for memory in written:
        here = [node for node in touched if memory_of(node) is memory]
        if _apart([where[node] for node in here], rng):
            continue
        own = [store for store in stores if memory_of(store.src[0]) is memory]
        name = f"the buffer in slot {memory.arg[0]}"
        same = f"iterations of axis {axis_number(rng)} may write the same places of {name}"
        for store in own:
            require(store in sink.src, f"{name} is written inside axis {axis_number(rng)}")
            shared = rng in store.ended_ranges
            require(not shared or is_one_place(where[store.src[0]], rng), same)
        for one, other in combinations(own, 2):
            require(disjoint(where[one.src[0]], where[other.src[0]]), same)
        _check_reads(sink, own, here, where, rng)


def _check_reads(
    sink: UOp, own: list[UOp], touched: list[UOp], where: dict[UOp, UOp], rng: UOp
) -> None:
    """What the STOREs `own` write is read in the same iteration only, or not at all."""
    targets = {where[store.src[0]]: rng in store.ended_ranges for store in own}
    for node in touched:
        place = where[node]
        if all(disjoint(place, target) for target in targets):
            continue
        readers = [s for s in sink.src if s.op is Ops.STORE and s.src[0] is not node]
        require(
            place in targets
            and node.src[0].op is Ops.PARAM
            and all(
                (rng in reader.ended_ranges) == targets[place]
                for reader in readers
                if node in toposort(reader)
            ),
            f"the buffer in slot {memory_of(node).arg[0]} is read where another iteration may"
            " write it",
        )


def disjoint(one: UOp, other: UOp) -> bool:
    """Whether two positions never meet, whatever their loops count: seen as numbers to some base,
    their last digits, which what remains has no part in, lie in different intervals.

    77*i + 8*j + l and 77*i + k + 72, where j < 9, l < 8 and k < 5: to the base 77 the last digit
    is 0 to 71 in one, 72 to 76 in the other.
    """
    forms = affine_form(one), affine_form(other)
    bases = {abs(step) for terms, _ in forms for _, step in terms}
    for base in (None, *sorted(bases, reverse=True)):
        first, second = (_last_digit(terms, rest, base) for terms, rest in forms)
        if first and second and (first[1] < second[0] or second[1] < first[0]):
            return True
    return False


def _last_digit(
    terms: Sequence[tuple[UOp, int]], rest: int, base: int | None
) -> tuple[int, int] | None:
    """The interval of a sum of terms modulo a base; None where it has bounds that are unknown, or
    a multiple of the base within."""
    low = high = rest
    for term, step in terms:
        if base is not None and step % base == 0:
            continue
        if term.vmin is None or term.vmax is None:
            return None
        ends = step * term.vmin, step * term.vmax
        low, high = low + min(ends), high + max(ends)
    if base is None:
        return low, high
    return (low % base, high % base) if low // base == high // base else None


def _apart(places: Iterable[UOp], rng: UOp) -> bool:
    """Whether each iteration of `rng` has places of its own: p = c * rng + rest for all of them,
    and no two rests are c or more apart."""
    splits = [affine_split(place, rng) for place in places]
    steps, low, high = set(), [], []
    for split in splits:
        if split is None or split[1].vmin is None or split[1].vmax is None:
            return False
        steps.add(abs(int(split[0])))
        low.append(split[1].vmin)
        high.append(split[1].vmax)
    return len(steps) == 1 and max(high) - min(low) < next(iter(steps))


def is_one_place(place: UOp, rng: UOp) -> bool:
    """Whether different iterations of `rng` never give one position, whatever else it depends on:
    the terms of the position, smallest step first, are digits of a number of mixed radix."""
    terms, _ = affine_form(place)
    own = {term for term, _ in terms if rng in term.open_ranges}
    if own != {rng} and not _are_digits(own, rng):
        return False
    reached = 0  # how far the terms so far can move the position
    passed = False
    for term, step in sorted(terms, key=lambda entry: abs(entry[1])):
        if term.vmin is None or term.vmax is None:
            return False
        passed = passed or term in own
        if passed and abs(step) <= reached:
            return False
        reached += abs(step) * (term.vmax - term.vmin)
    return passed


def _are_digits(terms: set[UOp], rng: UOp) -> bool:
    """Are they rng // k and rng % k, which say what rng is?"""
    ops = {term.op for term in terms}
    same = {term.src[1] for term in terms if len(term.src) == 2 and term.src[0] is rng}
    return ops == {Ops.FLOORDIV, Ops.FLOORMOD} and len(terms) == 2 and len(same) == 1
