"""C with GNU vector extensions, for gcc and clang: what runs on a CPU.

    void NAME(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi)

`bufs[slot]` are the PARAMs, `vars` the values of the DEFINE_VARs in the order of their names,
`scratch` holds the DEFINE_LOCALs (see `local_layout`), and a loop of type THREAD runs from lo to
hi; what follows that loop is for the call whose lo is 0. Nothing is included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from morok.dtype import DType, dtypes
from morok.ir import AxisType, Capability, GroupOp, Ops, UOp, WmmaMetadata
from morok.renderers import c_helpers as helpers
from morok.renderers import c_masks as masks
from morok.renderers.base import (
    FLOAT_STORAGE,
    Context,
    Expr,
    Level,
    base_buffer,
    ends_threads,
    is_register,
    splat_value,
)
from morok.renderers.c_expressions import CExpressions
from morok.renderers.c_types import held, in_memory, mask_dtype

__all__ = ["FEATURES", "CRenderer", "c_capability"]

FEATURES = (
    *("sse2", "sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512bf16"),
    "ARM_NEON",
)
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


_DOT_BF16 = WmmaMetadata("vdpbf16ps", (1, 16, 2), dtypes.bfloat16, dtypes.float32, "x86", threads=1)
"""Pairs of bfloat16 in 16 lanes, each multiplied by one pair and added to a float32."""


def c_capability(features: frozenset[str]) -> Capability:
    """What C on a processor with these features can do; part of every kernel's key."""
    bits = 512 if "avx512f" in features else 256 if "avx" in features else 128
    widths: list[tuple[DType, tuple[int, ...]]] = []
    for dtype in (*dtypes.ints, *dtypes.floats, dtypes.bool_):
        lane = 32 if dtype in FLOAT_STORAGE else dtype.bits  # small floats compute in float32
        if dtype is dtypes.bfloat16 and "avx512bf16" in features:
            widths.append((dtype, (2, 4, 8, 16, 32)))  # whole pairs are operands
            continue
        lanes = tuple(1 << k for k in range(7) if 64 <= lane << k <= bits)
        widths.append((dtype, lanes))
    fused = {Ops.MULACC} if features & {"fma", "ARM_NEON"} else set()
    return Capability(
        name="C " + " ".join(sorted(features)),
        ops=_OPS | fused | ({Ops.WMMA} if "avx512bf16" in features else set()),
        vector_widths=tuple(widths),
        vector_alu=True,
        threads=True,
        local_memory=True,
        predicated_memory="avx" in features,
        vector_registers=32 if features & {"avx512f", "ARM_NEON"} else 16,
        l1_bytes=32 << 10,
        l2_bytes=512 << 10,
        tensor_cores=(_DOT_BF16,) if "avx512bf16" in features else (),
    )


