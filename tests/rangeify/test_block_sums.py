"""Long float sums: the rounding error must not grow with the length."""

from __future__ import annotations

import numpy as np
import pytest

from morok import Tensor
from morok._core import affine_form
from morok.ir import AxisType, Ops
from morok.rangeify.transforms import BLOCK, LEVEL, LONG_SUM
from tests.rangeify.scheduling import schedule_of

STATED = 256  # |sum - exact| <= STATED * 2**-24 * sum of magnitudes, for float32 and any length


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1 << 22,), 0), ((1_000_003,), 0), ((LONG_SUM + 1,), 0), ((1 << 17, 4), 0), ((3, 100_000), 1),
     ((300, 300, 7), (0, 1, 2)), ((BLOCK * LEVEL * 3 + 17,), 0)],
)  # fmt: skip
@pytest.mark.parametrize("fill", [0.1, None])
def test_error_of_long_sums_is_bounded(shape, axis, fill, rng) -> None:
    a = np.full(shape, fill, np.float32) if fill else rng.standard_normal(shape).astype(np.float32)
    got = Tensor(a).sum(axis).numpy().astype(np.float64)
    exact = a.astype(np.float64).sum(axis)
    magnitude = np.abs(a.astype(np.float64)).sum(axis)
    assert (np.abs(got - exact) <= STATED * 2.0**-24 * magnitude).all()


def test_long_products_of_matrices(rng) -> None:
    a = rng.random((4, 70_000)).astype(np.float32)
    b = rng.random((70_000, 8)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    got = (Tensor(a) @ Tensor(b)).numpy()
    assert (np.abs(got - exact) <= STATED * 2.0**-24 * exact).all()


def test_integers_are_summed_as_they_are() -> None:
    a = np.arange(LONG_SUM * 2 + 3, dtype=np.int64)
    assert Tensor(a).sum().item() == int(a.sum())


@pytest.mark.parametrize("shape", [(128, 4, 20, 20), (130, 2, 300), (7, 1, 9, 1000)])
def test_loops_keep_their_order(shape) -> None:
    """The inner loops of a sum that is cut run inside the parts of the one that is cut: the further
    in, the nearer the elements."""
    axes = tuple(i for i in range(len(shape)) if i != 1)
    total = Tensor(np.zeros(shape, np.float32)).sum(axes)
    (call,) = schedule_of(total).calls
    reads = [
        u
        for u in call.src[0].toposort()
        if u.op is Ops.INDEX and any(r.arg[1].is_reduce for r in u.open_ranges)
    ]
    assert reads
    for read in reads:
        terms, _ = affine_form(read.src[1])
        loops = sorted(
            (r.arg[0].number, stride) for r, stride in terms if r.arg[1] is AxisType.REDUCE
        )
        strides = [stride for _, stride in loops]
        assert strides == sorted(strides, reverse=True)
