"""The reference interpreter: what a graph means, on NumPy, at each of three levels.

    interpret_tensor    a tensor graph, or a ranged one before kernels are split
    interpret_kernel    a ranged kernel: SINK of STOREs with RANGEs, REDUCEs, local BUFFERIZEs
    interpret_linear    a LINEAR, op by op

A wrong stage is found by comparing the levels around it. The semantics of single ops is in
`numeric`; nothing here shares code with rewriting or code generation. Every index is checked
against its buffer. Written for clarity: small problems only.

Memory of bfloat16 and the 8-bit floats goes in and comes out as float32 arrays of their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from morok.ir import numeric
from morok.ir.interpret import machine
from morok.ir.interpret.evaluate import Evaluator
from morok.ir.interpret.memory import by_memory
from morok.ir.interpret.values import fault
from morok.ir.numeric import Array
from morok.ir.ops import Ops
from morok.ir.uop import UOp

__all__ = ["interpret_kernel", "interpret_linear", "interpret_program", "interpret_tensor"]


def interpret_tensor(
    root: UOp,
    inputs: Mapping[UOp, Any] | None = None,
    variables: Mapping[str, int] | None = None,
) -> Any:
    """The value of a tensor graph as an array; a list of them for a SINK, GROUP or TUPLE.

    `inputs` maps BUFFER (and PARAM) nodes to arrays of their size, `variables` gives DEFINE_VARs
    that no BIND gives. An AFTER is worth what it shows once its STOREs are done; every other read
    of a buffer sees the input. InvalidGraphError for a graph without a value.
    """
    evaluator = Evaluator(root, inputs or {}, (), variables)
    if root.op in (Ops.SINK, Ops.GROUP, Ops.TUPLE):
        return [_exported(evaluator, source) for source in root.src]
    return _exported(evaluator, root)


def _exported(evaluator: Evaluator, node: UOp) -> Array:
    value = evaluator.value(node)
    if value.ranges:
        raise fault(
            node, "open-ranges", "no open range", [str(axis.arg[0]) for axis in value.ranges]
        )
    return numeric.to_memory(value.data, node.dtype)


def interpret_kernel(
    sink: UOp, buffers: Sequence[Any], variables: Mapping[str, int] | None = None
) -> list[Array]:
    """The contents of all buffers, flat, after a ranged kernel; `buffers` are left alone.

    Buffer i is PARAM slot i. InvalidGraphError for an index out of bounds and the like.
    """
    evaluator = Evaluator(sink, {}, buffers, variables)
    written = by_memory(evaluator.writes(sink))
    after = {node: evaluator.contents(node, writes).data for node, writes in written.items()}
    return _results(buffers, after)


def interpret_linear(
    linear: UOp, buffers: Sequence[Any], variables: Mapping[str, int] | None = None
) -> list[Array]:
    """The contents of all buffers, flat, after a LINEAR; `buffers` are left alone."""
    return _results(buffers, machine.run(linear, buffers, variables or {}))


def interpret_program(
    node: UOp, buffers: Sequence[Any], variables: Mapping[str, int] | None = None
) -> list[Array]:
    """A kernel at whatever level it is: a SINK, a LINEAR, or a PROGRAM (its LINEAR if filled)."""
    if node.op is Ops.PROGRAM:
        node = node.sink if node.linear is None else node.linear
    interpret = interpret_linear if node.op is Ops.LINEAR else interpret_kernel
    return interpret(node, buffers, variables)


def _results(buffers: Sequence[Any], after: Mapping[UOp, Array]) -> list[Array]:
    results = [np.array(buffer).reshape(-1) for buffer in buffers]
    for node, contents in after.items():
        if node.op is Ops.PARAM:
            results[node.arg[0]] = numeric.to_memory(contents, node.dtype.base)
    return results
