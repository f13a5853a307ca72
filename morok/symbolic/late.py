"""Late rules: what a target may want once no other rule looks at the arithmetic any more.

They undo what simplification prefers (a product for a shift, `<` for `>=`), so they belong to no
set that the earlier stages run. Stage 18, which knows the target, runs them: arithmetic in terms of
shifts and masks for every target, `negations` where it lacks a comparison, `multiply_add` in
accumulators where it has MULACC.
"""

from __future__ import annotations

from typing import Final

from morok.ir import Const, Ops, RuleSet, Term, Var, bits, highest, is_pow2, log2, node, not_const

x, y, z = Var("x"), Var("y"), Var("z")
c = Const("c")

shifts: Final = RuleSet("shifts")
"""Division and remainder by powers of two. Products stay: every compiler knows what they cost, and
finds the steps of addresses in them more easily than in shifts."""
reciprocals: Final = RuleSet("reciprocals")
"""Division of a number that is not negative by another constant, as a product and a shift."""
multiply_add: Final = RuleSet("multiply_add")
"""MULACC of ints, which have nothing to round, so that it may be anywhere."""
logic: Final = RuleSet("logic")
"""Arithmetic on bools, and comparisons of them, as AND, OR, XOR and NOT."""
negations: Final = RuleSet("negations")
"""Comparisons in terms of LT and EQ."""

# fmt: off
shifts.table([
    ("floordiv",        x // c,                     x >> log2(c),           is_pow2(c)),
    ("floormod",        x % c,                      x & (c - 1),            is_pow2(c)),
], dtype="iu")

shifts.table([
    ("idiv",            node(Ops.IDIV, x, c),       x >> log2(c),           is_pow2(c)),
    ("mod",             node(Ops.MOD, x, c),        x & (c - 1),            is_pow2(c)),
], dtype="u")
shifts.table([
    ("idiv_natural",    node(Ops.IDIV, x, c),       x >> log2(c),       (is_pow2(c), x.vmin >= 0)),
    ("mod_natural",     node(Ops.MOD, x, c),        x & (c - 1),        (is_pow2(c), x.vmin >= 0)),
], dtype="i")
# fmt: on


def _by_product(divide: Ops, rest: bool) -> tuple[Term, Term, tuple[Term, ...]]:
    """x / c -> (x * m) >> s  with  m = 2**s / c + 1; the rest: x less c times that.

    m*c = 2**s + e with 0 < e <= c; the quotient is exact while e * x < 2**s, and the product has
    to fit (T. Granlund, P. Montgomery, "Division by invariant integers using multiplication",
    PLDI 1994, theorem 4.2, for a word twice as wide as the number).
    """
    shift = bits(x) // 2
    whole = 1 << shift
    factor = whole // c + 1
    fits = factor * x.vmax <= highest(x)
    exact = (factor * c - whole) * x.vmax < whole
    quotient = (x * factor) >> shift
    right = x - quotient * c if rest else quotient
    return node(divide, x, c), right, (c > 1, x.vmin >= 0, fits, exact)


reciprocals.table(
    [
        ("floordiv", *_by_product(Ops.FLOORDIV, rest=False)),
        ("floormod", *_by_product(Ops.FLOORMOD, rest=True)),
        ("idiv", *_by_product(Ops.IDIV, rest=False)),
        ("mod", *_by_product(Ops.MOD, rest=True)),
    ],
    dtype="iu",
)

# fmt: off
multiply_add.table([
    ("fuse",            x * y + z,                  node(Ops.MULACC, x, y, z), not_const(z)),
], dtype="iu")

logic.table([
    ("add",             x + y,                      x | y),
    ("mul",             x * y,                      x & y),
    ("max",             x.maximum(y),               x | y),
    ("min",             x.minimum(y),               x & y),
    ("lt",              x < y,                      ~x & y),
    ("le",              x <= y,                     ~x | y),
    ("gt",              x > y,                      x & ~y),
    ("ge",              x >= y,                     x | ~y),
    ("eq",              x.eq(y),                    ~(x ^ y)),
    ("ne",              x.ne(y),                    x ^ y),
], dtype="b")

negations.table([
    ("ge",              x >= y,                     ~(x < y)),
    ("le",              x <= y,                     ~(y < x)),
    ("gt",              x > y,                      y < x),
    ("ne",              x.ne(y),                    ~x.eq(y)),
], dtype="biux")
negations.table([
    ("gt_float",        x > y,                      y < x),
    ("le_float",        x <= y,                     (x < y) | x.eq(y)),
    ("ge_float",        x >= y,                     (y < x) | x.eq(y)),
    ("ne_float",        x.ne(y),                    ~x.eq(y)),
], dtype="f")
# fmt: on

late: Final = shifts + reciprocals + multiply_add + logic + negations
"""All late rules, for the prover and for people; it is no set to run as a whole."""
