"""How C spells values: operators on scalars and GNU vectors, masks, conversions, shuffles.

Choices on vectors are made with masks: a bool vector is a vector of integers, 0 or -1, as wide as
what was compared; it is converted where masks of different widths meet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from morok.dtype import DType, dtypes
from morok.ir import GroupOp, Ops, UOp
from morok.renderers import c_helpers as helpers
from morok.renderers.base import (
    FLOAT_STORAGE,
    CLike,
    Context,
    Expr,
    Level,
    always_positive,
    is_position,
    is_register,
    shifts_within,
    splat_value,
)
from morok.renderers.c_dots import dot_bf16
from morok.renderers.c_types import (
    held,
    literal,
    mask_dtype,
    mask_of,
    scalar_name,
    typedefs,
    unaligned,
    vector_name,
)

__all__ = ["CExpressions"]


class CExpressions(CLike):
    """The part of the C renderer that turns values into text."""

    features: frozenset[str]

    @abstractmethod
    def load(self, ctx: Context, node: UOp) -> Expr:
        """A read of memory."""

    # ---- types -----------------------------------------------------------------------------------

    def value_dtypes(self, ops: Iterable[UOp]) -> dict[UOp, DType]:
        """The dtype of the C variable of every value: masks for vectors of bools, 64 bits for
        positions, else as `held` says."""
        out: dict[UOp, DType] = {}
        for node in ops:
            dtype = node.dtype
            kind = dtype.kind
            if kind == "b" and dtype.count > 1:
                out[node] = mask_dtype(self._mask_bits(node, out), dtype.count)
            elif dtype is dtypes.int32 and is_position(node, out):
                out[node] = dtypes.int64
            elif kind != "v" and kind != "p":
                out[node] = held(dtype)
        return out

    def _mask_bits(self, node: UOp, known: dict[UOp, DType]) -> int:
        """How wide the lanes of the mask are that holds a vector of bools."""
        op, src = node.op, node.src
        if op is Ops.CAST or (op in GroupOp.Comparison and src[0].dtype.kind != "b"):
            return held(src[0].dtype).bits
        if op is Ops.LOAD:
            usual = self._usual_mask_bits(node.dtype.count)
            return usual if is_register(src[0]) else 8
        masks = [known[s].bits for s in src if s.dtype.kind == "b" and s.dtype.count > 1]
        return max(masks) if masks else self._usual_mask_bits(node.dtype.count)

    def _usual_mask_bits(self, count: int) -> int:
        """Lanes that fill a register, 8 to 32 bits each."""
        bits = 512 if "avx512f" in self.features else 256
        return max(8, min(32, bits // count))

    def type_of(self, ctx: Context, node: UOp) -> str:
        return self.named(ctx, ctx.held[node])

    def named(self, ctx: Context, dtype: DType, *, memory: bool = False) -> str:
        """The C name of a type, whose definition is put in front of the kernel."""
        name = ctx.types.get((dtype, memory))
        if name is None:
            if dtype.count & (dtype.count - 1):
                ctx.errors.append((f"C has no vector of {dtype.count} lanes", ctx.ops[-1]))
                return scalar_name(dtype.scalar)
            for known, text in typedefs(dtype, memory):
                ctx.define(known, text)
            name = unaligned(dtype) if memory and dtype.count > 1 else vector_name(dtype)
            ctx.types[dtype, memory] = name
        return name

    def call(self, ctx: Context, helper: helpers.Helper, *args: Expr) -> Expr:
        """A call of a helper, whose definition is put in front of the kernel."""
        if helper.name not in ctx.prelude:
            for dtype in helper.uses:
                self.named(ctx, dtype, memory=unaligned(dtype) in helper.text)
            ctx.define(helper.name, helper.guarded)
        return Expr(f"{helper.name}({', '.join(arg.text for arg in args)})")

    def constant(self, ctx: Context, dtype: DType, value: Any) -> Expr:
        if dtype.kind not in "biuf":
            return Expr("0")  # shapes and the like: nobody computes with them
        expr = literal(dtype, value)
        if expr.text.startswith("("):
            self.named(ctx, held(dtype))
        return expr

    # ---- operands --------------------------------------------------------------------------------

    def operand(self, ctx: Context, node: UOp, like: DType | None = None) -> Expr:
        """A value as an operand of an operator. A constant in all lanes may stand as a scalar,
        which C spreads; a mask is brought to the width of `like`."""
        if node.dtype.count == 1:
            return self.expr(ctx, node)
        if node.dtype.kind == "b":
            return self.mask(ctx, node, like)
        scalar = splat_value(node)
        if scalar is not None and (scalar.op is Ops.CONST or node.dtype.kind == "f"):
            return self.scalar(ctx, scalar)
        return self.expr(ctx, node)

    def value(self, ctx: Context, node: UOp, like: DType | None = None) -> Expr:
        """A value in full, as an argument or on its own."""
        if node.dtype.kind == "b" and node.dtype.count > 1:
            return self.mask(ctx, node, like)
        scalar = splat_value(node)
        if scalar is not None and scalar.op is Ops.CONST:
            return self.splat(ctx, self.scalar(ctx, scalar), held(node.dtype))
        return self.expr(ctx, node)

    def scalar(self, ctx: Context, node: UOp) -> Expr:
        if node.op is Ops.CONST:
            return self.constant(ctx, node.dtype, node.arg)
        return self.expr(ctx, node)

    def splat(self, ctx: Context, scalar: Expr, dtype: DType) -> Expr:
        """A scalar in every lane. x - 0 is x for every float, -0.0 and NaN included."""
        zero = f"({self.named(ctx, dtype)}){{}}"
        if dtype.kind == "f":
            return Expr(f"{scalar.at(Level.ADDITIVE)} - {zero}", Level.ADDITIVE)
        text = scalar.text
        if not text.startswith(f"({scalar_name(dtype.scalar)})") and not text.isdigit():
            text = f"({self.named(ctx, dtype.scalar)}){scalar.at(Level.UNARY)}"
        elif dtype.scalar not in (dtypes.int32,) and text.isdigit():
            text = f"({self.named(ctx, dtype.scalar)}){text}"
        return Expr(f"{text} + {zero}", Level.ADDITIVE)

    def mask(self, ctx: Context, node: UOp, like: DType | None) -> Expr:
        """A vector of bools as the mask for values of `like` (default: as wide as it is)."""
        have = ctx.held[node]
        want = have if like is None else mask_dtype(like.bits, node.dtype.count)
        scalar = splat_value(node)
        if scalar is not None:
            if scalar.op is Ops.CONST:
                bits = Expr("-1" if scalar.arg else "0", Level.UNARY)
            else:
                bits = Expr(f"-{self.expr(ctx, scalar).at(Level.UNARY)}", Level.UNARY)
            return self.splat(ctx, bits, want)
        expr = self.expr(ctx, node)
        return expr if have is want else self.convert(ctx, expr, want)

    def convert(self, ctx: Context, vector: Expr, dtype: DType) -> Expr:
        return Expr(f"__builtin_convertvector({vector}, {self.named(ctx, dtype)})")

    def cast(self, ctx: Context, expr: Expr, dtype: DType) -> Expr:
        """The C cast: a conversion of scalars, the same bits of vectors."""
        return Expr(f"({self.named(ctx, dtype)}){expr.at(Level.UNARY)}", Level.UNARY)

    # ---- expressions -----------------------------------------------------------------------------

    def expression(self, ctx: Context, node: UOp) -> Expr:
        method = _EXPRESSIONS.get(node.op)
        if method is None or (node.op is Ops.MULACC and Ops.MULACC not in self.capability.ops):
            return ctx.fail(f"C has no {node.op.name}", node)
        if node.dtype.scalar in FLOAT_STORAGE and node.op in _ARITHMETIC:
            return ctx.fail(f"C has no arithmetic on {node.dtype.scalar}", node)
        return method(self, ctx, node)

    def _infix(self, ctx: Context, node: UOp) -> Expr:
        symbol, level = self.infix[node.op]
        if node.dtype.kind == "b" and node.dtype.count > 1 and node.src[0].dtype.kind == "b":
            a, b = (self.mask(ctx, s, ctx.held[node]) for s in node.src)
        else:
            a, b = self._operands(ctx, node)
        expr = self.binary(symbol, level, a, b)
        if node.op in GroupOp.Comparison and node.dtype.count > 1:
            return self.cast(ctx, expr, ctx.held[node])
        return self._narrowed(ctx, expr, node)

    def _operands(self, ctx: Context, node: UOp) -> tuple[Expr, Expr]:
        """Both operands; C spreads a scalar beside a vector, but one of them must be a vector."""
        a, b = node.src
        spread = node.dtype.count > 1 and all(splat_value(s) is not None for s in node.src)
        return (self.value if spread else self.operand)(ctx, a), self.operand(ctx, b)

    def _narrowed(self, ctx: Context, expr: Expr, node: UOp) -> Expr:
        """C computes in int what is narrower: cut the result to its own width."""
        dtype = node.dtype
        if dtype.count == 1 and dtype.kind in "iu" and dtype.bits < 32:
            return self.cast(ctx, expr, dtype)
        return expr

    def _neg(self, ctx: Context, node: UOp) -> Expr:
        expr = Expr(f"-{self.value(ctx, node.src[0]).at(Level.ATOM)}", Level.UNARY)
        return self._narrowed(ctx, expr, node)

    def _not(self, ctx: Context, node: UOp) -> Expr:
        if node.dtype.kind == "b" and node.dtype.count == 1:
            return Expr(f"!{self.expr(ctx, node.src[0]).at(Level.UNARY)}", Level.UNARY)
        like = ctx.held[node]
        expr = Expr(f"~{self.value(ctx, node.src[0], like).at(Level.UNARY)}", Level.UNARY)
        return self._narrowed(ctx, expr, node)

    def _extreme(self, ctx: Context, node: UOp) -> Expr:
        helper = helpers.extreme(node.op.name.lower(), ctx.held[node], self.features)
        return self.call(ctx, helper, *(self.value(ctx, s) for s in node.src))

    def _divide(self, ctx: Context, node: UOp) -> Expr:
        a, b = node.src
        if node.dtype.kind == "f":
            if node.op is Ops.IDIV:
                return ctx.fail("C has no IDIV of floats", node)
            return self.call(
                ctx, helpers.remainder(node.dtype), *map(partial(self.value, ctx), (a, b))
            )
        if always_positive(b) or (node.dtype.kind == "i" and b.vmax is not None and b.vmax < -1):
            symbol = "/" if node.op is Ops.IDIV else "%"
            expr = self.binary(symbol, Level.MULTIPLICATIVE, *self._operands(ctx, node))
            return self._narrowed(ctx, expr, node)
        helper = helpers.divide(node.op.name.lower(), ctx.held[node])
        return self.call(ctx, helper, self.value(ctx, a), self.value(ctx, b))

    def _shift(self, ctx: Context, node: UOp) -> Expr:
        a, b = node.src
        if not shifts_within(b, node.dtype.bits):
            helper = helpers.shift(node.op.name.lower(), ctx.held[node])
            return self.call(ctx, helper, self.value(ctx, a), self.value(ctx, b))
        number, count = self._operands(ctx, node)
        scalar = splat_value(b) if b.dtype.count > 1 else b
        if scalar is not None and scalar.op is Ops.CONST:
            count = Expr(str(scalar.arg))
        symbol = "<<" if node.op is Ops.SHL else ">>"
        return self._narrowed(ctx, self.binary(symbol, Level.OTHER, number, count), node)

    def _where(self, ctx: Context, node: UOp) -> Expr:
        condition, a, b = node.src
        dtype = ctx.held[node]
        if condition.dtype.count == 1:
            return self.conditional(ctx, condition, self.value(ctx, a, dtype), b, dtype)
        if node.dtype.kind == "b":
            x, y = (self.mask(ctx, s, dtype).at(Level.UNARY) for s in (a, b))
            m = self.named_mask(ctx, condition, dtype)
            return Expr(f"({m} & {x}) | (~{m} & {y})", Level.OTHER)
        chosen = _lesser_or_greater(condition, a, b)
        if chosen is not None:
            stem, first, second = chosen
            helper = helpers.compared(stem, dtype, self.features)
            if helper is not None:
                return self.call(ctx, helper, self.value(ctx, first), self.value(ctx, second))
        mask = self.mask(ctx, condition, dtype)
        helper = helpers.select(dtype, self.features)
        return self.call(ctx, helper, mask, self.value(ctx, a), self.value(ctx, b))

    def conditional(self, ctx: Context, gate: UOp, a: Expr, b: UOp, dtype: DType) -> Expr:
        test = self.expr(ctx, gate).at(Level.UNARY)
        other = self.value(ctx, b, dtype)
        if dtype.count > 1:  # a vector in memory has a type of its own
            a = self.cast(ctx, a, dtype)
        return Expr(f"{test} ? {a.at(Level.UNARY)} : {other.at(Level.UNARY)}", Level.OTHER)

    def named_mask(self, ctx: Context, node: UOp, like: DType) -> Expr:
        """A mask under a name, to be used more than once."""
        expr = self.mask(ctx, node, like)
        if expr.text.isidentifier():
            return expr
        name = ctx.fresh("m")
        ctx.emit(f"{self.named(ctx, mask_of(like))} {name} = {expr};")
        return Expr(name)

    def _sqrt(self, ctx: Context, node: UOp) -> Expr:
        dtype = node.dtype
        if dtype.count == 1:
            suffix = "f" if dtype.bits == 32 else ""
            return Expr(f"__builtin_sqrt{suffix}({self.expr(ctx, node.src[0])})")
        return self.call(ctx, helpers.sqrt(dtype, self.features), self.value(ctx, node.src[0]))

    def _mulacc(self, ctx: Context, node: UOp) -> Expr:
        dtype = node.dtype
        if dtype.kind != "f":
            a, b, c = (self.operand(ctx, s) for s in node.src)
            product = self.binary("*", Level.MULTIPLICATIVE, a, b)
            return self._narrowed(ctx, self.binary("+", Level.ADDITIVE, product, c), node)
        args = [self.value(ctx, s) for s in node.src]
        if dtype.count == 1:
            suffix = "f" if dtype.bits == 32 else ""
            return Expr(f"__builtin_fma{suffix}({', '.join(map(str, args))})")
        return self.call(ctx, helpers.fma(dtype, self.features), *args)

    # ---- conversions -----------------------------------------------------------------------------

    def _cast(self, ctx: Context, node: UOp) -> Expr:
        source, target = node.src[0].dtype, node.dtype
        if source.scalar in FLOAT_STORAGE or target.scalar in FLOAT_STORAGE:
            return self._cast_half(ctx, node)
        if target.kind == "b":
            return self._to_bool(ctx, node)
        if source.kind == "b":
            return self._from_bool(ctx, node)
        value = self.value(ctx, node.src[0])
        if source.kind == "f" and target.kind != "f":
            return self.call(ctx, helpers.float_to_int(source, target), value)
        if target.count == 1:
            if target is dtypes.int64 and ctx.held[node.src[0]] is target:
                return value
            return self.cast(ctx, value, target)
        return self.convert(ctx, value, target)

    def _to_bool(self, ctx: Context, node: UOp) -> Expr:
        source = node.src[0].dtype
        if source.kind == "b":
            return self.operand(ctx, node.src[0])
        expr = self.binary("!=", Level.OTHER, self.value(ctx, node.src[0]), Expr("0"))
        if source.kind == "f":
            zero = literal(source.scalar, 0.0)
            expr = self.binary("!=", Level.OTHER, self.value(ctx, node.src[0]), zero)
        return expr if source.count == 1 else self.cast(ctx, expr, mask_of(held(source)))

    def _from_bool(self, ctx: Context, node: UOp) -> Expr:
        target = node.dtype
        if target.count == 1:
            return self.cast(ctx, self.expr(ctx, node.src[0]), target)
        mask = self.mask(ctx, node.src[0], target)
        if target.kind != "f":
            return self.cast(ctx, Expr(f"-{mask.at(Level.ATOM)}", Level.UNARY), target)
        one = literal(mask_dtype(target.bits, 1), _bits_of_one(target))
        bits = self.binary("&", Level.OTHER, mask, one)
        return self.cast(ctx, bits, target)

    def _cast_half(self, ctx: Context, node: UOp) -> Expr:
        source, target = node.src[0].dtype, node.dtype
        value = self.value(ctx, node.src[0])
        if (source.scalar, target.scalar) == (dtypes.float16, dtypes.float32):
            return self.call(ctx, helpers.half_to_float(target.count, self.features), value)
        if (source.scalar, target.scalar) == (dtypes.float32, dtypes.float16):
            return self.call(ctx, helpers.float_to_half(target.count, self.features), value)
        return ctx.fail(f"C has no conversion of {source.scalar} to {target.scalar}", node)

    def _bitcast(self, ctx: Context, node: UOp) -> Expr:
        source, target = held(node.src[0].dtype), held(node.dtype)
        value = self.value(ctx, node.src[0])
        if source is target:
            return value
        if target.count > 1 or {source.kind, target.kind} <= {"i", "u"}:
            return self.cast(ctx, value, target)
        union = f"(union {{ {self.named(ctx, source)} a; {self.named(ctx, target)} b; }})"
        return Expr(f"({union}{{{value}}}).b")

    def custom(self, ctx: Context, node: UOp) -> Expr:
        """A CUSTOM or CUSTOM_I: its format string with the sources that are values."""
        args = [self.expr(ctx, s).at(Level.ATOM) for s in node.src if s.dtype is not dtypes.void]
        return Expr(node.arg.format(*args), Level.OTHER)

    # ---- vectors ---------------------------------------------------------------------------------

    def _vectorize(self, ctx: Context, node: UOp) -> Expr:
        dtype = ctx.held[node]
        if node.dtype.kind == "b":
            if splat_value(node) is not None:
                return self.mask(ctx, node, dtype)
            lanes = [f"-{self.expr(ctx, s).at(Level.UNARY)}" for s in node.src]
        else:
            scalar = splat_value(node)
            if scalar is not None:
                return self.splat(ctx, self.scalar(ctx, scalar), dtype)
            lanes = [self.expr(ctx, s).text for s in node.src]
        return Expr(f"({self.named(ctx, dtype)}){{{', '.join(lanes)}}}")

    def _vconst(self, ctx: Context, node: UOp) -> Expr:
        if splat_value(node) is not None:
            return self.value(ctx, node)
        if node.dtype.kind == "b":
            lanes = ["-1" if value else "0" for value in node.arg]
        else:
            lanes = [literal(node.dtype.scalar, value).text for value in node.arg]
        return Expr(f"({self.type_of(ctx, node)}){{{', '.join(lanes)}}}")

    def _gep(self, ctx: Context, node: UOp) -> Expr:
        vector = node.src[0]
        scalar = splat_value(vector)
        if scalar is not None and len(node.arg) == 1:
            return self.scalar(ctx, scalar)
        if vector in ctx.pairs:
            helper = helpers.shuffle(ctx.held[vector.src[0]], node.arg)
            return self.call(ctx, helper, *(self.value(ctx, s) for s in vector.src))
        value = self.value(ctx, vector)
        if len(node.arg) == 1:
            lane = Expr(f"{value.at(Level.ATOM)}[{node.arg[0]}]")
            is_bool = node.dtype.kind == "b"
            return self.binary("!=", Level.OTHER, lane, Expr("0")) if is_bool else lane
        return self.call(ctx, helpers.lanes(ctx.held[vector], node.arg), value)

    def _wmma(self, ctx: Context, node: UOp) -> Expr:
        """Of tiles that the target's instructions make, as all others were lowered."""
        if node.src[3:] or node.arg.dtype_in is not dtypes.bfloat16:
            return ctx.fail("the processor has no instruction for this tile", node)
        a, b, c = (self.value(ctx, source) for source in node.src)
        return self.call(ctx, dot_bf16(), c, a, b)

    def _cat(self, ctx: Context, node: UOp) -> Expr:
        dtype = ctx.held[node]
        parts = [(self.value(ctx, s, dtype), s.dtype.count) for s in node.src]
        if len({count for _, count in parts}) > 1 or len(parts) & (len(parts) - 1):
            return ctx.fail("C joins only vectors of equal length, a power of two of them", node)
        while len(parts) > 1:
            helper = helpers.join(dtype.scalar.vec(parts[0][1]))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [(self.call(ctx, helper, a, b), 2 * n) for (a, n), (b, _) in pairs]
        return parts[0][0]


