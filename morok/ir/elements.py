"""Tensor-level nodes that are written element by element, over loops of their own.

    BUFFERIZE(f(r0, r1 …), r0, r1 …)                                a value: element (r0, r1 …) is f
    AFTER(memory, STORE(INDEX(to, *at), value, r0, r1 …))           an ordered loop: `memory`, then
                                                                    the writes in loop order

In such a node `INDEX(x, *at)` reads one element of tensor x. In an ordered loop `to` is `memory`,
or `AFTER(memory, ri …)`: as the iteration finds it, where earlier iterations of the loops ri wrote.
Reads of it in `value` are *carried*. The memory is a CONTIGUOUS (memory of the loop's own with
these contents) or a view of a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable

from morok.ir.ops import Ops
from morok.ir.uop import UOp

__all__ = ["element_reads", "is_carried", "is_ordered", "loops_of", "parts_of"]


def is_ordered(node: UOp) -> bool:
    """Whether a node is an ordered loop, not a plain value or a write of a whole view."""
    return (
        node.op is Ops.AFTER
        and len(node.src) == 2
        and node.src[1].op is Ops.STORE
        and node.src[1].src[0].op is Ops.INDEX
    )


def parts_of(node: UOp) -> tuple[UOp, ...]:
    """The scalar expressions of a BUFFERIZE (its value), or of an ordered loop (where it writes,
    under which condition, the value)."""
    if node.op is Ops.BUFFERIZE:
        return node.src[:1]
    index, value = node.src[1].src[:2]
    return (*index.src[1:], value)


def loops_of(node: UOp) -> tuple[UOp, ...]:
    """The RANGEs of a BUFFERIZE or an ordered loop, outermost first."""
    return node.ended_ranges if node.op is Ops.BUFFERIZE else node.src[1].ended_ranges


def is_carried(read: UOp) -> bool:
    """Whether an INDEX reads what earlier iterations of its loop wrote."""
    return read.src[0].op is Ops.AFTER and any(dep.op is Ops.RANGE for dep in read.src[0].src[1:])


def element_reads(parts: Iterable[UOp]) -> list[UOp]:
    """The INDEXes in scalar expressions that read elements of tensors, carried ones too; those in
    the index of another come first. Tensors are not entered."""
    found: dict[UOp, None] = {}
    done: set[UOp] = set()
    stack = list(parts)
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        below = node.src[1:] if node.op is Ops.INDEX else node.src
        waiting = [source for source in below if source not in done]
        if waiting:
            stack += waiting
            continue
        done.add(stack.pop())
        if node.op is Ops.INDEX:
            found[node] = None
    return list(found)
