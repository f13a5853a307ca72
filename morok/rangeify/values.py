"""The walk up of rangeify: values over the indices at which they are used, and their STOREs."""

from __future__ import annotations

from morok.dtype import AddrSpace, DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import (
    BufferizeOpts,
    GroupOp,
    Ops,
    ReduceOp,
    UOp,
    element_reads,
    is_carried,
    is_ordered,
    loops_of,
    parts_of,
)
from morok.optimizer import guard_of
from morok.rangeify.cost import LEAVES, numel, tensor_reads, value_sources
from morok.rangeify.movement import Index, apply_movement, below_movement, flatten
from morok.rangeify.places import Decisions, Kernel, Ranged, Use


class Values:
    """Builds what was decided."""

    def __init__(self, decided: Decisions) -> None:
        self.decided = decided
        self.values: dict[tuple[UOp, Use], UOp] = {}
        self.buffers: dict[UOp, UOp] = {}
        self.stores: dict[Kernel, dict[UOp, UOp]] = {k: {} for k in decided.kernels}

    def build(self) -> Ranged:
        """The STOREs of every kernel, and the buffers they go to."""
        decided = self.decided
        for u in decided.order:
            uses = decided.uses.get(u, {})
            if u.op in LEAVES or (u.shape is not None and numel(u) == 0):
                value = u if u.op in LEAVES else _zero_of(u.dtype)
                self.values.update({(u, use): value for use in uses})
            elif u.op is Ops.PARAM:
                for use in uses:
                    self.values[u, use] = _read(u, use.index[0], use.valid)
            elif is_ordered(u) and u in decided.home:
                self._store_ordered(u, uses)
            elif u in decided.home:
                self._store(u, uses)
            elif u in decided.rows:
                row = decided.rows[u]
                inner = self._compute(u, row.at)
                opts = BufferizeOpts(None, AddrSpace.LOCAL, True)
                scratch = UOp(Ops.BUFFERIZE, inner.dtype, (inner, *row.ranges), opts)
                for use in uses:
                    index = [
                        i
                        for i, d in zip(
                            use.index[row.kept :], (u.shape or ())[row.kept :], strict=True
                        )
                        if d != 1
                    ]
                    self.values[u, use] = UOp(Ops.INDEX, u.dtype, (scratch, *index), False)
            else:
                for use in uses:
                    self.values[u, use] = self._compute(u, use)
        if decided.elements:
            known = {place.src[0]: self.values[at] for at, place in decided.elements.items()}
            for made in self.stores.values():
                made.update({u: _resolved(store, known) for u, store in made.items()})
        return Ranged(decided.kernels, self.stores, self.buffers)

    def _buffer(self, u: UOp) -> UOp:
        """A new buffer for the value of `u`."""
        place = UOp(Ops.LUNIQUE, dtypes.void, (), len(self.buffers))
        return UOp(Ops.BUFFER, u.dtype, (place, _device(u)), numel(u))

    def _store(self, u: UOp, uses: dict[Use, None]) -> None:
        home = self.decided.home[u]
        value = self._compute(u, home)
        if u.op is Ops.AFTER:
            self.buffers[u] = below_movement(u.src[0])
            target = _view_read(u.src[1].src[0], home.index, None)
        else:
            self.buffers[u] = self._buffer(u)
            target = self._stored(u, home)
        store = UOp(Ops.STORE, dtypes.void, (target, value, *home.kernel.ranges))
        self.stores[home.kernel][u] = store
        for use in uses:
            if use == home:
                self.values[u, use] = value
            elif u.op is Ops.AFTER:
                self.values[u, use] = _view_read(u.src[0], use.index, use.valid)
            else:
                self.values[u, use] = self._stored(u, use)

    def _stored(self, u: UOp, use: Use) -> UOp:
        """A read of what was stored of `u`."""
        return _read(self.buffers[u], flatten(use.index, u.shape or ()), use.valid)

    def _store_ordered(self, u: UOp, uses: dict[Use, None]) -> None:
        at_home, memory = self.decided.home[u], u.src[0]
        home = at_home.kernel
        if memory.op is Ops.CONTIGUOUS:
            fill = self.decided.fills[u]
            at_first = self.decided.home[fill]
            first = at_first.kernel
            self.buffers[u] = self.buffers[fill] = self._buffer(u)
            at = _read(self.buffers[u], flatten(first.index, first.shape), None)
            value = self._compute(fill, at_first)
            self.stores[first][fill] = UOp(Ops.STORE, dtypes.void, (at, value, *first.ranges))
        else:
            self.buffers[u] = below_movement(memory)
        new = self._elements(u, at_home)
        index, value = u.src[1].src[:2]
        for read in (*element_reads(parts_of(u)), index):
            if read is index or is_carried(read):
                new[read] = self._carried(read, self.buffers[u], new)
        self.stores[home][u] = UOp(
            Ops.STORE, dtypes.void, (new[index], value.substitute(new), *home.ranges)
        )
        for use in uses:
            if memory.op is Ops.CONTIGUOUS:
                self.values[u, use] = self._stored(u, use)
            else:
                self.values[u, use] = _view_read(memory, use.index, use.valid)

    def _carried(self, read: UOp, buffer: UOp, new: dict[UOp, UOp]) -> UOp:
        """The INDEX of an ordered loop's memory, seen from within the loop, on its buffer."""
        view, *loops = read.src[0].src if is_carried(read) else read.src[:1]
        at: list[UOp] = [i.substitute(new) for i in read.src[1:]]
        gate = at.pop() if read.arg else None
        plain = _view_read(view, tuple(at), gate, buffer)
        deps = [new[loop] for loop in loops if new[loop].op is Ops.RANGE]
        return plain.replace(src=(buffer.after(*deps), *plain.src[1:]))

    def _elements(self, u: UOp, use: Use) -> dict[UOp, UOp]:
        """What stands for the loops and the element reads of `u` when it is computed at `use`."""
        new = dict(zip(loops_of(u), use.index, strict=True))
        for read, at in zip(tensor_reads(u), self.decided.sources[u, use], strict=True):
            value = self.values[read.src[0], at]
            if read.gate is not None:
                inside = read.gate.substitute(new)
                value = UOp(Ops.WHERE, value.dtype, (inside, value, _zero_of(value.dtype)))
            new[read] = value
        return new

    def _compute(self, u: UOp, use: Use) -> UOp:
        sources = value_sources(u)
        below = self.decided.sources[u, use]
        parts = tuple(self.values[s, b] for s, b in zip(sources, below, strict=True))
        if u.op is Ops.PAD:
            valid = below[0].valid
            if valid is use.valid or valid is None:
                return parts[0]
            return UOp(Ops.WHERE, u.dtype, (valid, parts[0], _zero_of(u.dtype)))
        if u.op is Ops.REDUCE_AXIS:
            if numel(u.src[0]) == 0:
                return UOp.const(u.dtype, u.arg[0].identity(u.dtype))
            ranges = self.decided.reduce_ranges[u, use]
            return _reduce(u, parts[0], ranges) if ranges else parts[0]
        if u.op is Ops.BUFFERIZE:
            compute: UOp = u.src[0]
            return compute.substitute(self._elements(u, use))
        if u.op in GroupOp.ALU or u.op in (Ops.CAST, Ops.BITCAST, Ops.PRECAST):
            return UOp(u.op, u.dtype, parts, u.arg)
        if len(parts) == 1:
            return parts[0]
        raise InvalidGraphError(f"{u.op.name} has no meaning in a kernel", node=u, stage="rangeify")


