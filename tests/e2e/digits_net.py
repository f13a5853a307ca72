"""The demo's network, digit-like data for it, and its parameters from NumPy."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np

import morok as mk

DEMO = Path(__file__).resolve().parents[2] / "demo" / "train_digits.py"
BATCH = 64  # of the demo

Arrays = dict[str, np.ndarray]


def demo_network() -> Any:
    """The class `Net` of the demo itself, whose other imports the tests do without."""
    tree = ast.parse(DEMO.read_text())
    body = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Net"]
    scope: dict[str, Any] = {"mk": mk}
    exec(compile(ast.Module(body, []), str(DEMO), "exec", dont_inherit=True), scope)
    return scope["Net"]


def start_values(seed: int) -> Arrays:
    """Even within 1 / sqrt(fan-in), by name, for a new network of the demo's."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for layer in ("conv1", "conv2", "linear1", "linear2"):
        shape = mk.nn.state.get_state_dict(demo_network()())[f"{layer}.weight"].shape
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        arrays[f"{layer}.weight"] = rng.uniform(-bound, bound, shape).astype(np.float32)
        arrays[f"{layer}.bias"] = rng.uniform(-bound, bound, shape[:1]).astype(np.float32)
    return arrays


def network(arrays: Arrays) -> Any:
    """The demo's network with these parameters; nothing is computed for it."""
    net = demo_network()()
    mk.nn.state.load_state_dict(net, arrays)
    return net


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 1, 8, 8) in [0, 1], a blurred pattern for each of ten classes, and labels."""
    rng = np.random.default_rng(seed)
    patterns = rng.uniform(0, 1, (10, 1, 8, 8))
    labels = rng.integers(0, 10, count)
    images = 0.7 * patterns[labels] + 0.3 * rng.uniform(0, 1, (count, 1, 8, 8))
    return images.astype(np.float32), labels.astype(np.int32)
