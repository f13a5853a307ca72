"""What a plan is beside the rows that the core runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from morok.engine.compile import CompiledKernel
from morok.engine.plans import Design, Row
from morok.runtime import ExecutionPlan


class Call(NamedTuple):
    """A kernel of a schedule in words."""

    name: str
    arguments: tuple[str, ...]  # "in0", the first given buffer; "buf0", the first of the schedule
    metadata: tuple[str, ...]  # the functions it belongs to


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule ready to run. Slots: the caller's buffers, then the results."""

    key: bytes  # of the graph it computes
    calls: tuple[Call, ...]
    kernels: tuple[CompiledKernel, ...]
    plan: ExecutionPlan
    results: tuple[int, ...]  # for each source of the sink: its slot
    fresh: tuple[int, ...]  # bytes of the result slots that the caller must allocate
    rows: tuple[Row, ...]  # the kernels as the plan has them
    given: int  # slots that the caller fills; the others lie in the plan's arena
    sizes: tuple[int, ...]  # bytes of each of those
    variables: tuple[str, ...] = ()  # in the order the plan takes their values
    design: Design | None = None  # of the arena
