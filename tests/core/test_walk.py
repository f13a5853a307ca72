"""Walks: topological order, slices, users, substitution."""

from __future__ import annotations

import random
import threading

import pytest

from morok import _core
from morok.dtype import dtypes
from morok.ir import AxisType, Ops, ReduceOp, UOp

X = dtypes.index
F32 = dtypes.float32


def random_graph(seed: int, size: int = 40) -> list[UOp]:
    """Nodes of a random graph; the last one is on top of many."""
    draw = random.Random(seed)
    nodes = [UOp.range(draw.randint(2, 9), n) for n in range(3)]
    nodes += [UOp.const(X, draw.randint(0, 5)) for _ in range(3)]
    for _ in range(size):
        op = draw.choice([Ops.ADD, Ops.MUL, Ops.NEG, Ops.MAX, Ops.FLOORMOD])
        src = draw.choices(nodes[-8:], k=1 if op is Ops.NEG else 2)
        nodes.append(UOp(op, X, tuple(src)))
    return nodes


def below(node: UOp) -> list[UOp]:
    """The definition: depth first, sources in order, each node once, after its sources."""
    found: dict[UOp, None] = {}

    def visit(n: UOp) -> None:
        for source in n.src:
            if source not in found:
                visit(source)
        found.setdefault(n)

    visit(node)
    return list(found)


@pytest.mark.parametrize("seed", range(20))
def test_order(seed: int) -> None:
    nodes = random_graph(seed)
    root = nodes[-1]
    order = below(root)
    assert root.toposort() == order
    assert root.toposort(stop=lambda node: False) == root.toposort(stop=()) == order
    assert root.backward_slice() == set(order)
    both = _core.toposort([nodes[-2], root, root])
    assert both == list(dict.fromkeys(below(nodes[-2]) + order))
    assert _core.toposort([]) == []


@pytest.mark.parametrize("seed", range(20))
def test_stops_are_listed_and_not_entered(seed: int) -> None:
    nodes = random_graph(seed)
    root = nodes[-1]
    stops = set(random.Random(seed).sample(root.toposort(), 6))
    order = root.toposort(stop=stops)
    assert order == root.toposort(stop=stops.__contains__)
    inside = set(order)
    for node in order:
        if node not in stops:
            assert inside.issuperset(node.src)
    reached = {root} | {s for node in order if node not in stops for s in node.src}
    assert inside == reached


def test_a_predicate_may_walk_and_may_fail() -> None:
    root = random_graph(1)[-1]
    assert root.toposort(stop=lambda node: not node.toposort()) == root.toposort()
    with pytest.raises(LookupError, match="no more"):
        root.toposort(stop=lambda node: fail())
    assert root.toposort() == below(root)


def fail() -> bool:
    raise LookupError("no more")


def test_threads_walk_one_graph() -> None:
    root = random_graph(3, 3000)[-1]
    order = root.toposort()
    wrong: list[int] = []

    def work() -> None:
        for _ in range(30):
            if root.toposort() != order or root.toposort(stop=lambda node: False) != order:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("seed", range(10))
def test_consumers(seed: int) -> None:
    root = random_graph(seed)[-1]
    order = below(root)
    expected = {node: [user for user in order if node in user.src] for node in order}
    users = _core.consumers(root)
    assert users == expected
    assert list(users) == order


def replaced(node: UOp, by: dict[UOp, UOp]) -> UOp:
    """The definition of substitution."""
    if node in by:
        return by[node]
    return node.replace(src=tuple(replaced(source, by) for source in node.src))


@pytest.mark.parametrize("seed", range(20))
def test_substitute(seed: int) -> None:
    draw = random.Random(seed)
    root = random_graph(seed, 12)[-1]
    order = root.toposort()
    olds = draw.sample(order, min(3, len(order)))
    by = {old: draw.choice([UOp.const(X, 77), old + 1, UOp.range(5, 9)]) for old in olds}
    assert root.substitute(by) is replaced(root, by)
    assert root.substitute({}) is root
    assert root.substitute({UOp.range(12, 34): UOp.const(X, 0)}) is root
    assert root.substitute({root: UOp.const(X, 5)}) is UOp.const(X, 5)


def test_replacements_are_not_entered() -> None:
    i, j = UOp.range(4, 0), UOp.range(4, 1)
    e = i * 3 + j
    assert e.substitute({i: j, j: i}) is j * 3 + i
    assert e.substitute({i: i + 1}) is (i + 1) * 3 + j


def test_many_sources_are_substituted() -> None:
    i = UOp.range(4, 0)
    sink = UOp.group(*(i + n for n in range(100)))
    moved = sink.substitute({i: UOp.const(X, 7)})
    assert moved.src == tuple(UOp.const(X, 7) + n for n in range(100))


