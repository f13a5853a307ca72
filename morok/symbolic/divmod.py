"""Sums, quotients and remainders of integers.

Index sums are put into one canonical order by the affine primitive of the core, which alone does
so; its division rules find the witness numerator = g*q + r, 0 <= r < g, and check it (congruence,
common factors, nesting, exact division). In fixed-width ints they speak where bounds exclude
wrapping.
"""

from __future__ import annotations

from typing import Final

from morok.ir import Const, Ops, RuleSet, Var, node

x, y = Var("x"), Var("y")
c = Const("c")

divmod_ = RuleSet("divmod")

SUMS: Final = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL)

divmod_.native("affine.sum", name="sum", ops=SUMS, dtype="x")
divmod_.native(
    "affine.floordiv", name="div", ops=(Ops.FLOORDIV, Ops.IDIV), need=(Ops.CONST,), dtype="iux"
)
divmod_.native(
    "affine.floormod", name="mod", ops=(Ops.FLOORMOD, Ops.MOD), need=(Ops.CONST,), dtype="iux"
)
divmod_.native("affine.floordiv_by_node", name="div_by_node", ops=(Ops.FLOORDIV,), dtype="x")
divmod_.native("affine.floormod_by_node", name="mod_by_node", ops=(Ops.FLOORMOD,), dtype="x")

# fmt: off
divmod_.table([
    ("recombine",       (x // c) * c + x % c,           x,          c.ne(0)),
    ("recombine_sum",   (y + (x // c) * c) + x % c,     y + x,      c.ne(0)),
    ("recombine_rest",  (y + x % c) + (x // c) * c,     y + x,      c.ne(0)),
    ("remainder",       x - (x // c) * c,               x % c,      c.ne(0)),
    ("recombine_trunc", node(Ops.IDIV, x, c) * c + node(Ops.MOD, x, c), x, c.ne(0)),
    ("remainder_trunc", x - node(Ops.IDIV, x, c) * c,   node(Ops.MOD, x, c), c.ne(0)),
    ("floordiv_minus_one", x // -1,                     -x),
    ("idiv_minus_one",  node(Ops.IDIV, x, -1),          -x),
    ("mod_idempotent",  (x % c) % c,                    x % c),
], dtype="iu")

divmod_.table([
    ("recombine_nodes", (x // y) * y + x % y,           x,          (y.vmin > 0) | (y.vmax < 0)),
], dtype="iux")
# fmt: on
