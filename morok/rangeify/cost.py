"""What the fusion decisions weigh: work per element, memory read, size of the inputs. Counted once,
bottom up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from morok.ir import GroupOp, Ops, UOp, element_reads, is_carried, is_ordered, parts_of, room_of

# Work of one element relative to an addition; a round trip through memory costs about four.
ROUND_TRIP = 4
PASS = 2  # one way
LAUNCH = 4000  # of a kernel: a microsecond
TILED = 32  # multiply-adds of a contraction that take as long as one addition elsewhere
PADDING = 2  # a condition at every read, which also keeps neighbours from being read together
_HEAVY = {
    Ops.EXP: 10,
    Ops.EXP2: 8,
    Ops.LOG: 10,
    Ops.LOG2: 10,
    Ops.SIN: 12,
    Ops.COS: 12,
    Ops.TAN: 16,
    Ops.POW: 20,
    Ops.ERF: 12,
    Ops.SQRT: 4,
    Ops.RSQRT: 4,
    Ops.FDIV: 3,
    Ops.RECIPROCAL: 3,
    Ops.IDIV: 8,
    Ops.MOD: 8,
    Ops.FLOORDIV: 8,
    Ops.FLOORMOD: 8,
    Ops.THREEFRY: 60,
}
_FREE = frozenset({Ops.CAST, Ops.BITCAST})
_WORK_LIMIT = 1 << 20
_LEAF_LIMIT = 16

LEAVES = frozenset({Ops.CONST, Ops.DEFINE_VAR})  # numbers that a kernel knows

# Ops that pass the value of their first source on.
IDENTITY = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP, Ops.PRECAST})


@dataclass(slots=True)
class Cost:
    """About the value of one node, computed from the nearest buffers and reductions below."""

    work: int  # per element
    leaves: tuple[UOp, ...]  # what is read, the first _LEAF_LIMIT
    widest: int  # elements of the largest leaf
    contracts: bool  # a contraction lies below, not behind a buffer


_NOTHING = Cost(0, (), 0, False)


def numel(u: UOp) -> int:
    """Elements of a tensor-level value, with every symbolic dim at its largest."""
    return room_of(u.shape or ())


def is_contraction(u: UOp, costs: dict[UOp, Cost]) -> bool:
    """A reduction over more elements than any of its inputs has, such as a matrix product."""
    inner = costs[u.src[0]]
    return inner.widest * 2 <= numel(u.src[0]) and bool(inner.leaves)


def value_sources(u: UOp) -> tuple[UOp, ...]:
    """The sources whose values make the value of `u`; shape arguments are none."""
    if u.op in GroupOp.Movement or u.op in IDENTITY or u.op in _PASSING:
        return u.src[:1]
    if u.op is Ops.BUFFERIZE or is_ordered(u):
        return tuple(read.src[0] for read in tensor_reads(u))
    if u.op is Ops.AFTER:
        return tuple(d.src[1] for d in u.src[1:])
    if u.op in GroupOp.ALU or u.op in _FREE:
        return u.src
    return ()


def tensor_reads(u: UOp) -> list[UOp]:
    """The INDEXes by which a BUFFERIZE or an ordered loop reads tensors: not what it carries."""
    return [read for read in element_reads(parts_of(u)) if not is_carried(read)]


_PASSING = frozenset({Ops.REDUCE_AXIS, Ops.CONTIGUOUS, Ops.COPY})


def count_costs(order: list[UOp]) -> dict[UOp, Cost]:
    """The cost record of every node of a topological order."""
    costs: dict[UOp, Cost] = {}
    for u in order:
        if u.op in (Ops.PARAM, Ops.AFTER, Ops.CONTIGUOUS, Ops.COPY):
            costs[u] = Cost(0, (u,), numel(u), False)
        elif u.op is Ops.REDUCE_AXIS:
            below = costs[u.src[0]]
            contracts = below.contracts or is_contraction(u, costs)
            costs[u] = Cost(0, (u,), numel(u), contracts)
        else:
            costs[u] = _combined(u, [costs[s] for s in value_sources(u)])
    return costs


def _spread(below: Cost, times: int) -> Cost:
    """Of a value repeated `times` times: it gets a buffer of its own rather than be computed so
    often, which costs a read for each element and a small part of a round trip."""
    most = 1 + ROUND_TRIP // max(times, 1)
    return replace(below, work=most) if below.work > most else below


def _combined(u: UOp, parts: list[Cost]) -> Cost:
    own = 0
    if u.op in GroupOp.ALU and u.op not in _FREE:
        own = _HEAVY.get(u.op, 1)
    elif u.op is Ops.PAD:
        own = PADDING
    elif u.op is Ops.BUFFERIZE:
        own = len(parts)
    if not parts:
        return _NOTHING
    if u.op is Ops.EXPAND:
        return _spread(parts[0], numel(u) // max(numel(u.src[0]), 1))
    if len(parts) == 1 and own == 0:
        return parts[0]
    leaves = tuple(dict.fromkeys(leaf for p in parts for leaf in p.leaves))[:_LEAF_LIMIT]
    return Cost(
        min(own + sum(p.work for p in parts), _WORK_LIMIT),
        leaves,
        max(p.widest for p in parts),
        any(p.contracts for p in parts),
    )
