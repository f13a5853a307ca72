"""The nine computations of `bench/fusion.py`: kernels, float operations and bytes of one schedule,
together.

What `python -m bench fusion --peers tinygrad` printed of a peer stands beside, as its own counters
have it (tinygrad 0.14.0, November 2026). Bytes and kernels are bounds to be lowered with the
figures; operations are bounded by the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bench._fusion_models import COMPUTATIONS
from bench._fusion_morok import roots_of
from morok.engine import Normal, sink_of
from morok.rangeify import run_kernel_split_pipeline


@dataclass(frozen=True)
class Bound:
    """kernels and megabytes at most; the same of the peer, and its operations over the analytic."""

    kernels: int
    megabytes: float
    peer: tuple[int, float, float]


BOUNDS = {
    "softmax": Bound(1, 4.1, (3, 8.2, 16)),
    "log-softmax + NLL": Bound(2, 4.1, (4, 8.2, 5.6)),
    "layernorm": Bound(1, 2.1, (3, 4.2, 1.0)),
    "batch norm training": Bound(8, 22.5, (11, 20.9, 1.06)),
    "attention block": Bound(12, 45.2, (17, 45.4, 1.21)),
    "mlp step": Bound(16, 21.9, (57, 38.6, 1.06)),
    "conv + bn + relu + pool step": Bound(29, 102, (65, 100, 1.5)),
    "gpt step": Bound(204, 820, (642, 834, 2.24)),
    "resnet50 forward": Bound(54, 6850, (51, 6567, 0.99)),
}
"""ResNet50 forward: 53 convolutions, of which the four short cuts are done with what they are added
to, two copies with a frame (the images, and what the pool reads), the pool, the means and the
linear layer. The peer makes no such copies; without them both kernels are slower, and so is
everything that would take up the means.

Log-softmax + NLL: the losses of rows, which threads share out, and then their mean."""


def test_all_nine_are_bounded() -> None:
    assert set(BOUNDS) == set(COMPUTATIONS)


@pytest.mark.parametrize("name", BOUNDS)
def test_kernels_flops_and_bytes(name: str) -> None:
    computation, bound = COMPUTATIONS[name], BOUNDS[name]
    schedule = run_kernel_split_pipeline(Normal(sink_of(roots_of(computation))).graph)
    costs = [call.src[0].arg.estimates for call in schedule.calls]
    assert len(costs) <= bound.kernels
    assert sum(cost.flops for cost in costs) <= 1.1 * computation.flops
    assert sum(cost.bytes_moved for cost in costs) <= bound.megabytes * 1e6
