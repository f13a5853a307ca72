"""One plan out of a recorded call: its steps one after the other, on unified slots.

Slots that are filled for each replay: the tensors that go in, constants, new tensors that stay, and
random counters. All other values lie in the plan's arena.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from morok._core import COPY_KERNEL
from morok.capture.trace import Label, Step, Trace, written_labels
from morok.engine import Call, CompiledKernel, Planned, Row, build_plan
from morok.ir import room_of
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
    work = _Merge(trace)
    work.start_constants()
    for number, step in enumerate(trace.steps):
        work.append(number, step)
    work.keep_results()
    return work.merged()


class _Merge:
    """A trace on its way to a plan."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.slots = _Slots()
        self.rows: list[Row] = []
        self.kernels: list[CompiledKernel] = []
        self.calls: list[Call] = []
        self.homes: dict[Label, Label] = {}  # for a ("made", n) that stays: ("result", i)
        self.copied: list[int] = []  # new tensors that get a copy
        self.views: dict[int, Label] = {}
        self.numbers: dict[int, int] = {}  # values of variables -> places among the constants
        self.written = written_labels(trace.steps)
        self.constants = {("constant", i): each for i, each in enumerate(trace.constants)}
        for i, made in enumerate(trace.made):
            if made.label[0] == "made" and made.label not in self.homes:
                self.homes[made.label] = "result", i
            elif (
                made.label in trace.entries
                and made.label not in trace.finals
                and ("made", i) not in trace.grads.values()
            ):
                self.views[i] = made.label
            elif made.label[0] != "empty":
                self.copied.append(i)

    def slot(self, label: Label, nbytes: int) -> int:
        """Where the memory of a label lies."""
        if label in self.homes:
            return self.slots.give(self.homes[label])
        if label[0] == "made" or (label in self.constants and label in self.written):
            return self.slots.keep(label, nbytes)
        return self.slots.give(label)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Append a copy from slot to slot."""
        places = target, source
        self.rows.append(Row(COPY_KERNEL, places, 0, 0, nbytes, "copy", frozenset({0})))

    def start_constants(self) -> None:
        """Copies at the beginning: constants that are overwritten start as they were."""
        for label, constant in self.constants.items():
            if label in self.written:
                nbytes = constant.memory.nbytes
                self.copy(self.slots.keep(label, nbytes), self.slots.give(label), nbytes)

    def append(self, number: int, step: Step) -> None:
        """The kernels of a step, or its copy."""
        planned = step.planned
        if planned is None:
            target, source = (self.slot(label, step.nbytes) for label, _ in step.memory)
            self.copy(target, source, step.nbytes)
            return
        places = [
            self.slots.part(self.slot(label, nbytes), offset)
            for (label, offset), nbytes in zip(step.memory, _fresh_bytes(planned), strict=True)
        ]
        sizes = enumerate(planned.sizes, planned.given)
        places += [self.slots.keep(("inner", number, local), nbytes) for local, nbytes in sizes]
        values = [self.numbers.setdefault(value, len(self.numbers)) for value in step.values]
        for row in planned.rows:
            moved = tuple(places[p] for p in row.places)
            taken = tuple(values[i] for i in row.variables)
            self.rows.append(row._replace(places=moved, variables=taken))
        self.kernels += planned.kernels
        self.calls += planned.calls

    def keep_results(self) -> None:
        """Copies at the end: values that stay in two places, and tensors moved to other memory."""
        trace, slots = self.trace, self.slots
        for i in self.copied:
            made = trace.made[i]
            nbytes = room_of(made.shape) * made.dtype.itemsize
            self.copy(slots.give(("result", i)), self.slot(made.label, nbytes), nbytes)
        moved = []
        for label, now in trace.finals.items():
            nbytes = trace.sizes[label]
            source = self.slot(now, nbytes)
            if now in trace.finals:  # it is overwritten itself
                aside = slots.keep(("aside", label), nbytes)
                self.copy(aside, source, nbytes)
                source = aside
            moved.append((slots.give(label), source, nbytes))
        for target, source, nbytes in moved:
            self.copy(target, source, nbytes)

    def merged(self) -> Merged:
        """The plan of all that was appended."""
        trace, slots = self.trace, self.slots
        given = len(slots.given)

        def final(slot: int) -> int:
            return slot if slot >= 0 else given - 2 - slot

        rows = [row._replace(places=tuple(map(final, row.places))) for row in self.rows]
        parts = [(slot, final(whole), offset) for slot, (whole, offset) in slots.parts.items()]
        wholes = {slot: whole for slot, whole, _ in parts}
        plan = build_plan(rows, given, slots.sizes, wholes, constants=tuple(self.numbers))
        return Merged(
            plan=plan,
            given=given,
            entries={label: slots.given.get(label, -1) for label in trace.entries},
            written={*(label for label in self.written if label in trace.entries), *trace.finals},
            parts=parts,
            constants=[
                (slots.given[label], constant.contents())
                for label, constant in self.constants.items()
                if label in slots.given
            ],
            made=[slots.given.get(("result", i), -1) for i in range(len(trace.made))],
            views=self.views,
            numbers=[
                (place, label[1], label[2])
                for label, place in slots.given.items()
                if label[0] == "number"
            ],
            planned=Planned(
                key=b"",
                calls=tuple(self.calls),
                kernels=tuple(self.kernels),
                plan=plan,
                results=(),
                fresh=(),
                rows=tuple(rows),
                given=given,
                sizes=(),
            ),
        )


def _fresh_bytes(planned: Planned) -> list[int]:
    """For each slot its caller fills, the bytes of a result, 0 for what goes in."""
    return [0] * (planned.given - len(planned.fresh)) + [*planned.fresh]
