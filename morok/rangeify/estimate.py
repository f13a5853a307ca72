"""What one run of a kernel costs, counted on its graph: floating-point operations and bytes
moved."""

from __future__ import annotations

from math import prod

from morok._core import toposort
from morok.ir import Estimates, GroupOp, Ops, UOp
from morok.optimizer import range_end

_MOVES = frozenset({Ops.CAST, Ops.BITCAST, Ops.WHERE})


def _sizes(loops: tuple[UOp, ...]) -> int:
    return prod(range_end(r) for r in loops)


def _memory(index: UOp) -> UOp:
    """What an INDEX selects from, however ordered."""
    buffer: UOp = index.src[0]
    return buffer.src[0] if buffer.op is Ops.AFTER else buffer


def _around(order: list[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """For each loop, the loops around it and itself, outermost first: those open where it is
    closed."""
    around: dict[UOp, tuple[UOp, ...]] = {}
    for u in reversed(order):  # outer binders come last in topological order
        if u.op in GroupOp.RangeEnding:
            outside = _innermost(u.open_ranges, around)
            for r in u.ended_ranges:
                around.setdefault(r, (*outside, r))
                outside = around[r]
    return around


def _innermost(loops: tuple[UOp, ...], around: dict[UOp, tuple[UOp, ...]]) -> tuple[UOp, ...]:
    best: tuple[UOp, ...] = ()
    for r in loops:
        chain = around.get(r, (r,))
        if len(chain) > len(best):
            best = chain
    return best


def estimate(sink: UOp) -> Estimates:
    """Counts for a kernel SINK.

    flops: float arithmetic, each op as often as the loops around its place run; a reduction adds
    one step for each element. bytes_read, bytes_written: for each buffer, the distinct elements
    that its indices can name. Scratch rows and repeated reads from cache do not count.
    """
    order = sink.toposort()
    around = _around(order)
    flops = 0
    read: dict[UOp, int] = {}
    written: dict[UOp, int] = {}
    targets = {s.src[0] for s in sink.src}
    values = {u for s in sink.src for part in (*s.src[0].src[1:], s.src[1]) for u in toposort(part)}
    for u in order:
        if u.op in GroupOp.ALU and u.op not in _MOVES and u.dtype.scalar.kind == "f":
            flops += _sizes(_innermost(u.open_ranges, around))
        elif u.op is Ops.REDUCE and u.dtype.scalar.kind == "f":
            flops += (
                _sizes(_innermost(u.src[0].open_ranges, around))
                if u.src[0].open_ranges
                else _sizes(u.ended_ranges)
            )
        elif u.op is Ops.INDEX and (buffer := _memory(u)).op is Ops.PARAM:
            size = buffer.arg[1]
            elements = min(size, _sizes(u.src[1].open_ranges))
            for side, wanted in ((read, u in values), (written, u in targets)):
                if wanted:
                    side[buffer] = min(size, side.get(buffer, 0) + elements)
    return Estimates(flops, _bytes(read), _bytes(written))


def _bytes(elements: dict[UOp, int]) -> int:
    return sum(n * buffer.dtype.base.itemsize for buffer, n in elements.items())
