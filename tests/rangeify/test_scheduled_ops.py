"""Ops whose place is the tensor graph, scheduled, compiled and run."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.ir import Ops, ReduceOp, UOp, interpret_tensor
from tests.rangeify.scheduling import over_params, scheduled

F32 = dtypes.float32


def numbers(graph: UOp) -> dict[UOp, np.ndarray]:
    """Whole numbers for every BUFFER."""
    draw = np.random.default_rng(5)
    found = [node for node in graph.toposort() if node.op is Ops.BUFFER]
    return {node: draw.integers(-9, 9, node.arg).astype(np.float32) for node in found}


def test_a_part_of_a_buffer_is_compiled() -> None:
    """BUFFER_VIEW is read where it lies."""
    buffer = UOp.new_buffer(F32, 16)
    graph = buffer.buffer_view(4, 3) * buffer.buffer_view(4, 12)
    inputs = numbers(graph)
    want = inputs[buffer][3:7] * inputs[buffer][12:16]
    assert np.array_equal(interpret_tensor(graph, inputs), want)
    assert np.array_equal(scheduled(graph, inputs), want)


@pytest.mark.parametrize("op", ReduceOp)
def test_every_reduction_of_a_tensor_is_compiled_as_itself(op: ReduceOp) -> None:
    """MIN is no MAX of negatives: there is one REDUCE, of this op, all the way."""
    x = UOp.new_buffer(F32, 12)
    graph = x.reshape((4, 3)).reduce_axis(op, (1,))
    inputs = numbers(graph)
    rows = inputs[x].reshape(4, 3)
    numpy = {"ADD": np.sum, "MUL": np.prod, "MAX": np.max, "MIN": np.min}[op.name]
    assert np.array_equal(scheduled(graph, inputs), numpy(rows, 1))
    (call,) = over_params(graph, [x]).calls
    assert [node.arg for node in call.src[0].toposort() if node.op is Ops.REDUCE] == [op]


def test_a_precast_rounds_where_it_stands() -> None:
    """float16 computes in float32 and rounds when it is stored; 2048 + 1 is 2048 with a PRECAST."""
    half = dtypes.float16
    a, b = (UOp.new_buffer(half, 4) for _ in range(2))
    inputs = {a: np.full(4, 2048, np.float16), b: np.ones(4, np.float16)}
    for total, want in (((a + b).precast(), 2048), (a + b, 2049)):
        graph = total.cast(F32)
        assert scheduled(graph, inputs).tolist() == [want] * 4
        assert interpret_tensor(graph, inputs).tolist() == [want] * 4
