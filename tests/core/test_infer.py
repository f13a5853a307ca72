"""What nodes know about themselves: dtype, shape, open ranges, device."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok import _core
from morok.dtype import DType, dtypes
from morok.errors import DTypeError, ShapeError
from morok.ir import (
    OPS,
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    DeviceSpec,
    Invalid,
    Ops,
    ReduceOp,
    UOp,
)

F32 = dtypes.float32
X = dtypes.index


def tensor(*shape: int) -> UOp:
    """A float32 value of any shape."""
    return UOp.new_buffer(F32, int(np.prod(shape, dtype=int))).reshape(shape)


def array(shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, np.float32)


# ---- shapes --------------------------------------------------------------------------------------

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(shapes, st.data())
def test_movements_have_the_shapes_of_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    x, a = tensor(*shape), array(shape)
    assert x.shape == shape
    axes = data.draw(st.permutations(range(len(shape))))
    assert x.permute(axes).shape == a.transpose(axes).shape
    pads = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in shape]
    padded = x.pad([p[0] for p in pads], [p[1] for p in pads])
    assert padded.shape == (np.pad(a, pads).shape if shape else ())
    cuts = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in shape]
    shrunk = x.shrink([c[0] for c in cuts], [c[1] for c in cuts])
    assert shrunk.shape == a[tuple(slice(*c) for c in cuts)].shape
    assert x.flip([data.draw(st.booleans()) for _ in shape]).shape == shape
    wide = tuple(data.draw(st.integers(0, 3)) if n == 1 else n for n in shape)
    assert x.expand(wide).shape == np.broadcast_to(a, wide).shape
    chosen = data.draw(st.sets(st.sampled_from(range(len(shape)))) if shape else st.just(set()))
    reduced = x.reduce_axis(ReduceOp.ADD, sorted(chosen))
    assert reduced.shape == a.sum(axis=tuple(chosen)).shape


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3, 4), (6, 4)),
        ((6, 4), (24,)),
        ((1,), ()),
        ((), (1, 1)),
        ((0, 3), (0,)),
        ((0, 3), (7, 0, 2)),
        ((5, 0), (0, 5)),
    ],
)
def test_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    assert tensor(*old).reshape(new).shape == array(old).reshape(new).shape == new


@pytest.mark.parametrize("op", [Ops.ADD, Ops.LT, Ops.MAX])
def test_elementwise(op: Ops) -> None:
    x, scalar = tensor(3, 2), UOp.const(F32, 1.0)
    assert x.alu(op, tensor(3, 2)).shape == (3, 2)
    assert x.alu(op, scalar).shape == scalar.alu(op, x).shape == (3, 2)
    assert scalar.alu(op, scalar).shape == ()
    empty = tensor(0, 2)
    assert empty.alu(op, scalar).shape == (0, 2)
    assert UOp.const(dtypes.bool_, True).where(x, scalar).shape == (3, 2)
    for other in (tensor(2, 3), tensor(3), tensor(1, 2), empty):
        with pytest.raises(ShapeError, match=rf"{op.name}.src: expected sources of one shape"):
            x.alu(op, other)


def test_memory() -> None:
    buffer = UOp.new_buffer(F32, 12)
    assert buffer.shape == (12,)
    assert UOp.param(2, F32, 7).shape == (7,)
    assert buffer.buffer_view(5, 3).shape == (5,)
    assert UOp.new_buffer(F32, 0).shape == (0,)
    i, j = UOp.range(3, 0), UOp.range(4, 1)
    cube = tensor(3, 4, 5)
    assert cube.at(i).shape == (4, 5)
    assert cube.at(i, j).shape == (5,)
    assert cube.at(i, j, i).shape == ()
    assert cube.at(i, j, i, gate=i.eq(0)).shape == ()
    assert cube.at(i, gate=i.eq(0)).shape == (4, 5)
    local = UOp.define_local(F32, 16, 0)
    assert local.shape is None
    assert local.at(i).shape == ()
    value = (i + j).cast(F32)
    assert value.shape == ()
    assert value.bufferize(i, j).shape == (3, 4)
    assert value.bufferize(i, UOp.const(X, 0), j).shape == (3, 1, 4)
    assert value.bufferize().shape == ()
    n = UOp.define_var("n", 1, 8)
    assert value.bufferize(UOp.range(n, 2)).shape == (n,)


def test_what_is_no_value_has_no_shape() -> None:
    i = UOp.range(3, 0)
    store = UOp.new_buffer(F32, 3).at(i).store(1.0, i)
    shapeless = (store, UOp.new_sink(store), UOp.shape_const((2, 3)), UOp.new_device("CPU"))
    assert [node.shape for node in shapeless] == [None] * 4
    assert UOp.const(X, 3).shape == UOp.invalid().shape == ()


Fails = Callable[[UOp], object]
FAILURES: list[tuple[str, Fails]] = [
    (
        r"RESHAPE.new_shape: .* 6 elements, as \(2, 3\) has, got \(4, 2\) of 8",
        lambda x: x.reshape((4, 2)),
    ),
    (r"RESHAPE.new_shape: .*a constant, got nothing", lambda x: UOp(Ops.RESHAPE, F32, (x,))),
    (
        r"RESHAPE.new_shape: .*a constant, got BUFFER",
        lambda x: UOp(Ops.RESHAPE, F32, (x, x.src[0])),
    ),
    (r"RESHAPE.new_shape: .*got \(-2, -3\)", lambda x: move(Ops.RESHAPE, x, (-2, -3))),
    (r"RESHAPE.new_shape: .*got \(2\.0, 3\)", lambda x: move(Ops.RESHAPE, x, (2.0, 3))),
    (
        r"EXPAND.new_shape: expected a shape of rank 2, .*got \(2, 3, 1\)",
        lambda x: x.expand((2, 3, 1)),
    ),
    (r"EXPAND.new_shape: expected size 3 on axis 1.*got \(2, 4\)", lambda x: x.expand((2, 4))),
    (r"EXPAND.new_shape: expected size 3 on axis 1.*got \(2, 0\)", lambda x: x.expand((2, 0))),
    (r"PERMUTE.axes: .*2 axes of \(2, 3\), got \(0, 0\)", lambda x: x.permute((0, 0))),
    (r"PERMUTE.axes: .*got \(0, 1, 2\)", lambda x: x.permute((0, 1, 2))),
    (r"FLIP.axes: expected one flag .*got \(True,\)", lambda x: x.flip((True,))),
    (
        r"PAD.begin_pads, end_pads: expected two pads .*got \(1,\) and \(0, 0\)",
        lambda x: x.pad((1,), (0, 0)),
    ),
    (r"PAD.begin_pads: .*non-negative.*got \(-1, 0\)", lambda x: move(Ops.PAD, x, (-1, 0), (0, 0))),
    (
        r"SHRINK.begins, ends: .*on axis 1 of \(2, 3\), got .*to \(2, 4\)",
        lambda x: x.shrink((0, 0), (2, 4)),
    ),
    (r"SHRINK.begins, ends: .*on axis 0", lambda x: x.shrink((2, 0), (1, 3))),
    (
        r"REDUCE_AXIS.axes: expected axes of \(2, 3\), got \(2,\)",
        lambda x: x.reduce_axis(ADD, (2,)),
    ),
    (
        r"INDEX.indices: expected at most 2 indices.*got 3 indices",
        lambda x: x.at(*[UOp.range(2, 0)] * 3),
    ),
]
ADD = ReduceOp.ADD


def move(op: Ops, x: UOp, *sizes: tuple[object, ...]) -> UOp:
    """A movement built without the checks of its builder."""
    return UOp(op, F32, (x, *(UOp(Ops.CONST, X, (), size) for size in sizes)))


@pytest.mark.parametrize(("message", "build"), FAILURES, ids=[f[0][:24] for f in FAILURES])
def test_sizes_that_do_not_fit(message: str, build: Fails) -> None:
    with pytest.raises(ShapeError, match=message):
        build(tensor(2, 3))


# ---- dtypes --------------------------------------------------------------------------------------


def test_inferred_dtypes() -> None:
    f, i = UOp.const(F32, 1.0), UOp.const(dtypes.int8, 1)
    f4, yes = UOp.vectorize(f, f, f, f), UOp.const(dtypes.bool_, True)
    pointer = UOp.param(0, F32.ptr(), 4)
    cases: list[tuple[Ops, tuple[UOp, ...], DType]] = [
        (Ops.ADD, (i, i), dtypes.int8),
        (Ops.SQRT, (f4,), F32.vec(4)),
        (Ops.LT, (f, f), dtypes.bool_),
        (Ops.EQ, (f4, f4), dtypes.bool_.vec(4)),
        (Ops.WHERE, (yes, f, f), F32),
        (Ops.VECTORIZE, (i,) * 16, dtypes.int8.vec(16)),
        (Ops.VECTORIZE, (i,) * 40, dtypes.int8.vec(40)),
        (Ops.INDEX, (pointer, UOp.const(X, 0)), F32),
        (Ops.STORE, (pointer, f), dtypes.void),
        (Ops.SINK, (), dtypes.void),
    ]
    for op, src, dtype in cases:
        assert _core.build(op, src).dtype is dtype
        assert _core.build(op, list(src)) is _core.build(op, src)


@pytest.mark.parametrize(
    ("op", "message"),
    [(Ops.CAST, "CAST: expected a dtype"), (Ops.ADD, "ADD: expected the sources .*got 0")],
)
def test_dtypes_that_do_not_follow(op: Ops, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        _core.build(op, ())


def test_devices() -> None:
    one, two = UOp.new_device("CPU"), UOp.new_device("CPU:1")
    a = UOp(Ops.BUFFER, F32, (UOp.new_unique(), one), 4)
    b = UOp(Ops.BUFFER, F32, (UOp.new_unique(), two), 4)
    assert one.device is one
    assert (a + 1).device is one
    assert (a + b.copy_to(one)).device is one
    assert a.copy_to(two).device is two
    assert (UOp.const(F32, 1.0) + b).device is two
    assert UOp.const(F32, 1.0).device is None
    assert UOp(Ops.ALLREDUCE, F32, (a, two), ADD).device is two


# ---- open ranges ---------------------------------------------------------------------------------


def value(*ranges: UOp) -> UOp:
    """A float32 that depends on each of the ranges."""
    total = UOp.const(X, 0)
    for rng in ranges:
        total = total + rng
    return total.cast(F32)


def test_range_ending_ops_close_their_ranges() -> None:
    i, j, k = (UOp.range(4, number) for number in range(3))
    x = value(i, j, k)
    assert x.open_ranges == (i, j, k)
    assert x.reduce(ADD, k).open_ranges == (i, j)
    assert x.reduce(ADD, j, k).open_ranges == (i,)
    assert x.reduce(ADD).open_ranges == (i, j, k)
    assert x.close(i, k).open_ranges == (j,)
    assert x.bufferize(i, j, k).open_ranges == ()
    store = UOp.new_buffer(F32, 64).at(i * 16 + j * 4 + k).store(x, i, j, k)
    assert store.open_ranges == ()
    assert store.ended_ranges == (i, j, k)
    assert UOp.new_buffer(F32, 64).at(i).store(x, i).open_ranges == (j, k)
    # a reduction of something that does not depend on the range ends nothing else
    assert value(i).reduce(ADD, k).open_ranges == (i,)
    assert x.ended_ranges == value(i).close(i).src[0].ended_ranges == ()
    a = UOp.const(F32.vec(4), 1.0)
    wmma = UOp(Ops.WMMA, F32, (a, a, x, k), None)
    assert wmma.open_ranges == (i, j)


def test_a_range_is_open_in_itself_and_brings_what_its_end_depends_on() -> None:
    i = UOp.range(4, 0)
    triangle = UOp.range(i + 1, 1)
    assert i.open_ranges == (i,)
    assert triangle.open_ranges == (i, triangle)
    assert value(triangle).reduce(ADD, triangle).open_ranges == (i,)
    after = UOp.range(3, 2, deps=(i,))
    assert after.open_ranges == (i, after)


def test_ranges_stand_in_loop_order() -> None:
    ranges = [UOp.range(4, number) for number in (7, 1, 12, 0, 5)]
    ordered = tuple(sorted(ranges, key=lambda r: r.arg[0].number))
    assert value(*ranges).open_ranges == ordered
    assert value(*reversed(ranges)).open_ranges == ordered
    # one number, different ends: by content, whatever comes first
    same = [UOp.range(end, 3) for end in (2, 3, 4, 5)]
    assert value(*same).open_ranges == value(*reversed(same)).open_ranges
    assert set(value(*same).open_ranges) == set(same)


def test_more_than_64_ranges() -> None:
    ranges = [UOp.range(2, number) for number in range(300)]
    left, right = value(*ranges[:200]), value(*ranges[100:])
    both = left + right
    assert left.open_ranges == tuple(ranges[:200])
    assert both.open_ranges == tuple(ranges)
    assert both.reduce(ADD, *ranges[50:250]).open_ranges == tuple(ranges[:50] + ranges[250:])
    assert both.close(*ranges).open_ranges == ()


def test_after_ends_what_its_dependencies_end() -> None:
    i, j, k = (UOp.range(4, number) for number in range(3))
    buffer = UOp.new_buffer(F32, 4)
    x = value(i, j, k)
    assert x.after(value(i).close(i)).open_ranges == (j, k)
    assert x.after(buffer.at(j).store(1.0, j), value(i).close(i)).open_ranges == (k,)
    assert x.after(value(k)).open_ranges == (i, j, k)
    assert buffer.after(value(i)).open_ranges == (i,), "a dependency that leaves it open"
    # by way of another AFTER
    inner = buffer.after(value(i).close(i))
    assert x.after(inner).open_ranges == (j, k)
    outer = buffer.after(inner, value(k).close(k))
    assert x.after(outer).open_ranges == (j,)
    assert x.after(buffer.after(outer)).open_ranges == (j,)


def test_afters_share_dependencies() -> None:
    i, j = UOp.range(4, 0), UOp.range(4, 1)
    a = UOp.new_buffer(F32, 1).after(value(i).close(i))
    for number in range(60):  # 2**60 paths
        a = UOp.new_buffer(
            F32,
            1,
        ).after(a, a.after(a), UOp.new_unique(number))
    assert value(i, j).after(a).open_ranges == (j,)
    chain = UOp.new_buffer(F32, 1).after(value(i).close(i))
    for _ in range(3000):
        chain = UOp.new_buffer(F32, 1).after(chain)
    assert value(i, j).after(chain).open_ranges == (j,)


def test_copies_and_views_end_what_their_source_leaves_open() -> None:
    i, j = UOp.range(4, 0), UOp.range(4, 1)
    x = value(i, j)
    copied = x.copy_to("CPU:1")
    assert copied.open_ranges == ()
    view = UOp(Ops.BUFFER_VIEW, F32, (UOp.new_buffer(F32, 4).after(value(i)),), (2, 0))
    assert view.open_ranges == ()
    assert value(j).after(copied).open_ranges == (), "which an AFTER passes on"


def test_calls_close_the_ranges_among_their_arguments() -> None:
    i, j = UOp.range(4, 0), UOp.range(4, 1)
    body = value(i, j)
    for op in (Ops.CALL, Ops.FUNCTION):
        assert UOp(op, F32, (body,), CallInfo()).open_ranges == (i, j)
        assert UOp(op, F32, (body, i), CallInfo()).open_ranges == (j,)
        assert UOp(op, F32, (body, i + 1), CallInfo()).open_ranges == (i, j)
        assert UOp(op, F32, (body, i + 1, j), CallInfo()).open_ranges == (i,)


def test_a_set_outlives_the_node_it_came_from() -> None:
    i, j = UOp.range(4, 0), UOp.range(4, 1)
    for _ in range(100):
        x = value(i, j)
        y = x + 1.0
        z = y.reduce(ADD, j)
        del x
        assert y.open_ranges == (i, j)
        del y
        assert z.open_ranges == (i,)


ENDING = {Ops.REDUCE: 1, Ops.END: 1, Ops.BUFFERIZE: 1, Ops.STORE: 2, Ops.CALL: 1}


def ended(node: UOp) -> set[UOp]:
    """What a node ends, by the definition."""
    if node.op in ENDING:
        return {s for s in node.src[ENDING[node.op] :] if s.op is Ops.RANGE}
    if node.op is Ops.COPY:
        return still_open(node.src[0])
    return set().union(*map(ended, node.src[1:])) if node.op is Ops.AFTER else set()


def still_open(node: UOp) -> set[UOp]:
    """The open ranges of a node, by the definition."""
    opened = set().union(*map(still_open, node.src))
    return opened | {node} if node.op is Ops.RANGE else opened - ended(node)


@pytest.mark.parametrize("seed", range(40))
def test_open_ranges_of_random_graphs(seed: int) -> None:
    draw = random.Random(seed)
    ranges = [UOp.range(draw.randint(2, 4), draw.randint(0, 5)) for _ in range(6)]
    ranges = list(dict.fromkeys(ranges))
    nodes = [value(*draw.sample(ranges, draw.randint(0, 3))) for _ in range(4)]
    buffer, device = UOp.new_buffer(F32, 8), UOp.new_device("CPU")
    for _ in range(14):
        a, b = draw.choice(nodes), draw.choice(nodes)
        some = tuple(draw.sample(ranges, draw.randint(0, 3)))
        op = draw.choice([*ENDING, Ops.COPY, Ops.AFTER, Ops.ADD, Ops.RANGE])
        if op is Ops.RANGE:
            bound = UOp(Ops.CAST, X, (a,))
            node = UOp(op, X, (bound,), (AxisId(draw.randint(0, 5)), AxisType.LOOP))
            ranges.append(node)
        else:
            src, arg = {
                Ops.REDUCE: ((a, *some), ADD),
                Ops.END: ((a, *some), None),
                Ops.BUFFERIZE: ((a, *some), BufferizeOpts()),
                Ops.STORE: ((buffer, a, *some), None),
                Ops.CALL: ((a, b, *some), CallInfo()),
                Ops.COPY: ((a, device), None),
                Ops.AFTER: ((a, b, *draw.sample(nodes, 1)), None),
                Ops.ADD: ((a, b), None),
            }[op]
            node = UOp(op, F32, src, arg)
            nodes.append(node)
        found = node.open_ranges
        assert set(found) == still_open(node)
        assert len(found) == len(set(found))
        numbers = [r.arg[0].number for r in found]
        assert numbers == sorted(numbers)
        if op is not Ops.RANGE and OPS[op].range_end is not None:
            assert node.ended_ranges == node.src[OPS[op].range_end :]


# ---- anything ------------------------------------------------------------------------------------


ARGUMENTS: list[Any] = [
    None, True, 0, 3, -1, 2**70, 1.5, "x", b"x", Invalid, ADD, F32, (), (1,), (0, 1), (1, 0),
    (-1, 2), ("n", 1, 5), ("n", "a", None), ("n", 5, 1), ("n", -(2**70), 2**70), (ADD, (0,)),
    (ADD, (5,)), (ADD, 0), (True,), ((0, 2),), (AxisId(3), AxisType.LOOP),
    (AxisId(2**70), AxisType.LOOP), ("axis", 0), BufferizeOpts(), DeviceSpec("CPU"),
    CallInfo(), (2**70,), ("a", (None, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize("op", list(Ops), ids=lambda op: op.name)
def test_any_sources_and_argument_give_a_node_or_an_error(op: Ops) -> None:
    """Inference reads nothing that is not there, whatever stands in a node."""
    draw = random.Random(int(op))
    i = UOp.range(4, 0)
    pool = [
        i, i + 1, UOp(Ops.RANGE, X, (), (AxisId(1), AxisType.LOOP)), UOp(Ops.RANGE, X),
        UOp(Ops.RANGE, X, (UOp.const(X, -5),), (AxisId(2), AxisType.LOOP)), UOp.invalid(),
        tensor(2, 3), tensor(0), UOp.const(F32, 1.0), UOp.const(dtypes.bool_, True),
        UOp.const(dtypes.int8, -128), UOp.const(dtypes.uint64, 7), UOp(Ops.CONST, X, (), 2**80),
        UOp.const(F32.vec(4), 1.0), UOp(Ops.VCONST, X.vec(2), (), 7), UOp.shape_const((2, 3)),
        UOp.shape_const(()), UOp(Ops.CONST, X, (), ("a", -1)), UOp.new_device("CPU"),
        UOp.new_sink(), UOp.param(0, F32.ptr(), 4), value(i).close(i), UOp(Ops.AFTER, F32),
        UOp(Ops.COPY, F32), UOp(Ops.END, dtypes.void), UOp(Ops.STORE, dtypes.void),
    ]  # fmt: skip
    types = [X, F32, dtypes.int8, dtypes.uint64, dtypes.bool_, dtypes.void, F32.vec(4), F32.ptr()]
    built = 0
    refused: list[str] = []
    for _ in range(600):
        src = tuple(draw.choices(pool, k=draw.choice([0, 1, 2, 2, 3, 3, 4])))
        arg, dtype = draw.choice(ARGUMENTS), draw.choice(types)
        try:
            node = UOp(op, dtype, src, arg)
        except ShapeError as error:
            refused.append(str(error))
            continue
        built += 1
        assert (node.op, node.dtype, node.src) == (op, dtype, src)
        assert node.vmin is None or node.vmin <= node.vmax
        assert node.shape is None or all(type(n) is int and n >= 0 for n in node.shape)
        assert all(rng.op is Ops.RANGE for rng in node.open_ranges)
        assert node.ended_ranges == src[OPS[op].range_end or len(src) :]
    assert built
    named = re.compile(rf"{op.name}\.[a-z_, ]+: expected ")
    assert all(map(named.match, refused))
