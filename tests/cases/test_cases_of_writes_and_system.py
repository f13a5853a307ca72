"""Small cases that went wrong in systems of this kind: writes, depth and width, threads and
forks.

Each write runs lazily, realised after every operation, and as the third call of a jitted function;
with caches that are cold and that are warm. Elsewhere: batch norm's statistics in
`tests/nn/test_modules.py`; half of a buffer fed back, a tensor in a list, a method on two objects,
changed Python values in `tests/jit/test_jit_basics.py`; random numbers
in `tests/jit/test_jit_random.py` and `tests/e2e/test_program_order.py`; a chain of 5,000 operations
with its gradient in `tests/tensor/test_tensor_gradient.py`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morok as mk
from morok import config
from morok.tensor import Tensor
from tests.cases.ways import lazily, stepwise, third_call

Array = np.ndarray[Any, Any]
Program = Callable[[Any, Any], list[Any]]


@pytest.fixture
def n(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The size, with nothing in memory nor on the disk, or with what there is."""
    size, caches = request.param
    if caches == "warm":
        yield size
        return
    mk.clear_caches()
    with config.override(cache_dir=tmp_path):
        yield size


# 12 ----------------------------------------------------------------------------------------------


def turned(a: Any, b: Any) -> list[Any]:
    a[...] = a.T
    return [a]


def mirrored(a: Any, b: Any) -> list[Any]:
    a[...] = a[::-1]
    b[...] = b[:, ::-1]
    b[...] = b[::-1, ::-1]
    return [a, b]


def each_from_the_other(a: Any, b: Any) -> list[Any]:
    old = a + 0
    a[...] = b.T
    b[...] = old[::-1]
    return [a, b]


# 13 ----------------------------------------------------------------------------------------------


def read_before_and_after(a: Any, b: Any) -> list[Any]:
    before = a + 1
    a[...] = a * 10
    after = before + a
    return [before, a, after]


def disjoint_parts(a: Any, b: Any) -> list[Any]:
    a[: len(a) // 2] = b[: len(a) // 2] + 1
    between = a * 2
    a[len(a) // 2 :] = a[: len(a) - len(a) // 2]
    return [a, between]


def exactly_once(a: Any, b: Any) -> list[Any]:
    a[:3] *= 10
    first = a + 0
    a[1:] -= a[:-1]
    return [a, first, a + b]


# 14 ----------------------------------------------------------------------------------------------


def arrays_around_a_slice(a: Any, b: Any) -> list[Any]:
    t = a.reshape(len(a), 1, -1) + b.reshape(len(b), -1, 1)
    i, j = np.array([2, 0, 1, 0]), np.array([0, 2, 1, 2])
    t[i, :, j] = b[:1, :1] + np.arange(12, dtype=np.int32).reshape(4, 3)[:, :1]
    return [t]


def index_arrays_of_two_dims(a: Any, b: Any) -> list[Any]:
    a[np.array([[0, 2], [2, 0]]), np.array([[1, 0], [0, 2]])] = b[:2, :2]
    return [a]


def the_last_write_wins(a: Any, b: Any) -> list[Any]:
    i = np.array([1, 0, 1, 2, 1])
    a[i] = np.arange(5, dtype=np.int32)[:, None] * (b[:1] * 0 + 1)
    b[i, i] = np.arange(5, dtype=np.int32)
    return [a, b]


PROGRAMS: list[Program] = [
    turned,
    mirrored,
    each_from_the_other,
    read_before_and_after,
    disjoint_parts,
    exactly_once,
    arrays_around_a_slice,
    index_arrays_of_two_dims,
    the_last_write_wins,
]


@pytest.mark.parametrize("n", [(3, "cold"), (3, "warm"), (64, "warm")], indirect=True)
@pytest.mark.parametrize("way", [lazily, stepwise, third_call])
@pytest.mark.parametrize("program", PROGRAMS)
def test_cases_12_to_14(program: Program, way: Callable[..., Any], n: int) -> None:
    """NumPy is the oracle: it copies operands that overlap what is written."""
    a = np.arange(n * n, dtype=np.int32).reshape(n, n)
    b = (a * 7 % 31).astype(np.int32)
    wanted = program(a.copy(), b.copy())
    for got, want in zip(way(program, a, b), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


# 33 ----------------------------------------------------------------------------------------------


def test_case_33_a_stack_of_6131() -> None:
    limit = sys.getrecursionlimit()
    images = np.arange(6131 * 28 * 28, dtype=np.int32).reshape(6131, 28, 28) % 251
    stacked = Tensor.stack([Tensor(image) for image in images])
    assert stacked.shape == images.shape
    np.testing.assert_array_equal(stacked.numpy(), images)
    assert sys.getrecursionlimit() == limit


# 36 ----------------------------------------------------------------------------------------------


def test_case_36_threads() -> None:
    """Eight threads, the same and different graphs 200 times in all: the results are those of one
    thread."""
    data = np.arange(60, dtype=np.float32).reshape(6, 10)
    shared = Tensor(data).realize()
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for step in range(25):
                same = (shared * 2).sum(0)
                other = (shared[number % 6 :] + number).max(1)
                own = shared + 0
                own[number % 6] = step
                expected = data.copy()
                expected[number % 6] = step
                if not (
                    np.array_equal(same.numpy(), (data * 2).sum(0))
                    and np.array_equal(other.numpy(), (data[number % 6 :] + number).max(1))
                    and np.array_equal(own.numpy(), expected)
                ):
                    wrong.append((number, step))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    np.testing.assert_array_equal(shared.numpy(), data)


# 37 ----------------------------------------------------------------------------------------------


def test_case_37_fork() -> None:
    """Realise, fork two workers, realise in them and here, join: within ten seconds."""
    shared = Tensor(np.arange(6, dtype=np.float32)).realize()
    assert (shared + 1).sum().item() == 21
    began = time.monotonic()
    workers = []
    for number in range(2):
        worker = os.fork()
        if worker == 0:
            code = 1
            try:
                again = (shared + 1).sum().item() == 21
                fresh = (shared * (number + 2)).tolist() == [i * (number + 2) for i in range(6)]
                shared[number] = 100.0
                written = shared.sum().item() == 15 - number + 100
                code = 0 if again and fresh and written else 2
            finally:
                os._exit(code)
        workers.append(worker)
    assert (shared * 5).tolist() == [0, 5, 10, 15, 20, 25]
    codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    assert codes == [0, 0]
    assert time.monotonic() - began < 10
    assert shared.tolist() == [0, 1, 2, 3, 4, 5]
