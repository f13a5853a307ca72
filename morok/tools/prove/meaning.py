"""What ops mean in z3: the table of `morok.ir.numeric`, for symbolic operands.

A value is an expression and a truth value that says where it is defined. Undefined are Invalid and
an index divided by zero. What is undefined is some value, nobody knows which, and does not trap:
numbers made of it are undefined, but AND and OR may be decided by their other operand, and WHERE
depends on the arm it takes only, or on none where both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import z3

from morok.dtype import Scalar
from morok.ir import GroupOp, Ops
from morok.tools.prove.numbers import vector_floor_quotient
from morok.tools.prove.sorts import BOOL, Sort, UnsupportedError

Expression = Any  # a z3 expression
TRUE = z3.BoolVal(True)
NEAREST = z3.RoundNearestTiesToEven()
ROUNDINGS = {
    Ops.TRUNC: z3.RoundTowardZero(),
    Ops.FLOOR: z3.RoundTowardNegative(),
    Ops.CEIL: z3.RoundTowardPositive(),
    Ops.ROUND: NEAREST,
}
COMPARISONS: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.LT: lambda a, b: a < b,
    Ops.LE: lambda a, b: a <= b,
    Ops.GT: lambda a, b: a > b,
    Ops.GE: lambda a, b: a >= b,
}
UNSIGNED: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.LT: z3.ULT, Ops.LE: z3.ULE, Ops.GT: z3.UGT, Ops.GE: z3.UGE,
}  # fmt: skip
FLOATS: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.LT: z3.fpLT, Ops.LE: z3.fpLEQ, Ops.GT: z3.fpGT, Ops.GE: z3.fpGEQ,
    Ops.EQ: z3.fpEQ, Ops.NE: lambda a, b: z3.Not(z3.fpEQ(a, b)),
}  # fmt: skip
MOST_MULTIPLICATIONS = 8  # a power by a literal is taken apart up to this exponent


@dataclass(frozen=True)
class Value:
    """A value of a sort; `defined`: where it means something; `bits`: what a BITCAST made it of."""

    term: Expression
    sort: Sort
    defined: Expression = TRUE
    bits: Expression = None


def z3_sort(sort: Sort) -> Any:
    """The z3 sort of a sort's values."""
    if sort.kind == "b":
        return z3.BoolSort()
    if sort.kind == "f":
        return z3.FPSort(sort.exponent, sort.bits - sort.exponent)
    return z3.IntSort() if sort.bits == 0 else z3.BitVecSort(sort.bits)


def literal(value: Scalar, sort: Sort) -> Value | None:
    """A number as a constant of a sort; None where the sort does not have it."""
    if sort.kind == "b":
        return Value(z3.BoolVal(bool(value)), sort) if value in (0, 1) else None
    if sort.kind == "f":
        term = z3.FPVal(float(value), z3_sort(sort))
        if math.isfinite(value):
            exact = z3.simplify(z3.fpToReal(term) == z3.RealVal(Fraction(value)))
            if not z3.is_true(exact):
                raise UnsupportedError(f"{value} is no value of {sort}")
        return Value(term, sort)
    if isinstance(value, float):
        return None
    if sort.bits == 0:
        return Value(z3.IntVal(value), sort)
    if sort.kind != "x" and not sort.low <= value <= sort.high:
        return None
    return Value(z3.BitVecVal(int(value), sort.bits), sort)


def known_int(term: Expression) -> int | None:
    """The value of an integer constant."""
    if z3.is_int_value(term):
        return int(term.as_long())
    return int(term.as_signed_long()) if z3.is_bv_value(term) else None


