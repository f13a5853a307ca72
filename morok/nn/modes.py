"""Training and evaluation.

Layers that behave differently in the two (dropout, batch norm) hold a flag `training`, True from
the start as in PyTorch. Models being plain objects, `train(model)` and `evaluate(model)` set the
flag of everything a model holds, as PyTorch's `model.train()` and `model.eval()` do.

A function under jit sees the flags of a model among its arguments, not those of one in its closure:
there, each mode needs a function of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from morok.nn.state import parts_of

M = TypeVar("M")


def train(model: M, mode: bool = True) -> M:
    """Set everything in a model to training, or with `mode=False` to evaluation; the model."""
    for layer in _switched(model):
        layer.training = mode
    return model


def evaluate(model: M) -> M:
    """Set everything in a model to evaluation; the model."""
    return train(model, False)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Within the block the model is in evaluation; afterwards each part is as it was."""
    before = [(layer, layer.training) for layer in _switched(model)]
    evaluate(model)
    try:
        yield
    finally:
        for layer, mode in before:
            layer.training = mode


def _switched(model: Any) -> list[Any]:
    """The parts that hold the flag."""
    return [each for each in layers(model) if isinstance(getattr(each, "training", None), bool)]


def layers(model: Any) -> Iterator[Any]:
    """Every object a model is made of that holds attributes, itself first, each once."""
    seen: set[int] = set()
    todo = [model]
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if hasattr(each, "__dict__"):
            yield each
        todo += [part for _, part in reversed(list(parts_of(each)))]
