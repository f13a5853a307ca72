"""The rewrite engine: order, limits, exceptions, nesting, threads, depth, what it leaves behind."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from morok import _core
from morok.dtype import dtypes
from morok.errors import RewriteLimitError
from morok.ir import Const, GroupOp, Ops, Pat, RuleSet, Trace, UOp, Var, graph_rewrite, not_const

x, y = Var("x"), Var("y")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")
i = UOp.range(64, 0)
j = UOp.range(8, 1)


def const(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


def simple() -> RuleSet:
    """Rules that fold chains of additions of constants."""
    rules = RuleSet("simple", dtype="x")
    rules.table(
        [
            ("zero", x + 0, x),
            ("one", x * 1, x),
            ("chain", (x + c0) + c1, x + (c0 + c1)),
            ("right", (x + c) + y, (x + y) + c, not_const(y)),
        ]
    )
    return rules


SIMPLE = simple()


@pytest.fixture
def limits() -> Iterator[None]:
    old = _core.rewrite_limits()
    yield
    _core.rewrite_limits(**old)


def tagged(ops: Any, **options: Any) -> tuple[RuleSet, list[UOp]]:
    """A set whose only rule notes the nodes it sees, and the list of them."""
    nodes: list[UOp] = []
    rules = RuleSet("tagged")
    rules.opaque(Pat(ops, name="n"), any_root=ops is None, **options)(lambda n: nodes.append(n))
    return rules, nodes


# ---- order -------------------------------------------------------------------------------------


def test_sources_first_each_node_once() -> None:
    rules, nodes = tagged(GroupOp.Binary)
    root = (i + j) * (i + j) + (i + j)
    assert graph_rewrite(root, rules) is root
    assert nodes == [i + j, (i + j) * (i + j), root]


def test_before_sees_the_original_first() -> None:
    rules, nodes = tagged(GroupOp.Binary)
    root = (i + j) * 3
    assert graph_rewrite(root, None, before=rules) is root
    assert nodes == [root, i + j]


def test_rules_see_rewritten_sources() -> None:
    seen: list[UOp] = []
    rules = RuleSet("order", dtype="x")
    rules.table([("zero", x + 0, x)])

    @rules.opaque(Pat(Ops.MUL, name="n"))
    def note(n: UOp) -> None:
        seen.append(n)

    assert graph_rewrite((i + 0) * j, rules) is i * j
    assert seen == [i * j]


def test_results_are_rewritten_again() -> None:
    assert graph_rewrite(((i + 1) + 2) + 3, SIMPLE) is i + 6
    assert graph_rewrite((i + 3) + (j + -3), SIMPLE) is j + i


def test_before_results_are_walked_again_and_rebuilt_nodes_are_not_offered() -> None:
    seen: list[UOp] = []
    before = RuleSet("before", dtype="x")
    before.table([("twice", x * 2, x + x)])

    @before.opaque(Pat(Ops.ADD, name="n"))
    def note(n: UOp) -> None:
        seen.append(n)

    root = (i * 2) * 2 + 5
    inner = i * 2
    assert graph_rewrite(root, None, before=before) is (i + i) + (i + i) + 5
    # root, then (i*2)+(i*2), then i+i; never (i+i)+(i+i), which is only a node with new sources
    assert seen == [root, inner + inner, i + i]


def test_both_in_one_walk() -> None:
    before = RuleSet("open", dtype="x")
    before.table([("distribute", (x + y) * c, x * c + y * c)])
    assert graph_rewrite((i + (j + 0)) * 1, SIMPLE, before=before) is i + j
    assert graph_rewrite((i + j) * 3, SIMPLE, before=before) is i * 3 + j * 3


def test_wide_nodes() -> None:
    sources = tuple((i + k) + 1 for k in range(1000))
    sink = UOp(Ops.SINK, dtypes.void, sources)
    assert graph_rewrite(sink, SIMPLE).src == tuple(i + (k + 1) for k in range(1000))


def test_nothing_to_do_is_the_same_node() -> None:
    assert graph_rewrite(i, SIMPLE) is i
    assert graph_rewrite(i * j, SIMPLE) is i * j
    assert graph_rewrite(i, None) is i
    assert graph_rewrite(i + 0, RuleSet("empty")) is i + 0


def test_context_reaches_rules() -> None:
    rules = RuleSet("context")

    @rules.opaque(Pat(Ops.ADD, name="n"))
    def once(n: UOp, ctx: set[UOp]) -> UOp | None:
        if n in ctx:
            return None
        ctx.add(n)
        return n * 1  # n itself is walked again, and left as it is

    assert graph_rewrite(i + j, rules, ctx=set()) is (i + j) * 1


# ---- normal forms ------------------------------------------------------------------------------


def tries(rules: RuleSet) -> int:
    return sum(row.tries for row in rules.stats())


def test_normal_nodes_are_never_visited_again() -> None:
    rules = simple()
    root = (i + 3) + (j + 4) * 5
    done = graph_rewrite(root, rules)
    before = tries(rules)
    assert graph_rewrite(done, rules) is done
    assert graph_rewrite(done * done, rules) is done * done
    assert tries(rules) <= before + 3  # at most the new MUL


def test_sets_that_read_context_remember_nothing() -> None:
    rules, nodes = tagged(Ops.ADD)
    for _ in range(2):
        graph_rewrite(i + j, rules)
    assert nodes == [i + j] * 2
    pure, nodes = tagged(Ops.ADD, pure=True)
    for _ in range(2):
        graph_rewrite(i + j, pure)
    assert nodes == [i + j]


def test_more_sets_than_bits() -> None:
    """64 sets have a bit of their own; bits of sets that are gone are dealt out again."""
    root = (i + 1) + 2
    sets = [simple() for _ in range(80)]
    for rules in sets:
        assert graph_rewrite(root, rules) is i + 3
        assert graph_rewrite(i + 3, rules) is i + 3
    del sets, rules
    gc.collect()
    for _ in range(200):
        wanting = RuleSet("wanting", dtype="x")
        wanting.table([("chain", (x + c0) + c1, x + (c0 + c1))])
        assert graph_rewrite(root, wanting) is i + 3
        other = RuleSet("other", dtype="x")
        other.table([("swap", x + 3, x * 3)])
        assert graph_rewrite(i + 3, other) is i * 3


def test_subgraphs_without_roots_are_skipped() -> None:
    rules, nodes = tagged(Ops.SINK)
    graph = i
    for k in range(1000):
        graph = graph * j + k
    sink = UOp(Ops.SINK, dtypes.void, (graph,))
    graph_rewrite(sink, rules)
    assert nodes == [sink]


# ---- limits ------------------------------------------------------------------------------------


def test_ping_pong_names_the_cycle() -> None:
    rules = RuleSet("loop", dtype="x")
    rules.table([("there", x - y, x + y * -1), ("back", x + y * -1, x - y)])
    with pytest.raises(RewriteLimitError) as caught:
        graph_rewrite((i - j) * 4, rules, name="ping")
    error = caught.value
    assert error.rewrite == "ping"
    assert error.limit == 1000
    assert set(error.counts) == {"loop.there", "loop.back"}
    text = str(error)
    assert "loop.there -> loop.back" in text or "loop.back -> loop.there" in text
    assert "RANGE" in text  # the offender is printed


def test_a_node_inside_its_own_replacement() -> None:
    rules = RuleSet("wrap")
    rules.opaque(Pat(Ops.ADD, name="n"))(lambda n: n * 1)
    with pytest.raises(RewriteLimitError, match="wrap"):
        graph_rewrite(i + j, rules)


def test_growth_hits_the_limit_of_the_call(limits: None) -> None:
    _core.rewrite_limits(call=2000, factor=1)
    rules = RuleSet("grow")
    rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))))(lambda a, k: (a * (k.arg + 1)) + 1)
    with pytest.raises(RewriteLimitError) as caught:
        graph_rewrite(i * 2, rules)
    assert caught.value.limit in (1000, 2000)


def test_the_limit_of_the_call_grows_with_the_graph(limits: None) -> None:
    _core.rewrite_limits(call=10, factor=2)
    sources = tuple((i + k) + 1 for k in range(100))
    sink = UOp(Ops.SINK, dtypes.void, sources)
    assert graph_rewrite(sink, simple()).src[99] is i + 100
    _core.rewrite_limits(factor=0)
    with pytest.raises(RewriteLimitError):
        graph_rewrite(sink, simple())


def test_many_steps_on_a_wide_node_are_no_loop() -> None:
    """A node may be rewritten as often as it has sources."""
    rules = RuleSet("shrink")
    rules.opaque(Pat(Ops.SINK, (None, None), rest=True, name="s"))(
        lambda s: UOp(Ops.SINK, dtypes.void, s.src[1:])
    )
    sink = UOp(Ops.SINK, dtypes.void, tuple(const(k) for k in range(1200)))
    assert len(graph_rewrite(sink, rules).src) == 1


def test_no_normal_bits_after_a_limit() -> None:
    rules = RuleSet("loop", dtype="x")
    rules.table([("there", x - y, x + y * -1), ("back", x + y * -1, x - y)])
    for _ in range(3):
        with pytest.raises(RewriteLimitError):
            graph_rewrite((i - j) * 4, rules)


# ---- exceptions and what is left behind --------------------------------------------------------


def test_exceptions_leave_nothing_claimed() -> None:
    rules = RuleSet("fails")
    armed = [True]

    @rules.opaque(Pat(Ops.MUL, name="n"))
    def fail(n: UOp) -> UOp | None:
        if armed[0]:
            raise ValueError("no")
        return None

    rules.opaque(Pat(Ops.ADD, (Pat(name="a"), Const("k"))))(lambda a, k: a - k)
    root = ((i + 1) + 2) * j
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            graph_rewrite(root, rules)
    armed[0] = False
    assert graph_rewrite(root, rules) is (i - 1 - 2) * j


def test_no_leaks() -> None:
    rules = RuleSet("leaky", dtype="x")
    rules.table([("chain", (x + c0) + c1, x + (c0 + c1))])
    rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))))(
        lambda a, k: a if k.arg != 999_001 else 1 // 0
    )

    def work(k: int) -> None:
        root = ((i + k) + 1) * 77 + ((j + k) + 2) * 78
        graph_rewrite(root, rules)
        graph_rewrite(root, rules, before=rules)
        with pytest.raises(ZeroDivisionError):
            graph_rewrite(root + i * 999_001, rules)

    work(-1)
    gc.collect()
    live = _core.node_stats()["live"]
    for k in range(50):
        work(k + 100_000)
    gc.collect()
    assert _core.node_stats()["live"] <= live + 5


def test_weakref_callbacks_may_rewrite() -> None:
    """Results die when the call ends; what their deaths run finds a consistent graph."""
    got: list[UOp] = []
    rules = RuleSet("dying")
    refs: list[Any] = []

    @rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))))
    def make(a: UOp, k: UOp) -> UOp:
        made = a - (k.arg + 555_000)
        refs.append(weakref.ref(made, lambda _: got.append(graph_rewrite((i + 1) + 2, SIMPLE))))
        return made

    graph_rewrite(i * 3 + j * 4, rules)
    gc.collect()
    assert got == [i + 3] * 2


# ---- nested and concurrent ---------------------------------------------------------------------


def test_rules_may_rewrite_the_same_graph() -> None:
    rules = RuleSet("outer")

    @rules.opaque(Pat(Ops.MUL, name="n"))
    def nested(n: UOp) -> UOp | None:
        inner = graph_rewrite(n, SIMPLE)
        again = graph_rewrite(n.src[0] + n.src[1], rules)
        assert again is n.src[0] + n.src[1]
        return None if inner is n else inner

    root = ((i + 1) + 2) * ((j + 3) + 4)
    assert graph_rewrite(root, rules) is (i + 3) * (j + 7)


def test_recursion_of_one_set_without_bits() -> None:
    """The inner call finds nodes that the outer one has claimed, and works on its own map."""
    rules = RuleSet("recursive")
    depth = [0]

    @rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Pat(name="b"))))
    def product(a: UOp, b: UOp) -> UOp | None:
        if depth[0] < 3:
            depth[0] += 1
            try:
                twin = graph_rewrite((a + b) * (a - b), rules)
            finally:
                depth[0] -= 1
            assert Ops.MUL not in {node.op for node in twin.toposort()}
        return a + b

    root = i * j
    for _ in range(4):
        root = root * (root + 1)
    result = graph_rewrite(root, rules)
    assert Ops.MUL not in {node.op for node in result.toposort()}


def random_graph(seed: int, size: int = 300) -> UOp:
    rng = random.Random(seed)
    pool = [i, j, *(const(k) for k in range(5))]
    for _ in range(size):
        a, b = rng.choice(pool[-20:]), rng.choice(pool)
        pool.append(a + b if rng.random() < 0.7 else a * b)
    return UOp(Ops.SINK, dtypes.void, tuple(pool[-20:]))


def test_four_threads_in_one_graph() -> None:
    """Opaque rules let other threads in; every thread gets the result it would get alone."""

    def fresh(k: int) -> RuleSet:
        rules = RuleSet(f"thread{k}", dtype="x")
        rules.table(
            [("zero", x + 0, x), ("one", x * 1, x), ("chain", (x + c0) + c1, x + (c0 + c1))]
        )

        @rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))))
        def slow(a: UOp, k: UOp) -> UOp | None:
            for _ in range(40):
                a.src  # noqa: B018 - gives the interpreter a chance to switch
            return a if k.arg == 1 else None

        return rules

    graphs = [random_graph(seed) for seed in range(6)]
    expected = [graph_rewrite(graph, fresh(9)) for graph in graphs]
    results: dict[int, list[UOp]] = {}
    shared = fresh(8)
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        rules = shared if k < 2 else fresh(k)
        barrier.wait()
        got = []
        for _ in range(5):
            got += [graph_rewrite(graph, rules) for graph in graphs]
        results[k] = got

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(results) == [0, 1, 2, 3]
    for got in results.values():
        assert got == expected * 5


# ---- depth, determinism, tracing ---------------------------------------------------------------


@pytest.mark.slow
def test_a_million_deep() -> None:
    rules = RuleSet("deep", dtype="x")
    rules.table([("one", x * 1, x), ("chain", (x + c0) + c1, x + (c0 + c1))])
    chain = i
    three = const(3)
    for k in range(500_000):
        chain = UOp(Ops.MUL, dtypes.index, (chain, j))
        if k % 10 == 0:
            chain = UOp(Ops.ADD, dtypes.index, (UOp(Ops.ADD, dtypes.index, (chain, three)), three))
    result = graph_rewrite(chain, rules)
    assert result is not chain
    assert graph_rewrite(result, rules) is result
    assert graph_rewrite(chain, rules) is result


def test_results_do_not_depend_on_history() -> None:
    graphs = [random_graph(seed, 60) for seed in range(30)]
    first = [graph_rewrite(graph, simple()) for graph in graphs]
    rules = simple()
    second = [graph_rewrite(graph, rules) for graph in reversed(graphs)][::-1]
    assert first == second


def test_results_do_not_depend_on_the_process() -> None:
    """Not on hash seeds, not on the numbers of dtypes: the keys of the results are equal."""
    script = (
        "import sys; sys.path.insert(0, 'tests/core'); from test_rewrite import *\n"
        "if sys.argv[1] == '7': dtypes.int8.vec(3), dtypes.float16.vec(5)\n"
        "print([graph_rewrite(random_graph(s, 60), simple()).key.hex() for s in range(5)])"
    )
    outputs = set()
    for seed in ("1", "7"):
        done = subprocess.run(
            [sys.executable, "-c", script, seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parent.parent.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    here = [graph_rewrite(random_graph(s, 60), simple()).key.hex() for s in range(5)]
    assert outputs == {f"{here}\n"}


def test_trace_records_every_step() -> None:
    rules = simple()

    @rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))))
    def nested(a: UOp, k: UOp) -> UOp | None:
        return graph_rewrite(a + k, SIMPLE, name="inner") if k.arg == 2 else None

    root = ((i + 1) + 2) * 2
    with Trace() as trace:
        graph_rewrite(root, rules, name="outer")
        with pytest.raises(TypeError):
            graph_rewrite(3, rules)
    graph_rewrite((i + 4) + 2, simple())
    outer, inner = trace.rewrites
    assert (outer.name, outer.depth, outer.root, outer.result) == ("outer", 0, root, i + 5)
    assert [(step.rule, step.before, step.after) for step in outer.steps] == [
        ("simple.chain", (i + 1) + 2, i + 3),
        ("simple.nested", (i + 3) * 2, i + 5),
    ]
    assert (inner.name, inner.depth, inner.result) == ("inner", 1, i + 5)
    chain = trace.by_rule()["simple.chain"]
    assert (chain.hits, chain.python_entries) == (2, 0)
    assert chain.tries >= 2
    assert trace.by_rule()["simple.nested"].python_entries == 1
    assert chain.seconds > 0
    assert "simple.nested" in trace.report()
    assert "  inner" in trace.report()


def test_trace_of_a_rewrite_that_raises() -> None:
    rules = RuleSet("fails")
    rules.opaque(Pat(Ops.ADD, name="n"))(lambda n: 1 // 0)
    with Trace() as trace:
        with pytest.raises(ZeroDivisionError):
            graph_rewrite(i + j, rules)
        graph_rewrite((i + 1) + 2, simple(), name="after")
    assert [(rewrite.result, rewrite.depth) for rewrite in trace.rewrites] == [
        (None, 0),
        (i + 3, 0),
    ]


def test_steps_can_be_replayed() -> None:
    for seed in range(40):
        root = random_graph(seed, 40)
        rules = simple()
        with Trace() as trace:
            result = graph_rewrite(root, rules, name="replayed")
        (rewrite,) = trace.rewrites
        assert rewrite.after(0) is root
        assert rewrite.after() is result
        graphs = [rewrite.after(count) for count in range(len(rewrite.steps) + 1)]
        assert all(graph_rewrite(graph, rules) is result for graph in graphs)


def test_a_loop_can_be_replayed_up_to_the_limit(limits: None) -> None:
    rules = RuleSet("loop")
    rules.table([("there", x + y, x - y), ("back", x - y, x + y)], dtype="x")
    with Trace() as trace, pytest.raises(RewriteLimitError):
        graph_rewrite((i + j) * 2, rules)
    (rewrite,) = trace.rewrites
    assert rewrite.result is None
    assert rewrite.after(1) is (i - j) * 2
    assert rewrite.after() in ((i + j) * 2, (i - j) * 2)
    assert trace.by_rule()["loop.there"].hits > 100


def test_failing_tries_are_counted_without_python() -> None:
    rules = RuleSet("counted")
    rules.table([("data", x * c, x, c > 100)], dtype="x")
    rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("k"))), name="asked")(lambda a, k: None)
    with Trace() as trace:
        graph_rewrite(i * 3 + j * 4, rules)
    by_rule = trace.by_rule()
    assert (by_rule["counted.data"].tries, by_rule["counted.data"].failures_in_python) == (2, 0)
    assert (by_rule["counted.asked"].tries, by_rule["counted.asked"].failures_in_python) == (2, 2)
