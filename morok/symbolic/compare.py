"""Comparisons, and MAX and MIN that bounds decide.

Integer comparisons go through the affine primitive: decided by bounds, or brought to `sum < rest`
or `sum >= rest` with the constant on the right and common factors gone. What is said of floats is
true for NaN.
"""

from __future__ import annotations

from morok.ir import (
    Const,
    GroupOp,
    Ops,
    RuleSet,
    Var,
    bits,
    highest,
    kind,
    lowest,
    node,
    same_dtype,
    wrap,
)

x, y = Var("x"), Var("y")
c = Const("c")

compare = RuleSet("compare")

compare.native("affine.compare", name="affine", ops=GroupOp.Comparison, dtype="iux")
compare.native("affine.extreme", name="extreme", ops=(Ops.MAX, Ops.MIN), dtype="iux")

# fmt: off
compare.table([
    ("lt_self",         x < x,                          False),
    ("gt_self",         x > x,                          False),
], dtype="biufx")

compare.table([
    ("eq_true",         x.eq(True),                     x),
    ("eq_false",        x.eq(False),                    ~x),
    ("ne_true",         x.ne(True),                     ~x),
    ("ne_false",        x.ne(False),                    x),
    ("eq_self",         x.eq(x),                        True),
    ("ne_self",         x.ne(x),                        False),
    ("le_self",         x <= x,                         True),
    ("ge_self",         x >= x,                         True),
    ("lt_bool",         x < y,                          ~x & y),
    ("gt_bool",         x > y,                          x & ~y),
    ("le_bool",         x <= y,                         ~x | y),
    ("ge_bool",         x >= y,                         x | ~y),
], dtype="b")

compare.table([
    ("bool_set",        x.cast() >= 1,                  x,          kind(x, "b")),
    ("bool_clear",      x.cast() < 1,                   ~x,         kind(x, "b")),
    ("bool_eq_one",     x.cast().eq(1),                 x,          kind(x, "b")),
    ("bool_eq_zero",    x.cast().eq(0),                 ~x,         kind(x, "b")),
    ("bool_ne_one",     x.cast().ne(1),                 ~x,         kind(x, "b")),
    ("bool_ne_zero",    x.cast().ne(0),                 x,          kind(x, "b")),
], dtype="iux")

compare.table([
    ("bool_set_float",  x.cast().ne(0.0),               x,          kind(x, "b")),
    ("bool_clear_float", x.cast().eq(0.0),              ~x,         kind(x, "b")),
], dtype="f")
# fmt: on

# LE and GT of ints have become LT and GE
for _op in (Ops.LT, Ops.GE, Ops.EQ, Ops.NE):
    _name, _left, _right = _op.name.lower(), x.cast(), y.cast()
    _signed = kind(x, "i") & (bits(x) <= bits(_left)) | kind(x, "u") & (bits(x) < bits(_left))
    _unsigned = kind(x, "u") & (bits(x) <= bits(_left))
    _fits = (lowest(x) <= c) & (c <= highest(x))
    for _kinds, _widens in (("ix", _signed), ("u", _unsigned)):
        _place = "signed" if _kinds == "ix" else "unsigned"
        # fmt: off
        compare.table([
            (f"{_name}_widened_{_place}", node(_op, _left, _right), node(_op, x, y),
             (same_dtype(x, y), _widens)),
            (f"{_name}_widened_{_place}_const", node(_op, _left, c), node(_op, x, wrap(c + 0)),
             (_widens, _fits)),
        ], dtype=_kinds)
        # fmt: on
