"""Identities: neutral and absorbing elements, an operand met twice, and chains of constants.

Rules of floats are those that hold for NaN, infinities and signed zeros: x + -0.0 and x * 1.0 are
x, but x + 0.0 is not (it turns -0.0 into 0.0), nor is x * 0.0 zero or x - x. Ints wrap, so their
constants are combined in wrapping arithmetic. Sums of `index` have a canonical form of their own
(`divmod`), so the rules of sums here are for fixed-width ints.
"""

from __future__ import annotations

import itertools
from typing import Final

from morok.ir import (
    Const,
    GroupOp,
    Ops,
    RuleSet,
    Term,
    Var,
    bits,
    highest,
    is_const,
    is_pow2,
    node,
    not_const,
    num,
    wrap,
)

x, y = Var("x"), Var("y")
_ = Var("_")
a, b = Var("a"), Var("b")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")

ROUNDINGS: Final = (Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND)

identity = RuleSet("identity")
chains = RuleSet("chains")


def absolute(of: object) -> Term:
    """ABS(of)"""
    return node(Ops.ABS, of)


# fmt: off
identity.table([
    ("add_zero",        x + 0,                          x),
    ("sub_zero",        x - 0,                          x),
    ("zero_sub",        node(Ops.SUB, 0, x),            -x),
    ("sub_self",        x - x,                          0),
    ("mul_zero",        _ * 0,                          0),
    ("floordiv_one",    x // 1,                         x),
    ("floormod_one",    _ % 1,                          0),
    ("idiv_one",        node(Ops.IDIV, x, 1),           x),
    ("mod_one",         node(Ops.MOD, _, 1),            0),
    ("zero_floordiv",   node(Ops.FLOORDIV, 0, _),       0),
    ("zero_floormod",   node(Ops.FLOORMOD, 0, _),       0),
    ("zero_idiv",       node(Ops.IDIV, 0, _),           0),
    ("zero_mod",        node(Ops.MOD, 0, _),            0),
    ("floormod_self",   x % x,                          0),
    ("mod_self",        node(Ops.MOD, x, x),            0),
    ("floordiv_self",   x // x,                         1,      (x.vmin > 0) | (x.vmax < 0)),
    ("idiv_self",       node(Ops.IDIV, x, x),           1,      (x.vmin > 0) | (x.vmax < 0)),
    ("shl_zero",        x << 0,                         x),
    ("shr_zero",        x >> 0,                         x),
    ("zero_shl",        node(Ops.SHL, 0, _),            0),
    ("zero_shr",        node(Ops.SHR, 0, _),            0),
    ("and_zero",        _ & 0,                          0),
    ("or_zero",         x | 0,                          x),
    ("xor_zero",        x ^ 0,                          x),
    ("xor_self",        x ^ x,                          0),
    ("abs_positive",    absolute(x),                    x,      x.vmin >= 0),
    ("abs_negative",    absolute(x),                    -x,     x.vmax <= 0),
    ("pow_zero",        node(Ops.POW, _, 0),            1),
    ("pow_one",         node(Ops.POW, x, 1),            x),
    ("pow_two",         node(Ops.POW, x, 2),            x * x),
    ("mulacc_add_zero", node(Ops.MULACC, x, y, 0),      x * y),
    ("mulacc_by_one",   node(Ops.MULACC, x, 1, y),      x + y),
    ("mulacc_by_zero",  node(Ops.MULACC, _, 0, y),      y),
    ("max_of_min",      x.maximum(x.minimum(_)),        x),
    ("min_of_max",      x.minimum(x.maximum(_)),        x),
], dtype="iux")

identity.table([
    ("and_minus_one",   x & -1,                         x),
    ("or_minus_one",    _ | -1,                         -1),
    ("xor_minus_one",   x ^ -1,                         ~x),
    ("mul_minus_one",   x * -1,                         -x),
], dtype="i")

identity.table([
    ("abs_unsigned",    absolute(x),                    x),
    ("and_ones",        x & c,                          x,      c.eq(highest(x))),
    ("xor_ones",        x ^ c,                          ~x,     c.eq(highest(x))),
], dtype="u")

identity.table([
    ("mul_one",         x * num(1),                     x),
    ("max_self",        x.maximum(x),                   x),
    ("min_self",        x.minimum(x),                   x),
], dtype="iufx")

identity.table([
    ("neg_neg",         node(Ops.NEG, -x),                      x),
    ("add_neg",         x + -y,                         x - y),
    ("sub_neg",         x - -y,                         x + y),
    ("mul_neg_neg",     -x * -y,                        x * y),
    ("abs_abs",         absolute(absolute(x)),          absolute(x)),
    ("square_neg",      node(Ops.SQUARE, -x),           node(Ops.SQUARE, x)),
    ("square_abs",      node(Ops.SQUARE, absolute(x)),  node(Ops.SQUARE, x)),
    ("sign_sign",       node(Ops.SIGN, node(Ops.SIGN, x)), node(Ops.SIGN, x)),
], dtype="iuf")

identity.table([
    ("abs_neg",         absolute(-x),                   absolute(x)),
], dtype="if")

identity.table([
    ("add_minus_zero",  x + -0.0,                       x),
    ("sub_plus_zero",   x - 0.0,                        x),
    ("minus_zero_sub",  node(Ops.SUB, -0.0, x),         -x),
    ("mul_minus_one_float", x * -1.0,                   -x),
    ("fdiv_one",        x / 1.0,                        x),
    ("fdiv_minus_one",  x / -1.0,                       -x),
    ("fdiv_neg_neg",    -x / -y,                        x / y),
], dtype="f")

identity.table([
    ("shr_index",       x >> c,                         x // (1 << c),  (c >= 0) & (c < 62)),
    ("mask_index",      x & c,                          x % (c + 1),    is_pow2(c + 1)),
], dtype="x")

identity.table([
    (f"{rounding.name.lower()}_of_int", node(rounding, x), x)
    for rounding in ROUNDINGS
], dtype="biux")

identity.table([
    (f"{outer.name.lower()}_{inner.name.lower()}", node(outer, node(inner, x)), node(inner, x))
    for outer, inner in itertools.product(ROUNDINGS, ROUNDINGS)
], dtype="f")

chains.table([
    ("add_add",         (x + c0) + c1,                  x + wrap(c0 + c1)),
    ("add_out",         (x + c) + y,                    (x + y) + c,            not_const(y)),
    ("mul_mul",         (x * c0) * c1,                  x * wrap(c0 * c1)),
    ("neg_mul",         -(x * c),                       x * wrap(-c)),
    ("neg_sub",         -(x - y),                       y - x),
    ("const_sub_add",   c0 - (x + c1),                  wrap(c0 - c1) - x),
    ("const_sub_sub",   c0 - (c1 - x),                  x + wrap(c0 - c1)),
    ("sub_const_add",   (c0 - x) + c1,                  wrap(c0 + c1) - x),
    ("double",          x + x,                          x * 2),
    ("add_term",        x + x * c,                      x * wrap(c + 1)),
    ("add_terms",       x * c0 + x * c1,                x * wrap(c0 + c1)),
    ("sub_term",        x * c - x,                      x * wrap(c - 1)),
    ("sub_multiple",    x - x * c,                      x * wrap(1 - c)),
    ("sub_terms",       x * c0 - x * c1,                x * wrap(c0 - c1)),
    ("sum_double",      (y + x) + x,                    y + x * 2),
    ("sum_add",         (y + x * c) + x,                y + x * wrap(c + 1)),
    ("sum_add_term",    (y + x) + x * c,                y + x * wrap(c + 1)),
    ("sum_add_terms",   (y + x * c0) + x * c1,          y + x * wrap(c0 + c1)),
    ("add_sub_same",    (x + y) - y,                    x),
    ("sub_add_same",    (x - y) + y,                    x),
    ("sub_same_sub",    x - (x - y),                    y),
    ("sub_same_add",    x - (x + y),                    -y),
    ("sub_sub_same",    (x - y) - x,                    -y),
], dtype="iu")

chains.table([
    ("sub_const",       x - c,                          x + wrap(-c)),
], dtype="i")

chains.table([
    ("sub_sub",         (x - c0) - c1,                  x - wrap(c0 + c1)),
    ("add_sub_less",    (x + c0) - c1,                  x + (c0 - c1),          c0 >= c1),
    ("add_sub_more",    (x + c0) - c1,                  x - (c1 - c0),          c0 < c1),
    ("sub_add_more",    (x - c0) + c1,                  x + (c1 - c0),          c1 >= c0),
    ("sub_add_less",    (x - c0) + c1,                  x - (c0 - c1),          c1 < c0),
], dtype="u")

chains.table([
    ("factor_out",      (x * c) * y,                    (x * y) * c,            not_const(y)),
    ("max_max",         x.maximum(c0).maximum(c1),      x.maximum(c0.maximum(c1))),
    ("min_min",         x.minimum(c0).minimum(c1),      x.minimum(c0.minimum(c1))),
    ("max_out",         x.maximum(c).maximum(y),        x.maximum(y).maximum(c), not_const(y)),
    ("min_out",         x.minimum(c).minimum(y),        x.minimum(y).minimum(c), not_const(y)),
], dtype="iux")

_BOTH_CONST = is_const(a) & is_const(b)

chains.table([
    ("and_and",         (x & a) & b,                    x & (a & b),            _BOTH_CONST),
    ("or_or",           (x | a) | b,                    x | (a | b),            _BOTH_CONST),
    ("xor_xor",         (x ^ a) ^ b,                    x ^ (a ^ b),            _BOTH_CONST),
], dtype="biux")

chains.table([
    ("shl_shl",         (x << c0) << c1,                x << (c0 + c1),
     (c0 >= 0) & (c1 >= 0) & (c0 + c1 < bits(x))),
    ("shl_shl_out",     (x << c0) << c1,                0,
     (c0 >= 0) & (c1 >= 0) & (c0 + c1 >= bits(x))),
], dtype="iu")

chains.table([
    ("shr_shr_signed",  (x >> c0) >> c1,                x >> (c0 + c1).minimum(bits(x) - 1),
     (c0 >= 0) & (c1 >= 0)),
], dtype="i")

chains.table([
    ("shr_shr",         (x >> c0) >> c1,                x >> (c0 + c1),
     (c0 >= 0) & (c1 >= 0) & (c0 + c1 < bits(x))),
    ("shr_shr_out",     (x >> c0) >> c1,                0,
     (c0 >= 0) & (c1 >= 0) & (c0 + c1 >= bits(x))),
], dtype="u")
# fmt: on

# index sums have an order of their own, see `divmod`
chains.native("order.commutative", name="order_add", ops=(Ops.ADD,), dtype="biu")
chains.native(
    "order.commutative",
    name="order",
    ops=GroupOp.Commutative - GroupOp.Comparison - {Ops.ADD},
    dtype="biux",
)
chains.native("order.commutative", name="order_equal", ops=(Ops.EQ, Ops.NE), dtype="b")
