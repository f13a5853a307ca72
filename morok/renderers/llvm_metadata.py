"""What LLVM IR says of its instructions besides what they do: memory apart, branches rarely taken.

The numbers stand for the same in every kernel, so that kernels can share a module.
"""

from __future__ import annotations

from morok.ir import AxisType, Ops, UOp
from morok.renderers.base import base_buffer
from morok.renderers.llvm_context import LLVMContext

__all__ = ["aliases", "scopes", "turns", "weights"]

# Scratch space is never the memory of a buffer, and its parts lie apart: said so, code generation
# need not keep reads and writes in order.
_DOMAIN, _SCOPE, _LIST, _OTHERS, _WEIGHTS = 2, 3, 40, 100, 2000
_MOST_LOCALS = 30
_GUESS = 32  # turns of a loop of which nothing is said


def scopes(count: int) -> list[str]:
    """The metadata of a kernel with so many DEFINE_LOCALs."""
    if not 0 < count <= _MOST_LOCALS:
        return []
    lines = [f"!{_DOMAIN} = distinct !{{!{_DOMAIN}}}"]
    for i in range(count):
        lines.append(f"!{_SCOPE + i} = distinct !{{!{_SCOPE + i}, !{_DOMAIN}}}")
        lines.append(f"!{_LIST + i} = !{{!{_SCOPE + i}}}")
    for i in range(count + 1):
        others = ", ".join([f"!{_SCOPE + k}" for k in range(count) if k != i])
        lines.append(f"!{_OTHERS + count * (_MOST_LOCALS + 1) + i} = !{{{others}}}")
    return lines


def aliases(ctx: LLVMContext, index: UOp) -> str:
    """What an access says of the memory that it touches and that it does not."""
    count = len(ctx.offsets)
    buffer = base_buffer(index.src[0])
    if not 0 < count <= _MOST_LOCALS or buffer.op is Ops.DEFINE_REG:
        return ""
    others = _OTHERS + count * (_MOST_LOCALS + 1)
    if buffer.op is not Ops.DEFINE_LOCAL:
        return f", !noalias !{others + count}"
    number = list(ctx.offsets).index(buffer)
    return f", !alias.scope !{_LIST + number}, !noalias !{others + number}"


def weights(ctx: LLVMContext, often: int) -> str:
    """Says of a branch that it goes its first way so many times as often as its second: by that,
    code generation places blocks and chooses the values that stay in registers."""
    number = _WEIGHTS + often
    ctx.metadata[number] = f'!{{!"branch_weights", i32 {often}, i32 1}}'
    return f", !prof !{number}"


def turns(ctx: LLVMContext, loop: UOp, times: int) -> str:
    """The weights of a loop's last branch if the loop turns less often than code generation would
    guess: then no empty instructions stand before it.

    `times` iterations are written in it."""
    end = loop.src[0]
    count = int(end.arg) // times if end.op is Ops.CONST else _GUESS
    if not 1 < count < _GUESS or loop.arg[1] is AxisType.THREAD:
        return ""
    return weights(ctx, count - 1)
