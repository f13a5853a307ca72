"""Results written in turn: the short lane becomes part of a long one, and the values stay."""

from __future__ import annotations

import numpy as np

from morok import Tensor
from morok.dtype import dtypes
from morok.optimizer import OptOps
from morok.optimizer.facts import Facts
from morok.optimizer.interleaved import merge_interleaved
from tests.codegen.kernels import Builder, Kernel, capability, check


def _kernel(rows: int, each: int) -> Kernel:
    """out[each * x + q] = a[each * x + q] * b[x]"""
    k = Builder(61)
    x, q = k.loop(rows), k.loop(each)
    out, a = (k.param(rows * each, dtypes.float32) for _ in range(2))
    b = k.param(rows, dtypes.float32)
    place = x * each + q
    return k.kernel(out.at(place).store(a.at(place) * b.at(x), x, q))


def _merged(kernel: Kernel) -> tuple[OptOps, ...]:
    sink = merge_interleaved(Facts(kernel.sink, capability()))
    check(kernel, sink)
    return tuple(opt.op for opt in getattr(sink.arg, "applied_opts", ()))


def test_a_short_lane_is_merged_with_the_loop_that_goes_on() -> None:
    assert _merged(_kernel(10, 2)) == (OptOps.MERGE,)
    assert _merged(_kernel(7, 3)) == (OptOps.MERGE,)


def test_a_long_lane_stays() -> None:
    assert _merged(_kernel(10, 8)) == ()


def test_pooling_and_its_gradient_are_those_of_numpy() -> None:

    x = np.random.default_rng(0).standard_normal((3, 2, 20, 22), dtype=np.float32)
    ours = Tensor(x, requires_grad=True)
    pooled = ours.max_pool2d(2)
    windows = x.reshape(3, 2, 10, 2, 11, 2).transpose(0, 1, 2, 4, 3, 5).reshape(3, 2, 10, 11, 4)
    np.testing.assert_array_equal(pooled.numpy(), windows.max(-1))
    g = np.random.default_rng(1).standard_normal((3, 2, 10, 11), dtype=np.float32)
    pooled.backward(Tensor(g))
    first = windows.argmax(-1)[..., None] == np.arange(4)
    spread = (first * g[..., None]).reshape(3, 2, 10, 11, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    np.testing.assert_array_equal(ours.grad.numpy(), spread.reshape(x.shape).astype(np.float32))
