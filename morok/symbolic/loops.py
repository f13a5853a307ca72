"""Loops and reductions that need not run, and gates that are decided.

A RANGE of one iteration is its first value; what then stands among the ranges that an op closes is
a constant and is dropped. A reduction over a range that its value does not depend on is arithmetic.
"""

from __future__ import annotations

from morok.dtype import cast_value
from morok.ir import Ops, Pat, ReduceOp, RuleSet, UOp, Var, ends_idle, node

x, y = Var("x"), Var("y")
_ = Var("_")

loops = RuleSet("loops")
gates = RuleSet("gates")

# fmt: off
loops.table([
    ("range_of_one",    node(Ops.RANGE, 1),     0),
    ("reduce_nothing",  node(Ops.REDUCE, x),    x),
    ("after_nothing",   node(Ops.AFTER, x),     x),
])
# fmt: on


@loops.opaque(
    Pat(Ops.REDUCE, (Pat(name="value"),), rest=True, name="root"),
    when=lambda root: ends_idle(root),
    pure=True,
)
def reduce_idle(root: UOp, value: UOp) -> UOp | None:
    """REDUCE(x, r) -> x * end for ADD, x for MAX and MIN, where x does not depend on r;
    constants among the ranges are dropped."""
    used = set(value.open_ranges)
    kept, factor = [], 1
    for r in root.src[1:]:
        if r.op is Ops.CONST:
            continue
        idle = r.op is Ops.RANGE and r not in used and r.src[0].op is Ops.CONST
        if not idle or root.arg is ReduceOp.MUL:
            kept.append(r)
        elif root.arg is ReduceOp.ADD:
            factor *= r.src[0].arg
    if len(kept) == len(root.src) - 1:
        return None
    inner = UOp(Ops.REDUCE, root.dtype, (value, *kept), root.arg) if kept else value
    if factor == 1 or root.dtype.kind not in "iufx":
        return inner if factor == 1 else None
    scaled = inner * UOp.const(root.dtype, cast_value(factor, root.dtype.scalar))
    # an accumulator starts at +0.0, so that a sum of -0.0 is +0.0
    return scaled + 0.0 if root.dtype.kind == "f" else scaled


@loops.opaque(
    Pat(
        Ops.REDUCE,
        (Pat(Ops.MUL, (Pat(name="a"), Pat(name="b"))),),
        rest=True,
        arg=ReduceOp.ADD,
        name="root",
    ),
    dtype="iux",
    pure=True,
)
def reduce_factor(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """REDUCE(x * y, r) -> REDUCE(x, r) * y where y does not depend on r (ints: they wrap alike)"""
    ended = set(root.src[1:])
    if ended.isdisjoint(a.open_ranges):
        a, b = b, a
    elif not ended.isdisjoint(b.open_ranges):
        return None
    return UOp(Ops.REDUCE, root.dtype, (a, *root.src[1:]), root.arg) * b


@loops.opaque(
    Pat(Ops.END, (Pat(name="value"),), rest=True, name="root"), need=(Ops.CONST,), pure=True
)
def end_idle(root: UOp, value: UOp) -> UOp | None:
    """END(x, 0) -> x: constants among the ranges are dropped"""
    kept = tuple(r for r in root.src[1:] if r.op is not Ops.CONST)
    if len(kept) == len(root.src) - 1:
        return None
    return root.replace(src=(value, *kept)) if kept else value


@loops.opaque(
    Pat(Ops.STORE, (Pat(name="index"), Pat(name="value")), rest=True, name="root"),
    need=(Ops.CONST,),
    pure=True,
)
def store_idle(root: UOp, index: UOp, value: UOp) -> UOp | None:
    """STORE(i, v, 0) -> STORE(i, v): constants among the ranges are dropped"""
    kept = tuple(r for r in root.src[2:] if r.op is not Ops.CONST)
    return None if len(kept) == len(root.src) - 2 else root.replace(src=(index, value, *kept))


gates.native("index.gate", name="index", ops=(Ops.INDEX,), need=(Ops.CONST,))

# fmt: off
gates.table([
    ("load_of_nothing", node(Ops.LOAD, _, node(Ops.CONST), y),      y),
])
# fmt: on


@gates.opaque(
    Pat(
        Ops.LOAD, (Pat(name="buffer"), Pat(Ops.INDEX, arg=False, name="index"), Pat()), name="root"
    ),
    pure=True,
)
def load_ungated(root: UOp, buffer: UOp, index: UOp) -> UOp:
    """LOAD(b, INDEX without gate, alt) -> LOAD(b, INDEX)"""
    return root.replace(src=(buffer, index))


@gates.opaque(Pat(Ops.STORE, (Pat(Ops.CONST),), rest=True, name="root"), pure=True)
def store_nowhere(root: UOp) -> UOp:
    """STORE(0, v) -> GROUP(): its INDEX had a gate that never holds"""
    return UOp(Ops.GROUP, root.dtype)


@gates.opaque(
    Pat({Ops.SINK, Ops.GROUP, Ops.AFTER, Ops.END}, (Pat(name="first"),), rest=True, name="root"),
    need=(Ops.GROUP,),
    pure=True,
)
def without_empty_groups(root: UOp, first: UOp) -> UOp | None:
    """SINK(GROUP(), s) -> SINK(s)"""
    empty = [source.op is Ops.GROUP and not source.src for source in root.src]
    if not any(empty):
        return None
    if root.op is Ops.END and empty[0]:
        return first
    kept = tuple(s for s, gone in zip(root.src, empty, strict=True) if not gone)
    return root.replace(src=kept)
