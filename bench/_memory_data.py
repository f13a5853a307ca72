"""The numbers every system gets in the memory benchmark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.memory import ROWS, WIDTH


def table(rows: int) -> npt.NDArray[np.float32]:
    """A table to look rows up in."""
    return np.full((rows, WIDTH), 0.5, np.float32)


def tokens(rows: int) -> npt.NDArray[np.int32]:
    """Which rows."""
    return np.random.default_rng(0).integers(0, rows, ROWS).astype(np.int32)


def slopes() -> npt.NDArray[np.float32]:
    """The gradient of what was looked up."""
    return np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)


def numbers(count: int) -> npt.NDArray[np.float32]:
    """To be summed."""
    return np.random.default_rng(2).normal(size=count).astype(np.float32)
