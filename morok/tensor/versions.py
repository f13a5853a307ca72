"""Names of tensors' memory, for whoever reads and writes it without a schedule: replays.

A recorded call must not find values that were computed before it, and must leave no trace in the
names of what it only read; a replay that overwrites memory owes to others what a write owes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from morok import engine
from morok._core import reaching, toposort
from morok.engine import base_of, buffers
from morok.errors import InvalidGraphError
from morok.ir import UOp, laid_out, room_of
from morok.runtime import Buffer
from morok.tensor import memory
from morok.tensor.base import Base, all_tensors, remark, watched_by_graph

lock = memory.lock
"""Held while tensors' memory is planned and written."""


def open_for_writing(tensors: Iterable[Base]) -> None:
    """Make the memory of realised tensors such that overwriting it changes them alone.

    Lazy tensors that read it are computed; where it holds other values too or is shown to the user,
    the tensor moves to memory of its own with the same contents. Its BUFFER is a new version that
    no graph has seen. Not for tensors on lent memory.
    """
    with lock:
        tensors = list(tensors)
        compute_readers(tensors)
        for tensor in filter(_computed, tensors):
            view = memory.memory_of(tensor)
            if view is not None:
                memory.show(tensor, laid_out(engine.duplicate(base_of(view)), tensor.shape))
        own_memory(tensors)
        for tensor in tensors:
            view = memory.memory_of(tensor)
            if view is not None:
                new = buffers.new_version(base_of(view))
                memory.show(tensor, laid_out(new, tensor.shape))


def compute_readers(tensors: Iterable[Base]) -> None:
    """Compute every other lazy tensor whose graph reads the memory of one of `tensors`."""
    with lock:
        views = {id(tensor): memory.memory_of(tensor) for tensor in tensors}
        targets = {base_of(view) for view in views.values() if view is not None}
        waiting = [t for t in all_tensors() if id(t) not in views and not memory.is_settled(t)]
        hits = reaching([t.uop for t in waiting], targets)
        memory.realize(
            t
            for t, hit in zip(waiting, hits, strict=True)
            if hit or (t._home is not None and base_of(t._home) in targets)
        )


def own_memory(tensors: Iterable[Base]) -> None:
    """Give each of these realised tensors memory that holds no other value, that no array shows and
    that may be written. A tensor on lent memory that may be written stays; so does a computed one,
    whose memory belongs to its graph."""
    with lock:
        owners: dict[UOp, set[int]] = {}
        for tensor in all_tensors():
            for view in (memory.memory_of(tensor), tensor._home):
                if view is not None:
                    owners.setdefault(base_of(view), set()).add(id(tensor))
        for tensor in tensors:
            view = memory.memory_of(tensor)
            base = None if view is None else base_of(view)
            if base is None or _computed(tensor):
                continue
            if tensor._alias and not buffers.buffer_of(base).readonly:
                continue
            if len(owners[base]) > 1 or buffers.is_external(base) or memory.is_shown(base):
                memory.show(tensor, laid_out(engine.duplicate(base), tensor.shape))
                tensor._alias = False
                owners[base].discard(id(tensor))


def _computed(tensor: Base) -> bool:
    """Whether gradients flow through it: it keeps the graph that its value was computed by."""
    return tensor._rg and not tensor._leaf


class Name(NamedTuple):
    """A tensor that stands on another BUFFER for a while."""

    tensor: Base
    uop: UOp  # its graph before
    requires_grad: bool  # and gradient flag
    old: UOp  # its BUFFER before
    new: UOp
    copied: bool  # `new` is a copy, not another name


def rename(tensors: Iterable[Base]) -> list[Name]:
    """Until `name_back`, realised tensors stand on BUFFERs of other names on the same memory, or,
    if they keep a graph, on copies.

    No value that was computed from them before is found again then. Computed tensors are constants
    to gradients.
    """
    names: list[Name] = []
    with lock:
        for tensor in tensors:
            view = memory.memory_of(tensor)
            if view is None:
                continue
            old = base_of(view)
            copied = _computed(tensor)
            new = engine.duplicate(old) if copied else buffers.second_name(old)
            if not copied:
                memory.show_as(old, new)
            names.append(Name(tensor, tensor.uop, tensor._rg, old, new, copied))
            memory.show(tensor, laid_out(new, tensor.shape))
    return names


def name_back(names: list[Name]) -> list[Base]:
    """Undo `rename`. A tensor written meanwhile keeps its new value; its old BUFFER is gone. The
    other living tensors that were computed from the ones renamed."""
    with lock:
        back: dict[UOp, UOp] = {}
        for name in names:
            if buffers.has_memory(name.new):
                back[name.new] = name.old
            elif not name.copied:
                buffers.forget(name.old)
        for name in names:
            if name.new not in back:
                continue
            tensor = name.tensor
            if base_of(tensor.uop) is name.new and tensor._home is None:
                tensor.uop, tensor._rg = name.uop, name.requires_grad
                remark(tensor)
            if not name.copied:
                buffers.call_version(name.old, buffers.buffer_of(name.new))
        named = [t for t in all_tensors() if not back.keys().isdisjoint(_graph(t))]
        for tensor in named:
            try:
                memory.realize([tensor])
            except InvalidGraphError:  # it cannot be computed any more, by any name
                continue
            tensor.uop = tensor.uop.substitute(back)
            remark(tensor)
    return named


def _graph(tensor: Base) -> list[UOp]:
    return toposort(tensor.uop if tensor._home is None else [tensor.uop, tensor._home])


def gradients() -> list[tuple[Base, Base | None]]:
    """The living tensors that `backward` gives a gradient, with the one they have."""
    return [(tensor, tensor.grad) for tensor in {*watched_by_graph().values()}]


def make_constant(tensor: Base) -> None:
    """A realised tensor forgets how it was computed: to gradients it is a constant."""
    view = memory.memory_of(tensor)
    if view is not None:
        tensor.uop = view
    tensor._rg = tensor._leaf = False
    tensor._marks = None


def memory_below(tensor: Base) -> Buffer | None:
    """The memory of a realised tensor; None if it has no elements."""
    view = memory.memory_of(tensor)
    return None if view is None else buffers.buffer_of(base_of(view))


def is_lent(tensor: Base) -> bool:
    """Whether a realised tensor stands on memory of somebody else."""
    view = memory.memory_of(tensor)
    return view is not None and buffers.is_external(base_of(view))


def overlaps_lent(tensor: Base) -> bool:
    """Whether a realised tensor stands on lent memory that another living value shows too."""
    view = memory.memory_of(tensor)
    return view is not None and bool(buffers.overlapping(base_of(view)))


def put(tensor: Base, data: bytes) -> None:
    """A realised tensor has these contents from now on, in memory of its own."""
    new = buffers.new_buffer(tensor.dtype, room_of(tensor.shape))
    memoryview(buffers.buffer_of(new))[:] = data
    memory.show(tensor, laid_out(new, tensor.shape))
