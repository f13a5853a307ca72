"""Stage 18: what the target lacks, in terms of what it has.

Every rule asks the capability record, so a target with an instruction keeps the op. Results are
those of page 7's table on every backend: integers wrap, division by zero gives 0, rounding is half
to even, the sign of zero stays. Powers of two, division by constants, logic, comparisons and
multiply-add of ints are proved rules, of `morok.symbolic.late`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from morok._core import rebuild
from morok.codegen import transcendental
from morok.codegen.small_floats import promote_small_floats, small_floats
from morok.dtype import AddrSpace, dtypes
from morok.ir import Capability, Ops, Pat, RuleSet, UOp, graph_rewrite
from morok.symbolic import logic, multiply_add, negations, reciprocals, shifts

__all__ = ["decompose", "decompositions", "fuse_multiply_add"]


def decompose(sink: UOp, capability: Capability) -> UOp:
    """Stage 18. Goal: only ops the target has.

    Before: any ALU op on any dtype. After: ALU ops are in `capability.ops` and work on float32,
    float64, ints and bools; accumulators take products by MULACC where the target has it.
    """
    sink = promote_small_floats(sink)
    sink = graph_rewrite(sink, _rules_for(capability.ops), ctx=capability, name="decompositions")
    return fuse_multiply_add(sink) if Ops.MULACC in capability.ops else sink


decompositions = RuleSet("decompositions")
"""Single ops; the context is the Capability."""

decompositions += small_floats + shifts + reciprocals + logic
decompositions.name = "decompositions"


@lru_cache(maxsize=64)
def _rules_for(ops: frozenset[Ops]) -> RuleSet:
    """`decompositions`, and LT and EQ for the comparisons that are not among a target's ops."""
    lacking = negations.only(lambda rule: rule.roots is not None and not rule.roots <= ops)
    return decompositions + lacking if len(lacking) else decompositions


# ---- transcendentals -----------------------------------------------------------------------------

_FUNCTIONS: dict[Ops, Callable[[UOp], UOp]] = {
    Ops.EXP: transcendental.exp,
    Ops.EXP2: transcendental.exp2,
    Ops.LOG: transcendental.log,
    Ops.LOG2: transcendental.log2,
    Ops.SIN: transcendental.sin,
    Ops.COS: transcendental.cos,
    Ops.TAN: transcendental.tan,
    Ops.ERF: transcendental.erf,
}


@decompositions.opaque(Pat(_FUNCTIONS, name="f"))
def function(f: UOp, ctx: Capability) -> UOp | None:
    """SIN(x) -> polynomials; see `transcendental`"""
    return None if f.op in ctx.ops else _FUNCTIONS[f.op](f.src[0])


@decompositions.opaque(Pat(Ops.POW, name="p"))
def power(p: UOp, ctx: Capability) -> UOp | None:
    """POW of floats by logarithms, of ints by squaring"""
    if Ops.POW in ctx.ops:
        return None
    return transcendental.power(*p.src) if p.dtype.kind == "f" else _integer_power(*p.src)


def _integer_power(x: UOp, y: UOp) -> UOp:
    """x**y modulo the width; 1/x**-y truncated for y < 0, 0 where that would divide by 0.

    An odd x has an order dividing 2**(bits-2), an even one is 0 from y = bits on: the lower bits of
    y decide, if large y count as large.
    """
    bits = x.dtype.bits
    steps = bits - 1 if x.dtype.kind == "i" else bits
    if y.vmax is not None and y.vmin is not None and y.vmin >= 0:
        steps = max(1, y.vmax.bit_length())
    result, base = x.const_like(1), x
    for k in range(steps):
        result = (y & (1 << k)).ne(0).where(result * base, result)
        base = base * base
    if x.dtype.kind == "u":
        return result
    odd = (y & 1).ne(0)
    inverse = x.eq(1).where(1, x.eq(-1).where(odd.where(x, x * x), 0))
    return (y < 0).where(inverse, result)


# ---- simple functions ----------------------------------------------------------------------------


@decompositions.opaque(Pat((Ops.RECIPROCAL, Ops.RSQRT, Ops.SQUARE, Ops.ABS, Ops.SIGN), name="f"))
def simple(f: UOp, ctx: Capability) -> UOp | None:
    """1/x, 1/sqrt(x), x*x, |x|, sign of x"""
    if f.op in ctx.ops:
        return None
    x: UOp = f.src[0]
    match f.op:
        case Ops.RECIPROCAL:
            return 1.0 / x
        case Ops.RSQRT:
            return 1.0 / x.sqrt()
        case Ops.SQUARE:
            return x * x
        case Ops.SIGN:
            return _sign(x)
        case _:
            return _absolute(x)


