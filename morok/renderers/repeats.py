"""Which loops do the work of several iterations in one.

    for k < 4*n: a += x[k]   ->   for k < n: a += x[4*k]; a += x[4*k+1]; a += x[4*k+2]; a += …

Counting and jumping take part in how many instructions a core can begin at a time. In a loop that
does little but multiply into registers that is all there is to gain; the order of the additions,
and so their result, stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from morok.dtype import AddrSpace
from morok.ir import AxisType, GroupOp, Ops, UOp

__all__ = ["repeats"]

_TIMES = (4, 2)
_LEAST = 4  # steps that a loop has left
_SUMS = 4  # fewer wait for each other more than for anything else
_LONGEST = 48  # operations; beyond, counting is little beside them
_COUNTED = GroupOp.ALU | {Ops.LOAD, Ops.CAST}


def repeats(ops: Sequence[UOp]) -> dict[UOp, int]:
    """The innermost RANGEs of a LINEAR whose body is to be repeated, and how often it stands in
    the loop then. That divides the number of iterations, which is known."""
    found: dict[UOp, int] = {}
    start: int | None = None
    for place, op in enumerate(ops):
        if op.op is Ops.RANGE or op.op is Ops.IF:
            start = place if op.op is Ops.RANGE else None
        elif op.op is Ops.END or op.op is Ops.ENDIF:
            if start is not None and _multiplies(ops[start + 1 : place]):
                head = ops[start]
                times = _times(head)
                if times > 1:
                    found[head] = times
            start = None
    return found


def _times(head: UOp) -> int:
    end = head.src[0]
    if head.arg[1] is not AxisType.REDUCE or end.op is not Ops.CONST:
        return 1
    count = int(end.arg)
    return next((n for n in _TIMES if count % n == 0 and count >= n * _LEAST), 1)


def _multiplies(body: Sequence[UOp]) -> bool:
    """Is a body short, and does it add products to several registers?"""
    sums = 0
    for op in body:
        if op.op is Ops.STORE:
            held = op.src[0].src[0].dtype.addrspace is AddrSpace.REG
            if not held or op.src[1].op is not Ops.MULACC:
                return False
            sums += 1
    return sums >= _SUMS and sum(op.op in _COUNTED for op in body) <= _LONGEST
