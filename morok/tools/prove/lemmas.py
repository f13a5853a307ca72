"""The lemmas that rules written in C rest on.

The affine rules answer with forms that they have checked: a numerator n as g*q + r with 0 <= r < g,
a sum as the same terms in another order. What recombines, nests or reduces divisions is, in checked
builds, the same sum by the definitions of quotient and rest (`morok._core.affine_witness`). Here it
is proved, for all integers, that this is enough.
A division is shown by its definition, n = d*Q + R with 0 <= R < d; `unique` says that then Q is
n // d and R is n % d.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from morok.ir import GroupOp, Ops
from morok.tools.prove.meaning import Value, World, divide_vectors, division_facts, z3_sort
from morok.tools.prove.sorts import FLOAT8, INTS, PLAIN, Sort, is_defined


@dataclass(frozen=True)
class Lemma:
    """`given` implies `claim`, for all values."""

    name: str
    given: Any
    claim: Any


LEMMAS: list[Callable[[], Iterator[Lemma]]] = []
"""Functions that make lemmas, in z3's terms."""


def _lemmas(function: Callable[[], Iterator[Lemma]]) -> Callable[[], Iterator[Lemma]]:
    LEMMAS.append(function)
    return function


def all_lemmas() -> Iterator[Lemma]:
    """Every lemma."""
    for make in LEMMAS:
        yield from make()


def _divided(n: Any, d: Any, q: Any, r: Any) -> Any:
    """q and r are quotient and remainder of n by a positive d."""
    return z3.And(d > 0, n == d * q + r, r >= 0, r < d)


@_lemmas
def divisions() -> Iterator[Lemma]:
    """Quotients and remainders of sums."""
    n, d, q, r, s, t = z3.Ints("n d q r s t")
    e, g, x, y, k, a, c, m = z3.Ints("e g x y k a c m")
    both = z3.And(_divided(n, d, q, r), _divided(n, d, s, t))
    yield Lemma("unique", both, z3.And(q == s, r == t))
    # n = g*q + r, q = e*s + t:  n // (g*e) = s = q // e,  n % (g*e) = g*(q % e) + r
    split = z3.And(_divided(n, g, q, r), _divided(q, e, s, t))
    yield Lemma("factored", split, _divided(n, g * e, s, g * t + r))
    # n = d*q + r, r = d*s + t:  n // d = q + r // d,  n % d = r % d
    yield Lemma("reduced", z3.And(n == d * q + r, _divided(r, d, s, t)), _divided(n, d, q + s, t))
    # x = a*q + r, q + k = d*s + t:  (x + k*a) // (a*d) = s = (x//a + k) // d
    nested = z3.And(_divided(x, a, q, r), _divided(q + k, d, s, t))
    yield Lemma("nested", nested, _divided(x + k * a, a * d, s, a * t + r))
    # m = d*e, x = m*q + r, r = d*s + t:  x // d = e*q + s,  so (x//d) % e = s = x%m // d
    inside = z3.And(e > 0, m == d * e, _divided(x, m, q, r), _divided(r, d, s, t))
    yield Lemma("quotient of rest", inside, z3.And(_divided(x, d, e * q + s, t), s >= 0, s < e))
    # c*a = d*k, x = a*q + r:  (c*x + y) % d = (c*r + y) % d
    congruent = z3.And(c * a == d * k, x == a * q + r, _divided(c * r + y, d, s, t))
    yield Lemma("congruent", congruent, _divided(c * x + y, d, s + k * q, t))
    # q & (m - 1) = q % m for m = 2**k:  n & (2*m - 1) = 2*(q & (m - 1)) + n % 2 = n % (2*m)
    masked = z3.And(_divided(n, z3.IntVal(2), q, r), _divided(q, m, s, t))
    yield Lemma("low bits", masked, _divided(n, 2 * m, s, 2 * t + r))
    # -n = d*q + r:  n // -d = q and n % -d = -r, by the definition for negative divisors
    negative = z3.And(n == (-d) * q + (-r), -d < -r, -r <= 0)
    yield Lemma("negative divisor", _divided(-n, d, q, r), negative)
    # n = d*q + r with another sign of n: truncation agrees with floor
    natural = z3.And(_divided(n, d, q, r), n >= 0)
    truncated = z3.And(n == d * q + r, -d < r, r < d, z3.Or(r == 0, (r < 0) == (n < 0)))
    yield Lemma("truncation", natural, truncated)


@_lemmas
def comparisons() -> Iterator[Lemma]:
    """f < 0 and f == 0 of sums."""
    f, g, q, r, x, d, k, s, t = z3.Ints("f g q r x d k s t")
    yield Lemma("small rest dropped", _divided(f, g, q, r), (f < 0) == (q < 0))
    yield Lemma("common factor", z3.And(g > 0, f == g * q), (f == 0) == (q == 0))
    yield Lemma("no solution", z3.And(f == g * q + r, r > 0, r < g), f != 0)
    yield Lemma("quotient multiplied out", _divided(x, d, q, r), (q + k < 0) == (x + k * d < 0))
    yield Lemma("opposite", z3.BoolVal(True), z3.And((f < 0) == (-f - 1 >= 0), (f < 1) == (f <= 0)))
    yield Lemma("extreme", x - s >= 0, z3.And(z3.If(x >= s, x, s) == x, z3.If(x >= s, s, x) == s))
    for conjunction in (True, False):
        yield from _clauses(conjunction, x, s, t)


