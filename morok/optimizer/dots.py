"""Which sums of products get a dot instruction of the target (TC)."""

from __future__ import annotations

from morok.errors import OptError
from morok.ir import UOp
from morok.optimizer.facts import Facts
from morok.optimizer.opts import Opt, OptOps, apply_opt
from morok.optimizer.ranges import lane_stride, range_end
from morok.optimizer.tensor_core import dot_operands

__all__ = ["choose_dots"]


def choose_dots(facts: Facts) -> UOp:
    """The kernel with the sums made by dot instructions that the target has: where the values that
    are stored side by side differ in one factor only, and the terms come out even."""
    sink = facts.sink
    for node in facts.reduces if facts.capability.tensor_cores else ():
        operands = dot_operands(node)
        lanes = [
            rng
            for store in facts.sink.src
            for rng in store.ended_ranges
            if rng in node.open_ranges and lane_stride(store.src[0], rng) == 1
        ]
        if operands is None or not lanes:
            continue
        if sum(lanes[0] in factor.open_ranges for factor in operands) != 1:
            continue
        for tile in facts.capability.tensor_cores:
            same = (tile.dtype_in, tile.dtype_out) == (operands[0].dtype, node.dtype)
            depth = tile.dims[2]
            axes = [rng for rng in node.ended_ranges if range_end(rng) % depth == 0]
            if same and axes and range_end(lanes[0]) >= tile.dims[1]:
                try:
                    sink = apply_opt(sink, Opt(OptOps.TC, axes[-1].arg[0].number, depth))
                except OptError:
                    continue
    return sink
