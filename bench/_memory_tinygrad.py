"""The memory benchmark in tinygrad: only the peak of training."""

from __future__ import annotations

from collections.abc import Callable

from bench._tinygrad_common import VERSION
from bench.harness import Step, Wait

__all__ = ["VERSION", "makers"]


def makers() -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """It looks rows up by a product with all of the table: minutes of it are no figure."""
    return {}
