"""Phase 1: tensor ops become loops, loops become kernels."""

from morok.rangeify.kernel import Schedule, run_kernel_split_pipeline
from morok.rangeify.movement import (
    apply_movement,
    early_movement_ops,
    movement_op_patterns,
    pm_mops,
    pm_syntactic_sugar,
)
from morok.rangeify.multi import on_one_device
from morok.rangeify.ranges import Rangeify
from morok.rangeify.split import pm_split_ranges, split_ranges
from morok.rangeify.transforms import (
    pm_flatten_range,
    pm_simplify_ranges,
    simplify_merge_adjacent,
)
from morok.rangeify.watch import watch_range_stages

__all__ = [
    "Rangeify",
    "Schedule",
    "apply_movement",
    "early_movement_ops",
    "movement_op_patterns",
    "on_one_device",
    "pm_flatten_range",
    "pm_mops",
    "pm_simplify_ranges",
    "pm_split_ranges",
    "pm_syntactic_sugar",
    "run_kernel_split_pipeline",
    "simplify_merge_adjacent",
    "split_ranges",
    "watch_range_stages",
]
