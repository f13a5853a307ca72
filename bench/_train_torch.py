"""The train benchmark in PyTorch: eager, or with loss and optimizer step compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench import _torch_models as models
from bench import _train_data as data
from bench._torch_common import compiled
from bench.harness import Step, Wait

VERSION = torch.__version__
torch.set_num_threads(1)
_MODELS: dict[str, Callable[[], Any]] = {
    "mlp": models.MLP,
    "cnn": models.CNN,
    "gpt": models.GPT,
    "resnet18": models.ResNet18,
}


def start(who: str, model: str, quick: bool) -> tuple[Step, Wait]:
    """A training step of one model, and how to wait for its loss."""
    task = data.TASKS[model]
    net = _MODELS[model]()
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(data.initial(name, tuple(tensor.shape))))
    optimizer = _optimizer(task, list(net.parameters()))
    x, y = map(torch.from_numpy, task.batch(task.quick if quick else task.size))
    batch = {"x": x, "y": y.long()}
    loss_of = compiled(net.loss, who == "torch.compile")
    update = compiled(optimizer.step, who == "torch.compile")

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        update()
        return loss.detach()

    return step, float


def _optimizer(task: data.Task, weights: list[Any]) -> torch.optim.Optimizer:
    if task.optimizer == "sgd":
        return torch.optim.SGD(weights, task.rate, data.MOMENTUM)
    if task.optimizer == "adamw":
        return torch.optim.AdamW(weights, task.rate, weight_decay=data.DECAY)
    return torch.optim.Adam(weights, task.rate)
