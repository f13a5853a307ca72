"""C with GNU vector extensions, for gcc and clang: what runs on a CPU.

    void NAME(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi)

`bufs[slot]` are the PARAMs, `vars` the values of the DEFINE_VARs in the order of their names,
`scratch` holds the DEFINE_LOCALs (see `local_layout`), and a loop of type THREAD runs from lo to
hi. Nothing is included. Choices on vectors are made with masks: a bool vector is a vector of
integers, 0 or -1, as wide as what was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from morok.dtype import DType, dtypes
from morok.ir import AxisType, Capability, GroupOp, Ops, UOp
from morok.renderers import c_helpers as helpers
from morok.renderers.base import (
    FLOAT_STORAGE,
    CLike,
    Context,
    Expr,
    Level,
    base_buffer,
    is_register,
    splat_value,
)
from morok.renderers.c_types import (
    held,
    in_memory,
    literal,
    mask_dtype,
    mask_of,
    scalar_name,
    typedefs,
    unaligned,
    vector_name,
)

__all__ = ["CRenderer", "FEATURES", "c_capability"]

FEATURES = ("sse2", "sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "ARM_NEON")
"""The processor features that change what is rendered, by their GNU names."""

_OPS = frozenset(
    {
        *(Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.INDEX, Ops.POINTER_INDEX, Ops.LOAD, Ops.STORE),
        *(Ops.PARAM, Ops.DEFINE_REG, Ops.DEFINE_LOCAL, Ops.DEFINE_VAR, Ops.CONST, Ops.VCONST),
        *(Ops.VECTORIZE, Ops.GEP, Ops.CAT, Ops.CAST, Ops.BITCAST, Ops.CUSTOM, Ops.CUSTOM_I),
        *(Ops.NEG, Ops.NOT, Ops.SQRT, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.IDIV, Ops.MOD),
        *(Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.WHERE),
        *GroupOp.Comparison,
    }
)


def c_capability(features: frozenset[str]) -> Capability:
    """What C on a processor with these features can do; part of every kernel's key."""
    bits = 512 if "avx512f" in features else 256 if "avx" in features else 128
    widths = tuple(
        (dtype, tuple(1 << k for k in range(7) if 64 <= dtype.bits << k <= bits))
        for dtype in (*dtypes.ints, *dtypes.floats, dtypes.bool_)
    )
    fused = {Ops.MULACC} if features & {"fma", "ARM_NEON"} else set()
    return Capability(
        name="C " + " ".join(sorted(features)),
        ops=_OPS | fused,
        vector_widths=widths,
        vector_alu=True,
        threads=True,
        local_memory=True,
        vector_registers=32 if features & {"avx512f", "ARM_NEON"} else 16,
        l1_bytes=32 << 10,
        l2_bytes=512 << 10,
    )


