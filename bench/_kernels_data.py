"""The rows of the kernels benchmark: inputs, work, and the values by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ROWS", "Row", "disagreement", "inputs"]

Array = np.ndarray
CHAIN = 10
"""Elementwise operations of the chain."""
_WITHIN = 2e-4  # of the largest value: what float32 and another order of sums may differ by


@dataclass(frozen=True, slots=True)
class Row:
    """One computation. `flops` where it is bound by arithmetic, else 0; `reads` and `writes` are
    the bytes that have to be moved."""

    shapes: tuple[tuple[int, ...], ...]
    by_numpy: Callable[..., Array]
    flops: float = 0.0
    writes: int = 0

    @property
    def reads(self) -> int:
        """Bytes of all inputs."""
        return sum(4 * math.prod(shape) for shape in self.shapes)


def _product(m: int, n: int, k: int, ta: bool = False, tb: bool = False) -> Row:
    """(m, k) @ (k, n), one of them lying transposed in memory."""
    a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    def by_numpy(a: Array, b: Array) -> Array:
        return np.asarray((a.T if ta else a) @ (b.T if tb else b))

    return Row((a, b), by_numpy, 2.0 * m * n * k)


def _windows(x: Array, taps: int, stride: int) -> Array:
    """(n, c, y, x, r, q)"""
    spread = np.lib.stride_tricks.sliding_window_view(x, (taps, taps), axis=(2, 3))
    return spread[:, :, ::stride, ::stride]


def _padded(x: Array, by: int) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (by, by), (by, by)))


def _forward(taps: int, stride: int) -> Callable[..., Array]:
    def by_numpy(x: Array, w: Array) -> Array:
        seen = _windows(_padded(x, taps // 2), taps, stride)
        return np.asarray(np.tensordot(seen, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2))

    return by_numpy


def _to_input(taps: int, stride: int, side: int) -> Callable[..., Array]:
    """The gradient of a convolution's input, of its weight and the gradient of its result."""

    def by_numpy(w: Array, g: Array) -> Array:
        by = taps // 2
        out = np.zeros((g.shape[0], w.shape[1], side + 2 * by, side + 2 * by), np.float32)
        last = stride * (g.shape[2] - 1) + 1
        for r in range(taps):
            for q in range(taps):
                part = np.tensordot(g, w[:, :, r, q], ((1,), (0,))).transpose(0, 3, 1, 2)
                out[:, :, r : r + last : stride, q : q + last : stride] += part
        return np.asarray(out[:, :, by : by + side, by : by + side])

    return by_numpy


def _to_weight(taps: int, stride: int) -> Callable[..., Array]:
    """The gradient of a convolution's weight, of its input and the gradient of its result."""

    def by_numpy(x: Array, g: Array) -> Array:
        seen = _windows(_padded(x, taps // 2), taps, stride)
        return np.asarray(np.tensordot(g, seen, ((0, 2, 3), (0, 2, 3))))

    return by_numpy


def _convolution(
    n: int, channels: int, out: int, side: int, taps: int, stride: int
) -> dict[str, Row]:
    after = (side + 2 * (taps // 2) - taps) // stride + 1
    x, w, g = (n, channels, side, side), (out, channels, taps, taps), (n, out, after, after)
    flops = 2.0 * n * out * channels * after**2 * taps**2
    name = f"conv {taps}x{taps}" + (f" s{stride}" if stride > 1 else "")
    return {
        name: Row((x, w), _forward(taps, stride), flops),
        f"{name} to input": Row((w, g), _to_input(taps, stride, side), flops),
        f"{name} to weight": Row((x, g), _to_weight(taps, stride), flops),
    }


def _chained(x: Array) -> Array:
    for _ in range(CHAIN // 2):
        x = x * np.float32(1.01) + np.float32(0.5)
    return x


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64) / math.sqrt(2)
    return np.asarray(x * (np.vectorize(math.erf, [np.float64])(wide) + 1) / 2)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _layernorm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5))


def _attention(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1]))
    return np.asarray(_softmax(scores) @ v)


def _biased(a: Array, b: Array, bias: Array) -> Array:
    return np.asarray(np.maximum(a @ b + bias, 0))


def _rows() -> dict[str, Row]:
    big, n = (8192, 8192), 1 << 22
    return {
        "chain 4M": Row(((n,),), _chained, writes=4 * n),
        "gelu 4M": Row(((n,),), _gelu, writes=4 * n),
        **{f"matmul {m}": _product(m, m, m) for m in (256, 512, 1024, 2048, 500)},
        "A @ Bt 512": _product(512, 512, 512, tb=True),
        "At @ B 512": _product(512, 512, 512, ta=True),
        "128x256x784": _product(128, 256, 784),
        "8x4096x4096": _product(8, 4096, 4096),
        "bias relu 512": Row(((512, 512), (512, 512), (512,)), _biased, 2.0 * 512**3),
        "matvec 4096": Row(((4096, 4096), (4096,)), np.matmul),
        "vecmat 4096": Row(((4096,), (4096, 4096)), np.matmul),
        "softmax 2048": Row(((2048, 2048),), _softmax, writes=4 * 2048**2),
        "layernorm 4096x1024": Row(((4096, 1024),), _layernorm, writes=4 * n),
        **_convolution(8, 64, 64, 56, 3, 1),
        **_convolution(8, 3, 64, 224, 7, 2),
        "attention": Row(((4, 8, 256, 64),) * 3, _attention, 4.0 * 32 * 256 * 256 * 64),
        "sum 64M": Row(((1 << 26,),), lambda x: x.sum(dtype=np.float64)),
        "row sums 8192": Row((big,), lambda x: x.sum(1, dtype=np.float64)),
        "column sums 8192": Row((big,), lambda x: x.sum(0, dtype=np.float64)),
        "transpose 4096": Row(((4096, 4096),), np.transpose, writes=4 * 4096**2),
    }


ROWS = _rows()
QUICK = (
    "chain 4M",
    "matmul 256",
    "matmul 512",
    "128x256x784",
    "softmax 2048",
    "layernorm 4096x1024",
    "conv 3x3",
    "attention",
)
"""The rows of a quick run."""


def inputs(name: str) -> list[Array]:
    """The same numbers for every system."""
    random = np.random.default_rng(len(name))
    return [random.standard_normal(shape, dtype=np.float32) for shape in ROWS[name].shapes]


def disagreement(name: str, arrays: Sequence[Array], got: Array) -> str | None:
    """What is wrong with a system's values, or None."""
    want = ROWS[name].by_numpy(*arrays)
    if got.shape != want.shape:
        return f"{name}: shape {got.shape}, not {want.shape}"
    # A sum of very many numbers of both signs is small against its terms.
    scale = max(float(np.abs(want).max()), math.sqrt(sum(a.size for a in arrays) / want.size))
    away = float(np.abs(got - want).max())
    if not away <= _WITHIN * scale:
        return f"{name}: {away:.3g} away from NumPy's values, of {scale:.3g}"
    return None
