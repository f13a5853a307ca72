"""Rewriting a graph to a fixed point, without recursion."""

from typing import Any, TypeVar

from morok._core.match import Matcher
from morok._core.node import Node

N = TypeVar("N", bound=Node)

def graph_rewrite(
    root: N,
    rules: Matcher | None,
    before: Matcher | None = None,
    ctx: object = None,
    name: str = "",
) -> N:
    """`root` with the rules of `rules` (sources first) and `before` (node first) applied to a fixed
    point. See `morok.ir.graph_rewrite`, which takes rule sets."""

def rewrite_limits(
    node: int | None = None, call: int | None = None, factor: int | None = None
) -> dict[str, int]:
    """Set the limits that are given: replacements of one node, in a call, and in a call for each
    node of its graph. Returns the limits in force before."""

def rewrite_stats() -> dict[str, int]:
    """Counts since the start of the process: `calls` that had something to do, nodes `visited`, and
    nodes `replaced` by a rule."""

def set_tracer(tracer: Any) -> Any:
    """Report rewrites to `tracer`, an object with `begin(name, root)`,
    `step(rule, before, after, seconds)` and `end(root)`; None stops reporting. Returns the previous
    one."""
