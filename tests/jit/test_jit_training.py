"""Jitted training steps equal lazy ones bit for bit, and leave nothing behind."""

from __future__ import annotations

import gc
import resource

import numpy as np
import pytest

import morok as mk
from morok import nn
from morok._core import memory_stats, node_stats
from morok.nn.state import get_parameters, get_state_dict
from morok.optim import SGD, Adam, AdamW
from morok.tensor import Tensor, all_tensors


class Net:
    """A convolution with batch norm, dropout and a linear layer for 1 x 8 x 8 and 3 classes."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(36, 3)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().max_pool2d(2)
        return self.out(self.drop(x).flatten(1))


class MLP:
    def __init__(self) -> None:
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def __call__(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


def images(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((6, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, 6))
        for _ in range(count)
    ]


def rows(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [tuple(rng.standard_normal((2, 4, 8)).astype(np.float32)) for _ in range(count)]


def make_step(model, optimizer, loss_of, jitted: bool):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return mk.jit(step) if jitted else step


def train(make_model, make_optimizer, loss_of, batches, jitted: bool):
    mk.manual_seed(7)
    model = make_model()
    optimizer = make_optimizer(get_parameters(model))
    step = make_step(model, optimizer, loss_of, jitted)
    losses = [step(Tensor(x), Tensor(y)).item() for x, y in batches]
    state = {name: t.numpy().copy() for name, t in get_state_dict(model).items()}
    grads = [p.grad.numpy().copy() for p in get_parameters(model) if p.grad is not None]
    if jitted:
        assert step.replays >= len(batches) - 3
    return losses, state, grads


def squared(out: Tensor, y: Tensor) -> Tensor:
    return ((out - y) ** 2).mean()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: SGD(p, lr=1e-2),
        lambda p: SGD(p, lr=1e-2, momentum=0.9, weight_decay=1e-3, nesterov=True),
        lambda p: Adam(p, lr=1e-2),
        lambda p: AdamW(p, lr=1e-2),
    ],
    ids=["sgd", "nesterov", "adam", "adamw"],
)
@pytest.mark.parametrize("model", [MLP, Net], ids=["mlp", "net"])
def test_twenty_steps_are_those_of_lazy_execution(model, optimizer) -> None:
    loss = squared if model is MLP else Tensor.cross_entropy
    batches = rows(20) if model is MLP else images(20)
    plain = train(model, optimizer, loss, batches, False)
    jitted = train(model, optimizer, loss, batches, True)
    assert jitted[0] == plain[0]
    assert jitted[1].keys() == plain[1].keys()
    for name, value in plain[1].items():
        assert np.array_equal(jitted[1][name], value), name
    for a, b in zip(jitted[2], plain[2], strict=True):
        assert np.array_equal(a, b)


def test_accumulated_gradients() -> None:
    def run(jitted: bool) -> list[np.ndarray]:
        mk.manual_seed(1)
        model = MLP()
        parameters = get_parameters(model)
        optimizer = SGD(parameters, lr=0.1)

        def add(x, y):
            loss = squared(model(x), y)
            loss.backward()
            Tensor.realize(loss, *(p.grad for p in parameters))  # as at the end of a jitted call
            return loss

        def apply():
            optimizer.step()
            optimizer.zero_grad()

        if jitted:
            add, apply = mk.jit(add), mk.jit(apply)
        out = []
        for i, (x, y) in enumerate(rows(24)):
            out.append(add(Tensor(x), Tensor(y)).numpy())
            if i % 3 == 2:
                out += [p.grad.numpy().copy() for p in parameters]
                apply()
                assert all(p.grad is None for p in parameters)
        out += [p.numpy().copy() for p in parameters]
        if jitted:
            assert add.replays > 12
            assert apply.replays > 4
        return out

    for a, b in zip(run(False), run(True), strict=True):
        assert np.array_equal(a, b)


def test_gradients_held_by_the_user_stay() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)

    @mk.jit
    def step(x):
        weight.grad = None
        (weight * x).sum().backward()

    kept = []
    for i in range(8):
        step(Tensor([float(i), 1.0]))
        kept.append(weight.grad)
    assert [g.tolist() for g in kept] == [[float(i), 1.0] for i in range(8)]
    weight.grad = None
    step(Tensor([9.0, 1.0]))
    assert weight.grad.tolist() == [9.0, 1.0]


def test_the_learning_rate_changes_outside() -> None:
    def run(jitted: bool) -> list[float]:
        mk.manual_seed(1)
        model = MLP()
        optimizer = Adam(get_parameters(model), lr=0.1)
        step = make_step(model, optimizer, squared, jitted)
        losses = []
        for i, (x, y) in enumerate(rows(10)):
            optimizer.lr = 0.1 / (i + 1)
            losses.append(step(Tensor(x), Tensor(y)).item())
        return losses

    assert run(True) == run(False)


def test_training_and_evaluation_take_turns() -> None:
    def run(jitted: bool) -> list[float]:
        mk.manual_seed(3)
        model = Net()
        optimizer = SGD(get_parameters(model), lr=0.05, momentum=0.9)
        step = make_step(model, optimizer, Tensor.cross_entropy, jitted)

        def evaluate(x):
            with mk.no_grad():
                return model(x).softmax(1).sum(0)

        if jitted:
            evaluate = mk.jit(evaluate)
        out = []
        for x, y in images(10):
            out.append(step(Tensor(x), Tensor(y)).item())
            out += evaluate(Tensor(x)).tolist()
        return out

    assert run(True) == run(False)


def test_models_and_optimizers_as_arguments() -> None:
    class Trainer:
        def __init__(self) -> None:
            mk.manual_seed(1)
            self.model = MLP()
            self.optimizer = Adam(get_parameters(self.model), lr=0.01)

        def plain(self, x, y):
            self.optimizer.zero_grad()
            loss = squared(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss

        step = mk.jit(plain)

    a, b = Trainer(), Trainer()
    batches = rows(12)
    expected = [a.plain(Tensor(x), Tensor(y)).item() for x, y in batches]
    assert [b.step(Tensor(x), Tensor(y)).item() for x, y in batches] == expected
    assert Trainer.step.replays >= 9


def test_two_thousand_steps_leave_nothing() -> None:
    mk.manual_seed(0)
    model = MLP()
    optimizer = Adam(get_parameters(model), lr=1e-3)
    step = make_step(model, optimizer, squared, True)
    batches = rows(4)

    def run(steps: int) -> None:
        for i in range(steps):
            x, y = batches[i % 4]
            loss = step(Tensor(x), Tensor(y))
        loss.item()

    def counts() -> tuple[int, int, int]:
        gc.collect()
        return node_stats()["live"], memory_stats()["live_buffers"], len(all_tensors())

    run(100)
    before = counts()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(2000)
    assert counts() == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 2048
    assert step.captures == 1


def test_gradients_accumulated_over_two_calls() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)

    @mk.jit
    def backward(x):
        (weight * x).square().sum().backward()

    for i in range(12):
        backward(Tensor([1.0, float(i)]))
        if i % 2:
            assert weight.grad.tolist() == [4.0, 4.0 * (i * i + (i - 1) ** 2)]
            weight.grad = None
    assert (backward.captures, backward.replays) == (2, 8)


def test_groups_and_arena_of_a_plan() -> None:
    @mk.jit
    def fork(x):
        a, b = (x + 1).sum(), (x * 2).max()
        return a.realize() * b.realize()

    for _ in range(3):
        assert fork(Tensor([1.0, 2.0])).item() == 20
    plan = fork.latest.details.plan
    done = sorted(kernel for group in plan.groups for kernel in group)
    assert done == list(range(len(plan)))
    assert len(plan.groups) < len(plan)
