"""Explicit UNROLL and CONTRACT nodes, PTRCAT, WMMA and BARRIER: what they become, and what is
refused. That it is right on real data is in `tests/ir/test_every_op.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from morok.codegen.expansion import (
    lower_barriers,
    lower_tiles,
    lower_unrolls,
    ungroup_addresses,
)
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp, interpret_kernel
from tests.codegen.compiled import run_sink
from tests.codegen.kernels import capability
from tests.ir.op_kernels import tile_product, tiles

F32 = dtypes.float32
FOUR = UOp.vconst(F32, (1.0, 2.0, 3.0, 4.0))
OUT, X = (UOp.param(slot, F32.ptr(), 16) for slot in (0, 1))


def sink(*statements: UOp) -> UOp:
    return UOp.new_sink(*statements, info=KernelInfo("k"))


def vector(buffer: UOp, start: UOp | int, lanes: int) -> UOp:
    return UOp(Ops.INDEX, F32.vec(lanes), buffer.at(start).src, False)


def both(root: UOp, *arrays: np.ndarray) -> np.ndarray:
    """The first buffer after a kernel, interpreted and compiled, which must agree."""
    want = interpret_kernel(root, list(arrays))[0]
    got = run_sink(root, list(arrays))[0]
    assert np.array_equal(got, want)
    return got


def test_axes_are_collected_in_the_order_of_the_contract() -> None:
    """Two axes of two, unrolled one in the other, collected the other way round."""
    value = FOUR.unroll(((0, 2), (1, 2))).contract(((1, 2), (0, 2)))
    out = both(sink(vector(OUT, 0, 4).store(value)), np.zeros(16, np.float32))
    assert out[:4].tolist() == [1, 3, 2, 4]


def test_one_axis_of_two_is_collected() -> None:
    """The other one stays, and the statement is there once for each of its versions."""
    value = (FOUR.unroll(((0, 2), (1, 2))) * 10.0).contract(((1, 2),))
    place = UOp.vconst(dtypes.index, (0, 8)).unroll(((0, 2),))
    lowered = lower_unrolls(sink(vector(OUT, place, 2).store(value)))
    assert sum(node.op is Ops.STORE for node in lowered.toposort()) == 2
    out = both(sink(vector(OUT, place, 2).store(value)), np.zeros(16, np.float32))
    assert out[:2].tolist() == [10, 20]
    assert out[8:10].tolist() == [30, 40]


def test_an_axis_that_a_value_does_not_have_is_repeated() -> None:
    value = UOp.const(F32, 7.0).contract(((3, 4),))
    out = both(sink(vector(OUT, 0, 4).store(value)), np.zeros(16, np.float32))
    assert out[:4].tolist() == [7] * 4


def test_versions_of_vectors_are_joined() -> None:
    """UNROLL of eight lanes to four versions of two; CONTRACT joins them again."""
    wide = UOp.cat(FOUR, FOUR + 4.0)
    value = (wide.unroll(((0, 4),)) * 2.0).contract(((0, 4),))
    assert value.dtype is F32.vec(8)
    out = both(sink(vector(OUT, 0, 8).store(value)), np.zeros(16, np.float32))
    assert out[:8].tolist() == [2, 4, 6, 8, 10, 12, 14, 16]


def test_loops_and_reductions_of_unrolled_values() -> None:
    """out[4i + v] = sum over k of x[4k + v], in four versions v, for two i."""
    i = UOp.range(2, 0, AxisType.LOOP, renumbered=True)
    k = UOp.range(4, 1, AxisType.REDUCE, renumbered=True)
    v = UOp.vconst(dtypes.index, (0, 1, 2, 3)).unroll(((5, 4),))
    total = X.at(k * 4 + v).reduce(ReduceOp.ADD, k)
    root = sink(OUT.at(i * 4 + v).store(total).close(i))
    x = np.arange(16, dtype=np.float32)
    out = both(root, np.zeros(16, np.float32), x)
    assert np.array_equal(out[:8], np.tile(x.reshape(4, 4).sum(0), 2))


def test_what_cannot_be_unrolled_is_refused() -> None:
    lanes = FOUR.unroll(((0, 4),))
    with pytest.raises(InvalidGraphError, match="UNROLL spreads through, got CUSTOM_I"):
        lower_unrolls(sink(OUT.at(0).store(UOp.custom_i("{0}", F32, lanes))))
    two = UOp.vconst(F32, (1.0, 2.0)).unroll(((0, 2),))
    with pytest.raises(InvalidGraphError, match="ADD: expected one factor for axis 0, got 4 and 2"):
        lower_unrolls(sink(OUT.at(0).store(lanes + two)))
    with pytest.raises(InvalidGraphError, match="CONTRACT: expected factor 4 of axis 0"):
        lower_unrolls(sink(vector(OUT, 0, 2).store(lanes.contract(((0, 2),)))))
    again = UOp.vectorize(lanes, lanes).unroll(((0, 2),))
    with pytest.raises(InvalidGraphError, match="not unrolled below"):
        lower_unrolls(sink(OUT.at(0).store(again)))


def test_a_target_with_the_op_keeps_it() -> None:
    target = capability()
    for case in (tile_product(), tiles()):
        dot = next(node for node in case.root.toposort() if node.op is Ops.WMMA)
        core = replace(target, tensor_cores=(dot.arg,))
        assert lower_tiles(case.root, core, whole=True) is case.root
        assert not lower_tiles(case.root, target, whole=True).has(Ops.WMMA)
    waiting = sink(OUT.barrier(OUT.at(0).store(1.0)).at(1).store(2.0))
    assert not lower_barriers(waiting, target).has(Ops.BARRIER)


def test_addresses_become_accesses_of_their_own() -> None:
    group = UOp.ptrcat(vector(X, 4, 2), X.at(9), X.at(1, gate=UOp.const(dtypes.bool_, True)))
    stored = ungroup_addresses(sink(vector(OUT, 0, 4).store(group.load(FOUR))))
    loads = [node for node in stored.toposort() if node.op is Ops.LOAD]
    assert sorted(len(load.src) for load in loads) == [2, 2, 3]
    assert not stored.has(Ops.PTRCAT)


def test_a_gated_address_has_its_lane_of_the_alternative() -> None:
    gate = UOp.range(4, 0, AxisType.LOOP, renumbered=True)
    group = UOp.ptrcat(X.at(gate), X.at(gate + 4, gate=gate < 2))
    target = vector(OUT, gate * 2, 2)
    root = sink(target.store(group.load(UOp.vconst(F32, (-1.0, -2.0))), gate))
    x = np.arange(16, dtype=np.float32)
    out = both(root, np.zeros(16, np.float32), x)
    assert out[:8].tolist() == [0, 4, 1, 5, 2, -2, 3, -2]
