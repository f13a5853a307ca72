"""Loops of sums that a condition leaves out have no iterations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from morok.codegen import get_program
from morok.dtype import dtypes
from morok.ir import Ops, ReduceOp, UOp
from tests.codegen import kernels
from tests.codegen.compiled import build, launch, renderer
from tests.codegen.kernels import Builder, Kernel, opted


def lowered(kernel: Kernel, opts: str = "") -> tuple[UOp, ...]:
    """The LINEAR of the kernel; it is run and checked."""
    expected = kernels.run(kernel.sink, kernel.buffers)
    sink = opted(kernel, opts)
    program = get_program(sink, renderer())
    (compiled,) = build([program])
    got = launch(compiled, program, kernel.buffers, {})
    for ours, right in zip(got, expected, strict=True):
        assert np.allclose(ours, right, rtol=1e-5, atol=1e-6)
    return program.src[2].src


def skipped(kernel: Kernel, opts: str = "") -> int:
    """How many loops of the kernel may be skipped."""
    return sum(
        op.op is Ops.RANGE and op.src[0].op is Ops.WHERE and op.src[0].dtype.count == 1
        for op in lowered(kernel, opts)
    )


def asked(kernel: Kernel, opts: str = "") -> int:
    """How often it is asked which of two values to take."""
    return sum(
        op.op is Ops.WHERE and op.dtype.scalar is dtypes.float32 for op in lowered(kernel, opts)
    )


def test_a_sum_that_is_left_out_has_no_iterations() -> None:
    assert skipped(kernels.folded(6, 3, 4, 8)) == 1


def test_sums_side_by_side_share_the_question() -> None:
    lanes_of_weights = "LOCAL(2, 2, 3, 0); UPCAST(1, 4); UPCAST(0, 8)"
    assert skipped(kernels.folded(6, 3, 4, 8), lanes_of_weights) == 1


def test_a_sum_that_differs_by_lane_is_computed() -> None:
    assert skipped(kernels.folded(6, 3, 4, 8), "UPCAST(1, 8)") == 0


def test_a_sum_that_something_else_needs_is_computed() -> None:
    k = Builder(2)
    i, j = k.loop(6), k.red(5)
    out, x = k.param(6), k.param(30)
    total = x.at(i * 5 + j).reduce(ReduceOp.ADD, j)
    kernel = k.kernel(out.at(i).store((i < 3).where(total, 0.0) + total, i))
    assert skipped(kernel) == 0


def test_conditions_on_data_are_asked_afterwards() -> None:
    k = Builder(2)
    i, j = k.loop(6), k.red(5)
    out, x, limit = k.param(6), k.param(30), k.param(6)
    total = x.at(i * 5 + j).reduce(ReduceOp.ADD, j)
    kernel = k.kernel(out.at(i).store((limit.at(i) < 0.5).where(total, 0.0), i))
    assert skipped(kernel) == 0


def test_a_sum_outside_the_loop_that_asks_is_computed_once() -> None:
    k = Builder(2)
    i, m, j = k.loop(6), k.loop(7), k.red(5)
    out, x = k.param(42), k.param(30)
    total = x.at(i * 5 + j).reduce(ReduceOp.ADD, j)
    kernel = k.kernel(out.at(i * 7 + m).store((m < 3).where(total, 0.0), i, m))
    assert skipped(kernel) == 0
    assert skipped(kernel, "TAIL(1, 4)") == 0


def taps(inside: Callable[[UOp, UOp], UOp], op: ReduceOp = ReduceOp.ADD) -> Kernel:
    """A sum over taps r of those sums over c that `inside` of the place and the tap keeps; stored
    backwards, so that places are no lanes."""
    k = Builder(5)
    i, r, c = k.loop(12), k.red(3), k.red(7)
    out, x = k.param(12), k.param(12 * 7 * 3)
    total = x.at((i * 7 + c) * 3 + r).reduce(op, c)
    left_out = UOp.const(dtypes.float32, op.identity(dtypes.float32))
    value = inside(i, r).where(total, left_out).reduce(op, r)
    return k.kernel(out.at(11 + -i).store(value, i))


def test_a_sum_of_sums_goes_on_in_one_register() -> None:
    """Nothing is asked: where the loop has no iteration the sum is what it was"""
    kernel = taps(lambda i, r: (i + r >= 2) & (i + r < 10))
    assert skipped(kernel) == 1
    assert asked(kernel) == 0
    stored = [op for op in lowered(kernel) if op.op is Ops.STORE]
    assert not any(op.op is Ops.ADD and op.dtype is dtypes.float32 for op in stored)
    largest = taps(lambda i, r: i + r >= 2, ReduceOp.MAX)
    assert skipped(largest) == 1
    assert asked(largest) == 0


def test_of_rows_side_by_side_those_are_asked_whose_condition_says_more() -> None:
    """Rows 0 … 3 of a tile: r < 2 says when the loop runs; for row 0 it must not be 0 as well"""
    kernel = taps(lambda i, r: (r < 2) & (i + r >= 1))
    assert asked(kernel, "UPCAST(0, 4)") == 1
    assert skipped(kernel, "UPCAST(0, 4)") == 1


def test_conditions_of_which_none_follows_from_another_are_all_asked() -> None:
    kernel = taps(lambda i, r: (i + r) % 2 < 1)
    assert skipped(kernel, "UPCAST(0, 2)") == 1
    assert asked(kernel, "UPCAST(0, 2)") == 2


def test_lanes_that_a_condition_leaves_out_are_asked_when_the_rest_of_it_holds() -> None:
    """y + r >= 2 says whether the loop runs, x + r >= 2 which of its lanes count"""
    k = Builder(6)
    y, x, r, c = k.loop(6), k.loop(8), k.red(3), k.red(7)
    out, values = k.param(48), k.param(6 * 7 * 3 * 8)
    total = values.at(((y * 7 + c) * 3 + r) * 8 + x).reduce(ReduceOp.ADD, c)
    inside = (y + r >= 2) & (x + r >= 2)
    kept = inside.where(total, 0.0).reduce(ReduceOp.ADD, r)
    kernel = k.kernel(out.at(y * 8 + x).store(kept, y, x))
    assert skipped(kernel, "UPCAST(1, 8)") == 1
    assert asked(kernel, "UPCAST(1, 8)") == 1


@pytest.mark.parametrize("op", [ReduceOp.ADD, ReduceOp.MAX])
def test_sums_that_are_left_out_of_sums_that_are_left_out(op: ReduceOp) -> None:
    """What an inner loop is asked for counts the loop around it, which is asked for itself"""
    k = Builder(7)
    i, r, s, c = k.loop(9), k.red(3), k.red(4), k.red(5)
    out, x = k.param(9), k.param(9 * 5 * 3 * 4)
    left_out = UOp.const(dtypes.float32, op.identity(dtypes.float32))
    total = x.at(((i * 5 + c) * 3 + r) * 4 + s).reduce(op, c)
    for condition, rng in ((i + r + s >= 4) & (s < 3), s), (i + r >= 2, r):
        total = condition.where(total, left_out).reduce(op, rng)
    value = ((i >= 1) & (i < 7)).where(total, left_out)
    kernel = k.kernel(out.at(8 + -i).store(value, i))
    assert skipped(kernel) == 3
    assert skipped(kernel, "UPCAST(0, 3)") >= 1
