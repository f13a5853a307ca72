"""Making execution plans: places for intermediate values, and which kernels depend on which."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from morok.ir import Ops, UOp
from morok.runtime import ExecutionPlan, Kernel

ALIGN = 64


class Row(NamedTuple):
    """One kernel of a plan, in the order `ExecutionPlan` wants it, and which of its arguments it
    writes."""

    function: Kernel | int
    places: tuple[int, ...]  # the slot of each argument
    scratch: int
    low: int
    high: int
    name: str
    stores: frozenset[int]  # positions in `places`
    variables: tuple[int, ...] = ()  # which of the plan's it takes
    split: int = 0  # parts of 0 to `high` may run on several threads: 1 many parts, 2 few

    def call(self) -> tuple[Any, ...]:
        """The tuple `ExecutionPlan` takes."""
        span = self.low, self.high
        rest = self.variables, self.name, self.split
        return self.function, self.places, self.scratch, *span, *rest


class Layout(NamedTuple):
    """Places in one arena."""

    offsets: tuple[int, ...]
    nbytes: int


class Design(NamedTuple):
    """What a plan is made of beside its rows."""

    offsets: tuple[int, ...]  # in the arena
    nbytes: int  # of the arena
    groups: tuple[tuple[int, ...], ...]


def stored_slots(sink: UOp) -> frozenset[int]:
    """The arguments that a kernel writes, by position."""
    found = set()
    for u in sink.toposort():
        targets: tuple[UOp, ...] = u.src[:1] if u.op is Ops.STORE else ()
        if u.op is Ops.CUSTOM or u.op is Ops.CUSTOM_I:
            targets = tuple(s for s in u.src if s.dtype.is_ptr)
        for target in targets:
            while target.src and target.op is not Ops.PARAM:
                target = target.src[0]
            if target.op is Ops.PARAM:
                found.add(target.arg[0])
    return frozenset(found)


def rounded(nbytes: int) -> int:
    """The room that `nbytes` take in an arena."""
    return max(-(-nbytes // ALIGN), 1) * ALIGN


def place(
    sizes: Sequence[int], rows: Sequence[Row], first_slot: int, parts: Mapping[int, int]
) -> Layout:
    """An arena for the values in slots `first_slot`, `first_slot + 1` …, of `sizes` bytes, each of
    which is needed from the first to the last row that names it or one of its `parts` (slot: of
    which other slot it is a part): best fit, free neighbours joined.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for time, row in enumerate(rows):
        for named in row.places:
            slot = parts.get(named, named)
            if slot >= first_slot:
                first.setdefault(slot, time)
                last[slot] = time
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for slot, time in first.items():
        starting.setdefault(time, []).append(slot)
        ending.setdefault(last[slot], []).append(slot)
    free: list[tuple[int, int]] = []  # (offset, size) of the holes, in order
    offsets = dict.fromkeys(range(first_slot, first_slot + len(sizes)), 0)
    top = 0
    for time in range(len(rows)):
        for slot in starting.get(time, ()):
            size = rounded(sizes[slot - first_slot])
            fits = [hole for hole in free if hole[1] >= size]
            if fits:
                offset, room = min(fits, key=lambda hole: hole[1])
                free.remove((offset, room))
                if room > size:
                    insort(free, (offset + size, room - size))
            elif free and sum(free[-1]) == top:  # the last hole grows
                offset = free.pop()[0]
                top = offset + size
            else:
                offset, top = top, top + size
            offsets[slot] = offset
        for slot in ending.get(time, ()):
            _give_back(free, offsets[slot], rounded(sizes[slot - first_slot]))
    # A value nobody names needs no room, but a place inside.
    return Layout(tuple(offsets.values()), max(top, ALIGN if sizes else 0))


def _give_back(free: list[tuple[int, int]], offset: int, size: int) -> None:
    at = bisect_left(free, (offset, size))
    if at < len(free) and free[at][0] == offset + size:
        size += free.pop(at)[1]
    if at and sum(free[at - 1]) == offset:
        offset, before = free.pop(at - 1)
        size += before
    insort(free, (offset, size))


def dependency_groups(
    rows: Sequence[Row],
    first_slot: int,
    layout: Layout,
    sizes: Sequence[int],
    parts: Mapping[int, int],
) -> tuple[tuple[int, ...], ...]:
    """Rows by level: those of one group depend on none of their own group, by values or by the
    memory that values of the arena share, and may run side by side."""
    cells = _cells(first_slot, layout, sizes)
    written: dict[int, int] = {}  # for a cell, the last group that writes it
    read: dict[int, int] = {}
    groups: list[list[int]] = []
    for number, row in enumerate(rows):
        level = 0
        touched = [cells.get(slot, (-1 - slot,)) for slot in (parts.get(s, s) for s in row.places)]
        for position, places in enumerate(touched):
            stores = position in row.stores
            for cell in places:
                level = max(level, written.get(cell, -1) + 1)
                if stores:
                    level = max(level, read.get(cell, -1) + 1)
        for position, places in enumerate(touched):
            marks = written if position in row.stores else read
            for cell in places:
                marks[cell] = max(marks.get(cell, -1), level)
        if level == len(groups):
            groups.append([])
        groups[level].append(number)
    return tuple(tuple(group) for group in groups)


def _cells(first_slot: int, layout: Layout, sizes: Sequence[int]) -> dict[int, range]:
    """For each value of the arena the cells it lies in: the arena is cut wherever one begins or
    ends, so that values that share memory share a cell."""
    spans = [
        (offset, offset + rounded(size)) for offset, size in zip(layout.offsets, sizes, strict=True)
    ]
    cuts = sorted({place for span in spans for place in span})
    number = {place: i for i, place in enumerate(cuts)}
    return {
        first_slot + i: range(number[begin], number[end]) for i, (begin, end) in enumerate(spans)
    }


def designed(
    rows: Sequence[Row],
    n_given: int,
    sizes: Sequence[int],
    parts: Mapping[int, int] | None = None,
) -> Design:
    """Places in the arena, and what may run side by side; see `build_plan`."""
    parts = parts or {}
    layout = place(sizes, rows, n_given, parts)
    return Design(*layout, dependency_groups(rows, n_given, layout, sizes, parts))


def build_plan(
    rows: Sequence[Row],
    n_given: int,
    sizes: Sequence[int],
    parts: Mapping[int, int] | None = None,
    n_vars: int = 0,
    constants: Sequence[int] = (),
    design: Design | None = None,
) -> ExecutionPlan:
    """The plan of `rows`: slots up to `n_given` are filled by whoever runs it, the others, of
    `sizes` bytes, lie in the plan's arena. Given slots may be `parts` of others, arena included.
    Whoever runs it gives `n_vars` variables; those behind them are always `constants`. `design`, if
    it is known, is that of the rows."""
    if design is None:
        design = designed(rows, n_given, sizes, parts)
    return ExecutionPlan(
        [row.call() for row in rows],
        n_given,
        arena=design.offsets,
        arena_bytes=design.nbytes,
        n_vars=n_vars,
        constants=constants,
        groups=design.groups,
    )