class CRenderer(CLike):
    """Renders LINEARs as C for a processor with the given features (names as in `FEATURES`)."""

    pre_matcher: ClassVar[Any] = None

    def __init__(self, features: Iterable[str] = ()) -> None:
        self.features = frozenset(features) & frozenset(FEATURES)
        self.capability = c_capability(self.features)

    @classmethod
    def for_target(cls, has: Callable[[str], bool]) -> CRenderer:
        """For the processor of which `has` says what it has, e.g. `CCompiler().target.has`."""
        return cls(feature for feature in FEATURES if has(feature))

    # ---- types -----------------------------------------------------------------------------------

    def value_dtypes(self, ops: Iterable[UOp]) -> dict[UOp, DType]:
        """The dtype of the C variable of every value: masks for vectors of bools, 64 bits for
        positions, else as `held` says."""
        out: dict[UOp, DType] = {}
        for node in ops:
            if node.dtype.kind == "b" and node.dtype.count > 1:
                out[node] = mask_dtype(self._mask_bits(node, out), node.dtype.count)
            elif _is_position(node, out):
                out[node] = dtypes.int64
            elif node.dtype.kind not in "vp":
                out[node] = held(node.dtype)
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
        if dtype.count & (dtype.count - 1):
            ctx.errors.append((f"no vector of {dtype.count} lanes", ctx.ops[-1]))
            return scalar_name(dtype.scalar)
        for name, text in typedefs(dtype, memory=memory):
            ctx.define(name, text)
        return unaligned(dtype) if memory and dtype.count > 1 else vector_name(dtype)

    def call(self, ctx: Context, helper: helpers.Helper, *args: Expr) -> Expr:
        """A call of a helper, whose definition is put in front of the kernel."""
        for dtype in helper.uses:
            self.named(ctx, dtype, memory=True)
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
        if scalar is not None and scalar.op is Ops.CONST:
            return self.constant(ctx, scalar.dtype, scalar.arg)
        return self.expr(ctx, node)

    def value(self, ctx: Context, node: UOp, like: DType | None = None) -> Expr:
        """A value in full, as an argument or on its own."""
        scalar = splat_value(node)
        if scalar is not None and node.dtype.kind != "b":
            return self.splat(ctx, self.scalar(ctx, scalar), held(node.dtype))
        return self.operand(ctx, node, like)

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
        if node.dtype.scalar in FLOAT_STORAGE and node.op in GroupOp.ALU - {Ops.WHERE}:
            return ctx.fail(f"C has no arithmetic on {node.dtype.scalar}", node)
        return method(self, ctx, node)

    def _infix(self, ctx: Context, node: UOp) -> Expr:
        dtype = node.dtype
        if dtype.kind == "b":
            return self._logic(ctx, node)
        symbol, level = self.infix[node.op]
        a, b = (self.operand(ctx, s) for s in node.src)
        if dtype.count > 1 and all(_is_constant(s) for s in node.src):
            a = self.value(ctx, node.src[0])
        return self._narrowed(ctx, self.binary(symbol, level, a, b), node)

    def _narrowed(self, ctx: Context, expr: Expr, node: UOp) -> Expr:
        """C computes in int what is narrower: cut the result to its own width."""
        dtype = node.dtype
        if dtype.count == 1 and dtype.kind in "iu" and dtype.bits < 32:
            return self.cast(ctx, expr, dtype)
        return expr

    def _logic(self, ctx: Context, node: UOp) -> Expr:
        """Ops on bools: as on the integers 0 and 1 for scalars, on masks for vectors."""
        op, src = node.op, node.src
        symbol, level = self.infix[_ON_BOOLS.get(op, op)]
        if node.dtype.count == 1:
            a, b = (self.expr(ctx, s) for s in src)
            if src[0].dtype.kind == "b" and op is Ops.NE:
                return self.binary("^", Level.OTHER, a, b)
            return self.binary(symbol, level, a, b)
        if src[0].dtype.kind != "b":
            like = mask_of(held(src[0].dtype))
            first = self.value if all(_is_constant(s) for s in src) else self.operand
            a, b = first(ctx, src[0]), self.operand(ctx, src[1])
            return self.cast(ctx, self.binary(symbol, level, a, b), like)
        like = ctx.held[node]
        a, b = (self.mask(ctx, s, like) for s in src)
        return _MASK_OPS[op](a, b)

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
        if node.dtype.kind == "b":
            return self._logic(ctx, node)
        helper = helpers.extreme(node.op.name.lower(), ctx.held[node])
        return self.call(ctx, helper, *(self.value(ctx, s) for s in node.src))

    def _divide(self, ctx: Context, node: UOp) -> Expr:
        a, b = node.src
        symbol = "/" if node.op is Ops.IDIV else "%"
        if _positive(b) or (node.dtype.kind == "i" and _negative(b) and b.vmax < -1):
            dividend = self.value(ctx, a) if _is_constant(a) else self.operand(ctx, a)
            divisor = self.operand(ctx, b)
            expr = self.binary(symbol, Level.MULTIPLICATIVE, dividend, divisor)
            return self._narrowed(ctx, expr, node)
        helper = helpers.divide(node.op.name.lower(), ctx.held[node])
        return self.call(ctx, helper, self.value(ctx, a), self.value(ctx, b))

    def _shift(self, ctx: Context, node: UOp) -> Expr:
        a, b = node.src
        symbol = "<<" if node.op is Ops.SHL else ">>"
        if b.vmin is not None and b.vmin >= 0 and b.vmax < node.dtype.bits:
            count = self.operand(ctx, b)
            if b.op is Ops.CONST:
                count = Expr(str(b.arg))
            number = self.value(ctx, a) if _is_constant(a) else self.operand(ctx, a)
            return self._narrowed(ctx, self.binary(symbol, Level.OTHER, number, count), node)
        helper = helpers.shift(node.op.name.lower(), ctx.held[node])
        return self.call(ctx, helper, self.value(ctx, a), self.value(ctx, b))

    def _where(self, ctx: Context, node: UOp) -> Expr:
        condition, a, b = node.src
        dtype = ctx.held[node]
        if condition.dtype.count == 1:
            return self._conditional(ctx, condition, self.value(ctx, a, dtype), b, dtype)
        if node.dtype.kind == "b":
            m, x, y = (self.mask(ctx, s, dtype).at(Level.UNARY) for s in node.src)
            if _is_constant(b) and splat_value(b).arg is False:
                return Expr(f"{m} & {x}", Level.OTHER)
            m = self._named_mask(ctx, condition, dtype).text
            return Expr(f"({m} & {x}) | (~{m} & {y})", Level.OTHER)
        mask = self.mask(ctx, condition, dtype)
        return self.call(
            ctx, helpers.select(dtype), mask, self.value(ctx, a), self.value(ctx, b)
        )

    def _conditional(self, ctx: Context, gate: UOp, a: Expr, b: UOp, dtype: DType) -> Expr:
        test = self.expr(ctx, gate).at(Level.UNARY)
        other = self.value(ctx, b, dtype)
        if dtype.count > 1:  # a vector in memory has a type of its own
            a = self.cast(ctx, a, dtype)
        return Expr(f"{test} ? {a.at(Level.UNARY)} : {other.at(Level.UNARY)}", Level.OTHER)

    def _named_mask(self, ctx: Context, node: UOp, like: DType) -> Expr:
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
        if "f16c" in self.features:
            if (source.scalar, target.scalar) == (dtypes.float16, dtypes.float32):
                return self.call(ctx, helpers.half_to_float(target.count), value)
            if (source.scalar, target.scalar) == (dtypes.float32, dtypes.float16):
                return self.call(ctx, helpers.float_to_half(target.count), value)
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

    # ---- vectors ---------------------------------------------------------------------------------

    def _vectorize(self, ctx: Context, node: UOp) -> Expr:
        dtype = ctx.held[node]
        if node.dtype.kind == "b":
            if splat_value(node) is not None:
                return self.mask(ctx, node, dtype)
            lanes = [f"-{self.expr(ctx, s).at(Level.UNARY)}" for s in node.src]
        else:
            if splat_value(node) is not None:
                return self.value(ctx, node)
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
        value = self.value(ctx, vector)
        if len(node.arg) == 1:
            lane = Expr(f"{value.at(Level.ATOM)}[{node.arg[0]}]")
            is_bool = node.dtype.kind == "b"
            return self.binary("!=", Level.OTHER, lane, Expr("0")) if is_bool else lane
        self.named(ctx, ctx.held[node])
        lanes = ", ".join(map(str, node.arg))
        return Expr(f"__builtin_shufflevector({value}, {value}, {lanes})")

    def _cat(self, ctx: Context, node: UOp) -> Expr:
        dtype = ctx.held[node]
        parts = [(self.value(ctx, s, dtype).text, s.dtype.count) for s in node.src]
        if len({count for _, count in parts}) > 1 or len(parts) & (len(parts) - 1):
            return ctx.fail("C joins only vectors of equal length, a power of two of them", node)
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_joined(a, b, n) for (a, n), (b, _) in pairs]
        return Expr(parts[0][0])

    # ---- memory ----------------------------------------------------------------------------------

    def _place(self, ctx: Context, index: UOp) -> tuple[Expr, Expr | None]:
        """Pointer and position of an INDEX or POINTER_INDEX."""
        if index.op is Ops.POINTER_INDEX:
            pointer, offset = index.src
            base = f"(char *){self.expr(ctx, pointer).at(Level.UNARY)}"
            element = in_memory(pointer.dtype.base)
            address = f"({self.named(ctx, element)} *)({base} + {self.expr(ctx, offset)})"
            return Expr(address, Level.UNARY), None
        if len(index.src) != 2 + bool(index.arg):
            return ctx.fail("an INDEX must have one flat position", index), None
        return self.expr(ctx, index.src[0]), self.expr(ctx, index.src[1])

    def _memory(self, ctx: Context, index: UOp, dtype: DType) -> Expr:
        """The lvalue of `dtype` in memory at an address."""
        pointer, position = self._place(ctx, index)
        base = index.src[0].dtype.base
        if in_memory(base) is dtype:
            where = position or Expr("0")
            return Expr(f"{pointer.at(Level.ATOM)}[{where}]")
        name = self.named(ctx, dtype, memory=True)
        if position is None or position.text == "0":
            return Expr(f"*({name} *){pointer.at(Level.UNARY)}", Level.UNARY)
        offset = position.at(Level.ADDITIVE)
        return Expr(f"*({name} *)({pointer.at(Level.ADDITIVE)} + {offset})", Level.UNARY)

    def _load(self, ctx: Context, node: UOp) -> Expr:
        index, dtype = node.src[1], node.dtype
        if is_register(index.src[0]):
            return self._register(ctx, index, node)
        gate = index.src[-1] if index.op is Ops.INDEX and index.arg else None
        memory = in_memory(dtype)
        if gate is not None and gate.dtype.count > 1:
            return self._load_lanes(ctx, node, gate, memory)
        value = self._memory(ctx, index, memory)
        if dtype.kind == "b":
            value = self.binary("!=", Level.OTHER, value, Expr("0"))
            if dtype.count > 1:
                value = self.cast(ctx, value, mask_dtype(8, dtype.count))
        if gate is None:
            return value
        alt = node.src[2] if len(node.src) > 2 else node.const_like(0)
        return self._conditional(ctx, gate, value, alt, ctx.held[node])

    def _load_lanes(self, ctx: Context, node: UOp, gate: UOp, memory: DType) -> Expr:
        """A vector LOAD whose gate differs by lane."""
        pointer, position = self._place(ctx, node.src[1])
        mask = self._named_mask(ctx, gate, memory)
        address = ctx.fresh("a")
        element = self.named(ctx, memory.scalar)
        ctx.emit(f"const {element} *{address} = {pointer.at(Level.ADDITIVE)} + {position};")
        alt = node.src[2] if len(node.src) > 2 else node.const_like(0)
        lanes = []
        for lane in range(memory.count):
            scalar = splat_value(alt)
            if scalar is not None:
                other = self.scalar(ctx, scalar).text
            else:
                other = f"{self.value(ctx, alt).at(Level.ATOM)}[{lane}]"
            lanes.append(f"{mask}[{lane}] ? {address}[{lane}] : {other}")
        name = ctx.fresh("x")
        ctx.emit(f"{self.named(ctx, memory)} {name} = {{{', '.join(lanes)}}};")
        if node.dtype.kind != "b":
            return Expr(name)
        return self.cast(ctx, Expr(f"{name} != 0", Level.OTHER), ctx.held[node])

    def _register(self, ctx: Context, index: UOp, node: UOp) -> Expr:
        """A register: the variable itself where all of it is meant."""
        reg = base_buffer(index.src[0])
        whole = reg.arg[0] == 1 and node.dtype is reg.dtype.base
        if whole:
            return self.expr(ctx, reg)
        dtype = ctx.held[node] if node.op is Ops.LOAD else held(node.dtype)
        pointer, position = self._place(ctx, index)
        if node.dtype is reg.dtype.base:
            return Expr(f"{pointer}[{position}]")
        name = self.named(ctx, dtype, memory=True)
        return Expr(f"*({name} *)({pointer} + {position})", Level.UNARY)

    # ---- statements ------------------------------------------------------------------------------

    def statement(self, ctx: Context, node: UOp) -> None:
        method = _STATEMENTS.get(node.op)
        if method is None:
            ctx.fail(f"C has no {node.op.name}", node)
        else:
            method(self, ctx, node)

    def _param(self, ctx: Context, node: UOp) -> None:
        slot, name = node.arg[0], f"p{node.arg[0]}"
        constant = "" if node in ctx.stored else "const "
        element = self.named(ctx, in_memory(node.dtype.base))
        ctx.emit(f"{constant}{element} *{name} = bufs[{slot}];")
        ctx.exprs[node] = Expr(name)

    def _define_local(self, ctx: Context, node: UOp) -> None:
        name = f"s{node.arg[0]}"
        element = self.named(ctx, in_memory(node.dtype.base))
        address = f"(char *)scratch + {ctx.offsets[node]}"
        ctx.emit(f"{element} *{name} = __builtin_assume_aligned({address}, 64);")
        ctx.exprs[node] = Expr(name)

    def _define_reg(self, ctx: Context, node: UOp) -> None:
        size, number = node.arg
        base = node.dtype.base
        dtype = self.register_dtype(base)
        name = f"acc{number}"
        if any(name == known.text for known in ctx.exprs.values()):
            name = ctx.fresh(f"{name}_")
        array = f"[{size}] __attribute__((aligned(64)))" if size != 1 else ""
        ctx.emit(f"{self.named(ctx, dtype)} {name}{array};")
        ctx.exprs[node] = Expr(name)

    def register_dtype(self, base: DType) -> DType:
        """The dtype of the variable for a register of elements `base`."""
        if base.kind == "b" and base.count > 1:
            return mask_dtype(self._usual_mask_bits(base.count), base.count)
        return held(base)

    def _define_var(self, ctx: Context, node: UOp) -> None:
        names = sorted({op.arg[0] for op in ctx.ops if op.op is Ops.DEFINE_VAR})
        ctx.emit(f"const int64_t {node.arg[0]} = vars[{names.index(node.arg[0])}];")
        ctx.exprs[node] = Expr(node.arg[0])

    def _range(self, ctx: Context, node: UOp) -> None:
        axis, kind = node.arg
        name = f"i{axis.number}"
        if any(name == known.text for known in ctx.exprs.values()):
            name = ctx.fresh(f"{name}_")
        first, end = "0", self.expr(ctx, node.src[0]).text
        if kind is AxisType.THREAD:
            first, end = "lo", "hi"
        ctx.emit(f"for (int64_t {name} = {first}; {name} < {end}; {name}++) {{  // {kind}")
        ctx.depth += 1
        ctx.exprs[node] = Expr(name)

    def _if(self, ctx: Context, node: UOp) -> None:
        condition = node.src[0]
        if condition.dtype.count > 1:
            mask = self._named_mask(ctx, condition, ctx.held[condition])
            test = self.call(ctx, helpers.any_lane(ctx.held[condition]), mask)
        else:
            test = self.expr(ctx, condition)
        ctx.emit(f"if ({test}) {{")
        ctx.depth += 1

    def _store(self, ctx: Context, node: UOp) -> None:
        index, value = node.src[:2]
        dtype = value.dtype
        if is_register(index.src[0]):
            like = self.register_dtype(base_buffer(index.src[0]).dtype.base)
            target = self._register(ctx, index, value)
            ctx.emit(f"{target} = {self.value(ctx, value, like)};")
            return
        memory = in_memory(dtype)
        if dtype.kind == "b" and dtype.count > 1:
            mask = self.mask(ctx, value, memory)
            stored = self.cast(ctx, Expr(f"-{mask.at(Level.ATOM)}", Level.UNARY), memory)
        else:
            stored = self.value(ctx, value)
        gate = index.src[-1] if index.op is Ops.INDEX and index.arg else None
        if gate is not None and gate.dtype.count > 1:
            self._store_lanes(ctx, index, stored, gate, memory)
            return
        if gate is not None:
            ctx.fail("a gated STORE must stand in an IF", node)
        if ctx.info.streaming and base_buffer(index.src[0]).op is Ops.PARAM and dtype.count > 1:
            helper = helpers.stream(memory, self.features)
            if helper is not None:
                pointer, position = self._place(ctx, index)
                address = self.binary("+", Level.ADDITIVE, pointer, position or Expr("0"))
                ctx.emit(f"{self.call(ctx, helper, address, stored)};")
                return
        ctx.emit(f"{self._memory(ctx, index, memory)} = {stored};")

    def _store_lanes(
        self, ctx: Context, index: UOp, stored: Expr, gate: UOp, memory: DType
    ) -> None:
        """A vector STORE whose gate differs by lane."""
        pointer, position = self._place(ctx, index)
        mask = self._named_mask(ctx, gate, memory)
        name, address = ctx.fresh("v"), ctx.fresh("a")
        ctx.emit(f"{self.named(ctx, memory)} {name} = {stored};")
        element = self.named(ctx, memory.scalar)
        ctx.emit(f"{element} *{address} = {pointer.at(Level.ADDITIVE)} + {position};")
        for lane in range(memory.count):
            ctx.emit(f"if ({mask}[{lane}]) {address}[{lane}] = {name}[{lane}];")

    def _custom(self, ctx: Context, node: UOp) -> None:
        text = self._format(ctx, node)
        if node.dtype is dtypes.void:
            ctx.emit(f"{text};")
            return
        name = ctx.fresh("v")
        ctx.emit(f"{self.type_of(ctx, node)} {name} = {text};")
        ctx.exprs[node] = Expr(name)

    def _custom_inline(self, ctx: Context, node: UOp) -> Expr:
        return Expr(self._format(ctx, node), Level.OTHER)

    def _format(self, ctx: Context, node: UOp) -> str:
        args = [self.expr(ctx, s).at(Level.ATOM) for s in node.src if s.dtype is not dtypes.void]
        text: str = node.arg.format(*args)
        return text

    # ---- the whole -------------------------------------------------------------------------------

    def assemble(self, ctx: Context) -> str:
        ctx.define("int64_t", "typedef __INT64_TYPE__ int64_t;")
        params = "void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi"
        if ctx.info.streaming and "sse2" in self.features:
            ctx.emit("__builtin_ia32_sfence();")
        types = [text for text in ctx.prelude.values() if text.startswith("typedef")]
        functions = [text for text in ctx.prelude.values() if not text.startswith("typedef")]
        scalars = sorted(text for text in types if "vector_size" not in text)
        vectors = sorted(text for text in types if "vector_size" in text)
        head = [*scalars, *vectors, *functions, f"void {ctx.name}({params}) {{"]
        return "\n".join([*head, *ctx.lines, "}", ""])


