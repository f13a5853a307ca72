"""Stages 15 and 16: index arithmetic gets a machine width.

15  lower_index_dtype     dtype `index` -> int32 where bounds prove it, else int64
16  post_index_symbolic   simplify what is now ordinary integer arithmetic
"""

from __future__ import annotations

from morok._core import rebuild, toposort
from morok.codegen.expander import pm_move_where_on_load
from morok.codegen.lanes import splat
from morok.dtype import DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import GroupOp, Invalid, Ops, UOp, graph_rewrite
from morok.symbolic import symbolic

__all__ = ["lower_index_dtype", "post_index_symbolic"]

_TRUNCATING = {Ops.FLOORDIV: Ops.IDIV, Ops.FLOORMOD: Ops.MOD}
_INT32 = range(-(1 << 31), 1 << 31)


def lower_index_dtype(sink: UOp) -> UOp:
    """Stage 15. Goal: positions are machine integers, as narrow as their bounds allow.

    Before: ranges, variables and positions have dtype `index`, whose arithmetic never overflows.
    After: none has. A node is int32 when it and its operands provably fit, int64 otherwise; floor
    division of numbers that cannot be negative is the truncating one; an index that is Invalid
    where c is false is gated by c. InvalidGraphError when Invalid is left anywhere else.
    """
    order = toposort(sink)
    if any(node.op is Ops.INDEX and _may_be_invalid(node) for node in order):
        sink = graph_rewrite(sink, pm_move_where_on_load, name="invalid positions")
        order = toposort(sink)
    ops = {node.op for node in order if node.dtype.kind == "x"}
    visit = {
        **dict.fromkeys(GroupOp.Comparison, _comparison),
        Ops.CAST: _cast_node,
        Ops.LOAD: _load,
    }
    done: UOp = rebuild(sink, {**visit, **dict.fromkeys(ops, _any_op)})
    return done


def _may_be_invalid(index: UOp) -> bool:
    """Whether an INDEX has a position that its own condition chooses, or a gate that is none."""
    return index.src[1].op is Ops.WHERE or (index.arg and index.src[-1].vmin == 1)


def _any_op(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """An op that index arithmetic uses, of whatever dtype it is here."""
    if node.dtype.kind == "x":
        return _lowered(node, list(src))
    if node.op is Ops.CAST:
        return _cast_node(node, src)
    return UOp(node.op, node.dtype, src, node.arg)


def _comparison(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if node.src[0].dtype.kind == "x":
        src = tuple(_alike(list(src)))
    return UOp(node.op, node.dtype, src, node.arg)


def _cast_node(node: UOp, src: tuple[UOp, ...]) -> UOp:
    same = src[0].dtype is node.dtype
    return src[0] if same else UOp(node.op, node.dtype, src, node.arg)


def _load(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """The LOAD with an alternative exactly when its INDEX has a gate."""
    if not src[1].arg:
        src = src[:2]
    elif len(src) == 2:
        src = (*src, splat(UOp.const(node.dtype.scalar, 0), node.dtype.count))
    return UOp(node.op, node.dtype, src)


def _width(node: UOp) -> DType:
    """The narrower of int32 and int64 that holds `node` whatever its operands."""
    low, high = node.vmin, node.vmax
    fits = low is not None and high is not None and low in _INT32 and high in _INT32
    return dtypes.int32 if fits else dtypes.int64


def _lowered(node: UOp, src: list[UOp]) -> UOp:
    dtype = _width(node)
    match node.op:
        case Ops.CONST if node.arg is Invalid:
            raise InvalidGraphError(
                "an Invalid position is used outside the index of a read",
                node=node,
                stage="lower index dtype",
            )
        case Ops.CONST:
            return UOp.const(dtype, node.arg)
        case Ops.CAST:
            dtype = dtype.vec(node.dtype.count)
            return src[0] if src[0].dtype is dtype else UOp(Ops.CAST, dtype, tuple(src))
        case Ops.WHERE:
            src = [src[0], *_alike(src[1:], dtype)]
            return UOp(node.op, src[1].dtype, tuple(src))
        case Ops.RANGE:
            end = _cast(src[0], dtype)
            return UOp(node.op, dtype, (end, *src[1:]), node.arg)
        case Ops.SPECIAL:
            return UOp(node.op, dtype, (_cast(src[0], dtype),), node.arg)
        case Ops.DEFINE_VAR | Ops.VCONST:
            return UOp(node.op, dtype.vec(node.dtype.count), (), node.arg)
        case Ops.BIND:
            return UOp(node.op, src[0].dtype, (src[0], _cast(src[1], src[0].dtype)), node.arg)
        case Ops.GEP:
            return UOp(node.op, src[0].dtype.scalar.vec(node.dtype.count), tuple(src), node.arg)
    op = node.op
    if op in _TRUNCATING and _not_negative(node.src[0]) and (node.src[1].vmin or 0) > 0:
        op = _TRUNCATING[op]
    src = _alike(src, dtype)
    made = UOp(op, src[0].dtype.scalar.vec(node.dtype.count), tuple(src), node.arg)
    # The terms of a sum have another order as integers: had stage 16 to put them right, all that is
    # above were built once more.
    return graph_rewrite(made, symbolic) if op is Ops.ADD else made


def _not_negative(node: UOp) -> bool:
    return node.vmin is not None and node.vmin >= 0


def _alike(src: list[UOp], at_least: DType = dtypes.int32) -> list[UOp]:
    """All operands in the widest of their dtypes and `at_least`."""
    wide = max([at_least, *[s.dtype.scalar for s in src]], key=lambda dtype: dtype.bits)
    return [_cast(source, wide) for source in src]


def _cast(value: UOp, scalar: DType) -> UOp:
    dtype = scalar.vec(value.dtype.count)
    if value.dtype is dtype:
        return value
    if value.op is Ops.CONST:
        return UOp.const(scalar, value.arg)
    if value.op is Ops.VCONST:
        return UOp(Ops.VCONST, dtype, (), value.arg)
    return UOp(Ops.CAST, dtype, (value,))


def post_index_symbolic(sink: UOp) -> UOp:
    """Stage 16. Goal: no work is left that the machine widths made visible.

    Before and after: concrete integers; `symbolic` has nothing more to say afterwards.
    """
    return graph_rewrite(sink, symbolic, name="post-index symbolic")
