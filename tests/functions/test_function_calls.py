"""Functions that are traced once and called: values, structure, how often anything is made."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import morok as mk
from morok import engine
from morok.ir import CallInfo, Ops, UOp, interpret_tensor
from morok.tensor import Tensor

RNG = np.random.default_rng(7)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_call_is_a_node_of_one_body() -> None:
    @mk.function
    def scaled(x):
        return x * 2 + 1

    first, second = scaled(Tensor(array(3))), scaled(Tensor(array(3)))
    calls = [t.uop.src[0] for t in (first, second)]
    assert [c.op for c in calls] == [Ops.CALL, Ops.CALL]
    assert calls[0].src[0] is calls[1].src[0]
    assert scaled.traces == 1
    scaled(Tensor(array(4)))
    assert scaled.traces == 2


def test_equal_bodies_are_one_node() -> None:
    def make():
        @mk.function(name="same")
        def f(x):
            return x.exp().sum(0)

        return f

    x = Tensor(array(2, 3))
    assert make()(x).uop is make()(x).uop


def test_a_hundred_calls_are_scheduled_and_compiled_once() -> None:
    weight = Tensor(array(8, 8) / 8)

    @mk.function
    def block(x):
        return (x @ weight).tanh() + x

    x, expected = Tensor(array(4, 8)), None
    mk.clear_caches()
    before = engine.stats.scheduled, engine.stats.lowered
    y, expected = x, x.numpy()
    for _ in range(100):
        y = block(y)
        expected = np.tanh(expected @ weight.numpy()) + expected
    planned = []
    with engine.watch_kernels(lambda plan, _: planned.append(plan)):
        y.realize()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-3)
    assert engine.stats.scheduled - before[0] == 1
    body = len({kernel.sink for kernel in planned[0].kernels})
    assert engine.stats.lowered - before[1] == body
    assert len(planned[0].kernels) == 100 * body
    assert mk.cache_info()["function schedules"].entries == 1


def test_what_lies_between_equal_calls_is_scheduled_once_too() -> None:
    @mk.function
    def norm(x):
        return x / (x * x).sum(1, keepdim=True).sqrt()

    x = Tensor(array(5, 6))
    mk.clear_caches()
    before = engine.stats.scheduled
    y, expected = x, x.numpy()
    for _ in range(30):
        y = norm(y * 3 + 1)
        expected = expected * 3 + 1
        expected = expected / np.sqrt((expected * expected).sum(1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)
    assert engine.stats.scheduled - before <= 3


def test_a_value_wanted_before_and_after_a_call_is_computed_once() -> None:
    @mk.function
    def total(x):
        return x.sum()

    x = Tensor(array(64, 64))
    h = (x @ x).contiguous()
    planned = []
    with engine.watch_kernels(lambda plan, _: planned.append(plan)):
        out = (h + total(h)).numpy()
    n = x.numpy() @ x.numpy()
    np.testing.assert_allclose(out, n + n.sum(), rtol=1e-3)
    assert len(planned[0].kernels) == 3


Pair = namedtuple("Pair", "first second")


def test_nested_structures_go_in_and_come_out() -> None:
    @mk.function
    def swap(pair, *, more, factor=2):
        return {"out": [pair.second * factor, (pair.first,)], "n": 3, "more": Pair(*more)}

    a, b, c = (Tensor(array(2)) for _ in range(3))
    out = swap(Pair(a, b), more=[c, c])
    assert out["out"][1][0] is a
    assert out["n"] == 3
    assert isinstance(out["more"], Pair)
    assert out["more"].second is c
    np.testing.assert_array_equal(out["out"][0].numpy(), b.numpy() * 2)
    out = swap(Pair(a, b), more=[c, a], factor=5)
    np.testing.assert_array_equal(out["out"][0].numpy(), b.numpy() * 5)
    assert swap.traces == 2


def test_scalars_are_structure_and_closed_over_tensors_arguments() -> None:
    weight = Tensor([1.0, 2.0])
    settings = {"power": 2}

    @mk.function
    def f(x):
        return weight * x ** settings["power"]

    x = Tensor([3.0, 4.0])
    assert f(x).tolist() == [9, 32]
    weight.assign([10.0, 20.0])
    assert f(x).tolist() == [90, 320]
    assert f.traces == 1
    settings["power"] = 1
    assert f(x).tolist() == [30, 80]
    weight = Tensor([0.0, 1.0])
    assert f(x).tolist() == [0, 4]
    assert f.traces == 2


class Head:
    scale = Tensor([2.0])

    def __init__(self) -> None:
        self.linear = mk.nn.Linear(3, 2)
        self.after = lambda x: x * self.scale

    @mk.function
    def __call__(self, x):
        return self.after(self.linear(x))


def test_methods_objects_and_class_attributes() -> None:
    x = Tensor(array(4, 3))
    for head in (Head(), Head()):
        w, b = head.linear.weight.numpy(), head.linear.bias.numpy()
        for factor in (2.0, 5.0):
            Head.scale.assign([factor])
            np.testing.assert_allclose(head(x).numpy(), (x.numpy() @ w.T + b) * factor, rtol=1e-5)
    assert Head.__dict__["__call__"].traces == 2  # each has a function of its own in `after`


def test_functions_call_functions() -> None:
    @mk.function
    def inner(x, y):
        return x + y * 2, (x * y).sum()

    @mk.function
    def outer(x):
        a, s = inner(x, x + 1)
        b, _ = inner(a, x)
        return b * s

    x = array(3, 4)
    a, s = x + (x + 1) * 2, (x * (x + 1)).sum()
    tensor = Tensor(x)
    result = outer(tensor)
    body = result.uop.src[0].src[0]
    np.testing.assert_allclose(result.numpy(), (a + x * 2) * s, rtol=1e-5)
    assert outer(tensor * 1).uop.src[0].src[0] is body
    assert inner.traces == 1
    assert outer.traces == 1


def test_the_interpreter_agrees() -> None:
    @mk.function
    def inner(x, y):
        return x + y * 2, (x * y).sum(0)

    @mk.function
    def outer(x):
        a, s = inner(x, x + 1)
        return a * s, a

    x = Tensor(array(3, 4))
    out = outer(x)
    memory = {engine.base_of(x.uop): x.numpy().reshape(-1)}
    for part in out:
        expected = interpret_tensor(part.uop, memory)
        np.testing.assert_allclose(part.numpy(), expected, rtol=1e-5)


def test_the_same_tensor_twice_and_different_ones() -> None:
    @mk.function
    def f(x, y):
        return x - y

    a, b = Tensor([1.0, 2.0]), Tensor([5.0, 5.0])
    assert f(a, a).tolist() == [0, 0]
    assert f(a, b).tolist() == [-4, -3]
    assert f(a + 0, (a + 0) * 1).tolist() == [0, 0]


def test_an_argument_that_is_made_of_another() -> None:
    @mk.function
    def f(x, y):
        return (x + 1) * y

    a = Tensor([1.0, 2.0])
    assert f(a, a + 1).tolist() == [4, 9]
    assert f(a, a + 2).tolist() == [6, 12]
    assert f.traces == 1


def test_views_constants_and_empty_tensors() -> None:
    @mk.function
    def f(x, y, nothing):
        return x + y, nothing.sum(), nothing, Tensor([1.0, 2.0]) + x[0, :2]

    x = Tensor(array(4, 6))
    out = f(x.T[:, 1:], Tensor.ones(6, 1), Tensor.zeros(0, 3))
    n = x.numpy().T[:, 1:]
    np.testing.assert_array_equal(out[0].numpy(), n + 1)
    assert out[1].item() == 0
    assert out[2].shape == (0, 3)
    np.testing.assert_allclose(out[3].numpy(), [1, 2] + n[0, :2])


def test_a_result_that_does_not_depend_on_the_call() -> None:
    @mk.function
    def f(x):
        return Tensor.arange(3), Tensor([1, 2]) + 1

    a, b = f(Tensor([0.0]))
    assert a.tolist() == [0, 1, 2]
    assert b.tolist() == [2, 3]


def test_writes_to_arguments_and_closed_over_tensors() -> None:
    count = Tensor([0.0])

    @mk.function
    def step(x, state):
        before = state * 1
        state += x
        count.assign(count + 1)
        state[0] = 7
        return before + state

    state, expected = Tensor([1.0, 2.0]), np.array([1.0, 2.0])
    late = state * 10
    for i in range(5):
        x = np.array([i, i + 1.0], np.float32)
        before = expected.copy()
        expected = expected + x
        expected[0] = 7
        np.testing.assert_allclose(step(Tensor(x), state).numpy(), before + expected)
    np.testing.assert_allclose(state.numpy(), expected)
    assert count.tolist() == [5]
    assert late.tolist() == [10, 20]
    assert step.traces == 1


def test_writes_to_lent_memory_show_there() -> None:
    @mk.function
    def double(x):
        x *= 2

    memory = np.arange(4, dtype=np.float32)
    tensor = Tensor.from_numpy(memory)
    assert double(tensor) is None
    double(tensor)
    tensor.realize()
    assert memory.tolist() == [0, 4, 8, 12]


def test_random_numbers_are_new_in_every_call() -> None:
    def noisy(x):
        return x + Tensor.rand(4), Tensor.randn(2)

    traced = mk.function(noisy)
    x = Tensor(array(4))
    mk.manual_seed(3)
    expected = [t.numpy() for _ in range(3) for t in noisy(x)]
    mk.manual_seed(3)
    got = [t.numpy() for _ in range(3) for t in traced(x)]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batch_norm_moves_its_statistics() -> None:
    x = array(8, 3, 4, 4)
    plain, called = mk.nn.BatchNorm2d(3), mk.nn.BatchNorm2d(3)
    traced = mk.function(lambda t: called(t))
    for i in range(3):
        a, b = plain(Tensor(x + i)), traced(Tensor(x + i))
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(plain.running_var.numpy(), called.running_var.numpy(), rtol=1e-5)
    np.testing.assert_allclose(plain.running_mean.numpy(), called.running_mean.numpy(), rtol=1e-5)
    mk.nn.evaluate(plain), mk.nn.evaluate(called)
    np.testing.assert_allclose(
        plain(Tensor(x)).numpy(), traced(Tensor(x)).numpy(), rtol=1e-5, atol=1e-5
    )


def test_in_a_jitted_step() -> None:
    weight = Tensor(array(4, 4), requires_grad=True)

    @mk.function
    def layer(x):
        return (x @ weight).sigmoid()

    def step(x):
        weight.grad = None
        loss = layer(layer(layer(x))).square().sum()
        loss.backward()
        with mk.no_grad():
            weight.assign(weight - weight.grad * 0.1)
        return loss

    jitted = mk.jit(step)
    x = array(2, 4)
    start = weight.numpy().copy()
    losses = [step(Tensor(x + i)).item() for i in range(8)]
    with mk.no_grad():
        weight.assign(start)
    assert [jitted(Tensor(x + i)).item() for i in range(8)] == losses
    assert jitted.captures == 1
    assert jitted.replays > 2


def test_annotations() -> None:
    @mk.function(name="f", metadata=["a"], grad_tag="g", precompile=True)
    def f(x):
        return x * 5 - 3

    x = Tensor(array(11))
    mk.clear_caches()
    before = engine.stats.lowered
    y = f(x)
    assert engine.stats.lowered == before + 1
    y.realize()
    assert engine.stats.lowered == before + 1
    assert f(x + 1).uop.src[0].src[0].arg == CallInfo("f", "g", ("a",), True)


def test_the_backward_is_compiled_when_it_is_made() -> None:
    @mk.function(precompile_backward=True)
    def f(x):
        return (x * x).sum()

    x = Tensor(array(7), requires_grad=True)
    y = f(x)
    before = engine.stats.lowered
    (grad,) = y.gradient(x)
    assert engine.stats.lowered > before
    before = engine.stats.lowered
    np.testing.assert_allclose(grad.numpy(), 2 * x.numpy(), rtol=1e-6)
    assert engine.stats.lowered == before


# Bodies by hand -----------------------------------------------------------------------------------


def test_buffers_of_a_body_are_its_own() -> None:
    """LUNIQUE numbers are local: those of two calls, and of the caller, do not meet."""
    device = UOp.new_device("CPU")
    param = UOp.param(0, mk.dtypes.float32, 4, device)
    local = [
        UOp.new_buffer(mk.dtypes.float32, 4, device, UOp(Ops.LUNIQUE, mk.dtypes.void, (), i))
        for i in range(2)
    ]
    kept = [
        buffer.after(UOp(Ops.STORE, mk.dtypes.void, (buffer, param * float(i + 2))))
        for i, buffer in enumerate(local)
    ]
    body = UOp.new_tuple(kept[0] + kept[1], kept[1] * param)
    function = body.function(param, info=CallInfo("by hand"))
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    first = function.call(x.uop)
    second = function.call(first.get_tuple(0))
    assert first.src[0] is second.src[0]
    results = [Tensor._wrap(c.get_tuple(i)) for c in (first, second) for i in range(2)]
    Tensor.realize(*results)
    n = x.numpy()
    for got, expected in zip(results, (5 * n, 3 * n * n, 25 * n, 75 * n * n), strict=True):
        np.testing.assert_allclose(got.numpy(), expected)


# Against plain execution --------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_programs_of_calls_equal_plain_ones(data: st.DataObject) -> None:
    """Random programs over a few functions, each called on values computed by others."""

    def first(x, y):
        return x * y + 1, x.sum(0)

    def second(x):
        return x.T.contiguous().T * 0.5, x.max()

    def third(x, y):
        a, s = traced[0](x, y)
        return a - s, (s * 2).sum()

    plain = [first, second, lambda x, y: (first(x, y)[0] - x.sum(0), (x.sum(0) * 2).sum())]
    traced = [mk.function(f) for f in (first, second, third)]
    start = [RNG.integers(-2, 3, (3, 4)).astype(np.float32) for _ in range(2)]
    values = [Tensor(a) for a in start]
    expected = [Tensor(a) for a in start]
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["first", "second", "third", "add", "flip"]))
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        if kind in ("add", "flip"):
            for pool in (values, expected):
                pool.append(pool[i] + pool[j] if kind == "add" else pool[i].flip(0).clamp(-9, 9))
            continue
        n = ("first", "second", "third").index(kind)
        for pool, functions in ((values, traced), (expected, plain)):
            args = (pool[i],) if n == 1 else (pool[i], pool[j])
            out, part = functions[n](*args)
            pool.append(out + part)
        if data.draw(st.booleans()):
            values[-1].realize()
    Tensor.realize(*values)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
