"""Stages 8 to 10: from optimised ranges to vector values and explicit local memory.

8   post_opt_symbolic   simplify; conditions on reads become gates
9   expander            no UPCAST or UNROLL range is left
10  add_local_buffers   no BUFFERIZE is left

Stage 9 treats each statement that binds UPCAST or UNROLL ranges (STORE, REDUCE) on its own. At most
one UPCAST range becomes the LANE and turns values into vectors of the width the target has; all
others are replicated by putting constants in their place. Interning shares what does not depend on
a replicated axis, so a tile of a matrix product loads each vector once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce as fold

from morok._core import affine_add, affine_split, rebuild, region, toposort
from morok.codegen.expansion import lower_barriers, lower_tiles, lower_unrolls
from morok.codegen.groups import lower_groups
from morok.codegen.lanes import across_lanes, element, reduce_alu, splat, vectorize
from morok.codegen.small_floats import SMALL_FLOATS
from morok.dtype import AddrSpace, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, Capability, GroupOp, Invalid, Ops, Pat, RuleSet, UOp, graph_rewrite
from morok.optimizer import (
    accumulates,
    bound_ranges,
    flat_index,
    index_parts,
    lane_stride,
    lanes_of_sums,
    make_range,
    moved_range,
    next_number,
    prepare,
    range_end,
    reads_of,
    short_lane,
    simplify_all,
    substitute_open,
    widen_accumulators,
)
from morok.symbolic import sym

__all__ = [
    "add_local_buffers",
    "expander",
    "pm_move_where_on_load",
    "post_opt_symbolic",
]

# ---- stage 8 -------------------------------------------------------------------------------------

pm_move_where_on_load = RuleSet("move_where_on_load")
"""Conditions that choose between a read and zero, and Invalid positions, become gates."""


@pm_move_where_on_load.opaque(
    Pat(Ops.WHERE, (Pat(name="valid"), Pat(Ops.INDEX, name="read"), Pat(Ops.CONST, name="zero")))
)
def where_read_else_zero(valid: UOp, read: UOp, zero: UOp) -> UOp | None:
    """WHERE(valid, INDEX(b, i), 0) -> INDEX(b, i, gate=valid)"""
    return _gated(read, valid) if _is_zero(zero) and _is_positional(valid) else None


@pm_move_where_on_load.opaque(
    Pat(Ops.WHERE, (Pat(name="hole"), Pat(Ops.CONST, name="zero"), Pat(Ops.INDEX, name="read")))
)
def where_zero_else_read(hole: UOp, zero: UOp, read: UOp) -> UOp | None:
    """WHERE(hole, 0, INDEX(b, i)) -> INDEX(b, i, gate=NOT hole)"""
    if not (_is_zero(zero) and _is_positional(hole)):
        return None
    return _gated(read, UOp(Ops.NOT, hole.dtype, (hole,)))


@pm_move_where_on_load.opaque(Pat(Ops.INDEX, (Pat(), Pat(Ops.WHERE)), rest=True, name="read"))
def invalid_index(read: UOp) -> UOp | None:
    """INDEX(b, WHERE(c, i, Invalid)) -> INDEX(b, i, gate=c)"""
    where = read.src[1]
    valid, index, other = where.src
    if other.op is not Ops.CONST or other.arg is not Invalid:
        return None
    return _gated(UOp(read.op, read.dtype, (read.src[0], index, *read.src[2:]), read.arg), valid)


@pm_move_where_on_load.opaque(Pat(Ops.INDEX, name="read", arg=True))
def constant_gate(read: UOp) -> UOp | None:
    """INDEX(b, i, gate=True) -> INDEX(b, i)"""
    if read.src[-1].vmin != 1:
        return None
    return UOp(read.op, read.dtype, read.src[:-1], False)


def _is_zero(value: UOp) -> bool:
    """+0, 0 or False: what a gated read is where its gate is false (-0.0 is another value)."""
    return value.arg == 0 and str(value.arg) != "-0.0"


def _is_positional(condition: UOp) -> bool:
    """Conditions on positions make good gates; on data they would tear vector reads apart."""
    return not condition.has(Ops.INDEX)


def _gated(read: UOp, valid: UOp) -> UOp:
    if read.arg:
        valid = UOp(Ops.AND, valid.dtype, (read.src[-1], valid))
    plain = read.src[:-1] if read.arg else read.src
    return UOp(read.op, read.dtype, (*plain, valid), True)


_SIMPLER = sym + pm_move_where_on_load


def post_opt_symbolic(sink: UOp) -> UOp:
    """Stage 8. Goal: short index expressions, and no read that a condition makes pointless.

    Before: a kernel as rangeify and the optimizer leave it. After: the same kernel without ranges
    of one iteration, with sums accumulated in a wide dtype, simplified by `sym`, in which
    `WHERE(valid, read, 0)` is a gated read and no index is Invalid. PRECASTs are left only on small
    floats, which compute in float32: there the value is rounded, with `promote_small_floats`. A
    BIND is its variable, whose value comes with the launch.
    """
    sink = prepare(sink)
    if sink.has(Ops.PRECAST) or sink.has(Ops.BIND):
        sink = rebuild(sink, {Ops.PRECAST: _without_precast, Ops.BIND: lambda _, src: src[0]})
    return graph_rewrite(sink, _SIMPLER, name="post-opt symbolic")


def _without_precast(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return UOp(node.op, node.dtype, src) if node.dtype.scalar in SMALL_FLOATS else src[0]


# ---- stage 9 -------------------------------------------------------------------------------------

_COPIED = (AxisType.UPCAST, AxisType.UNROLL)


def expander(sink: UOp, capability: Capability) -> UOp:
    """Stage 9. Goal: vectors and replicated statements in place of UPCAST and UNROLL ranges.

    Before: simplified kernel; UPCAST and UNROLL ranges are bound by STORE, REDUCE or BUFFERIZE.
    After: no such range, no UNROLL and no CONTRACT; values along the lane of a statement are
    vectors no wider than the target's; GROUP_REDUCE ranges are loops that fill a local buffer; a
    vector read or STORE is an INDEX of vector dtype at the
    index of its first element; a BUFFERIZE that was filled or read along such a range is a
    DEFINE_LOCAL.

    InvalidGraphError when a buffer is filled inside such a range, or nothing binds one.
    """
    sink = lower_unrolls(lower_barriers(sink, capability))
    sink = lower_tiles(sink, capability, whole=False)
    sink = lower_groups(sink)
    if not _copied_ranges(sink):
        return lower_tiles(sink, capability, whole=True)
    sink = add_local_buffers(widen_accumulators(sink), only=_widened_buffers(sink))
    axis = next_number(sink)

    def expand(node: UOp, src: tuple[UOp, ...]) -> UOp:
        copy = UOp(node.op, node.dtype, src, node.arg)
        if not bound_ranges(copy, *_COPIED):
            return copy
        by_op = _expand_store if copy.op is Ops.STORE else _expand_reduce
        return by_op(copy, capability, axis)

    visit = {Ops.STORE: expand, Ops.REDUCE: expand, **dict.fromkeys(_SPLICED, splice)}
    done = graph_rewrite(rebuild(sink, visit), _SIMPLER, name="expander")
    for node in _copied_ranges(done):
        raise InvalidGraphError(
            f"no statement could expand the {node.arg[1]} range", node=node, stage="expander"
        )
    return lower_tiles(done, capability, whole=True)


def _copied_ranges(sink: UOp) -> list[UOp]:
    return [node for node in toposort(sink) if node.op is Ops.RANGE and node.arg[1] in _COPIED]


def splice(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` over new sources; a STORE that became a GROUP of several is spliced in."""
    flat: list[UOp] = []
    for source, copy in zip(node.src, src, strict=True):
        if copy.op is Ops.GROUP and source.op is Ops.STORE:
            flat += copy.src
        else:
            flat.append(copy)
    return UOp(node.op, node.dtype, tuple(flat), node.arg)


