"""The train benchmark in tinygrad, by `TinyJit`."""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor
from tinygrad.nn import optim
from tinygrad.nn.state import get_state_dict

from bench import _tinygrad_common as common
from bench import _train_data as data
from bench._tinygrad_models import MODELS
from bench.harness import Step, Wait

VERSION = common.VERSION


def start(_: str, model: str, quick: bool) -> tuple[Step, Wait]:
    """A training step of one model, and how to wait for its loss."""
    task = data.TASKS[model]
    net = MODELS[model]()
    state = get_state_dict(net)
    for name, tensor in state.items():
        if tensor.shape:
            tensor.assign(Tensor(data.initial(name, tensor.shape)))
    Tensor.realize(*state.values())
    batch = tuple(map(Tensor, task.batch(task.quick if quick else task.size)))
    return common.trained(net.loss, _optimizer(task, net), batch)


def _optimizer(task: data.Task, net: Any) -> Any:
    held = {"running_mean", "running_var", "num_batches_tracked"}
    trained = [t for n, t in get_state_dict(net).items() if n.rpartition(".")[2] not in held]
    if task.optimizer == "sgd":
        return optim.SGD(trained, task.rate, data.MOMENTUM)
    if task.optimizer == "adamw":
        return optim.AdamW(trained, task.rate, weight_decay=data.DECAY)
    return optim.Adam(trained, task.rate)
