"""Stages 11 to 14: accumulators, explicit loads, and no vector the target does not have.

11  remove_reduce   REDUCE -> a register, its initialisation, its update and its loop's end
13  add_loads       a read INDEX -> LOAD
14  devectorize     neighbouring loads grouped; vectors cut to the widths of the target

Stage 12 gives ranges to work-items; a processor without them has nothing to do there.
"""

from __future__ import annotations

import itertools

from morok._core import affine_form, rebuild, toposort
from morok.codegen.expansion import ungroup_addresses
from morok.codegen.lanes import element, reduce_alu, splat
from morok.codegen.transposes import columns_of_squares, every_second
from morok.dtype import AddrSpace, DType, dtypes
from morok.ir import Capability, GroupOp, Ops, UOp
from morok.optimizer import (
    index_parts,
    moved_range,
    next_number,
    substitute_open,
    widen_accumulators,
)

__all__ = ["add_loads", "devectorize", "remove_reduce", "unshare_ranges"]

# ---- stage 11 ------------------------------------------------------------------------------------


def unshare_ranges(sink: UOp) -> UOp:
    """Loops that cannot be one loop get RANGEs of their own.

    REDUCEs share the loop of their common ranges when they bind the same ranges, stand in the same
    scope (equal open ranges) and none needs another's result. Every other REDUCE over a range that
    is taken gets fresh ranges, so that afterwards one RANGE is one loop.
    """
    order = toposort(sink)
    bound = [rng for node in order if node.op is Ops.REDUCE for rng in node.ended_ranges]
    if len(set(bound)) == len(bound):
        return sink
    depth: dict[UOp, int] = {}
    for node in order:
        below = max(map(depth.__getitem__, node.src), default=0)
        depth[node] = below + 1 if node.op is Ops.REDUCE else below
    owner: dict[UOp, _LoopKey] = {}
    fresh: dict[_LoopKey, tuple[UOp, ...]] = {}
    number = next_number(sink)

    def unshare(node: UOp, src: tuple[UOp, ...]) -> UOp:
        nonlocal number
        ranges = node.ended_ranges
        key = (ranges, node.open_ranges, depth[node])
        if all(owner.setdefault(rng, key) == key for rng in ranges):
            return UOp(node.op, node.dtype, src, node.arg)
        if key not in fresh:
            fresh[key] = tuple(moved_range(rng, number + i) for i, rng in enumerate(ranges))
            number += len(ranges)
        renamed = dict(zip(ranges, fresh[key], strict=True))
        value = substitute_open(src[:1], renamed)[0]
        return UOp(node.op, node.dtype, (value, *fresh[key]), node.arg)

    return rebuild(sink, {Ops.REDUCE: unshare})


_LoopKey = tuple[tuple[UOp, ...], tuple[UOp, ...], int]


def remove_reduce(sink: UOp) -> UOp:
    """Stage 11. Goal: reductions are loops that update a register.

    Before: REDUCE(value, *ranges), value a scalar or a vector of accumulators. After, with
    reg = DEFINE_REG(1, id) of the accumulator's dtype (float32 for sums of shorter floats):

        init = STORE(INDEX(AFTER(reg, *open ranges), 0), identity)
        now  = AFTER(reg, init, *ranges)
        step = STORE(INDEX(AFTER(reg, init), 0), op(LOAD(now, INDEX(now, 0)), value))
               (a tensor core adds what it is given: WMMA(a, b, LOAD(now, …)))
        end  = END(step, *ranges)
        LOAD(AFTER(reg, end), INDEX(AFTER(reg, end), 0))

    A sum of sums that conditions leave out, REDUCE(WHERE(c, REDUCE(value, *inner), 0), *ranges),
    goes on in one register: the inner one begins with what the outer one has, and what it comes to
    is the outer one's next value where c holds.

    ids count the REDUCEs in topological order. No REDUCE is left; REDUCEs in one scope over the
    same ranges share them, and through them a loop, unless one needs the other's result.
    """
    if not sink.has(Ops.REDUCE):
        return sink
    sink = unshare_ranges(widen_accumulators(sink))
    order = toposort(sink)
    numbers = {node: i for i, node in enumerate(n for n in order if n.op is Ops.REDUCE)}
    around = _sums_around(order) if len(numbers) > 1 and sink.has(Ops.WHERE) else {}
    continued = set(around.values())

    def begun(node: UOp) -> tuple[UOp, UOp, UOp]:
        """The register of a sum, the STORE of its first value, and what it has in its loops."""
        reg = UOp(Ops.DEFINE_REG, node.dtype.ptr(AddrSpace.REG), (), (1, numbers[node]))
        first = begun(around[node])[2] if node in around else _identity(node)
        init = _set(_after(reg, *node.open_ranges) if node.open_ranges else reg, first)
        return reg, init, _get(_after(reg, init, *node.ended_ranges))

    def accumulate(node: UOp, src: tuple[UOp, ...]) -> UOp:
        (reg, init, now), value = begun(node), src[0]
        if node in continued:
            step = UOp(Ops.WHERE, node.dtype, (*value.src[:2], now))
        else:
            step = _step(reduce_alu(node.arg, value), now, value)
        update = _set(_after(reg, init), step)
        return _get(_after(reg, UOp(Ops.END, dtypes.void, (update, *src[1:]))))

    return rebuild(sink, {Ops.REDUCE: accumulate})


