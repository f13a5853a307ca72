"""Stage 7: actions on the ranges of a kernel, chosen, checked, applied and recorded."""

from __future__ import annotations

from morok import config
from morok.ir import KernelInfo, Renderer, UOp
from morok.optimizer.accumulate import accumulates
from morok.optimizer.facts import short_lane
from morok.optimizer.guards import conjuncts, guard_of
from morok.optimizer.heuristic import tune
from morok.optimizer.opts import (
    MAX_INSTANCES,
    MAX_LOCAL_BYTES,
    Opt,
    OptOps,
    apply_opt,
    parse_opts,
    replay,
)
from morok.optimizer.prepare import prepare, widen_accumulators
from morok.optimizer.ranges import (
    bound_ranges,
    flat_index,
    has_known_end,
    index_parts,
    is_address,
    lane_stride,
    lanes_of_sums,
    make_range,
    memory_of,
    moved_range,
    next_number,
    range_end,
    reads_of,
    rename_ranges,
    simplify_all,
    substitute_open,
)

__all__ = [
    "MAX_INSTANCES",
    "MAX_LOCAL_BYTES",
    "Opt",
    "OptOps",
    "accumulates",
    "apply_opt",
    "apply_opts",
    "bound_ranges",
    "conjuncts",
    "flat_index",
    "guard_of",
    "has_known_end",
    "index_parts",
    "is_address",
    "lane_stride",
    "lanes_of_sums",
    "make_range",
    "memory_of",
    "moved_range",
    "next_number",
    "parse_opts",
    "prepare",
    "range_end",
    "reads_of",
    "rename_ranges",
    "replay",
    "short_lane",
    "simplify_all",
    "substitute_open",
    "widen_accumulators",
]


def apply_opts(sink: UOp, renderer: Renderer) -> UOp:
    """Stage 7. Goal: the loops of a kernel suit the target.

    Before: a kernel in the form rangeify makes (LOOP and REDUCE ranges). After: the same values,
    float sums reassociated; KernelInfo lists the actions, and `replay` repeats them. A kernel that
    lists actions already is kept as it is; with MOROK_NOOPT no action is applied.
    """
    if isinstance(sink.arg, KernelInfo) and sink.arg.applied_opts:
        return sink
    sink = prepare(sink)
    return sink if config.get().noopt else tune(sink, renderer.capability)