def _clauses(conjunction: bool, x: Any, s: Any, t: Any) -> Iterator[Lemma]:
    """What two comparisons of one sum with constants say together."""
    join = z3.And if conjunction else z3.Or
    name = "and" if conjunction else "or"
    less, more = z3.And(x < s, x < t), z3.Or(x < s, x < t)
    yield Lemma(
        f"{name} of bounds", s <= t, join(x < s, x < t) == (x < s if conjunction else x < t)
    )
    yield Lemma(f"{name} of lower bounds", s <= t,
                join(x >= s, x >= t) == (x >= t if conjunction else x >= s))  # fmt: skip
    if conjunction:
        yield Lemma("and contradicts", t >= s, z3.Not(z3.And(x < s, x >= t)))
        yield Lemma("and of a point", s < t, z3.And(z3.Implies(x == s, x < t), less == (x < s)))
    else:
        yield Lemma("or exhausts", t <= s, z3.Or(x < s, x >= t))
        yield Lemma(
            "or of a point", s < t, z3.And(z3.Or(x == s, x < t) == (x < t), more == (x < t))
        )


@_lemmas
def recombinations() -> Iterator[Lemma]:
    """Quotients and remainders of one division that meet in a sum."""
    u, v, w, a, b, c, k, q, r, s, t = z3.Ints("u v w a b c k q r s t")
    # u = b*q + r:  c*(u % b) + c*b*(u // b) = c*u
    yield Lemma("quotient and rest", _divided(u, b, q, r), c * r + c * b * q == c * u)
    # w = a*q + r, q + k = b*s + t, v = w + k*a - a*b*c:  v // (a*b) = s - c
    shifted = z3.And(_divided(w, a, q, r), _divided(q + k, b, s, t), v == w + k * a - a * b * c)
    yield Lemma("shifted quotient", shifted, _divided(v, a * b, s - c, a * t + r))
    # w = a*q + r, q = b*s + t:  a*((w//a) % b) + w % a = w % (a*b)
    yield Lemma("two rests", z3.And(_divided(w, a, q, r), _divided(q, b, s, t)),
                _divided(w, a * b, s, a * t + r))  # fmt: skip
    # the same, read as  v//a - b*(v // (a*b)) = (v//a) % b
    yield Lemma("nested quotients", z3.And(_divided(w, a, q, r), _divided(q, b, s, t)),
                q - b * s == t)  # fmt: skip


@_lemmas
def orders() -> Iterator[Lemma]:
    """The operands of commutative ops may change places, but not those of float ADD and MUL: they
    keep the user's order."""
    for op, sort in itertools.product(sorted(GroupOp.Commutative), PLAIN):
        if not is_defined(op, sort.kind) or sort == FLOAT8 or op in UNORDERED:
            continue
        x, y = (z3.Const(name, z3_sort(sort)) for name in "xy")
        yield Lemma(f"{op.name} of {sort} commutes", z3.BoolVal(True), _commutes(op, sort, x, y))


UNORDERED = frozenset({Ops.EQ, Ops.NE})
"""Commutative by the symmetry of equality."""


def _commutes(op: Ops, sort: Sort, x: Any, y: Any) -> Any:
    world = World()
    a, b = Value(x, sort), Value(y, sort)
    if op in (Ops.AND, Ops.OR, Ops.XOR) and sort.kind == "x":
        return z3.BoolVal(True)  # bit by bit, as of every fixed width
    return world.apply(op, sort, [a, b]).term == world.apply(op, sort, [b, a]).term


@_lemmas
def facts_of_division() -> Iterator[Lemma]:
    """What the encoding of fixed-width division states of its divider: at 8 bits for every pair,
    for all integers by the definition (they differ only in the one quotient that wraps)."""
    for (signed, sort), floor in itertools.product(
        ((True, INTS[0]), (False, INTS[2])), (True, False)
    ):
        a, b = (z3.Const(name, z3_sort(sort)) for name in "ab")
        quotient, rest = divide_vectors(a, b, signed, floor)
        kind = f"{'floor' if floor else 'truncating'} division of {sort}"
        for place, fact in enumerate(division_facts(a, b, quotient, rest, signed, floor)):
            yield Lemma(f"{kind}, fact {place}", z3.BoolVal(True), fact)
    for floor in (True, False):
        world = World()
        a, b = z3.Ints("a b")
        q, r = world.int_divide(a, b, floor)
        (definition,) = world.axioms
        kind = "floor" if floor else "truncating"
        for place, fact in enumerate(division_facts(a, b, q, r, True, floor)):
            yield Lemma(f"{kind} division of integers, fact {place}", definition, fact)


NATIVE: dict[str, str] = {
    "affine.sum": "a sum in another order; recombination: `quotient and rest`, `two rests`, …",
    "affine.floordiv": "`unique`, `factored`, `reduced`, `nested`, `quotient of rest`, …",
    "affine.floormod": "`unique`, `factored`, `reduced`, `congruent`, …",
    "affine.floordiv_by_node": "`reduced`",
    "affine.floormod_by_node": "`reduced`",
    "affine.compare": "`small rest dropped`, `common factor`, `quotient multiplied out`, …",
    "affine.extreme": "`extreme`",
    "affine.and": "`and of bounds`, `and contradicts`, …",
    "affine.or": "`or of bounds`, `or exhausts`, …",
    "order.commutative": "`… commutes`",
    "fold": "checked against the reference definition of every op",
    "fold.bounds": "interval transfers checked exhaustively at 8 bits",
    "index.gate": "a gate that is always or never true",
}
"""Rules in C -> what they rest on: lemmas in backquotes, or the tests."""
