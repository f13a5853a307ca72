"""Kernels, operations and bytes in tinygrad, by its own counters (`GlobalCounters`).

As in the compile benchmark nothing runs: its device is NULL, its compiler `true`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench._compile_tinygrad import VERSION  # chooses the device: comes before tinygrad

# isort: split
from tinygrad import Context, GlobalCounters, Tensor, dtypes
from tinygrad.nn import optim

from bench import _compile_models as models
from bench._fusion_models import COMPUTATIONS, Computation

__all__ = ["CASES", "VERSION"]


def _roots(computation: Computation) -> list[Any]:
    if computation.build is not None:
        return computation.build(Tensor)
    assert computation.network is not None
    network, shape, optimizer = computation.network
    net = network(Tensor)
    labels = Tensor.empty(models.label_count(shape), dtype=dtypes.int32)
    opt = getattr(optim, optimizer)(net.params, lr=1e-3)
    with Context(TRAINING=1):
        loss = models.loss_of(net, Tensor, shape, labels)
        loss.backward()
        return [loss, *opt.schedule_step()]


def _figures(computation: Computation) -> dict[str, float]:
    roots = _roots(computation)
    GlobalCounters.reset()
    Tensor.realize(*roots)
    return {
        "kernels": float(GlobalCounters.kernel_count),
        "flops": GlobalCounters.global_ops / 1e6,
        "flops / analytic": GlobalCounters.global_ops / computation.flops,
        "bytes": GlobalCounters.global_mem / 1e6,
    }


CASES: dict[str, Callable[[], dict[str, float]]] = {
    name: partial(_figures, computation) for name, computation in COMPUTATIONS.items()
}