@dataclass
class World:
    """Axioms that the translated ops rest on, and what was translated before.

    `vague`: an op has a meaning only for constants that are known here, so that a counterexample
    shows nothing.
    """

    axioms: list[Expression] = field(default_factory=list)
    vague: bool = False
    _divisions: dict[tuple[int, int, bool], tuple[Any, ...]] = field(default_factory=dict)
    _count: int = 0

    def fresh(self, name: str, sort: Any) -> Any:
        """A variable that occurs nowhere else."""
        self._count += 1
        return z3.Const(f"{name}!{self._count}", sort)

    def int_divide(self, a: Any, b: Any, floor: bool) -> tuple[Any, Any]:
        """Quotient and remainder of integers, where b is not 0."""
        key = (a.get_id(), b.get_id(), floor)
        if key not in self._divisions:
            name, number = "floor" if floor else "truncated", z3.IntSort()
            if known_int(b) is None:  # functions, so that equal operands give equal results
                q = z3.Function(f"{name} quotient", number, number, number)(a, b)
                r = z3.Function(f"{name} rest", number, number, number)(a, b)
            else:
                q, r = self.fresh("q", number), self.fresh("r", number)
            if floor:
                signs = z3.Or(z3.And(b > 0, r >= 0, r < b), z3.And(b < 0, b < r, r <= 0))
            else:
                size = z3.If(b < 0, -b, b)
                signs = z3.Or(z3.And(a >= 0, r >= 0, r < size), z3.And(a < 0, r <= 0, r > -size))
            self.axioms.append(z3.Implies(b != 0, z3.And(a == b * q + r, signs)))
            self._divisions[key] = (q, r, a, b)  # a and b stay alive: ids are not given again
        return self._divisions[key][:2]

    def vector_divide(self, a: Any, b: Any, signed: bool, floor: bool) -> tuple[Any, Any]:
        """Quotient and remainder of fixed-width ints, both 0 where b is 0."""
        quotient, rest = divide_vectors(a, b, signed, floor)
        if not z3.is_bv_value(b):
            self.axioms += division_facts(a, b, quotient, rest, signed, floor)
        return quotient, rest

    def power_of_two(self, count: Any) -> Any:
        """2**count of an index."""
        known = known_int(count)
        if known is not None and 0 <= known <= 62:
            return z3.IntVal(1 << known)
        self.vague = True
        power = z3.Function("power_of_two", z3.IntSort(), z3.IntSort())(count)
        self.axioms += [power >= 1, z3.Implies(count == 0, power == 1)]
        return power

    def apply(self, op: Ops, sort: Sort, args: Sequence[Value]) -> Value:
        """`op` of values; `sort` is that of the result."""
        defined = z3.And(*[a.defined for a in args])
        terms = [a.term for a in args]
        of = args[0].sort
        if op is Ops.WHERE:
            condition, yes, no = args
            arm = z3.If(condition.term, yes.defined, no.defined)
            either = z3.And(yes.defined, no.defined, yes.term == no.term)
            defined = z3.Or(z3.And(condition.defined, arm), either)
            return Value(z3.If(condition.term, yes.term, no.term), sort, defined)
        if op is Ops.CAST:
            cast_term = cast(terms[0], of, sort)
            if cast_term is None:
                cast_term = self.unknown(op, of, z3_sort(sort), terms)
            return Value(cast_term, sort, defined)
        if of.kind == "b":
            return self._bools(op, sort, args)
        if of.kind == "f":
            return Value(self._floats(op, of, terms), sort, defined)
        if of.bits == 0:
            return self._integers(op, sort, args)
        return Value(self._vectors(op, of, terms), sort, defined)

    def bitcast(self, value: Value, sort: Sort) -> Value | None:
        """BITCAST: the same bits at another sort; None when the widths differ."""
        of = value.sort
        if of == sort:
            return value
        if of.bits != sort.bits or of.bits == 0:
            return None
        bits = self._bits(value)
        if sort.kind == "b":
            return Value(bits != 0, sort, value.defined)
        return Value(_of_bits(bits, sort), sort, value.defined, bits)

    def _bits(self, value: Value) -> Any:
        """The bit pattern of a value; of the patterns of NaN, nobody knows which."""
        sort = value.sort
        if value.bits is not None:
            return value.bits
        if sort.kind == "b":
            return z3.If(value.term, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8))
        if sort.kind != "f":
            return value.term
        vector = z3.BitVecSort(sort.bits)
        bits = z3.Function(f"bits of {sort}", z3_sort(sort), vector)(value.term)
        self.axioms.append(_of_bits(bits, sort) == value.term)
        return bits

    def unknown(self, op: Ops, of: Sort, result: Any, terms: Sequence[Any]) -> Any:
        """An op of which only this is known: equal operands give equal results."""
        sorts = [term.sort() for term in terms]
        return z3.Function(f"{op.name} {of}", *sorts, result)(*terms)

    # ---- one sort each ---------------------------------------------------------------------------

    def _bools(self, op: Ops, sort: Sort, args: Sequence[Value]) -> Value:
        a = args[0]
        if op is Ops.NOT:
            return Value(z3.Not(a.term), sort, a.defined)
        if op in ROUNDINGS:
            return Value(a.term, sort, a.defined)
        if len(args) != 2:
            raise UnsupportedError(f"{op.name} of bools")
        b = args[1]
        both = z3.And(a.defined, b.defined)
        if op in (Ops.AND, Ops.MUL, Ops.MIN, Ops.OR, Ops.ADD, Ops.MAX):
            conjunction = op in (Ops.AND, Ops.MUL, Ops.MIN)
            term = z3.And(a.term, b.term) if conjunction else z3.Or(a.term, b.term)
            decides = [x.term != z3.BoolVal(conjunction) for x in args]
            alone = [z3.And(x.defined, d) for x, d in zip(args, decides, strict=True)]
            return Value(term, sort, z3.Or(both, *alone))
        table = {
            Ops.XOR: z3.Xor(a.term, b.term),
            Ops.LT: z3.And(z3.Not(a.term), b.term),
            Ops.LE: z3.Or(z3.Not(a.term), b.term),
            Ops.GT: z3.And(a.term, z3.Not(b.term)),
            Ops.GE: z3.Or(a.term, z3.Not(b.term)),
            Ops.EQ: a.term == b.term,
            Ops.NE: a.term != b.term,
        }
        if op not in table:
            raise UnsupportedError(f"{op.name} of bools")
        return Value(table[op], sort, both)

    def _floats(self, op: Ops, of: Sort, terms: Sequence[Any]) -> Any:
        a = terms[0]
        zero = z3.fpPlusZero(a.sort())
        if op in ROUNDINGS:
            return z3.fpRoundToIntegral(ROUNDINGS[op], a)
        if op in FLOATS:
            return FLOATS[op](a, terms[1])
        match op:
            case Ops.NEG:
                return z3.fpNeg(a)
            case Ops.ABS:
                return z3.fpAbs(a)
            case Ops.SQUARE:
                return z3.fpMul(NEAREST, a, a)
            case Ops.SQRT:
                return z3.fpSqrt(NEAREST, a)
            case Ops.RECIPROCAL:
                return z3.fpDiv(NEAREST, z3.FPVal(1.0, a.sort()), a)
            case Ops.SIGN:
                one = z3.FPVal(1.0, a.sort())
                signed = z3.If(z3.fpLT(a, zero), z3.fpNeg(one), zero)
                return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpGT(a, zero), one, signed))
            case Ops.ADD:
                return z3.fpAdd(NEAREST, a, terms[1])
            case Ops.SUB:
                return z3.fpSub(NEAREST, a, terms[1])
            case Ops.MUL:
                return z3.fpMul(NEAREST, a, terms[1])
            case Ops.FDIV:
                return z3.fpDiv(NEAREST, a, terms[1])
            case Ops.MULACC:
                return z3.fpFMA(NEAREST, a, terms[1], terms[2])
            case Ops.MAX | Ops.MIN:
                b = terms[1]
                better = z3.fpGT if op is Ops.MAX else z3.fpLT
                zeros = self.unknown(op, of, a.sort(), terms)  # of zeros, either
                equal = z3.If(a == b, a, zeros)
                ordered = z3.If(better(a, b), a, z3.If(better(b, a), b, equal))
                return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, ordered))
        return self.unknown(op, of, a.sort(), terms)

    def _vectors(self, op: Ops, of: Sort, terms: Sequence[Any]) -> Any:
        """Fixed-width ints, and the forms of `index` that are bit vectors."""
        a = terms[0]
        b = terms[1] if len(terms) > 1 else a
        signed = of.kind != "u"
        zero = z3.BitVecVal(0, of.bits)
        if of.kind == "x" and op not in BIT_PATTERNS:
            raise UnsupportedError(f"{op.name} of a position as a bit vector")
        if op in COMPARISONS:
            return (COMPARISONS if signed else UNSIGNED)[op](a, b)
        if op in ROUNDINGS:
            return a
        if op in (Ops.SHL, Ops.SHR):
            return _shifted(op, a, b, signed)
        if op in (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD):
            floor = op in (Ops.FLOORDIV, Ops.FLOORMOD)
            quotient, rest = self.vector_divide(a, b, signed, floor)
            return quotient if op in (Ops.IDIV, Ops.FLOORDIV) else rest
        if op in (Ops.MAX, Ops.MIN):
            greater = a >= b if signed else z3.UGE(a, b)
            return z3.If(greater, a, b) if op is Ops.MAX else z3.If(greater, b, a)
        if op is Ops.POW:
            return self._power(of, terms)
        one = z3.BitVecVal(1, of.bits)
        table: dict[Ops, Callable[[], Any]] = {
            Ops.NEG: lambda: -a,
            Ops.NOT: lambda: ~a,
            Ops.ABS: lambda: z3.If(a < 0, -a, a) if signed else a,
            Ops.SIGN: lambda: z3.If(a == 0, zero, z3.If(a < 0, -one, one) if signed else one),
            Ops.SQUARE: lambda: a * a,
            Ops.ADD: lambda: a + b,
            Ops.SUB: lambda: a - b,
            Ops.MUL: lambda: a * b,
            Ops.AND: lambda: a & b,
            Ops.OR: lambda: a | b,
            Ops.XOR: lambda: a ^ b,
            Ops.EQ: lambda: a == b,
            Ops.NE: lambda: a != b,
            Ops.MULACC: lambda: a * b + terms[2],
        }
        return table[op]() if op in table else self.unknown(op, of, a.sort(), terms)

    def _power(self, of: Sort, terms: Sequence[Any]) -> Any:
        a, exponent = terms[0], known_int(terms[1])
        if exponent is None or not 0 <= exponent <= MOST_MULTIPLICATIONS:
            return self.unknown(Ops.POW, of, a.sort(), terms)
        one = z3.IntVal(1) if of.bits == 0 else z3.BitVecVal(1, of.bits)
        result = one
        for _ in range(exponent):
            result = result * a
        return result

    def _integers(self, op: Ops, sort: Sort, args: Sequence[Value]) -> Value:
        terms = [x.term for x in args]
        defined = z3.And(*[x.defined for x in args])
        a = terms[0]
        b = terms[1] if len(terms) > 1 else a
        if op in (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD):
            floor = op in (Ops.FLOORDIV, Ops.FLOORMOD)
            quotient, rest = self.int_divide(a, b, floor)
            term = quotient if op in (Ops.IDIV, Ops.FLOORDIV) else rest
            return Value(term, sort, z3.And(defined, b != 0))
        if op in (Ops.SHL, Ops.SHR):
            power = self.power_of_two(b)
            term = a * power if op is Ops.SHL else self.int_divide(a, power, True)[0]
            return Value(term, sort, z3.And(defined, b >= 0))
        if op in COMPARISONS:
            return Value(COMPARISONS[op](a, b), sort, defined)
        if op in ROUNDINGS:
            return Value(a, sort, defined)
        if op is Ops.POW:
            return Value(self._power(args[0].sort, terms), sort, defined)
        if op is Ops.AND:
            mask = known_int(b)
            if mask is not None and mask >= 0:
                return Value(self._masked(a, mask), sort, defined)
            self.vague = True
        table: dict[Ops, Callable[[], Any]] = {
            Ops.NEG: lambda: -a,
            Ops.ABS: lambda: z3.If(a < 0, -a, a),
            Ops.SIGN: lambda: z3.If(a == 0, 0, z3.If(a < 0, -1, z3.IntVal(1))),
            Ops.SQUARE: lambda: a * a,
            Ops.ADD: lambda: a + b,
            Ops.SUB: lambda: a - b,
            Ops.MUL: lambda: a * b,
            Ops.MAX: lambda: z3.If(a >= b, a, b),
            Ops.MIN: lambda: z3.If(a >= b, b, a),
            Ops.EQ: lambda: a == b,
            Ops.NE: lambda: a != b,
            Ops.MULACC: lambda: a * b + terms[2],
        }
        result = z3.BoolSort() if sort == BOOL else z3.IntSort()
        term = table[op]() if op in table else self.unknown(op, args[0].sort, result, terms)
        return Value(term, sort, defined)

    def _masked(self, a: Any, mask: int) -> Any:
        """a & mask of an unbounded integer in two's complement, bit by bit; where the mask is the
        low bits, a rest (the lemma `low bits`)."""
        if mask & (mask + 1) == 0:
            return self.int_divide(a, z3.IntVal(mask + 1), True)[1]
        total = z3.IntVal(0)
        for place in range(mask.bit_length()):
            if mask >> place & 1:
                higher, _ = self.int_divide(a, z3.IntVal(1 << place), True)
                _, bit = self.int_divide(higher, z3.IntVal(2), True)
                total = total + bit * (1 << place)
        return total


