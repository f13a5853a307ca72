"""The compile benchmark in morok: what `realize` does, up to the source of every kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import morok
from bench import _compile_models as models
from bench.harness import timed
from morok import engine
from morok._core import rule_stats
from morok.codegen import get_program
from morok.ir import Ops, UOp
from morok.optimizer import apply_opts
from morok.rangeify import run_kernel_split_pipeline
from morok.runtime import Device

VERSION = morok.__version__


class _CapturedError(BaseException):
    """Ends a `realize` that is only wanted for its roots."""


@contextmanager
def captured() -> Iterator[list[UOp]]:
    """What the realize inside the block is asked for; it is not carried out."""
    asked: list[UOp] = []

    def note(roots: Sequence[UOp]) -> list[UOp]:
        asked.extend(roots)
        raise _CapturedError

    real = engine.realize
    engine.realize = note
    try:
        yield asked
    except _CapturedError:
        pass
    finally:
        engine.realize = real


def _lower(roots: list[UOp], known: dict[UOp, UOp]) -> tuple[int, float]:
    """Adds the programs of all kernels to `known`; kernels to run, and seconds of scheduling."""

    def schedule() -> tuple[UOp, ...]:
        normal = engine.Normal(engine.sink_of(roots)).graph
        return run_kernel_split_pipeline(normal).calls

    renderer = Device["CPU"].renderer
    seconds, calls = timed(schedule)
    for call in calls:
        sink = call.src[0]
        if sink not in known:
            known[sink] = get_program(apply_opts(sink, renderer), renderer)
    return len(calls), seconds


def _failures() -> tuple[int, int]:
    """Tries of rules so far that rewrote nothing, and how many of them entered Python."""
    counts = rule_stats().values()
    return (
        sum(tries - hits for tries, hits, _, _ in counts),
        sum(max(entries - hits, 0) for _, hits, entries, _ in counts),
    )


def _figures(build: Callable[[], list[list[UOp]]]) -> dict[str, float]:
    """`build` makes the graphs; each list of roots is scheduled by itself."""
    trace, graphs = timed(build)
    programs: dict[UOp, UOp] = {}
    before = _failures()
    total, parts = timed(lambda: [_lower(roots, programs) for roots in graphs])
    failed, in_python = (now - then for now, then in zip(_failures(), before, strict=True))
    linears = [next(s for s in p.src if s.op is Ops.LINEAR) for p in programs.values()]
    return {
        "ms": total * 1e3,
        "trace": trace * 1e3,
        "schedule": sum(seconds for _, seconds in parts) * 1e3,
        "failed in C": 100.0 * (1 - in_python / failed),
        "kernels": float(sum(count for count, _ in parts)),
        "unique": float(len(programs)),
        "uops": float(sum(len(linear.src) for linear in linears)),
    }


class Filled:
    """`Tensor`, but what it calls empty is memory that holds something: not zeros to calculate
    with."""

    full = morok.Tensor.full

    @staticmethod
    def empty(*shape: int) -> morok.Tensor:
        """In memory that was never touched."""
        return morok.Tensor(np.empty(shape, np.float32))


def stepper(
    network: Callable[[type[Any]], Any], shape: tuple[int, ...], optimizer: str
) -> Callable[[], list[UOp]]:
    """A training step that answers with what it hands to the engine."""
    net = network(Filled)
    labels = morok.Tensor(np.zeros(models.label_count(shape), np.int32))
    opt = getattr(morok.optim, optimizer)(net.params, lr=1e-3)

    def step() -> list[UOp]:
        with captured() as roots:
            models.loss_of(net, Filled, shape, labels).backward()
            opt.step()
        return roots

    return step


def _step(name: str) -> dict[str, float]:
    step = stepper(*models.TRAINED[name])
    return _figures(lambda: [step()])


def _forward(network: type[Any], shape: tuple[int, ...]) -> dict[str, float]:
    net = network(Filled)

    def build() -> list[list[UOp]]:
        with morok.no_grad():
            return [[net(Filled.empty(*shape)).uop]]

    return _figures(build)


def deep_gpt(layers: int) -> dict[str, float]:
    """A training step of a GPT with so many layers, and where its time goes."""
    _, shape, optimizer = models.TRAINED["gpt step"]
    deep = type("Deep", (models.Gpt,), {"LAYERS": layers})
    step = stepper(deep, shape, optimizer)
    figures = _figures(lambda: [step()])
    return {
        "all": figures["trace"] + figures["ms"],
        "graph": figures["trace"],
        "schedule": figures["schedule"],
        "lowering": figures["ms"] - figures["schedule"],
        "kernels": figures["kernels"],
        "unique": figures["unique"],
    }


def _shapes() -> dict[str, float]:
    return _figures(lambda: [[t.uop] for t in models.small_shapes(Filled)])


def warm_up() -> None:
    """Compiles the rule sets, finds the target."""
    a, b = morok.Tensor.empty(3, 4), morok.Tensor.empty(4, 5)
    _figures(lambda: [[(a @ b).exp().sum(0).uop]])


CASES: dict[str, Callable[[], dict[str, float]]] = {
    **{name: partial(_step, name) for name in models.TRAINED},
    "resnet50 forward": partial(_forward, models.ResNet50, (64, 3, 224, 224)),
    "300 small shapes": _shapes,
}
