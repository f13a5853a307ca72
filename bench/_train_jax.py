"""The train benchmark in JAX: the whole step under `jax.jit`, weights and states donated."""

from __future__ import annotations

import jax

from bench import _jax_common as common
from bench import _train_data as data
from bench._jax_models import MODELS
from bench.harness import Step, Wait

VERSION = jax.__version__


def start(_: str, model: str, quick: bool) -> tuple[Step, Wait]:
    """A training step of one model, and how to wait for its loss."""
    task = data.TASKS[model]
    shapes, loss_of = MODELS[model]
    trained, held = shapes()
    batch = tuple(map(jax.numpy.asarray, task.batch(task.quick if quick else task.size)))
    return common.trained(
        loss_of,
        _optimizer(task),
        {name: data.initial(name, shape) for name, shape in trained.items()},
        batch,
        {name: data.initial(name, shape) for name, shape in held.items()},
    )


def _optimizer(task: data.Task) -> common.Optimizer:
    if task.optimizer == "sgd":
        return common.sgd(task.rate, data.MOMENTUM)
    return common.adam(task.rate, decay=data.DECAY if task.optimizer == "adamw" else 0.0)
