"""Random numbers in jitted functions: they advance, differ, repeat after reseeding, and are those
of plain execution."""

from __future__ import annotations

import numpy as np
import pytest

import morok as mk
from morok.tensor import Tensor

CALLS = 6


def sample(x):
    return x + Tensor.rand(3), Tensor.randn(2, 2).sum(), x.dropout(0.5, training=True)


def run(function, seed: int) -> list[list[float]]:
    mk.manual_seed(seed)
    out = []
    for i in range(CALLS):
        results = function(Tensor([1.0, 2.0, float(i)]))
        out.append(np.concatenate([r.numpy().reshape(-1) for r in results]).tolist())
        out.append(Tensor.rand(2).tolist())
    return out


def test_random_numbers_are_those_of_plain_execution() -> None:
    jitted = mk.jit(sample)
    plain = run(sample, 5)
    assert run(jitted, 5) == plain
    assert run(jitted, 5) == plain
    assert jitted.captures == 1
    assert jitted.replays == 2 * CALLS - 2
    assert run(jitted, 6) != plain
    rows = [tuple(row) for row in plain]
    assert len(set(rows)) == len(rows)


def test_draws_outside_come_between() -> None:
    jitted = mk.jit(sample)
    mk.manual_seed(1)
    first = [jitted(Tensor([0.0, 0, 0]))[0].tolist() for _ in range(5)]
    mk.manual_seed(1)
    second = []
    for _ in range(5):
        second.append(jitted(Tensor([0.0, 0, 0]))[0].tolist())
        Tensor.rand(7)
    assert first[0] == second[0]
    assert first[1:] != second[1:]


@pytest.mark.parametrize("jitted", [False, True])
def test_lazy_random_tensors_in_the_other_order(jitted) -> None:
    def both(swap):
        a, b = Tensor.rand(4), Tensor.rand(4)
        if swap:
            b.realize()
        a.realize()
        return a, b

    function = mk.jit(both) if jitted else both
    for _ in range(4):
        mk.manual_seed(3)
        one = [t.tolist() for t in function(False)]
        mk.manual_seed(3)
        other = [t.tolist() for t in function(True)]
        assert one == other


def test_a_seed_set_inside() -> None:
    def seeded(x):
        before = Tensor.rand(2)
        mk.manual_seed(11)
        return before, x + Tensor.rand(2)

    function = mk.jit(seeded)
    mk.manual_seed(2)
    plain = [[t.tolist() for t in seeded(Tensor([1.0, 1]))] for _ in range(CALLS)]
    mk.manual_seed(2)
    assert [[t.tolist() for t in function(Tensor([1.0, 1]))] for _ in range(CALLS)] == plain
    assert function.replays == CALLS - 2
    assert mk.initial_seed() == 11


def test_random_tensors_of_the_closure_are_fixed() -> None:
    noise = Tensor.rand(3)

    @mk.jit
    def add(x):
        return x + noise

    seen = {tuple(add(Tensor([0.0, 0, 0])).tolist()) for _ in range(CALLS)}
    assert seen == {tuple(noise.tolist())}


def test_large_draws_wrap_as_plain_ones() -> None:
    from morok.tensor import generator

    jitted = mk.jit(lambda x: x + Tensor.rand(4))
    for _ in range(3):
        jitted(Tensor([0.0] * 4))
    for function in (jitted, jitted.__wrapped__):
        generator.restore((9, (1 << 64) - 2))
        function(Tensor([0.0] * 4)).realize()
        assert generator.state() == (9, 2)
