"""The reference evaluator of graphs: tensor graphs, ranged graphs, kernels.

A RANGE is not a loop here but an axis, so that a whole loop nest is one NumPy expression. Memory
is functional: a STORE is a list of writes, AFTER is the memory with them done, and nobody sees a
write that it does not come after.

Only a loop whose iterations read what earlier ones wrote runs one iteration at a time: its RANGE
stands among the deps of an AFTER on memory, which then means the memory as the iteration finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from morok.dtype import DType
from morok.ir import numeric
from morok.ir.interpret.compute import compute, joined, lanes_of, spread
from morok.ir.interpret.memory import (
    EFFECTS,
    ORDERING,
    Write,
    Writes,
    addresses_of,
    apply,
    by_memory,
    chain_of,
    effects_of,
    indexed_dims,
    lane_count,
    memory_of,
    positions_of,
    read_views,
    root_of,
)
from morok.ir.interpret.values import (
    Value,
    align,
    combine,
    fault,
    loop_order,
    over,
    union,
)
from morok.ir.numeric import Array
from morok.ir.ops import Ops
from morok.ir.optable import GroupOp
from morok.ir.shapes import Dim
from morok.ir.uop import UOp

__all__ = ["Evaluator"]


@dataclass(slots=True)
class _Loop:
    """One iteration in execution: the range, its counter, the writes of the loop until now."""

    axis: UOp
    counter: int
    written: dict[UOp, Writes]


@dataclass(slots=True)
class _Inputs:
    """What all scopes of one evaluation share."""

    memories: Mapping[UOp, Any]
    slots: Sequence[Any]
    variables: dict[str, int]
    closers: dict[UOp, list[UOp]] = field(default_factory=dict)  # of loops run step by step
    contents: dict[UOp, tuple[Writes, Value]] = field(default_factory=dict)  # newest known


class Evaluator:
    """Values of the nodes below `root`.

    `memories` gives the contents of BUFFER and PARAM nodes, `slots` those of PARAMs by slot,
    `variables` the values of DEFINE_VARs by name. InvalidGraphError for a graph without meaning:
    an index out of bounds, a missing input, an op that depends on a device.
    """

    def __init__(
        self,
        root: UOp,
        memories: Mapping[UOp, Any],
        slots: Sequence[Any] = (),
        variables: Mapping[str, int] | None = None,
    ) -> None:
        self._inputs = _Inputs(memories, slots, dict(variables or {}))
        self._scope: list[_Loop] = []  # loops in execution, outermost first
        self._outer: Evaluator | None = None
        self._values: dict[UOp, Value] = {}
        self._writes: dict[UOp, Writes] = {}
        self._calls: dict[UOp, Evaluator] = {}  # inside of the body
        self._scan(root)

    def _scan(self, root: UOp) -> None:
        """Find bound variables, and the loops that must run step by step."""
        ordered: set[UOp] = set()
        nodes = root.toposort()
        for node in nodes:
            if node.op is Ops.BIND and node.src[1].op is Ops.CONST:
                self._inputs.variables.setdefault(node.src[0].arg[0], node.src[1].arg)
        for view in read_views(root):
            if view.op in ORDERING and memory_of(view) is not None:
                ordered.update(dep for dep in view.src[1:] if dep.op is Ops.RANGE)
        for node in nodes:
            if node.op in (Ops.STORE, Ops.END):
                for axis in node.ended_ranges:
                    if axis in ordered:
                        self._inputs.closers.setdefault(axis, []).append(node)

    def _inner(self, loop: _Loop) -> Evaluator:
        """The scope of one iteration of a loop in this scope."""
        inner = Evaluator.__new__(Evaluator)
        inner._inputs, inner._outer = self._inputs, self
        inner._scope = [*self._scope, loop]
        inner._values, inner._writes, inner._calls = {}, {}, {}
        return inner

    # Demand --------------------------------------------------------------------------------------

    def value(self, node: UOp) -> Value:
        """The value of `node`."""
        self._demand(node)
        return self._values[node]

    def writes(self, node: UOp) -> Writes:
        """What executing `node` (STORE, END, SINK …) writes, in order."""
        self._demand(node)
        return self._writes.get(node, ())

    def contents(self, memory: UOp, writes: Writes) -> Value:
        """A memory after `writes`, flat; of registers, for each iteration of the open loops."""
        done, contents = self._inputs.contents.get(memory, ((), None))
        if contents is None or done != writes[: len(done)]:
            done, contents = (), Value((), self._initial(memory))
        for write in writes[len(done) :]:
            contents = apply(contents, write)
        self._inputs.contents[memory] = (writes, contents)
        return contents

    def _demand(self, root: UOp) -> None:
        """Evaluate `root` and what it needs, without recursion along the graph."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._values or node in self._writes:
                stack.pop()
                continue
            if self._outer is not None and not self._varies(node):
                self._borrow(node, self._outer)
                continue
            ordered = self._ordered_axes(node)
            if ordered:
                self._iterate(ordered[0])
                continue
            waiting = [
                source
                for source in self._needs(node)
                if source not in self._values and source not in self._writes
            ]
            if waiting:
                stack.extend(reversed(waiting))
            elif node.op in EFFECTS and node.dtype.kind == "v":
                self._writes[node] = self._execute(node)
            else:
                self._values[node] = self._compute(node)

    def _varies(self, node: UOp) -> bool:
        """Whether `node` differs from iteration to iteration of the innermost loop."""
        axis = self._scope[-1].axis
        return axis in node.open_ranges or axis in node.ended_ranges

    def _borrow(self, node: UOp, outer: Evaluator) -> None:
        outer._demand(node)
        if node in outer._writes:
            self._writes[node] = outer._writes[node]
        else:
            self._values[node] = outer._values[node]

    def _needs(self, node: UOp) -> tuple[UOp, ...]:
        """The sources whose values are needed."""
        op, src = node.op, node.src
        if op is Ops.STORE:
            needed = [src[1]]
            for target in addresses_of(src[0]):
                view = target.src[0] if target.op is Ops.INDEX else target
                needed += target.src[1:] if target.op is Ops.INDEX else ()
                needed += [dep for part in chain_of(view) for dep in effects_of(part)]
            return tuple(needed)
        if op in ORDERING:
            return (src[0], *effects_of(node))
        if op is Ops.LOAD:
            return (*(s for address in addresses_of(src[1]) for s in address.src), *src[2:])
        if op is Ops.CALL:
            return tuple(arg for arg in src[1:] if arg.op is not Ops.RANGE)
        if op in (Ops.BUFFER, Ops.PARAM, Ops.FUNCTION):
            return ()
        return src[:1] if op in GroupOp.RangeEnding else src

    def _compute(self, node: UOp) -> Value:
        own = _OWN.get(node.op)
        return compute(self, node) if own is None else own(self, node)

    # Leaves --------------------------------------------------------------------------------------

    def _running(self, axis: UOp) -> _Loop | None:
        """The loop of `axis` that is in execution."""
        return next((loop for loop in self._scope if loop.axis is axis), None)

    def _axis(self, node: UOp) -> Value:
        kind = numeric.carrier(node.dtype)
        loop = self._running(node)
        if loop is not None:
            return Value((), np.array(loop.counter, kind))
        return Value((node,), np.arange(self.size(node), dtype=kind))

    def number(self, dim: Dim) -> int:
        """The value of a dim."""
        return int(self.value(dim).data) if isinstance(dim, UOp) else int(dim)

    def size(self, axis: UOp) -> int:
        end = self.value(axis.src[0])
        if end.data.size != 1:
            raise fault(axis, "loop-bound", "an end that no other loop changes", "one that varies")
        return int(end.data.reshape(()))

    def _variable(self, node: UOp) -> Value:
        name, low, high = node.arg
        bound = self._inputs.variables.get(name)
        if bound is None or not low <= bound <= high:
            raise fault(node, "variable", f"a value of {name} within {low}..{high}", bound)
        return Value((), np.array(bound, numeric.carrier(node.dtype)))

    def _bound(self, node: UOp) -> Value:
        return self.value(node.src[1])

    def _memory(self, node: UOp) -> Value:
        return Value((), self._initial(node))

    def _initial(self, memory: UOp) -> Array:
        """The contents of a memory before this graph writes to it."""
        if memory.op is Ops.CONTIGUOUS:
            return self.value(memory.src[0]).data.reshape(-1)
        size, element = lane_count(memory), memory.dtype.base
        if memory.op in (Ops.DEFINE_REG, Ops.DEFINE_LOCAL):
            return numeric.uninitialised(size, element)
        given = self._inputs.memories.get(memory)
        slots = self._inputs.slots
        if given is None and memory.op is Ops.PARAM and memory.arg[0] < len(slots):
            given = slots[memory.arg[0]]
        if given is None:
            raise fault(memory, "input", "an array for this memory", "none")
        flat = numeric.from_memory(given, element)
        if flat.size != size:
            raise fault(memory, "input", f"{size} elements", flat.size)
        return flat

    # Memory --------------------------------------------------------------------------------------

    def _buffer_view(self, node: UOp) -> Value:
        size, offset = node.arg
        return self.value(node.src[0]).map(lambda data, _: data[..., offset : offset + size])

    def _after(self, node: UOp) -> Value:
        memory = memory_of(node.src[0])
        if memory is None:
            return self.value(node.src[0])
        contents = self.contents(memory, self._history(node, memory))
        return contents.map(lambda data, _: data[..., positions_of(node, self.number)])

    def _history(self, view: UOp, memory: UOp) -> Writes:
        """All writes that a view of `memory` comes after, in order, each once."""
        history: dict[Write, None] = {}
        for op in chain_of(view):
            if op.op not in ORDERING:
                continue
            for loop in self._scope:
                if loop.axis in op.src[1:] and memory in loop.written:
                    history = dict.fromkeys(loop.written[memory])
            for dep in effects_of(op):
                history |= dict.fromkeys(w for w in self.writes(dep) if w.memory is memory)
        return tuple(history)

    def _address(self, index: UOp, lanes: int) -> tuple[Value, Value]:
        """Flat positions within the indexed dims of an INDEX, and where they count."""
        buffer = index.src[0]
        positions = [self.value(position) for position in index.indices]
        element = buffer.dtype.base.count if buffer.dtype.is_ptr else 1
        if element > 1:
            lanes = 1
        if lanes > 1 and not any(position.rank for position in positions):
            # One address and several lanes: consecutive elements.
            spread = [p.map(lambda data, _: data[..., None]) for p in positions]
            spread[-1] = spread[-1].map(lambda data, _: data + np.arange(lanes))
            positions = spread
        dims = indexed_dims(buffer, len(positions))
        gate = Value((), np.ones((), np.bool_)) if index.gate is None else self.value(index.gate)
        axes, (mask, *arrays), rank = align([gate, *positions])
        for position in positions:
            if position.invalid is not None:
                mask = mask & ~over(position.invalid, position.ranges, axes, rank)
        flat = np.zeros((1,) * (len(axes) + rank), np.int64)
        for dim, array in zip(dims, arrays, strict=True):
            wrong = mask & ((array < 0) | (array >= dim))
            if wrong.any():
                shown = np.broadcast_to(array, wrong.shape)[wrong][0]
                raise fault(index, "index-bounds", f"an index within 0..{dim - 1}", int(shown))
            flat = flat * dim + np.where(mask, array, 0)
        if element > 1:
            flat, mask = flat[..., None] * element + np.arange(element), mask[..., None]
        return Value(axes, flat), Value(axes, np.broadcast_to(mask, flat.shape))

    def _index(self, node: UOp) -> Value:
        return self._gather(node, node.dtype, None)

    def _load(self, node: UOp) -> Value:
        addresses = addresses_of(node.src[1])
        for address in addresses:
            if address.op is not Ops.INDEX:
                raise fault(node, "interpretable", "an INDEX as address", address.op.name)
        alt = self.value(node.src[2]) if len(node.src) == 3 else None
        if len(addresses) == 1:
            return self._gather(addresses[0], node.dtype, alt)
        start, parts = 0, []
        for address in addresses:
            lanes = address.dtype.base.count
            part = None if alt is None else lanes_of(alt, start, lanes)
            parts.append(self._gather(address, address.dtype.base, part))
            start += lanes
        return joined(parts)

    def _gather(self, index: UOp, dtype: DType, alt: Value | None) -> Value:
        """What an INDEX reads; where its gate is false `alt`, or 0."""
        buffer = self.value(index.src[0])
        places, gate = self._address(index, dtype.count)
        axes, rank = union(buffer.ranges, places.ranges), places.rank
        lead, indexed = len(buffer.ranges), len(index.indices)
        head, own = buffer.data.shape[:lead], buffer.data.shape[lead:]
        size = int(np.prod(own[:indexed]))
        data = buffer.data.reshape((*head, size, *own[indexed:]))
        if size == 0:
            # Nothing to read, and so no gate holds: any element will do.
            data = np.zeros((*head, 1, *own[indexed:]), data.dtype)
        counters = [
            over(np.arange(head[place]), (axis,), axes, rank)
            for place, axis in enumerate(buffer.ranges)
        ]
        read = np.asarray(data[(*counters, places.over(axes, rank))])
        if gate.data.all():
            return Value(axes, read)
        mask = gate.over(axes, rank)
        mask = mask.reshape((*mask.shape, *(1,) * (read.ndim - mask.ndim)))
        other = Value((), np.zeros((), read.dtype)) if alt is None else alt
        return combine(
            [Value(axes, mask), Value(axes, read), other], lambda parts: np.where(*parts)
        )

    # Effects -------------------------------------------------------------------------------------

    def _execute(self, node: UOp) -> Writes:
        match node.op:
            case Ops.STORE:
                return self._store(node)
            case Ops.END:
                return tuple(write.close(node.src[1:]) for write in self.writes(node.src[0]))
            case Ops.CALL:
                return self._call_writes(node)
        done: dict[Write, None] = {}
        for part in node.src:
            memory = memory_of(part) if part.op in ORDERING else None
            writes = self.writes(part) if memory is None else self._history(part, memory)
            done |= dict.fromkeys(writes)
        return tuple(done)

    def _store(self, node: UOp) -> Writes:
        target, stored = node.src[:2]
        value = self.value(stored)
        if target.op is not Ops.PTRCAT:
            return self._store_at(node, target, value, stored.dtype.count)
        start = 0
        done: dict[Write, None] = {}
        for address in target.src:
            lanes = address.dtype.base.count
            part = lanes_of(value, start, lanes)
            done |= dict.fromkeys(self._store_at(node, address, part, lanes))
            start += lanes
        return tuple(done)

    def _store_at(self, node: UOp, target: UOp, value: Value, lanes: int) -> Writes:
        """The writes of STORE `node` at one address."""
        gate = Value((), np.ones((), np.bool_))
        if target.op is Ops.INDEX:
            view = target.src[0]
            places, gate = self._address(target, lanes)
            inside = positions_of(view, self.number).reshape(-1)
            places = places.map(lambda data, _: inside[data])
        else:
            view = target
            places = Value((), positions_of(view, self.number))
        memory = root_of(view)
        closed = [axis for axis in node.src[2:] if self._running(axis) is None]
        axes, arrays, _ = align([places, gate, value])
        positions, mask, data = (
            spread(self, Value(axes, array), closed).data for array in np.broadcast_arrays(*arrays)
        )
        data = numeric.settle(data, memory.dtype.base)
        write = Write(memory, union(axes, closed), frozenset(closed), positions, mask, data)
        return (*self._history(view, memory), write)

    def _ordered_axes(self, node: UOp) -> list[UOp]:
        """Loops that `node` closes and that must run step by step, outermost first."""
        if node.op not in (Ops.STORE, Ops.END):
            return []
        closers = self._inputs.closers
        axes = [a for a in node.ended_ranges if a in closers and self._running(a) is None]
        return sorted(axes, key=loop_order)

    def _iterate(self, axis: UOp) -> None:
        """Run the loop of `axis` with every statement that closes it."""
        closers = self._inputs.closers[axis]
        collected: dict[UOp, dict[Write, None]] = {closer: {} for closer in closers}
        written: dict[UOp, Writes] = {}
        for counter in range(self.size(axis)):
            inner = self._inner(_Loop(axis, counter, written))
            for closer in closers:
                collected[closer] |= dict.fromkeys(inner.writes(closer))
            written = by_memory(write for part in collected.values() for write in part)
        for closer, writes in collected.items():
            self._writes[closer] = tuple(writes)

    # Calls ---------------------------------------------------------------------------------------

    def _inside(self, body: UOp, args: Sequence[UOp]) -> Evaluator:
        """An evaluator of a callable's body, its PARAMs bound to the arguments."""
        slots = [numeric.to_memory(self.value(arg).data, arg.dtype).reshape(-1) for arg in args]
        given = self._inputs.memories
        memories = {memory: given[memory] for memory in given if memory.op is not Ops.PARAM}
        return Evaluator(body, memories, slots, self._inputs.variables)

    def _call_value(self, node: UOp) -> Value:
        source = node.src[0] if node.op is Ops.GET_TUPLE else node
        evaluator: Evaluator = self
        if source.op is Ops.CALL:
            body = _body(source)
            inside = self._calls.get(source)
            if inside is None:
                inside = self._calls[source] = self._inside(body, source.src[1:])
            evaluator, source = inside, body
        if node.op is Ops.GET_TUPLE:
            if source.op is not Ops.TUPLE:
                raise fault(node, "tuple-index", "a TUPLE", source.op.name)
            source = source.src[node.arg]
        return evaluator.value(source)

    def _call_writes(self, node: UOp) -> Writes:
        """A CALL of a kernel leaves its argument buffers as the body leaves its PARAMs."""
        body = _body(node)
        args = [arg for arg in node.src[1:] if arg.op is not Ops.RANGE]
        inner = self._inside(body, args)
        written: list[Write] = []
        for memory, writes in by_memory(inner.writes(body)).items():
            view = args[memory.arg[0]]
            data = inner.contents(memory, writes).data
            places = positions_of(view, self.number).reshape(-1)
            mask = np.ones(places.shape, np.bool_)
            root = root_of(view)
            written += self._history(view, root)
            written.append(Write(root, (), frozenset(), places, mask, data))
        return tuple(dict.fromkeys(written))


_OWN: Final[dict[Ops, Callable[[Evaluator, UOp], Value]]] = {
    Ops.RANGE: Evaluator._axis,
    Ops.SPECIAL: Evaluator._axis,
    Ops.BUFFER: Evaluator._memory,
    Ops.PARAM: Evaluator._memory,
    Ops.DEFINE_REG: Evaluator._memory,
    Ops.DEFINE_LOCAL: Evaluator._memory,
    Ops.DEFINE_VAR: Evaluator._variable,
    Ops.BIND: Evaluator._bound,
    Ops.INDEX: Evaluator._index,
    Ops.LOAD: Evaluator._load,
    Ops.BUFFER_VIEW: Evaluator._buffer_view,
    **dict.fromkeys(ORDERING, Evaluator._after),
    Ops.GET_TUPLE: Evaluator._call_value,
    Ops.CALL: Evaluator._call_value,
}


def _body(call: UOp) -> UOp:
    """What a CALL executes."""
    body: UOp = call.src[0]
    while body.op is Ops.FUNCTION:
        body = body.src[0]
    return body
