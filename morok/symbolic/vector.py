"""Lanes: GEP, VECTORIZE, CAT and vector constants."""

from __future__ import annotations

from typing import Final

from morok.ir import GroupOp, Ops, Pat, RuleSet, UOp, Var, node, same_dtype
from morok.symbolic.fold import constant_of, lane_values

vector = RuleSet("vector")
lanes = RuleSet("lanes")

GATHERED: Final = frozenset({Ops.VECTORIZE, Ops.VCONST, Ops.CONST, Ops.CAT})
"""Ops whose lanes cost nothing to take."""
ELEMENTWISE: Final = GroupOp.ALU | {Ops.CAST}


def lane(of: UOp, index: int) -> UOp | None:
    """Lane `index` of a node as it stands in the graph or as a constant; None otherwise."""
    if of.dtype.count == 1:
        return of
    if of.op is Ops.VECTORIZE:
        found: UOp = of.src[index]
        return found
    if of.op is Ops.VCONST:
        return UOp.const(of.dtype.scalar, of.arg[index])
    if of.op is Ops.CAT:
        for part in of.src:
            if index < part.dtype.count:
                return lane(part, index)
            index -= part.dtype.count
    return None


def take(of: UOp, indices: tuple[int, ...]) -> UOp:
    """Lanes `indices` of a node: GEP; of a scalar, itself or all lanes the same."""
    if of.dtype.count == 1:
        return of if len(indices) == 1 else broadcast(of, len(indices))
    scalar = of.dtype.scalar
    return UOp(Ops.GEP, scalar if len(indices) == 1 else scalar.vec(len(indices)), (of,), indices)


def broadcast(of: UOp, count: int) -> UOp:
    """A scalar in every one of `count` lanes."""
    return UOp(Ops.VECTORIZE, of.dtype.vec(count), (of,) * count)


def gather(parts: list[UOp]) -> UOp:
    """Scalars as one vector; one scalar as itself."""
    if len(parts) == 1:
        return parts[0]
    return UOp(Ops.VECTORIZE, parts[0].dtype.vec(len(parts)), tuple(parts))


x = Var("x")

vector.table(
    [
        ("vectorize_of_one", node(Ops.VECTORIZE, x), x),
        ("cat_of_one", node(Ops.CAT, x), x),
    ]
)


@vector.opaque(Pat(Ops.GEP, (Pat(GATHERED, name="v"),), name="g"), pure=True)
def gep_of_gathered(g: UOp, v: UOp) -> UOp | None:
    """GEP(VECTORIZE(a, b, c), [0, 2]) -> VECTORIZE(a, c)"""
    found = [lane(v, index) for index in g.arg]
    parts = [part for part in found if part is not None]
    return gather(parts) if len(parts) == len(found) else None


@vector.opaque(Pat(Ops.GEP, (Pat(Ops.GEP, (Pat(name="v"),), name="inner"),), name="g"), pure=True)
def gep_of_gep(g: UOp, inner: UOp, v: UOp) -> UOp:
    """GEP(GEP(v, [3, 1]), [1]) -> GEP(v, [1])"""
    return take(v, tuple(inner.arg[index] for index in g.arg))


@vector.opaque(
    Pat(Ops.GEP, (Pat(name="v"),), name="g"), when=lambda g, v: same_dtype(g, v), pure=True
)
def gep_of_all(g: UOp, v: UOp) -> UOp | None:
    """GEP(v, [0, 1, 2, 3]) -> v for a v of four lanes; GEP(x, [0]) -> x for a scalar"""
    return v if g.arg == tuple(range(v.dtype.count)) else None


@vector.opaque(Pat(Ops.GEP, (Pat(ELEMENTWISE, name="alu"),), name="g"), pure=True)
def gep_of_elementwise(g: UOp, alu: UOp) -> UOp | None:
    """GEP(VECTORIZE(x, y) + VCONST(1, 2), [1]) -> y + 2, where lanes of the operands are free"""
    if not all(source.dtype.count == 1 or source.op in GATHERED for source in alu.src):
        return None
    return UOp(alu.op, g.dtype, tuple(take(source, g.arg) for source in alu.src), alu.arg)


@vector.opaque(Pat(Ops.VECTORIZE, (Pat(Ops.CONST, name="first"),), rest=True, name="v"), pure=True)
def vectorize_of_constants(v: UOp, first: UOp) -> UOp | None:
    """VECTORIZE(1, 2) -> VCONST(1, 2)"""
    values = lane_values(v)
    return None if values is None or len(values) == 1 else constant_of(v.dtype, values)


