"""Sums whose terms the counter chooses: no loop is left, and the values are NumPy's."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok import Tensor, dtypes, engine, nn
from morok.dtype import from_numpy
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from morok.ir.interpret import interpret_kernel
from morok.rangeify.collapse import load_collapse
from tests.rangeify.scheduling import schedule_of


def _kernels(t: Tensor) -> list[UOp]:
    return [call.src[0] for call in schedule_of(t).calls]


def _loops(t: Tensor) -> int:
    return sum(k.has(Ops.REDUCE) for k in _kernels(t))


@pytest.mark.parametrize("n", [-70, -1, 0, 1, 63, 64, 65, 1000])
def test_counting_is_a_clamp(n: int) -> None:
    t = Tensor(n)
    cases = [
        ((Tensor.arange(64) >= t).sum(), min(max(64 - n, 0), 64)),
        ((Tensor.arange(64) < t).sum(), min(max(n, 0), 64)),
        ((t < Tensor.arange(64)).where(1, 0).sum(), sum(n < k for k in range(64))),
        (((Tensor.arange(64) >= t) & (Tensor.arange(64) <= 40)).sum(),
         sum(n <= k <= 40 for k in range(64))),
        ((63 - Tensor.arange(64) <= t).logical_not().sum(), sum(63 - k > n for k in range(64))),
        ((Tensor.arange(64) + 5 == t).sum(), int(5 <= n < 69)),
        ((Tensor.arange(64) >= t).where(Tensor([1.5]), 0.0).sum(), 1.5 * min(max(64 - n, 0), 64)),
        ((Tensor.arange(64) >= t).where(Tensor.arange(64), 0).sum(), sum(range(max(n, 0), 64))),
        ((Tensor.arange(64) < t).where(5 - 3 * Tensor.arange(64), 0).sum(),
         sum(5 - 3 * k for k in range(min(n, 64)))),
    ]  # fmt: skip
    for got, want in cases:
        assert _loops(got) == 0
        assert got.item() == want


def _sources(run: Callable[[], object]) -> list[str]:
    """The C of all kernels that run."""
    found: list[str] = []
    with engine.watch_kernels(lambda planned, _: found.extend(k.source for k in planned.kernels)):
        run()
    return found


def _ends(source: str) -> list[int]:
    """Of the loops of a kernel's C."""
    return [int(end) for end in re.findall(r"for \(.*?< (\d+);", source)]


def test_the_clamp_in_c() -> None:
    """sum(1 for k in 0..64 if k >= n) is clamp(64 - n, 0, 64): arithmetic on one number."""
    n = Tensor(7).realize()
    count = (Tensor.arange(64) >= n).where(1, 0).sum()
    (kernel,) = _kernels(count)
    assert not kernel.has(Ops.RANGE)
    value = kernel.src[0].src[1]
    (loaded,) = (u for u in kernel.toposort() if u.op is Ops.CAST and u.dtype is dtypes.index)
    for number in (-(1 << 31), -70, -1, 0, 1, 7, 63, 64, 65, (1 << 31) - 1):
        at = value.substitute({loaded: UOp.const(dtypes.index, number)}).simplify()
        assert (at.op, at.arg) == (Ops.CONST, min(max(64 - number, 0), 64))
    (source,) = _sources(count.realize)
    assert "for (" not in source
    assert count.item() == 57


def test_the_clamp_of_a_variable() -> None:
    """n may be a symbolic variable as well as a number in memory."""
    n = UOp.define_var("n", -100, 200)
    k = UOp.range(64, 0, AxisType.REDUCE, renumbered=True)
    one, zero = (UOp.const(dtypes.int32, value) for value in (1, 0))
    target = UOp.param(0, dtypes.int32.ptr(), 1)[0]
    sums = {
        "count": UOp(Ops.WHERE, dtypes.int32, (k >= n, one, zero)),
        "series": UOp(Ops.WHERE, dtypes.int32, (k >= n, k.cast(dtypes.int32), zero)),
    }
    for name, term in sums.items():
        kernel = UOp.new_sink(target.store(term.reduce(ReduceOp.ADD, k)), info=KernelInfo("k"))
        done = load_collapse(kernel).simplify()
        assert not done.has(Ops.RANGE)
        for value in (-100, -1, 0, 1, 40, 63, 64, 65, 200):
            counted = [i if name == "series" else 1 for i in range(64) if i >= value]
            for sink in (kernel, done):
                (got,) = interpret_kernel(sink, [np.zeros(1, np.int32)], {"n": value})
                assert got.tolist() == [sum(counted)]