def test_only_where_the_range_is_open() -> None:
    i, new = UOp.range(4, 0), UOp.range(4, 9, AxisType.GLOBAL)
    inner = (i * 2).cast(F32).reduce(ReduceOp.ADD, i)
    outer = inner + i.cast(F32)
    assert _core.substitute(outer, {i: new}, open_only=True) is inner + new.cast(F32)
    assert outer.substitute({i: new}) is not inner + new.cast(F32)
    assert _core.substitute(inner, {i: new}, open_only=True) is inner
    assert _core.substitute(i, {i: new}, open_only=True) is new


def test_realized_values_are_cut_in_their_turn() -> None:
    a, b, c = (UOp.new_buffer(F32, 3) for _ in range(3))
    x = a.sqrt()
    y = b.sqrt()
    root = x + y
    x.realized = y
    y.realized = c
    try:
        assert _core.cut_realized(root) is c + c
        assert _core.cut_realized(x) is c
        y.realized = None
        assert _core.cut_realized(root) is y + y
    finally:
        x.realized = y.realized = None
    assert _core.cut_realized(root) is root


def test_visits_and_drops_on_the_way() -> None:
    a, b = (UOp.new_buffer(F32, 3) for _ in range(2))
    hint = UOp(Ops.DETACH, F32, (a.sqrt(),))
    root = hint + (-b) + a
    seen = []

    def buffer(node: UOp) -> UOp:
        seen.append(node)
        return UOp(Ops.PARAM, F32, (node.src[1],), (seen.index(node), 3))

    p, q = (UOp(Ops.PARAM, F32, (a.src[1],), (slot, 3)) for slot in range(2))
    visit = {Ops.BUFFER: buffer, Ops.NEG: lambda node: None}
    assert _core.cut_realized(root, visit, [Ops.DETACH]) is p.sqrt() + (-q) + p
    assert seen == [a, b]
    assert _core.cut_realized(root, {Ops.NEG: lambda node: b}) is hint + b + a


@pytest.mark.parametrize("seed", range(20))
def test_the_key_of_what_is_not_built(seed: int) -> None:
    nodes = random_graph(seed)
    holder = UOp.range(5, 99) + 12345
    root = UOp.group(*nodes)

    def half(node: UOp) -> UOp | None:
        return UOp.const(X, 7) if node.src[0] is node.src[-1] else None

    visit, drop = {Ops.ADD: half, Ops.MAX: lambda node: None}, [Ops.NEG]
    keys = {_core.normal_key(root, visit, drop)}
    assert keys == {_core.cut_realized(root, visit, drop).key}
    nodes[0].realized = holder
    try:
        assert _core.normal_key(root, visit, drop) == _core.cut_realized(root, visit, drop).key
    finally:
        nodes[0].realized = None
    assert _core.normal_key(root, {}, ()) == root.key


@pytest.mark.parametrize("seed", range(20))
def test_which_roots_reach_some_nodes(seed: int) -> None:
    nodes = random_graph(seed)
    draw = random.Random(seed)
    holder = nodes[0] + 4711
    realized = draw.choice(nodes[10:])
    if realized in below(nodes[5]):
        return
    realized.realized = holder
    try:
        for targets in ([], [nodes[1]], draw.sample(nodes, 3), [nodes[0]]):
            found = _core.reaching([*nodes, nodes[-1]], targets)
            for root, hit in zip(nodes, found, strict=False):
                order = root.toposort(stop=lambda n: n.realized is not None)
                cut = realized in order and nodes[0] in targets
                order = [n for n in order if n is not realized or n in targets]
                assert hit == (cut or any(n in targets for n in order)), (root, targets)
            assert found[-1] == found[-2]
    finally:
        realized.realized = None
    assert _core.reaching([], nodes) == []


@pytest.mark.parametrize("wrong", [None, 3, "x", [3], [None]])
def test_what_is_no_node_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError):
        _core.toposort(wrong)
    with pytest.raises(TypeError):
        _core.toposort([UOp.const(X, 1), wrong], stop=())
    with pytest.raises(TypeError):
        _core.substitute(wrong, {})
    with pytest.raises(TypeError):
        _core.substitute(UOp.const(X, 1), {wrong if wrong != [3] else 3: UOp.const(X, 2)})


def test_only_what_has_an_op_below() -> None:
    """`having`: nodes of that op and those above one, in the order of all."""
    rng = UOp.range(4, 0)
    bare = UOp.define_var("n", 1, 9) * 3
    root = (rng + bare) * (bare + 1)
    kept = _core.toposort(root, having=Ops.RANGE)
    assert kept == [node for node in _core.toposort(root) if node.has(Ops.RANGE)]
    assert {root, rng} <= set(kept)
    assert bare not in kept
    assert _core.toposort(bare, having=Ops.RANGE) == []