def _joined(a: str, b: str, count: int) -> tuple[str, int]:
    lanes = ", ".join(map(str, range(2 * count)))
    return f"__builtin_shufflevector({a}, {b}, {lanes})", 2 * count


def _bits_of_one(dtype: DType) -> int:
    return 0x3F800000 if dtype.bits == 32 else 0x3FF0000000000000


def _is_constant(node: UOp) -> bool:
    scalar = splat_value(node)
    return scalar is not None and scalar.op is Ops.CONST


def _positive(node: UOp) -> bool:
    return node.vmin is not None and node.vmin > 0


def _negative(node: UOp) -> bool:
    return node.vmax is not None and node.vmax < 0


_POSITION_OPS = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR, Ops.AND})


def _is_position(node: UOp, known: dict[UOp, DType]) -> bool:
    """Whether an int32 may be held in 64 bits: a position computed from loop counters that
    provably never wraps. On a 64-bit machine that saves a sign extension at every access."""
    if node.dtype is not dtypes.int32:
        return False
    if node.op in (Ops.RANGE, Ops.DEFINE_VAR):
        return True
    low, high = node.vmin, node.vmax
    if node.op not in _POSITION_OPS or low is None or high is None:
        return False
    if low <= -(1 << 31) or high >= (1 << 31) - 1:
        return False
    return all(s.op is Ops.CONST or known.get(s) is dtypes.int64 for s in node.src)


