"""Kernels, operations and bytes of the nine computations in morok: of a plan, which does not
run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench._compile_morok import VERSION, Filled, stepper
from bench._fusion_models import COMPUTATIONS, Computation
from morok import engine
from morok.ir import UOp
from morok.runtime import Device

__all__ = ["CASES", "VERSION"]


def roots_of(computation: Computation) -> list[UOp]:
    """What is computed together."""
    if computation.build is not None:
        return [t.uop for t in computation.build(Filled)]
    assert computation.network is not None
    return stepper(*computation.network)()


def _figures(computation: Computation) -> dict[str, float]:
    normal = engine.Normal(engine.sink_of(roots_of(computation)))
    planned = engine.plan(normal, Device["CPU"])
    report = engine.schedule_report(planned, [0] * len(planned.kernels))
    return {
        "kernels": float(len(report.kernels)),
        "flops": report.flops / 1e6,
        "flops / analytic": report.flops / computation.flops,
        "bytes": (report.bytes_read + report.bytes_written) / 1e6,
        "read": report.bytes_read / 1e6,
        "written": report.bytes_written / 1e6,
        "peak": report.peak_memory / 1e6,
    }


CASES: dict[str, Callable[[], dict[str, float]]] = {
    name: partial(_figures, computation) for name, computation in COMPUTATIONS.items()
}
