"""Values and the process they live in: forks while others compute, memory that comes back."""

from __future__ import annotations

import gc
import os
import signal
import threading

import numpy as np

from morok._core.memory import memory_stats
from morok.tensor import Tensor


def test_children_forked_while_another_thread_realises() -> None:
    """A lock the other thread holds at that moment would never come free in the child."""
    done = threading.Event()

    def busy() -> None:
        length = 3
        while not done.is_set():
            length += 1
            (Tensor(np.arange(length)) + length).numpy()

    other = threading.Thread(target=busy)
    other.start()
    codes = []
    try:
        for n in range(4):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                right = (Tensor(np.arange(n + 1000)) * 2).sum().item() == (n + 1000) * (n + 999)
                os._exit(0 if right else 1)
            codes.append(os.waitpid(child, 0)[1])
    finally:
        done.set()
        other.join()
    assert codes == [0] * 4


def test_values_of_constants_give_their_memory_back() -> None:
    """The schedule cache remembers graphs; it must not keep what was computed from them."""
    gc.collect()
    before = memory_stats()["live_bytes"]
    for n in range(4):
        (Tensor.ones(1000, 1000 + n) * 2 + n).realize()
    gc.collect()
    assert memory_stats()["live_bytes"] - before < 4_000_000
