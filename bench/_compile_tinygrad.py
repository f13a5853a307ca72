"""The compile benchmark in tinygrad, by its public API: `schedule_linear`, then `compile_linear`.

Its device is NULL with the CPU's C renderer, the compiler `true`: everything is done but the C
compiler's work (the process that would do it is started, which costs this one next to nothing).
"""

from __future__ import annotations

import os
import platform

os.environ.update(DEV=f"NULL:CLANG:{platform.machine()},native", CC="true")
os.environ.update(SCACHE="0", CCACHE="0", PARALLEL="0")

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import tinygrad
from tinygrad import Context, Tensor
from tinygrad.engine.realize import compile_linear
from tinygrad.nn import optim
from tinygrad.uop.ops import Ops

from bench import _compile_models as models
from bench.harness import timed

VERSION = version("tinygrad")


def _figures(build: Callable[[], list[list[Any]]]) -> dict[str, float]:
    """`build` makes the graphs; each list of tensors is scheduled by itself."""
    trace, graphs = timed(build)
    scheduling = 0.0

    def lower() -> list[Any]:
        nonlocal scheduling
        calls: list[Any] = []
        for tensors in graphs:
            seconds, linear = timed(partial(tensors[0].schedule_linear, *tensors[1:]))
            scheduling += seconds
            calls += compile_linear(linear).src
        return calls

    total, calls = timed(lower)
    programs = [call.src[0] for call in calls if call.src[0].op is Ops.PROGRAM]
    linears = {s for p in programs for s in p.src if s.op is Ops.LINEAR}
    return {
        "ms": total * 1e3,
        "trace": trace * 1e3,
        "schedule": scheduling * 1e3,
        "kernels": float(len(programs)),
        "unique": float(len(linears)),
        "uops": float(sum(len(linear.src) for linear in linears)),
    }


def _step(name: str) -> dict[str, float]:
    network, shape, optimizer = models.TRAINED[name]
    net = network(Tensor)
    labels = Tensor.empty(models.label_count(shape), dtype=tinygrad.dtypes.int32)
    opt = getattr(optim, optimizer)(net.params, lr=1e-3)

    def build() -> list[list[Any]]:
        with Context(TRAINING=1):
            loss = models.loss_of(net, Tensor, shape, labels)
            loss.backward()
            return [[loss, *opt.schedule_step()]]

    return _figures(build)


def _forward(network: type[Any], shape: tuple[int, ...]) -> dict[str, float]:
    net = network(Tensor)
    return _figures(lambda: [[net(Tensor.empty(*shape))]])


def _shapes() -> dict[str, float]:
    return _figures(lambda: [[t] for t in models.small_shapes(Tensor)])


def warm_up() -> None:
    """Opens the device, compiles its patterns."""
    a, b = Tensor.empty(3, 4), Tensor.empty(4, 5)
    _figures(lambda: [[(a @ b).exp().sum(0)]])


CASES: dict[str, Callable[[], dict[str, float]]] = {
    **{name: partial(_step, name) for name in models.TRAINED},
    "resnet50 forward": partial(_forward, models.ResNet50, (64, 3, 224, 224)),
    "300 small shapes": _shapes,
}
