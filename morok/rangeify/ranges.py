"""Rangeify: from tensor ops to loops.

One walk from the outputs down gives every tensor node the indices at which it is read (its uses)
and decides where its value lives: fused into its user, in a scratch row of the user's kernel
(LOCAL), or in a buffer of its own (GLOBAL), stored by a kernel of its own or by a user's kernel
whose loops it shares. A second walk, upwards, builds the values over those indices (`values`).

The decisions follow from counts. `enclosing` gives the loops around each range in loop order; a
value is computed in the innermost loop that it depends on, so the product of the loops around that
place is how often it is computed. Where that exceeds its number of elements, work is repeated, and
repeated work is weighed against a round trip through memory.
"""

from __future__ import annotations

from math import prod

from morok._core import consumers
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import (
    AxisType,
    Dim,
    GroupOp,
    Ops,
    ReduceOp,
    UOp,
    extent,
    is_ordered,
    loops_of,
    room_of,
)
from morok.optimizer import range_end
from morok.rangeify.cost import (
    IDENTITY,
    LAUNCH,
    LEAVES,
    PASS,
    ROUND_TRIP,
    TILED,
    Cost,
    count_costs,
    is_contraction,
    numel,
    tensor_reads,
    value_sources,
)
from morok.rangeify.movement import Index, apply_movement, conjunction, flatten
from morok.rangeify.places import Decisions, Kernel, Row, Use, dim_of

LOCAL_BYTES = 64 * 1024  # a scratch row that stays in the caches near the core
SHARED = 32  # rows of a contraction for which one copy of what they read is made
AGAIN = 10  # times that such copies may take up each element
_ZERO = UOp.const(dtypes.index, 0)


