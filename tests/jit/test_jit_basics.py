"""Jitted functions against the same functions run plainly."""

from __future__ import annotations

import numpy as np

import morok as mk
from morok.tensor import Tensor


def test_a_tensor_in_a_list_argument() -> None:
    @mk.jit
    def plus_one(tensors):
        return tensors[0] + 1

    seen = [plus_one([Tensor([float(i)])]).item() for i in range(5)]
    assert seen == [1, 2, 3, 4, 5]
    assert plus_one.captures == 1


def test_feeding_half_of_a_buffer_back() -> None:
    @mk.jit
    def move(buffer):
        half = buffer.shape[0] // 2
        return mk.Tensor.cat(buffer[half:], buffer[half:], dim=0)

    n = 1 << 20
    plain = np.arange(n, dtype=np.int32)
    buffer = Tensor(plain)
    for _ in range(5):
        plain = np.concatenate([plain[n // 2 :], plain[n // 2 :]])
        buffer = move(buffer)
        assert np.array_equal(buffer.numpy(), plain)


def test_a_method_on_two_objects() -> None:
    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        @mk.jit
        def times(self, x):
            return x * self.by

    two, three = Scale(2), Scale(3)
    for _ in range(4):
        assert two.times(Tensor(5)).item() == 10
        assert three.times(Tensor(5)).item() == 15
