"""Loops of sums that a condition leaves out have no iterations."""

from __future__ import annotations

import numpy as np

from morok.codegen import get_program
from morok.ir import Ops, ReduceOp
from tests.codegen import kernels
from tests.codegen.compiled import build, launch, renderer
from tests.codegen.kernels import Builder, Kernel, opted


def skipped(kernel: Kernel, opts: str = "") -> int:
    """How many loops of the kernel may be skipped; it is run and checked."""
    expected = kernels.run(kernel.sink, kernel.buffers)
    sink = opted(kernel, opts)
    program = get_program(sink, renderer())
    (compiled,) = build([program])
    got = launch(compiled, program, kernel.buffers, {})
    for ours, right in zip(got, expected, strict=True):
        assert np.allclose(ours, right, rtol=1e-5, atol=1e-6)
    linear = program.src[2]
    return sum(op.op is Ops.RANGE and op.src[0].op is Ops.WHERE for op in linear.src)


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
