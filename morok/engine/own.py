"""Nodes of a graph that are its own, and not those of the functions that it calls."""

from __future__ import annotations

from morok._core import toposort
from morok.ir import Ops, UOp


def local_buffers(function: UOp) -> list[UOp]:
    """The BUFFERs that a body names by LUNIQUE, not those of functions it calls."""
    return [node for node in own_nodes(function.src[0]) if node.op is Ops.BUFFER]


def own_nodes(root: UOp) -> list[UOp]:
    """The nodes below `root`, sources first; FUNCTIONs are not entered."""
    if not root.has(Ops.FUNCTION):
        return toposort(root)
    return toposort(root, stop=lambda node: node.op is Ops.FUNCTION)


def replace_own(root: UOp, replace: dict[UOp, UOp]) -> UOp:
    """`root` with nodes replaced; what stands in a FUNCTION's body has another meaning."""
    if root.has(Ops.FUNCTION):
        own = (node for node in own_nodes(root) if node.op is Ops.FUNCTION)
        replace = {**replace, **{node: node for node in own}}
    return root.substitute(replace)
