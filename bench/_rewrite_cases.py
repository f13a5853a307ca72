"""The cases of the rewrite benchmark, for any system that can build and rewrite nodes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, log
from typing import Any, Protocol

from bench.harness import Case, status, timed

Node = Any
MEMORY = "memory, in this process"


class Rewriter(Protocol):
    """A system under test. Fresh `rules()` remember nothing of earlier runs; a `catalogue()` is all
    of the system's own rules for arithmetic."""

    @staticmethod
    def version() -> str: ...
    def constant(self, value: int) -> Node: ...
    def loop(self, extent: int, axis: int) -> Node: ...
    def binary(self, op: str, a: Node, b: Node) -> Node: ...
    def sink(self, nodes: Sequence[Node]) -> Node: ...
    def rules(self) -> Any: ...
    def catalogue(self) -> Any: ...
    def rewrite(self, root: Node, rules: Any) -> Node: ...
    def count(self, root: Node) -> int: ...


def build(system: Rewriter, recipe: Any) -> Node:
    """The node of a recipe."""
    if isinstance(recipe, int):
        return system.constant(recipe)
    if recipe[0] == "r":
        return system.loop(recipe[1], recipe[2])
    op, a, b = recipe
    return system.binary(op, build(system, a), build(system, b))


def cases(system: Rewriter, recipes: Sequence[Any], quick: bool) -> Mapping[str, Case]:
    """Name -> function that runs it once and returns its figures."""
    rules = system.rules()
    deep = 20_000 if quick else 1_000_000
    state: dict[str, Any] = {}

    def expressions() -> Node:
        if "graph" not in state:
            state["graph"] = system.sink([build(system, recipe) for recipe in recipes])
            state["clean"] = system.rewrite(state["graph"], rules)
        return state["graph"]

    def exprs(make: Callable[[], Any], collect: bool = True) -> dict[str, float]:
        graph, chosen = expressions(), make()
        if not collect:
            gc.disable()
        try:
            seconds, done = timed(lambda: system.rewrite(graph, chosen))
        finally:
            gc.enable()
        return {"ms": seconds * 1e3, "nodes": float(system.count(done))}

    def clean() -> dict[str, float]:
        expressions()
        seconds, done = timed(lambda: system.rewrite(state["clean"], system.rules()))
        assert done is state["clean"]
        return {"ns": seconds / system.count(done) * 1e9}

    def growth(make: Callable[[int], Node]) -> dict[str, float]:
        """How time grows from 10 000 nodes to `deep`: 1 is in proportion. The two sizes take turns,
        so that neither finds its graph in the processor's caches."""
        graphs = {size: make(size) for size in (10_000, deep)}
        times = dict.fromkeys(graphs, inf)
        for _ in range(4):
            for size, graph in graphs.items():
                fresh = system.rules()
                times[size] = min(times[size], timed(partial(system.rewrite, graph, fresh))[0])
        return {"exponent": log(times[deep] / times[10_000]) / log(deep / 10_000)}

    def warm() -> dict[str, float]:
        expressions()
        repeats = 100 if state.get("fast", True) else 1
        seconds, _ = timed(lambda: [system.rewrite(state["clean"], rules) for _ in range(repeats)])
        state["fast"] = seconds / repeats < 0.001
        return {"us": seconds / repeats * 1e6}

    def chain_of(length: int) -> Node:
        node = system.loop(7, 0)
        others = [system.loop(extent, axis + 1) for axis, extent in enumerate((64, 8))]
        for step in range(length):
            node = system.binary("+", node, others[step % 2])
        return node

    def dag_of(size: int) -> Node:
        row = [system.loop(extent + 9, extent) for extent in range(1000)]
        for step in range(size // 1000):
            shift = 1 + step % 998  # never to itself
            row = [system.binary("+", row[k], row[(k + shift) % 1000]) for k in range(1000)]
        return system.sink(row)

    def chain(name: str, length: int) -> dict[str, float]:
        if name not in state:
            state[name] = chain_of(length)
        seconds, _ = timed(lambda: system.rewrite(state[name], system.rules()))
        return {"ns": seconds / length * 1e9}

    def dag() -> dict[str, float]:
        if "dag" not in state:
            state["dag"] = dag_of(deep // 5)
        seconds, _ = timed(lambda: system.rewrite(state["dag"], system.rules()))
        return {"ns": seconds / (deep // 5) * 1e9}

    def memory() -> dict[str, float]:
        """By how much a process of its own grows: in one that freed memory it would be re-used."""
        gc.collect()
        before = status("VmRSS")
        state["memory"] = chain_of(deep)
        return {"bytes": (status("VmRSS") - before) * 2**20 / deep}

    return {
        MEMORY: memory,
        "exprs": lambda: exprs(system.rules),
        "exprs, no gc": lambda: exprs(system.rules, collect=False),
        "catalogue": lambda: exprs(system.catalogue),
        "catalogue, no gc": lambda: exprs(system.catalogue, collect=False),
        "clean": clean,
        "warm": warm,
        "chain": lambda: chain("chain", deep // 10),
        "deep chain": lambda: chain("deep chain", deep),
        "dag": dag,
        "chain growth": lambda: growth(chain_of),
        "dag growth": lambda: growth(dag_of),
    }
