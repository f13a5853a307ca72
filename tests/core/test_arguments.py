"""Arguments of nodes: which are the same, and that spelling them is no door to trouble."""

from __future__ import annotations

import enum
import struct
import threading
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok import _core
from morok.dtype import dtypes
from morok.ir import AddrSpace, AxisId, Ops, UOp


def const(value: Any) -> UOp:
    return UOp(Ops.CONST, dtypes.index, (), value)


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: Any = None


@dataclass(frozen=True)
class Pair:
    x: int
    y: Any = None


LONG = "x" * 5000

DISTINCT: list[Any] = [
    None, True, False, 0, 1, -1, 255, 256, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 2**200,
    0.0, -0.0, 1.0, float("nan"), float("inf"), "", "a", "1", "ä", "\ud800", "\udcff", b"", b"a",
    LONG, LONG + "x", LONG[1:] + "y", LONG.encode(), (), ((),), ((), ()), (1,), (1, 2), ((1,), 2),
    ((1, 2),), ("a", "b"), ("ab",), ("a", b"b"), (None,), (0.0,), (-0.0,), (True,), (1.0,),
    Colour.RED, Colour.BLUE, AddrSpace.LOCAL, Ops(1), Ops(2), (Colour.RED,), (Ops(1),),
    Access.READ, Access.WRITE, Access.READ | Access.WRITE, Access(0), Point(1), Point(1, 2),
    Point(1, (2,)), Pair(1), Pair(1, 2), Point(1, Pair(1)), Pair(1, Point(1)), dtypes.int8,
    dtypes.uint8, dtypes.int8.vec(4), dtypes.int8.ptr(), dtypes.int8.name, AxisId(0),
    AxisId(0, True),
]  # fmt: skip


def test_different_arguments_are_different_nodes() -> None:
    nodes = [const(value) for value in DISTINCT]
    assert len(set(nodes)) == len({node.key for node in nodes}) == len(DISTINCT)
    for node, value in zip(nodes, DISTINCT, strict=True):
        assert const(value) is node
        assert type(node.arg) is type(value)
        assert repr(node.arg) == repr(value)


def test_equal_arguments_are_one_node() -> None:
    first = const((Point(1, ("a", 2.5)), Colour.RED, "text" * 1000))
    again = const((Point(1, ("a", 2.5)), Colour.RED, "text" * 1000))
    assert first is again


def test_classes_of_one_name_are_told_apart() -> None:
    one = make_dataclass("Same", ["x"], frozen=True)
    two = make_dataclass("Same", ["x"], frozen=True)
    one.__module__, two.__module__ = "one", "two"
    assert const(one(1)) is const(one(1))
    assert const(one(1)) is not const(two(1))


@dataclass
class Mutable:
    x: int


@pytest.mark.parametrize(
    "value", [[], {}, set(), object(), Mutable(1), (1, [2]), Point(1, []), bytearray(b"a"), 1j]
)
def test_what_may_change_is_refused(value: Any) -> None:
    before = _core.node_stats()["arguments"]
    for _ in range(3):
        with pytest.raises(TypeError, match="cannot be part of a node: use None, bool"):
            const(value)
    assert _core.node_stats()["arguments"] == before


def test_an_error_while_spelling_passes_through() -> None:
    class Broken(enum.Enum):
        ONE = 1

    @dataclass(frozen=True)
    class Hidden:
        x: int

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                raise LookupError("no x today")
            return object.__getattribute__(self, name)

    with pytest.raises(LookupError, match="no x today"):
        const(("text", Broken.ONE, Hidden(1)))


arguments = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.builds(Point, st.integers(), inner),
    max_leaves=8,
)


def spelled(value: Any) -> Any:
    """What tells arguments apart, as a value that Python compares rightly."""
    if isinstance(value, tuple):
        return ("tuple", *map(spelled, value))
    if isinstance(value, Point):
        return ("Point", spelled(value.x), spelled(value.y))
    return (type(value).__name__, struct.pack("<d", value) if type(value) is float else value)


@given(arguments, arguments)
def test_random_arguments(a: Any, b: Any) -> None:
    one, two = const(a), const(b)
    assert const(a) is one
    assert spelled(one.arg) == spelled(a)
    assert (one is two) == (spelled(a) == spelled(b))


def test_threads_share_records() -> None:
    found: list[list[UOp]] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        found.append([const((Point(n, "thread"), LONG * (n % 3), n)) for n in range(300)])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in found for a, b in zip(found[0], other, strict=True))


def test_a_record_lives_as_long_as_a_node_uses_it() -> None:
    value = ("held", 1)
    before = _core.node_stats()["arguments"]
    a, b = const(value), UOp(Ops.SOURCE, dtypes.void, (), ("held", 1))
    assert a.arg is b.arg
    assert _core.node_stats()["arguments"] == before + 1
    del a
    assert _core.node_stats()["arguments"] == before + 1
    assert b.arg == value
    del b
    assert _core.node_stats()["arguments"] == before
