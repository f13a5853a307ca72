"""NEST: sums of sums, alone and as the loop around copies and tiles."""

from __future__ import annotations

import random

import pytest

from morok._core import toposort
from morok.dtype import DType, dtypes
from morok.errors import OptError
from morok.ir import Ops, ReduceOp
from morok.optimizer import Opt, OptOps, parse_opts, replay
from tests.codegen import kernels
from tests.codegen.kernels import Kernel, check, nodes, opted
from tests.optimizer.test_accumulate import lowered, moments, variance


def loops(kernel: Kernel, opts: str) -> list[list[tuple[int, int]]]:
    """(number, end) of the ranges of each REDUCE, inner sums first."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    sums = [node for node in toposort(sink) if node.op is Ops.REDUCE]
    return [[(rng.arg[0].number, rng.vmax + 1) for rng in one.ended_ranges] for one in sums]


def test_parts_are_summed_first() -> None:
    """Axis 2 of 12 becomes 2 of 3 around the new 3 of 4."""
    assert loops(kernels.matmul(5, 8, 12), "NEST(2, 4)") == [[(3, 4)], [(2, 3)]]


def test_parts_have_parts() -> None:
    kernel = kernels.matmul(2, 8, 12)
    assert loops(kernel, "NEST(2, 6); NEST(3, 2)") == [[(4, 2)], [(3, 3)], [(2, 2)]]


def test_other_axes_of_the_sum_go_inside() -> None:
    kernel = kernels.conv(6, 2, 4, 3)
    before = loops(kernel, "")[0]
    first = before[0][0]
    inner, outer = loops(kernel, f"NEST({first}, 3)")
    assert outer == [(first, 2)]
    assert [end for _, end in inner] == [3, *(end for _, end in before[1:])]


def test_all_reductions_over_the_axis_are_nested() -> None:
    found = loops(moments(6, 8), "NEST(1, 3)")
    assert sorted(found) == [[(1, 2)], [(1, 2)], [(2, 3)], [(2, 3)]]


@pytest.mark.parametrize("op", list(ReduceOp))
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int8, dtypes.bool_])
def test_every_reduction(op: ReduceOp, dtype: DType) -> None:
    kernel = kernels.column_reduce(12, 16, op, dtype)
    lowered(kernel, "NEST(1, 4)")
    lowered(kernel, "ACCUMULATE(1, 0); NEST(2, 3); UPCAST(3, 8); UPCAST(0, 8)")


@pytest.mark.parametrize(
    "opts",
    [
        "NEST(2, 4); UPCAST(1, 8)",
        "NEST(2, 4); UPCAST(2, 3); UPCAST(3, 4)",
        "NEST(2, 4); UNROLL(3, 2); UPCAST(0, 2)",
        "TAIL(2, 5); NEST(2, 5); UPCAST(1, 8)",
        "NEST(2, 4); LOCAL(3, 2, 1); UPCAST(5, 8); UPCAST(1, 8)",
        "ACCUMULATE(2, 0, 1); NEST(3, 4); SPLIT(5, 8); LOCAL(5, 2, 7, 6); SWAP(8, 9);"
        " UPCAST(10, 8); UPCAST(6, 8); UPCAST(4, 2)",
        "TAIL(0, 4); ACCUMULATE(3, 0, 2); NEST(4, 3); SPLIT(6, 8); LOCAL(6, 2, 8, 7);"
        " LOCAL(8, 1, 5); UPCAST(7, 8); UPCAST(5, 4)",
        "ACCUMULATE(2, 1, 0); NEST(3, 6); NEST(6, 3); UPCAST(4, 8)",
        "NEST(2, 3); GROUP(3, 3)",
    ],
)
def test_blocks_copies_and_tiles(opts: str) -> None:
    kernel = kernels.matmul(6, 24, 12)
    sink = opted(kernel, opts)
    assert sink.arg.applied_opts == parse_opts(opts)
    lowered(kernel, opts)


def test_sums_that_another_needs() -> None:
    lowered(variance(6, 16), "NEST(1, 3); NEST(2, 2); UPCAST(0, 8)")


def test_random_sizes() -> None:
    rng = random.Random(7)
    for _ in range(12):
        rows, columns = rng.choice((1, 2, 5)), rng.choice((1, 7, 16))
        part, parts = rng.choice((2, 3, 5, 7)), rng.choice((2, 3, 11))
        kernel = kernels.matmul(rows, columns, part * parts)
        axis = max(n.arg[0].number for n in nodes(kernel.sink, Ops.RANGE))
        lowered(kernel, f"NEST({axis}, {part})")


def test_text_and_replay() -> None:
    assert str(Opt(OptOps.NEST, 2, 4)) == "NEST(2, 4)"
    kernel = kernels.matmul(5, 8, 12)
    sink = opted(kernel, "NEST(2, 4)")
    assert replay(kernel.sink, parse_opts("NEST(2, 4)")).src == sink.src


@pytest.mark.parametrize(
    ("opts", "reason"),
    [
        ("NEST(0, 2)", "axis 0 is no reduction"),
        ("NEST(9, 2)", "no axis 9"),
        ("NEST(2, 5)", "5 does not divide the 12 iterations"),
        ("NEST(2, 1)", "changes nothing"),
        ("NEST(2, 12)", "needs two parts"),
        ("UPCAST(2, 4); NEST(2, 3)", "needs two parts"),
        ("UPCAST(2, 3); NEST(2, 2)", "no loop any more"),
        ("GROUP(2, 3); NEST(2, 2)", "no loop any more"),
        ("LOCAL(1, 2); NEST(2, 4)", "is filled inside axis 2"),
    ],
)
def test_what_is_refused(opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(kernels.matmul(8, 16, 12), opts)
