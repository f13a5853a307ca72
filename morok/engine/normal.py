"""A graph without names: the key of the schedule cache, and the memory that goes with it.

The graph's BUFFERs become PARAMs in the order of their first use, so that the same computation on
other buffers is the same graph. So do contiguous parts of them: `x[i:i+32]` is a PARAM of its own
whose memory begins at an offset, and another i compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from threading import RLock
from typing import NamedTuple

from morok import _core
from morok.caches import Bounded
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
from morok.engine.variables import Binding, binding_of, enter
from morok.errors import InvalidGraphError
from morok.forking import held_at_fork
from morok.ir import CallInfo, Ops, UOp
from morok.runtime import Buffer

_HINTS = (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP)  # for autograd, or nobody
_Place = tuple[int, tuple[int, ...]]
"""The first element of a part of a buffer, and its shape: the elements lie in row-major order."""


class Window(NamedTuple):
    """What a PARAM of a normalised graph stands for: part of the memory of BUFFER `node`."""

    node: UOp
    offset: int  # bytes
    memory: Buffer  # all of the node's, or a slice whose `base` is that


def sink_of(roots: Sequence[UOp]) -> UOp:
    """One SINK over the roots."""
    return UOp(Ops.SINK, dtypes.void, tuple(roots))


class Normal:
    """A sink of roots without names: BUFFER -> PARAM in order of first use.

    What is realized is read from memory, hints to autograd are dropped. Just the same memory shares
    a slot, so that writes see reads through another name; `arguments` tells apart what overlaps
    otherwise. A buffer that is written has windows only where all of its uses lie in windows that
    do not overlap. InvalidGraphError if buffers that are written overlap: neither is the last.

    key       of the graph, which is built when it is asked for
    windows   the memory by slot
    written   the slots of memory that roots write, or write other windows of
    variables what BINDs gave the DEFINE_VARs that stand in their place, by name
    """

    __slots__ = (
        "_graph",
        "_params",
        "_partly",
        "_sink",
        "_whole",
        "key",
        "variables",
        "windows",
        "written",
    )

    def __init__(self, sink: UOp) -> None:
        self.windows: list[Window] = []
        self.written: set[int] = set()
        self.variables: dict[str, Binding] = {}
        self._params: dict[tuple[int, DType, int], UOp] = {}
        self._sink = sink
        self._whole: set[UOp] = set()
        self._partly: dict[UOp, None] = {}
        for root in sink.src:
            if is_write(root):
                view = root.src[0]
                if is_buffer_view(view):
                    self._whole.add(base_of(view))
                else:
                    self._partly[base_of(view)] = None
        _one_writer([*self._whole, *self._partly])
        self._graph: UOp | None = None
        if self._partly:
            self.key: bytes = self.graph.key
        else:
            self.key = _core.normal_key(sink, self._visits(), _HINTS)

    @property
    def graph(self) -> UOp:
        """The sink over PARAMs."""
        if self._graph is None:
            normal: UOp = _core.cut_realized(self._sink, self._visits(), _HINTS)
            replace: dict[UOp, UOp] = {}
            for node in self._partly:
                places = None if node in self._whole else _windows(normal, node)
                for view, place in (places or {node: (0, (node.arg,))}).items():
                    param = replace[view] = self._param(node, *place)
                    self.written.add(base_of(param).arg[0])
            self._graph = normal.substitute(replace) if replace else normal
        return self._graph

    def _visits(self) -> dict[Ops, Callable[[UOp], UOp | None]]:
        # Not kept: that would be a circle.
        return {
            Ops.BUFFER: self._buffer,
            Ops.SHRINK: self._part,
            Ops.FUNCTION: self._function,
            Ops.BIND: self._bound,
            Ops.PARAM: _stray,
        }

    def _function(self, node: UOp) -> UOp:
        function, bindings = normal_function(node)
        enter(self.variables, bindings)
        return function

    def _bound(self, node: UOp) -> UOp:
        binding = binding_of(node)
        enter(self.variables, (binding,))
        return binding[0]

    def _buffer(self, node: UOp) -> UOp | None:
        if node in self._partly:
            return None
        param = self._param(node, 0, (node.arg,))
        if node in self._whole:
            self.written.add(param.arg[0])
        return param

    def _part(self, view: UOp) -> UOp | None:
        found = _place_of(view)
        if found is None or found[0] in self._whole or found[0] in self._partly:
            return None
        node, place = found
        return self._param(node, *place)

    def _param(self, node: UOp, offset: int, shape: tuple[int, ...]) -> UOp:
        """The PARAM, in this shape, for the elements of a BUFFER from `offset` on."""
        memory, size = buffer_of(node), prod(shape)
        begin = offset * node.dtype.itemsize
        place = memory.ptr + begin, node.dtype, size
        param = self._params.get(place)
        if param is None:
            if size != node.arg:
                memory = memory.slice(begin, size * node.dtype.itemsize)
            param = UOp(Ops.PARAM, node.dtype, (node.src[1],), (len(self.windows), size))
            self._params[place] = param
            self.windows.append(Window(node, begin, memory))
        return _shaped(param, shape)


_lock = held_at_fork(RLock())
_functions: Bounded[UOp, tuple[UOp, tuple[Binding, ...]]] = Bounded("normal functions", 1024, _lock)


def normal_function(function: UOp) -> tuple[UOp, tuple[Binding, ...]]:
    """A FUNCTION as schedules see it: hints to autograd and to the tracer are dropped, variables
    stand for what was bound to them; and those values. Its body is walked once, however often it is
    called; PARAMs and LUNIQUEs in it are its own."""
    with _lock:
        found = _functions.get(function)
        if found is None:
            visits: dict[Ops, Callable[[UOp, tuple[UOp, ...]], UOp]] = {
                hint: lambda node, src: src[0] for hint in _HINTS
            }
            bindings: dict[Binding, None] = {}

            def unbound(node: UOp, src: tuple[UOp, ...]) -> UOp:
                bindings[binding_of(node)] = None
                return src[0]

            visits[Ops.FUNCTION] = _plain_function
            visits[Ops.BIND] = unbound
            found = _core.rebuild(function, visits), tuple(bindings)
            _functions.put(function, found)
        return found


def _plain_function(function: UOp, src: tuple[UOp, ...]) -> UOp:
    info = CallInfo(name=function.arg.name, metadata=function.arg.metadata)
    return UOp(Ops.FUNCTION, function.dtype, src, info)


def _one_writer(written: Sequence[UOp]) -> None:
    lent = {node for node in written if is_external(node)} if len(written) > 1 else set()
    if len(lent) > 1:
        for node in lent:
            if not lent.isdisjoint(overlapping(node)):
                raise InvalidGraphError(
                    "two writes of one run overlap in memory", node=node, stage="realize"
                )


def _stray(param: UOp) -> UOp:
    raise InvalidGraphError(
        "this value is made of the arguments of a function that was being traced: a function's "
        "values are what it returns and writes",
        node=param,
        stage="normalise",
    )


def _shaped(param: UOp, shape: tuple[int, ...]) -> UOp:
    if param.shape == shape:
        return param
    return UOp(Ops.RESHAPE, param.dtype, (param, UOp.shape_const(shape)))


def _place_of(view: UOp) -> tuple[UOp, _Place] | None:
    """The BUFFER and the place in it that a SHRINK looks at, if the elements lie side by side."""
    chain = []
    node = view
    while node.op is not Ops.BUFFER:
        if node.realized is not None:
            node = node.realized
        elif node.op in (Ops.RESHAPE, Ops.SHRINK) and _is_fixed(node):
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
    """Where a RESHAPE or SHRINK of a place looks at, None if in several pieces or by variables."""
    if not _is_fixed(step):
        return None
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


def _is_fixed(step: UOp) -> bool:
    """Whether no variable says where a RESHAPE or SHRINK looks at."""
    return all(operand.op is Ops.CONST for operand in step.src[1:])


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


def arguments(normal: Normal) -> list[Buffer]:
    """The memory of each slot for one run.

    What overlaps written memory of somebody else's under another name is copied, so that it is read
    as it was before.
    """
    memory = [window.memory for window in normal.windows]
    written = normal.written
    if not any(
        memory[slot].external and is_external(normal.windows[slot].node) for slot in written
    ):
        return memory
    inputs = Spans((m.ptr, m.ptr + m.nbytes, slot) for slot, m in enumerate(memory))
    copies: set[int] = set()
    for slot in written:
        target = memory[slot]
        copies.update(inputs.overlapping(target.ptr, target.ptr + target.nbytes))
    for slot in copies - written:
        original = memory[slot]
        memory[slot] = Buffer(original.nbytes)
        memoryview(memory[slot])[:] = memoryview(original)
    return memory