_ARITHMETIC = GroupOp.ALU - {Ops.WHERE}


def _bits_of_one(dtype: DType) -> int:
    return 0x3F800000 if dtype.bits == 32 else 0x3FF0000000000000


def _lesser_or_greater(condition: UOp, a: UOp, b: UOp) -> tuple[str, UOp, UOp] | None:
    """(stem, x, y) where WHERE(condition, a, b) is `x < y ? x : y` ("lesser") or `x > y ? x : y`
    ("greater"); the operands' order matters for NaN and zeros of two signs."""
    if condition.op not in (Ops.LT, Ops.GT) or condition.dtype.count == 1:
        return None
    less = condition.op is Ops.LT
    if condition.src == (a, b):
        return ("lesser" if less else "greater"), a, b
    if condition.src == (b, a):  # b < a ? a : b is a > b ? a : b
        return ("greater" if less else "lesser"), a, b
    return None


_R = CExpressions
_EXPRESSIONS: dict[Ops, Callable[[CExpressions, Context, UOp], Expr]] = {
    **dict.fromkeys(CLike.infix, _R._infix),
    Ops.NEG: _R._neg,
    Ops.NOT: _R._not,
    Ops.MAX: _R._extreme,
    Ops.MIN: _R._extreme,
    Ops.IDIV: _R._divide,
    Ops.MOD: _R._divide,
    Ops.SHL: _R._shift,
    Ops.SHR: _R._shift,
    Ops.WHERE: _R._where,
    Ops.SQRT: _R._sqrt,
    Ops.MULACC: _R._mulacc,
    Ops.CAST: _R._cast,
    Ops.BITCAST: _R._bitcast,
    Ops.VECTORIZE: _R._vectorize,
    Ops.VCONST: _R._vconst,
    Ops.GEP: _R._gep,
    Ops.CAT: _R._cat,
    Ops.WMMA: _R._wmma,
    Ops.LOAD: lambda renderer, ctx, node: renderer.load(ctx, node),
    Ops.CUSTOM_I: _R.custom,
}
