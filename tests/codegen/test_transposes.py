"""Squares of memory read by columns: rows are loaded and shuffled, and the values are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from morok.codegen import get_program
from morok.codegen.devectorizer import add_loads, devectorize, remove_reduce
from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.dtype import DType, dtypes
from morok.ir import Ops, Renderer, UOp
from tests.codegen import compiled
from tests.codegen.kernels import Builder, Kernel, capability, check, nodes, opted


def transposed(rows: int, columns: int, dtype: DType = dtypes.float32) -> Kernel:
    """out[i, j] = x[j, i]"""
    k = Builder(51)
    i, j = k.loop(rows), k.loop(columns)
    out, x = (k.param(rows * columns, dtype) for _ in range(2))
    return k.kernel(out.at(i * columns + j).store(x.at(j * rows + i), i, j))


def devectorized(kernel: Kernel, opts: str, lanes: int) -> UOp:
    sink = expander(post_opt_symbolic(opted(kernel, opts)), capability(lanes))
    done = devectorize(add_loads(remove_reduce(add_local_buffers(sink))), capability(lanes))
    check(kernel, done)
    return done


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_rows_are_loaded_and_shuffled(lanes: int) -> None:
    kernel = transposed(2 * lanes, 3 * lanes)
    done = devectorized(kernel, f"UPCAST(0, {lanes}); UPCAST(1, {lanes})", lanes)
    loads = nodes(done, Ops.LOAD)
    assert len(loads) == lanes
    assert all(load.dtype.count == lanes for load in loads)
    shuffles = [node for node in nodes(done, Ops.GEP) if len(node.arg) == lanes]
    assert len(shuffles) == lanes * (lanes.bit_length() - 1)


def test_columns_that_are_no_square_stay() -> None:
    done = devectorized(transposed(12, 16), "UPCAST(0, 4); UPCAST(1, 8)", 8)
    assert all(load.dtype.count == 1 for load in nodes(done, Ops.LOAD))


def test_several_squares() -> None:
    done = devectorized(transposed(16, 24), "UPCAST(0, 16); UPCAST(1, 8)", 8)
    assert len(nodes(done, Ops.LOAD)) == 16


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.float16], ids=str
)
@pytest.mark.parametrize(
    ("target", "shuffle"),
    [(compiled.c_renderer, "of_two"), (compiled.llvm_renderer, "shufflevector")],
    ids=["c", "llvm"],
)
def test_compiled(dtype: DType, target: Callable[[], Renderer], shuffle: str) -> None:
    kernel = transposed(32, 64, dtype)
    width = target().capability.max_width(dtype)
    sink = opted(kernel, f"UPCAST(0, {width}); UPCAST(1, {width})")
    program = get_program(sink, target())
    assert shuffle in program.src[3].arg
    (built,) = compiled.build([program])
    got = compiled.launch(built, program, kernel.buffers, {})[0]
    np.testing.assert_array_equal(got.reshape(32, 64), kernel.buffers[1].reshape(64, 32).T)


def halves(count: int, *, both: bool) -> Kernel:
    """out[i] = x[2 * i], or the larger one of that and x[2 * i + 1]"""
    k = Builder(52)
    i = k.loop(count)
    out, x = k.param(count, dtypes.float32), k.param(2 * count, dtypes.float32)
    value = x.at(2 * i)
    return k.kernel(out.at(i).store(value.maximum(x.at(2 * i + 1)) if both else value, i))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("both", [False, True])
def test_every_second_element_is_shuffled_out_of_neighbours(lanes: int, both: bool) -> None:
    done = devectorized(halves(2 * lanes, both=both), f"UPCAST(0, {lanes})", lanes)
    loads = nodes(done, Ops.LOAD)
    assert len(loads) == 2
    assert all(load.dtype.count == lanes for load in loads)
    assert len(nodes(done, Ops.GEP)) == 1 + both


def test_the_last_vector_of_one_half_ends_with_its_last_element() -> None:
    k = Builder(53)
    i = k.loop(8)
    out, x = k.param(8, dtypes.float32), k.param(15, dtypes.float32)
    devectorized(k.kernel(out.at(i).store(x.at(2 * i), i)), "UPCAST(0, 8)", 8)