X = np.arange(63, dtype=np.float32).reshape(7, 9)
INTO = np.array([[3], [0], [8], [8], [5], [1], [2]])
WITHOUT_REDUCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Any]]] = {
    "arange": (lambda x: Tensor.arange(50, dtype=dtypes.int64), lambda: np.arange(50)),
    "arange 3, 50, 7": (lambda x: Tensor.arange(3, 50, 7) * 2, lambda: np.arange(3, 50, 7) * 2),
    "eye": (lambda x: Tensor.eye(7, 9), lambda: np.eye(7, 9)),
    "rows of eye": (lambda x: Tensor.eye(7, 9).sum(1), lambda: np.eye(7, 9).sum(1)),
    "columns of eye": (lambda x: Tensor.eye(7, 9).sum(0), lambda: np.eye(7, 9).sum(0)),
    "all of eye": (lambda x: Tensor.eye(7, 9).sum(), lambda: 7.0),
    "tril": (lambda x: x.tril(1), lambda: np.tril(X, 1)),
    "triu": (lambda x: x.triu(-1), lambda: np.triu(X, -1)),
    "rows of tril": (lambda x: Tensor.ones(7, 9).tril().sum(1), lambda: np.tril(X * 0 + 1).sum(1)),
    "columns of triu": (
        lambda x: Tensor.ones(7, 9).triu(1).sum(0),
        lambda: np.triu(X * 0 + 1, 1).sum(0),
    ),
    "one hot": (lambda x: Tensor(INTO).one_hot(9), lambda: np.eye(9)[INTO]),
    "counts of one hot": (lambda x: Tensor(INTO).one_hot(9).sum(2), lambda: INTO * 0 + 1),
    "gather": (lambda x: x.gather(1, Tensor(INTO)), lambda: np.take_along_axis(X, INTO, 1)),
    "gather by one hot": (
        lambda x: Tensor(INTO[:, 0]).one_hot(9).cast(dtypes.bool).where(x, 0.0).sum(1),
        lambda: X[range(7), INTO[:, 0]],
    ),
    "rows": (lambda x: x[Tensor(INTO % 7)], lambda: X[INTO % 7]),
    "diagonal": (
        lambda x: Tensor.eye(7, 9).cast(dtypes.bool).where(x, 0.0).sum(1),
        lambda: X.diagonal(),
    ),
    "sum of arange": (lambda x: Tensor.arange(50).sum(), lambda: np.int32(1225)),
    "sum of floats": (
        lambda x: (Tensor.arange(50) * 3 - 7).cast(dtypes.float32).sum(),
        lambda: np.float32(3 * 1225 - 350),
    ),
    "rows and columns": (
        lambda x: (Tensor.arange(9).unsqueeze(1) * 7 + Tensor.arange(7)).sum(0),
        lambda: np.arange(63).reshape(9, 7).sum(0),
    ),
    "triangle of numbers": (
        lambda x: Tensor.arange(9).expand(9, 9).tril().sum(1),
        lambda: np.tril(np.broadcast_to(np.arange(9), (9, 9))).sum(1),
    ),
    "running counts": (lambda x: Tensor.ones(50).cumsum(0), lambda: np.arange(1, 51)),
    "a running mask": (
        lambda x: (Tensor.arange(9).unsqueeze(1) >= Tensor.arange(9)).where(1, 0).sum(1),
        lambda: np.arange(1, 10),
    ),
}


@pytest.mark.parametrize("name", WITHOUT_REDUCTIONS)
def test_no_loop_but_those_over_the_result(name: str) -> None:
    """Neither on the graph nor in C; and nothing is written but the result."""
    make, want = WITHOUT_REDUCTIONS[name]
    t = make(Tensor(X).realize())
    (kernel,) = _kernels(t)
    assert not kernel.has(Ops.REDUCE)
    loops = [u.src[0].arg for u in kernel.toposort() if u.op is Ops.RANGE]
    assert prod(loops) == t.numel()
    assert kernel.arg.estimates.bytes_written == t.nbytes
    (source,) = _sources(t.realize)
    assert prod(_ends(source)) <= t.numel()
    np.testing.assert_array_equal(t.numpy(), want())


