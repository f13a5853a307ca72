"""WHERE: decided conditions, equal arms, truth values, nested and combined WHEREs."""

from __future__ import annotations

from typing import Final

from morok.ir import GroupOp, Ops, RuleSet, Var, is_const, kind, node

x, y, z, w = Var("x"), Var("y"), Var("z"), Var("w")
p, q = Var("p"), Var("q")
_, _y = Var("_"), Var("_y")

where = RuleSet("where")

# fmt: off
where.table([
    ("same_arms",       _.where(x, x),                  x),
    ("yes_same",        p.where(p.where(x, _), z),      p.where(x, z)),
    ("no_same",         p.where(x, p.where(_, z)),      p.where(x, z)),
    ("nested_and",      p.where(q.where(x, y), y),      (p & q).where(x, y)),
    ("nested_and_not",  p.where(q.where(y, x), y),      (p & ~q).where(x, y)),
    ("nested_or",       p.where(x, q.where(x, y)),      (p | q).where(x, y)),
    ("nested_or_not",   p.where(x, q.where(y, x)),      (p | ~q).where(x, y)),
    ("and_inside_yes",  p.where((p & q).where(x, y), z), p.where(q.where(x, y), z)),
    ("and_inside_no",   p.where(x, (p & _).where(_y, z)), p.where(x, z)),
    ("or_inside_yes",   p.where((p | _).where(x, _y), z), p.where(x, z)),
    ("or_inside_no",    p.where(x, (p | q).where(y, z)), p.where(x, q.where(y, z))),
])

where.table([
    ("not",             (~p).where(x, y),               p.where(y, x)),
], dtype="biuf")
# Invalid, which has no bounds, stays the second arm
where.table([
    ("not_index",       (~p).where(x, y),               p.where(y, x),  y.vmin <= y.vmax),
], dtype="x")

where.table([
    ("to_condition",    p.where(True, False),           p),
    ("to_negation",     p.where(False, True),           ~p),
    ("to_and",          p.where(x, False),              p & x),
    ("to_or",           p.where(True, x),               p | x),
    ("to_and_not",      p.where(False, x),              ~p & x),
    ("to_or_not",       p.where(x, True),               ~p | x),
], dtype="b")

where.table([
    ("to_max",          (x < y).where(y, x),            x.maximum(y)),
    ("to_min",          (x < y).where(x, y),            x.minimum(y)),
    ("to_max_ge",       (x >= y).where(x, y),           x.maximum(y)),
    ("to_min_ge",       (x >= y).where(y, x),           x.minimum(y)),
    ("times_mask",      p.where(x, 0) * y,              p.where(x * y, 0)),
    ("times_mask_not",  p.where(0, x) * y,              p.where(0, x * y)),
    ("times_truth",     p.cast() * y,                   p.where(y, 0),      kind(p, "b")),
], dtype="iux")
# fmt: on

COMBINED: Final = sorted(GroupOp.Binary - GroupOp.Comparison - {Ops.THREEFRY, Ops.POW})
"""Ops that go into the arms of WHEREs, where they meet constants."""

_ARMS: Final = (is_const(x), is_const(y), is_const(z))

for _op in COMBINED:
    _pairs = (is_const(x) & is_const(z)) | (is_const(y) & is_const(w))
    # fmt: off
    where.table([
        (f"{_op.name.lower()}_of_both", node(_op, p.where(x, y), p.where(z, w)),
         p.where(node(_op, x, z), node(_op, y, w)), _pairs),
    ])
    # fmt: on

for _op in (*COMBINED, *sorted(GroupOp.Comparison)):
    # fmt: off
    where.table([
        (f"{_op.name.lower()}_const", node(_op, p.where(x, y), z),
         p.where(node(_op, x, z), node(_op, y, z)), _ARMS),
    ])
    if _op not in GroupOp.Commutative:
        where.table([
            (f"{_op.name.lower()}_by_const", node(_op, z, p.where(x, y)),
             p.where(node(_op, z, x), node(_op, z, y)), _ARMS),
        ])
    # fmt: on

for _op in (Ops.NEG, Ops.NOT, Ops.ABS):
    where.table(
        [
            (
                f"{_op.name.lower()}_of_consts",
                node(_op, p.where(x, y)),
                p.where(node(_op, x), node(_op, y)),
                (is_const(x), is_const(y)),
            )
        ]
    )
