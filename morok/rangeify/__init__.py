"""Phase 1: tensor ops become loops, loops become kernels."""

from morok.rangeify.kernel import Schedule, run_kernel_split_pipeline
from morok.rangeify.movement import apply_movement, movement_op_patterns
from morok.rangeify.ranges import Rangeify
from morok.rangeify.transforms import pm_flatten_range, simplify_merge_adjacent

__all__ = [
    "Rangeify",
    "Schedule",
    "apply_movement",
    "movement_op_patterns",
    "pm_flatten_range",
    "run_kernel_split_pipeline",
    "simplify_merge_adjacent",
]