@decompositions.opaque(Pat(Ops.MULACC, name="m"))
def multiply_and_add(m: UOp, ctx: Capability) -> UOp | None:
    """a*b + c in two roundings where the target has no instruction for one"""
    if Ops.MULACC in ctx.ops:
        return None
    total: UOp = m.src[0] * m.src[1] + m.src[2]
    return total


def _absolute(x: UOp) -> UOp:
    match x.dtype.kind:
        case "f":
            return (_bits(x) & _every_bit_but_the_sign(x)).bitcast(x.dtype)
        case "i":
            return (x < 0).where(-x, x)
        case _:
            return x


def _sign(x: UOp) -> UOp:
    """1, 0 or -1; NaN for NaN, 0.0 for both zeros."""
    if x.dtype.kind == "u":
        return x.ne(0).where(1, x.const_like(0))
    if x.dtype.kind == "i":
        return (x > 0).where(1, (x < 0).where(-1, x.const_like(0)))
    return (x > 0.0).where(1.0, (x < 0.0).where(-1.0, x + 0.0))


def _bits(x: UOp) -> UOp:
    integer = dtypes.int32 if x.dtype.bits == 32 else dtypes.int64
    return x.bitcast(integer.vec(x.dtype.count))


def _every_bit_but_the_sign(x: UOp) -> int:
    return (1 << (x.dtype.bits - 1)) - 1


def _copysign(x: UOp, sign: UOp) -> UOp:
    """`x`, which is not negative, with the sign of `sign`."""
    sign_bit = -(1 << (x.dtype.bits - 1))
    return (_bits(x) | (_bits(sign) & sign_bit)).bitcast(x.dtype)


# ---- rounding ------------------------------------------------------------------------------------


@decompositions.opaque(Pat((Ops.ROUND, Ops.TRUNC, Ops.FLOOR, Ops.CEIL), name="f"))
def rounding(f: UOp, ctx: Capability) -> UOp | None:
    """Rounding to integers by adding 2**mantissa, past which floats have no fraction"""
    if f.op in ctx.ops:
        return None
    x: UOp = f.src[0]
    if x.dtype.kind != "f":
        return x
    size = _absolute(x)
    whole = 2.0 ** (23 if x.dtype.bits == 32 else 52)
    near = (size + whole) - whole
    match f.op:
        case Ops.TRUNC:
            near = (near > size).where(near - 1.0, near)
        case Ops.FLOOR:  # a negative number is rounded away from zero
            near = _toward(near, size, x < 0.0)
        case Ops.CEIL:
            near = _toward(near, size, x > 0.0)
    return (size < whole).where(_copysign(near, x), x)


def _toward(near: UOp, size: UOp, away: UOp) -> UOp:
    """|x| rounded away from zero where `away`, else toward zero, from its nearest integer."""
    up = away & (near < size)
    down = ~away & (near > size)
    return up.where(near + 1.0, down.where(near - 1.0, near))


# ---- integers ------------------------------------------------------------------------------------


@decompositions.opaque(Pat((Ops.FLOORDIV, Ops.FLOORMOD), name="f"))
def floor_division(f: UOp, ctx: Capability) -> UOp | None:
    """x // y by truncating division, one less where the remainder is not 0 and signs differ"""
    if f.op in ctx.ops:
        return None
    x: UOp = f.src[0]
    y: UOp = f.src[1]
    divide = f.op is Ops.FLOORDIV
    if f.dtype.kind == "f":
        return _float_floor(x, y, divide)
    if f.dtype.kind == "u" or (_not_negative(x) and _not_negative(y)):
        return x.idiv(y) if divide else x.mod(y)
    remainder = x.mod(y)
    signs_differ = remainder.ne(0) & ((remainder ^ y) < 0)
    wrong = remainder < 0 if _not_negative(y) else signs_differ
    if divide:
        return x.idiv(y) + wrong.where(-1, x.const_like(0))
    return remainder + wrong.where(y, 0)


def _not_negative(x: UOp) -> bool:
    return x.vmin is not None and x.vmin >= 0


def _float_floor(x: UOp, y: UOp, divide: bool) -> UOp:
    """Python's and NumPy's floor division of floats, from the exact remainder of truncation."""
    remainder = x.mod(y)
    wrong = remainder.ne(0.0) & ((remainder < 0.0).ne(y < 0.0))
    floored = wrong.where(remainder + y, remainder)
    if not divide:
        return remainder.eq(0.0).where(_copysign(x.const_like(0.0), y), floored)
    quotient = (x - remainder) / y
    quotient = wrong.where(quotient - 1.0, quotient)
    down = UOp(Ops.FLOOR, quotient.dtype, (quotient,))
    exact = (quotient - down > 0.5).where(down + 1.0, down)
    plain = x / y
    zero = _copysign(x.const_like(0.0), plain)
    return y.eq(0.0).where(plain, quotient.ne(0.0).where(exact, zero))


