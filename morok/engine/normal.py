"""A graph without names: the key of the schedule cache, and the memory that goes with it.

The graph's BUFFERs become PARAMs in the order of their first use, so that the same computation on
other buffers is the same graph. So do contiguous parts of them: `x[i:i+32]` is a PARAM of its own
whose memory begins at an offset, and another i compiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from morok import _core
from morok.dtype import DType, dtypes
from morok.engine.buffers import (
    base_of,
    buffer_of,
    is_buffer_view,
    is_external,
    is_write,
    overlapping,
)
from morok.engine.overlap import Spans
from morok.errors import InvalidGraphError
from morok.ir import Ops, UOp
from morok.runtime import Buffer

_HINTS = (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP)  # for autograd, or nobody
_Place = tuple[int, tuple[int, ...]]
"""The first element of a part of a buffer, and its shape: the elements lie in row-major order."""


@dataclass(frozen=True, slots=True)
class Window:
    """Part of the memory of BUFFER `node`: what a PARAM of a normalised graph stands for."""

    node: UOp
    offset: int  # bytes
    nbytes: int

    def memory(self) -> Buffer:
        """The memory itself: the buffer's, or a slice of it whose `base` is the buffer."""
        whole = buffer_of(self.node)
        if self.nbytes == whole.nbytes:
            return whole
        return whole.slice(self.offset, self.nbytes)


def sink_of(roots: Sequence[UOp]) -> UOp:
    """One SINK over the roots."""
    return UOp(Ops.SINK, dtypes.void, tuple(roots))


def normalise(sink: UOp) -> tuple[UOp, list[Window]]:
    """BUFFER -> PARAM in order of first use: the graph without names, and the memory by slot.

    What is realized is read from memory, hints to autograd are dropped. Just the same memory shares
    a slot, so that writes see reads through another name; `arguments` tells apart what overlaps
    otherwise. A buffer that is written has windows only where all of its uses lie in windows that
    do not overlap. InvalidGraphError if buffers that are written overlap: neither is the last.
    """
    slots = _Slots()
    whole: set[UOp] = set()
    partly: dict[UOp, None] = {}
    for root in sink.src:
        if is_write(root):
            view = root.src[0]
            base = base_of(view)
            if is_buffer_view(view):
                whole.add(base)
            else:
                partly[base] = None

    _one_writer([*whole, *partly])

    def buffer(node: UOp) -> UOp | None:
        return None if node in partly else slots.param(node, 0, node.arg)

    def part(view: UOp) -> UOp | None:
        found = _part(view)
        if found is None or found[0] in whole or found[0] in partly:
            return None
        node, (offset, shape) = found
        return _shaped(slots.param(node, offset, prod(shape)), shape)

    normal: UOp = _core.cut_realized(sink, {Ops.BUFFER: buffer, Ops.SHRINK: part}, _HINTS)
    replace: dict[UOp, UOp] = {}
    for node in partly:
        places = None if node in whole else _windows(normal, node)
        for view, (offset, shape) in (places or {node: (0, (node.arg,))}).items():
            replace[view] = _shaped(slots.param(node, offset, prod(shape)), shape)
    return (normal.substitute(replace) if replace else normal), slots.windows


def _one_writer(written: Sequence[UOp]) -> None:
    lent = {node for node in written if is_external(node)} if len(written) > 1 else set()
    if len(lent) > 1:
        for node in lent:
            if not lent.isdisjoint(overlapping(node)):
                raise InvalidGraphError(
                    "two writes of one run overlap in memory", node=node, stage="realize"
                )


class _Slots:
    """The PARAMs of a graph, and what they stand for."""

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self._params: dict[tuple[int, DType, int], UOp] = {}

    def param(self, node: UOp, offset: int, size: int) -> UOp:
        """The PARAM for `size` elements of a BUFFER from element `offset` on."""
        itemsize = node.dtype.itemsize
        place = buffer_of(node).ptr + offset * itemsize, node.dtype, size
        param = self._params.get(place)
        if param is None:
            param = UOp(Ops.PARAM, node.dtype, (node.src[1],), (len(self.windows), size))
            self._params[place] = param
            self.windows.append(Window(node, offset * itemsize, size * itemsize))
        return param


def _shaped(param: UOp, shape: tuple[int, ...]) -> UOp:
    if param.shape == shape:
        return param
    return UOp(Ops.RESHAPE, param.dtype, (param, UOp.shape_const(shape)))


def _part(view: UOp) -> tuple[UOp, _Place] | None:
    """The BUFFER and the place in it that a SHRINK looks at, if the elements lie side by side."""
    chain = []
    node = view
    while node.op is not Ops.BUFFER:
        if node.realized is not None:
            node = node.realized
        elif node.op in (Ops.RESHAPE, Ops.SHRINK):
            chain.append(node)
            node = node.src[0]
        elif node.op in _HINTS:
            node = node.src[0]
        else:
            return None
    place: _Place = (0, (node.arg,))
    for step in reversed(chain):
        moved = _moved(step, place)
        if moved is None:
            return None
        place = moved
    return node, place


def _moved(step: UOp, place: _Place) -> _Place | None:
    """Where a RESHAPE or SHRINK of a place looks at, None if in several pieces."""
    offset, shape = place
    if step.op is Ops.RESHAPE:
        return offset, step.src[1].arg
    begins, ends = step.src[1].arg, step.src[2].arg
    stride = prod(shape)
    several = False
    for begin, end, n in zip(begins, ends, shape, strict=True):
        if n == 0 or begin == end or (several and end - begin != n):
            return None
        stride //= n
        offset += begin * stride
        several = several or end - begin > 1
    return offset, tuple(end - begin for begin, end in zip(begins, ends, strict=True))


def _windows(sink: UOp, base: UOp) -> dict[UOp, _Place] | None:
    """The views in which a BUFFER that is written is used, and their places; None where some
    overlap and are not the same."""
    places: dict[UOp, _Place] = {base: (0, (base.arg,))}
    used: dict[UOp, _Place] = {}
    for u in sink.toposort():
        if u.op in (Ops.RESHAPE, Ops.SHRINK) and u.src[0] in places:
            place = _moved(u, places[u.src[0]])
            if place is not None:
                places[u] = place
                continue
        used.update((s, places[s]) for s in u.src if s in places)
    spans = sorted({(offset, offset + prod(shape)) for offset, shape in used.values()})
    if any(second[0] < first[1] for first, second in pairwise(spans)):
        return None
    return used


def arguments(windows: Sequence[Window], normal: UOp) -> list[Buffer]:
    """The memory of each slot for one run of a normalised graph.

    What overlaps written memory of somebody else's under another name is copied, so that it is read
    as it was before.
    """
    memory = [window.memory() for window in windows]
    written = {base_of(r.src[0]) for r in normal.src if is_write(r)}
    targets = [base.arg[0] for base in written if is_external(windows[base.arg[0]].node)]
    if not targets:
        return memory
    inputs = Spans((m.ptr, m.ptr + m.nbytes, slot) for slot, m in enumerate(memory))
    copies: set[int] = set()
    for slot in targets:
        target = memory[slot]
        found = inputs.overlapping(target.ptr, target.ptr + target.nbytes)
        copies.update(other for other in found if other != slot)
    for slot in copies:
        original = memory[slot]
        memory[slot] = Buffer(original.nbytes)
        memoryview(memory[slot])[:] = memoryview(original)
    return memory