@vector.opaque(
    Pat(Ops.VECTORIZE, (Pat(Ops.GEP, (Pat(name="of"),)),), rest=True, name="v"), pure=True
)
def vectorize_of_geps(v: UOp, of: UOp) -> UOp | None:
    """VECTORIZE(GEP(x, [2]), GEP(x, [0])) -> GEP(x, [2, 0])"""
    return _lanes_of_one(v, of)


@vector.opaque(Pat(Ops.CAT, (Pat(Ops.GEP, (Pat(name="of"),)),), rest=True, name="v"), pure=True)
def cat_of_geps(v: UOp, of: UOp) -> UOp | None:
    """CAT(GEP(x, [0, 1]), GEP(x, [2, 3])) -> GEP(x, [0, 1, 2, 3])"""
    return _lanes_of_one(v, of)


def _lanes_of_one(v: UOp, of: UOp) -> UOp | None:
    if not all(part.op is Ops.GEP and part.src[0] is of for part in v.src):
        return None
    return take(of, tuple(index for part in v.src for index in part.arg))


@vector.opaque(
    Pat(Ops.CAT, (Pat({Ops.VECTORIZE, Ops.VCONST, Ops.CONST}, name="first"),), rest=True, name="v"),
    pure=True,
)
def cat_of_gathered(v: UOp, first: UOp) -> UOp | None:
    """CAT(VECTORIZE(a, b), VCONST(1, 2)) -> VECTORIZE(a, b, 1, 2)"""
    found = [lane(part, index) for part in v.src for index in range(part.dtype.count)]
    parts = [part for part in found if part is not None]
    return gather(parts) if len(parts) == len(found) else None


@vector.opaque(Pat(Ops.CAT, (Pat(Ops.CAT, name="first"),), rest=True, name="v"), pure=True)
def cat_of_cat(v: UOp, first: UOp) -> UOp:
    """CAT(CAT(a, b), c) -> CAT(a, b, c)"""
    return v.replace(src=(*first.src, *v.src[1:]))


# The same value in every lane is computed once.


def _uniform(of: UOp) -> UOp | None:
    """The scalar that all lanes hold, or None."""
    if of.dtype.count == 1:
        return of
    if of.op is Ops.VECTORIZE and all(part is of.src[0] for part in of.src):
        return lane(of, 0)
    values = lane_values(of) if of.op is Ops.VCONST else None
    if values and all(UOp.const(of.dtype.scalar, v) is lane(of, 0) for v in values):
        return lane(of, 0)
    return None


def _once(root: UOp) -> UOp | None:
    scalars = [_uniform(source) for source in root.src]
    found = tuple(scalar for scalar in scalars if scalar is not None)
    if root.dtype.count == 1 or len(found) != len(scalars):
        return None
    return broadcast(UOp(root.op, root.dtype.scalar, found, root.arg), root.dtype.count)


@lanes.opaque(Pat(ELEMENTWISE, (Pat(Ops.VECTORIZE, name="a"),), name="root"), pure=True)
def uniform_unary(root: UOp, a: UOp) -> UOp | None:
    """-VECTORIZE(x, x) -> VECTORIZE(-x, -x)"""
    return _once(root)


@lanes.opaque(
    Pat(GroupOp.Binary, (Pat(Ops.VECTORIZE, name="a"), Pat(GATHERED, name="b")), name="root"),
    pure=True,
)
def uniform_binary(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """VECTORIZE(x, x) + VECTORIZE(y, y) -> VECTORIZE(x + y, x + y)"""
    return _once(root)


@lanes.opaque(
    Pat(GroupOp.Binary, (Pat(Ops.VCONST, name="a"), Pat(Ops.VECTORIZE, name="b")), name="root"),
    pure=True,
)
def uniform_binary_const(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """VCONST(1, 1) - VECTORIZE(y, y) -> VECTORIZE(1 - y, 1 - y)"""
    return _once(root)


_THREE: Final = (Pat(GATHERED, name="a"), Pat(GATHERED, name="b"), Pat(GATHERED, name="d"))


@lanes.opaque(Pat(GroupOp.Ternary, _THREE, name="root"), pure=True)
def uniform_ternary(root: UOp, a: UOp, b: UOp, d: UOp) -> UOp | None:
    """WHERE(VECTORIZE(c, c), VECTORIZE(x, x), VCONST(0, 0)) -> one WHERE in every lane"""
    return _once(root)
