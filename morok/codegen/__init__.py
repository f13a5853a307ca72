"""Code generation, stages 8 to 22: an optimised kernel becomes a flat LINEAR, source and binary.

`PIPELINE` is the list of stages, `get_program` runs them and the renderer.
"""

from morok.codegen.decompositions import decompose, decompositions
from morok.codegen.linearize import add_ifs, control_flow, final_rewrite, linearize
from morok.codegen.pipeline import PIPELINE, Stage, run_pipeline, watch_stages
from morok.codegen.program import (
    do_compile,
    do_linearize,
    do_render,
    get_program,
    has_prologue,
    kernel_name,
    launch_extent,
    local_layout,
    scratch_bytes,
    variable_names,
)

__all__ = [
    "PIPELINE",
    "Stage",
    "add_ifs",
    "control_flow",
    "decompose",
    "decompositions",
    "do_compile",
    "do_linearize",
    "do_render",
    "final_rewrite",
    "get_program",
    "has_prologue",
    "kernel_name",
    "launch_extent",
    "linearize",
    "local_layout",
    "run_pipeline",
    "scratch_bytes",
    "variable_names",
    "watch_stages",
]
