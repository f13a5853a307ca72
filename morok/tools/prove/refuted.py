"""Plausible rules that are wrong. `prove` has to refute every one of them.

Each was nearly right: true of another division, without wrapping, without NaN or signed zeros, for
positive numbers, or where nothing is undefined.
"""

from __future__ import annotations

from typing import Final

from morok.dtype import dtypes
from morok.ir import (
    Const,
    Invalid,
    Ops,
    RuleSet,
    Term,
    Var,
    bits,
    divides,
    kind,
    node,
    num,
    same_dtype,
    wrap,
)

x, y, z = Var("x"), Var("y"), Var("z")
p, q = Var("p"), Var("q")
_, _y = Var("_"), Var("_y")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")

WRONG: Final = RuleSet("wrong")
"""The must-be-refuted list."""


def idiv(a: object, b: object) -> Term:
    return node(Ops.IDIV, a, b)


def mod(a: object, b: object) -> Term:
    return node(Ops.MOD, a, b)


_ONCE: Final = x.cast()
_TWICE: Final = _ONCE.cast()
_INVALID: Final = node(Ops.CONST, arg=Invalid, dtype=dtypes.index)

# fmt: off
# Positions: unbounded integers.
WRONG.table([
    ("split_quotient",      (x + y) // c,               x // c + y // c,        c > 0),
    ("mod_of_larger",       (x % c1) % c0,              x % c0,                 (c0 > 0, c0 < c1)),
    ("factor_remainder",    (x * c0) % c1,              (x % (c1 // c0)) * c0,  (c0 > 1, c1 > 0)),
    ("nested_any_sign",     (x // c0) // c1,          x // (c0 * c1),         (c0.ne(0), c1.ne(0))),
    ("nested_first_sign",   (x // c0) // c1,            x // (c0 * c1),         (c0 > 0, c1.ne(0))),
    ("quotient_of_rest",    (x % c0) // c1,             (x // c1) % (c0 // c1), (c0 > 0, c1 > 0)),
    ("small_rest",          x % c,                    x,                      (c > 0, x.vmax < c)),
    ("small_quotient",      x // c,                   0,                      (c > 0, x.vmax < c)),
    ("scaled_comparison",   x * c < y * c,              x < y,                  c >= 0),
    ("multiplied_back",     (x // c) * c,               x,                      c > 0),
    ("self_quotient",       x // _,                     1,                      x.vmin >= 0),
    ("cancel_no_multiple",  (x * c0) // c1,             x // (c1 // c0),        (c0 > 0, c1 > 0)),
    ("cancel_remainder",    (x * c0) % c1,              x % (c1 // c0),
     (c0 > 1, c1 > 0, divides(c0, c1))),
    ("floor_of_negative",   x // c,                     -(-x // c),             c > 0),
    ("shift_of_sum",        (x + 1) >> 1,               x >> 1),
    ("compare_quotients",   x // c < y,                 x < y * c,              c.ne(0)),
    ("twenty_over_two",     (x % 20) // 2 * 2 % 4,      x % 4),
], dtype="x")
# The other division: truncating where floor is right, and the reverse.
WRONG.table([
    ("mod_is_floormod",     mod(x, c),                  x % c,                  c > 0),
    ("idiv_is_floordiv",    idiv(x, c),                 x // c,                 c > 0),
    ("idiv_is_shift",       idiv(x, 2),                 x >> 1),
    ("mod_is_mask",         mod(x, 8),                  x & 7),
    ("recombine_mixed",     (x // c) * c + mod(x, c),   x,                      c.ne(0)),
    ("idiv_of_sum",         idiv(x * c + y, c),         x + idiv(y, c),         c > 0),
    ("mod_of_negated",      mod(-x, c),                 mod(x, c),              c > 0),
], dtype="i")
# Fixed widths wrap.
WRONG.table([
    ("cancel_product",      (x * c) // c,               x,                      c > 0),
    ("move_constant",       x + c0 < c1,                x < wrap(c1 - c0)),
    ("grows",               x < x + 1,                  True),
    ("absolute_is_natural", node(Ops.ABS, _) < 0,       False),
    ("negation_is_natural", x < 0,                      -x > 0),
    ("double_and_half",     (x * 2) // 2,               x),
    ("divides_itself",      x // x,                     1),
    ("widened_sum",         (x + y) // 2,               x // 2 + y // 2),
    ("shift_back",          (x << c) >> c,              x,                      (c >= 0, c < 8)),
    ("max_of_sums",         (x + z).maximum(y + z),     x.maximum(y) + z),
], dtype="i")
WRONG.table([
    ("difference_sign",     x - y < num(1),             x <= y),
    ("not_negative",        x >= 1,                     x > 1),
    ("negated_order",       -x < -y,                    y < x),
], dtype="u")
# True of 8 and 16 bits.
WRONG.table([
    ("two_short_shifts",    (_ << 9) << 9,              num(0)),
    ("shifted_out",         _ >> 16,                    num(0)),
    ("every_bit",           x & 0xFFFFFFFF,             x),
    ("wide_only",           x * c,                      x,                      c > 70000),
    ("for_some_widths",     x >> 9,                     num(0),                 bits(x).ne(16)),
], dtype="u")
# Floats: NaN, infinities, signed zeros, rounding.
WRONG.table([
    ("add_zero",            x + 0.0,                    x),
    ("mul_zero",            _ * 0.0,                    0.0),
    ("sub_self",            x - x,                      0.0),
    ("div_self",            x / x,                      1.0),
    ("not_less",            (x < y).where(z, x),        (x >= y).where(x, z)),
    ("equal_self",          x.eq(x).where(y, _),        y),
    ("greater_is_max",      (x > y).where(x, y),        x.maximum(y)),
    ("associate",           (x + y) + z,                x + (y + z)),
    ("distribute",          x * z + y * z,              (x + y) * z),
    ("zero_minus",          node(Ops.SUB, 0.0, x),      -x),
    ("sqrt_of_square",      node(Ops.SQRT, x * x),      x),
    ("reciprocal_twice",    1.0 / (1.0 / x),            x),
], dtype="f")
# Truth values and choices.
WRONG.table([
    ("de_morgan",           ~(x & y),                   ~x & ~y),
    ("absorb_other",        x & (x | y),                y),
    ("xor_is_or",           x ^ y,                      x | y),
    ("less_is_implied",     x < y,                      ~x | y),
], dtype="b")
WRONG.table([
    ("nested_or",           p.where(q.where(x, y), y),  (p | q).where(x, y)),
    ("swapped_arms",        (~p).where(x, y),           p.where(x, y)),
    ("drops_condition",     _.where(x, _INVALID) + _y,  x + _INVALID),
    ("invalid_in_an_arm",   p.where(x, _),              p.where(x, _INVALID)),
    ("divides_early",       p.where(x // y, z),         p.where(x, z) // y),
    ("speculates",          p.where(x // y, 0),         p.where(x, 0) // y),
], dtype="x")
# Casts.
WRONG.table([
    ("there_and_back",      _TWICE,                     x,      same_dtype(x, _TWICE)),
    ("sign_lost",           _TWICE,                     x.cast(_TWICE.dtype),
     kind(x, "i") & kind(_ONCE, "u") & (bits(x) <= bits(_ONCE))),
    ("rounded",             _TWICE,                     x.cast(_TWICE.dtype),
     kind(x, "iu") & kind(_ONCE, "f") & (bits(x) <= bits(_ONCE))),
    ("through_position",    _TWICE,                     x.cast(_TWICE.dtype),
     kind(x, "u") & kind(_ONCE, "x")),
])
# fmt: on
