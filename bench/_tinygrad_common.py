"""What the tinygrad side of the benchmarks shares: a training step under `TinyJit`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from tinygrad import Context, Tensor, TinyJit

from bench.harness import Step, Wait

VERSION = version("tinygrad")


def trained(
    loss_of: Callable[..., Tensor], optimizer: Any, batch: tuple[Tensor, ...]
) -> tuple[Step, Wait]:
    """A jitted training step of `loss_of(*batch)`."""
    for x in batch:
        x.realize()

    @TinyJit
    def step(*batch: Tensor) -> Tensor:
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = loss_of(*batch)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    return lambda: step(*batch), Tensor.item
