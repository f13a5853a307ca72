"""Loop order of transposed copies.

`out[i, j] = x[j, i]` writes neighbours along j and reads neighbours along i. With i's inner part
inside of j,

    for i/8: for j: for 8 of i: out[i, j] = x[j, i]

each cache line that is read serves 8 iterations instead of one, and the 8 rows written stay near.
Where vectors fit both ways, blocks are wider and squares of vectors within them are transposed by
shuffles.
"""

from __future__ import annotations

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer.facts import Facts
from morok.optimizer.opts import Opt, OptOps, replay
from morok.optimizer.ranges import lane_stride, range_end, reads_of

__all__ = ["block_transposed", "choose_blocking", "square_fills"]

_WIDE = 64  # iterations inside, of squares
_LEAST, _MOST = 4, 32  # lanes of a vector worth shuffles, and of a row of a copy
_BLOCKS = (8, 10, 12, 16, 6, 4)  # iterations inside, best first; half a cache line of floats


def block_transposed(facts: Facts) -> UOp:
    """The kernel with one transposed read blocked, if it has one."""
    for store in facts.sink.src:
        opts = choose_blocking(facts, store)
        if opts:
            try:
                return replay(facts.sink, opts)
            except OptError:
                continue
    return facts.sink


def choose_blocking(facts: Facts, store: UOp) -> tuple[Opt, ...]:
    """The actions that bring part of an axis inside the lane of a STORE; () if none needs it."""
    axes = sorted(store.ended_ranges, key=lambda rng: rng.arg[0])
    if not axes or not all(facts.usable(rng) and rng.arg[1] is AxisType.LOOP for rng in axes):
        return ()
    *outer, lane = axes
    if lane_stride(store.src[0], lane) != 1:
        return ()
    for read in reads_of([store]):
        if not all(rng in axes for rng in read.open_ranges) or lane not in read.open_ranges:
            continue
        if facts.stride(read, lane) in (None, 0, 1):
            continue
        for position, rng in enumerate(outer):
            if rng in read.open_ranges and facts.stride(read, rng) == 1:
                return _inside(facts, axes, position, read)
    return ()


def square_fills(facts: Facts) -> dict[UOp, int]:
    """The axes of transposed copies near the core that become vectors, and of how many lanes: both
    those that are written to neighbours and those that are read from them, in squares."""
    found: dict[UOp, int] = {}
    for buffer in facts.order:
        if buffer.op is not Ops.BUFFERIZE or buffer.src[0].op is not Ops.INDEX:
            continue
        read = buffer.src[0]
        *outer, lane = buffer.ended_ranges
        if read.arg or not facts.usable(lane) or facts.stride(read, lane) in (None, 0, 1):
            continue
        width, end = facts.lanes(lane, wide=True), range_end(lane)
        rows = [
            rng
            for rng in outer
            if facts.usable(rng) and facts.stride(read, rng) == 1 and range_end(rng) % width == 0
        ]
        if width >= _LEAST and end % width == 0 and end <= _MOST and len(rows) == 1:
            found |= {lane: end, rows[0]: width}
    return found


def _inside(facts: Facts, axes: list[UOp], position: int, read: UOp) -> tuple[Opt, ...]:
    """SPLIT of the axis at `position`, and SWAPs that move its inner part to the end; () for what
    the first cache holds."""
    end, number, lane = range_end(axes[position]), axes[position].arg[0].number, axes[-1]
    cached = facts.capability.l1_bytes // read.dtype.itemsize
    width = facts.lanes(lane, wide=False)
    square = width > 1 and not read.arg and range_end(lane) % width == 0
    blocks = (_WIDE, *_BLOCKS) if square and _WIDE % width == 0 else _BLOCKS
    block = next((block for block in blocks if end % block == 0 and end > block), 0)
    if not block or end * range_end(lane) <= cached:
        return ()
    inner = number + 1
    opts = [Opt(OptOps.SPLIT, number, block)]
    for other in axes[position + 1 :]:
        following = other.arg[0].number + 1
        opts.append(Opt(OptOps.SWAP, inner, following))
        inner = following
    if block == _WIDE:
        several = 2 * width if range_end(lane) % (2 * width) == 0 else width
        opts += (Opt(OptOps.UPCAST, inner, width), Opt(OptOps.UPCAST, inner - 1, several))
    return tuple(opts)
