"""Interned nodes: identity, arguments, life and death, threads, depth."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import subprocess
import sys
import threading
import weakref

import pytest

from morok import _core
from morok.dtype import dtypes
from morok.errors import ShapeError
from morok.ir import AxisId, AxisType, Ops, UOp

INDEX = dtypes.index


def const(value: object, dtype: object = INDEX) -> UOp:
    return UOp(Ops.CONST, dtype, (), value)


def chain(length: int) -> UOp:
    u = UOp.range(7, 0)
    one = const(1)
    for _ in range(length):
        u = UOp(Ops.ADD, INDEX, (u, one))
    return u


def test_equal_structure_is_one_object():
    assert const(3) is const(3)
    a = UOp(Ops.ADD, INDEX, (const(1), const(2)))
    assert UOp(Ops.ADD, INDEX, (const(1), const(2))) is a
    assert UOp(Ops.ADD, INDEX, (const(2), const(1))) is not a
    assert UOp(Ops.MUL, INDEX, (const(1), const(2))) is not a
    assert UOp(op=Ops.CONST, dtype=INDEX, arg=3) is const(3)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0, False),
        (0.0, -0.0),
        ((1,), (True,)),
        ((1, 2), (1, 2.0)),
        ("1", 1),
        (b"a", "a"),
        (2**63, 2**63 - 1),
        ((), None),
        (math.nan, -math.nan),
    ],
)
def test_arguments_of_other_type_or_bits_are_other_nodes(a, b):
    assert const(a) is not const(b)
    assert const(a) is const(copy.deepcopy(a))
    assert const(a).key != const(b).key


def test_argument_comes_back():
    arg = (AxisId(3, True), AxisType.LOOP)
    assert const(arg).arg == arg
    for value in (5, -(2**63), 2**70, 1.5, -0.0, True, None, "x", (1, (2.0, "y"))):
        got = const(value).arg
        assert got == value
        assert type(got) is type(value)


def test_arguments_are_let_go():
    before = _core.node_stats()["arguments"]
    nodes = [const(("argument", i)) for i in range(100)]
    assert _core.node_stats()["arguments"] == before + 100
    del nodes
    assert _core.node_stats()["arguments"] == before


@pytest.mark.parametrize("arg", [[1], {}, object(), (1, [2]), bytearray(b"x")])
def test_mutable_arguments_are_refused(arg):
    with pytest.raises(TypeError, match="cannot be part of a node"):
        const(arg)


def test_nodes_die_and_leave_the_table():
    gc.collect()
    live = _core.node_stats()["live"]
    u = chain(1000)
    assert _core.node_stats()["live"] >= live + 1000
    del u
    assert _core.node_stats()["live"] == live


def test_weak_reference_callback_may_rebuild_the_dying_structure():
    found = []
    u = UOp(Ops.ADD, INDEX, (const(12345), const(6789)))
    ref = weakref.ref(u, lambda _: found.append(UOp(Ops.ADD, INDEX, (const(12345), const(6789)))))
    del u
    assert ref() is None
    assert found[0] is UOp(Ops.ADD, INDEX, (const(12345), const(6789)))
    assert found[0].arg is None
    assert found[0].src == (const(12345), const(6789))


def test_million_deep_chain_builds_walks_and_dies():
    limit = sys.getrecursionlimit()
    u = chain(1_000_000)
    assert len(u.toposort()) >= 1_000_000
    assert u.substitute({UOp.range(7, 0): UOp.range(9, 0)}) is not u
    assert u.vmax == 1_000_006
    del u
    assert sys.getrecursionlimit() == limit


def test_many_sources():
    srcs = tuple(const(i) for i in range(100))
    u = UOp(Ops.SINK, dtypes.void, srcs)
    assert u.src == srcs
    assert UOp(Ops.SINK, dtypes.void, srcs) is u
    assert UOp(Ops.SINK, dtypes.void, srcs[:-1]) is not u


def test_eight_threads_get_the_same_objects():
    results: list[list[UOp]] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        r = UOp.range(100, 0)
        products = [UOp(Ops.MUL, INDEX, (r, const(i))) for i in range(3000)]
        results.append([UOp(Ops.ADD, INDEX, (p, const(i + 1))) for i, p in enumerate(products)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 8
    for other in results[1:]:
        assert all(a is b for a, b in zip(results[0], other, strict=True))


def test_pickle_gives_the_same_node_and_does_not_recurse():
    u = chain(20_000)
    assert pickle.loads(pickle.dumps(u)) is u
    assert copy.deepcopy(u) is u


def test_content_hash_is_the_same_in_every_process():
    code = (
        "from morok.ir import *; from morok.dtype import dtypes\n"
        "u = UOp.range(4, 1) * 3 + UOp.range(5, 0)\n"
        "print(UOp(Ops.SINK, dtypes.void, (u,), KernelInfo('k', (AxisType.LOOP,))).key.hex())"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(keys) == 1


def test_provenance_is_no_part_of_identity():
    old = _core.set_provenance(("here", 1))
    try:
        u = const(987654)
        assert u.provenance == ("here", 1)
        _core.set_provenance(None)
        assert const(987654) is u
        assert const(987655).provenance is None
    finally:
        _core.set_provenance(old)


def test_provenance_belongs_to_the_thread():
    _core.set_provenance("main")
    try:
        seen = []
        t = threading.Thread(target=lambda: seen.append(const(424242).provenance))
        t.start()
        t.join()
        assert seen == [None]
        assert const(424243).provenance == "main"
    finally:
        _core.set_provenance(None)


def test_direct_construction_is_refused():
    with pytest.raises(TypeError, match="made by UOp"):
        _core.Node()
    with pytest.raises(TypeError, match="made by UOp"):
        UOp.__new__(UOp)


@pytest.mark.parametrize("base", [UOp, _core.Node])
def test_subclassing_is_refused(base):
    with pytest.raises(TypeError, match="acceptable base type"):
        type("Other", (base,), {"__slots__": ()})


def test_the_node_class_is_registered_once():
    with pytest.raises(RuntimeError, match="registered already"):
        _core.register_uop_class(UOp)


def test_the_garbage_collector_does_not_visit_nodes():
    assert not gc.is_tracked(const(1))
    assert sys.getsizeof(const(1)) == _core.node_stats()["node_bytes"] <= 208


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((Ops.CONST, INDEX, [], 1), TypeError),
        ((Ops.ADD, INDEX, (1, 2)), TypeError),
        ((Ops.CONST, "index", (), 1), TypeError),
        ((127, INDEX, ()), ValueError),
        ((Ops.CONST,), TypeError),
    ],
)
def test_wrong_construction_is_a_clear_error_and_harmless(args, error):
    live = _core.node_stats()["live"]
    with pytest.raises(error):
        UOp(*args)
    assert _core.node_stats()["live"] == live


def test_failed_inference_leaves_nothing_behind():
    b = UOp.new_buffer(dtypes.float32, 12)
    shape = UOp.shape_const((5, 2))
    live = _core.node_stats()["live"]
    for _ in range(100):
        with pytest.raises(ShapeError, match="RESHAPE"):
            UOp(Ops.RESHAPE, b.dtype, (b, shape))
    assert _core.node_stats()["live"] == live


def test_open_ranges():
    i, j, k = (UOp.range(4, n) for n in range(3))
    e = i * 4 + j
    assert e.open_ranges == (i, j)
    assert (e + k).open_ranges == (i, j, k)
    assert (k + e).open_ranges == (i, j, k)
    v = UOp(Ops.CAST, dtypes.float32, (e + k,))
    from morok.ir import ReduceOp

    red = UOp(Ops.REDUCE, dtypes.float32, (v, k), ReduceOp.ADD)
    assert red.open_ranges == (i, j)
    end = UOp(Ops.END, dtypes.void, (red, i, j))
    assert end.open_ranges == ()


def test_realized_value_is_held_and_cut():
    b = UOp.new_buffer(dtypes.float32, 3)
    x = UOp(Ops.NEG, dtypes.float32, (b,))
    y = UOp(Ops.SQRT, dtypes.float32, (x,))
    c = UOp.new_buffer(dtypes.float32, 3)
    x.realized = c
    assert _core.cut_realized(y) is UOp(Ops.SQRT, dtypes.float32, (c,))
    assert _core.cut_realized(x) is c
    x.realized = None
    assert _core.cut_realized(y) is y
    with pytest.raises(ValueError, match="its own"):
        x.realized = x


def test_shared_subgraphs_are_walked_once():
    u = UOp.range(3, 0)
    for _ in range(60):  # 2**60 paths
        u = UOp(Ops.ADD, INDEX, (u, u))
    assert len(u.toposort()) == 62
    assert u.substitute({UOp.range(3, 0): const(1)}).vmax == 2**60


def test_members_of_the_vocabulary_are_plain_attributes():
    assert Ops.ADD is Ops["ADD"] is Ops(int(Ops.ADD))
    assert pickle.loads(pickle.dumps(Ops.ADD)) is Ops.ADD
    assert Ops.ADD.name == "ADD"
    with pytest.raises(AttributeError, match="NOPE"):
        Ops.NOPE  # noqa: B018
    with pytest.raises(TypeError, match="no metaclass"):
        _core.plain_lookup(int)