_ON_BOOLS = {
    Ops.MAX: Ops.OR,
    Ops.MIN: Ops.AND,
    Ops.ADD: Ops.OR,
    Ops.MUL: Ops.AND,
}
"""What arithmetic means on bools."""

Combine = Callable[[Expr, Expr], Expr]


def _mask_op(template: str) -> Combine:
    return lambda a, b: Expr(
        template.format(a=a.at(Level.UNARY), b=b.at(Level.UNARY)), Level.OTHER
    )


_MASK_OPS: dict[Ops, Combine] = {
    Ops.AND: _mask_op("{a} & {b}"),
    Ops.MUL: _mask_op("{a} & {b}"),
    Ops.MIN: _mask_op("{a} & {b}"),
    Ops.OR: _mask_op("{a} | {b}"),
    Ops.ADD: _mask_op("{a} | {b}"),
    Ops.MAX: _mask_op("{a} | {b}"),
    Ops.XOR: _mask_op("{a} ^ {b}"),
    Ops.NE: _mask_op("{a} ^ {b}"),
    Ops.EQ: _mask_op("~({a} ^ {b})"),
    Ops.LT: _mask_op("~{a} & {b}"),
    Ops.LE: _mask_op("~{a} | {b}"),
    Ops.GT: _mask_op("{a} & ~{b}"),
    Ops.GE: _mask_op("{a} | ~{b}"),
}

_R = CRenderer
_EXPRESSIONS: dict[Ops, Callable[[CRenderer, Context, UOp], Expr]] = {
    **dict.fromkeys(CRenderer.infix, _R._infix),
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
    Ops.LOAD: _R._load,
    Ops.CUSTOM_I: _R._custom_inline,
}
_STATEMENTS: dict[Ops, Callable[[CRenderer, Context, UOp], None]] = {
    Ops.PARAM: _R._param,
    Ops.DEFINE_LOCAL: _R._define_local,
    Ops.DEFINE_REG: _R._define_reg,
    Ops.DEFINE_VAR: _R._define_var,
    Ops.RANGE: _R._range,
    Ops.IF: _R._if,
    Ops.STORE: _R._store,
    Ops.CUSTOM: _R._custom,
}