@decompositions.opaque(Pat(Ops.IDIV, name="f", dtype="f"))
def float_truncating_division(f: UOp) -> UOp:
    """IDIV of floats -> TRUNC(x / y)"""
    x, y = f.src
    return UOp(Ops.TRUNC, f.dtype, (x / y,))


@decompositions.opaque(Pat(Ops.FDIV, (Pat(name="x"), Pat((Ops.CONST, Ops.VCONST), name="c"))))
def divide_by_power_of_two(x: UOp, c: UOp) -> UOp | None:
    """x / 4.0 -> x * 0.25, exact because the reciprocal is"""
    values = {abs(value) for value in (c.arg if c.op is Ops.VCONST else (c.arg,))}
    if len(values) != 1:
        return None
    (value,) = values
    if not 1e-30 < value < 1e30 or math.frexp(value)[0] != 0.5:
        return None
    if c.op is Ops.VCONST:
        return x * UOp(c.op, c.dtype, (), tuple(1.0 / v for v in c.arg))
    return x * UOp(c.op, c.dtype, (), 1.0 / c.arg)


# ---- random bits ---------------------------------------------------------------------------------


@decompositions.opaque(Pat(Ops.THREEFRY, (Pat(name="counter"), Pat(name="key"))))
def threefry(counter: UOp, key: UOp, ctx: Capability) -> UOp | None:
    """Threefry 2x32, 20 rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers:
    as easy as 1, 2, 3", SC11); the low word of counter, key and result is the first"""
    if Ops.THREEFRY in ctx.ops:
        return None
    x0, x1 = _words(counter)
    k0, k1 = _words(key)
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = x0 + k0, x1 + k1
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    for group in range(5):
        for turn in rotations[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + (group + 1)
    return x0.cast(dtypes.uint64) | (x1.cast(dtypes.uint64) << 32)


def _words(x: UOp) -> tuple[UOp, UOp]:
    return x.cast(dtypes.uint32), (x >> 32).cast(dtypes.uint32)


# ---- multiply-add --------------------------------------------------------------------------------


def fuse_multiply_add(sink: UOp) -> UOp:
    """Products added to an accumulator are fused; nothing else is, so that elementwise arithmetic
    has the same bits everywhere.

        reg = reg + (a*b + c*d)  ->  reg = MULACC(c, d, MULACC(a, b, reg))
    """

    def fuse(node: UOp, src: tuple[UOp, ...]) -> UOp:
        return UOp(node.op, node.dtype, (src[0], _fused(src[0], src[1]), *src[2:]), node.arg)

    return rebuild(sink, {Ops.STORE: fuse})


def _fused(index: UOp, value: UOp) -> UOp:
    """A value stored to an accumulator, its sum of products as a chain of MULACCs."""
    pointer = index.src[0]
    is_sum = value.op is Ops.ADD and value.dtype.kind in "fiu"
    if not is_sum or pointer.dtype.addrspace not in (AddrSpace.REG, AddrSpace.LOCAL):
        return value
    terms = _terms(value)
    own = [term for term in terms if _reads(term, index)]
    if len(own) != 1 or not any(term.op is Ops.MUL for term in terms):
        return value
    total = own[0]
    for term in terms:
        if term is not own[0]:
            total = _add_term(total, term)
    return total


def _add_term(total: UOp, term: UOp) -> UOp:
    if term.op is not Ops.MUL:
        return total + term
    if term.dtype.kind == "f":  # one rounding less, as only sums may have
        return UOp(Ops.MULACC, term.dtype, (*term.src, total))
    fused = multiply_add.rewrite(term + total)
    return total + term if fused is None else fused


def _terms(value: UOp) -> list[UOp]:
    """The terms of a sum, in order."""
    out: list[UOp] = []
    stack = [value]
    while stack:
        node = stack.pop()
        if node.op is Ops.ADD:
            stack += reversed(node.src)
        else:
            out.append(node)
    return out


def _reads(value: UOp, index: UOp) -> bool:
    """Whether `value` is what stands at `index` before the store."""
    if value.op is not Ops.LOAD:
        return False
    read = value.src[1]
    return _memory(read.src[0]) is _memory(index.src[0]) and read.src[1:] == index.src[1:]


def _memory(pointer: UOp) -> UOp:
    while pointer.op is Ops.AFTER:
        pointer = pointer.src[0]
    return pointer