class CRenderer(CExpressions):
    """Renders LINEARs as C for a processor with the given features (names as in `FEATURES`)."""

    def __init__(self, features: Iterable[str] = ()) -> None:
        self.features = frozenset(features) & frozenset(FEATURES)
        self.capability = c_capability(self.features)
        self.register_class = _register_class(self.features)

    @classmethod
    def for_target(cls, has: Callable[[str], bool]) -> CRenderer:
        """For the processor of which `has` says what it has, e.g. `CCompiler().target.has`."""
        return cls(feature for feature in FEATURES if has(feature))

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

    def load(self, ctx: Context, node: UOp) -> Expr:
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
        return self.conditional(ctx, gate, value, alt, ctx.held[node])

    def _load_lanes(self, ctx: Context, node: UOp, gate: UOp, memory: DType) -> Expr:
        """A vector LOAD whose gate differs by lane."""
        pointer, position = self._place(ctx, node.src[1])
        alt = node.src[2] if len(node.src) > 2 else node.const_like(0)
        helper = masks.masked_load(memory, self.features)
        other = splat_value(alt)
        if helper is not None and other is not None and str(other.arg) in _ZEROS:
            place = self.binary("+", Level.ADDITIVE, pointer, position or Expr("0"))
            return self.call(ctx, helper, place, self.mask(ctx, gate, memory))
        mask = self.named_mask(ctx, gate, memory)
        address = ctx.fresh("a")
        element = self.named(ctx, memory.scalar)
        ctx.emit(f"const {element} *{address} = {pointer.at(Level.ADDITIVE)} + {position};")
        lanes = []
        for lane in range(memory.count):
            scalar = splat_value(alt)
            if scalar is not None:
                instead = self.scalar(ctx, scalar).text
            else:
                instead = f"{self.value(ctx, alt).at(Level.ATOM)}[{lane}]"
            lanes.append(f"{mask}[{lane}] ? {address}[{lane}] : {instead}")
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

    def named_value(self, ctx: Context, node: UOp, name: str) -> None:
        """Keeps a vector that is read once and used often in its register: gcc would rather read it
        again with every multiplication."""
        size = ctx.held[node].itemsize if node.op is Ops.LOAD else 0
        often = size >= 16 and ctx.uses.get(node, 0) > 1 and ctx.depth > 1
        if often and not is_register(node.src[0]) and self.register_class is not None:
            ctx.emit(f'__asm__("" : "+{self.register_class}"({name}));')

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
        name = ctx.unique(f"acc{number}")
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
        name = ctx.unique("var_" + re.sub(r"\W", "_", node.arg[0], flags=re.ASCII))
        ctx.emit(f"const int64_t {name} = vars[{names.index(node.arg[0])}];")
        ctx.exprs[node] = Expr(name)

    def _range(self, ctx: Context, node: UOp) -> None:
        axis, kind = node.arg
        name = ctx.unique(f"i{axis.number}")
        first, end = "0", self.expr(ctx, node.src[0]).text
        if kind is AxisType.THREAD:
            first, end = "lo", "hi" if node.src[0].op is Ops.CONST else f"(hi < {end} ? hi : {end})"
        if node in ctx.repeats:
            ctx.emit(f"#pragma GCC unroll {ctx.repeats[node]}")
        ctx.emit(f"for (int64_t {name} = {first}; {name} < {end}; {name}++) {{  // {kind}")
        ctx.depth += 1
        ctx.exprs[node] = Expr(name)

    def loop_ended(self, ctx: Context, node: UOp) -> None:
        if ends_threads(ctx.ops, node):
            self._fence(ctx)
            ctx.emit("if (lo > 0) return;  // the rest is for one thread")

    def _fence(self, ctx: Context) -> None:
        """Has stores that bypass the cache arrive before the kernel returns."""
        if ctx.info.streaming and "sse2" in self.features:
            ctx.emit("__builtin_ia32_sfence();")

    def _if(self, ctx: Context, node: UOp) -> None:
        condition = node.src[0]
        if condition.dtype.count > 1:
            mask = self.named_mask(ctx, condition, ctx.held[condition])
            test = self.call(ctx, helpers.any_lane(ctx.held[condition], self.features), mask)
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
        helper = masks.masked_store(memory, self.features)
        if helper is not None:
            place = self.binary("+", Level.ADDITIVE, pointer, position or Expr("0"))
            ctx.emit(f"{self.call(ctx, helper, place, self.mask(ctx, gate, memory), stored)};")
            return
        mask = self.named_mask(ctx, gate, memory)
        name, address = ctx.fresh("v"), ctx.fresh("a")
        ctx.emit(f"{self.named(ctx, memory)} {name} = {stored};")
        element = self.named(ctx, memory.scalar)
        ctx.emit(f"{element} *{address} = {pointer.at(Level.ADDITIVE)} + {position};")
        for lane in range(memory.count):
            ctx.emit(f"if ({mask}[{lane}]) {address}[{lane}] = {name}[{lane}];")

    def _custom(self, ctx: Context, node: UOp) -> None:
        text = self.custom(ctx, node).text
        if node.dtype is dtypes.void:
            ctx.emit(f"{text};")
            return
        name = ctx.fresh("v")
        ctx.emit(f"{self.type_of(ctx, node)} {name} = {text};")
        ctx.exprs[node] = Expr(name)

    # ---- the whole -------------------------------------------------------------------------------

    def assemble(self, ctx: Context) -> str:
        ctx.define("int64_t", "typedef __INT64_TYPE__ int64_t;")
        params = "void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi"
        self._fence(ctx)
        types = [text for text in ctx.prelude.values() if text.startswith("typedef")]
        functions = [text for text in ctx.prelude.values() if not text.startswith("typedef")]
        scalars = sorted(text for text in types if "vector_size" not in text)
        vectors = sorted(text for text in types if "vector_size" in text)
        head = [*scalars, *vectors, *functions, f"void {ctx.name}({params}) {{"]
        return "\n".join([*head, *ctx.lines, "}", ""])


def _register_class(features: frozenset[str]) -> str | None:
    """The constraint by which inline assembly names vector registers."""
    if "ARM_NEON" in features:
        return "w"
    return "v" if "avx512f" in features else "x" if "sse2" in features else None


_ZEROS = ("0", "0.0")  # as a masked load leaves lanes; -0.0 is another value

_STATEMENTS: dict[Ops, Callable[[CRenderer, Context, UOp], None]] = {
    Ops.PARAM: CRenderer._param,
    Ops.DEFINE_LOCAL: CRenderer._define_local,
    Ops.DEFINE_REG: CRenderer._define_reg,
    Ops.DEFINE_VAR: CRenderer._define_var,
    Ops.RANGE: CRenderer._range,
    Ops.IF: CRenderer._if,
    Ops.STORE: CRenderer._store,
    Ops.CUSTOM: CRenderer._custom,
}
