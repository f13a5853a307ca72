"""Functions and the tensors beyond their arguments: found in caches and by properties, lent memory
that arguments share, values that get away."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest

import morok as mk
from morok.errors import FunctionError, InvalidGraphError
from morok.tensor import Tensor


@functools.lru_cache
def table(n: int) -> Tensor:
    return Tensor(np.arange(n, dtype=np.float32))


def test_a_tensor_in_a_cache_is_what_it_is_at_each_call() -> None:
    table.cache_clear()
    f = mk.function(lambda x: x + table(2))
    x = Tensor([1.0, 1.0])
    assert f(x).tolist() == [1, 2]
    table(2).assign([5.0, 6.0])
    late = f(x)
    table(2).assign([7.0, 7.0]).realize()
    assert (late.tolist(), f(x).tolist()) == ([6, 7], [8, 8])
    assert f.traces == 1


def test_a_tensor_put_in_a_closed_over_cache_by_the_first_call() -> None:
    kept: dict[int, Tensor] = {}

    @mk.function
    def f(x):
        n = x.shape[0]
        if n not in kept:
            kept[n] = Tensor(np.arange(n, dtype=np.float32))
        return x + kept[n]

    x = Tensor([1.0, 1.0])
    assert f(x).tolist() == [1, 2]
    kept[2].assign([5.0, 6.0])
    assert f(x).tolist() == [6, 7]
    kept[2] = Tensor([0.0, 0.0])
    assert f(x).tolist() == [1, 1]
    assert f.traces == 1


def test_a_write_to_a_tensor_in_a_cache_happens_at_each_call() -> None:
    table.cache_clear()
    count, before = table(1), table(1) * 1

    @mk.function
    def f(x):
        table(1).assign(table(1) + 1)
        return x * table(1)

    outer = mk.function(lambda x: f(f(x)))
    x = Tensor([2.0])
    assert [f(x).item() for _ in range(3)] == [2, 4, 6]
    assert outer(x).item() == 2 * 4 * 5
    assert (count.item(), before.item()) == (5, 0)


def test_gradients_reach_a_leaf_in_a_cache() -> None:
    table.cache_clear()
    leaf = table(3)
    f = mk.function(lambda x: (x * table(3)).sum())
    x = Tensor([1.0, 2.0, 3.0])
    assert not f(x).requires_grad
    leaf.requires_grad_()
    (f(x) * 2 + f(x + 1)).backward()
    assert leaf.grad.tolist() == [4, 7, 10]


def test_an_error_leaves_tensors_in_caches_as_they_were() -> None:
    table.cache_clear()
    count = table(2)

    @mk.function
    def f(x):
        table(2).assign(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        f(Tensor([3.0, 3.0]))
    assert count.tolist() == [0, 1]


def test_arguments_that_share_lent_memory() -> None:
    def step(x, y):
        x += y
        y *= x
        return x * y

    f = mk.function(step)
    for begins in ((0, 2), (0, 0), (3, 1), (0, 6)):
        memories = [np.arange(12, dtype=np.float32) for _ in range(2)]
        results = []
        for memory, function in zip(memories, (step, f), strict=True):
            x, y = (Tensor.from_numpy(memory[b : b + 6]) for b in begins)
            results.append([t.numpy().copy() for t in (function(x, y), x, y)])
        np.testing.assert_array_equal(*memories)
        np.testing.assert_array_equal(*results)


def test_a_leaf_used_after_it_is_written_is_refused() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)

    @mk.function
    def f(x, detached):
        with mk.no_grad():
            weight.assign(weight - x)
        return (weight.detach() if detached else weight) * x

    x = Tensor([1.0, 1.0])
    with pytest.raises(FunctionError, match=r"computes with a leaf .* after it wrote it"):
        f(x, False)
    assert weight.tolist() == [1, 2]
    assert f(x, True).tolist() == [0, 1]
    with mk.no_grad():
        assert f(x, False).tolist() == [-1, 0]


def test_a_value_that_got_away_has_no_value() -> None:
    kept: list[Tensor] = []

    @mk.function
    def f(x):
        kept.append(x * 2)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        f(Tensor([3.0, 3.0]))
    with pytest.raises(InvalidGraphError, match="made of the arguments of a function"):
        kept[0].numpy()


# Python values and tensors that methods and modules name -----------------------------------------

USERS = """
import morok as mk
scale, weight = 2.0, mk.Tensor([2.0, 3.0])

