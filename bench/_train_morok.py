"""The train benchmark in morok, by `mk.jit`; and which kernels a step's time goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import morok as mk
from bench import _train_data as data
from bench import models
from bench.harness import Step, Wait
from morok import Tensor, engine
from morok.ir import Estimates
from morok.nn.state import get_parameters, get_state_dict, load_state_dict
from morok.optimizer import apply_opts
from morok.runtime import Device

VERSION = mk.__version__
_RUNS = 5  # of which the kernel table shows the best: others' work is no kernel's cost
_WORST = 5  # kernels shown
_MODELS: dict[str, Callable[[], Any]] = {
    "mlp": models.MLP,
    "cnn": models.CNN,
    "gpt": models.GPT,
    "resnet18": models.ResNet18,
}


def start(_: str, model: str, quick: bool) -> tuple[Step, Wait]:
    """A jitted training step of one model, and how to wait for its loss."""
    step, batch = prepare(model, quick)
    fast = mk.jit(step)
    return lambda: fast(*batch), Tensor.item


def prepare(model: str, quick: bool) -> tuple[Callable[..., Tensor], Sequence[Tensor]]:
    """A training step, not jitted, and its batch."""
    task = data.TASKS[model]
    net = _MODELS[model]()
    shapes = {name: tensor.shape for name, tensor in get_state_dict(net).items()}
    load_state_dict(net, {name: data.initial(name, shape) for name, shape in shapes.items()})
    optimizer = _optimizer(task, get_parameters(net))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = net.loss({"x": x, "y": y})
        loss.backward()
        optimizer.step()
        return loss

    return step, tuple(map(Tensor, task.batch(task.quick if quick else task.size)))


def _optimizer(task: data.Task, weights: list[Tensor]) -> mk.optim.Optimizer:
    if task.optimizer == "sgd":
        return mk.optim.SGD(weights, task.rate, data.MOMENTUM)
    if task.optimizer == "adamw":
        return mk.optim.AdamW(weights, task.rate, weight_decay=data.DECAY)
    return mk.optim.Adam(weights, task.rate)


def kernels(model: str, quick: bool) -> dict[str, Any]:
    """The kernels of a plain step (a jitted one runs the same): the most expensive, and sums."""
    step, batch = prepare(model, quick)
    for _ in range(2):
        step(*batch).item()
    runs: list[list[tuple[engine.Planned, Sequence[int]]]] = []
    for _ in range(_RUNS):
        runs.append([])
        with engine.watch_kernels(lambda planned, times: runs[-1].append((planned, times))):
            step(*batch).item()
    plans = [planned for planned, _ in runs[-1]]
    times = [min(taken) for taken in zip(*(_times(run) for run in runs), strict=True)]
    done = [kernel for planned in plans for kernel in planned.kernels]
    lines = [_line(kernel, ns) for kernel, ns in zip(done, times, strict=True)]
    pairs = sorted(zip(done, lines, strict=True), key=lambda pair: pair[1]["ms"], reverse=True)
    return {
        "kernels": len(lines),
        "ms": sum(line["ms"] for line in lines),
        "gflop": sum(line["flops"] for line in lines) / 1e9,
        "arena": max(planned.plan.lease_bytes for planned in plans),
        "worst": [{**line, "opts": _opts(kernel)} for kernel, line in pairs[:_WORST]],
    }


def _times(run: list[tuple[engine.Planned, Sequence[int]]]) -> list[int]:
    return [ns for _, times in run for ns in times]


def _opts(kernel: engine.CompiledKernel) -> str:
    """The actions that the heuristic chose."""
    if kernel.sink is None:
        return "from the disk"
    tuned = apply_opts(kernel.sink, Device["CPU"].renderer)
    return "; ".join(map(str, tuned.arg.applied_opts))


def _line(kernel: engine.CompiledKernel, ns: float) -> dict[str, Any]:
    cost = kernel.estimates or Estimates()
    return {
        "name": kernel.name,
        "ms": ns / 1e6,
        "flops": cost.flops,
        "bytes": cost.bytes_moved,
        "gflops": cost.flops / ns,
        "gbs": cost.bytes_moved / ns,
    }
