"""`rebuild` calls a function for the nodes of some ops; `region` is what depends on a RANGE."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from morok._core import rebuild, rebuild_together, region, toposort
from morok.dtype import dtypes
from morok.ir import Ops, ReduceOp, UOp


def expression() -> tuple[UOp, UOp]:
    x = UOp.range(8, 0)
    return x, (x * 3 + 1) * (x * 3 + 2)


def test_visited_in_the_order_of_toposort_each_once() -> None:
    _, y = expression()
    seen = []

    def note(node: UOp, src: tuple[UOp, ...]) -> UOp:
        seen.append(node)
        assert src == node.src
        return node

    assert rebuild(y, {Ops.ADD: note, Ops.MUL: note}) is y
    assert seen == [n for n in toposort(y) if n.op in (Ops.ADD, Ops.MUL)]


def test_users_of_what_changed_are_built_anew() -> None:
    x, y = expression()
    new = rebuild(y, {Ops.MUL: lambda n, src: x if n.src[0] is x else n.replace(src=src)})
    assert new is (x + 1) * (x + 2)


def test_the_root_may_be_visited() -> None:
    x, _ = expression()
    assert rebuild(x, {Ops.RANGE: lambda n, src: UOp.const(dtypes.index, 0)}).arg == 0


def test_what_has_none_of_the_ops_is_itself() -> None:
    _, y = expression()
    assert rebuild(y, {}) is y
    assert rebuild(y, {Ops.REDUCE: lambda n, src: n}) is y


def test_a_chain_deeper_than_the_stack_of_python() -> None:
    x, node = expression()
    for i in range(20_000):
        node = node + (x * (i + 2))
    zero = UOp.const(dtypes.index, 0)
    new = rebuild(node, {Ops.RANGE: lambda n, src: zero})
    assert not new.has(Ops.RANGE)


def test_errors_of_the_function_come_through_and_wrong_results_are_refused() -> None:
    _, y = expression()

    def fail(node: UOp, src: tuple[UOp, ...]) -> UOp:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        rebuild(y, {Ops.ADD: fail})
    with pytest.raises(TypeError):
        rebuild(y, {Ops.ADD: lambda n, src: None})


def test_region_stops_where_the_range_is_closed() -> None:
    x, y = expression()
    inner = y.cast(dtypes.float32)
    total = inner.reduce(ReduceOp.ADD, x)
    z = UOp.range(4, 1)
    outer = total + (z + x).cast(dtypes.float32)
    assert region(inner, x) == [n for n in toposort(inner) if x in n.open_ranges]
    assert region(total, x) == []
    assert region(outer, x) == [x, z + x, (z + x).cast(dtypes.float32), outer]
    assert region([z, z + x], z) == [z, z + x]


def test_an_op_that_does_not_exist_is_refused() -> None:
    for number in (-1, 128, 10**6):
        with pytest.raises(ValueError, match="unknown op"):
            rebuild(UOp.const(dtypes.index, 1), {number: lambda node, src: node})


def test_groups_are_replaced_together() -> None:
    """Members of one group are made in one call, once all that any of them needs is there."""
    a, b = UOp.range(4, 0), UOp.range(4, 1)
    first, second = a * 3, (b + 5) * 3
    root = (first + 1) // (second + 2)
    asked: list[tuple[list[UOp], list[tuple[UOp, ...]]]] = []

    def visit(members: Sequence[UOp], sources: list[tuple[UOp, ...]]) -> list[UOp]:
        asked.append((list(members), sources))
        return [sources[1][0], sources[0][0]]

    done = rebuild_together(root, [[first, second]], visit)
    assert asked == [([first, second], [first.src, second.src])]
    assert done.src[0].src[0] is b + 5
    assert done.src[1].src[0] is a


def test_groups_may_lie_below_one_another() -> None:
    inner = [UOp.range(4, 0) * 3, UOp.range(4, 1) * 5]
    outer = [inner[0] % 7, inner[1] % 9]
    root = outer[0] + outer[1]
    calls: list[Ops] = []

    def visit(members: Sequence[UOp], sources: list[tuple[UOp, ...]]) -> list[UOp]:
        calls.append(members[0].op)
        return [src[0] for src in sources]

    done = rebuild_together(root, [outer, inner], visit)
    assert done is UOp.range(4, 0) + UOp.range(4, 1)
    assert calls == [Ops.MUL, Ops.FLOORMOD]
