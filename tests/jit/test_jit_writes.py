"""Writes of jitted functions: to arguments and closures, with readers, sharers and lent arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morok as mk
from morok.tensor import Tensor

CALLS = 6


def test_one_argument_given_twice_and_two_arguments() -> None:
    @mk.jit
    def add(a, b):
        a += b
        return a * 10

    for i in range(CALLS):
        a, b = Tensor([1.0, float(i)]), Tensor([2.0, 3.0])
        assert add(a, a).tolist() == [20.0, 20.0 * i]
        assert a.tolist() == [2.0, 2.0 * i]
        assert add(a, b).tolist() == [40.0, 20.0 * i + 30]
        assert b.tolist() == [2.0, 3.0]
    assert add.captures == 2


def test_arguments_that_share_memory_are_written_apart() -> None:
    @mk.jit
    def add(a, b):
        a += b
        return a - b

    for i in range(CALLS):
        a = Tensor([1.0, float(i)])
        a.realize()
        b = a.clone()
        c = a.reshape(2, 1)
        assert add(a, b).tolist() == [1.0, float(i)]
        assert a.tolist() == [2.0, 2.0 * i]
        assert b.tolist() == [1.0, float(i)]
        assert c.tolist() == [[1.0], [float(i)]]


def test_lazy_readers_of_an_argument_see_the_old_value() -> None:
    @mk.jit
    def grow(a):
        a += 1

    a = Tensor([0.0, 10.0])
    for i in range(CALLS):
        before = a * 2
        again = before + a
        view = a.reshape(2, 1)
        grow(a)
        after = a * 2
        assert before.tolist() == [2.0 * i, 2.0 * i + 20]
        assert again.tolist() == [3.0 * i, 3.0 * i + 30]
        assert view.tolist() == [[i], [i + 10]]
        assert after.tolist() == [2.0 * i + 2, 2.0 * i + 22]


def test_lazy_readers_of_a_closure_tensor() -> None:
    state = Tensor([0.0])

    @mk.jit
    def grow(x):
        state.assign(state + x)

    readers = []
    for _ in range(CALLS):
        readers.append(state + 100)
        grow(Tensor([2.0]))
    assert [r.item() for r in readers] == [100 + 2 * i for i in range(CALLS)]
    assert state.item() == 2 * CALLS


def test_arrays_shown_to_the_user_do_not_change() -> None:
    state = Tensor([0.0])

    @mk.jit
    def grow(a):
        a += 1
        state.assign(state + 1)
        return state * 2

    a = Tensor([0.0])
    shown, states, results = [], [], []
    for _ in range(CALLS):
        shown.append(a.numpy())
        states.append(state.numpy())
        results.append(grow(a).numpy())
    assert [s[0] for s in shown] == list(range(CALLS))
    assert [s[0] for s in states] == list(range(CALLS))
    assert [r[0] for r in results] == [2 * i + 2 for i in range(CALLS)]
    memory = np.asarray(a)
    grow(a)
    assert memory[0] == CALLS


def test_writes_to_lent_memory_are_seen_by_its_owner() -> None:
    @mk.jit
    def grow(a, b):
        a += b
        return a + 0

    array = np.zeros(4, np.float32)
    a = Tensor.from_numpy(array)
    for i in range(CALLS):
        assert grow(a, Tensor([1.0] * 4)).tolist() == [i + 1.0] * 4
        assert array.tolist() == [i + 1.0] * 4
    own = Tensor([0.0] * 4)
    for i in range(CALLS):
        grow(own, Tensor([2.0] * 4))
        assert own.tolist() == [2.0 * (i + 1)] * 4
    assert array.tolist() == [CALLS] * 4


def test_lent_memory_is_read_as_it_is_now() -> None:
    array = np.zeros(3, np.float32)
    lent = Tensor.from_numpy(array)

    @mk.jit
    def read(x):
        return lent + x

    for i in range(CALLS):
        array[:] = i
        assert read(Tensor([1.0, 2, 3])).tolist() == [i + 1, i + 2, i + 3]


def test_lent_arguments_that_overlap() -> None:
    @mk.jit
    def shift(a, b):
        a.assign(a + b)
        return b * 1

    array = np.arange(9, dtype=np.int32)
    plain = array.copy()
    a, b = Tensor.from_numpy(array[1:]), Tensor.from_numpy(array[:-1])
    for _ in range(CALLS):
        plain[1:] = plain[1:] + plain[:-1].copy()
        assert shift(a, b).tolist() == plain[:-1].tolist()
        assert array.tolist() == plain.tolist()


def test_a_read_only_array_is_left_alone() -> None:
    @mk.jit
    def grow(a):
        a += 1
        return a * 1

    for i in range(CALLS):
        array = np.full(3, i, np.float32)
        array.flags.writeable = False
        a = Tensor.from_numpy(array)
        assert grow(a).tolist() == [i + 1] * 3
        assert a.tolist() == [i + 1] * 3
        assert array.tolist() == [i] * 3


def test_a_closure_tensor_is_read_as_it_is_now() -> None:
    weight = Tensor([1.0, 2.0])

    @mk.jit
    def scale(x):
        return x * weight

    for i in range(CALLS):
        weight.assign(Tensor([float(i), 1.0]))
        assert scale(Tensor([3.0, 3.0])).tolist() == [3 * i, 3]
    for i in range(CALLS):
        weight += 1
        assert scale(Tensor([1.0, 0.0])).tolist() == [CALLS + i, 0]


def test_swapping_and_rotating() -> None:
    @mk.jit
    def rotate(a, b, c):
        old = a.clone()
        a.assign(b)
        b.assign(c)
        c.assign(old)

    values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    tensors = [Tensor(v) for v in values]
    for _ in range(CALLS):
        rotate(*tensors)
        values = [*values[1:], values[0]]
        assert [t.tolist() for t in tensors] == values


def test_results_that_were_arguments_before_the_write() -> None:
    @mk.jit
    def replace(a):
        old = a.clone()
        a.assign(a * 2)
        return old, old.reshape(2, 1)

    a = Tensor([1.0, 2.0])
    expected = [1.0, 2.0]
    for _ in range(CALLS):
        old, column = replace(a)
        assert old.tolist() == expected
        assert column.tolist() == [[v] for v in expected]
        expected = [2 * v for v in expected]
        assert a.tolist() == expected


def test_values_realised_inside() -> None:
    @mk.jit
    def steps(a):
        b = (a + 1).realize()
        a += b
        a.realize()
        c = (a * b).realize()
        a.assign(c)
        return b, c

    a, plain = Tensor([1.0]), 1.0
    for _ in range(CALLS):
        b, c = steps(a)
        added = plain + 1
        plain = (plain + added) * added
        assert (b.item(), c.item(), a.item()) == (added, np.float32(plain), np.float32(plain))
        a.assign(Tensor([1.0]))
        plain = 1.0


def test_parts_are_written_in_order() -> None:
    @mk.jit
    def write(a, v):
        a[1:3] = v
        a[:2] *= 10
        a[2:] = a[:2]

    plain = np.arange(4.0, dtype=np.float32)
    a = Tensor(plain)
    for i in range(CALLS):
        write(a, Tensor([float(i), 1.0]))
        plain[1:3] = [i, 1]
        plain[:2] *= 10
        plain[2:] = plain[:2]
        assert a.tolist() == plain.tolist()


def test_a_value_made_inside_is_written() -> None:
    @mk.jit
    def count(x):
        total = Tensor([0.0])
        total += x
        total.realize()
        total += x
        return total

    for i in range(CALLS):
        assert count(Tensor([float(i)])).item() == 2 * i


def test_an_assigned_argument_keeps_its_own_memory() -> None:
    store = Tensor([0.0, 0.0])

    @mk.jit
    def keep(x):
        store.assign(x)
        return store + 1

    for i in range(CALLS):
        x = Tensor([float(i), 1.0])
        assert keep(x).tolist() == [i + 1, 2]
        x += 100
        x.realize()
        assert store.tolist() == [i, 1]
    result = keep(store)
    assert result.tolist() == [CALLS, 2]


def test_results_fed_back_and_held() -> None:
    @mk.jit
    def step(x, y):
        return y, x + y

    x, y = Tensor([0.0]), Tensor([1.0])
    a, b = 0.0, 1.0
    kept = []
    for _ in range(12):
        x, y = step(x, y)
        a, b = b, a + b
        kept.append(y)
    assert (x.item(), y.item()) == (a, b)
    assert [k.item() for k in kept] == [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233]


OPS = st.lists(
    st.sampled_from(["add", "assign", "part", "hold", "lazy", "show", "clone", "swap", "call"]),
    min_size=6,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(OPS, st.integers(0, 3))
def test_any_order_of_writes_readers_and_calls(ops, seed) -> None:
    """A jitted function that writes its argument and a closure tensor, between other uses of both;
    the same program on NumPy arrays is the oracle."""
    rng = np.random.default_rng(seed)
    plain = [rng.integers(0, 9, 4).astype(np.int64) for _ in range(2)]
    tensors = [Tensor(p) for p in plain]
    closure, closed = tensors[1], 1

    @mk.jit
    def mix(a):
        a += closure
        closure[1:3] = a[:2]
        return a * 3 - closure

    kept: list[tuple[Tensor, np.ndarray]] = []
    shown: list[tuple[np.ndarray, np.ndarray]] = []
    a = 0
    for op in ["call", "call", *ops, "call"]:
        if op == "add":
            tensors[a] += 1
            plain[a] = plain[a] + 1
        elif op == "assign":
            tensors[a].assign(tensors[closed])
            plain[a] = plain[closed].copy()
        elif op == "part":
            tensors[closed][1:] = tensors[closed][:-1]
            plain[closed][1:] = plain[closed][:-1].copy()
        elif op == "hold":
            kept.append((tensors[a].clone(), plain[a].copy()))
        elif op == "lazy":
            kept.append((tensors[a] * 2 + tensors[closed], plain[a] * 2 + plain[closed]))
        elif op == "show":
            shown.append((tensors[a].numpy(), plain[a].copy()))
        elif op == "clone":
            tensors[a] = tensors[a].clone()
        elif op == "swap" and len(kept) > 0:
            tensors[a] = kept[-1][0].clone()
            plain[a] = kept[-1][1].copy()
        elif op == "call":
            kept.append((mix(tensors[a]), np.zeros(0)))
            plain[a] = plain[a] + plain[closed]
            plain[closed] = plain[closed].copy()
            plain[closed][1:3] = plain[a][:2]
            kept[-1] = kept[-1][0], plain[a] * 3 - plain[closed]
    for tensor, expected in [*kept, *zip(tensors, plain, strict=True)]:
        assert tensor.tolist() == expected.tolist()
    for array, expected in shown:
        assert array.tolist() == expected.tolist()


@pytest.mark.parametrize("held", [False, True])
def test_the_gradient_graph_of_an_argument_survives(held) -> None:
    weight = Tensor([2.0], requires_grad=True)

    @mk.jit
    def read(x):
        return x + 1

    for i in range(CALLS):
        y = weight * float(i)
        if held:
            y.realize()
        assert read(y).item() == 2 * i + 1
        weight.grad = None
        (y * y).sum().backward()
        assert weight.grad.item() == 4 * i * i