def _of_bits(bits: Any, sort: Sort) -> Any:
    if sort.kind != "f":
        return bits
    return z3.Function(f"{sort} of bits", z3.BitVecSort(sort.bits), z3_sort(sort))(bits)


BIT_PATTERNS = GroupOp.Comparison | {Ops.AND, Ops.OR, Ops.XOR, Ops.NOT}
"""What positions that are bit vectors may meet: nothing there can wrap."""


def _shifted(op: Ops, a: Any, count: Any, signed: bool) -> Any:
    """Shifts of a fixed-width int: counts outside its width give 0, or the sign."""
    bits = a.size()
    inside = z3.ULT(count, z3.BitVecVal(bits, bits))  # a negative count is large as unsigned
    if op is Ops.SHL:
        return z3.If(inside, a << count, z3.BitVecVal(0, bits))
    if signed:
        return z3.If(inside, a >> count, a >> z3.BitVecVal(bits - 1, bits))
    return z3.If(inside, z3.LShR(a, count), z3.BitVecVal(0, bits))


def divide_vectors(a: Any, b: Any, signed: bool, floor: bool) -> tuple[Any, Any]:
    """The remainder is that of the wrapped quotient, so that q * b + r == a always."""
    zero = z3.BitVecVal(0, a.size())
    plain = z3.UDiv(a, b)
    if signed:
        plain = vector_floor_quotient(a, b) if floor else a / b
    quotient = z3.If(b == 0, zero, plain)
    return quotient, z3.If(b == 0, zero, a - quotient * b)


