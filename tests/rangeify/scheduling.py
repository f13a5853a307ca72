"""Tensor graphs through the schedule and the compiler."""

from __future__ import annotations

import numpy as np

from morok import Tensor
from morok.dtype import to_numpy
from morok.engine import Normal, run_kernel, sink_of
from morok.ir import Ops, UOp
from morok.rangeify import Schedule, run_kernel_split_pipeline
from morok.runtime import Device

Array = np.ndarray


def schedule_of(*tensors: Tensor) -> Schedule:
    """What is run when these are realised together."""
    return run_kernel_split_pipeline(Normal(sink_of([t.uop for t in tensors])).graph)


def over_params(graph: UOp, buffers: list[UOp]) -> Schedule:
    """The schedule of a graph, its BUFFERs as PARAMs of one CPU."""
    cpu = UOp.new_device("CPU")
    slots = {node: UOp.param(i, node.dtype, node.arg, cpu) for i, node in enumerate(buffers)}
    return run_kernel_split_pipeline(UOp.new_sink(graph.substitute(slots)))


def scheduled(graph: UOp, inputs: dict[UOp, Array]) -> Array:
    """The value of a graph, `inputs` in its BUFFERs: scheduled, compiled and run."""
    schedule = over_params(graph, list(inputs))
    arrays = list(inputs.values())
    memory: dict[UOp, Array] = {}
    for call in schedule.calls:
        for argument in call.src[1:]:
            if argument not in memory:
                blank = np.zeros(argument.size, to_numpy(argument.dtype))
                memory[argument] = arrays[argument.slot] if argument.op is Ops.PARAM else blank
        after = run_kernel(call.src[0], [memory[a] for a in call.src[1:]], Device["CPU"])
        memory |= dict(zip(call.src[1:], after, strict=True))
    return memory[schedule.outputs[0]].reshape(graph.shape)