def _sums_around(order: list[UOp]) -> dict[UOp, UOp]:
    """Sums that are formed for one other sum only, which leaves some out by a condition, and that
    other sum."""
    users: dict[UOp, list[UOp]] = {node: [] for node in order if node.op in _CONDITIONAL}
    for node in order:
        for source in node.src:
            if source in users:
                users[source].append(node)
    found = {}
    for choice, (outer, *others) in users.items():
        if choice.op is not Ops.WHERE or others or outer.op is not Ops.REDUCE:
            continue
        inner = choice.src[1]
        if (
            choice is outer.src[0]
            and users.get(inner) == [choice]
            and inner.op is Ops.REDUCE
            and inner.arg is outer.arg
            and choice.src[2] is _identity(outer)
            and set(outer.ended_ranges) <= set(inner.open_ranges)
        ):
            found[inner] = outer
    return found


_CONDITIONAL = (Ops.REDUCE, Ops.WHERE)


def _identity(node: UOp) -> UOp:
    scalar = node.dtype.scalar
    return splat(UOp.const(scalar, node.arg.identity(scalar)), node.dtype.count)


def _step(alu: Ops, total: UOp, value: UOp) -> UOp:
    """One step of a reduction: d + WMMA(a, b, c) -> WMMA(a, b, d + c)"""
    if alu is Ops.ADD and value.op is Ops.WMMA:
        a, b, c, *ranges = value.src
        zero = c.op in (Ops.CONST, Ops.VCONST) and not any(c.arg if c.dtype.count > 1 else (c.arg,))
        return UOp.wmma(a, b, total if zero else _step(alu, total, c), value.arg, *ranges)
    if alu is Ops.ADD is value.op and any(part.op is Ops.WMMA for part in value.src):
        return _step(alu, _step(alu, total, value.src[0]), value.src[1])
    return UOp(alu, total.dtype, (total, value))


def _after(reg: UOp, *deps: UOp) -> UOp:
    return UOp(Ops.AFTER, reg.dtype, (reg, *deps))


def _slot(reg: UOp) -> UOp:
    return UOp(Ops.INDEX, reg.dtype.base, (reg, UOp.const(dtypes.index, 0)), False)


def _set(reg: UOp, value: UOp) -> UOp:
    return UOp(Ops.STORE, dtypes.void, (_slot(reg), value))


def _get(reg: UOp) -> UOp:
    return UOp(Ops.LOAD, reg.dtype.base, (reg, _slot(reg)))


# ---- stage 13 ------------------------------------------------------------------------------------


def add_loads(sink: UOp) -> UOp:
    """Stage 13. Goal: memory traffic is explicit.

    Before: an INDEX used as a value reads memory, 0 where its gate is false. After: it is
    LOAD(buffer, INDEX), with a gate LOAD(buffer, INDEX, 0); INDEX only says an address.
    """
    visit = {Ops.INDEX: _load, Ops.STORE: _store, Ops.LOAD: _loaded, Ops.PTRCAT: _addresses}
    return rebuild(sink, visit)


def _load(node: UOp, parts: tuple[UOp, ...]) -> UOp:
    index = UOp(node.op, node.dtype, parts, node.arg)
    src = [index.src[0], index]
    if index.arg:
        src.append(splat(UOp.const(index.dtype.scalar, 0), index.dtype.count))
    return UOp(Ops.LOAD, index.dtype, tuple(src))