def test_counters_load_nothing() -> None:
    for t in (
        Tensor.arange(100),
        Tensor.eye(9),
        Tensor.ones(50, 3).tril(),
        Tensor.ones(9).cumsum(0),
    ):
        (kernel,) = _kernels(t)
        assert [u.arg[0] for u in kernel.toposort() if u.op is Ops.PARAM] == [0]
        assert kernel.arg.estimates.bytes_read == 0
        assert kernel.arg.estimates.bytes_written == t.nbytes


@pytest.mark.parametrize("way", ["rows", "one hot"])
def test_an_embedding_reads_each_row_once(way: str) -> None:
    """Never the whole table: by the reads of the kernel's graph, its bytes, and the loops in C."""
    rows, width, words = 50_021, 24, 10
    table = np.zeros((rows, width), np.float32)
    index = np.random.default_rng(0).permutation(rows)[:words].astype(np.int32)
    table[index] = np.arange(words * width).reshape(words, width)
    net, numbers = nn.Embedding(rows, width), Tensor(index).realize()
    net.weight = Tensor(table).realize()
    if way == "rows":
        t = net(numbers)
    else:
        mask = numbers.one_hot(rows).cast(dtypes.bool).unsqueeze(2)
        t = mask.where(net.weight, 0.0).sum(1)
    (kernel,) = _kernels(t)
    assert not kernel.has(Ops.REDUCE)
    (read,) = (
        u
        for u in kernel.toposort()
        if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM and u.src[0].arg[1] == rows * width
    )
    assert prod(loop.src[0].arg for loop in read.open_ranges) == words * width
    assert kernel.arg.estimates.bytes_read == words * 4 + words * width * 4
    assert kernel.arg.estimates.bytes_written == words * width * 4
    (source,) = _sources(t.realize)
    assert max(_ends(source), default=1) <= words * width
    np.testing.assert_array_equal(t.numpy(), table[index])


def test_nothing_times_infinity_is_nothing() -> None:
    t = Tensor(64)
    assert (Tensor.arange(64) >= t).where(Tensor([np.inf]), 0.0).sum().item() == 0
    assert (Tensor.arange(64) > t).where(Tensor([np.nan]), 0.0).sum().item() == 0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e38])
def test_no_times_a_constant_is_nothing(value: float) -> None:
    for n, want in ((64, 0.0), (63, value)):
        got = (Tensor.arange(64) >= Tensor(n)).where(value, 0.0).sum().item()
        assert np.float32(got) == np.float32(want) or np.isnan([got, want]).all()


@pytest.mark.parametrize("far", [-(1 << 63), 1 - (1 << 63), (1 << 63) - 2, (1 << 63) - 1])
def test_bounds_as_far_as_int64_goes(far: int) -> None:
    n, k, a = Tensor(np.array(far, np.int64)), range(64), Tensor.arange(64)
    for got, want in (
        (a <= n, sum(i <= far for i in k)),
        (a < n, sum(i < far for i in k)),
        (a >= n, sum(i >= far for i in k)),
        (a > n, sum(i > far for i in k)),
        (a + 5 < n, sum(i + 5 < far for i in k)),
        (a - 5 > n, sum(i - 5 > far for i in k)),
        (7 - a <= n, sum(7 - i <= far for i in k)),
        (a + 5 == n, 0),
    ):
        assert got.sum().item() == want


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(-3, 12), min_size=1, max_size=6),
    st.sampled_from([np.int8, np.int32, np.int64, np.uint8]),
)
def test_a_one_hot_mask_is_a_load(n: int, places: list[int], dtype: Any) -> None:
    table = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
    table[0, 0] = np.nan
    index = np.array(places).astype(dtype)
    mask = Tensor.arange(n).reshape(1, n, 1) == Tensor(index).reshape(-1, 1, 1)
    got = mask.where(Tensor(table), 0.0).sum(1)
    want = np.where(np.arange(n)[:, None] == index[:, None, None], table, 0).sum(1)
    assert np.array_equal(got.numpy(), want, equal_nan=True)