def division_facts(
    a: Any, b: Any, quotient: Any, rest: Any, signed: bool, floor: bool
) -> list[Any]:
    """What z3 would have to find inside a divider again and again; `lemmas` has it proved."""
    if not signed:
        less, small = z3.ULT(rest, b), z3.ULT(a, b)
        return [z3.Implies(b != 0, less), z3.Implies(small, z3.And(quotient == 0, rest == a))]
    above = z3.And(b > 0, rest < b, rest > -b) if not floor else z3.And(b > 0, rest >= 0, rest < b)
    below = z3.And(b < 0, rest > b, -rest > b if not floor else rest <= 0)
    small = z3.Or(z3.And(a >= 0, a < b), z3.And(a <= 0, a > b))
    return [
        z3.Implies(b != 0, z3.Or(above, below)),
        z3.Implies(small, z3.And(quotient == 0, rest == a)),
    ]


def cast(term: Any, of: Sort, to: Sort) -> Any:
    """CAST: to bool whether not zero; to ints wrapping, from floats saturating with NaN to 0.

    None between floats or bit vectors and unbounded integers.
    """
    if of == to:
        return term
    if to.kind == "b":
        return z3.Not(z3.fpIsZero(term)) if of.kind == "f" else term != 0
    if of.kind == "b":
        one, zero = literal(1, to), literal(0, to)
        assert one is not None
        assert zero is not None
        return z3.If(term, one.term, zero.term)
    if to.kind == "f":
        return _to_float(term, of, to)
    if of.kind == "f":
        return _from_float(term, of, to)
    if of.bits == 0 or to.bits == 0:
        return None
    if to.bits <= of.bits:
        return z3.Extract(to.bits - 1, 0, term)
    more = to.bits - of.bits
    return z3.ZeroExt(more, term) if of.kind == "u" else z3.SignExt(more, term)


