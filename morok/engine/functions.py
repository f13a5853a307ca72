"""Schedules of graphs with CALLs: the body of a FUNCTION is scheduled once, whoever calls it.

A graph is cut at its CALLs. Segment s is what can be computed when the calls of level s are done (a
call's level is one more than the highest among its arguments); its roots are what the next calls
take and what later segments read again. A segment's own graph names its memory by PARAMs in order
of first use, so that the equal parts between a hundred equal calls are one graph, scheduled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from morok import config
from morok._core import toposort
from morok.caches import Bounded
from morok.dtype import dtypes
from morok.engine.own import local_buffers, own_nodes, replace_own
from morok.engine.stats import importing, stats
from morok.errors import InvalidGraphError
from morok.forking import held_at_fork
from morok.ir import (
    CallInfo,
    GroupOp,
    Level,
    Ops,
    UOp,
    check_stage,
    is_ordered,
    laid_out,
    memory_under,
    parts_of,
    room_of,
)

if TYPE_CHECKING:
    from morok.rangeify import Schedule

_lock = held_at_fork(RLock())
_schedules: Bounded[tuple[bytes, bool], Schedule] = Bounded("function schedules", 1024, _lock)
_DEVICE = UOp.new_device()
_CHEAP = GroupOp.Movement | {Ops.CONST, Ops.CAST, Ops.BITCAST, Ops.DEFINE_VAR, Ops.BUFFERIZE}


def make_schedule(graph: UOp) -> Schedule:
    """The schedule of a normalised SINK over PARAMs, CALLs of FUNCTIONs included."""
    if graph.has(Ops.CALL):
        return _Cut(graph).schedule()
    with importing():  # not before: a process that finds its plans on disk needs none of it
        from morok.rangeify import run_kernel_split_pipeline
    start = perf_counter()
    stats.scheduled += 1
    schedule = run_kernel_split_pipeline(graph)
    stats.schedule_seconds += perf_counter() - start
    return schedule


def function_schedule(function: UOp) -> Schedule:
    """The schedule of a normalised FUNCTION's body: for each value of its TUPLE the BUFFER or PARAM
    that holds it. Made once for each body. PARAMs beyond the formal ones are memory that the body
    names by LUNIQUE, `local_buffers`."""
    body, n_params = function.src[0], len(function.src) - 1
    local = {node: _param(n_params + i, node) for i, node in enumerate(local_buffers(function))}
    values = body.src if body.op is Ops.TUPLE else (body,)
    sink = UOp(Ops.SINK, dtypes.void, tuple(values))
    return _remembered(replace_own(sink, local) if local else sink)


def _remembered(sink: UOp) -> Schedule:
    # By content: a graph kept here would keep the memory of values computed from it.
    key = (sink.key, config.get().noopt)
    with _lock:
        found = _schedules.get(key)
        if found is None:
            check_stage(sink, Level.TENSOR, "function")
            found = make_schedule(sink)
            _schedules.put(key, found)
        return found


def _param(slot: int, like: UOp) -> UOp:
    """The PARAM of a slot, for a BUFFER, PARAM or other value of known size."""
    size = like.arg if like.op is Ops.BUFFER else room_of(like.shape or ())
    device = _DEVICE if like.device is None else like.device
    return UOp(Ops.PARAM, like.dtype, (device,), (slot, size))


def _memory(value: UOp) -> UOp | None:
    """The PARAM or the result of a call that holds a value in logical order; None if it is to be
    computed."""
    below = memory_under(value)
    while below.op is Ops.CONTIGUOUS:
        below = memory_under(below.src[0])
    return below if below.op is Ops.PARAM or _is_result(below) else None


def _is_result(value: UOp) -> bool:
    return value.op is Ops.GET_TUPLE and value.src[0].op is Ops.CALL


class _Segment(NamedTuple):
    """What is computed between two levels of calls."""

    roots: dict[UOp, None]
    reads: dict[UOp, None]  # PARAMs, results of calls, and roots of earlier segments


class _Cut:
    """One graph with CALLs on its way to a schedule."""

    def __init__(self, graph: UOp) -> None:
        self.graph = graph.replace(src=tuple(_computed(root) for root in graph.src))
        self.order = own_nodes(self.graph)
        self.level: dict[UOp, int] = {}
        self.results: dict[UOp, list[UOp]] = {}  # of a CALL: its GET_TUPLEs
        self.buffers: dict[UOp, UOp] = {}  # PARAM, result or root -> where it lies
        self.steps: list[UOp] = []
        self._numbered = 0
        for u in self.order:
            src = () if u.op is Ops.FUNCTION else u.src  # its body is not of this graph
            below = max((self.level[s] for s in src), default=0)
            self.level[u] = below + 1 if u.op is Ops.CALL else below
            if _is_result(u):
                self.results.setdefault(u.src[0], []).append(u)
        self.last = self.level[self.graph]
        self.calls: list[list[UOp]] = [[] for _ in range(self.last + 1)]
        for u in self.order:
            if u.op is Ops.CALL:
                self.calls[self.level[u]].append(u)
        self.segments = [_Segment({}, {}) for _ in range(self.last + 1)]
        self._cut()

    def _cut(self) -> None:
        """Deal the nodes out to segments."""
        needed: dict[UOp, set[int]] = {}  # by which segments
        kept: dict[UOp, int] = {}  # a value that gets memory: whence at the latest
        for root in self.graph.src:
            if not _is_write(root) and not self._in_memory(root):
                kept[root] = self.last
            needed.setdefault(root, set()).add(self.last)
        for call in (c for calls in self.calls for c in calls):
            for arg in call.src[1:]:
                if _memory(arg) is None:
                    segment = self.level[call] - 1
                    kept[arg] = min(kept.get(arg, segment), segment)
                    needed.setdefault(arg, set()).add(segment)
        scalars = _within_elements(self.order)
        for u in reversed(self.order):
            segments = needed.get(u, set())
            if not segments or u.op in (Ops.CALL, Ops.FUNCTION) or u is self.graph:
                continue
            first = min(segments)
            if u.op is Ops.PARAM or _is_result(u):
                for segment in segments:
                    self.segments[segment].reads[u] = None
                continue
            worth = len(segments) > 1 and u not in scalars and _worth_keeping(u)
            if u in kept or _is_write(u) or worth:
                self.segments[first].roots[u] = None
                for segment in segments - {first}:
                    self.segments[segment].reads[u] = None
                segments = {first}
            for source in u.src:
                needed.setdefault(source, set()).update(segments)

    def _in_memory(self, root: UOp) -> bool:
        """Whether a root is what some call leaves in memory of its own: a caller's buffer would
        have to be copied."""
        memory = _memory(root)
        return memory is not None and memory.op is not Ops.PARAM

    def schedule(self) -> Schedule:
        """Segments and calls in turn."""
        with importing():
            from morok.rangeify import Schedule
        for u in self.order:
            if u.op is Ops.PARAM:
                self.buffers[u] = u
        for number, segment in enumerate(self.segments):
            for call in self.calls[number]:
                self._call(call)
            self._compute(segment)
        outputs = []
        for root in self.graph.src:
            memory = root if root in self.buffers else _memory(root)
            assert memory is not None
            outputs.append(self.buffers[memory])
        return Schedule(tuple(self.steps), tuple(outputs))

    def _compute(self, segment: _Segment) -> None:
        """The kernels of a segment."""
        # Values that are read again come after the roots, in the order of the caller.
        roots = [r for r in self.graph.src if r in segment.roots]
        roots = list(dict.fromkeys([*roots, *segment.roots]))
        if not roots:
            return
        sink = UOp(Ops.SINK, dtypes.void, tuple(roots))
        reads = [u for u in toposort(sink, stop=segment.reads) if u in segment.reads]
        replace = {u: laid_out(_param(i, u), u.shape or ()) for i, u in enumerate(reads)}
        schedule = _remembered(replace_own(sink, replace))
        places = self._emit(schedule, [self.buffers[u] for u in reads], ())
        self.buffers.update(zip(roots, places, strict=True))

    def _call(self, call: UOp) -> None:
        """The kernels of a call."""
        function = call.src[0]
        if function.op is not Ops.FUNCTION:
            raise InvalidGraphError(
                "CALL.body: a tensor graph calls FUNCTIONs",
                node=call,
                stage="schedule",
                expected="FUNCTION",
                got=function.op.name,
            )
        given = []
        for arg in call.src[1:]:
            memory = arg if arg in self.buffers else _memory(arg)
            assert memory is not None
            given.append(self.buffers[memory])
        given += [self._buffer(node) for node in local_buffers(function)]
        info = function.arg
        label = () if info.name is None else (info.name, *info.metadata)
        places = self._emit(function_schedule(function), given, label)
        body = function.src[0]
        for u in self.results.get(call, ()):
            self.buffers[u] = places[u.arg if body.op is Ops.TUPLE else 0]

    def _emit(self, schedule: Schedule, given: Sequence[UOp], label: tuple[str, ...]) -> list[UOp]:
        """Append the kernels of a schedule whose PARAMs are the buffers `given`; its outputs."""
        known: dict[UOp, UOp] = {}

        def place(buffer: UOp) -> UOp:
            found = known.get(buffer)
            if found is None:
                is_param = buffer.op is Ops.PARAM
                found = given[buffer.arg[0]] if is_param else self._buffer(buffer)
                known[buffer] = found
            return found

        for step in schedule.calls:
            info = step.arg
            if label:
                info = CallInfo(name=info.name, metadata=(*label, *info.metadata))
            args = (place(buffer) for buffer in step.src[1:])
            self.steps.append(UOp(Ops.CALL, dtypes.void, (step.src[0], *args), info))
        return [place(buffer) for buffer in schedule.outputs]

    def _buffer(self, like: UOp) -> UOp:
        """A new buffer of the schedule."""
        name = UOp(Ops.LUNIQUE, dtypes.void, (), self._numbered)
        self._numbered += 1
        return UOp(Ops.BUFFER, like.dtype, (name, like.src[1]), like.arg)


def _computed(root: UOp) -> UOp:
    """A root that is a value to be stored: a bare buffer is copied."""
    return UOp(Ops.CONTIGUOUS, root.dtype, (root,)) if root.op is Ops.PARAM else root


def _is_write(u: UOp) -> bool:
    """A write of a whole view: neither an ordered loop nor, within one, its memory as earlier
    iterations leave it."""
    return u.op is Ops.AFTER and u.src[1].op is Ops.STORE and not is_ordered(u)


def _within_elements(order: Sequence[UOp]) -> set[UOp]:
    """Of nodes in topological order, the scalars that elements are computed with: no tensors, even
    where they are in no loop."""
    within: set[UOp] = set()
    for u in reversed(order):
        if u.op is Ops.BUFFERIZE or is_ordered(u):
            within.update(parts_of(u))
        elif u in within:
            within.update(u.src[1:] if u.op is Ops.INDEX else u.src)
    return within


def _worth_keeping(u: UOp) -> bool:
    """Whether a value that two segments want is computed once and kept: one that reads memory, and
    is more than a view of it."""
    if u.shape is None or u.open_ranges or u.op in _CHEAP or 0 in u.shape:
        return False
    return u.has(Ops.PARAM)
