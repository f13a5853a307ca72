"""The core: interned nodes, inference, walks, matching and rewriting.

Compiled; there is no fall-back. Other packages enter here. Build with `python setup.py build_ext
--inplace` or `pip install -e .`.
"""

try:
    from morok._core import (  # noqa: F401 (these register native rules)
        affine_compare,
        affine_divide,
        affine_sum,
        affine_symbolic,
        fold,
        fold_constants,
        order,
    )
    from morok._core.affine import affine_add, affine_form, affine_split
    from morok._core.affine_witness import affine_same
    from morok._core.blocks import execution_order
    from morok._core.construct import build, node, plain_lookup, register_uop_class
    from morok._core.dispatch import Dispatcher, Flat, dispatch_by, enter_attributes
    from morok._core.infer import register_op
    from morok._core.intervals import interval_transfer
    from morok._core.launch import COPY_KERNEL, ExecutionPlan, Kernel, Library
    from morok._core.match import Matcher, checked_build, rule_stats
    from morok._core.memory import Buffer, clear_pool, memory_stats, reset_peak, set_pool_limit
    from morok._core.node import Node, node_stats, set_provenance
    from morok._core.normal import normal_key
    from morok._core.pool import pool_stats, stop_workers
    from morok._core.program import Program, native_rules
    from morok._core.reach import reaching
    from morok._core.replay import EDGE_KINDS, MISS, PLAIN, Capture
    from morok._core.rewrite import graph_rewrite, rewrite_limits, rewrite_stats, set_tracer
    from morok._core.tensor_fields import configure
    from morok._core.walk import (
        backward_slice,
        consumers,
        cut_realized,
        rebuild,
        rebuild_together,
        region,
        substitute,
        toposort,
    )
except ImportError as error:
    raise ImportError(
        "morok's compiled core is missing or broken: run `python setup.py build_ext --inplace` in "
        f"the source tree, or reinstall the package ({error})"
    ) from error

__all__ = [
    "COPY_KERNEL",
    "EDGE_KINDS",
    "MISS",
    "PLAIN",
    "Buffer",
    "Capture",
    "Dispatcher",
    "ExecutionPlan",
    "Flat",
    "Kernel",
    "Library",
    "Matcher",
    "Node",
    "Program",
    "affine_add",
    "affine_form",
    "affine_same",
    "affine_split",
    "backward_slice",
    "build",
    "checked_build",
    "clear_pool",
    "configure",
    "consumers",
    "cut_realized",
    "dispatch_by",
    "enter_attributes",
    "execution_order",
    "graph_rewrite",
    "interval_transfer",
    "memory_stats",
    "native_rules",
    "node",
    "node_stats",
    "normal_key",
    "plain_lookup",
    "pool_stats",
    "reaching",
    "rebuild",
    "rebuild_together",
    "region",
    "register_op",
    "register_uop_class",
    "reset_peak",
    "rewrite_limits",
    "rewrite_stats",
    "rule_stats",
    "set_pool_limit",
    "set_provenance",
    "set_tracer",
    "stop_workers",
    "substitute",
    "toposort",
]
