"""Invalid: the index of a position that padding made unreachable, carried outward.

WHERE(valid, i, Invalid) says that what is computed from i matters only where `valid` holds. The
rules lift the condition out of index arithmetic so that it reaches the INDEX as its gate. They
stand before all others: x * 0 would lose it. A comparison or a cast of such an index leaves the
world of addresses; in the lanes that do not matter it may say anything, so there the condition is
dropped.
"""

from __future__ import annotations

from typing import Final

from morok.ir import GroupOp, Invalid, Ops, RuleSet, Var, node

x, y = Var("x"), Var("y")
p, q = Var("p"), Var("q")
_ = Var("_")

invalid = RuleSet("invalid")

_INVALID: Final = node(Ops.CONST, arg=Invalid)
_CAST: Final = p.where(x, _INVALID).cast()
_OPS: Final = sorted(GroupOp.Binary - GroupOp.Comparison - {Ops.FDIV, Ops.POW, Ops.THREEFRY})

for _op in _OPS:
    _name = _op.name.lower()
    # fmt: off
    invalid.table([
        (f"{_name}_left", node(_op, p.where(x, _INVALID), y),
         p.where(node(_op, x, y), _INVALID)),
        (f"{_name}_of_invalid", node(_op, _INVALID, _), _INVALID),
    ], dtype="x")
    if _op not in GroupOp.Commutative:
        invalid.table([
            (f"{_name}_right", node(_op, y, p.where(x, _INVALID)),
             p.where(node(_op, y, x), _INVALID)),
            (f"{_name}_by_invalid", node(_op, _, _INVALID), _INVALID),
        ], dtype="x")
    # fmt: on

for _op in sorted(GroupOp.Comparison):
    # fmt: off
    invalid.table([
        (f"{_op.name.lower()}_left", node(_op, _.where(x, _INVALID), y), node(_op, x, y)),
    ], dtype="x")
    if _op not in GroupOp.Commutative:
        invalid.table([
            (f"{_op.name.lower()}_right", node(_op, y, _.where(x, _INVALID)), node(_op, y, x)),
        ], dtype="x")
    # fmt: on

# fmt: off
invalid.table([
    ("neg",             -p.where(x, _INVALID),                  p.where(-x, _INVALID)),
    ("both",            _.where(_INVALID, _INVALID),            _INVALID),
    ("where_where",     p.where(q.where(x, _INVALID), _INVALID), (p & q).where(x, _INVALID)),
    ("invalid_first",   p.where(_INVALID, x),                   (~p).where(x, _INVALID)),
    ("where_yes",       p.where(q.where(x, _INVALID), y),
     (~p | q).where(p.where(x, y), _INVALID)),
    ("where_no",        p.where(y, q.where(x, _INVALID)),
     (p | q).where(p.where(y, x), _INVALID)),
], dtype="x")
invalid.table([
    ("cast",            _CAST,                                  x.cast(_CAST.dtype)),
])
# fmt: on
