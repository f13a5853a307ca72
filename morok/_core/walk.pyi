"""Walks over graphs, without recursion. A root is a UOp; `toposort` also takes a sequence of
them."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from morok._core.node import Node

N = TypeVar("N", bound=Node)

def toposort(
    root: Any | Sequence[Any],
    *,
    stop: Callable[[Any], bool] | Container[Any] | None = None,
    having: int | None = None,
) -> list[Any]:
    """Every node below `root` (a UOp or a sequence of UOps), sources before users, each once.

    `stop` is a predicate or a container of nodes: such a node is listed, what lies below it is not
    entered. Or `having` is an op: only nodes of it, and those above one, are listed and entered.
    """

def region(root: Any | Sequence[Any], rng: Any) -> list[Any]:
    """The nodes below `root` (a UOp or a sequence of UOps) that depend on the RANGE `rng`, sources
    before users. What closes it is not entered: `rng` is another loop there."""

def backward_slice(root: Any) -> set[Any]:
    """The set of all nodes below `root`, `root` included."""

def consumers(root: Any) -> dict[Any, list[Any]]:
    """For each node below `root`, the list of its users (each once), in topological order."""

def substitute(root: Any, replace: dict[Any, Any], *, open_only: bool = False) -> Any:
    """`root` with each key of `replace` replaced by its value. Replacements are not entered.

    With `open_only` the keys are RANGEs, and a node at which none of them is open is left alone: a
    loop that some op below has closed is not the one meant.
    """

def cut_realized(
    root: Any,
    visit: Mapping[Any, Callable[[Any], Any | None]] | None = None,
    drop: Iterable[Any] = (),
) -> Any:
    """`root` with every node that has a realized value replaced by the node that holds it.

    `visit[op](node)` is asked for each node of such an op, users before sources, in the order in
    which sources are first used: a node in its place (not entered), or None to go on below it. A
    node of an op in `drop` is replaced by its first source.
    """

def rebuild(root: N, visit: Mapping[Any, Callable[[N, tuple[N, ...]], N]]) -> N:
    """`root` with `visit[op](node, src)` in the place of every node of the ops in `visit`, sources
    first; `src` is the tuple of what the node's sources became. Any other node is built on its new
    sources if one changed; what has none of these ops below is not looked at.
    """

def rebuild_together(
    root: N,
    groups: list[Sequence[N]],
    visit: Callable[[Sequence[N], list[tuple[N, ...]]], Sequence[N]],
) -> N:
    """`root` with the members of each group replaced together: `visit(members, sources)` is asked
    once for each, with what their sources became, for as many nodes. No member may lie below
    another of its group. Any other node is built on its new sources if one changed.
    """
