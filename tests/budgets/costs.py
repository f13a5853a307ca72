"""What budgets speak of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from morok.codegen import get_program
from morok.ir import GroupOp, Ops, UOp
from morok.optimizer import apply_opts
from morok.renderers import CRenderer

TARGET = CRenderer(("sse2", "sse4_1", "avx", "avx2", "fma", "f16c"))
"""A fixed processor, so that what is counted on lowered kernels is the same on all machines."""


@dataclass(frozen=True)
class Cost:
    """What a schedule does: kernels launched, float operations, bytes to and from buffers."""

    kernels: int
    flops: int
    bytes: int
    sinks: tuple[UOp, ...] = field(default=(), compare=False, repr=False)  # of the kernels


CostOf = Callable[[Callable[[], object]], Cost]
"""Runs a function and says what the one schedule that it realises costs."""

_NO_ARITHMETIC = frozenset({Ops.CAST, Ops.BITCAST, Ops.WHERE})


def executed(cost: Cost) -> int:
    """Float operations counted on what is rendered for `TARGET`: each statement times its lanes and
    the trips of the loops around it. A fused multiply-add is two; both sides of a branch count."""
    total = 0
    for sink in cost.sinks:
        program = get_program(apply_opts(sink, TARGET), TARGET)
        (linear,) = (part for part in program.src if part.op is Ops.LINEAR)
        trips = [1]
        for statement in linear.src:
            if statement.op is Ops.RANGE:
                trips.append(trips[-1] * statement.src[0].arg)
            elif statement.op is Ops.END:
                del trips[-len(statement.ended_ranges) :]
            elif statement.op in GroupOp.ALU - _NO_ARITHMETIC and statement.dtype.kind == "f":
                each = 2 if statement.op is Ops.MULACC else 1
                total += each * statement.dtype.count * trips[-1]
    return total
