"""Ops that few targets have, or none: UNROLL, CONTRACT, PTRCAT, WMMA and BARRIER.

An UNROLL is a value in several versions, one for each iteration of its axes. It spreads through the
expandable ops and the statements above, until a CONTRACT collects the versions of its axes in the
lanes of a vector. The versions here are nodes of their own, so that neither op is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from morok._core import rebuild, toposort
from morok.codegen.lanes import element
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import Capability, GroupOp, Ops, ReduceOp, UOp, WmmaMetadata

__all__ = ["lower_barriers", "lower_tiles", "lower_unrolls", "ungroup_addresses"]

_Axes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Versions:
    """A node for each assignment of numbers to `axes`, (axis, factor) pairs; the last one runs
    fastest."""

    axes: _Axes
    nodes: tuple[UOp, ...]

    def at(self, chosen: dict[int, int]) -> UOp:
        """The version of an assignment; axes it does not have do not matter."""
        return self.nodes[_place(self.axes, chosen)]


def _place(axes: _Axes, chosen: dict[int, int]) -> int:
    """Which one an assignment is, counted with the last axis fastest."""
    place = 0
    for axis, factor in axes:
        place = place * factor + chosen[axis]
    return place


def _assignments(axes: _Axes) -> Iterator[dict[int, int]]:
    for values in itertools.product(*(range(factor) for _, factor in axes)):
        yield {axis: value for (axis, _), value in zip(axes, values, strict=True)}


# ---- UNROLL and CONTRACT -------------------------------------------------------------------------


def lower_unrolls(sink: UOp) -> UOp:
    """CONTRACT(f(UNROLL(x))) -> VECTORIZE of f(GEP(x, i)); statements in several versions are
    several. InvalidGraphError for an op that an UNROLL does not spread through."""
    if not (sink.has(Ops.UNROLL) or sink.has(Ops.CONTRACT)):
        return sink
    known: dict[UOp, _Versions] = {}
    for node in toposort(sink):
        visit = _VISIT.get(node.op, _spread)
        known[node] = visit(node, [known[source] for source in node.src])
    return known[sink].nodes[0]


def _single(node: UOp, src: Sequence[UOp]) -> _Versions:
    return _Versions((), (UOp(node.op, node.dtype, tuple(src), node.arg),))


def _spread(node: UOp, src: list[_Versions]) -> _Versions:
    """An op over the versions of its sources."""
    factors: dict[int, int] = {}
    for axis, factor in itertools.chain.from_iterable(versions.axes for versions in src):
        if factors.setdefault(axis, factor) != factor:
            raise _fault(node, f"one factor for axis {axis}", f"{factors[axis]} and {factor}")
    if factors and node.op not in GroupOp.Expandable:
        raise _fault(node, "a CONTRACT below, or an op that UNROLL spreads through", node.op.name)
    axes = tuple(sorted(factors.items()))
    nodes = [
        UOp(node.op, node.dtype, tuple([s.at(chosen) for s in src]), node.arg)
        for chosen in _assignments(axes)
    ]
    return _Versions(axes, tuple(nodes))


def _unroll(node: UOp, src: list[_Versions]) -> _Versions:
    (source,) = src
    taken = {axis for axis, _ in source.axes}
    if any(axis in taken for axis, _ in node.arg):
        raise _fault(node, "axes that are not unrolled below", str(node.arg))
    axes = tuple(sorted((*source.axes, *node.arg)))
    lanes = node.dtype.count
    nodes = []
    for chosen in _assignments(axes):
        start = _place(node.arg, chosen) * lanes
        nodes.append(element(source.at(chosen), *range(start, start + lanes)))
    return _Versions(axes, tuple(nodes))


def _contract(node: UOp, src: list[_Versions]) -> _Versions:
    (source,) = src
    collected = dict(node.arg)
    for axis, factor in source.axes:
        if collected.get(axis, factor) != factor:
            raise _fault(node, f"factor {factor} of axis {axis}, as below", str(collected[axis]))
    axes = tuple(pair for pair in source.axes if pair[0] not in collected)
    nodes = []
    for chosen in _assignments(axes):
        parts = [source.at(chosen | inner) for inner in _assignments(node.arg)]
        nodes.append(_joined(parts))
    return _Versions(axes, tuple(nodes))


def _joined(parts: Sequence[UOp]) -> UOp:
    """Values one after another in the lanes of a vector."""
    if len(parts) == 1:
        return parts[0]
    return UOp.vectorize(*parts) if parts[0].dtype.count == 1 else UOp.cat(*parts)


def _splice(node: UOp, src: list[_Versions]) -> _Versions:
    """A collection of statements: all versions of each."""
    return _single(node, [version for versions in src for version in versions.nodes])


def _after(node: UOp, src: list[_Versions]) -> _Versions:
    deps = [version for versions in src[1:] for version in versions.nodes]
    nodes = [UOp(node.op, node.dtype, (value, *deps), node.arg) for value in src[0].nodes]
    return _Versions(src[0].axes, tuple(nodes))


def _end(node: UOp, src: list[_Versions]) -> _Versions:
    body = src[0].nodes
    one = body[0] if len(body) == 1 else UOp.group(*body)
    return _single(node, [one, *(ranges.nodes[0] for ranges in src[1:])])


_VISIT: Final[dict[Ops, Callable[[UOp, list[_Versions]], _Versions]]] = {
    Ops.UNROLL: _unroll,
    Ops.CONTRACT: _contract,
    Ops.SINK: _splice,
    Ops.GROUP: _splice,
    Ops.AFTER: _after,
    Ops.BARRIER: _after,
    Ops.END: _end,
}


def _fault(node: UOp, expected: str, got: str) -> InvalidGraphError:
    return InvalidGraphError(
        f"{node.op.name}: expected {expected}, got {got}",
        node=node,
        stage="expander",
        rule="unroll",
        expected=expected,
        got=got,
    )


# ---- WMMA ----------------------------------------------------------------------------------------


def lower_tiles(sink: UOp, capability: Capability, *, whole: bool) -> UOp:
    """WMMA of which the target has no tensor core -> sums of products, an element of the tile a
    lane. Until lanes are chosen a dot product may become a `whole` tile.

    a is M x K, b is K x N, c and the result are M x N, row by row, of rows x columns such tiles for
    a `tile_grid` of several. Only the tile of a single thread is known as a whole: those that the
    threads of a warp share lie in their registers as the hardware has it (InvalidGraphError).
    """
    if not sink.has(Ops.WMMA):
        return sink

    def lower(node: UOp, src: tuple[UOp, ...]) -> UOp:
        if Ops.WMMA in capability.ops and any(fits(node.arg, c) for c in capability.tensor_cores):
            return UOp(node.op, node.dtype, src, node.arg)
        return _tile(node, src)

    fits = _same_tile if whole else _same_dot
    return rebuild(sink, {Ops.WMMA: lower})


def _same_tile(tile: WmmaMetadata, core: WmmaMetadata) -> bool:
    """Is a tile what an instruction makes?"""
    same = (tile.dims, tile.dtype_in, tile.dtype_out) == (core.dims, core.dtype_in, core.dtype_out)
    return same and tile.tile_grid == core.tile_grid


def _same_dot(tile: WmmaMetadata, core: WmmaMetadata) -> bool:
    """May a tile become that, along some lane?"""
    single = tile.dims[:2] == (1, 1) and tile.dims[2] == core.dims[2]
    same = (tile.dtype_in, tile.dtype_out) == (core.dtype_in, core.dtype_out)
    return _same_tile(tile, core) or (single and same)


def _tile(node: UOp, src: tuple[UOp, ...]) -> UOp:
    a, b, c, *ranges = src
    if node.arg.threads != 1:
        raise InvalidGraphError(
            f"{node.arg.name} needs the tensor cores of {node.arg.device}: this target has none, "
            f"and its tiles are shared by {node.arg.threads} threads",
            node=node,
            stage="expander",
            rule="tensor-cores",
            expected="a tile of one thread",
            got=f"{node.arg.threads} threads",
        )
    rows, columns, depth = node.arg.tile
    wanted = (rows * depth, depth * columns, rows * columns)
    if (a.dtype.count, b.dtype.count, c.dtype.count) != wanted:
        got = f"{a.dtype.count}, {b.dtype.count} and {c.dtype.count} lanes"
        raise _fault(node, f"tiles of {wanted} lanes", got)
    out = []
    for row, column in itertools.product(range(rows), range(columns)):
        total = element(c, row * columns + column)
        terms = [
            element(a, row * depth + k).cast(total.dtype)
            * element(b, k * columns + column).cast(total.dtype)
            for k in range(depth)
        ]
        if ranges:
            terms = [_sum(terms).reduce(ReduceOp.ADD, *ranges)]
        out.append(_sum([total, *terms]))
    return UOp.vectorize(*out) if len(out) > 1 else out[0]


def _sum(terms: Sequence[UOp]) -> UOp:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# ---- BARRIER -------------------------------------------------------------------------------------


def lower_barriers(sink: UOp, capability: Capability) -> UOp:
    """BARRIER -> AFTER on a target without work-items: the only one of a group waits for nobody."""
    if capability.work_items or not sink.has(Ops.BARRIER):
        return sink
    return rebuild(sink, {Ops.BARRIER: _order})


def _order(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return UOp.group(*src) if node.dtype is dtypes.void else src[0].after(*src[1:])


# ---- PTRCAT --------------------------------------------------------------------------------------


def ungroup_addresses(sink: UOp) -> UOp:
    """LOADs and STOREs of a PTRCAT -> one for each of its addresses, which the devectorizer groups
    by the widths of the target."""
    if not sink.has(Ops.PTRCAT):
        return sink
    return rebuild(sink, {Ops.LOAD: _load, Ops.STORE: _store, Ops.SINK: _flat, Ops.GROUP: _flat})


def _parts(address: UOp) -> Iterator[tuple[UOp, range]]:
    """The addresses of a PTRCAT, and which lanes are at each."""
    start = 0
    for part in address.src:
        lanes = part.dtype.base.count
        yield part, range(start, start + lanes)
        start += lanes


def _load(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if src[1].op is not Ops.PTRCAT:
        return UOp(node.op, node.dtype, src, node.arg)
    loads = []
    for part, lanes in _parts(src[1]):
        alt = element(src[2], *lanes) if len(src) == 3 and part.arg else None
        loads.append(part.load(alt))
    return _joined(loads)


def _store(node: UOp, src: tuple[UOp, ...]) -> UOp:
    address, value, *ranges = src
    if address.op is not Ops.PTRCAT:
        return UOp(node.op, node.dtype, src, node.arg)
    return UOp.group(*(p.store(element(value, *lanes), *ranges) for p, lanes in _parts(address)))


def _flat(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Statements that became several, among the others."""
    flat: list[UOp] = []
    for old, new in zip(node.src, src, strict=True):
        flat += new.src if new.op is Ops.GROUP and old.op is Ops.STORE else (new,)
    return UOp(node.op, node.dtype, tuple(flat), node.arg)
