"""Movement ops as index arithmetic, in every combination, against NumPy at every position."""

from __future__ import annotations

import itertools
import random
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench._views import DEPTH, MOVEMENT, Step, chain
from morok.dtype import dtypes
from morok.ir import GroupOp, Ops, UOp, graph_rewrite
from morok.ir.interpret import interpret_tensor
from morok.rangeify import apply_movement, movement_op_patterns, pm_syntactic_sugar
from morok.tensor.loops import counters, tabulated

SHAPES = [(6,), (2, 3), (4, 1, 3), (3, 5), (2, 2, 5), (1, 7, 1), (2, 3, 1, 2), (11,), (3, 1, 4)]
OPS = tuple(MOVEMENT)


def steps_of(ops: tuple[Ops, ...], rng: random.Random) -> list[Step]:
    """Arguments for all of these ops one after another."""
    while True:
        steps = chain(rng, rng.choice(SHAPES), list(ops))
        if len(steps) == len(ops):
            return steps


def check(steps: list[Step]) -> None:
    """Read one by one, through rules and through `apply_movement`, the elements are NumPy's; what
    is read outside is 0. No element of the memory is 0."""
    shape = steps[0][0]
    data = np.arange(1, prod(shape) + 1, dtype=np.int32)
    memory = UOp(Ops.PARAM, dtypes.int32, (UOp.new_device(),), (0, data.size))
    value = UOp(Ops.RESHAPE, dtypes.int32, (memory, UOp.shape_const(shape))), data.reshape(shape)
    for _, apply in steps:
        value = apply(value)
    moved, want = value
    loops = counters(want.shape)
    by_rules = graph_rewrite(moved.at(*loops), movement_op_patterns() + pm_syntactic_sugar)
    assert by_rules.op is Ops.INDEX
    assert by_rules.src[0] is memory
    node, index, valid = moved, tuple(loops), None
    while node is not memory:
        index, valid = apply_movement(node, index, valid)
        node = node.src[0]
    for read in (by_rules, memory.at(*index, gate=valid)):
        got = interpret_tensor(tabulated(read, loops), {memory: data})
        np.testing.assert_array_equal(got, want)
    if not moved.has(Ops.PAD):
        assert by_rules.gate is None
    place = tuple(int(n) // 2 for n in want.shape)
    one = graph_rewrite(moved.at(*place), movement_op_patterns() + pm_syntactic_sugar)
    assert interpret_tensor(one, {memory: data}) == want[place]


@pytest.mark.parametrize("second", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("first", OPS, ids=lambda op: op.name)
def test_every_pair(first: Ops, second: Ops) -> None:
    rng = random.Random(f"{first} {second}")
    for _ in range(6):
        check(steps_of((first, second), rng))


@pytest.mark.parametrize("last", OPS, ids=lambda op: op.name)
def test_every_triple(last: Ops) -> None:
    rng = random.Random(f"{last}")
    for first, second in itertools.product(OPS, OPS):
        for _ in range(3):
            check(steps_of((first, second, last), rng))


@given(
    st.lists(st.sampled_from(OPS), min_size=1, max_size=DEPTH),
    st.sampled_from(SHAPES),
    st.integers(0, 1 << 32),
)
def test_chains(ops: list[Ops], shape: tuple[int, ...], seed: int) -> None:
    steps = chain(random.Random(seed), shape, ops)
    if steps:
        check(steps)


def test_all_movement_ops_are_here() -> None:
    assert set(OPS) == set(GroupOp.Movement)