def scaled(x):
    return x * scale

def weighted(x):
    return x * weight

class Thing:
    power = 2

    def scaled(self, x):
        return self.inner(x)

    def inner(self, x):
        return scaled(x) ** self.power

    def unused(self, x):
        return x * changes_all_the_time

    def __call__(self, x):
        return x * weight

    @staticmethod
    def static(x):
        return x * weight

    @classmethod
    def of_class(cls, x):
        return x * scale ** cls.power

    @property
    def product(self):
        return weight * scale
"""


def users_module() -> ModuleType:
    module = ModuleType("users")
    exec(USERS, vars(module))
    return module


@pytest.mark.parametrize(
    "use",
    [
        lambda users, thing: lambda x: x * users.scale,
        lambda users, thing: lambda x: users.scaled(x),
        lambda users, thing: lambda x: users.weighted(x),
        lambda users, thing: lambda x: thing.scaled(x),
        lambda users, thing: lambda x: thing(x),
        lambda users, thing: lambda x: thing.static(x),
        lambda users, thing: lambda x: users.Thing.of_class(x),
        lambda users, thing: lambda x: users.Thing()(x),
        lambda users, thing: lambda x: thing.product + x,
        lambda users, thing: thing.scaled,
    ],
)
def test_what_methods_and_modules_name_is_what_it_is_now(use) -> None:
    users = users_module()
    plain = use(users, users.Thing())
    f, x = mk.function(plain), Tensor([5.0, 6.0])

    def agree() -> None:
        assert f(x).tolist() == plain(x).tolist()

    agree()
    users.weight.assign([7.0, 9.0])
    agree()
    users.weight = Tensor([1.0, 4.0])
    agree()
    traces = f.traces
    users.changes_all_the_time = 3
    agree()
    assert f.traces == traces <= 2
    users.scale = 3.0
    agree()
    users.Thing.power = 1
    agree()
    users.scaled = lambda x: x + 1
    agree()


# With recordings and variables --------------------------------------------------------------------


def test_jitted_functions_inside_are_traced() -> None:
    total = Tensor([0.0])

    @mk.jit
    def jitted(x):
        total.assign(total + x)
        return x * 2 + 1

    f = mk.function(lambda x: jitted(x) + 1)
    g = mk.function(lambda x: jitted(x) * 3)
    assert [f(Tensor([float(i)])).item() for i in range(4)] == [2, 4, 6, 8]
    assert [jitted(Tensor([float(i)])).item() for i in range(6)] == [1, 3, 5, 7, 9, 11]
    assert [g(Tensor([float(i)])).item() for i in range(4)] == [3, 9, 15, 21]
    again = mk.jit(lambda x: f(x) * g(x))
    assert [again(Tensor([float(i)])).item() for i in range(6)] == [
        (2 * i + 2) * (6 * i + 3) for i in range(6)
    ]
    assert total.item() == 6 + 15 + 6 + 2 * 15


def test_writes_where_a_variable_says() -> None:
    place = mk.Variable("place", 0, 3)

    @mk.function
    def put(state, x, p):
        state[p] = x
        return state.sum()

    state, expected = Tensor([0.0] * 4), [0.0] * 4
    for i in (0, 3, 1, 1, 2):
        expected[i] += i + 1
        assert put(state, expected[i], place.bind(i)).item() == sum(expected)
    assert state.tolist() == expected
