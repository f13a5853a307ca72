"""Ranges and memory accesses of a kernel: the questions that actions and code generation ask.

A RANGE is *open* in a node when the node's value depends on it; REDUCE, BUFFERIZE, STORE and END
*bind* (close) ranges. Everything here is iterative and visits a node once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from morok._core import affine_split, substitute, toposort
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import OPS, AxisId, AxisType, Ops, UOp, graph_rewrite
from morok.symbolic import symbolic

__all__ = [
    "bound_ranges",
    "flat_index",
    "has_known_end",
    "index_parts",
    "is_address",
    "is_open",
    "lane_stride",
    "lanes_of_sums",
    "make_range",
    "memory_of",
    "merge_ranges",
    "moved_range",
    "next_number",
    "range_end",
    "reads_of",
    "rename_ranges",
    "simplify_all",
    "substitute_open",
]


def make_range(end: int, number: int, axis_type: AxisType) -> UOp:
    """RANGE of `end` iterations with a renumbered axis id."""
    return UOp.range(end, number, axis_type, renumbered=True)


def moved_range(rng: UOp, number: int, axis_type: AxisType | None = None) -> UOp:
    """A RANGE of as many iterations, be they symbolic, with another axis number."""
    return UOp.range(rng.src[0], number, axis_type or rng.arg[1], renumbered=True)


def has_known_end(rng: UOp) -> bool:
    """Whether a loop runs equally often whatever values variables have."""
    return rng.src[0].op is Ops.CONST


def range_end(rng: UOp) -> int:
    """Iterations of a RANGE: its end, or the largest value a symbolic end can take."""
    last = rng.vmax
    if last is None:
        raise InvalidGraphError("a loop needs an end with known bounds", node=rng)
    return last + 1


def is_open(node: UOp, ranges: set[UOp]) -> bool:
    """True when `node` depends on one of `ranges`."""
    return not ranges.isdisjoint(node.open_ranges)


def bound_ranges(node: UOp, *types: AxisType) -> tuple[UOp, ...]:
    """The ranges of these types that `node` closes, in source order."""
    return tuple(rng for rng in node.ended_ranges if rng.op is Ops.RANGE and rng.arg[1] in types)


def simplify_all(nodes: Sequence[UOp]) -> list[UOp]:
    """Each node simplified; common parts are visited once."""
    if not nodes:
        return []
    return list(graph_rewrite(UOp(Ops.GROUP, dtypes.void, tuple(nodes)), symbolic).src)


def substitute_open(roots: Sequence[UOp], values: Mapping[UOp, UOp]) -> list[UOp]:
    """Each root with the RANGEs it is open in replaced by `values`.

    A node that is not open in any of them is kept as it is, hence a binder of one of these ranges
    is never entered: nothing is captured.
    """
    if not values or not roots:
        return list(roots)
    together = UOp(Ops.GROUP, dtypes.void, tuple(roots))
    return list(substitute(together, dict(values), open_only=True).src)


def rename_ranges(sink: UOp, parts: Mapping[UOp, tuple[UOp, ...]]) -> UOp:
    """Replaces whole RANGEs everywhere, binding positions included.

    `parts[r]` are the ranges, outermost first, whose row-major counter takes the place of r:
    () makes r the constant 0. A BUFFERIZE that binds r changes its layout accordingly, and so do
    the INDEXes that read it.
    """
    return _rebuilt(sink, {rng: _counter(pieces) for rng, pieces in parts.items()}, parts)


def _rebuilt(sink: UOp, new: dict[UOp, UOp], parts: Mapping[UOp, tuple[UOp, ...]]) -> UOp:
    """`sink` over nodes that have `new` ones, which takes up the others; where a range is bound,
    its `parts` are."""
    for node in toposort(sink):
        if node in new:
            continue
        start = OPS[node.op].range_end
        src: list[UOp] = []
        for position, source in enumerate(node.src):
            if start is not None and position >= start and source in parts:
                src.extend(parts[source])
            else:
                src.append(new[source])
        if node.op is Ops.INDEX and node.src[0].op is Ops.BUFFERIZE:
            src = _reindexed(node, src, parts)
        if node.op is Ops.REDUCE and len(src) == 1:
            new[node] = src[0]
        else:
            new[node] = UOp(node.op, node.dtype, tuple(src), node.arg)
    return new[sink]


def merge_ranges(sink: UOp, outer: UOp, inner: UOp) -> UOp:
    """One range, numbered as `inner`, in place of two that the same STOREs bind: its quotient by
    the end of `inner` is `outer`, its remainder `inner`. Addresses come out simplified."""
    n = range_end(inner)
    merged = make_range(range_end(outer) * n, int(inner.arg[0].number), inner.arg[1])
    new: dict[UOp, UOp] = {outer: merged // n, inner: merged % n}
    addresses = [u for u in toposort(sink) if u.dtype is dtypes.index and u.op is not Ops.RANGE]
    open_here = [u for u in addresses if is_open(u, {outer, inner})]
    replaced = simplify_all(substitute_open(open_here, new))
    new.update(zip(open_here, replaced, strict=True))
    return _rebuilt(sink, new, {outer: (), inner: (merged,)})


def _counter(pieces: tuple[UOp, ...]) -> UOp:
    out = UOp.const(dtypes.index, 0)
    for piece in pieces:
        out = piece if out.op is Ops.CONST else out * range_end(piece) + piece
    return out


def _reindexed(node: UOp, src: list[UOp], parts: Mapping[UOp, tuple[UOp, ...]]) -> list[UOp]:
    """Sources of an INDEX of a BUFFERIZE some of whose ranges fell into parts."""
    bound = node.src[0].ended_ranges
    out = [src[0]]
    for rng, value in zip(bound, src[1:], strict=False):
        pieces = parts.get(rng, (rng,))
        digits = []
        for piece in reversed(pieces[1:]):
            digits.append(value % range_end(piece))
            value = value // range_end(piece)
        out += [value, *reversed(digits)] if pieces else []
    return out + src[1 + len(bound) :]


def index_parts(index: UOp) -> tuple[UOp, tuple[UOp, ...], UOp | None]:
    """(buffer, indices, gate or None) of an INDEX."""
    if index.arg:
        return index.src[0], index.src[1:-1], index.src[-1]
    return index.src[0], index.src[1:], None


def memory_of(index: UOp) -> UOp:
    """The definition of the memory that an INDEX points into."""
    memory: UOp = index.src[0]
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    return memory


def flat_index(index: UOp) -> UOp:
    """The position an INDEX addresses; several indices of a BUFFERIZE are row-major."""
    buffer, indices, _ = index_parts(index)
    if len(indices) == 1:
        return indices[0]
    if buffer.op is not Ops.BUFFERIZE:
        raise InvalidGraphError(
            "only a BUFFERIZE takes several indices in a kernel: flatten them", node=index
        )
    out = UOp.const(dtypes.index, 0)
    for rng, value in zip(buffer.ended_ranges, indices, strict=True):
        out = out * range_end(rng) + value
    return out


def lane_stride(index: UOp, rng: UOp) -> int | None:
    """Elements between neighbouring iterations of `rng`; None when they are not evenly spaced or
    the gate depends on `rng`."""
    _, _, gate = index_parts(index)
    if gate is not None and rng in gate.open_ranges:
        return None
    split = affine_split(simplify_all([flat_index(index)])[0], rng)
    return None if split is None else int(split[0])


def is_address(user: UOp, position: int) -> bool:
    """True when the source of `user` at `position` is an address and not a value."""
    return (user.op is Ops.STORE and position == 0) or (user.op is Ops.LOAD and position == 1)


def reads_of(roots: Iterable[UOp]) -> list[UOp]:
    """The INDEXes below `roots` (values or statements) that are read, each once."""
    roots = list(roots)
    reads = {root: None for root in roots if root.op is Ops.INDEX}
    for node in toposort(roots):
        for position, source in enumerate(node.src):
            if source.op is Ops.INDEX and not is_address(node, position):
                reads[source] = None
    return list(reads)


def lanes_of_sums(store: UOp, ranges: Iterable[UOp]) -> list[UOp]:
    """The ranges of a STORE along which most reads of its reductions are neighbours."""
    sums = [node for node in toposort(store.src[1]) if node.op is Ops.REDUCE]
    found = []
    for rng in ranges:
        inside = [node.src[0] for node in sums if rng in node.open_ranges]
        reads = [read for read in reads_of(inside) if rng in read.open_ranges]
        if 2 * sum(lane_stride(read, rng) == 1 for read in reads) > len(reads):
            found.append(rng)
    return found


def next_number(sink: UOp) -> int:
    """An axis number above all in use."""
    numbers = [_number(node) for node in toposort(sink, having=Ops.RANGE) if node.op is Ops.RANGE]
    return max(numbers, default=-1) + 1


def _number(rng: UOp) -> int:
    axis_id: AxisId = rng.arg[0]
    return axis_id.number
