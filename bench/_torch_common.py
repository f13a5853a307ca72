"""What the PyTorch side of the benchmarks shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled(work: Callable[..., Any], compiling: bool) -> Callable[..., Any]:
    """`work`, by torch.compile if so wanted."""
    made: Callable[..., Any] = torch.compile(work) if compiling else work
    return made
