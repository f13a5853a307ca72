"""TC: sums of products of short floats or ints, several terms in one instruction.

    sum over k < n*m of a(k) * b(k)   ->   sum over k < n of WMMA(<a(k*m), …>, <b(k*m), …>, 0)

The WMMA is the product of a row of m elements and a column of m: one element of the result, made of
products that are exact in its wider dtype. Along a lane stage 9 makes it the tile of a dot
instruction, such as x86's `vdpbf16ps`, which has pairs of bfloat16; a target without one gets
products and sums.
"""

from __future__ import annotations

from morok.dtype import acc_dtype, dtypes
from morok.ir import Ops, ReduceOp, UOp, WmmaMetadata
from morok.optimizer.legality import (
    binders_of,
    check_divides,
    check_independent,
    loop_axis,
    require,
)
from morok.optimizer.ranges import make_range, range_end, substitute_open

__all__ = ["dot_operands", "tensor_core"]


def tensor_core(sink: UOp, axis: int, amount: int) -> UOp:
    """REDUCE(a * b, R(axis, n*amount)) -> REDUCE(WMMA(<amount of a>, <amount of b>, 0), R(axis, n))

    for all REDUCEs over the axis.
    """
    rng = loop_axis(sink, axis)
    check_divides(rng, amount)
    check_independent(sink, rng)
    binders = binders_of(sink, rng)
    count = range_end(rng) // amount
    outer = make_range(count, axis, rng.arg[1])
    new = {}
    for node in binders:
        operands = dot_operands(node)
        require(operands is not None, f"axis {axis} binds other than sums of short products")
        assert operands is not None
        a, b = operands
        steps = [outer * amount + i if count > 1 else rng.const_like(i) for i in range(amount)]
        parts = [substitute_open((a, b), {rng: step}) for step in steps]
        rows, columns = zip(*parts, strict=True)
        tile = WmmaMetadata("dot", (1, 1, amount), a.dtype, node.dtype, "", threads=1)
        zero = UOp.const(node.dtype, 0)
        dot = UOp.wmma(UOp.vectorize(*rows), UOp.vectorize(*columns), zero, tile)
        loops = [outer if other is rng else other for other in node.ended_ranges]
        if count == 1:
            loops.remove(outer)
        new[node] = UOp(Ops.REDUCE, node.dtype, (dot, *loops), node.arg) if loops else dot
    return sink.substitute(new)


def dot_operands(node: UOp) -> tuple[UOp, UOp] | None:
    """(a, b) where a REDUCE adds up products of scalars of one short dtype in a wider one: of
    CAST(a * b) and CAST(a) * CAST(b) alike, as short floats are multiplied in float32."""
    if node.op is not Ops.REDUCE or node.arg is not ReduceOp.ADD:
        return None
    (value, *_), wide = node.src, node.dtype
    if value.op is Ops.CAST and value.src[0].op is Ops.MUL and value.dtype.kind == "f":
        a, b = value.src[0].src
    elif value.op is Ops.MUL and all(source.op is Ops.CAST for source in value.src):
        a, b = (source.src[0] for source in value.src)
    else:
        return None
    short = a.dtype is b.dtype and a.dtype in _SHORT and a.dtype.count == 1
    exact = wide is dtypes.float32 if a.dtype.kind == "f" else wide is acc_dtype(a.dtype)
    return (a, b) if short and exact and value.dtype is wide else None


_SHORT = (dtypes.bfloat16, dtypes.float16, dtypes.int8, dtypes.uint8)
