"""Kernels on several threads, seen from tensors: same bits, from any thread, after a fork, and no
memory that grows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import morok as mk
from morok import config
from morok.engine.report import watch_kernels
from morok.runtime import memory_stats, pool_stats

N = 512
_RANDOM = np.random.default_rng(0)
A, B = (_RANDOM.standard_normal((N, N), dtype=np.float32) for _ in range(2))


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    config.set(threads=3)
    try:
        yield
    finally:
        config.reload()


def tensors() -> tuple[mk.Tensor, mk.Tensor]:
    """New ones: what was computed from others is not found again."""
    return mk.Tensor(A.copy()), mk.Tensor(B.copy())


PROGRAMS: dict[str, Callable[[mk.Tensor, mk.Tensor], mk.Tensor]] = {
    "product": lambda a, b: a @ b,
    "product with a tail": lambda a, b: a[:500, :500] @ b[:500, :500],
    "transposed products": lambda a, b: a.T @ b + a @ b.T,
    "softmax": lambda a, b: (a * b).softmax(-1),
    "column sums": lambda a, b: (a * b).reshape(16, -1).sum(0),
    "row maxima": lambda a, b: (a - b).max(1),
    "chain": lambda a, b: (a * 1.5 + b).relu() * a,
    "transposed": lambda a, b: (a.T + b).contiguous(),
    "windows": lambda a, b: a.reshape(4, 4, 128, 128).conv2d(b[:8, :36].reshape(8, 4, 3, 3)),
    "everything": lambda a, b: (a * b).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    results = []
    extents: list[int] = []
    for threads in (1, 2, 5):
        with (
            config.override(threads=threads),
            watch_kernels(lambda plan, _: extents.extend(k.extent for k in plan.kernels)),
        ):
            results.append(PROGRAMS[name](*tensors()).numpy())
    assert max(extents) > 1 or name == "everything", "nothing was shared out"
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_eight_threads_realise_two_hundred_times() -> None:
    a, b = (t.realize() for t in tensors())
    scales = [mk.Tensor(np.full(1, k, np.float32)).realize() for k in range(8)]
    wanted = [(A * k + B).sum(1, dtype=np.float64) for k in range(8)]
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(200):
                rows = (a * (scales[k] + mk.Tensor(np.zeros(1, np.float32))) + b).sum(1)
                np.testing.assert_allclose(rows.numpy(), wanted[k], rtol=1e-4, atol=1e-3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool_stats()["workers"] >= 2


def test_a_fork_after_use_computes_the_same() -> None:
    a, b = tensors()
    wanted = (a @ b).numpy()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                x, y = tensors()
                same = (x @ y).numpy().tobytes() == wanted.tobytes()
                os._exit(0 if same and pool_stats()["workers"] == 2 else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert (mk.Tensor(A.copy()) @ b).numpy().tobytes() == wanted.tobytes()


def test_memory_does_not_grow_over_many_runs() -> None:
    @mk.jit
    def step(a: mk.Tensor, b: mk.Tensor) -> mk.Tensor:
        return ((a @ b).softmax(-1) * a).sum(0).realize()

    a, b = (t.realize() for t in tensors())
    for _ in range(5):
        step(a, b)
    before = memory_stats()["live_bytes"], pool_stats()["scratch_bytes"]
    for _ in range(60):
        step(a, b)
    assert (memory_stats()["live_bytes"], pool_stats()["scratch_bytes"]) == before
