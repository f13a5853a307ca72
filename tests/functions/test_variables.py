"""Symbolic variables: numbers, bounds of slices and dims that change without compiling anything."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morok as mk
from morok import engine
from morok.errors import ArgumentError, AxisError, DTypeError, JitError, ShapeError
from morok.ir import KernelInfo, Ops, UOp, interpret_tensor
from morok.tensor import Tensor

RNG = np.random.default_rng(5)
N = mk.Variable("n", 1, 12)
V = mk.Variable("v", 0, 8)
A = RNG.standard_normal((12, 5)).astype(np.float32)
B = RNG.standard_normal((12, 5)).astype(np.float32)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# fmt: off
# ruff: noqa: E501
CASES = {
    # numbers
    "times": (lambda x, n, v: x * n + v, lambda a, n, v: a * n + v),
    "reflected": (lambda x, n, v: n * x - (v - x) / n, lambda a, n, v: n * a - (v - a) / n),
    "integer": (lambda x, n, v: Tensor([5, 7]) * n % (v + 2), lambda a, n, v: np.array([5, 7]) * n % (v + 2)),
    "compared": (lambda x, n, v: Tensor.arange(9) < v, lambda a, n, v: np.arange(9) < v),
    "chosen": (lambda x, n, v: (x > 0).where(x, n), lambda a, n, v: np.where(a > 0, a, n)),
    "itself": (lambda x, n, v: Tensor(n) + Tensor(v * 2), lambda a, n, v: np.array(n + 2 * v)),
    # offsets
    "window": (lambda x, n, v: x[v : v + 4] * 2, lambda a, n, v: a[v : v + 4] * 2),
    "row": (lambda x, n, v: x[v] + 1, lambda a, n, v: a[v] + 1),
    "column": (lambda x, n, v: x.T[:, v + 1], lambda a, n, v: a.T[:, v + 1]),
    "window sum": (lambda x, n, v: x[v : v + 4].sum(0), lambda a, n, v: a[v : v + 4].sum(0)),
    # dims
    "head": (lambda x, n, v: x[:n] * 2 + 1, lambda a, n, v: a[:n] * 2 + 1),
    "bare head": (lambda x, n, v: x[:n], lambda a, n, v: a[:n]),
    "tail": (lambda x, n, v: x[n:] + 0, lambda a, n, v: a[n:]),
    "last rows": (lambda x, n, v: x[:n][-1:] + 0, lambda a, n, v: a[:n][-1:]),
    "inner": (lambda x, n, v: x.T[1:, :n].exp(), lambda a, n, v: np.exp(a.T[1:, :n])),
    "flipped": (lambda x, n, v: x[:n].flip(0) + 0, lambda a, n, v: a[:n][::-1]),
    "sum": (lambda x, n, v: x[:n].sum(0), lambda a, n, v: a[:n].sum(0)),
    "sum of rows": (lambda x, n, v: x[:n].sum(1), lambda a, n, v: a[:n].sum(1)),
    "all": (lambda x, n, v: x[:n].sum(), lambda a, n, v: a[:n].sum()),
    "max": (lambda x, n, v: x[:n].max(0), lambda a, n, v: a[:n].max(0)),
    "mean": (lambda x, n, v: x[:n].mean(0), lambda a, n, v: a[:n].mean(0)),
    "variance": (lambda x, n, v: x[:n].var(0, correction=0), lambda a, n, v: a[:n].var(0)),
    "softmax": (lambda x, n, v: x[:n].softmax(0), lambda a, n, v: softmax(a[:n], 0)),
    "softmax of rows": (lambda x, n, v: x[:n].softmax(1), lambda a, n, v: softmax(a[:n], 1)),
    "counter": (lambda x, n, v: Tensor.arange(n) * 3, lambda a, n, v: np.arange(n) * 3),
    "counter from": (lambda x, n, v: Tensor.arange(v, v + n), lambda a, n, v: np.arange(v, v + n)),
    "counted": (lambda x, n, v: x[:n] * Tensor.arange(n).unsqueeze(1), lambda a, n, v: a[:n] * np.arange(n)[:, None]),
    "product rows": (lambda x, n, v: x[:n] @ x.T, lambda a, n, v: a[:n] @ a.T),
    "product columns": (lambda x, n, v: x @ x[:n].T, lambda a, n, v: a @ a[:n].T),
    "product inner": (lambda x, n, v: x.T[:, :n] @ x[:n], lambda a, n, v: a.T[:, :n] @ a[:n]),
    "two dims": (lambda x, n, v: x[:n] @ x[: v + 1].T, lambda a, n, v: a[:n] @ a[: v + 1].T),
    "new dims": (lambda x, n, v: x[:n, None] + x[None, :n], lambda a, n, v: a[:n, None] + a[None, :n]),
    "padded": (lambda x, n, v: x[:n].pad([(0, 12 - n), (1, 0)]), lambda a, n, v: np.pad(a[:n], [(0, 12 - n), (1, 0)])),
    "a step on the way": (lambda x, n, v: (x[:n] + 1).realize() * 2, lambda a, n, v: (a[:n] + 1) * 2),
    "expanded": (lambda x, n, v: x[0].expand(n, 5) * x[:n], lambda a, n, v: a[0] * a[:n]),
    "a sum as a dim": (lambda x, n, v: Tensor.ones(0 + n, 5).expand(2, n + v - v, 5) * x[:n], lambda a, n, v: np.stack([a[:n]] * 2)),
    "inner dims apart": (lambda x, n, v: x.T[:4, :n].reshape(2, 2, n).sum(0), lambda a, n, v: a.T[:4, :n].reshape(2, 2, n).sum(0)),
    "attention": (
        lambda x, n, v: (x[:2] @ x[:n].T).softmax(-1) @ x[:n],
        lambda a, n, v: softmax(a[:2] @ a[:n].T, 1) @ a[:n],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_against_numpy_and_compiled_once(name: str) -> None:
    morok, numpy = CASES[name]
    x = Tensor(A).realize()
    morok(x, N.bind(4), V.bind(4)).realize()
    before = engine.stats.scheduled, engine.stats.lowered
    for n, v in ((1, 0), (2, 8), (5, 3), (11, 1), (12, 7)):
        expected = np.asarray(numpy(A, n, v))
        lazy = morok(x, N.bind(n), V.bind(v))
        graph = lazy.uop
        got = lazy.numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
        if name != "a step on the way":
            memory = {
                u: engine.buffers.buffer_of(u).view(np.dtype(u.dtype.name.lower()), (u.arg,))
                for u in engine.own_nodes(graph)
                if u.op is Ops.BUFFER
            }
            np.testing.assert_allclose(
                interpret_tensor(graph, memory), expected, rtol=1e-4, atol=1e-6
            )
    assert (engine.stats.scheduled, engine.stats.lowered) == before


def test_a_hundred_values_compile_once() -> None:
    length = mk.Variable("length", 1, 128)
    x = Tensor(RNG.standard_normal((128, 8)).astype(np.float32))
    x[: length.bind(3)].sum(0).realize()
    before = engine.stats.scheduled, engine.stats.lowered
    for n in range(1, 101):
        got = x[: length.bind(n)].sum(0).numpy()
        np.testing.assert_allclose(got, x.numpy()[:n].sum(0), rtol=1e-4, atol=1e-5)
    assert (engine.stats.scheduled, engine.stats.lowered) == before


def test_generation_with_a_cache_of_keys_and_values() -> None:
    """Attention of each new place over all before it, as a language model generates."""
    places = mk.Variable("place", 0, 31)
    keys, values = Tensor.zeros(32, 8).contiguous(), Tensor.zeros(32, 8).contiguous()
    k, v, q = (RNG.standard_normal((32, 8)).astype(np.float32) for _ in range(3))

    def step(i: int) -> np.ndarray:
        place = places.bind(i)
        keys[place : place + 1] = Tensor(k[i : i + 1])
        values[place] = Tensor(v[i])
        scores = Tensor(q[i : i + 1]) @ keys[: place + 1].T
        return (scores.softmax(-1) @ values[: place + 1]).numpy()

    for i in range(3):
        step(i)
    before = engine.stats.scheduled, engine.stats.lowered
    for i in range(3, 32):
        expected = softmax(q[i : i + 1] @ k[: i + 1].T, 1) @ v[: i + 1]
        np.testing.assert_allclose(step(i), expected, rtol=1e-4, atol=1e-5)
    assert (engine.stats.scheduled, engine.stats.lowered) == before
    np.testing.assert_array_equal(keys.numpy(), k)


def test_writes_to_symbolic_places() -> None:
    start = mk.Variable("start", 0, 5)
    for n, v in ((1, 0), (6, 5), (3, 2)):
        x, a = Tensor(A), A.copy()
        m, w = mk.Variable("m", 1, 6).bind(n), start.bind(v)
        x[:m] = x[:m] * 3
        x[w : w + m] += 1
        rows, head = x[:m] * 1, x.T[:, :m] * 1
        rows[m - 1], head[0] = 7, head[-1] * 2
        a[:n] *= 3
        a[v : v + n] += 1
        wanted, wanted_head = a[:n].copy(), a.T[:, :n].copy()
        wanted[n - 1], wanted_head[0] = 7, wanted_head[-1] * 2
        for got, expected in ((x, a), (rows, wanted), (head, wanted_head)):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)


def test_a_value_wanted_whole_and_in_part() -> None:
    """The part is no reason to compute only that much of the whole."""
    x = Tensor(A)
    for n in (2, 12, 5):
        whole = (x * 2).contiguous()
        part = whole[: N.bind(n)] + 1
        Tensor.realize(part, whole)
        np.testing.assert_array_equal(whole.numpy(), A * 2)
        np.testing.assert_array_equal(part.numpy(), A[:n] * 2 + 1)


def test_gradients_over_symbolic_dims() -> None:
    def grad(n):
        x = Tensor(A, requires_grad=True)
        loss = (x[:n].tanh() * n).square().mean() + x[:n].softmax(0).square().sum()
        loss.backward()
        return loss.item(), x.grad.numpy()

    grad(N.bind(3))
    lowered = engine.stats.lowered
    for n in (1, 4, 12):
        value, found = grad(N.bind(n))
        expected, wanted = grad(n)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    grads = engine.stats.lowered
    grad(N.bind(7))
    assert engine.stats.lowered == grads >= lowered


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n, v: x[:n].pad([(0, 1), (0, 0)]),
        lambda x, n, v: x[: 0 + n] * Tensor.ones(0 + n, 5) * x[:n],
        lambda x, n, v: x[:n][-1],
        lambda x, n, v: x[:n].pad([(v, 8 - v), (0, 0)]).pad([(1, 1), (0, 2)]).exp(),
        lambda x, n, v: x[:n].prod(0),
        lambda x, n, v: x[:n].prod(1),
        lambda x, n, v: x[v : v + 4].max(0) * x[:n].min(1).sum(),
    ],
)
def test_gradients_of_what_is_cut_and_padded(use) -> None:
    for n, v in ((1, 0), (12, 8), (5, 3)):
        grads = []
        for bound in ((n, v), (N.bind(n), V.bind(v))):
            x = Tensor(A, requires_grad=True)
            use(x, *bound).square().sum().backward()
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-3, atol=1e-6)


def test_in_functions() -> None:
    weight = Tensor(B[:5])

    @mk.function
    def layer(x, n):
        return (x @ weight).tanh() * n, x.sum(0)

    x = Tensor(A)
    for n in (2, 7, 12):
        y, s = layer(x[: N.bind(n)] * 1, N.bind(n))
        np.testing.assert_allclose(y.numpy(), np.tanh(A[:n] @ B[:5]) * n, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(s.numpy(), A[:n].sum(0), rtol=1e-4, atol=1e-5)
    lowered = engine.stats.lowered
    Tensor.realize(*layer(x[: N.bind(5)] * 1, N.bind(5)))
    assert engine.stats.lowered == lowered


def test_in_jit_as_an_argument() -> None:
    state = Tensor(np.zeros(5, np.float32))

    @mk.jit
    def step(x, n):
        state.assign(state + x[:n].sum(0))
        return x[:n] * n

    x, expected = Tensor(A), np.zeros(5, np.float32)
    for n in (3, 3, 3, 5, 5, 5, 3, 5, 3, 12):
        expected = expected + A[:n].sum(0)
        np.testing.assert_allclose(step(x, N.bind(n)).numpy(), A[:n] * n, rtol=1e-5)
    np.testing.assert_allclose(state.numpy(), expected, rtol=1e-4)
    assert step.replays >= 3


def test_in_jit_the_same_value_twice() -> None:
    """The second is a copy, of as many bytes as there is room for."""

    @mk.jit
    def twice(x, n):
        return x[:n] * 2, x[:n] * 2

    for n in (5, 5, 5, 5, 2, 12):
        for result in twice(Tensor(A), N.bind(n)):
            np.testing.assert_array_equal(result.numpy(), A[:n] * 2)
    assert twice.replays >= 1


def test_in_a_file(tmp_path: Path) -> None:
    """As large as it is now."""
    mk.nn.safe_save({"head": Tensor(A)[: N.bind(3)]}, tmp_path / "head.safetensors")
    (head,) = mk.nn.safe_load(tmp_path / "head.safetensors").values()
    np.testing.assert_array_equal(head.numpy(), A[:3])


def test_in_jit_bound_inside() -> None:
    numbers = iter(range(1, 20))

    @mk.jit
    def step(x):
        return x * N.bind(next(numbers) % 12 + 1)

    def many() -> None:
        for _ in range(12):
            step(Tensor(A))

    with pytest.raises(JitError, match="other"):
        many()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 8), st.lists(st.integers(0, 6), max_size=5))
def test_chains_of_views(n: int, v: int, steps: list[int]) -> None:
    """Random chains of movement, arithmetic and reductions over a symbolic dim."""
    x, a = Tensor(A)[: N.bind(n)], A[:n]
    m = N.bind(n)
    for step in steps:
        axis = next(i for i, length in enumerate(x.shape) if not isinstance(length, int))
        if step == 0:
            x, a = x.transpose(0, -1), a.swapaxes(0, -1)
        elif step == 1:
            x, a = x.unsqueeze(0), a[None]
        elif step == 2:
            x, a = x * m + V.bind(v), a * n + v
        elif step == 3:
            x, a = x - x.mean(axis, keepdim=True), a - a.mean(axis, keepdims=True)
        elif step == 4:
            x, a = x.flip(axis), np.flip(a, axis)
        elif step == 5:
            x, a = x.contiguous(), a.copy()
        elif x.shape[-1] == 5:
            x, a = (
                x[..., 1:4].pad([None] * (x.ndim - 1) + [(2, 0)]),
                np.pad(a[..., 1:4], [(0, 0)] * (a.ndim - 1) + [(2, 0)]),
            )
    got = (x + 0).numpy()
    assert got.shape == a.shape
    np.testing.assert_allclose(got, a, rtol=1e-3, atol=1e-3)


# What cannot be -----------------------------------------------------------------------------------


def test_values_out_of_bounds() -> None:
    for value in (0, 13, -1):
        with pytest.raises(ArgumentError, match=re.escape(f"'n' lies within 1..12, got {value}")):
            N.bind(value)
    with pytest.raises(ArgumentError, match="takes an int, got float"):
        N.bind(2.5)


def test_bad_bounds_and_names() -> None:
    with pytest.raises(ArgumentError, match=r"'n' is to lie within 5\.\.4"):
        mk.Variable("n", 5, 4)
    for name in ("a b", "", 5):
        with pytest.raises(ArgumentError, match="is no name"):
            mk.Variable(name, 1, 2)
    for bound in (1.5, "a", None):
        with pytest.raises(ArgumentError, match="max of 'n' is an int, got"):
            mk.Variable("n", 1, bound)
    assert mk.Variable("n", np.int64(1), 4) == mk.Variable("n", True, 4) == mk.Variable("n", 1, 4)


def test_two_values_in_one_run() -> None:
    x = Tensor(A)
    with pytest.raises(ArgumentError, match="'n' is bound to 2 and to 3 in one run"):
        (x[: N.bind(2)].sum() + x[: N.bind(3)].sum()).realize()
    with pytest.raises(ArgumentError, match="two variables of one run are called 'n'"):
        (x * N.bind(2) + mk.Variable("n", 0, 3).bind(2)).realize()


def test_a_variable_without_a_value() -> None:
    x = Tensor(A)
    for use in (lambda: x * N, lambda: x[:N], lambda: Tensor.arange(N), lambda: Tensor(N)):
        with pytest.raises(ArgumentError, match=r"(?s)'n' has no value: use its bind.*test_var"):
            use()


def test_slices_that_may_lie_outside() -> None:
    x = Tensor(A)
    with pytest.raises(AxisError, match=r"from 0 to 24 for some values of the variables"):
        x[: N.bind(3) * 2]
    with pytest.raises(AxisError, match=r"along axis 1 of shape \(12, 5\)"):
        x[:, V.bind(2)]
    with pytest.raises(AxisError, match="a step of 1 is needed"):
        x[: N.bind(3) : 2]


def test_what_needs_to_know_the_number() -> None:
    x = Tensor(A)[: N.bind(4)]
    with pytest.raises(ShapeError, match=r"\(n, 5\) to \(-1,\): a symbolic dim is neither split"):
        x.reshape(-1)
    with pytest.raises(ShapeError, match=r"a symbolic dim is neither split nor joined"):
        x.reshape(2, 2, 5)
    with pytest.raises(ShapeError, match="broadcast"):
        x + Tensor(A)[:4]
    with pytest.raises(ShapeError, match="does not work on symbolic dims"):
        x.split(2)
    with pytest.raises(AxisError, match="arrays do not index"):
        x[:, [0, 1]]


def test_a_number_that_does_not_fit() -> None:
    big = mk.Variable("big", 0, 1000)
    with pytest.raises(DTypeError, match=r"within 0..1000 does not fit in Int8"):
        Tensor([1], dtype=mk.dtypes.int8) + big.bind(3)
    with pytest.raises(DTypeError, match=r"arange: a number within 0..1000 does not fit in Int8"):
        Tensor.arange(big.bind(3), 1000, dtype=mk.dtypes.int8)


def test_a_sum_of_sums_is_looked_at_once() -> None:
    """40 times itself plus itself: not 2**40 paths down to the variable."""
    number = mk.Variable("bit", 0, 1).bind(1)
    for _ in range(40):
        number = number + number
    assert Tensor(number, dtype=mk.dtypes.int64).item() == 1 << 40


def test_a_kernel_that_is_run_without_a_value() -> None:
    loop = UOp.range(UOp.define_var("n", 1, 4), 0, renumbered=True)
    out = UOp.param(0, mk.dtypes.float32.ptr(), 4)
    sink = UOp.new_sink(
        out.at(loop).store(UOp.const(mk.dtypes.float32, 1.0), loop), info=KernelInfo("k")
    )
    zeros = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="'n' has no value in this run"):
        engine.run_kernel(sink, [zeros], mk.Device["CPU"])
    (filled,) = engine.run_kernel(sink, [zeros], mk.Device["CPU"], {"n": 3})
    assert filled.tolist() == [1, 1, 1, 0]