_SPLICED = (Ops.SINK, Ops.GROUP, Ops.AFTER)


def _widened_buffers(sink: UOp) -> set[UOp]:
    """The BUFFERIZEs that are filled or read along an UPCAST or UNROLL range."""
    order = toposort(sink)
    found = {node for node in order if node.op is Ops.BUFFERIZE and bound_ranges(node, *_COPIED)}
    for node in order:
        reads_local = node.op is Ops.INDEX and node.src[0].op is Ops.BUFFERIZE
        if reads_local and any(rng.arg[1] in _COPIED for rng in node.open_ranges):
            found.add(node.src[0])
    return found


def _instances(ranges: Sequence[UOp]) -> Iterator[dict[UOp, UOp]]:
    """All assignments of constants to the ranges, the last one running fastest."""
    for values in itertools.product(*[range(range_end(rng)) for rng in ranges]):
        yield {
            rng: UOp.const(dtypes.index, value) for rng, value in zip(ranges, values, strict=True)
        }


def _by_number(ranges: Sequence[UOp]) -> list[UOp]:
    return sorted(ranges, key=lambda rng: rng.arg[0])


def _lane_width(roots: Sequence[UOp], rng: UOp, capability: Capability, axis: int) -> int:
    """Lanes for the axis `rng` of these values, 1 when no width fits.

    A width fits when it divides the axis and is native for every dtype that becomes a vector. The
    widest is taken for which no index has the lane below a division, if 4 lanes are left.
    """
    along = region(roots, rng)
    types = {node.dtype for node in along if node.dtype.count == 1 and node.dtype.kind in "iuf"}
    limit = min(map(capability.max_width, types or {dtypes.float32}))
    powers = [1 << power for power in range(limit.bit_length() - 1, 0, -1)]
    widths = [width for width in powers if range_end(rng) % width == 0]
    indices = [flat_index(node) for node in along if node.op is Ops.INDEX]
    computed = [index for index in indices if not index.has(Ops.INDEX)]
    uneven = [index for index in computed if affine_split(index, rng) is None]
    if not widths or not uneven:
        return widths[0] if widths else 1
    useful = [width for width in widths if width >= 4]
    even = [width for width in useful if _is_even(uneven, rng, width, axis)]
    return even[0] if even else widths[0]


