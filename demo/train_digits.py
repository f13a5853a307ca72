"""Trains a small convolutional network on real handwritten digits, and shows what ran.

The data are the 1,797 scans of 8 x 8 pixels that scikit-learn ships; every fifth is held out.
Prints progress, the held-out accuracy, how many kernels were compiled, where the time went and the
C of one kernel; saves a picture with the loss curve and a row of predictions.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_digits

import morok as mk
from morok import engine
from morok.codegen import get_program
from morok.ir import Ops, UOp
from morok.optimizer import apply_opts
from morok.renderers import CRenderer
from morok.runtime import Device

matplotlib.use("Agg")
from matplotlib import pyplot as plt

REQUIRED_ACCURACY = 0.975


class Net:
    """Two convolutions, a pooling, two linear layers: about 38,000 parameters."""

    def __init__(self) -> None:
        self.conv1 = mk.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = mk.nn.Conv2d(16, 32, 3, padding=1)
        self.linear1 = mk.nn.Linear(32 * 4 * 4, 64)
        self.linear2 = mk.nn.Linear(64, 10)

    def __call__(self, x: mk.Tensor) -> mk.Tensor:
        """Scores of the ten digits, [N, 10], for images [N, 1, 8, 8]."""
        x = self.conv1(x).relu()
        x = self.conv2(x).relu().max_pool2d(2)
        x = self.linear1(x.flatten(1)).relu()
        return self.linear2(x)


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images in [0, 1] and labels: training part, held-out part."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int32)
    held_out = np.arange(len(labels)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def batches(count: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Shuffled index batches of equal size; what does not fill the last is left for the next
    epoch."""
    order = rng.permutation(count)
    return [order[i : i + size] for i in range(0, count - size + 1, size)]


def train(net: Net, images: np.ndarray, labels: np.ndarray, epochs: int, size: int) -> list[float]:
    """The loss of every step."""
    optimizer = mk.optim.Adam(mk.nn.state.get_parameters(net), lr=2e-3)
    rng = np.random.default_rng(0)
    losses: list[float] = []
    for epoch in range(epochs):
        start = time.perf_counter()
        for chosen in batches(len(labels), size, rng):
            optimizer.zero_grad()
            loss = net(mk.Tensor(images[chosen])).cross_entropy(mk.Tensor(labels[chosen]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - start
        steps = len(labels) // size
        print(
            f"epoch {epoch + 1:2d}/{epochs}  loss {np.mean(losses[-steps:]):.4f}"
            f"  {seconds / steps * 1e3:6.1f} ms a step",
            flush=True,
        )
    return losses


def predict(net: Net, images: np.ndarray) -> np.ndarray:
    """The most likely digit of each image."""
    with mk.no_grad():
        return net(mk.Tensor(images)).argmax(1).numpy()


def draw(
    losses: list[float], images: np.ndarray, labels: np.ndarray, said: np.ndarray, path: Path
) -> None:
    """The loss curve above a row of held-out digits with what the network says."""
    columns = 12
    figure = plt.figure(figsize=(10, 5), layout="constrained")
    grid = figure.add_gridspec(2, columns, height_ratios=[3, 1])
    curve = figure.add_subplot(grid[0, :])
    curve.plot(losses, linewidth=0.8)
    curve.set(
        yscale="log", xlabel="step", ylabel="cross entropy", title="morok on handwritten digits"
    )
    for i in range(columns):
        tile = figure.add_subplot(grid[1, i])
        tile.imshow(images[i, 0], cmap="gray_r")
        tile.set_title(str(said[i]), color="black" if said[i] == labels[i] else "red")
        tile.axis("off")
    figure.savefig(path, dpi=120)


def report(seconds: float) -> None:
    """Kernels, and time in compile and in run."""
    s = engine.stats
    compiling = s.lower_seconds + s.compile_seconds
    print(
        f"kernels compiled: {s.lowered}\n"
        f"time: {seconds:.1f} s, of it {compiling:.1f} s in compile"
        f" (lowering {s.lower_seconds:.1f}, machine code {s.compile_seconds:.1f}),"
        f" {s.run_seconds:.1f} s in run"
    )


def as_c(kernel: UOp) -> str:
    """A kernel's C source, whichever compiler it runs by."""
    renderer = CRenderer.for_target(Device["CPU"].compiler.target.has)
    program = get_program(apply_opts(kernel, renderer), renderer)
    code: str = next(part.arg for part in program.src if part.op is Ops.SOURCE)
    return code


def main() -> int:
    """0 if the held-out accuracy is what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("digits.png"))
    options = parser.parse_args()
    start = time.perf_counter()
    mk.manual_seed(1)
    train_x, train_y, test_x, test_y = load()
    net = Net()
    losses = train(net, train_x, train_y, options.epochs, options.batch)
    said = predict(net, test_x)
    accuracy = float((said == test_y).mean())
    report(time.perf_counter() - start)
    draw(losses, test_x, test_y, said, options.out)
    kernel = engine.heaviest_kernel()
    if kernel is not None:
        print(f"\nThe heaviest kernel, {kernel.name}, as C:\n\n{as_c(kernel.sink)}")
    print(f"held-out accuracy {accuracy:.4f} on {len(test_y)} digits; picture in {options.out}")
    if accuracy < REQUIRED_ACCURACY:
        print(f"that is below {REQUIRED_ACCURACY}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