def _reduce(u: UOp, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """REDUCE over the ranges. sum_r(sum_s(x)) is one sum over r and s, and so is
    sum_r(where(v, sum_s(x), 0)) if s is so short that asking v once for it saves nothing."""
    op: ReduceOp = u.arg[0]
    guards: list[UOp] = []
    inner = value
    while inner.op is Ops.WHERE and inner.src[2].op is Ops.CONST and inner.src[2].arg == 0:
        guards.append(inner.src[0])
        inner = inner.src[1]
    alike = inner.op is Ops.REDUCE and inner.arg is op and inner.dtype is u.dtype
    if op is ReduceOp.ADD and alike and not (guards and _is_long(inner)):
        value, ranges = inner.src[0], (*ranges, *inner.ended_ranges)
        for guard in reversed(guards):
            value = UOp(Ops.WHERE, value.dtype, (guard, value, _zero_of(value.dtype)))
    return UOp(Ops.REDUCE, u.dtype, (value, *ranges), op)


def _is_long(total: UOp) -> bool:
    """Does a REDUCE add enough terms that one more addition and choice does not show?"""
    terms = 1
    for rng in total.ended_ranges:
        terms *= 1 + (rng.vmax or _LONG_SUM)
    return terms >= _LONG_SUM


_LONG_SUM = 16


def _device(u: UOp) -> UOp:
    return u.device if u.device is not None else UOp.new_device()


def _zero_of(dtype: DType) -> UOp:
    return UOp.const(dtype, 0)


def _read(buffer: UOp, flat: UOp, valid: UOp | None) -> UOp:
    """INDEX of a flat buffer. The condition only guards memory: an index that is always inside
    needs none, since padding masks the value where it pads, and another one only some parts."""
    size = buffer.arg if buffer.op is Ops.BUFFER else buffer.arg[1]
    low, high = flat.vmin, flat.vmax
    if valid is not None and low is not None and high is not None and low >= 0 and high < size:
        valid = None
    if valid is not None:
        valid = guard_of(flat, valid, size)
    src = (buffer, flat) if valid is None else (buffer, flat, valid)
    return UOp(Ops.INDEX, buffer.dtype, src, valid is not None)


def _view_read(view: UOp, index: Index, valid: UOp | None, buffer: UOp | None = None) -> UOp:
    """INDEX of the buffer behind a chain of movement ops; `buffer` if it stands for that."""
    while view.op in GroupOp.Movement:
        index, valid = apply_movement(view, index, valid)
        view = view.src[0]
    return _read(view if buffer is None else buffer, flatten(index, view.shape or ()), valid)


def _resolved(store: UOp, known: dict[UOp, UOp]) -> UOp:
    """A STORE with the elements put in for what stands for them; their indices may have more."""
    while True:
        here = {
            u: known[u.src[0]] for u in store.toposort() if u.op is Ops.INDEX and u.src[0] in known
        }
        if not here:
            return store
        store = store.substitute(here)
