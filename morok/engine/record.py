"""What a thread executes, written down while it runs: the raw material of a replay.

Everything that fills memory on behalf of tensors passes through here: plans, copies of whole
buffers, random counters. Contents that came from elsewhere (Python or NumPy data) are kept as they
were when they were first read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from morok.engine.buffers import bind, buffer_of
from morok.engine.normal import Window
from morok.engine.planned import Planned
from morok.ir import UOp
from morok.runtime import Buffer


@dataclass(frozen=True, slots=True)
class Run:
    """A plan ran on `memory`: for each slot its caller fills, a Buffer and the byte in it where the
    slot begins; with these values of its variables."""

    planned: Planned
    memory: tuple[tuple[Buffer, int], ...]
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """`target` was filled with the contents of `source`."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, slots=True)
class Draw:
    """`count` random counters were taken: `first` holds the first of them, `key` the seed's key."""

    count: int
    key: Buffer
    first: Buffer


@dataclass(frozen=True, slots=True)
class Seed:
    """The generator started again."""

    seed: int


@dataclass(slots=True)
class Record:
    """What one thread did, in order. Holds the memory, so that each `id` names one Buffer.

    `made` maps a Buffer that was filled in here to its number; `foreign` one that was read without
    having been filled here to its node and, if the node is younger than `born`, its contents.
    """

    known: frozenset[int]  # ids of the Buffers whose owners are known
    born: int  # UNIQUE numbers from here on were given out since the recording began
    events: list[Run | Copy | Draw | Seed] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    drawn: dict[int, tuple[int, str]] = field(default_factory=dict)
    foreign: dict[int, tuple[UOp, bytes | None]] = field(default_factory=dict)
    held: list[Buffer] = field(default_factory=list)
    draws: int = 0

    def run(
        self,
        planned: Planned,
        windows: Sequence[Window],
        memory: Sequence[Buffer],
        values: tuple[int, ...] = (),
    ) -> None:
        """Note that `planned` is about to run on `memory`; the first of it lies in `windows`."""
        places = []
        for window, buffer in zip(windows, memory, strict=False):
            whole = buffer if buffer.base is None else buffer_of(window.node)
            if buffer is whole or buffer.base is whole:
                places.append((whole, window.offset))
            else:  # a copy
                places.append((buffer, 0))
            self.read(window.node, places[-1][0])
        for buffer in memory[len(windows) :]:
            self._fill(buffer)
            places.append((buffer, 0))
        self.events.append(Run(planned, tuple(places), values))

    def copy(self, node: UOp, target: Buffer) -> None:
        """Note that `target` is about to become a copy of the memory of `node`."""
        source = buffer_of(node)
        self.read(node, source)
        self._fill(target)
        self.events.append(Copy(source, target))

    def draw(self, count: int, key: Buffer, first: Buffer) -> None:
        """Note that random counters were taken."""
        self.held += (key, first)
        self.drawn.setdefault(id(key), (self.draws, "key"))
        self.drawn[id(first)] = (self.draws, "first")
        self.draws += 1
        self.events.append(Draw(count, key, first))

    def seed(self, seed: int) -> None:
        """Note that the generator starts again."""
        self.events.append(Seed(seed))

    def read(self, node: UOp, buffer: Buffer) -> None:
        """Note that the memory of `node` is about to be read."""
        key = id(buffer)
        if key in self.known or key in self.made or key in self.drawn or key in self.foreign:
            return
        self.held.append(buffer)
        young = node.src[0].arg >= self.born
        self.foreign[key] = (node, bytes(buffer) if young else None)

    def _fill(self, buffer: Buffer) -> None:
        self.held.append(buffer)
        self.made.setdefault(id(buffer), len(self.made))


class _Local(threading.local):
    """What the thread writes its executions down in."""

    record: Record | None = None


thread_record = _Local()


def recording() -> Record | None:
    """What this thread writes its executions down in, None while it does not."""
    return thread_record.record


@contextmanager
def record_into(record: Record) -> Iterator[Record]:
    """Write down in `record` what this thread executes in the block."""
    before, thread_record.record = thread_record.record, record
    try:
        yield record
    finally:
        thread_record.record = before


def duplicate(node: UOp) -> UOp:
    """A BUFFER of its own with the contents that `node`, a BUFFER, has now."""
    source = buffer_of(node)
    target = Buffer(source.nbytes)
    record = recording()
    if record is not None:
        record.copy(node, target)
    memoryview(target)[:] = memoryview(source)
    return bind(UOp.new_buffer(node.dtype, node.arg, node.src[1]), target)
