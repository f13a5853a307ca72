"""The memory benchmark in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from bench import _memory_data as data
from bench.harness import Step, Wait
from bench.memory import LENGTHS, TABLES

VERSION = torch.__version__
torch.set_num_threads(1)


def _embedding(rows: int) -> tuple[Step, Wait]:
    weight = torch.from_numpy(data.table(rows)).requires_grad_()
    tokens = torch.from_numpy(data.tokens(rows)).long()
    slopes = torch.from_numpy(data.slopes())

    def step() -> torch.Tensor:
        weight.grad = None
        (torch.nn.functional.embedding(tokens, weight) * slopes).sum().backward()
        assert weight.grad is not None
        return weight.grad

    return step, lambda grad: float(grad[-1, -1])


def _cumsum(count: int) -> tuple[Step, Wait]:
    x = torch.from_numpy(data.numbers(count))
    return lambda: x.cumsum(0), lambda y: float(y[-1])


def makers() -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The timed cases by name."""
    return {
        **{f"embedding {v}": partial(_embedding, v) for v in TABLES},
        **{f"cumsum {n}": partial(_cumsum, n) for n in LENGTHS},
    }