def _store(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Its INDEX is no value and stays one."""
    target = src[0].src[1] if node.src[0].op is Ops.INDEX else src[0]
    return UOp(node.op, node.dtype, (target, *src[1:]), node.arg)


def _addresses(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Its INDEXes are no values either."""
    return UOp(node.op, node.dtype, tuple([source.src[1] for source in src]), node.arg)


def _loaded(node: UOp, src: tuple[UOp, ...]) -> UOp:
    address = src[1].src[1] if node.src[1].op is Ops.INDEX else src[1]
    return UOp(node.op, node.dtype, (src[0], address, *src[2:]), node.arg)


# ---- stage 14 ------------------------------------------------------------------------------------


def devectorize(sink: UOp, capability: Capability) -> UOp:
    """Stage 14. Goal: every vector access and operation is one the target has.

    Before: explicit loads, vectors of any width. After: scalar loads of neighbouring elements that
    met in a VECTORIZE are one vector LOAD (reversed neighbours with a shuffle, several runs joined
    by CAT), strided ones the columns of squares of memory; LOADs and STOREs have the widths of the
    target; so has arithmetic, which is scalar where the target has no vector arithmetic.
    """
    return _cut(_group_loads(ungroup_addresses(sink), capability), capability)


def _group_loads(sink: UOp, capability: Capability) -> UOp:
    """VECTORIZE of LOADs at evenly spaced addresses -> vector LOADs."""
    torn: dict[UOp, None] = {}

    def group(node: UOp, src: tuple[UOp, ...]) -> UOp:
        copy = UOp(node.op, node.dtype, src, node.arg)
        if not all(source.op is Ops.LOAD for source in src):
            return copy
        grouped = _grouped(copy, capability)
        if grouped is copy:
            torn[copy] = None
        return grouped

    done: UOp = rebuild(sink, {Ops.VECTORIZE: group})
    columns = columns_of_squares(torn, capability) if len(torn) > 1 else {}
    columns |= every_second([vector for vector in torn if vector not in columns], capability)
    return done.substitute(columns) if columns else done


def _grouped(node: UOp, capability: Capability) -> UOp:
    loads, count = node.src, node.dtype.count
    offsets = _offsets(loads)
    if offsets is None or len(set(loads)) == 1:
        return node
    width = count
    while width >= 4 or width == count:
        if width in capability.widths(node.dtype.scalar):
            runs = [
                _run(loads[i : i + width], offsets[i : i + width]) for i in range(0, count, width)
            ]
            found = [run for run in runs if run is not None]
            if len(found) == len(runs):
                return found[0] if len(found) == 1 else UOp(Ops.CAT, node.dtype, tuple(found))
        width //= 2
    return node


def _offsets(loads: tuple[UOp, ...]) -> list[int] | None:
    """Distances of the LOADs' addresses from the first one; None when they are not constant, or
    the LOADs differ in buffer, gate or alternative."""
    buffer, (index,), gate = index_parts(loads[0].src[1])
    terms, start = affine_form(index)
    out = []
    for load in loads:
        other_buffer, (other,), other_gate = index_parts(load.src[1])
        if other_buffer is not buffer or other_gate is not gate or load.src[2:] != loads[0].src[2:]:
            return None
        other_terms, at = affine_form(other)
        if other_terms != terms:
            return None
        out.append(at - start)
    return out


def _run(loads: tuple[UOp, ...], offsets: list[int]) -> UOp | None:
    """One vector LOAD for scalar LOADs at neighbouring addresses, ascending or descending."""
    width = len(loads)
    steps = {after - before for before, after in itertools.pairwise(offsets)}
    if steps == {0}:
        return splat(loads[0], width)
    if steps not in ({1}, {-1}):
        return None
    first = loads[0] if steps == {1} else loads[-1]
    address = first.src[1]
    dtype = first.dtype.vec(width)
    alt = tuple(splat(value, width) for value in first.src[2:])
    vector = UOp(Ops.INDEX, dtype, address.src, address.arg)
    load = UOp(Ops.LOAD, dtype, (first.src[0], vector, *alt))
    return load if steps == {1} else element(load, *reversed(range(width)))


_ARITHMETIC = GroupOp.ALU | GroupOp.Cast | {Ops.PRECAST}


class _Pieces:
    """Values of the rewritten graph; a vector too wide for the target stands in pieces."""

    def __init__(self, capability: Capability) -> None:
        self.capability = capability
        self.whole: dict[UOp, UOp] = {}
        self.cut: dict[UOp, list[UOp]] = {}
        self._widths: dict[DType, int] = {}

    def get(self, node: UOp) -> UOp:
        """The value in one piece."""
        if node not in self.whole:
            pieces = self.cut[node]
            op = Ops.VECTORIZE if pieces[0].dtype.count == 1 else Ops.CAT
            self.whole[node] = UOp(op, node.dtype, tuple(pieces))
        return self.whole[node]

    def part(self, node: UOp, start: int, width: int) -> UOp:
        """`width` lanes from lane `start` on."""
        if node.dtype.count == 1:
            return self.get(node)
        pieces = self.cut.get(node)
        if pieces is not None:
            size = pieces[0].dtype.count
            if start % size + width <= size:
                inside = start % size
                return element(pieces[start // size], *range(inside, inside + width))
        return element(self.get(node), *range(start, start + width))

    def width(self, node: UOp) -> int:
        """Lanes in which the target can compute or access `node`."""
        if node.op in _ARITHMETIC:
            if not self.capability.vector_alu:
                return 1
            return min(self._native(value) for value in (node, *node.src) if value.dtype.count > 1)
        if node.op is Ops.STORE:
            value = node.src[1]
            return value.dtype.count if _in_register(node.src[0]) else self._native(value)
        if node.op is Ops.LOAD and not _in_register(node.src[1]):
            return self._native(node)
        return node.dtype.count

    def _native(self, value: UOp) -> int:
        dtype = value.dtype
        if dtype.kind == "x":
            dtype = (dtypes.int32 if _fits_int32(value) else dtypes.int64).vec(dtype.count)
        width = self._widths.get(dtype)
        if width is None:
            width = dtype.count
            fitting = (width,) if dtype.kind == "b" else self.capability.widths(dtype.scalar)
            while width > 1 and width not in fitting:
                width //= 2
            self._widths[dtype] = width
        return width


def _in_register(index: UOp) -> bool:
    return index.src[0].dtype.addrspace is AddrSpace.REG


def _fits_int32(value: UOp) -> bool:
    low, high = value.vmin, value.vmax
    return low is not None and high is not None and low >= -(1 << 31) and high < 1 << 31


def _cut(sink: UOp, capability: Capability) -> UOp:
    """Vector arithmetic, LOADs and STOREs in pieces of the widths the target has."""
    values = _Pieces(capability)
    order = toposort(sink)
    counts = [
        node.src[1].dtype.count if node.op is Ops.STORE else node.dtype.count for node in order
    ]
    widths = [
        values.width(node) if count > 1 else count
        for node, count in zip(order, counts, strict=True)
    ]
    if widths == counts:
        return sink
    for node, count, width in zip(order, counts, widths, strict=True):
        if width < count and node.op is Ops.STORE:
            values.whole[node] = _cut_store(node, count, width, values)
        elif width < count and node.op is Ops.LOAD:
            values.cut[node] = _cut_load(node, count, width, values)
        elif width < count:
            dtype = node.dtype.scalar.vec(width)
            values.cut[node] = [
                UOp(node.op, dtype, tuple([values.part(s, i, width) for s in node.src]), node.arg)
                for i in range(0, count, width)
            ]
        else:
            values.whole[node] = _spliced(node, values)
    return values.get(sink)


def _spliced(node: UOp, values: _Pieces) -> UOp:
    src: list[UOp] = []
    for source in node.src:
        copy = values.get(source)
        if copy.op is Ops.GROUP and source.op is Ops.STORE and node.op in _SPLICED:
            src += copy.src
        else:
            src.append(copy)
    if node.op is Ops.GEP and node.src[0] in values.cut:
        picked = [values.part(node.src[0], lane, 1) for lane in node.arg]
        if len(picked) == 1:
            return picked[0]
        if not values.capability.vector_alu:
            return UOp(Ops.VECTORIZE, node.dtype, tuple(picked))
    return UOp(node.op, node.dtype, tuple(src), node.arg)


_SPLICED = frozenset({Ops.SINK, Ops.GROUP, Ops.AFTER})


def _address(index: UOp, start: int, width: int, values: _Pieces) -> UOp:
    """The INDEX of `width` elements from the `start`-th of a vector INDEX on."""
    buffer, (position,), gate = index_parts(index)
    first = values.get(position) + start if start else values.get(position)
    src = [values.get(buffer), first]
    if gate is not None:
        src.append(values.part(gate, start, width))
    return UOp(Ops.INDEX, index.dtype.scalar.vec(width), tuple(src), index.arg)


def _cut_load(node: UOp, count: int, width: int, values: _Pieces) -> list[UOp]:
    loads = []
    for start in range(0, count, width):
        address = _address(node.src[1], start, width, values)
        alt = [values.part(value, start, width) for value in node.src[2:]]
        if _is_closed(address):
            loads += alt
        else:
            loads.append(UOp(Ops.LOAD, address.dtype, (address.src[0], address, *alt)))
    return loads


def _is_closed(address: UOp) -> bool:
    """Whether this part of a gated vector is never read or written."""
    _, _, gate = index_parts(address)
    return gate is not None and gate.op in (Ops.CONST, Ops.VCONST) and gate.vmax == 0


def _cut_store(node: UOp, count: int, width: int, values: _Pieces) -> UOp:
    stores = []
    for start in range(0, count, width):
        address = _address(node.src[0], start, width, values)
        value = values.part(node.src[1], start, width)
        if not _is_closed(address):
            ends = map(values.get, node.src[2:])
            stores.append(UOp(Ops.STORE, node.dtype, (address, value, *ends)))
    return UOp(Ops.GROUP, dtypes.void, tuple(stores))
