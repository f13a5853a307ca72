"""Many small computations in morok: by one `compile`, or by a `jit` each."""

from __future__ import annotations

import morok as mk
from bench._bulk_data import COUNT, arrays
from morok import Tensor


def work(a: Tensor, b: Tensor) -> Tensor:
    """What is computed."""
    return ((a * 2 + b).relu() - a.mean(1, keepdim=True)).sum(0)


def run(who: str, count: int = COUNT) -> float:
    """Compile them, run each once; the sum of all results."""
    inputs = [tuple(map(Tensor, arrays(number))) for number in range(count)]
    if who.endswith("jits"):
        results = [mk.jit(work)(*pair) for pair in inputs]
    else:
        results = [plan.execute()[0] for plan in mk.compile([work(*pair) for pair in inputs])]
    return float(sum(result.numpy().sum() for result in results))
