"""How LLVM IR computes values: operators, positions, conversions, vectors.

Every operation means what page 7's table says for every argument; none is left undefined. Choices
are `select`s, a multiply-add is `llvm.fma` where MULACC is meant and nowhere else, and no operation
carries fast-math flags: results are those of the C renderer, bit for bit.

Positions (int32 values computed of loop counters that provably never wrap) are held in 64 bits as a
value plus a constant. Accesses that differ by a constant so share one address, and the constant
becomes part of the instruction that reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from morok.dtype import DType, dtypes
from morok.ir import Capability, GroupOp, Ops, UOp
from morok.renderers.base import (
    FLOAT_STORAGE,
    always_positive,
    shifts_within,
    splat_value,
)
from morok.renderers.llvm_context import LLVMContext
from morok.renderers.llvm_halves import half_of, of_half
from morok.renderers.llvm_types import constant, ir_type, lanes_type, literal, suffix, zero

__all__ = ["LLVMValues"]


_UNSIGNED_TYPES = "ub"


class LLVMValues:
    """The part of the LLVM renderer that turns values into instructions."""

    features: frozenset[str]
    capability: Capability

    # ---- operands --------------------------------------------------------------------------------

    def operand(self, ctx: LLVMContext, node: UOp) -> str:
        """A value in the type of its dtype."""
        op = node.op
        if op is Ops.CONST:
            return constant(node.dtype, node.arg) if node.dtype.kind in "biuf" else "0"
        if op is Ops.VCONST:
            text = _vector_constant(node)
            large = node.dtype.kind == "f" and text.startswith("splat") and node.arg[0] != 0
            return ctx.from_memory(ir_type(node.dtype), text) if large else text
        if node.dtype is dtypes.int32 and node in ctx.held:
            base, offset = self.split(ctx, node)
            if not base:
                return str(offset)
            return ctx.pure(f"trunc i64 {self.wide(ctx, node)} to i32")
        if node in ctx.parts:
            return self.wide(ctx, node)
        value = ctx.values.get(node)
        return value if value is not None else ctx.fail(f"{node.op.name} has no rendering", node)

    def typed(self, ctx: LLVMContext, node: UOp) -> str:
        """A value behind its type."""
        return f"{ir_type(node.dtype)} {self.operand(ctx, node)}"

    def split(self, ctx: LLVMContext, node: UOp) -> tuple[str, int]:
        """A position as a 64-bit value ("" for none) and a constant."""
        if node.op is Ops.CONST:
            return "", int(node.arg)
        parts = ctx.parts.get(node)
        if parts is not None:
            return parts
        value = self.operand(ctx, node) if node not in ctx.held else ctx.values[node]
        if node not in ctx.held:
            extend = "zext" if node.dtype.kind in _UNSIGNED_TYPES else "sext"
            value = ctx.pure(f"{extend} {ir_type(node.dtype)} {value} to i64")
        return value, 0

    def wide(self, ctx: LLVMContext, node: UOp) -> str:
        """A position as one 64-bit value."""
        base, offset = self.split(ctx, node)
        if not base:
            return str(offset)
        return ctx.pure(f"add {_wrap(node)}i64 {base}, {_int64(offset)}") if offset else base

    # ---- values ----------------------------------------------------------------------------------

    def value(self, ctx: LLVMContext, node: UOp) -> None:
        """Computes an ALU op, conversion or vector op."""
        if node in ctx.pairs:
            return
        method = _VALUES.get(node.op)
        if method is None or (node.op is Ops.MULACC and Ops.MULACC not in self.capability.ops):
            ctx.values[node] = ctx.fail(f"LLVM IR has no {node.op.name}", node)
            return
        if node.dtype.scalar in FLOAT_STORAGE and node.op in _ARITHMETIC:
            message = f"LLVM IR is given no arithmetic on {node.dtype.scalar}"
            ctx.values[node] = ctx.fail(message, node)
            return
        if node in ctx.held and (moved := self._position(ctx, node)) is not None:
            ctx.parts[node] = moved
        else:
            ctx.values[node] = method(self, ctx, node)

    def _position(self, ctx: LLVMContext, node: UOp) -> tuple[str, int] | None:
        """Sums, and products with constants, with the constant part apart; None for others."""
        op, nsw = node.op, _wrap(node)
        if op not in _LINEAR:
            return None
        a, b = node.src
        (x, k), (y, m) = self.split(ctx, a), self.split(ctx, b)
        if op is Ops.ADD:
            return (ctx.pure(f"add {nsw}i64 {x}, {y}") if x and y else x or y), k + m
        if op is Ops.SUB:
            return (ctx.pure(f"sub {nsw}i64 {x or 0}, {y}") if y else x), k - m
        if op is Ops.SHL:
            if y or not 0 <= m < 64:
                return None
            y, m = "", 1 << m
        if x and y:
            return None
        x, factor = (x, m) if not y else (y, k)
        offset = (k if not y else m) * factor
        return (ctx.pure(f"mul {nsw}i64 {x}, {_int64(factor)}") if x else ""), offset

    def _operands(self, ctx: LLVMContext, node: UOp) -> tuple[str, str, str]:
        """(type, a, b): both operands of an op in one type; of a position 64 bits wide."""
        a, b = node.src[-2:]
        if a.dtype is dtypes.int32 and self._is_wide(ctx, node, a, b):
            return "i64", self.wide(ctx, a), self.wide(ctx, b)
        return ir_type(a.dtype), self.operand(ctx, a), self.operand(ctx, b)

    @staticmethod
    def _is_wide(ctx: LLVMContext, node: UOp, a: UOp, b: UOp) -> bool:
        """Whether an op on int32 is computed in 64 bits: a position, or a comparison of two."""
        if node in ctx.held:
            return True
        both = all(s in ctx.held or s.op is Ops.CONST for s in (a, b))
        return node.op in GroupOp.Comparison and both

    def _binary(self, ctx: LLVMContext, node: UOp) -> str:
        kind = node.dtype.kind
        if kind == "f":
            name = _FLOAT_OPS.get(node.op)
        elif kind == "b":
            name = _BOOL_OPS.get(node.op)
        else:
            name = _INT_OPS.get(node.op)
        if name is None:
            return ctx.fail(f"LLVM IR has no {node.op.name} of {node.dtype}", node)
        kind, a, b = self._operands(ctx, node)
        return ctx.pure(f"{name} {kind} {a}, {b}")

    def _compare(self, ctx: LLVMContext, node: UOp) -> str:
        dtype = node.src[0].dtype
        kind, a, b = self._operands(ctx, node)
        if dtype.kind == "f":
            return ctx.pure(f"fcmp {_FLOAT_TESTS[node.op]} {kind} {a}, {b}")
        test = _INT_TESTS[node.op]
        sign = "" if node.op in (Ops.EQ, Ops.NE) else "u" if dtype.kind in _UNSIGNED_TYPES else "s"
        return ctx.pure(f"icmp {sign}{test} {kind} {a}, {b}")

    def _neg(self, ctx: LLVMContext, node: UOp) -> str:
        kind, value = ir_type(node.dtype), self.operand(ctx, node.src[0])
        if node.dtype.kind == "f":
            return ctx.pure(f"fneg {kind} {value}")
        return ctx.pure(f"sub {kind} {zero(node.dtype)}, {value}")

    def _not(self, ctx: LLVMContext, node: UOp) -> str:
        ones = constant(node.dtype, True if node.dtype.kind == "b" else -1)
        return ctx.pure(f"xor {self.typed(ctx, node.src[0])}, {ones}")

    def _extreme(self, ctx: LLVMContext, node: UOp) -> str:
        """Of floats NaN if one operand is, the second operand if they are equal."""
        dtype = node.dtype
        if dtype.kind == "b":
            return self._binary(ctx, node)
        kind, a, b = self._operands(ctx, node)
        greater = node.op is Ops.MAX
        if dtype.kind == "f":
            better = ctx.pure(f"fcmp {'ogt' if greater else 'olt'} {kind} {a}, {b}")
            number = self.select(ctx, better, dtype, a, b)
            return self.select(ctx, ctx.pure(f"fcmp uno {kind} {a}, {a}"), dtype, a, number)
        test = ("s" if dtype.kind == "i" else "u") + ("gt" if greater else "lt")
        better = ctx.pure(f"icmp {test} {kind} {a}, {b}")
        return ctx.pure(f"select {lanes_type(dtype, 'i1')} {better}, {kind} {a}, {kind} {b}")

    def select(self, ctx: LLVMContext, mask: str, dtype: DType, a: str, b: str) -> str:
        """a where the mask of as many lanes is set, else b."""
        kind = ir_type(dtype)
        return ctx.pure(f"select {lanes_type(dtype, 'i1')} {mask}, {kind} {a}, {kind} {b}")

    def _where(self, ctx: LLVMContext, node: UOp) -> str:
        condition, a, b = node.src
        if node in ctx.held:
            kind, x, y = "i64", self.wide(ctx, a), self.wide(ctx, b)
        else:
            kind, x, y = ir_type(node.dtype), self.operand(ctx, a), self.operand(ctx, b)
        word = _WORDS.get(node.dtype)
        if word is None or (condition.op in _FLOAT_TESTS and condition.src[0].dtype is node.dtype):
            return ctx.pure(f"select {self.typed(ctx, condition)}, {kind} {x}, {kind} {y}")
        # A scalar float under any other condition is chosen by a branch on x86, which is dear where
        # nobody can foresee it. Integers have an instruction for it.
        x, y = (ctx.pure(f"bitcast {kind} {v} to {word}") for v in (x, y))
        chosen = ctx.pure(f"select {self.typed(ctx, condition)}, {word} {x}, {word} {y}")
        return ctx.pure(f"bitcast {word} {chosen} to {kind}")

    def _divide(self, ctx: LLVMContext, node: UOp) -> str:
        """Truncating; 0 for a divisor 0; minimum / -1 wraps."""
        a, b = node.src
        dtype, quotient = node.dtype, node.op is Ops.IDIV
        if dtype.kind == "f":
            if quotient:
                return ctx.fail("LLVM IR has no IDIV of floats", node)
            return ctx.pure(f"frem {self.typed(ctx, a)}, {self.operand(ctx, b)}")
        kind, x, y = self._operands(ctx, node)
        natural = dtype.kind == "u" or (a.vmin is not None and a.vmin >= 0 and always_positive(b))
        name = ("u" if natural else "s") + ("div" if quotient else "rem")
        if always_positive(b) or (dtype.kind == "i" and b.vmax is not None and b.vmax < -1):
            return ctx.pure(f"{name} {kind} {x}, {y}")
        truth = lanes_type(dtype, "i1")

        def choose(mask: str, one: str, other: str) -> str:
            return ctx.pure(f"select {truth} {mask}, {kind} {one}, {kind} {other}")

        none = ctx.pure(f"icmp eq {kind} {y}, {zero(dtype)}")
        one = constant(dtype, 1)
        if dtype.kind == "u":
            result = ctx.pure(f"{name} {kind} {x}, {choose(none, one, y)}")
            return choose(none, zero(dtype), result)
        # Divisors 0 and -1 are replaced by 1: then the quotient is x, to be cleared or negated, and
        # the remainder is 0, as it should be.
        minus = ctx.pure(f"icmp eq {kind} {y}, {constant(dtype, -1)}")
        special = ctx.pure(f"or {truth} {none}, {minus}")
        result = ctx.pure(f"{name} {kind} {x}, {choose(special, one, y)}")
        if not quotient:
            return result
        negated = ctx.pure(f"sub {kind} {zero(dtype)}, {result}")
        return choose(none, zero(dtype), choose(minus, negated, result))

    def _shift(self, ctx: LLVMContext, node: UOp) -> str:
        """A count of the width or more, or below 0, shifts everything out."""
        b, dtype = node.src[1], node.dtype
        arithmetic = node.op is Ops.SHR and dtype.kind == "i"
        name = "shl" if node.op is Ops.SHL else "ashr" if arithmetic else "lshr"
        kind, x, y = self._operands(ctx, node)
        if shifts_within(b, dtype.bits):
            return ctx.pure(f"{name} {kind} {x}, {y}")
        inside = ctx.pure(f"icmp ult {kind} {y}, {constant(dtype, dtype.bits)}")
        safe = constant(dtype, dtype.bits - 1) if arithmetic else zero(dtype)
        truth = lanes_type(dtype, "i1")
        count = ctx.pure(f"select {truth} {inside}, {kind} {y}, {kind} {safe}")
        result = ctx.pure(f"{name} {kind} {x}, {count}")
        if arithmetic:
            return result
        return ctx.pure(f"select {truth} {inside}, {kind} {result}, {kind} {zero(dtype)}")

    def _sqrt(self, ctx: LLVMContext, node: UOp) -> str:
        kind = ir_type(node.dtype)
        argument = (kind, self.operand(ctx, node.src[0]))
        return ctx.pure(ctx.intrinsic(f"llvm.sqrt.{suffix(node.dtype)}", kind, argument))

    def _mulacc(self, ctx: LLVMContext, node: UOp) -> str:
        dtype, kind = node.dtype, ir_type(node.dtype)
        a, b, c = (self.operand(ctx, s) for s in node.src)
        if dtype.kind != "f":
            product = ctx.pure(f"mul {kind} {a}, {b}")
            return ctx.pure(f"add {kind} {product}, {c}")
        arguments = ((kind, a), (kind, b), (kind, c))
        return ctx.pure(ctx.intrinsic(f"llvm.fma.{suffix(dtype)}", kind, *arguments))

    # ---- conversions -----------------------------------------------------------------------------

    def _cast(self, ctx: LLVMContext, node: UOp) -> str:
        value = node.src[0]
        source, target = value.dtype, node.dtype
        to, x = ir_type(target), self.operand(ctx, value)
        if source.scalar in FLOAT_STORAGE or target.scalar in FLOAT_STORAGE:
            return self._cast_half(ctx, node, x)
        from_ = ir_type(source)
        if source.scalar is target.scalar:
            return x
        if target.kind == "b":
            if source.kind == "f":
                return ctx.pure(f"fcmp une {from_} {x}, {zero(source)}")
            return ctx.pure(f"icmp ne {from_} {x}, {zero(source)}")
        if source.kind == "b":
            if target.kind == "f":
                return self.select(ctx, x, target, constant(target, 1.0), zero(target))
            return ctx.pure(f"zext {from_} {x} to {to}")
        if source.kind == "f":
            if target.kind == "f":
                name = "fpext" if target.bits > source.bits else "fptrunc"
                return ctx.pure(f"{name} {from_} {x} to {to}")
            stem = f"llvm.fpto{'si' if target.kind == 'i' else 'ui'}.sat"
            name = f"{stem}.{suffix(target)}.{suffix(source)}"
            return ctx.pure(ctx.intrinsic(name, to, (from_, x)))
        if value in ctx.held:
            from_, x = "i64", self.wide(ctx, value)
        if target.kind == "f":
            name = "uitofp" if source.kind == "u" else "sitofp"
        elif from_ == to:
            return x
        elif target.bits < int(source.bits) or from_ == "i64":
            name = "trunc"
        elif target.bits == source.bits:
            return x
        else:
            name = "zext" if source.kind == "u" else "sext"
        return ctx.pure(f"{name} {from_} {x} to {to}")

    def _cast_half(self, ctx: LLVMContext, node: UOp, x: str) -> str:
        """float16 to and from float32, held as the integers of its bits."""
        source, target = node.src[0].dtype, node.dtype
        pair = (source.scalar, target.scalar)
        if pair not in (_TO_HALF, _FROM_HALF):
            message = f"LLVM IR is given no conversion of {source.scalar} to {target.scalar}"
            return ctx.fail(message, node)
        word, half = lanes_type(source, "i16"), lanes_type(source, "half")
        single = lanes_type(source, "float")
        if not self.features & {"f16c", "avx512f", "ARM_NEON"}:
            count = source.count
            return (half_of if pair == _TO_HALF else of_half)(ctx, x, count)
        if pair == _TO_HALF:
            short = ctx.pure(f"fptrunc {single} {x} to {half}")
            return ctx.pure(f"bitcast {half} {short} to {word}")
        short = ctx.pure(f"bitcast {word} {x} to {half}")
        return ctx.pure(f"fpext {half} {short} to {single}")

    def _bitcast(self, ctx: LLVMContext, node: UOp) -> str:
        source, target = ir_type(node.src[0].dtype), ir_type(node.dtype)
        value = self.operand(ctx, node.src[0])
        return value if source == target else ctx.pure(f"bitcast {source} {value} to {target}")

    # ---- vectors ---------------------------------------------------------------------------------

    def splat(self, ctx: LLVMContext, scalar: str, dtype: DType) -> str:
        """A scalar in every lane."""
        kind, element = ir_type(dtype), ir_type(dtype.scalar)
        first = ctx.pure(f"insertelement {kind} poison, {element} {scalar}, i64 0")
        mask = f"<{dtype.count} x i32> zeroinitializer"
        return ctx.pure(f"shufflevector {kind} {first}, {kind} poison, {mask}")

    def spread(self, ctx: LLVMContext, truth: UOp, word: DType) -> str:
        """A scalar bool as a vector of words, all of whose bits are it."""
        bits = ctx.pure(f"sext i1 {self.operand(ctx, truth)} to {ir_type(word.scalar)}")
        return self.splat(ctx, bits, word)

    def _vectorize(self, ctx: LLVMContext, node: UOp) -> str:
        dtype = node.dtype
        scalar = splat_value(node)
        if scalar is not None:
            if scalar.op is Ops.CONST:
                return constant(dtype, scalar.arg)
            if dtype.kind == "b":  # what a `_mask` inside a loop would otherwise compute in it
                self.spread(ctx, scalar, dtypes.int32.vec(dtype.count))
            return self.splat(ctx, self.operand(ctx, scalar), dtype)
        kind, element = ir_type(dtype), ir_type(dtype.scalar)
        vector = "poison"
        for lane, source in enumerate(node.src):
            value = self.operand(ctx, source)
            vector = ctx.pure(f"insertelement {kind} {vector}, {element} {value}, i64 {lane}")
        return vector

    def _gep(self, ctx: LLVMContext, node: UOp) -> str:
        vector = node.src[0]
        kind = ir_type(vector.dtype)
        if len(node.arg) == 1:
            scalar = splat_value(vector)
            if scalar is not None:
                return self.operand(ctx, scalar)
            value = self.operand(ctx, vector)
            return ctx.pure(f"extractelement {kind} {value}, i64 {node.arg[0]}")
        if vector in ctx.pairs:  # joined first, they would be one value too large for a register
            a, b = (self.operand(ctx, part) for part in vector.src)
            return _shuffle(ctx, ir_type(vector.src[0].dtype), a, b, node.arg)
        return _shuffle(ctx, kind, self.operand(ctx, vector), "poison", node.arg)

    def _cat(self, ctx: LLVMContext, node: UOp) -> str:
        parts = [(self.operand(ctx, s), s.dtype.count) for s in node.src]
        if len({count for _, count in parts}) > 1 or len(parts) & (len(parts) - 1):
            message = "only vectors of equal length, a power of two of them, are joined"
            return ctx.fail(message, node)
        while len(parts) > 1:
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            parts = []
            for (a, count), (b, _) in pairs:
                kind = ir_type(node.dtype.scalar.vec(count))
                parts.append((_shuffle(ctx, kind, a, b, range(2 * count)), 2 * count))
        return parts[0][0]


def _shuffle(ctx: LLVMContext, kind: str, a: str, b: str, lanes: tuple[int, ...] | range) -> str:
    numbers = ", ".join([f"i32 {lane}" for lane in lanes])
    return ctx.pure(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{numbers}>")


@cache
def _vector_constant(node: UOp) -> str:
    scalar = splat_value(node)
    if scalar is not None:
        return constant(node.dtype, scalar.arg)
    element = ir_type(node.dtype.scalar)
    lanes = ", ".join([f"{element} {literal(node.dtype.scalar, value)}" for value in node.arg])
    return f"<{lanes}>"


def _wrap(node: UOp) -> str:
    """The flag of arithmetic on positions, which never wrap in 64 bits."""
    return "nsw " if node.dtype is dtypes.int32 else ""


def _int64(value: int) -> int:
    """The int64 that is congruent to a constant."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


