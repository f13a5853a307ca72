"""Which kernels are shared out to threads, and along which loop.

A kernel with work for some tens of microseconds gets its outermost output loop as THREAD; a short
one is merged with the next first, so that every thread finds enough to take. The kernel is the same
whether one thread runs it or many: what it computes does not depend on their number.
"""

from __future__ import annotations

import math

from morok._core import toposort
from morok.errors import OptError
from morok.ir import AxisType, Capability, KernelInfo, Ops, UOp
from morok.optimizer.legality import axis_number
from morok.optimizer.opts import Opt, OptOps, replay
from morok.optimizer.ranges import range_end

__all__ = ["share_work"]

# A rough clock: what one core does in a nanosecond, and how many of them are worth a launch.
_FLOPS_PER_NS = 20.0
_BYTES_PER_NS = 10.0
_WORTH_NS = 50_000.0
_SHORT = 16  # iterations: fewer are not shared out evenly
_REST = 8  # what one thread alone does must be less than this part
_FASTEST_FLOPS_PER_NS = 80.0  # of a tile
_CALLS = 4  # how often two threads call a kernel that begins with filling buffers
_FILLED_PER_NS = 2.0  # elements copied to local buffers


def share_work(sink: UOp, capability: Capability) -> UOp:
    """The kernel with a THREAD axis, if it has enough to do and its iterations are independent."""
    worth = _nanoseconds(sink)
    if not capability.threads or worth < _WORTH_NS:
        return sink
    stores = sorted((s for s in sink.src if s.op is Ops.STORE), key=_trips, reverse=True)
    if not stores:
        return sink
    loops = _loops(stores[0])
    if not loops:
        return sink
    rest = sum(_trips(store) for store in stores if loops[0] not in store.ended_ranges)
    again = _filled_outside(sink) * min(range_end(loops[0]), _CALLS) / _FILLED_PER_NS
    if rest * _REST > _trips(stores[0]) or 2 * again > _nanoseconds(sink, _FASTEST_FLOPS_PER_NS):
        return sink
    first = Opt(OptOps.THREAD, axis_number(loops[0]))
    choices: list[tuple[Opt, ...]] = [(first,)]
    if range_end(loops[0]) < _SHORT and len(loops) > 2:
        outer, inner = map(axis_number, loops[:2])
        choices.insert(0, (Opt(OptOps.MERGE, outer, inner), Opt(OptOps.THREAD, inner)))
    for opts in choices:
        try:
            return replay(sink, opts)
        except OptError:
            continue
    return sink


def _nanoseconds(sink: UOp, flops_per_ns: float = _FLOPS_PER_NS) -> float:
    """About how long one thread takes; 0 for a kernel of which nothing is known."""
    cost = sink.arg.estimates if isinstance(sink.arg, KernelInfo) else None
    if cost is None:
        return 0.0
    return cost.flops / flops_per_ns + cost.bytes_moved / _BYTES_PER_NS


def _filled_outside(sink: UOp) -> int:
    """Steps that fill the local buffers that stand outside of all loops: every call takes them."""
    return sum(
        math.prod(range_end(rng) for rng in toposort(node) if rng.op is Ops.RANGE)
        for node in toposort(sink)
        if node.op is Ops.BUFFERIZE and not node.open_ranges
    )


def _loops(store: UOp) -> list[UOp]:
    """The output loops of a STORE, the outermost first."""
    found = [rng for rng in store.ended_ranges if rng.op is Ops.RANGE]
    return sorted((rng for rng in found if rng.arg[1] is AxisType.LOOP), key=axis_number)


def _trips(store: UOp) -> int:
    """How often a STORE writes an element."""
    return math.prod(range_end(rng) for rng in store.ended_ranges if rng.op is Ops.RANGE)
