"""Values made of many ops whose slope is simpler than theirs."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from morok import engine
from morok.ir import UOp

Rule = Callable[[UOp, UOp], UOp]
"""(gradient of the node, node) -> gradient of one source."""

_composed: WeakKeyDictionary[UOp, tuple[UOp, Rule]] = WeakKeyDictionary()
"""node -> (source, its rule)."""


def composed(node: UOp, source: UOp, rule: Rule) -> None:
    """From now on the gradient of `node`, a function of each element of `source`, follows `rule`
    and not the ops between them. The rule may speak of `node` itself, so that it can be
    differentiated again."""
    _composed[node] = (source, rule)


def slope_of(node: UOp) -> tuple[UOp | None, Rule | None]:
    """The source and the rule of a composed value, (None, None) for any other."""
    return _composed.get(node, (None, None))


def replaced(root: UOp, replace: dict[UOp, UOp]) -> UOp:
    """`root` with nodes replaced, but in functions that it calls; what is composed stays so."""
    marked = [u for u in engine.own_nodes(root) if u in _composed]
    sources = [_composed[u][0] for u in marked]
    done = engine.replace_own(UOp.new_tuple(root, *marked, *sources), replace).src
    for old, new, source in zip(marked, done[1:], done[1 + len(marked) :], strict=False):
        if new is not old:
            composed(new, source, _composed[old][1])
    result: UOp = done[0]
    return result
