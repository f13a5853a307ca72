"""Gradients through calls: the gradient of a CALL is a CALL, made once for each body."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morok as mk
from morok import engine
from morok.ir import Ops
from morok.tensor import Tensor

RNG = np.random.default_rng(11)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def gradients_of(function, arrays):
    """The value of `function` and its gradients with respect to arrays."""
    leaves = [Tensor(a, requires_grad=True) for a in arrays]
    out = function(*leaves)
    out.backward()
    return out.numpy(), [None if x.grad is None else x.grad.numpy() for x in leaves]


def agree(plain, traced, *arrays) -> None:
    expected, wanted = gradients_of(plain, arrays)
    value, grads = gradients_of(traced, arrays)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for got, want in zip(grads, wanted, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_several_values_some_unused() -> None:
    def parts(x, y):
        return x * y, (x + 1).sum(0), y.exp()

    called = mk.function(parts)
    for use in (
        lambda f: lambda x, y: f(x, y)[0].sum(),
        lambda f: lambda x, y: f(x, y)[1].square().sum(),
        lambda f: lambda x, y: (f(x, y)[0] * f(x, y)[2]).sum() + f(x, y)[1].max(),
        lambda f: lambda x, y: f(y, f(x, y)[2])[0].mean(),
    ):
        agree(use(parts), use(called), array(3, 4), array(3, 4))
    assert called.traces == 2  # of leaves, and of a leaf and a computed tensor


def test_the_gradient_of_a_call_is_a_call_of_one_function() -> None:
    weight = Tensor(array(5, 5) / 5, requires_grad=True)

    @mk.function
    def layer(x):
        return (x @ weight).tanh()

    h = Tensor(array(2, 5), requires_grad=True)
    for _ in range(50):
        h = layer(h)
    mk.clear_caches()
    scheduled = engine.stats.scheduled
    h.sum().backward()
    grad = weight.grad
    calls = {u for u in engine.own_nodes(grad.uop) if u.op is Ops.CALL}
    # One for the 49 layers in between, one for the first and the last each at most.
    assert len({call.src[0] for call in calls} - {layer}) <= 4
    grad.realize()
    # Forward, its gradients, and the sums of gradients in between and at the end.
    assert engine.stats.scheduled - scheduled <= 8


@pytest.mark.torch
def test_a_deep_network_against_torch() -> None:
    import torch

    weight, start = array(6, 6) / 3, array(4, 6)
    leaf = Tensor(weight, requires_grad=True)

    @mk.function
    def layer(x):
        return (x @ leaf).relu() + x.sigmoid()

    y = x = Tensor(start, requires_grad=True)
    for _ in range(8):
        y = layer(y)
    y.square().mean().backward()
    w = torch.tensor(weight, requires_grad=True)
    z = t = torch.tensor(start, requires_grad=True)
    for _ in range(8):
        z = (z @ w).relu() + z.sigmoid()
    z.square().mean().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), w.grad.numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_integer_arguments_and_constants() -> None:
    def pick(table, rows, fixed):
        return table[rows].sum() * fixed.sum() + rows.sum()

    called = mk.function(pick)
    rows, fixed = Tensor([1, 1, 0]), Tensor(array(3))
    agree(
        lambda t: pick(t, rows, fixed).square(), lambda t: called(t, rows, fixed).square(), array(4)
    )


def test_flags_are_respected() -> None:
    called = mk.function(lambda x, y: (x * y, x + y))
    x, y = Tensor(array(3), requires_grad=True), Tensor(array(3))
    a, b = called(x, y)
    assert a.requires_grad
    assert b.requires_grad
    (a.sum() + b.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), y.numpy() + 1, rtol=1e-6)
    assert y.grad is None
    with mk.no_grad():
        assert not called(x, y)[0].requires_grad
    assert not called(y, y)[0].requires_grad
    assert called.traces == 3


def test_detached_and_no_grad_inside() -> None:
    def f(x):
        with mk.no_grad():
            scale = x.max()
        return (x / scale).sum() + x.detach().sum()

    agree(f, mk.function(f), np.abs(array(5)) + 1)


def test_nested_functions() -> None:
    inner = mk.function(lambda x, y: (x * y.sigmoid(), x.sum()))

    @mk.function
    def outer(x, y):
        a, s = inner(x, y)
        b, _ = inner(a, x)
        return (b * s).sum()

    def plain(x, y):
        a, s = x * y.sigmoid(), x.sum()
        return (a * x.sigmoid() * s).sum()

    agree(plain, outer, array(3, 2), array(3, 2))


def test_second_derivatives() -> None:
    def cube(x):
        return x * x * x

    called = mk.function(cube)
    x = Tensor(array(4), requires_grad=True)
    (first,) = called(x).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    np.testing.assert_allclose(first.numpy(), 3 * x.numpy() ** 2, rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-5)


def test_gradients_taken_inside() -> None:
    @mk.function
    def step(w, x):
        loss = (x * w).square().sum()
        (grad,) = loss.gradient(w)
        w -= grad * 0.1
        return loss

    w, x = Tensor([1.0, 2.0], requires_grad=True), Tensor([0.5, 0.25])
    expected, n = np.array([1.0, 2.0]), x.numpy()
    with mk.no_grad():
        for _ in range(3):
            with mk.enable_grad():
                loss = (x * w).square().sum()
                (grad,) = loss.gradient(w)
            w -= grad * 0.1
            expected = expected - 0.1 * 2 * n * n * expected
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)


def test_extreme_values_with_memory_of_the_body() -> None:
    """A body that takes constants with it has the slopes of whole functions still."""

    def f(x):
        return (x * Tensor([1.0, 1.0, 1.0])).sigmoid().sum() + x.tanh().sum()

    agree(f, mk.function(f), np.array([-200.0, 0.0, 200.0], np.float32))


def test_dropout_uses_the_same_mask_backwards() -> None:
    layer = mk.nn.Dropout(0.5)
    called = mk.function(lambda x: layer(x * 3))
    x = Tensor(np.ones(64, np.float32), requires_grad=True)
    y = called(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert 0 < np.count_nonzero(y.numpy()) < 64


def test_a_training_with_functions_equals_one_without() -> None:
    data, wanted = array(16, 4), array(16, 2)

    def run(wrap):
        mk.manual_seed(5)
        first, second = mk.nn.Linear(4, 8), mk.nn.Linear(8, 2)
        block = wrap(lambda x: second(first(x).gelu()))
        optimizer = mk.optim.Adam(mk.nn.state.get_parameters([first, second]), lr=0.01)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = (block(Tensor(data)) - Tensor(wanted)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(run(mk.function), run(lambda f: f), rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_gradients_of_programs_of_calls(data: st.DataObject) -> None:
    def first(x, y):
        return x * y + x.square(), (x - y).sum(0)

    def second(x):
        return x.sin() * 0.5, x.mean()

    plans = [
        (data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]

    def program(f, g):
        def run(x, y):
            values = [x, y]
            for kind, i, j in plans:
                a, b = values[i % len(values)], values[j % len(values)]
                out, part = f(a, b) if kind == 0 else g(a)
                values.append(out + part)
            return values[-1].mean() + values[len(values) // 2].sum()

        return run

    arrays = [RNG.integers(-2, 3, (2, 3)).astype(np.float32) / 2 for _ in range(2)]
    agree(program(first, second), program(mk.function(first), mk.function(second)), *arrays)