def _to_float(term: Any, of: Sort, to: Sort) -> Any:
    if of.kind == "f":
        return z3.fpFPToFP(NEAREST, term, z3_sort(to))
    if of.bits == 0:
        return None
    convert = z3.fpUnsignedToFP if of.kind == "u" else z3.fpSignedToFP
    return convert(NEAREST, term, z3_sort(to))


def _from_float(term: Any, of: Sort, to: Sort) -> Any:
    """Truncated; out of range the nearest value; NaN gives 0."""
    if to.bits == 0:
        return None
    signed = to.kind != "u"
    low, high = (
        z3.BitVecVal(v, to.bits)
        for v in ((-1 << (to.bits - 1), ~(-1 << (to.bits - 1))) if signed else (0, -1))
    )
    toward = z3.RoundTowardZero()
    whole = z3.fpRoundToIntegral(toward, term)
    infinite, negative = z3.fpIsInf(term), z3.fpIsNegative(term)
    # the first number past the ends is a power of two: a float exactly, or too large for the format
    places = to.bits - signed
    if places < 1 << (of.exponent - 1):
        end = z3.FPVal(2.0**places, term.sort())
        above, below = z3.fpGEQ(whole, end), z3.fpLEQ(whole, z3.fpNeg(end))
    else:
        above, below = z3.And(infinite, z3.Not(negative)), z3.And(infinite, negative)
    if not signed:
        below = negative
    convert = z3.fpToSBV if signed else z3.fpToUBV
    inside = z3.If(below, low, z3.If(above, high, convert(toward, whole, z3.BitVecSort(to.bits))))
    return z3.If(z3.fpIsNaN(term), z3.BitVecVal(0, to.bits), inside)
