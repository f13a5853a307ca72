"""One plan out of a recorded call: its steps one after the other, on unified slots.

Slots that are filled for each replay: the tensors that go in, constants, new tensors that stay, and
random counters. All other values lie in the plan's arena.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from morok._core import COPY_KERNEL
from morok.capture.trace import Label, Trace, written_labels
from morok.engine import CompiledKernel, Planned, Row, build_plan
from morok.ir import UOp, room_of
from morok.rangeify import Schedule
from morok.runtime import Buffer, ExecutionPlan


@dataclass(slots=True)
class Merged:
    """The plan, and which slot is what. A slot of -1 is not used."""

    plan: ExecutionPlan
    given: int
    entries: dict[Label, int]
    parts: list[tuple[int, int, int]]  # (slot, of which other slot it is a part, from which byte)
    written: set[Label]  # tensors that go in whose memory is overwritten
    constants: list[tuple[int, Buffer]]
    made: list[int]
    views: dict[int, Label]  # of new tensors that only show a tensor that went in: which
    numbers: list[tuple[int, int, str]]  # (slot, draw, "key" or "first")
    planned: Planned  # for reports: all kernels


@dataclass(slots=True)
class _Slots:
    """Given slots by label; values of the arena by label or number, from -2 downwards until it is
    known how many slots are given."""

    given: dict[Label, int] = field(default_factory=dict)
    arena: dict[Label, int] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot: (of which, offset)

    def give(self, label: Label) -> int:
        return self.given.setdefault(label, len(self.given))

    def part(self, slot: int, offset: int) -> int:
        """What begins `offset` bytes behind the beginning of a slot."""
        if offset == 0:
            return slot
        place = self.give(("part", slot, offset))
        self.parts[place] = slot, offset
        return place

    def keep(self, label: Label, nbytes: int) -> int:
        """A value of the arena."""
        if label not in self.arena:
            self.arena[label] = -2 - len(self.sizes)
            self.sizes.append(nbytes)
        return self.arena[label]


def merge(trace: Trace) -> Merged:
    """The plan that does what `trace` did."""
    slots = _Slots()
    rows: list[Row] = []
    kernels: list[CompiledKernel] = []
    calls: list[UOp] = []
    homes: dict[Label, Label] = {}  # for a ("made", n) that stays: ("result", i)
    copied: list[int] = []  # new tensors that get a copy
    views: dict[int, Label] = {}
    numbers: dict[int, int] = {}  # values of variables -> their place among the plan's constants
    for i, made in enumerate(trace.made):
        if made.label[0] == "made" and made.label not in homes:
            homes[made.label] = "result", i
        elif (
            made.label in trace.entries
            and made.label not in trace.finals
            and ("made", i) not in trace.grads.values()
        ):
            views[i] = made.label
        elif made.label[0] != "empty":
            copied.append(i)
    written = written_labels(trace.steps)
    constants = {("constant", i): constant for i, constant in enumerate(trace.constants)}

    def slot(label: Label, nbytes: int) -> int:
        if label in homes:
            return slots.give(homes[label])
        if label in constants and label in written:
            return slots.keep(label, nbytes)
        if label[0] == "made":
            return slots.keep(label, nbytes)
        return slots.give(label)

    def copy(target: int, source: int, nbytes: int) -> None:
        rows.append(Row(COPY_KERNEL, (target, source), 0, 0, nbytes, "copy", frozenset({0})))

    for label, constant in constants.items():
        if label in written:  # what is overwritten starts as it was
            nbytes = constant.memory.nbytes
            copy(slots.keep(label, nbytes), slots.give(label), nbytes)
    for number, step in enumerate(trace.steps):
        if step.planned is None:
            target, source = (slot(label, step.nbytes) for label, _ in step.memory)
            copy(target, source, step.nbytes)
            continue
        planned = step.planned
        sizes = dict(enumerate(planned.sizes, planned.given))
        places = [
            slots.part(slot(label, nbytes), offset)
            for (label, offset), nbytes in zip(step.memory, _fresh_bytes(planned), strict=True)
        ]
        places += [slots.keep(("inner", number, local), n) for local, n in sizes.items()]
        values = [numbers.setdefault(value, len(numbers)) for value in step.values]
        for row in planned.rows:
            taken = tuple(values[i] for i in row.variables)
            rows.append(row._replace(places=tuple(places[p] for p in row.places), variables=taken))
        kernels += planned.kernels
        calls += planned.schedule.calls
    _keep_results(trace, slots, slot, copy, copied)
    given = len(slots.given)

    def final(slot: int) -> int:
        return slot if slot >= 0 else given - 2 - slot

    rows = [row._replace(places=tuple(map(final, row.places))) for row in rows]
    parts = [(slot, final(whole), offset) for slot, (whole, offset) in slots.parts.items()]
    wholes = {slot: whole for slot, whole, _ in parts}
    plan = build_plan(rows, given, slots.sizes, wholes, constants=tuple(numbers))
    schedule = Schedule(tuple(calls), ())
    return Merged(
        plan=plan,
        given=given,
        entries={label: slots.given.get(label, -1) for label in trace.entries},
        written={*(label for label in written if label in trace.entries), *trace.finals},
        parts=parts,
        constants=[
            (slots.given[label], constant.contents())
            for label, constant in constants.items()
            if label in slots.given
        ],
        made=[slots.given.get(("result", i), -1) for i in range(len(trace.made))],
        views=views,
        numbers=[
            (place, label[1], label[2])
            for label, place in slots.given.items()
            if label[0] == "number"
        ],
        planned=Planned(
            key=b"",
            schedule=schedule,
            kernels=tuple(kernels),
            plan=plan,
            results=(),
            fresh=(),
            rows=tuple(rows),
            given=given,
            sizes=(),
        ),
    )


def _keep_results(
    trace: Trace,
    slots: _Slots,
    slot: Callable[[Label, int], int],
    copy: Callable[[int, int, int], None],
    copied: list[int],
) -> None:
    """Copies at the end: values that stay in two places, and tensors moved to other memory."""
    for i in copied:
        made = trace.made[i]
        nbytes = room_of(made.shape) * made.dtype.itemsize
        copy(slots.give(("result", i)), slot(made.label, nbytes), nbytes)
    moved = []
    for label, now in trace.finals.items():
        nbytes = trace.sizes[label]
        source = slot(now, nbytes)
        if now in trace.finals:  # it is overwritten itself
            aside = slots.keep(("aside", label), nbytes)
            copy(aside, source, nbytes)
            source = aside
        moved.append((slots.give(label), source, nbytes))
    for target, source, nbytes in moved:
        copy(target, source, nbytes)


def _fresh_bytes(planned: Planned) -> list[int]:
    """For each slot its caller fills, the bytes of a result, 0 for what goes in."""
    fresh = [b.arg * b.dtype.itemsize for b in planned.fresh]
    return [0] * (planned.given - len(fresh)) + fresh