def _is_even(indices: list[UOp], rng: UOp, width: int, axis: int) -> bool:
    """Whether every instance of the indices moves linearly with a lane of this width."""
    lane, counter, outer = _split_lane(rng, width, axis)
    moved: list[UOp] = []
    for values in _instances(outer):
        moved += substitute_open(indices, {rng: counter.substitute(values)})
    return all(affine_split(index, lane) is not None for index in simplify_all(moved))


def _split_lane(rng: UOp, width: int, axis: int) -> tuple[UOp, UOp, tuple[UOp, ...]]:
    """(lane, counter in the place of `rng`, the ranges left to replicate)."""
    lane = make_range(width, axis, AxisType.UPCAST)
    if width == range_end(rng):
        return lane, lane, ()
    outer = make_range(range_end(rng) // width, axis + 1, AxisType.UPCAST)
    return lane, outer * width + lane, (outer,)


def _expand_store(store: UOp, capability: Capability, axis: int) -> UOp:
    """One STORE over UPCAST and UNROLL ranges -> the STOREs of its instances, as a GROUP."""
    address, value = store.src[:2]
    copied = _by_number(bound_ranges(store, *_COPIED))
    buffer, indices, gate = index_parts(address)
    parts = [*indices, value] if gate is None else [*indices, value, gate]
    lane, source = None, _store_lane(store)
    if source is not None and (width := _lane_width(parts, source, capability, axis)) > 1:
        lane, counter, outer = _split_lane(source, width, axis)
        parts = substitute_open(parts, {source: counter})
        copied = [rng for rng in copied if rng is not source] + list(outer)
    flat: list[UOp] = []
    for values in _instances(copied):
        flat += substitute_open(parts, values)
    flat = simplify_all(flat)
    size = len(parts)
    instances = [flat[i : i + size] for i in range(0, len(flat), size)]
    vectors = [parts[1] for parts in instances]
    masks = [parts[2:] for parts in instances]
    if lane is not None:
        roots = [*vectors, *(mask for parts in masks for mask in parts)]
        wide = vectorize(roots, lane, predicated=capability.predicated_memory)
        vectors = wide[: len(vectors)]
        masks = [[mask] for mask in wide[len(vectors) :]] or masks
    ranges = [rng for rng in store.ended_ranges if rng not in bound_ranges(store, *_COPIED)]
    stores = []
    for (index, _, *condition), vector, mask in zip(instances, vectors, masks, strict=True):
        targets = [(index, vector, condition)]
        dtype = address.dtype
        split = None if lane is None else affine_split(index, lane)
        if lane is not None and split is not None and split[0] == 1:
            dtype = dtype.vec(range_end(lane))
            targets = [(split[1], splat(vector, range_end(lane)), mask)]
        elif lane is not None:
            targets = _elements(index, vector, condition, lane)
        for place, stored, gates in targets:
            if gates and gates[0].vmax == 0:
                continue
            kept = [] if gates and gates[0].vmin == 1 else gates
            target = UOp(Ops.INDEX, dtype, (buffer, place, *kept), bool(kept))
            stores.append(UOp(Ops.STORE, store.dtype, (target, stored, *ranges)))
    return UOp(Ops.GROUP, dtypes.void, tuple(stores))


def _store_lane(store: UOp) -> UOp | None:
    """The UPCAST range of a STORE that becomes vectors: one along which it writes neighbours; else,
    and if that is short, one along which most reads of its reductions are neighbours, whose sums
    are worth vectors even if they are stored one by one."""
    upcast = bound_ranges(store, AxisType.UPCAST)
    buffer, indices, _ = index_parts(store.src[0])
    plain = UOp(Ops.INDEX, store.src[0].dtype, (buffer, *indices), False)
    written = [rng for rng in upcast if lane_stride(plain, rng) == 1]
    if written and not short_lane(written[0]):
        return written[0]
    sums = [rng for rng in lanes_of_sums(store, upcast) if not (written and short_lane(rng))]
    return max(sums or written, key=range_end, default=None)


def _elements(
    index: UOp, vector: UOp, condition: list[UOp], lane: UOp
) -> list[tuple[UOp, UOp, list[UOp]]]:
    """(index, element, gates) of each lane of a vector that is not stored to neighbours."""
    split = affine_split(index, lane)
    even = split is not None and not any(lane in gate.open_ranges for gate in condition)
    out = []
    for number in range(range_end(lane)):
        if split is not None and even:
            place, gates = affine_add([(split[1], 1)], split[0] * number, index.dtype), condition
        else:
            at = {lane: UOp.const(dtypes.index, number)}
            place, *gates = simplify_all(substitute_open([index, *condition], at))
        out.append((place, element(vector, number), gates))
    return out


def _expand_reduce(node: UOp, capability: Capability, axis: int) -> UOp:
    """REDUCE over UPCAST and UNROLL ranges -> REDUCEs over the others, and what joins them.

    UNROLL: the instances are combined in the body, one after the other. UPCAST: an accumulator
    each, added pairwise after the loop. The lane: one vector accumulator, added across last.
    """
    value, op = node.src[0], node.arg
    bound = bound_ranges(node, *_COPIED)
    ranges = [rng for rng in node.ended_ranges if rng not in bound]
    unrolled = _by_number(bound_ranges(node, AxisType.UNROLL))
    upcast = _by_number(bound_ranges(node, AxisType.UPCAST))
    lane, source = None, _reduce_lane(node)
    if source is not None and (width := _lane_width([value], source, capability, axis)) > 1:
        lane, counter, outer = _split_lane(source, width, axis)
        value = substitute_open([value], {source: counter})[0]
        upcast = [rng for rng in upcast if rng is not source] + list(outer)
    values = []
    for outer_values in _instances(upcast):
        for inner_values in _instances(unrolled):
            values += substitute_open([value], {**outer_values, **inner_values})
    values = simplify_all(values)
    if lane is not None:
        vectors = vectorize(values, lane, predicated=capability.predicated_memory)
        values = [splat(vector, range_end(lane)) for vector in vectors]
    alu = reduce_alu(op, value)
    per_sum = len(values) // max(1, _count(upcast))
    sums = []
    for start in range(0, len(values), per_sum):
        body = fold(lambda a, b: UOp(alu, a.dtype, (a, b)), values[start : start + per_sum])
        sums.append(UOp(Ops.REDUCE, body.dtype, (body, *ranges), op) if ranges else body)
    return across_lanes(op, _pairwise(alu, sums))


def _count(ranges: Sequence[UOp]) -> int:
    return fold(lambda total, rng: total * range_end(rng), ranges, 1)


def _pairwise(alu: Ops, values: list[UOp]) -> UOp:
    """All values combined as a balanced tree: value i with value i + n/2 first."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        joined = [
            UOp(alu, a.dtype, (a, b)) for a, b in zip(values[:half], values[half:], strict=False)
        ]
        values = joined + values[len(joined) : half]
    return values[0]


def _reduce_lane(node: UOp) -> UOp | None:
    """The UPCAST range of a REDUCE that most reads walk with unit stride, if any does.

    A REDUCE inside another statement's UPCAST range leaves the lane to that statement.
    """
    if any(rng.arg[1] is AxisType.UPCAST for rng in node.open_ranges):
        return None
    best, most = None, 0
    reads = reads_of(node.src[:1])
    for rng in _by_number(bound_ranges(node, AxisType.UPCAST)):
        strides = [lane_stride(read, rng) for read in reads if rng in read.open_ranges]
        even = strides.count(1)
        if even > most and 2 * even >= len(strides):
            best, most = rng, even
    return best


# ---- stage 10 ------------------------------------------------------------------------------------


_HINTS = GroupOp.Identity - {Ops.PRECAST}


def add_local_buffers(sink: UOp, *, only: set[UOp] | None = None) -> UOp:
    """Stage 10. Goal: local memory is allocated, filled and read explicitly.

    Before: BUFFERIZE(compute, *ranges) whose open ranges say where it is filled. After:
    AFTER(DEFINE_LOCAL, STORE(INDEX(DEFINE_LOCAL, row-major position), compute, *ranges)), read by
    INDEXes of one index; hints (CONTIGUOUS, DETACH, …) are gone. A processor without work-items
    needs no BARRIER. With `only`, just these BUFFERIZEs, and hints stay.

    Sums whose loop lies outside of the buffer's, BUFFERIZE(REDUCE(x, *loops), *ranges), are made in
    the buffer m itself:

        init = STORE(INDEX(AFTER(m, *open ranges), position), identity, *fresh ranges)
        now  = AFTER(m, init, *loops)
        step = STORE(INDEX(AFTER(m, init), position), op(INDEX(now, position), x), *ranges)
        AFTER(m, END(step, *loops))
    """
    if only is not None and not only:
        return sink
    count = 0
    if sink.has(Ops.DEFINE_LOCAL):
        count = sum(node.op is Ops.DEFINE_LOCAL for node in toposort(sink))
    axis = next_number(sink)

    def fill(node: UOp, src: tuple[UOp, ...]) -> UOp:
        nonlocal count, axis
        copy = UOp(node.op, node.dtype, src, node.arg)
        if only is not None and node not in only:
            return copy
        count += 1
        if accumulates(copy):
            axis += len(copy.ended_ranges)
            return _summed(copy, count - 1, axis - len(copy.ended_ranges))
        return _filled(copy, count - 1)

    def read(node: UOp, src: tuple[UOp, ...]) -> UOp:
        copy = UOp(node.op, node.dtype, src, node.arg)
        if node.src[0].op is Ops.BUFFERIZE and copy.src[0].op is not Ops.BUFFERIZE:
            return _flattened(node, copy)
        return copy

    visit = {} if only is not None else dict.fromkeys(_HINTS, lambda _, src: src[0])
    if sink.has(Ops.BUFFERIZE):
        visit |= {Ops.BUFFERIZE: fill, Ops.INDEX: read}
    return rebuild(sink, visit)


def _filled(buffer: UOp, number: int) -> UOp:
    compute, ranges = buffer.src[0], buffer.ended_ranges
    memory, position = _memory(buffer, number)
    fill = _position(memory, position).store(compute, *ranges)
    return memory.after(fill)


def _summed(buffer: UOp, number: int, axis: int) -> UOp:
    """The memory of a BUFFERIZE whose sums are made in it; `axis` and above are free."""
    total, ranges, outer = buffer.src[0], buffer.ended_ranges, buffer.open_ranges
    memory, position = _memory(buffer, number)
    fresh = {rng: moved_range(rng, axis + i) for i, rng in enumerate(ranges)}
    identity = UOp.const(total.dtype, total.arg.identity(total.dtype))
    first = _position(memory.after(*outer) if outer else memory, position.substitute(fresh))
    init = first.store(identity, *fresh.values())
    copied = bound_ranges(total, *_COPIED)
    loops = [rng for rng in total.ended_ranges if rng not in copied]
    value = total.src[0]
    if copied:
        value = UOp(Ops.REDUCE, total.dtype, (value, *copied), total.arg)
    now = _position(memory.after(init, *loops), position)
    step = UOp(reduce_alu(total.arg, value), total.dtype, (now, value))
    update = _position(memory.after(init), position).store(step, *ranges)
    return memory.after(update.close(*loops))


def _memory(buffer: UOp, number: int) -> tuple[UOp, UOp]:
    """The DEFINE_LOCAL of a BUFFERIZE, and the position in it where its ranges stand."""
    if buffer.arg.addrspace is not AddrSpace.LOCAL:
        raise InvalidGraphError(
            "a BUFFERIZE inside a kernel must be LOCAL", node=buffer, stage="local buffers"
        )
    size, position = 1, UOp.const(dtypes.index, 0)
    for rng in buffer.ended_ranges:
        size *= range_end(rng)
        position = position * range_end(rng) + rng
    dtype = buffer.src[0].dtype.ptr(AddrSpace.LOCAL)
    memory: UOp = UOp(Ops.DEFINE_LOCAL, dtype, (), (number, size))
    return memory, simplify_all([position])[0]


def _position(pointer: UOp, position: UOp) -> UOp:
    return UOp(Ops.INDEX, pointer.dtype.base, (pointer, position), False)


def _flattened(old: UOp, new: UOp) -> UOp:
    """The INDEX of a BUFFERIZE -> one of the memory that took its place.

        INDEX(BUFFERIZE(x, i, j), a, b)  ->  INDEX(DEFINE_LOCAL, a*J + b)

    Of the field guide's `pm_linearize_multi_index` this is all that is left: parameters are flat
    from the moment that rangeify reads them, only BUFFERIZE has several dims, and its ranges, which
    say how long they are, are gone with it. So it is done here, not by a set of rules before the
    renderer, and the verifier sees to it that no INDEX of several positions comes later.
    """
    _, indices, gate = index_parts(new)
    position = UOp.const(dtypes.index, 0)
    for rng, index in zip(old.src[0].ended_ranges, indices, strict=True):
        position = position * range_end(rng) + index
    src = (new.src[0], *simplify_all([position]))
    return UOp(new.op, new.dtype, src if gate is None else (*src, gate), gate is not None)
