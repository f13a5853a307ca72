"""Boolean algebra: De Morgan, absorption, negated comparisons, chains of AND and OR.

A negation moves inward only where it disappears or several become one, so that no two rules undo
each other. The negation of an ordering is the opposite ordering for ints only: with NaN both fail.
"""

from __future__ import annotations

from morok.ir import Ops, RuleSet, Var, kind

x, y, z = Var("x"), Var("y"), Var("z")
_ = Var("_")

boolean = RuleSet("boolean")

# fmt: off
boolean.table([
    ("and_true",        x & True,                       x),
    ("or_false",        x | False,                      x),
    ("xor_true",        x ^ True,                       ~x),
    ("xor_false",       x ^ False,                      x),
    ("xor_self",        x ^ x,                          False),
    ("add_is_or",       x + y,                          x | y),
    ("mul_is_and",      x * y,                          x & y),
    ("max_is_or",       x.maximum(y),                   x | y),
    ("min_is_and",      x.minimum(y),                   x & y),
    ("xor_not",         x ^ ~y,                         ~(x ^ y)),
], dtype="b")

boolean.table([
    ("not_not",         ~~x,                            x),
    ("and_self",        x & x,                          x),
    ("or_self",         x | x,                          x),
    ("and_nested_self", (x & y) & x,                    x & y),
    ("or_nested_self",  (x | y) | x,                    x | y),
    ("and_absorbs",     x & (x | _),                    x),
    ("or_absorbs",      x | (x & _),                    x),
    ("and_reduces",     x & (~x | y),                   x & y),
    ("or_reduces",      x | (~x & y),                   x | y),
    ("and_reduces_not", ~x & (x | y),                   ~x & y),
    ("or_reduces_not",  ~x | (x & y),                   ~x | y),
    ("cases_and",       (x & y) | (~x & y),             y),
    ("cases_or",        (x | y) & (~x | y),             y),
    ("de_morgan_and",   ~x & ~y,                        ~(x | y)),
    ("de_morgan_or",    ~x | ~y,                        ~(x & y)),
    ("not_and_not",     ~(~x & y),                      x | ~y),
    ("not_or_not",      ~(~x | y),                      x & ~y),
], dtype="biux")

boolean.table([
    ("and_not_self",    x & ~x,                         False),
    ("or_not_self",     x | ~x,                         True),
], dtype="b")

boolean.table([
    ("and_not_self_int", x & ~x,                        0),
    ("or_not_self_int", x | ~x,                         -1),
], dtype="ix")

boolean.table([
    ("not_eq",          ~x.eq(y),                       x.ne(y)),
    ("not_ne",          ~x.ne(y),                       x.eq(y)),
], dtype="b")
# fmt: on

# fmt: off
boolean.table([
    ("not_lt",          ~(x < y),                       x >= y,         kind(x, "biux")),
    ("not_ge",          ~(x >= y),                      x < y,          kind(x, "biux")),
    ("not_gt",          ~(x > y),                       x <= y,         kind(x, "biux")),
    ("not_le",          ~(x <= y),                      x > y,          kind(x, "biux")),
    ("and_not_not",     (z & ~x) & ~y,                  z & ~(x | y)),
    ("or_not_not",      (z | ~x) | ~y,                  z | ~(x & y)),
], dtype="b")
# fmt: on

boolean.native("affine.and", name="and_chain", ops=(Ops.AND,), dtype="b")
boolean.native("affine.or", name="or_chain", ops=(Ops.OR,), dtype="b")