def test_a_one_hot_gather_reads_each_row_once() -> None:
    table = Tensor(np.ones((50, 6), np.float32)).realize()
    index = Tensor(np.arange(4)).realize()
    mask = Tensor.arange(50).reshape(1, 50, 1) == index.reshape(4, 1, 1)
    (kernel,) = _kernels(mask.where(table, 0.0).sum(1))
    assert not kernel.has(Ops.REDUCE)
    assert kernel.arg.estimates.bytes_moved == 4 * 8 + 2 * 4 * 6 * 4


def test_products_with_a_mask_stay_sums_where_zero_times_x_is_not_zero() -> None:
    table = np.array([np.inf, 1.0, 2.0], np.float32)
    got = ((Tensor.arange(3) == 1).cast(dtypes.float32) * Tensor(table)).sum()
    assert np.isnan(got.item())


@settings(max_examples=60)
@given(st.data())
def test_series_are_numpys(data: st.DataObject) -> None:
    """Sums of c * k + d between bounds, in ints that wrap and in floats."""
    number = st.integers(-9, 9)
    n, c, d = data.draw(st.integers(1, 12)), data.draw(number), data.draw(number)
    low, high = data.draw(number), data.draw(st.integers(-3, 14))
    dtype = data.draw(st.sampled_from([np.int8, np.int32, np.int64, np.float32, np.float64]))
    k = np.arange(n, dtype=np.int64)
    term = (Tensor.arange(n, dtype=dtypes.int64) * c + d).cast(from_numpy(np.dtype(dtype)))
    inside = (Tensor.arange(n) >= Tensor(low)) & (Tensor.arange(n) < Tensor(high))
    got = inside.where(term, term.scalar_like(0)).sum()
    want = np.where((k >= low) & (k < high), (k * c + d).astype(dtype), dtype(0)).sum()
    assert _loops(got) == 0 or dtype is np.int8
    assert got.item() == want


def test_series_that_wrap_or_are_none_are_right() -> None:
    big = Tensor.arange(1 << 20)
    assert big.sum().item() == int(np.arange(1 << 20, dtype=np.int32).sum(dtype=np.int32))
    assert (big * 5000).sum().item() == int(
        (np.arange(1 << 20, dtype=np.int32) * np.int32(5000)).sum(dtype=np.int32)
    )
    assert (Tensor.arange(300, dtype=dtypes.uint8) * 3).sum().item() == int(
        (np.arange(300).astype(np.uint8) * np.uint8(3)).sum()
    )
    k = np.arange(20)
    for t, want in (
        (Tensor.arange(20) * Tensor.arange(20), k * k),
        (Tensor.arange(20) // 3, k // 3),
        (Tensor.arange(20) % 7, k % 7),
        ((Tensor.arange(20) - 9).abs(), abs(k - 9)),
    ):
        assert t.sum().item() == want.sum()


def test_other_conditions_keep_their_loop() -> None:
    a = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    t = Tensor(a).realize()
    assert np.isclose((t > 0).where(t, 0.0).sum().item(), a[a > 0].sum(), atol=1e-5)
    assert (Tensor.arange(16) % 3 == 1).sum().item() == 5
    assert (Tensor.arange(16) * 2 < 9).sum().item() == 5
    for k in (0, 3, 15):
        half = (Tensor.arange(16) <= k).where(t, 0.0).sum()
        assert np.isclose(half.item(), a[: k + 1].sum(), atol=1e-5)


def test_counting_from_nothing_loads_nothing() -> None:
    (kernel,) = _kernels(Tensor.arange(100) * 3)
    assert kernel.arg.estimates.bytes_moved == 400


def test_losses_pick_their_class_without_a_loop_over_classes() -> None:
    labels = np.array([3, 0, 9, 5])
    scores = np.random.default_rng(1).standard_normal((4, 10)).astype(np.float64)
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    t = Tensor(scores).log_softmax(1).realize()
    loss = t.nll_loss(Tensor(labels))
    assert np.isclose(loss.item(), -log_p[np.arange(4), labels].mean())
    flops: list[int] = []
    with engine.watch_kernels(
        lambda planned, _: flops.extend(k.sink.arg.estimates.flops for k in planned.kernels)
    ):
        t.nll_loss(Tensor(labels)).item()
    assert sum(flops) <= 4 * 4
