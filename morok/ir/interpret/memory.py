"""Memory as a value: lists of writes, and the contents that they leave.

A view is a chain of movement ops, BUFFER_VIEWs, MSELECTs and AFTERs on a memory (BUFFER, PARAM,
CONTIGUOUS, DEFINE_REG, DEFINE_LOCAL). A CONTIGUOUS is memory of its own with the contents of its
source.
Registers are private to each iteration of the loops around them, local memory to each work-group,
everything else there is once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from morok._core import consumers
from morok.dtype import AddrSpace
from morok.ir.interpret.values import Value, fault, move, over, union
from morok.ir.numeric import Array
from morok.ir.ops import AxisType, Ops
from morok.ir.optable import GroupOp
from morok.ir.shapes import Dim
from morok.ir.uop import UOp

__all__ = [
    "EFFECTS",
    "ORDERING",
    "Write",
    "Writes",
    "addresses_of",
    "apply",
    "below",
    "by_memory",
    "chain_of",
    "effects_of",
    "element_count",
    "indexed_dims",
    "is_local_item",
    "lane_count",
    "memory_of",
    "positions_of",
    "read_views",
    "root_of",
]

ORDERING: Final = frozenset({Ops.AFTER, Ops.BARRIER})
"""Ops that pass a memory on once other ops are complete."""
_VIEWS: Final = GroupOp.Movement | ORDERING | {Ops.BUFFER_VIEW, Ops.NOOP, Ops.MSELECT}
_MEMORY: Final = frozenset(
    {Ops.BUFFER, Ops.PARAM, Ops.CONTIGUOUS, Ops.DEFINE_REG, Ops.DEFINE_LOCAL}
)
_ITEM_AXES: Final = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE})
EFFECTS: Final = frozenset({Ops.STORE, Ops.END, Ops.GROUP, Ops.SINK, Ops.CALL, Ops.BARRIER})
"""Ops that, when void, stand for writes."""


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """Elements written to one memory: arrays over `axes`, of which `closed` are loops done."""

    memory: UOp
    axes: tuple[UOp, ...]
    closed: frozenset[UOp]
    positions: Array
    mask: Array
    values: Array

    def close(self, ranges: Iterable[UOp]) -> Write:
        """The same write seen from outside of the loops of `ranges`."""
        own = frozenset(ranges) & frozenset(self.axes)
        if not own:
            return self
        closed = self.closed | own
        return Write(self.memory, self.axes, closed, self.positions, self.mask, self.values)


Writes = tuple[Write, ...]


def by_memory(writes: Iterable[Write]) -> dict[UOp, Writes]:
    """The writes to each memory, in order, each once."""
    found: dict[UOp, dict[Write, None]] = {}
    for write in writes:
        found.setdefault(write.memory, {})[write] = None
    return {memory: tuple(part) for memory, part in found.items()}


def below(view: UOp) -> UOp:
    """What a view is a view of."""
    inner: UOp = view.src[0]
    if view.op is Ops.MSELECT:
        stack = inner.src[0] if inner.op is Ops.MULTI else inner
        inner = stack.src[view.arg]
    return inner


def memory_of(view: UOp) -> UOp | None:
    """The memory that `view` shows, None when it shows a computed value."""
    while view.op in _VIEWS:
        view = below(view)
    return view if view.op in _MEMORY else None


def root_of(view: UOp) -> UOp:
    """The memory that `view` shows; InvalidGraphError when there is none."""
    memory = memory_of(view)
    if memory is None:
        raise fault(view, "write-target", "a view of memory", view.op.name)
    return memory


def chain_of(view: UOp) -> list[UOp]:
    """The ops of a view, from the one next to the memory outwards."""
    chain = []
    while view.op in _VIEWS:
        chain.append(view)
        view = below(view)
    return chain[::-1]


def element_count(memory: UOp) -> int:
    """Number of elements of a memory; registers may have vectors as elements."""
    if memory.op is Ops.BUFFER:
        return int(memory.arg)
    if memory.op is Ops.CONTIGUOUS:
        return prod(memory.shape or ())
    return int(memory.arg[0 if memory.op is Ops.DEFINE_REG else 1])


def lane_count(memory: UOp) -> int:
    """Number of scalars in a memory."""
    return element_count(memory) * memory.dtype.base.count


def read_views(root: UOp) -> set[UOp]:
    """The AFTERs on memory that something below `root` reads, not only writes through."""
    users = consumers(root)
    read: set[UOp] = set()
    for node in reversed(root.toposort()):
        if node.op not in _VIEWS and node.op is not Ops.INDEX:
            continue
        if any(_reads(user, node, read) for user in users[node]):
            read.add(node)
    return read


def _reads(user: UOp, node: UOp, read: set[UOp]) -> bool:
    """Whether `user` reads what `node`, a view or an INDEX, shows."""
    if user.op is Ops.STORE and user.src[1] is not node:
        return False
    if user.op is Ops.LOAD and user.src[1] is not node:
        return False  # its INDEX tells
    return user in read if user.op in _VIEWS or user.op is Ops.INDEX else True


def positions_of(view: UOp, number: Callable[[Dim], int]) -> Array:
    """For each element of a view of memory, its place in the memory; `number` gives the values of
    dims."""
    memory = root_of(view)
    places = np.arange(lane_count(memory))
    if memory.op is Ops.CONTIGUOUS:
        places = places.reshape(memory.shape or ())
    for op in chain_of(view):
        if op.op is Ops.BUFFER_VIEW:
            size, offset = op.arg
            places = places[offset : offset + size]
        elif op.op is Ops.PAD:
            raise fault(view, "write-target", "a view of memory", "PAD")
        elif op.op in GroupOp.Movement:
            places = move(op, places, 0, number)
    return places


def is_local_item(axis: UOp) -> bool:
    """Whether an axis counts the work-items of one group."""
    if axis.op is Ops.SPECIAL:
        name: str = axis.arg
        return name.startswith(("lidx", "threadIdx"))
    return axis.arg[1] in _ITEM_AXES


def _private(axis: UOp, memory: UOp) -> bool:
    """Whether each iteration of an open loop has a memory of its own."""
    space = memory.dtype.addrspace
    return space is AddrSpace.REG or (space is AddrSpace.LOCAL and not is_local_item(axis))


def apply(contents: Value, write: Write) -> Value:
    """The memory with the write done; of several to one place the last in loop order stays."""
    own = [a for a in write.axes if a not in write.closed and _private(a, write.memory)]
    axes = union(contents.ranges, own)
    sizes = dict(zip(write.axes, write.positions.shape, strict=False))
    sizes |= dict(zip(contents.ranges, contents.data.shape, strict=False))
    base = contents.over(axes, 1)
    data = np.broadcast_to(base, (*(sizes[axis] for axis in axes), base.shape[-1])).copy()
    every = union(axes, write.axes)
    rank = write.positions.ndim - len(write.axes)
    parts = [over(p, write.axes, every, rank) for p in (write.positions, write.mask, write.values)]
    counters = [over(np.arange(sizes[axis]), (axis,), every, rank) for axis in axes]
    positions, mask, values, *select = np.broadcast_arrays(*parts, *counters)
    data[(*(counter[mask] for counter in select), positions[mask])] = values[mask]
    return Value(axes, data)


def addresses_of(address: UOp) -> tuple[UOp, ...]:
    """The addresses of a vectorised access, or the one there is."""
    if address.op not in (Ops.INDEX, Ops.PTRCAT) and address.dtype.is_ptr:
        raise fault(address, "interpretable", "an INDEX as address", address.op.name)
    return address.src if address.op is Ops.PTRCAT else (address,)


def effects_of(view: UOp) -> Iterator[UOp]:
    """The writes that an AFTER or BARRIER waits for."""
    if view.op in ORDERING:
        yield from (dep for dep in view.src[1:] if dep.op in EFFECTS and dep.dtype.kind == "v")


def indexed_dims(buffer: UOp, count: int) -> tuple[int, ...]:
    """The dims of a buffer that `count` indices select from."""
    shape = buffer.shape
    if shape is None:
        shape = (element_count(root_of(buffer)),)
    if len(shape) < count:
        raise fault(buffer, "index-count", f"at most {len(shape)} indices", count)
    return shape[:count]
