"""The numbers every system starts the dispatch benchmark from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
BATCH, WIDTH = 4, 8
SGD_RATE, ADAM_RATE = 0.05, 1e-3
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


def weights() -> dict[str, Array]:
    """w1, b1, w2, b2; matrices are (in, out)."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (WIDTH, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, WIDTH), "b2": (WIDTH,)}
    return {
        name: rng.uniform(-0.35, 0.35, shape).astype(np.float32) for name, shape in shapes.items()
    }


def batch() -> tuple[Array, npt.NDArray[np.int32]]:
    """Inputs and their classes."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
    return inputs, rng.integers(0, WIDTH, BATCH).astype(np.int32)


def rotation() -> Array:
    """An orthogonal matrix: however often it is applied, lengths stay."""
    matrix = np.random.default_rng(2).normal(size=(WIDTH, WIDTH))
    return np.linalg.qr(matrix)[0].astype(np.float32)
