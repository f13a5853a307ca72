"""Vectors out of a range: how stage 9 turns the LANE axis of a statement into vector values.

A scalar value that depends on the lane becomes the vector of its values at lane 0, 1, … What a
memory access becomes is decided while its index is still an expression of the lane:

coefficient of the lane in the index      the read becomes
0                                         one scalar read, splat where it is used
1                                         a run of n elements from the index of lane 0 on
other, uneven, or a gate with the lane    VECTORIZE of n scalar reads, the lane a constant in each
0 or 1, gate with the lane, run in bounds the read without gate, then a select by the gate
1, gate with the lane, run out of bounds  where the target has that, n elements gated one by one
any, index computed from other reads      VECTORIZE of n scalar reads at the elements of the index

A value that already is a vector (an inner lane) never gets a second lane: what is computed from it
is repeated for each lane instead.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace

from morok._core import affine_split, region, toposort
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import GroupOp, Ops, ReduceOp, UOp
from morok.optimizer import index_parts, range_end, simplify_all, substitute_open

__all__ = ["across_lanes", "buffer_size", "element", "reduce_alu", "splat", "vectorize"]


def splat(value: UOp, count: int) -> UOp:
    """`value` in each of `count` lanes; a vector is returned as it is."""
    if count == 1 or value.dtype.count > 1:
        return value
    if value.op is Ops.CONST:
        return UOp(Ops.VCONST, value.dtype.vec(count), (), (value.arg,) * count)
    return UOp(Ops.VECTORIZE, value.dtype.vec(count), (value,) * count)


def element(vector: UOp, *lanes: int) -> UOp:
    """The lanes of a vector: a scalar for one, else a shorter vector. A scalar has it in all."""
    if vector.dtype.count == 1:
        return splat(vector, len(lanes))
    if lanes == tuple(range(vector.dtype.count)):
        return vector
    if vector.op is Ops.VCONST:
        if len(lanes) == 1:
            return UOp(Ops.CONST, vector.dtype.scalar, (), vector.arg[lanes[0]])
        values = tuple([vector.arg[lane] for lane in lanes])
        return UOp(Ops.VCONST, vector.dtype.scalar.vec(len(lanes)), (), values)
    if vector.op is Ops.VECTORIZE:
        return UOp.vectorize(*[vector.src[lane] for lane in lanes])
    return vector.gep(lanes)


def reduce_alu(op: ReduceOp, value: UOp) -> Ops:
    """The binary op of one step of a reduction of values like `value`; logical for bool."""
    if value.dtype.kind == "b":
        return Ops.OR if op in (ReduceOp.ADD, ReduceOp.MAX) else Ops.AND
    return op.alu


def across_lanes(op: ReduceOp, vector: UOp) -> UOp:
    """All lanes of `vector` reduced to a scalar, by halves: lane i with lane i + n/2."""
    while vector.dtype.count > 1:
        half = vector.dtype.count // 2
        low = element(vector, *range(half))
        high = element(vector, *range(half, 2 * half))
        vector = UOp(reduce_alu(op, vector), low.dtype, (low, high))
    return vector


def buffer_size(buffer: UOp) -> int | None:
    """Elements of the memory behind a pointer, None when unknown."""
    while buffer.op is Ops.AFTER:
        buffer = buffer.src[0]
    if buffer.op in (Ops.PARAM, Ops.DEFINE_LOCAL):
        return int(buffer.arg[1])
    return None


class _Plan(enum.Enum):
    """What becomes of a node that depends on the lane."""

    LANE = enum.auto()  # the lane itself
    WIDE = enum.auto()  # the same op on vectors
    RUN = enum.auto()  # a read of neighbours, or of one element
    MASKED = enum.auto()  # as RUN, the gate applied afterwards
    GUARDED = enum.auto()  # as RUN, with a gate for each lane
    GATHER = enum.auto()  # scalar reads at the elements of a vector of indices
    DOTS = enum.auto()  # dot products with the same pair or more elements: rows of one tile
    COPIES = enum.auto()  # one copy of the node for each lane
    VECTOR = enum.auto()  # a vector along another lane: only its copies are used


_WIDE = GroupOp.ALU | GroupOp.Cast | {Ops.REDUCE, Ops.PRECAST}
_LOGIC = frozenset({Ops.AND, Ops.OR, Ops.NOT})
_FILLS = frozenset({Ops.BUFFERIZE, Ops.STORE, Ops.AFTER, Ops.END})


def vectorize(roots: Sequence[UOp], lane: UOp, *, predicated: bool = False) -> list[UOp]:
    """Each scalar root as a vector along the RANGE `lane`; one that does not depend on it stays.

    Index expressions must be simplified. Common parts become common parts. `predicated` says that
    the target reads just some lanes of a vector at no cost.
    InvalidGraphError when memory is written inside the lane.
    """
    plans: dict[UOp, _Plan] = {}
    for node in region(roots, lane):
        plans[node] = _plan(node, lane, plans, predicated)
    needed = _needed(roots, plans, lane)
    order = [node for node in plans if node in needed]
    new = _copies([node for node in order if plans[node] is _Plan.COPIES], lane)
    for node in order:
        if node not in new:
            new[node] = _build(node, lane, plans[node], new)
    return [new.get(root, root) for root in roots]


def _plan(node: UOp, lane: UOp, plans: dict[UOp, _Plan], predicated: bool) -> _Plan:
    if node is lane:
        return _Plan.LANE
    if node.op in _FILLS:
        raise InvalidGraphError(
            "memory is written inside a vector lane: no action may widen this axis",
            node=node,
            stage="expander",
        )
    if node.op is Ops.WMMA and _dot(node, lane) is not None:
        return _Plan.DOTS
    if node.dtype.count > 1:
        return _Plan.VECTOR
    if any(plans.get(source) is _Plan.VECTOR for source in node.src):
        return _Plan.COPIES
    if node.op is Ops.INDEX:
        return _plan_read(node, lane, predicated)
    return _Plan.WIDE if node.op in _WIDE else _Plan.COPIES


def _plan_read(node: UOp, lane: UOp, predicated: bool) -> _Plan:
    buffer, (index,), gate = index_parts(node)
    if lane in buffer.open_ranges:
        return _Plan.COPIES
    split = affine_split(index, lane)
    if split is not None and split[0] in (0, 1):
        if gate is None or lane not in gate.open_ranges:
            return _Plan.RUN
        first, size = split[1], buffer_size(buffer)
        last = (range_end(lane) - 1) * split[0]
        if size is not None and _within(first, last, size):
            return _Plan.MASKED
        if predicated and split[0] == 1 and node.dtype.bits >= 32 and _compares(gate, lane):
            return _Plan.GUARDED
    # A read that differs by lane is done once, as a vector; all else is exact in copies.
    where = [index] if gate is None else [index, gate]
    torn = any(n.op is Ops.INDEX and lane in n.open_ranges for n in toposort(where))
    return _Plan.GATHER if torn else _Plan.COPIES


def _compares(gate: UOp, lane: UOp) -> bool:
    """Does a gate only compare what moves evenly with the lane? Its lanes are cheap then."""
    for node in region([gate], lane):
        if node.op in GroupOp.Comparison:
            if any(affine_split(source, lane) is None for source in node.src):
                return False
        elif node.dtype.kind == "b" and node.op not in _LOGIC:
            return False
    return True


def _within(first: UOp, last: int, size: int) -> bool:
    low, high = first.vmin, first.vmax
    return low is not None and high is not None and low >= 0 and high + last < size


def _dot(node: UOp, lane: UOp) -> tuple[tuple[UOp, ...], tuple[UOp, ...]] | None:
    """(elements that differ by lane, those of all lanes) of a WMMA that is one dot product."""
    a, b = node.src[:2]
    if node.arg.dims[:2] != (1, 1) or node.src[3:]:
        return None
    if not a.op is b.op is Ops.VECTORIZE:
        return None
    for rows, column in ((a, b), (b, a)):
        if lane not in column.open_ranges:
            return rows.src, column.src
    return None


def _needed(roots: Sequence[UOp], plans: dict[UOp, _Plan], lane: UOp) -> set[UOp]:
    """The planned nodes whose vectors are used to build the roots."""
    needed: set[UOp] = set()
    stack = [root for root in roots if root in plans]
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        needed.add(node)
        match plans[node]:
            case _Plan.WIDE:
                used = node.src
            case _Plan.DOTS:
                rows, _ = _dot(node, lane) or ((), ())
                used = (*rows, node.src[2])
            case _Plan.MASKED | _Plan.GUARDED:
                used = node.src[-1:]
            case _Plan.GATHER:
                used = node.src[1:]
            case _:
                used = ()
        stack += [source for source in used if source in plans]
    return needed


def _copies(nodes: list[UOp], lane: UOp) -> dict[UOp, UOp]:
    """Each node as VECTORIZE of its values with the lane a constant; a scalar if all are equal."""
    count = range_end(lane)
    lanes: list[UOp] = []
    for number in range(count):
        lanes += substitute_open(nodes, {lane: UOp.const(dtypes.index, number)})
    lanes = simplify_all(lanes)
    out = {}
    for position, node in enumerate(nodes):
        elements = tuple(lanes[position :: len(nodes)])
        same = all(value is elements[0] for value in elements)
        out[node] = elements[0] if same else UOp(Ops.VECTORIZE, node.dtype.vec(count), elements)
    return out


def _build(node: UOp, lane: UOp, plan: _Plan, new: dict[UOp, UOp]) -> UOp:
    count = range_end(lane)
    match plan:
        case _Plan.LANE:
            return UOp.vconst(node.dtype, range(count))
        case _Plan.RUN:
            return _run(node, lane, index_parts(node)[2])
        case _Plan.MASKED:
            read = splat(_run(node, lane, None), count)
            gate = splat(new[node.src[-1]], count)
            zero = splat(UOp.const(node.dtype, 0), count)
            return UOp(Ops.WHERE, read.dtype, (gate, read, zero))
        case _Plan.GUARDED:
            return _run(node, lane, splat(new[node.src[-1]], count))
        case _Plan.GATHER:
            return _gather(node, count, new)
        case _Plan.DOTS:
            return _dots(node, lane, new)
        case _:
            return _wide(node, count, new)


def _run(node: UOp, lane: UOp, gate: UOp | None) -> UOp:
    """The read of lane 0 and its neighbours; of one element when the lane does not move it."""
    stride, first = affine_split(node.src[1], lane) or (0, node.src[1])
    dtype = node.dtype.vec(range_end(lane)) if stride else node.dtype
    src = (node.src[0], first) if gate is None else (node.src[0], first, gate)
    return UOp(Ops.INDEX, dtype, src, gate is not None)


def _exactly(vector: UOp, lane: int) -> UOp:
    """A lane of a vector of arithmetic, as arithmetic of that lane: its bounds are its own."""
    new: dict[UOp, UOp] = {}
    for node in toposort(vector):
        if node.dtype.count == 1:
            new[node] = node
        elif node.op in GroupOp.ALU or node.op is Ops.CAST:
            src = tuple([new[source] for source in node.src])
            new[node] = UOp(node.op, node.dtype.scalar, src, node.arg)
        else:
            new[node] = element(node, lane)
    return new[vector]


def _gather(node: UOp, count: int, new: dict[UOp, UOp]) -> UOp:
    parts = [new.get(source, source) for source in node.src[1:]]
    elements = [
        UOp(node.op, node.dtype, (node.src[0], *[_exactly(part, i) for part in parts]), node.arg)
        for i in range(count)
    ]
    return UOp(Ops.VECTORIZE, node.dtype.vec(count), tuple(elements))


def _dots(node: UOp, lane: UOp, new: dict[UOp, UOp]) -> UOp:
    """The dot products of all lanes as one tile: a row for each lane, and one column."""
    count = range_end(lane)
    rows, column = _dot(node, lane) or ((), ())
    wide = [new.get(row, row) for row in rows]
    if all(row.dtype.count > 1 and row.op is not Ops.VECTORIZE for row in wide):
        order = [number + place * count for number in range(count) for place in range(len(wide))]
        a = UOp.cat(*wide).gep(order)
    else:  # reads one by one, which may be neighbours when they are put together
        a = UOp.vectorize(*[element(row, number) for number in range(count) for row in wide])
    c = splat(new.get(node.src[2], node.src[2]), count)
    tile = replace(node.arg, dims=(1, count, node.arg.dims[2]))
    return UOp.wmma(a, UOp.vectorize(*column), c, tile)


def _wide(node: UOp, count: int, new: dict[UOp, UOp]) -> UOp:
    if node.op is Ops.REDUCE:
        value = new.get(node.src[0], node.src[0])
        return UOp(node.op, value.dtype, (value, *node.src[1:]), node.arg)
    src = [new.get(source, source) for source in node.src]
    if all(source.dtype.count == 1 for source in src):
        return UOp(node.op, node.dtype, tuple(src), node.arg)
    return UOp(node.op, node.dtype.vec(count), tuple([splat(s, count) for s in src]), node.arg)
