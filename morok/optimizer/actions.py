"""The actions on loops alone: UPCAST, UNROLL, SPLIT, SWAP, ORDER, MERGE, TAIL (see `opts`)."""

from __future__ import annotations

from itertools import pairwise

from morok._core import toposort
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.legality import (
    binders_of,
    check_divides,
    check_independent,
    check_instances,
    loop_axis,
    make_room,
    require,
)
from morok.optimizer.ranges import (
    make_range,
    merge_ranges,
    moved_range,
    next_number,
    range_end,
    rename_ranges,
    simplify_all,
    substitute_open,
)

__all__ = ["merge", "order", "split", "swap", "tail", "unroll", "upcast"]


def _widen(sink: UOp, axis: int, amount: int, axis_type: AxisType) -> UOp:
    rng = loop_axis(sink, axis)
    check_divides(rng, amount)
    check_independent(sink, rng)
    check_instances(sink, rng, amount)
    inner = make_range(amount, next_number(sink), axis_type)
    outer = range_end(rng) // amount
    parts = (inner,) if outer == 1 else (make_range(outer, axis, rng.arg[1]), inner)
    return rename_ranges(sink, {rng: parts})


def upcast(sink: UOp, axis: int, amount: int) -> UOp:
    return _widen(sink, axis, amount, AxisType.UPCAST)


def unroll(sink: UOp, axis: int, amount: int) -> UOp:
    return _widen(sink, axis, amount, AxisType.UNROLL)


def split(sink: UOp, axis: int, amount: int) -> UOp:
    rng = loop_axis(sink, axis)
    check_divides(rng, amount)
    require(amount < range_end(rng), "a split needs two parts")
    sink, rng = make_room(sink, rng)
    outer = make_range(range_end(rng) // amount, axis, rng.arg[1])
    inner = make_range(amount, axis + 1, rng.arg[1])
    divided = any(u.op in _DIVISIONS and rng in u.open_ranges for u in toposort(sink))
    sink = rename_ranges(sink, {rng: (outer, inner)})
    return simplify_all([sink])[0] if divided else sink  # (2 * outer + inner) // 2 is outer


_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})


def swap(sink: UOp, axis: int, other_axis: int) -> UOp:
    first, second = loop_axis(sink, axis), loop_axis(sink, other_axis)
    require(first is not second, "an axis is swapped with another one")
    require(first.arg[1] is second.arg[1], f"axes {axis} and {other_axis} differ in type")
    one, other = set(binders_of(sink, first)), set(binders_of(sink, second))
    require(
        one <= other or other <= one,
        f"axes {axis} and {other_axis} are not loops of the same statements",
    )
    check_independent(sink, first)
    check_independent(sink, second)
    return rename_ranges(
        sink,
        {
            first: (moved_range(first, other_axis),),
            second: (moved_range(second, axis),),
        },
    )


def order(sink: UOp, *axes: int) -> UOp:
    """R(a, …), R(b, …), R(c, …), axes c, a, b -> R(b, …), R(c, …), R(a, …)"""
    loops = [loop_axis(sink, axis) for axis in axes]
    require(len(set(loops)) == len(loops), "an axis is named twice")
    places = sorted(axes)
    require(places != list(axes), "the axes are in this order already")
    require(len({rng.arg[1] for rng in loops}) == 1, "the axes differ in type")
    inside = sorted((set(binders_of(sink, rng)) for rng in loops), key=len)
    require(
        all(fewer <= more for fewer, more in pairwise(inside)),
        "the axes are not loops of the same statements",
    )
    for rng in loops:
        check_independent(sink, rng)
    moved = zip(loops, places, strict=True)
    return rename_ranges(sink, {rng: (moved_range(rng, place),) for rng, place in moved})


def merge(sink: UOp, axis: int, other_axis: int) -> UOp:
    outer, inner = loop_axis(sink, axis), loop_axis(sink, other_axis)
    binders = binders_of(sink, outer)
    require(
        outer is not inner and binders == binders_of(sink, inner),
        f"axes {axis} and {other_axis} are not loops of the same statements",
    )
    require(
        all(node.op is Ops.STORE for node in binders) and outer.arg[1] is inner.arg[1],
        f"axes {axis} and {other_axis} are not loops of the output",
    )
    filled = [node for node in toposort(sink) if node.op in (Ops.BUFFERIZE, Ops.AFTER)]
    if not filled or not all(_in_both(node, outer, inner) for node in filled):
        check_independent(sink, outer)
        check_independent(sink, inner)
    return merge_ranges(sink, outer, inner)


def _in_both(node: UOp, outer: UOp, inner: UOp) -> bool:
    """Is a local buffer filled for each iteration of both loops, or outside of both?"""
    return node.op is Ops.BUFFERIZE and (outer in node.open_ranges) == (inner in node.open_ranges)


def tail(sink: UOp, axis: int, amount: int) -> UOp:
    rng = loop_axis(sink, axis)
    end = range_end(rng)
    require(2 <= amount < end, f"{amount} is no part of {end} iterations")
    require(end % amount != 0, f"{amount} divides the {end} iterations: nothing is left over")
    check_independent(sink, rng)
    binders = binders_of(sink, rng)
    output = all(node in sink.src and node.op is Ops.STORE for node in binders)
    require(
        output or all(node.op is Ops.REDUCE for node in binders),
        f"axis {axis} fills a local buffer",
    )
    sink, rng = make_room(sink, rng)
    rest = make_range(end % amount, axis + 1, rng.arg[1])
    main = make_range(end - end % amount, axis, rng.arg[1])
    shifted = UOp.const(rng.dtype, end - end % amount)
    if end % amount == 1:
        return _tailed(sink, rng, main, shifted, ())
    return _tailed(sink, rng, main, rest + shifted, (rest,))


def _tailed(sink: UOp, rng: UOp, main: UOp, shifted: UOp, last: tuple[UOp, ...]) -> UOp:
    """Every binder of `rng` becomes one over `main` and one, at `shifted`, over `last`."""
    new: dict[UOp, UOp] = {}
    for node in toposort(sink):
        src: list[UOp] = []
        for source in node.src:
            copy = new[source]
            src += copy.src if source.op is Ops.STORE and copy.op is Ops.GROUP else (copy,)
        copied = UOp(node.op, node.dtype, tuple(src), node.arg)
        if rng in node.ended_ranges:
            copied = _two_parts(copied, rng, main, shifted, last)
        new[node] = copied
    return new[sink]


def _two_parts(node: UOp, rng: UOp, main: UOp, shifted: UOp, last: tuple[UOp, ...]) -> UOp:
    ended = node.ended_ranges
    values = node.src[: len(node.src) - len(ended)]
    parts = []
    for counter, pieces in ((main, (main,)), (shifted, last)):
        ranges: list[UOp] = []
        for other in ended:
            ranges += pieces if other is rng else (other,)
        body = substitute_open(values, {rng: counter})
        if node.op is Ops.REDUCE and not ranges:
            parts += body
        else:
            parts.append(UOp(node.op, node.dtype, (*body, *ranges), node.arg))
    if node.op is Ops.STORE:
        return UOp.group(*parts)
    first, second = parts
    return UOp(node.arg.alu, node.dtype, (first, second))
