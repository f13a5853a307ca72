"""Strided reads as reads of neighbours and shuffles.

Those that together are a square of memory: its rows are read, its columns shuffled out.

A vector of x[k, 0], x[k, 1], … along k takes a load for each lane. n such vectors at neighbouring
places are the columns of n rows of n neighbours: n loads and n * log2(n) shuffles of two vectors.

Every second element: two loads of neighbours and a shuffle, which serve both halves if both are
wanted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from morok._core import affine_form
from morok.ir import Capability, Ops, UOp
from morok.optimizer import index_parts

__all__ = ["columns_of_squares", "every_second"]

_SHUFFLED = 16  # bytes within which shuffles move elements freely


def columns_of_squares(vectors: Iterable[UOp], capability: Capability) -> dict[UOp, UOp]:
    """New values for those of some VECTORIZEs of LOADs that are the columns of a square."""
    at: dict[tuple[object, ...], dict[int, UOp]] = {}
    for vector in vectors:
        place = _strided(vector)
        if place is not None:
            key, start = place
            at.setdefault(key, {})[start] = vector
    new: dict[UOp, UOp] = {}
    for found in at.values():
        dtype = next(iter(found.values())).dtype
        width = dtype.count
        if len(found) < width or width not in capability.widths(dtype.scalar):
            continue
        for start in sorted(found):
            columns = [found.get(start + lane) for lane in range(width)]
            square = [column for column in columns if column is not None and column not in new]
            if len(square) == width:
                new.update(zip(square, _transposed(_rows(square[0])), strict=True))
    return new


def every_second(vectors: Iterable[UOp], capability: Capability) -> dict[UOp, UOp]:
    """New values for those of some VECTORIZEs of LOADs that take every second element."""
    at: dict[tuple[object, ...], dict[int, UOp]] = {}
    for vector in vectors:
        place = _strided(vector)
        native = vector.dtype.count in capability.widths(vector.dtype.scalar)
        if native and place is not None and place[0][2] == 2:
            at.setdefault(place[0], {})[place[1]] = vector
    new: dict[UOp, UOp] = {}
    for found in at.values():
        for start, vector in sorted(found.items()):
            if vector in new:
                continue
            width, other = vector.dtype.count, found.get(start + 1)
            # Both halves fill 2 * width elements; one alone ends with the last element it takes.
            second = width if other is not None else width - 1
            both = UOp.cat(_neighbours(vector, 0), _neighbours(vector, second))
            lanes = [2 * i if 2 * i < width else 2 * i + width - second for i in range(width)]
            new[vector] = both.gep(tuple(lanes))
            if other is not None:
                new[other] = both.gep(tuple([lane + 1 for lane in lanes]))
    return new


def _neighbours(vector: UOp, offset: int) -> UOp:
    """The LOAD of as many elements side by side, `offset` behind the first one of a VECTORIZE."""
    load = vector.src[0]
    buffer, position = load.src[1].src
    dtype = load.dtype.vec(vector.dtype.count)
    index = UOp(Ops.INDEX, dtype, (buffer, position + offset if offset else position), False)
    return UOp(Ops.LOAD, dtype, (load.src[0], index))


_Place = tuple[tuple[object, ...], int]


def _strided(vector: UOp) -> _Place | None:
    """What evenly spaced LOADs without gates must have in common to be in one square (buffer, index
    without its constant, step, lanes), and the constant of the first; None for others."""
    starts = []
    first = None
    for load in vector.src:
        buffer, (index,), gate = index_parts(load.src[1])
        if gate is not None or len(load.src) > 2:
            return None
        terms, start = affine_form(index)
        if first is None:
            first = (buffer, terms)
        elif first != (buffer, terms):
            return None
        starts.append(start)
    steps = {after - before for before, after in itertools.pairwise(starts)}
    if first is None or len(steps) != 1:
        return None
    return (*first, steps.pop(), vector.dtype), starts[0]


def _rows(column: UOp) -> list[UOp]:
    """The LOADs of the rows of a square from the first of its columns."""
    width = column.dtype.count
    rows = []
    for load in column.src:
        index = load.src[1]
        vector = UOp(Ops.INDEX, index.dtype.scalar.vec(width), index.src, False)
        rows.append(UOp(Ops.LOAD, vector.dtype, (load.src[0], vector)))
    return rows


def _transposed(rows: list[UOp]) -> list[UOp]:
    """The columns of a square of vectors.

    Rows are joined by twos: what joining n rows gives has their elements of one column side by
    side, n at a time. The vectors with the lower and the upper halves of that are joined on.
    """
    width = len(rows)
    unit = max(_SHUFFLED // rows[0].dtype.scalar.itemsize, 2)
    # Each group: vectors, and the column of each of their runs.
    groups = [[(row, list(range(width)))] for row in rows]
    run = 1
    while len(groups) > 1:
        lane = min(max(unit, 2 * run), width)
        groups = [
            [
                _half(a, b, columns, run, lane, upper)
                for (a, columns), (b, _) in zip(first, second, strict=True)
                for upper in (False, True)
            ]
            for first, second in zip(groups[::2], groups[1::2], strict=True)
        ]
        run *= 2
    (done,) = groups
    return [vector for vector, columns in sorted(done, key=lambda each: each[1][0])]


def _half(
    a: UOp, b: UOp, columns: list[int], run: int, lane: int, upper: bool
) -> tuple[UOp, list[int]]:
    """Of every `lane` elements the lower or upper half, runs of `a` and `b` in turn; and the
    columns of the runs, now twice as long."""
    width = a.dtype.count
    picked: list[int] = []
    kept: list[int] = []
    for base in range(0, width, lane):
        start = base + (lane // 2 if upper else 0)
        for at in range(start, start + lane // 2, run):
            picked += [*range(at, at + run), *range(width + at, width + at + run)]
            kept.append(columns[at // run])
    return UOp.cat(a, b).gep(tuple(picked)), kept
