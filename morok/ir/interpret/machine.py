"""The reference machine for LINEAR: one op after the other, as a processor would.

The work-items of a group run in step: a value is an array with one row for each of them (or a
single row when they all agree), and a vector has its lanes as second axis. Groups run one after
the other. A kernel without hardware indices has one work-item in one group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from morok.dtype import AddrSpace
from morok.ir import numeric
from morok.ir.interpret.compute import tile_product
from morok.ir.interpret.memory import element_count, is_local_item, lane_count
from morok.ir.interpret.values import fault
from morok.ir.numeric import Array
from morok.ir.ops import Ops
from morok.ir.optable import GroupOp
from morok.ir.uop import UOp

__all__ = ["run"]

_SILENT: Final = frozenset(
    {
        Ops.AFTER,
        Ops.BARRIER,
        Ops.GROUP,
        Ops.INDEX,
        Ops.POINTER_INDEX,
        Ops.NOOP,
        Ops.PARAM,
        Ops.DEFINE_REG,
        Ops.DEFINE_LOCAL,
        Ops.SINK,
        Ops.SPECIAL,
    }
)
_PASSING: Final = frozenset({Ops.AFTER, Ops.BARRIER, Ops.NOOP})


@dataclass(slots=True)
class _Loop:
    axis: UOp
    start: int  # place of the RANGE
    size: int
    counter: int = 0


class _Machine:
    """The state of one work-group."""

    def __init__(
        self,
        ops: tuple[UOp, ...],
        memories: dict[UOp, Array],
        variables: Mapping[str, int],
        hardware: dict[UOp, Array],
        items: int,
    ) -> None:
        self.ops = ops
        self.items = items
        self.memories = memories
        self.variables = variables
        self.values: dict[UOp, Array] = dict(hardware)
        self.loops: list[_Loop] = []
        self.active = [np.ones(items, np.bool_)]
        for op in ops:
            if op.op is Ops.DEFINE_LOCAL:
                memories[op] = numeric.uninitialised(lane_count(op), op.dtype.base)
            elif op.op is Ops.DEFINE_REG:
                row = numeric.uninitialised(lane_count(op), op.dtype.base)
                memories[op] = np.tile(row, (items, 1))

    def run(self) -> None:
        place = 0
        while place < len(self.ops):
            place = self._step(place, self.ops[place])

    # Control -------------------------------------------------------------------------------------

    def _step(self, place: int, node: UOp) -> int:
        """Execute one op; the place of the next."""
        op = node.op
        if op is Ops.RANGE:
            return self._begin(place, node)
        if op is Ops.END:
            return self._end(place, node)
        if op is Ops.IF:
            holds = self._value(node, node.src[0])
            if holds.ndim > 1:  # a vector: entered when the condition holds in some lane
                holds = np.any(holds, axis=1, keepdims=False)
            holds = np.logical_and(holds, self.active[-1])
            if not holds.any():
                return self._closing(place, Ops.IF, Ops.ENDIF) + 1
            self.active.append(holds)
        elif op is Ops.ENDIF:
            self.active.pop()
        elif op is Ops.STORE:
            self._store(node)
        elif op not in _SILENT:
            self.values[node] = self._compute(node)
        return place + 1

    def _begin(self, place: int, node: UOp) -> int:
        bound = np.unique(self._value(node, node.src[0]))
        if bound.size != 1:
            raise fault(node, "loop-bound", "an end that all work-items agree on", bound.tolist())
        size = int(bound[0])
        if size <= 0:
            return self._closing(place, Ops.RANGE, Ops.END) + 1
        self.loops.append(_Loop(node, place, size))
        self._count(self.loops[-1])
        return place + 1

    def _count(self, loop: _Loop) -> None:
        self.values[loop.axis] = np.array([loop.counter], numeric.carrier(loop.axis.dtype))

    def _end(self, place: int, node: UOp) -> int:
        """The next iteration of the innermost loop that is not done, of those that end here."""
        for _ in node.src[1:]:
            loop = self.loops[-1] if self.loops else None
            if loop is None or loop.axis not in node.src[1:]:
                inner = "none" if loop is None else str(loop.axis.arg[0])
                raise fault(node, "nesting", "the innermost open RANGE", inner)
            loop.counter += 1
            if loop.counter < loop.size:
                self._count(loop)
                return loop.start + 1
            self.loops.pop()
        return place + 1

    def _closing(self, place: int, opening: Ops, closing: Ops) -> int:
        """The place of the op that closes the block opened at `place`."""
        depth = 0
        for at in range(place, len(self.ops)):
            op = self.ops[at].op
            depth += (op is opening) - (op is closing)
            if depth == 0:
                return at
        raise fault(self.ops[place], "nesting", f"a matching {closing.name}", "none")

    # Values --------------------------------------------------------------------------------------

    def _value(self, user: UOp, node: UOp) -> Array:
        while node.op in _PASSING:
            node = node.src[0]
        found = self.values.get(node)
        if found is None:
            raise fault(user, "use-before-definition", "a value computed before", node.op.name)
        return found

    def _compute(self, node: UOp) -> Array:
        op, src = node.op, node.src
        if op is Ops.CONST or op is Ops.VCONST:
            return numeric.constant_array(node.arg, node.dtype)[None]
        if op is Ops.DEFINE_VAR:
            return self._variable(node)
        if op is Ops.LOAD:
            return self._load(node)
        args = [self._value(node, source) for source in src]
        if op in GroupOp.ALU:
            return numeric.compute_loudly(op, node.dtype, args)
        match op:
            case Ops.CAST:
                return numeric.cast(args[0], node.dtype)
            case Ops.BITCAST:
                return numeric.bitcast(args[0], src[0].dtype, node.dtype)
            case Ops.VECTORIZE:
                return np.stack(np.broadcast_arrays(*args), axis=-1)
            case Ops.GEP:
                lanes = list(node.arg) if len(node.arg) > 1 else node.arg[0]
                return args[0] if src[0].dtype.count == 1 else args[0][:, lanes]
            case Ops.CAT:
                rows = max(len(arg) for arg in args)
                wide = [arg.reshape(len(arg), -1) for arg in args]
                parts = [np.broadcast_to(arg, (rows, arg.shape[1])) for arg in wide]
                return np.concatenate(parts, axis=1)
            case Ops.PRECAST | Ops.CONTIGUOUS:
                return numeric.settle(args[0], node.dtype)
            case Ops.BIND:
                return args[1]
            case Ops.WMMA if node.arg.threads == 1 and len(src) == 3:
                products = tile_product(args[0], args[1], node.arg)
                return (products + args[2]).astype(numeric.carrier(node.dtype))
        raise fault(node, "interpretable", "an op with a meaning in a LINEAR", op.name)

    def _variable(self, node: UOp) -> Array:
        name, low, high = node.arg
        bound = self.variables.get(name)
        if bound is None or not low <= bound <= high:
            raise fault(node, "variable", f"a value of {name} within {low}..{high}", bound)
        return np.array([bound], numeric.carrier(node.dtype))

    # Memory --------------------------------------------------------------------------------------

    def _address(self, node: UOp, lanes: int) -> tuple[UOp, Array, Array]:
        """Memory, positions of its scalars and where they count, one row a work-item."""
        if node.op is Ops.POINTER_INDEX:
            memory, positions = self._pointer(node)
        elif node.op is Ops.INDEX:
            memory = node.src[0]
            if len(node.indices) != 1:
                raise fault(node, "flat-index", "one flat index", f"{len(node.indices)} indices")
            positions = self._value(node, node.indices[0]).astype(np.int64)
        else:
            raise fault(node, "interpretable", "an INDEX as address", node.op.name)
        while memory.op in _PASSING:
            memory = memory.src[0]
        element = memory.dtype.base.count
        if element > 1:
            positions = positions[..., None] * element + np.arange(element)
        elif lanes > 1 and positions.ndim == 1:
            positions = positions[:, None] + np.arange(lanes)
        active = self.active[-1]
        gate = self._value(node, node.src[-1]) if node.op is Ops.INDEX and node.arg else active
        if positions.ndim > 1:
            active = active[:, None]
            gate = gate[:, None] if gate.ndim == 1 else gate
        mask = np.broadcast_to(gate & active, (self.items, *positions.shape[1:]))
        positions = np.broadcast_to(positions, mask.shape)
        wrong = mask & ((positions < 0) | (positions >= lane_count(memory)))
        if wrong.any():
            expected = f"an index within 0..{element_count(memory) - 1}"
            raise fault(node, "index-bounds", expected, int(positions[wrong][0]) // element)
        return memory, np.where(mask, positions, 0), mask

    def _pointer(self, node: UOp) -> tuple[UOp, Array]:
        """What a POINTER_INDEX points at: its memory, and the element at its byte offset."""
        offset = self._value(node, node.src[1]).astype(np.int64)
        memory = node.src[0]
        while memory.op in _PASSING or memory.op is Ops.POINTER_INDEX:
            if memory.op is Ops.POINTER_INDEX:
                offset = offset + self._value(memory, memory.src[1])
            memory = memory.src[0]
        size = memory.dtype.base.itemsize
        if (offset % size).any():
            raise fault(node, "alignment", f"a multiple of {size} bytes", offset.tolist())
        return memory, offset // size

    def _span(self, node: UOp, lanes: int) -> tuple[Array, int, int] | None:
        """The short way of a single work-item: contents, first position, number of scalars.

        None where `_address` has to look closer: several work-items, a position or gate for each
        lane, a gate that does not hold.
        """
        if self.items != 1 or node.op is not Ops.INDEX or len(node.src) != 2 + bool(node.arg):
            return None
        place = self._value(node, node.src[1])
        gate = self._value(node, node.src[2]) if node.arg else self.active[-1]
        if place.size != 1 or gate.size != 1 or not gate.item():
            return None
        memory = node.src[0]
        while memory.op in _PASSING:
            memory = memory.src[0]
        lanes = max(lanes, memory.dtype.base.count)
        start = place.item() * memory.dtype.base.count
        contents = self.memories[memory]
        contents = contents[0] if contents.ndim > 1 else contents
        inside = start >= 0 and start + lanes <= contents.size
        return (contents, start, lanes) if inside else None

    def _load(self, node: UOp) -> Array:
        span = self._span(node.src[1], node.dtype.count)
        if span is not None:
            contents, start, lanes = span
            read = contents[start : start + lanes].copy()
            return read if node.dtype.count == 1 else read[None]
        memory, positions, mask = self._address(node.src[1], node.dtype.count)
        contents = self.memories[memory]
        if memory.dtype.addrspace is AddrSpace.REG:
            rows = np.arange(self.items).reshape(-1, *(1,) * (positions.ndim - 1))
            read = contents[rows, positions]
        elif contents.size:
            read = contents[positions]
        else:
            read = np.zeros(positions.shape, contents.dtype)
        if mask.all():
            return read
        alt = self._value(node, node.src[2]) if len(node.src) == 3 else read.dtype.type(0)
        return np.where(mask, read, alt)

    def _store(self, node: UOp) -> None:
        target, stored = node.src[:2]
        span = self._span(target, stored.dtype.count)
        if span is not None:
            contents, start, lanes = span
            element = target.src[0].dtype.base
            contents[start : start + lanes] = numeric.settle(self._value(node, stored), element)
            return
        memory, positions, mask = self._address(target, stored.dtype.count)
        values = numeric.settle(self._value(node, stored), memory.dtype.base)
        values = np.broadcast_to(values, mask.shape)
        contents = self.memories[memory]
        if memory.dtype.addrspace is AddrSpace.REG:
            rows = np.arange(self.items).reshape(-1, *(1,) * (positions.ndim - 1))
            contents[np.broadcast_to(rows, mask.shape)[mask], positions[mask]] = values[mask]
        else:
            contents[positions[mask]] = values[mask]


def run(linear: UOp, buffers: Sequence[Any], variables: Mapping[str, int]) -> dict[UOp, Array]:
    """Execute a LINEAR; the contents of its PARAMs afterwards, flat, as values in flight."""
    ops = linear.src
    memories: dict[UOp, Array] = {}
    for op in ops:
        if op.op is Ops.PARAM:
            if op.arg[0] >= len(buffers):
                raise fault(op, "input", "an array for this slot", f"{len(buffers)} arrays")
            memories[op] = numeric.from_memory(buffers[op.arg[0]], op.dtype.base)
            if memories[op].size != op.arg[1]:
                raise fault(op, "input", f"{op.arg[1]} elements", memories[op].size)
    sizes = {op: _extent(op) for op in ops if op.op is Ops.SPECIAL}
    local = [op for op in sizes if is_local_item(op)]
    grid = [op for op in sizes if not is_local_item(op)]
    items = math.prod(sizes[op] for op in local)
    counters = np.indices([sizes[op] for op in local]).reshape(len(local), items)
    for group in itertools.product(*(range(sizes[op]) for op in grid)):
        hardware = {
            op: row.astype(numeric.carrier(op.dtype))
            for op, row in zip(local, counters, strict=True)
        }
        for op, number in zip(grid, group, strict=True):
            hardware[op] = np.array([number], numeric.carrier(op.dtype))
        with np.errstate(all="ignore"):
            _Machine(ops, memories, variables, hardware, items).run()
    return {op: contents for op, contents in memories.items() if op.op is Ops.PARAM}


def _extent(special: UOp) -> int:
    end = special.src[0]
    if end.op is not Ops.CONST:
        raise fault(special, "loop-bound", "a constant number of work-items", end.op.name)
    return int(end.arg)
