"""Reductions of everything: first partial ones, stored, then the reduction of these.

    REDUCE_AXIS(x, all)    ->    REDUCE_AXIS(CONTIGUOUS(REDUCE_AXIS(RESHAPE(x, (p, n / p)), 1)), 0)

A kernel's threads share out its output loops, and a sum of everything has none. The partial results
are loops of a kernel as any others. How many there are follows from the shape alone: the value has
the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from morok._core import rebuild, toposort
from morok.dtype import acc_dtype
from morok.ir import GroupOp, Ops, ReduceOp, UOp
from morok.rangeify.cost import numel, value_sources
from morok.rangeify.transforms import LONG_SUM

__all__ = ["partial_reductions"]

_LEAST = 1 << 18  # elements to look at; fewer are done before other threads have begun
_BLOCK = LONG_SUM  # elements of a partial result, or more of very many
_MOST_PARTS = 1 << 14
_LEAST_PARTS = 16
_TRIES = 256
_PLAIN = GroupOp.ALU | {Ops.CAST, Ops.BITCAST}
_STORED = frozenset({Ops.PARAM, Ops.CONTIGUOUS, Ops.COPY, Ops.AFTER})


def partial_reductions(sink: UOp) -> UOp:
    """A tensor-level graph in which every long reduction has results to share out."""
    if not sink.has(Ops.REDUCE_AXIS):
        return sink
    long = {u for u in toposort(sink) if u.op is Ops.REDUCE_AXIS and _is_long(u)}
    if not long:
        return sink

    def reduced(node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node in long:
            return _in_parts(src[0], *node.arg)
        return UOp(node.op, node.dtype, src, node.arg)

    done: UOp = rebuild(sink, {Ops.REDUCE_AXIS: reduced})
    return done


def _is_long(node: UOp) -> bool:
    """One result of much that memory holds, known when the kernel is made."""
    (value,) = node.src
    shape = value.shape or ()
    if not all(isinstance(n, int) for n in shape) or numel(node) != 1:
        return False
    return numel(value) >= _LEAST_PARTS and _read(value) >= max(_LEAST, numel(value) // 2)


def _read(value: UOp) -> int:
    """The elements of the largest array that a value reads, with reductions that go on in it."""
    most, seen, stack = 0, {value}, [value]
    while stack:
        u = stack.pop()
        if u.op in _STORED:
            most = max(most, numel(u))
            continue
        below = u.src[:1] if u.op is Ops.REDUCE_AXIS else value_sources(u)
        stack += [s for s in below if s not in seen]
        seen.update(below)
    return most


def _in_parts(value: UOp, op: ReduceOp, axes: tuple[int, ...]) -> UOp:
    """REDUCE_AXIS of `value`: sums of narrow floats are rounded once, at the end."""
    dtype = value.dtype
    wide = acc_dtype(dtype) if dtype.kind == "f" and op in _ROUNDING else dtype
    if wide is not dtype:
        value = value.cast(wide)
    shape = list(value.shape or ())
    steps = prod(shape[axis] for axis in axes)
    wanted = min(max(steps // _BLOCK, _LEAST_PARTS), _MOST_PARTS)
    left = 1  # how many partial results there are
    parts: list[int] = []  # along these axes
    for axis in sorted(axes):
        if 2 * left >= wanted:
            break
        if left * shape[axis] > 8 * wanted:
            return _cut(value, op, axes, (*parts, axis), -(-wanted // left)).cast(dtype)
        parts.append(axis)
        left *= shape[axis]
    return _twice(value, op, axes, parts).cast(dtype)


_ROUNDING = (ReduceOp.ADD, ReduceOp.MUL)


def _twice(value: UOp, op: ReduceOp, axes: Sequence[int], parts: Sequence[int]) -> UOp:
    """The reduction over the axes other than `parts`, stored, then over these."""
    first = tuple(axis for axis in axes if axis not in parts)
    inner = value.reduce_axis(op, first) if first else value
    last = tuple(axis - sum(other < axis for other in first) for axis in parts)
    return inner.contiguous().reduce_axis(op, last)


def _cut(value: UOp, op: ReduceOp, axes: tuple[int, ...], parts: tuple[int, ...], most: int) -> UOp:
    """The last of `parts` is cut into `most` pieces or somewhat fewer, so that little is left over:
    that is reduced together with the partial results."""
    shape = tuple(value.shape or ())
    axis = parts[-1]
    tries = range(most, max(most // 2, most - _TRIES), -1)
    pieces = min(tries, key=lambda n: (shape[axis] % n, n % 4 != 0))
    length = shape[axis] // pieces
    whole = pieces * length
    cut = (*shape[:axis], pieces, length, *shape[axis + 1 :])
    moved = [a + (a > axis) for a in axes]
    main = _part(value, axis, 0, whole).reshape(cut)
    total = _twice(main, op, sorted((*moved, axis + 1)), parts)
    if whole == shape[axis]:
        return total
    rest = _part(value, axis, whole, shape[axis]).reduce_axis(op, axes)
    return op.step(total, rest)


def _part(value: UOp, axis: int, begin: int, end: int) -> UOp:
    """begin <= i < end of an axis: of what plain arithmetic is done with, so that no part is
    computed for another one's sake."""
    shape = tuple(value.shape or ())
    if (begin, end) == (0, shape[axis]):
        return value
    new: dict[UOp, UOp] = {}
    stack = [value]
    while stack:
        u = stack[-1]
        plain = u.op in _PLAIN
        below = [s for s in u.src if s not in new and s.shape] if plain else []
        if below:
            stack += below
            continue
        stack.pop()
        if plain:
            new[u] = UOp(u.op, u.dtype, tuple(new.get(s, s) for s in u.src), u.arg)
        else:
            begins = [begin if i == axis else 0 for i in range(len(shape))]
            ends = [end if i == axis else n for i, n in enumerate(shape)]
            new[u] = u.shrink(begins, ends)
    return new[value]
