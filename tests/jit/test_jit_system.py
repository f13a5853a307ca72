"""Jitted functions in a process: threads, forks, tools, and what they hold on to."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import morok as mk
from morok import engine
from morok._core import memory_stats
from morok.tensor import Tensor


def test_two_threads_replay_one_function() -> None:
    weight = Tensor(np.arange(64.0, dtype=np.float32).reshape(8, 8))

    @mk.jit
    def apply(x):
        y = (x @ weight).realize()
        return (y @ weight).sum(1), y

    expected = {}
    for i in range(8):
        x = np.full((8, 8), i, np.float32)
        y = x @ np.arange(64.0, dtype=np.float32).reshape(8, 8)
        expected[i] = [t.tolist() for t in apply.__wrapped__(Tensor(x))]
        assert np.allclose(expected[i][1], y)
    for i in range(3):
        apply(Tensor(np.full((8, 8), i, np.float32)))

    def work(i: int) -> bool:
        x = Tensor(np.full((8, 8), i, np.float32))
        return all([t.tolist() for t in apply(x)] == expected[i] for _ in range(150))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(8)))
    assert apply.replays >= 8 * 150


def test_writes_of_threads_are_not_lost() -> None:
    total = Tensor([0.0])

    @mk.jit
    def add(x):
        total.assign(total + x)

    one = Tensor([1.0])
    for _ in range(3):
        add(one)
    threads = [threading.Thread(target=lambda: [add(one) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.item() == 803


def test_threads_record_at_once() -> None:
    weight = Tensor([2.0, 3.0])

    def work(i: int) -> bool:
        function = mk.jit(lambda x: x * weight + i)
        x = Tensor([1.0, float(i)])
        return all(function(x).tolist() == [2.0 + i, 4.0 * i] for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))
    assert weight.tolist() == [2.0, 3.0]


def test_threads_record_one_function_that_writes() -> None:
    for _ in range(5):
        total = Tensor([0.0])

        @mk.jit
        def add(x, total=total):
            total.assign(total + 1)
            return x * 2 + 0 * total

        def work(i: int, add=add) -> bool:
            return all(add(Tensor([float(i)])).item() == 2 * i for _ in range(30))

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
        assert total.item() == 120


def test_draws_of_two_threads_differ() -> None:
    draw = mk.jit(lambda x: x + Tensor.rand(2))
    zero = Tensor([0.0, 0.0])
    for _ in range(3):
        draw(zero)

    def work(_: int) -> list[tuple[float, ...]]:
        return [tuple(draw(zero).tolist()) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        seen = [value for values in pool.map(work, range(4)) for value in values]
    assert len(set(seen)) == len(seen)


def test_replay_in_the_child_of_a_fork() -> None:
    state = Tensor([0.0])

    @mk.jit
    def step(x):
        state.assign(state + x)
        return state * 2 + Tensor.rand(1) * 0

    for _ in range(4):
        step(Tensor([1.0]))
    pid = os.fork()
    if pid == 0:
        ok = [step(Tensor([1.0])).item() for _ in range(3)] == [10.0, 12.0, 14.0]
        fresh = mk.jit(lambda x: x + state)
        ok = ok and [fresh(Tensor([1.0])).item() for _ in range(4)] == [8.0] * 4
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert step(Tensor([1.0])).item() == 10


def test_a_dropped_function_drops_its_memory() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor(np.ones((256, 256), np.float32))

    def build():
        model = Model()

        @mk.jit
        def apply(x):
            return x @ model.weight

        for _ in range(4):
            apply(Tensor(np.ones((256, 256), np.float32)))
        return weakref.ref(model), weakref.ref(apply)

    build()
    gc.collect()
    before = memory_stats()["live_buffers"]
    refs = build()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert memory_stats()["live_buffers"] == before


def test_arguments_are_not_kept_alive() -> None:
    double = mk.jit(lambda x: x * 2)
    for _ in range(4):
        x = Tensor([1.0])
        double(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_kernels_of_a_replay_are_watched() -> None:
    @mk.jit
    def two(x):
        return (x + 1).realize().sum()

    x = Tensor(np.ones(100, np.float32))
    for _ in range(3):
        two(x)
    seen: list[tuple[list[str], int]] = []
    with engine.watch_kernels(
        lambda planned, ns: seen.append(([k.name for k in planned.kernels], len(ns)))
    ):
        assert two(x).item() == 200
    assert len(seen) == 1
    assert len(seen[0][0]) == seen[0][1] == 2


def test_debug_output_of_a_replay(capsys: pytest.CaptureFixture[str]) -> None:
    two = mk.jit(lambda x: x + 1)
    x = Tensor([1.0])
    for _ in range(3):
        two(x)
    capsys.readouterr()
    with mk.config.override(debug=2):
        two(x)
    assert "1 kernels in" in capsys.readouterr().err


def test_large_arenas_go_back_to_the_pool() -> None:
    @mk.jit
    def wide(x):
        return (x + 1).contiguous().sum(0).realize() * 2

    x = Tensor(np.ones((512, 512), np.float32))
    for _ in range(4):
        wide(x).realize()
    before = memory_stats()["live_bytes"]
    wide(x).realize()
    assert memory_stats()["live_bytes"] <= before


def test_a_frozen_parameter_is_recorded_anew() -> None:
    a = Tensor([1.0], requires_grad=True)
    b = Tensor([2.0], requires_grad=True)

    @mk.jit
    def step(x):
        a.grad = b.grad = None
        (a * b * x).sum().backward()

    for _ in range(4):
        step(Tensor([3.0]))
        assert (a.grad.item(), b.grad.item()) == (6.0, 3.0)
    b.requires_grad_(False)
    for _ in range(4):
        step(Tensor([3.0]))
        assert a.grad.item() == 6.0
        assert b.grad is None


def test_gradients_that_change_places() -> None:
    a = Tensor([1.0], requires_grad=True)
    b = Tensor([2.0], requires_grad=True)

    @mk.jit
    def swap(x):
        old = a.grad
        a.grad = b.grad
        b.grad = old
        a.grad = a.grad * x
        return old

    a.grad, b.grad = Tensor([10.0]), Tensor([20.0])
    x, y = 10.0, 20.0
    kept = []
    for _ in range(8):
        kept.append((swap(Tensor([2.0])), x))
        x, y = 2 * y, x
        assert (a.grad.item(), b.grad.item()) == (x, y)
    assert [t.item() for t, _ in kept] == [v for _, v in kept]


def test_a_gradient_of_another_dtype_is_recorded_anew() -> None:
    a = Tensor([1.0], requires_grad=True)

    @mk.jit
    def read(x):
        return a.grad + x

    for dtype in (mk.dtypes.float32, mk.dtypes.float64):
        a.grad = Tensor([5.0], dtype=dtype)
        for i in range(4):
            out = read(Tensor([float(i)]))
            assert out.item() == 5 + i
            assert out.dtype is dtype


def test_tensors_of_the_closure_that_take_turns() -> None:
    class Pair:
        weight = Tensor([0.0])

    pair, weights = Pair(), [Tensor([1.0]), Tensor([2.0])]

    @mk.jit
    def add(x):
        return x + pair.weight

    for i in range(12):
        pair.weight = weights[i % 2]
        assert add(Tensor([10.0])).item() == 11 + i % 2
    assert add.captures == 2
    assert add.replays == 8
