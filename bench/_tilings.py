"""Index expressions of views: what a kernel computes to find an element behind movement ops, with
its loops split as SPLIT and UPCAST split them. The formulas are written out and nothing is
simplified on the way; the truth is NumPy's, of the same view of the positions 0, 1, 2, …"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import numpy as np

from bench._views import MOVEMENT, chain
from morok.dtype import dtypes
from morok.ir import AxisType, Ops, UOp

MOST = 3000
"""Elements of a view, all of which are looked at."""
PADDED = -1
"""Stands for the position of what padding made."""
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)


def tiled_view(rng: random.Random) -> tuple[UOp, dict[UOp, np.ndarray], np.ndarray]:
    """The position that a view reads, all values of its loops, and the positions it has to be."""
    shape = tuple(rng.choice(SIZES) for _ in range(rng.randrange(1, 5)))
    while prod(shape) > MOST:
        shape = shape[1:]
    steps = chain(rng, shape, rng.choices(tuple(MOVEMENT), k=rng.randrange(1, 7)))
    base = steps[0][0] if steps else shape
    view = UOp.new_buffer(dtypes.int32, prod(base)).reshape(base), _numbered(base)
    moves: list[UOp] = []
    for _, apply in steps:
        view = apply(view)
        moves.append(view[0])
    loops = [_tile(rng, n, 2 * axis) for axis, n in enumerate(shape)]
    position, valid = _read([tiles.index for tiles in loops], moves, base)
    outcome = position if valid is None else valid.where(position, PADDED)
    return outcome, *_everywhere(shape, loops, view[1] - 1)


def _numbered(shape: Sequence[int]) -> np.ndarray:
    """1, 2, 3, …: a pad puts 0 beside them."""
    return np.arange(1, prod(shape) + 1).reshape(shape)


class _Tiles:
    """A loop as it is or split: `index` is its counter, `inner` iterations are within."""

    def __init__(self, size: int, inner: int, lane: int | None, axis: int) -> None:
        self.size, self.inner, self.lane = size, inner, lane
        self.outer = UOp.range(size // inner, axis, AxisType.LOOP)
        self.within = UOp.range(inner, axis + 1, AxisType.LOOP)
        within = self.within if lane is None else lane
        self.index = self.outer if inner == 1 else self.outer * inner + within


def _tile(rng: random.Random, size: int, axis: int) -> _Tiles:
    """Whole, split in two loops, or one lane of an upcast."""
    inner = rng.choice([k for k in range(1, size + 1) if size % k == 0])
    lane = rng.randrange(inner) if inner > 1 and rng.random() < 0.4 else None
    return _Tiles(size, inner, lane, axis)


def _everywhere(
    shape: Sequence[int], loops: Sequence[_Tiles], positions: np.ndarray
) -> tuple[dict[UOp, np.ndarray], np.ndarray]:
    """All values of the loops, and the positions there."""
    places = np.indices(shape).reshape(len(shape), -1)
    reached = np.ones(places.shape[1], bool)
    for place, tiles in zip(places, loops, strict=True):
        if tiles.lane is not None:
            reached &= place % tiles.inner == tiles.lane
    given: dict[UOp, np.ndarray] = {}
    for place, tiles in zip(places[:, reached], loops, strict=True):
        given[tiles.outer] = (place // tiles.inner).astype(np.int64)
        given[tiles.within] = (place % tiles.inner).astype(np.int64)
    return given, np.broadcast_to(positions, shape).reshape(-1)[reached]


def _read(index: list[UOp], moves: Sequence[UOp], base: Sequence[int]) -> tuple[UOp, UOp | None]:
    """The flat position below movement ops, the outermost of which is the last, and its gate."""
    valid: UOp | None = None
    for move in reversed(moves):
        old, new = move.src[0].shape or (), move.shape or ()
        match move.op:
            case Ops.PERMUTE:
                index = [index[move.arg.index(axis)] for axis in range(len(old))]
            case Ops.FLIP:
                index = [
                    -i + (n - 1) if flip else i
                    for i, n, flip in zip(index, old, move.arg, strict=True)
                ]
            case Ops.EXPAND:
                index = [i * 0 if n == 1 else i for i, n in zip(index, old, strict=True)]
            case Ops.RESHAPE:
                index = _split(_flat(index, new), old)
            case Ops.SHRINK:
                index = [i + b for i, b in zip(index, move.src[1].arg, strict=True)]
            case Ops.PAD:
                index = [i - b for i, b in zip(index, move.src[1].arg, strict=True)]
                for i, n in zip(index, old, strict=True):
                    inside = (i >= 0) & (i < n)
                    valid = inside if valid is None else valid & inside
    return _flat(index, base), valid


def _flat(index: Sequence[UOp], shape: Sequence[int]) -> UOp:
    total = UOp.const(dtypes.index, 0)
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def _split(flat: UOp, shape: Sequence[int]) -> list[UOp]:
    parts, below = [], prod(shape)
    for n in shape:
        below //= n
        parts.append(flat // below % n)
    return parts
