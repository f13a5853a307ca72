"""The register tile: how many rows and vectors of a reduction are accumulated side by side.

In `C[i, j] = sum over k of A[i, k] * B[k, j]` with vectors along j, a tile of r rows and v vectors
keeps r * v accumulators in registers. A step of k then multiplies r * v vectors and reads r + v
values; a multiplication that follows the last one on the same accumulator waits for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from morok.ir import UOp
from morok.optimizer.facts import Facts
from morok.optimizer.ranges import lane_stride, range_end, reads_of

__all__ = ["Tile", "choose_rows", "choose_tile", "most_accumulators", "walks_far"]

_MAX_ROWS = 8  # rows are streams of memory: the first cache and its prefetchers take so many
_LATENCY = 10  # multiplications that a core begins until the first one is done, or close to it
_TAIL_COST = 200_000  # multiplications that a tile of its own for the rows left over must save
_FEW_TILES = 4  # rows left over from fewer tiles would be much of the code and little of the work


class Tile(NamedTuple):
    """`copies` of the axis `row`, `vectors` of the lane."""

    row: UOp
    copies: int
    vectors: int


def most_accumulators(registers: int) -> int:
    """How many of the vector registers sums may take; the operands have the others."""
    return 16 if registers >= 32 else registers * 3 // 4


def choose_tile(
    facts: Facts, node: UOp, lane: UOp, rows: list[UOp], width: int, vectors: int | None = None
) -> Tile:
    """The tile of a REDUCE, of one of `rows` and vectors of `width` lanes, in which all rows take
    the least time. `vectors` are those that another statement of the lane has, if one has.

    A row axis need not be a multiple of the copies: what is left over is a tile of fewer rows.
    """
    most = most_accumulators(facts.capability.vector_registers)
    reads = [read for read in reads_of(node.src[:1]) if lane in read.open_ranges]
    torn = any(lane_stride(read, lane) not in (0, 1) for read in reads)
    vector_cost = width if torn else 1
    amounts = (1, 2, 4) if vectors is None else (vectors,)
    fitting = [n for n in amounts if n == vectors or range_end(lane) % (width * n) == 0] or [1]

    def cost(copies: int, vectors: int) -> float:
        return _step(copies, vectors, vector_cost)

    steps = math.prod(map(range_end, (*node.open_ranges, *node.ended_ranges)))
    best: tuple[float, int, Tile] | None = None
    # Inner axes first: their rows lie near, while far ones of even distances share cache sets.
    for rng in sorted(rows, key=lambda rng: rng.arg[0], reverse=True):
        end = range_end(rng)
        for copies in range(1, min(_MAX_ROWS, end) + 1):
            for amount in fitting:
                if copies * amount > most or (end % copies and end < _FEW_TILES * copies):
                    continue
                total = end // copies * cost(copies, amount)
                if end % copies:
                    total += cost(end % copies, amount)
                total *= steps / (end * amount * width)
                rank = (total + _TAIL_COST * (end % copies > 0), -copies)
                if best is None or rank < best[:2]:
                    best = (*rank, Tile(rng, copies, amount))
    assert best is not None, "a row and a vector always fit"
    return best[2]


def _step(copies: int, vectors: int, vector_cost: int = 1) -> float:
    """Multiplications begun, or waited for, in a step of a sum, and the reads beside them."""
    return max(copies * vectors, _LATENCY) + (copies + vector_cost * vectors) / 2


def choose_rows(
    ends: dict[UOp, int], vectors: int, limit: int, steps: int, read: float
) -> tuple[float, UOp, int]:
    """Of axes with so many iterations each, the one of which a tile has several rows, and how many,
    beside a given number of vectors, so that `steps` of these take the least time; and that time.
    What is left over is a tile of fewer rows. Inner axes are preferred. A step takes as long as
    `read` multiplications at least."""
    best: tuple[float, UOp, int] | None = None
    for rng in sorted(ends, key=lambda rng: rng.arg[0], reverse=True):
        end = ends[rng]
        for copies in range(1, min(_MAX_ROWS, max(1, limit // vectors), end) + 1):
            total = end // copies * max(_step(copies, vectors), read)
            if end % copies:
                total += max(_step(end % copies, vectors), read)
            total = total * steps / end + _TAIL_COST * (end % copies > 0)
            if best is None or total < best[0]:
                best = (total, rng, copies)
    assert best is not None, "there is an axis"
    return best


_LINE = 64  # bytes
_WAYS = 8  # lines in a set of the first cache


def walks_far(facts: Facts, read: UOp, loops: tuple[UOp, ...], tile: Tile) -> bool:
    """Whether `loops` lead a read of the rows of a tile through more cache lines than the first
    cache keeps until it begins anew.

    Lines whose distance is a large power of two share few sets, which hold `_WAYS` lines each.
    """
    size = read.dtype.itemsize
    step = facts.stride(read, max(loops, key=lambda rng: rng.arg[0]))
    across = facts.stride(read, tile.row)
    if step is None or across is None or abs(step) * size < _LINE:
        return False
    lines = math.prod(map(range_end, loops))
    if abs(across) * tile.copies * size > _LINE:
        lines *= tile.copies
    way = facts.capability.l1_bytes // _WAYS
    sets = min(way // _LINE, way // math.gcd(way, abs(step) * size))
    return 2 * lines > _WAYS * sets