class Rangeify:
    """One run over one sink. `forced` nodes get a buffer of their own, `apart` a kernel of their
    own."""

    def __init__(self, sink: UOp, forced: frozenset[UOp], apart: frozenset[UOp]) -> None:
        self.sink = sink
        self.forced = forced
        self.apart = apart
        self.decided = Decisions(sink.toposort())
        self.costs: dict[UOp, Cost] = count_costs(self.decided.order)
        self.users: dict[UOp, list[UOp]] = consumers(sink)
        self.enclosing: dict[UOp, tuple[UOp, ...]] = {}
        # Kernels of outputs that nobody reads from, by their shape and an array that they read.
        self._unread: dict[tuple[tuple[int, ...], UOp], list[Kernel]] = {}
        self._next_range = 0

    # ---- loops ----

    def _range(self, end: Dim, axis_type: AxisType, around: tuple[UOp, ...]) -> UOp:
        if isinstance(end, UOp) and extent(end) < 2:
            raise InvalidGraphError(
                "a symbolic dim has room for two elements at least: raise the variable's maximum",
                node=end,
                stage="rangeify",
            )
        r = UOp.range(end, self._next_range, axis_type)
        self._next_range += 1
        self.enclosing[r] = (*around, r)
        return r

    def _loops(
        self, shape: tuple[Dim, ...], axis_type: AxisType, around: tuple[UOp, ...]
    ) -> tuple[Index, tuple[UOp, ...]]:
        """A fresh loop for each dim that is not 1: the index and the loops."""
        index: list[UOp] = []
        for d in shape:
            if d == 1:
                index.append(_ZERO)
                continue
            r = self._range(d, axis_type, around)
            around = self.enclosing[r]
            index.append(r)
        return tuple(index), tuple(i for i in index if i.op is Ops.RANGE)

    def around(self, use: Use) -> tuple[UOp, ...]:
        """The loops around the place where a value at this use is computed, outermost first."""
        best: tuple[UOp, ...] = ()
        for r in use.open_ranges():
            chain = self.enclosing[r]
            if len(chain) > len(best):
                best = chain
        return best

    def times(self, use: Use) -> int:
        """How often a value at this use is computed."""
        return prod(range_end(r) for r in self.around(use))

    def _new_kernel(self, shape: tuple[Dim, ...]) -> Kernel:
        index, ranges = self._loops(shape, AxisType.LOOP, ())
        k = Kernel(len(self.decided.kernels), shape, index, ranges)
        self.decided.kernels.append(k)
        return k

    # ---- the walk down: where does each value live ----

    def run(self) -> Decisions:
        """What `values` builds."""
        roots = dict.fromkeys(self.sink.src)
        for u in reversed(self.decided.order):
            if u.shape is None or u.op is Ops.PARAM or u.op in LEAVES or u is self.sink:
                continue
            uses = self.decided.uses.get(u, {})
            if (not uses and u not in roots) or numel(u) == 0:
                continue
            if is_ordered(u):
                self._make_ordered(u, uses)
            elif u in roots or u.op in _MATERIALISED or u in self.forced:
                self._make_global(u, uses)
            else:
                self._place(u, uses)
        return self.decided

    def _place(self, u: UOp, uses: dict[Use, None]) -> None:
        if self._is_inline(u) or self._is_view(u, uses) or self._fusible(u, uses):
            for use in uses:
                self._descend(u, use)
        elif not self._make_row(u, uses):
            self._make_global(u, uses)

    def _is_inline(self, u: UOp) -> bool:
        """Plain arithmetic on the index costs nothing worth keeping."""
        return u.op in IDENTITY or (u.op is Ops.BUFFERIZE and not value_sources(u))

    def _is_view(self, u: UOp, uses: dict[Use, None]) -> bool:
        """A movement op costs index arithmetic only, but for padding that asks a question at every
        read."""
        if u.op is not Ops.PAD:
            return u.op in GroupOp.Movement and not self._trims_a_sum(u, uses)
        asks = any(apply_movement(u, use.index, use.valid)[1] is not use.valid for use in uses)
        return not asks or self._is_shared_operand(u, uses)

    def _is_shared_operand(self, u: UOp, uses: dict[Use, None]) -> bool:
        """Is this padded image read by one contraction, of which many rows share what they read?
        The kernel copies it near the core, tile by tile, for all of them (`optimizer/staging.py`),
        and the copy asks the question: once for SHARED multiply-adds and more, which is less than a
        buffer costs as long as the windows do not overlap too often (AGAIN). Where each sum looks
        through a window much smaller than the image, what windows share is copied once."""
        if len(uses) > 1:
            return False
        (use,) = uses
        own = use.open_ranges()
        distinct = prod(range_end(r) for r in own)
        summed = [range_end(r) for r in own if r.arg[1].is_reduce]
        rarely = distinct <= AGAIN * numel(u) or prod(summed) * SHARED <= numel(u)
        return bool(summed) and rarely and self.times(use) >= SHARED * distinct

    def _trims_a_sum(self, u: UOp, uses: dict[Use, None]) -> bool:
        """Is this all that anybody wants of a reduction which gets a buffer? Then only this part
        is computed (the windows' adjoint without what lies beyond the image)."""
        if len(uses) == 1 and self.times(next(iter(uses))) <= numel(u):
            return False
        below = u
        while below.op in GroupOp.Movement:
            below = below.src[0]
            if len(self.users[below]) > 1 or below.op in (Ops.PAD, Ops.EXPAND):
                return False
        if below.op is not Ops.REDUCE_AXIS or numel(below) <= numel(u):
            return False
        return len(uses) > 1 or not self._sums_on(below, next(iter(uses)))

    def _fusible(self, u: UOp, uses: dict[Use, None]) -> bool:
        cost = self.costs[u]
        count = numel(u)
        if u.op in GroupOp.Movement and u.op is not Ops.PAD:
            return False  # no view: it trims a sum
        if u.op is Ops.REDUCE_AXIS:
            if len(uses) > 1:
                return False
            (use,) = uses
            if self._sums_on(u, use):
                return True
            if self.times(use) > count:
                return False
            return not is_contraction(u, self.costs) or self._is_epilogue(use)
        times = sum(self.times(use) for use in uses)
        if len({use.kernel for use in uses}) == 1:
            return (times - count) * cost.work <= ROUND_TRIP * count
        # In several kernels: computing it again reads its leaves again; a buffer is written once
        # and read by all.
        n = len(uses)
        read = sum(min(numel(leaf), count) for leaf in cost.leaves)
        again = max(times, n * count) * cost.work + PASS * n * read
        buffered = count * cost.work + PASS * (read + (n + 1) * count) + LAUNCH
        return again <= buffered

    def _sums_on(self, u: UOp, use: Use) -> bool:
        """Is this sum only moved about and then summed on, by one user, so that both become one?

        Where the outer sum looks beyond the value (padding), the inner one works in vain. Up to as
        much as it works to the purpose, and as long as the vain multiply-adds take less than a
        buffer would, that is the cheaper way.
        """
        wanted = self._summed_on(u)
        times = self.times(use)
        vain = (times - wanted) * self._steps(u)
        return wanted > 0 and times <= 2 * numel(u) and vain <= TILED * ROUND_TRIP * wanted

    def _summed_on(self, u: UOp) -> int:
        """How many elements of a sum another sum takes up, if nothing else does; 0 otherwise."""
        if u.arg[0] is not ReduceOp.ADD:
            return 0
        wanted = numel(u)
        while True:
            users = self.users[u]
            if len(users) != 1:
                return 0
            u = users[0]
            if u.op is Ops.REDUCE_AXIS:
                return wanted if u.arg[0] is ReduceOp.ADD else 0
            if u.op not in GroupOp.Movement:
                return 0
            wanted = min(wanted, numel(u))

    def _steps(self, u: UOp) -> int:
        """Steps of a sum for each element, with those of sums that go on in it."""
        steps = 1
        while True:
            below = u.src[0]
            steps *= numel(below) // max(numel(u), 1)
            while below.op in GroupOp.Movement and below.op is not Ops.EXPAND:
                below = below.src[0]
            if below.op is not Ops.REDUCE_AXIS or not self._summed_on(below):
                return steps
            u = below

    def _is_epilogue(self, use: Use) -> bool:
        """The value is wanted once for each element of the kernel's output, outside any
        reduction."""
        return self.around(use) == use.kernel.ranges

    def _make_row(self, u: UOp, uses: dict[Use, None]) -> bool:
        """LOCAL: users in one kernel agree on leading indices, and what remains is a small row."""
        first = next(iter(uses))
        if self.costs[u].contracts or any(use.kernel is not first.kernel for use in uses):
            return False
        if any(use.valid is not None for use in uses):
            return False
        shape = u.shape or ()
        kept = 0
        while kept < len(shape) and all(use.index[kept] is first.index[kept] for use in uses):
            kept += 1
        # The kept dims must be exactly the loops around the fill, or the fill is repeated.
        while True:
            at = Use(first.kernel, first.index[:kept], None)
            around = self.around(at)
            if all(i.op in (Ops.RANGE, Ops.CONST) for i in at.index) and prod(
                range_end(r) for r in around
            ) == room_of(shape[:kept]):
                break
            if kept == 0:
                return False
            kept -= 1
        if room_of(shape[kept:]) * u.dtype.bits > LOCAL_BYTES * 8 or room_of(shape[kept:]) <= 1:
            return False
        index, ranges = self._loops(shape[kept:], AxisType.LOOP, around)
        at = Use(first.kernel, (*first.index[:kept], *index), None)
        self.decided.rows[u] = Row(ranges, kept, at)
        self._descend(u, at)
        return True

    def _make_global(self, u: UOp, uses: dict[Use, None]) -> None:
        shape = u.src[1].src[0].shape if u.op is Ops.AFTER else u.shape
        assert shape is not None
        home = None
        if u not in self.apart:
            home = self._join(uses, shape) if uses else self._join_sibling(u, shape)
        if home is None:
            fresh = self._new_kernel(shape)
            fresh.closed = u in self.apart
            home = fresh.own
        if not uses:
            for leaf in self._arrays(u):
                self._unread.setdefault((shape, leaf), []).append(home.kernel)
        self._settle(u, home, uses)

    def _settle(self, u: UOp, home: Use, uses: dict[Use, None]) -> None:
        """`u` is computed and stored at `home`; the kernels of its users wait for that one."""
        home.kernel.outputs.append(u)
        self.decided.home[u] = home
        for use in uses:
            if use.kernel is not home.kernel:
                home.kernel.readers[use.kernel] = None
                use.kernel.reads[u] = None
        self._descend(u, home)

    def _make_ordered(self, u: UOp, uses: dict[Use, None]) -> None:
        """A kernel for an ordered loop, after one that fills its memory."""
        home = self._new_kernel(tuple(dim_of(r) for r in loops_of(u)))
        home.closed = home.ordered = True
        self._settle(u, home.own, uses)
        memory = u.src[0]
        if memory.op is Ops.CONTIGUOUS:
            fill = UOp(Ops.NOOP, u.dtype, (memory.src[0], u))
            self.decided.fills[u] = fill
            first = self._new_kernel(memory.shape or ())
            first.closed = True
            first.readers[home] = None
            self._settle(fill, first.own, {})

    def _join(self, uses: dict[Use, None], shape: tuple[int, ...]) -> Use | None:
        """The use in a user's kernel that can store the value too: it wants each element once, in
        the order of its output loops (dims of one element between do not matter), and no other
        user's kernel comes before it."""
        for use in uses:
            k = use.kernel
            loops = tuple(i for i in use.index if i.op is Ops.RANGE)
            if (
                k.closed
                or use.valid is not None
                or loops != k.ranges
                or _wide_dims(shape) != _wide_dims(k.shape)
            ):
                continue
            if any(v.kernel is k and v is not use for v in uses):
                continue
            others = {v.kernel for v in uses} - {k}
            if not any(self._reaches(o, k) for o in others):
                return use
        return None

    def _join_sibling(self, u: UOp, shape: tuple[int, ...]) -> Use | None:
        """A kernel nobody reads from, with the same loops, that reads one of the arrays this value
        needs: one pass over it serves both (the moments and the weights of an optimizer)."""
        fit = [
            k
            for leaf in self._arrays(u)
            for k in self._unread.get((shape, leaf), ())
            if not k.closed and not k.readers
        ]
        return min(fit, key=lambda k: k.number).own if fit else None

    def _arrays(self, u: UOp) -> set[UOp]:
        """The leaves of an output's value that have its size."""
        value = value_sources(u)[0] if u.op is Ops.AFTER else u
        return {
            leaf
            for leaf in self.costs[value].leaves
            if numel(leaf) == numel(value) and leaf is not u
        }

    def _reaches(self, start: Kernel, goal: Kernel) -> bool:
        """Does `goal` read, directly or not, what `start` stores?"""
        seen = {start}
        stack = [start]
        while stack:
            for r in stack.pop().readers:
                if r is goal:
                    return True
                if r not in seen:
                    seen.add(r)
                    stack.append(r)
        return False

    def _descend(self, u: UOp, use: Use) -> None:
        """The uses of the sources when `u` is computed at `use`."""
        if u.op is Ops.BUFFERIZE or is_ordered(u):
            below = self._element_uses(u, use)
        else:
            below = self._source_uses(u, use)
        self.decided.sources[u, use] = tuple(below)
        for s, b in zip(value_sources(u), below, strict=True):
            self.decided.uses.setdefault(s, {})[b] = None
            if s.op is Ops.PARAM:
                b.kernel.reads[s] = None

    def _element_uses(self, u: UOp, use: Use) -> list[Use]:
        """The uses of the tensors of which a BUFFERIZE or an ordered loop reads elements.

        An index may depend on elements that were read. Values are not known yet, so something that
        depends on the same loops stands for them.
        """
        replace = dict(zip(loops_of(u), use.index, strict=True))
        below: list[Use] = []
        for read in tensor_reads(u):
            index = tuple(i.substitute(replace) for i in read.indices)
            gate = None if read.gate is None else read.gate.substitute(replace)
            at = Use(use.kernel, index, conjunction(use.valid, gate))
            below.append(at)
            replace[read] = self._element(read.src[0], at)
        return below

    def _element(self, tensor: UOp, use: Use) -> UOp:
        found = self.decided.elements.get((tensor, use))
        if found is None:
            stand_in = UOp(
                Ops.PARAM, tensor.dtype, (), (-1 - len(self.decided.elements), numel(tensor))
            )
            found = UOp(Ops.INDEX, tensor.dtype, (stand_in, flatten(use.index, tensor.shape or ())))
            self.decided.elements[tensor, use] = found
        return found

    def _source_uses(self, u: UOp, use: Use) -> list[Use]:
        below: list[Use] = []
        for s in value_sources(u):
            shape = s.shape
            if u.op in GroupOp.Movement:
                index, valid = apply_movement(u, use.index, use.valid)
                below.append(Use(use.kernel, index, valid))
            elif u.op is Ops.REDUCE_AXIS:
                below.append(self._reduce_use(u, use))
            elif shape == () and use.index:
                below.append(Use(use.kernel, (), use.valid))
            else:
                below.append(use)
        return below

    def _reduce_use(self, u: UOp, use: Use) -> Use:
        shape = u.src[0].shape
        assert shape is not None
        axes = u.arg[1]
        around = self.around(use)
        inner, ranges = self._loops(tuple(shape[a] for a in axes), AxisType.REDUCE, around)
        fresh, kept = iter(inner), iter(use.index)
        index = tuple(next(fresh) if i in axes else next(kept) for i in range(len(shape)))
        self.decided.reduce_ranges[u, use] = ranges
        return Use(use.kernel, index, use.valid)


def _wide_dims(shape: tuple[Dim, ...]) -> list[Dim]:
    """The dims that have loops. A symbolic one is none of as many elements as it may have."""
    return [n for n in shape if n != 1]


_MATERIALISED = frozenset({Ops.CONTIGUOUS, Ops.COPY, Ops.AFTER})