_WORDS = {dtypes.float32: "i32", dtypes.float64: "i64"}
_TO_HALF = (dtypes.float32, dtypes.float16)
_FROM_HALF = (dtypes.float16, dtypes.float32)
_ARITHMETIC = GroupOp.ALU - {Ops.WHERE}
_LINEAR = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.SHL})
# fmt: off
_FLOAT_OPS = {Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv"}
_INT_OPS = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
}
_BOOL_OPS = {
    Ops.ADD: "or", Ops.MUL: "and", Ops.MAX: "or", Ops.MIN: "and",
    Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
}
_FLOAT_TESTS = {
    Ops.LT: "olt", Ops.LE: "ole", Ops.GT: "ogt", Ops.GE: "oge", Ops.EQ: "oeq", Ops.NE: "une",
}
_INT_TESTS = {
    Ops.LT: "lt", Ops.LE: "le", Ops.GT: "gt", Ops.GE: "ge", Ops.EQ: "eq", Ops.NE: "ne",
}
# fmt: on
_V = LLVMValues
_VALUES: dict[Ops, Callable[[LLVMValues, LLVMContext, UOp], str]] = {
    **dict.fromkeys(_FLOAT_OPS, _V._binary),
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR), _V._binary),
    **dict.fromkeys(_FLOAT_TESTS, _V._compare),
    Ops.NEG: _V._neg,
    Ops.NOT: _V._not,
    Ops.MAX: _V._extreme,
    Ops.MIN: _V._extreme,
    Ops.IDIV: _V._divide,
    Ops.MOD: _V._divide,
    Ops.SHL: _V._shift,
    Ops.SHR: _V._shift,
    Ops.WHERE: _V._where,
    Ops.SQRT: _V._sqrt,
    Ops.MULACC: _V._mulacc,
    Ops.CAST: _V._cast,
    Ops.BITCAST: _V._bitcast,
    Ops.VECTORIZE: _V._vectorize,
    Ops.GEP: _V._gep,
    Ops.CAT: _V._cat,
}
