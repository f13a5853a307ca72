"""Run as a program: lowers the demo's training step with all caches empty, and prints what it cost
as JSON.

    frontend, schedule, lowering   nodes built, nodes visited by rewrites, rules run in Python
    kernels                        name, flops, bytes and the digest of the source of each

No compiler is needed: the target is a fixed processor, so that the counts are the same on all
machines.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import gc

from costs import TARGET
from digits_net import BATCH, digits, network, start_values

import morok as mk
from morok import _core, engine
from morok._core.rewrite import rewrite_stats
from morok.codegen import get_program
from morok.ir import Ops, UOp
from morok.optimizer import apply_opts
from morok.rangeify import run_kernel_split_pipeline
from morok.tensor import memory

T = TypeVar("T")


def totals() -> dict[str, int]:
    """What this process did so far."""
    matchers = [m for m in gc.get_objects() if type(m) is _core.Matcher]
    return {
        "built": _core.node_stats()["built"],
        "visited": rewrite_stats()["visited"],
        "python": sum(row[3] for m in matchers for row in m.stats()),
    }


def counted(work: Callable[[], T]) -> tuple[T, dict[str, int]]:
    """The result of `work` and what it did."""
    before = totals()
    result = work()
    return result, {name: n - before[name] for name, n in totals().items()}


def step_roots() -> list[UOp]:
    """What one step of the demo hands to the engine, which does not compute it."""
    net = network(start_values(0))
    optimizer = mk.optim.Adam(mk.nn.state.get_parameters(net), lr=2e-3)
    images, labels = map(mk.Tensor, digits(BATCH, 0))
    handed: list[UOp] = []

    class Watched:
        buffers = engine.buffers

        @staticmethod
        def realize(roots: list[UOp]) -> list[UOp]:
            handed.extend(roots)
            raise InterruptedError

    memory.engine = Watched
    loss = net(images).cross_entropy(labels)
    loss.backward()
    try:
        optimizer.step()
    except InterruptedError:
        return handed
    finally:
        memory.engine = engine
    raise AssertionError("the step did not realise anything")


def main() -> None:
    roots, frontend = counted(step_roots)
    normal, normalising = counted(lambda: engine.Normal(engine.sink_of(roots)).graph)
    schedule, scheduling = counted(lambda: run_kernel_split_pipeline(normal))
    sinks = list(dict.fromkeys(call.src[0] for call in schedule.calls))
    programs, lowering = counted(
        lambda: [get_program(apply_opts(sink, TARGET), TARGET) for sink in sinks]
    )
    kernels: list[dict[str, Any]] = []
    for call in schedule.calls:
        program = programs[sinks.index(call.src[0])]
        source: str = next(s for s in program.src if s.op is Ops.SOURCE).arg
        cost = call.src[0].arg.estimates
        kernels.append(
            {
                "name": call.arg.name,
                "flops": cost.flops,
                "bytes": cost.bytes_moved,
                "digest": hashlib.sha256(source.encode()).hexdigest(),
            }
        )
    schedule_counts = {name: normalising[name] + scheduling[name] for name in scheduling}
    print(
        json.dumps(
            {
                "frontend": frontend,
                "schedule": schedule_counts,
                "lowering": lowering,
                "kernels": kernels,
            }
        )
    )


if __name__ == "__main__":
    main()
