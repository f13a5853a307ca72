"""Random kernels: the interpreter's arrays over loops against nested Python loops."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from morok.dtype import cast_value, dtypes
from morok.ir import AxisType, KernelInfo, Ops, ReduceOp, UOp
from morok.ir.interpret import interpret_kernel

I32 = dtypes.int32
SIZES = (3, 2, 4, 2)
DATA = np.array([5, -3, 8, 0, 2, -7, 11], np.int32)
OUT, SOURCE = UOp.param(0, I32.ptr(), 48), UOp.param(1, I32.ptr(), DATA.size)
AXES = [UOp.range(size, number, renumbered=True) for number, size in enumerate(SIZES)]
SUMS = [
    UOp.range(size, number + 4, AxisType.REDUCE, renumbered=True)
    for number, size in enumerate(SIZES)
]
PYTHON = {
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.LT: lambda a, b: a < b,
    Ops.AND: lambda a, b: a and b,
    Ops.FLOORMOD: lambda a, b: a % b,
    Ops.WHERE: lambda c, a, b: a if c else b,
    Ops.CAST: lambda a: a,
}
STEP = {ReduceOp.ADD: sum, ReduceOp.MAX: max, ReduceOp.MIN: min}


def by_loops(node, counters):
    """The value of `node` for one iteration, by recursion and loops."""
    if node.op is Ops.CONST:
        return node.arg
    if node.op is Ops.RANGE:
        return counters[node]
    if node.op is Ops.INDEX:
        if node.arg and not by_loops(node.gate, counters):
            return 0
        return int(DATA[by_loops(node.indices[0], counters)])
    if node.op is Ops.REDUCE:
        spans = [range(axis.end.arg) for axis in node.ranges]
        values = [
            by_loops(node.src[0], counters | dict(zip(node.ranges, point, strict=True)))
            for point in itertools.product(*spans)
        ]
        return cast_value(STEP[node.arg](values), node.dtype)
    value = PYTHON[node.op](*(by_loops(source, counters) for source in node.src))
    return value if node.dtype is dtypes.index else cast_value(value, node.dtype)


axes = st.sampled_from(AXES[:3] + SUMS)


@st.composite
def indices(draw):
    place = draw(axes) * draw(st.integers(1, 3)) + draw(axes) + draw(st.integers(0, 5))
    return place % DATA.size


@st.composite
def gated(draw):
    place = draw(axes) + draw(st.integers(0, 6))
    return SOURCE.at(place, gate=(place < DATA.size) & (draw(axes) < draw(st.integers(0, 4))))


leaves = st.one_of(
    axes.map(lambda axis: axis.cast(I32)),
    st.integers(-9, 9).map(lambda value: UOp.const(I32, value)),
    indices().map(lambda place: SOURCE[place]),
    gated(),
)


def grown(values):
    return st.one_of(
        st.tuples(st.sampled_from([Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN]), values, values).map(
            lambda t: t[1].alu(t[0], t[2])
        ),
        st.tuples(values, values, values).map(lambda t: (t[0] < t[1]).where(t[2], t[0])),
        st.tuples(
            values,
            st.sampled_from(list(STEP)),
            st.lists(st.sampled_from(SUMS), min_size=1, max_size=2, unique=True),
        ).map(lambda t: t[0].reduce(t[1], *t[2])),
    )


@given(st.recursive(leaves, grown, max_leaves=6))
@settings(max_examples=60)
def test_random_kernels(value):
    left_open = [axis for axis in value.open_ranges if axis in SUMS]
    value = value.reduce(ReduceOp.ADD, *left_open) if left_open else value
    i, j, k = AXES[:3]
    place = (i * 2 + j) * 4 + k
    sink = UOp.new_sink(OUT[place].store(value, i, j, k), info=KernelInfo("random"))
    found = interpret_kernel(sink, [np.zeros(48, np.int32), DATA])[0]
    for point in itertools.product(*map(range, SIZES[:3])):
        counters = dict(zip(AXES, point, strict=False))
        assert found[by_loops(place, counters)] == by_loops(value, counters)
