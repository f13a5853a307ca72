"""300 small computations whose shapes differ, as programs with varying sizes make them."""

from __future__ import annotations

from typing import Any

import numpy as np

COUNT = 300


def arrays(number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The arguments of one of them."""
    rows, columns = 3 + number % 20, 5 + number // 20
    return np.ones((rows, columns), np.float32), np.ones((rows, 1), np.float32)
