"""Stages 19 to 22: loops, scopes, order, conditions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok._core import toposort
from morok.codegen import (
    add_ifs,
    control_flow,
    decompose,
    final_rewrite,
    linearize,
    run_pipeline,
)
from morok.codegen.branches import branch_around
from morok.dtype import AddrSpace, DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisId, AxisType, KernelInfo, Level, Ops, UOp, interpret_linear, verify
from tests.codegen.compiled import renderer
from tests.codegen.kernels import CASES, run

I32, F32 = dtypes.int32, dtypes.float32


def loop(end: int, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Ops.RANGE, I32, (UOp.const(I32, end),), (AxisId(number, True), kind))


def at(buffer: UOp, index: UOp | int, gate: UOp | None = None) -> UOp:
    position = UOp.const(I32, index) if isinstance(index, int) else index
    src = (buffer, position) if gate is None else (buffer, position, gate)
    return UOp(Ops.INDEX, buffer.dtype.base, src, gate is not None)


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp.param(slot, dtype.ptr(), size)


def reduced(value: UOp, *ranges: UOp, number: int, op: Ops = Ops.ADD) -> UOp:
    """The form that stage 11 gives a REDUCE."""
    reg = UOp(Ops.DEFINE_REG, value.dtype.ptr(AddrSpace.REG), (), (1, number))
    outer = [rng for rng in value.open_ranges if rng not in ranges]
    init = at(reg.after(*outer), 0).store(value.const_like(0.0))
    now = at(reg.after(init, *ranges), 0).load()
    step = at(reg.after(init), 0).store(UOp(op, value.dtype, (now, value)))
    return at(reg.after(step.close(*ranges)), 0).load()


def kernel(*statements: UOp) -> UOp:
    return UOp(Ops.SINK, dtypes.void, statements, KernelInfo("test"))


def lowered(sink: UOp) -> UOp:
    """Stages 19 to 22, verified."""
    target = renderer().capability
    linear = add_ifs(linearize(control_flow(final_rewrite(sink, target))), target)
    verify(linear, Level.LINEAR)
    return linear


def loops(linear: UOp) -> list[tuple[int, int]]:
    """(axis number, depth) of every RANGE, in order."""
    out, depth = [], 0
    for op in linear.src:
        if op.op is Ops.RANGE:
            out.append((op.arg[0].number, depth))
        depth += (op.op is Ops.RANGE) - (op.op is Ops.END)
    return out


def depth_of(linear: UOp, wanted: UOp) -> int:
    depth = 0
    for op in linear.src:
        if op is wanted:
            return depth
        depth += (op.op is Ops.RANGE) - (op.op is Ops.END)
    raise AssertionError(f"{wanted} is not in the LINEAR")


# ---- stage 19 ------------------------------------------------------------------------------------


def test_ranges_of_a_store_become_nested_ends() -> None:
    i, j = loop(4, 0), loop(8, 1)
    out = param(0, 32)
    store = at(out, i * 8 + j).store(1.0)
    sink = final_rewrite(kernel(at(out, i * 8 + j).store(1.0, j, i)), renderer().capability)
    (outer,) = sink.src
    assert outer is store.close(j).close(i)


def test_a_range_that_changes_nothing_is_dropped() -> None:
    i, j = loop(4, 0), loop(8, 1)
    sink = final_rewrite(kernel(at(param(0, 4), i).store(1.0, i, j)), renderer().capability)
    assert not sink.has(Ops.RANGE) or j not in toposort(sink)


def test_vectors_as_the_target_has_them() -> None:
    from dataclasses import replace

    x = param(1, 8)
    pair = UOp.vectorize(at(x, 0).load(), at(x, 1).load())
    four = UOp.cat(pair, pair) + UOp.vconst(F32, (1.0, 2.0, 3.0, 4.0))
    index = UOp(Ops.INDEX, F32.vec(4), (param(0, 4), UOp.const(I32, 0)), False)
    sink = kernel(index.store(four))
    plain = replace(renderer().capability, ops=renderer().capability.ops - {Ops.CAT, Ops.VCONST})
    done = final_rewrite(sink, plain)
    assert not done.has(Ops.CAT)
    assert not done.has(Ops.VCONST)
    assert done.has(Ops.GEP)
    assert final_rewrite(sink, renderer().capability) is sink


# ---- stages 20 and 21 ----------------------------------------------------------------------------


def test_what_a_loop_does_not_change_is_computed_outside() -> None:
    i, j = loop(4, 0), loop(8, 1)
    x = at(param(1, 4), i).load()
    square = x * x
    row = i * 8
    linear = lowered(kernel(at(param(0, 32), row + j).store(square, i, j)))
    assert loops(linear) == [(0, 0), (1, 1)]
    assert depth_of(linear, square) == 1
    assert depth_of(linear, row) == 1
    assert depth_of(linear, row + j) == 2
    assert linear.src[-1].op is Ops.SINK


def test_statements_of_one_range_share_its_loop() -> None:
    i, k = loop(4, 0), loop(8, 1, AxisType.REDUCE)
    x = at(param(2, 32), i * 8 + k).load()
    total, squares = reduced(x, k, number=0), reduced(x * x, k, number=1)
    sink = kernel(at(param(0, 4), i).store(total, i), at(param(1, 4), i).store(squares, i))
    assert loops(lowered(sink)) == [(0, 0), (1, 1)]


def test_a_loop_that_needs_the_others_result_is_another_loop() -> None:
    i, k = loop(4, 0), loop(8, 1, AxisType.REDUCE)
    x = at(param(1, 32), i * 8 + k).load()
    mean = reduced(x, k, number=0) * 0.125
    spread = reduced((x - mean) * (x - mean), k, number=1)
    linear = lowered(kernel(at(param(0, 4), i).store(spread, i)))
    assert loops(linear) == [(0, 0), (1, 1), (2, 1)]
    data = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    got = interpret_linear(linear, [np.zeros(4, np.float32), data])[0]
    rows = data.reshape(4, 8)
    np.testing.assert_allclose(got, ((rows - rows.mean(1, keepdims=True)) ** 2).sum(1), rtol=1e-5)


def test_loops_that_would_need_each_other_are_split() -> None:
    """r1 -> s1 and s2 -> r2: sharing both r and s would be a cycle."""
    r, s = loop(8, 0, AxisType.REDUCE), loop(8, 1, AxisType.REDUCE)
    x = param(2, 8)
    r1 = reduced(at(x, r).load(), r, number=0)
    s1 = reduced(at(x, s).load() * r1, s, number=1)
    s2 = reduced(at(x, s).load() * 2.0, s, number=2)
    r2 = reduced(at(x, r).load() * s2, r, number=3)
    linear = lowered(kernel(at(param(0, 1), 0).store(s1), at(param(1, 1), 0).store(r2)))
    assert len(loops(linear)) == 3
    data = np.arange(8, dtype=np.float32)
    blank = np.zeros(1, np.float32)
    first, second, _ = interpret_linear(linear, [blank, blank, data])
    assert first[0] == 28 * 28
    assert second[0] == 28 * 56


def test_one_range_at_two_depths_is_two_loops() -> None:
    i, k = loop(4, 0), loop(8, 1, AxisType.REDUCE)
    x, y = param(1, 32), param(2, 8)
    inner = reduced(at(x, i * 8 + k).load(), k, number=0)
    outer = reduced(at(y, k).load(), k, number=1)
    linear = lowered(kernel(at(param(0, 4), i).store(inner * outer, i)))
    assert sorted(depth for _, depth in loops(linear)) == [0, 0, 1]


def test_a_reduction_between_two_loops() -> None:
    i, j, k = loop(4, 0), loop(16, 1), loop(8, 2, AxisType.REDUCE)
    total = reduced(at(param(1, 32), i * 8 + k).load(), k, number=0)
    value = total + at(param(2, 16), j).load()
    linear = lowered(kernel(at(param(0, 64), i * 16 + j).store(value, i, j)))
    assert loops(linear) == [(0, 0), (2, 1), (1, 1)]


def test_reads_see_the_old_contents() -> None:
    """a, b = b, a in one loop"""
    i = loop(4, 0)
    a, b = param(0, 4), param(1, 4)
    old_a, old_b = at(a, i).load(), at(b, i).load()
    linear = lowered(kernel(at(a, i).store(old_b, i), at(b, i).store(old_a, i)))
    assert loops(linear) == [(0, 0)]
    got = interpret_linear(linear, [np.arange(4, dtype=np.float32), np.full(4, 7, np.float32)])
    assert got[0].tolist() == [7] * 4
    assert got[1].tolist() == [0, 1, 2, 3]


def test_reads_after_a_store_see_the_new_contents() -> None:
    i = loop(4, 0)
    a, b = param(0, 4), param(1, 4)
    write = at(a, i).store(at(b, i).load())
    again = at(a.after(write), i).load()
    linear = lowered(kernel(at(b, i).store(again + at(a, i).load(), i)))
    got = interpret_linear(linear, [np.full(4, 2, np.float32), np.full(4, 7, np.float32)])
    assert got[0].tolist() == [7] * 4
    assert got[1].tolist() == [9] * 4


def test_a_range_left_open_is_refused() -> None:
    i = loop(4, 0)
    with pytest.raises(InvalidGraphError, match="never closed"):
        linearize(kernel(at(param(0, 4), i).store(1.0)))


def test_definitions_come_first() -> None:
    i = loop(4, 0)
    total = reduced(at(param(1, 4), i).load(), i, number=0)
    linear = lowered(kernel(at(param(0, 1), 0).store(total)))
    kinds = [op.op for op in linear.src[:3]]
    assert kinds == [Ops.PARAM, Ops.PARAM, Ops.DEFINE_REG]
    assert [op.arg[0] for op in linear.src[:2]] == [0, 1]


def test_a_long_chain_needs_no_recursion() -> None:
    i = loop(4, 0)
    value = at(param(1, 4), i).load()
    for _ in range(20000):
        value = value + 1.0
    assert len(lowered(kernel(at(param(0, 4), i).store(value, i))).src) > 20000


def test_many_accumulators_share_one_loop_quickly() -> None:
    k = loop(64, 0, AxisType.REDUCE)
    x = param(0, 64 * 300)
    stores = [
        at(param(slot + 1, 1), 0).store(reduced(at(x, k + 64 * slot).load(), k, number=slot))
        for slot in range(300)
    ]
    assert loops(lowered(kernel(*stores))) == [(0, 0)]


# ---- stage 22 ------------------------------------------------------------------------------------


def test_stores_under_one_condition_share_an_if() -> None:
    i = loop(16, 0)
    gate = i < 10
    x = at(param(2, 16), i).load()
    sink = kernel(
        at(param(0, 16), i, gate).store(x + 1.0, i), at(param(1, 16), i, gate).store(x * 2.0, i)
    )
    linear = lowered(sink)
    ops = [op.op for op in linear.src]
    assert ops.count(Ops.IF) == ops.count(Ops.ENDIF) == 1
    start, end = ops.index(Ops.IF), ops.index(Ops.ENDIF)
    assert ops[start + 1 : end] == [Ops.STORE, Ops.STORE]
    head = linear.src[start]
    assert head.src[0] is gate
    assert head.src[1:] == linear.src[start + 1 : end]
    assert not any(op.src[0].arg for op in linear.src if op.op is Ops.STORE)


def test_other_conditions_are_other_ifs() -> None:
    i = loop(16, 0)
    x = at(param(2, 16), i).load()
    sink = kernel(at(param(0, 16), i, i < 10).store(x, i), at(param(1, 16), i, i < 12).store(x, i))
    assert [op.op for op in lowered(sink).src].count(Ops.IF) == 2


def test_a_read_between_two_stores_ends_the_if() -> None:
    """It may read what the first store wrote."""
    i = loop(16, 0)
    gate = i < 10
    out, other = param(0, 16), param(1, 16)
    first = at(out, i, gate).store(UOp.const(F32, 1.0))
    again = at(out.after(first), i).load()
    sink = kernel(at(other, i, gate).store(again, i))
    linear = lowered(sink)
    got = interpret_linear(linear, [np.zeros(16, np.float32)] * 2)[1]
    assert got.tolist() == [1.0] * 10 + [0.0] * 6


def test_branches_around_rare_arms_keep_the_meaning() -> None:
    """sin of vectors, in one of which a lane is huge"""
    i = loop(2, 0)
    x, out = param(1, 16), param(0, 16)
    read = UOp(Ops.INDEX, F32.vec(8), (x, i * 8), False).load()
    address = UOp(Ops.INDEX, F32.vec(8), (out, i * 8), False)
    sink = decompose(kernel(address.store(read.sin(), i)), renderer().capability)
    ready = control_flow(final_rewrite(sink, renderer().capability))
    linear = linearize(branch_around(ready, renderer().capability))
    verify(linear, Level.LINEAR)
    assert [op.op for op in linear.src].count(Ops.IF) == 1
    data = np.linspace(-3, 3, 16, dtype=np.float32)
    data[11] = 1e20
    got = interpret_linear(linear, [np.zeros(16, np.float32), data])[0]
    np.testing.assert_allclose(got, np.sin(data.astype(np.float64)), rtol=1e-6)


# ---- everything ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_pipeline_keeps_the_meaning(name: str) -> None:
    case = CASES[name]()
    linear = run_pipeline(case.sink, renderer())
    verify(linear, Level.LINEAR)
    wanted = run(case.sink, case.buffers)
    got = interpret_linear(linear, case.buffers)
    for have, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(have, np.float64), np.asarray(want, np.float64), rtol=1e-4, atol=1e-5
        )


@st.composite
def tangles(draw: st.DrawFn) -> tuple[UOp, list[float]]:
    """A kernel of reductions over a few shared ranges that use each other's results at random, and
    the numbers it computes."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    axes = [loop(size, k, AxisType.REDUCE) for k, size in enumerate(sizes)]
    results: list[tuple[UOp, float]] = []
    for number in range(draw(st.integers(2, 7))):
        closed = draw(
            st.lists(st.sampled_from(range(len(axes))), min_size=1, max_size=2, unique=True)
        )
        used = draw(st.lists(st.sampled_from(range(number)), max_size=2)) if number else []
        factor, want = UOp.const(F32, 1.0), 1.0
        for k in used:
            factor, want = factor + results[k][0], want + results[k][1]
        position = sum(range(sizes[closed[0]]))
        value = axes[closed[0]].cast(F32) * factor
        repeat = 1
        for k in closed[1:]:
            value = value + axes[k].cast(F32) * 0.0
            repeat *= sizes[k]
        results.append(
            (
                reduced(value * 0.0625, *(axes[k] for k in closed), number=number),
                position * repeat * want * 0.0625,
            )
        )
    out = param(0, len(results))
    stores = [at(out, slot).store(node) for slot, (node, _) in enumerate(results)]
    return kernel(*stores), [want for _, want in results]


@given(tangles())
def test_tangled_reductions(tangle: tuple[UOp, list[float]]) -> None:
    sink, wanted = tangle
    got = interpret_linear(lowered(sink), [np.zeros(len(wanted), np.float32)])[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


SAME = """
from tests.codegen.kernels import CASES
from tests.codegen.compiled import renderer
from morok.codegen import get_program
for make in CASES.values():
    print(get_program(make().sink, renderer()).src[3].arg)
"""


def test_text_is_the_same_in_every_process() -> None:
    def run_once(seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", SAME],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        )
        return done.stdout

    assert run_once("1") == run_once("2")
