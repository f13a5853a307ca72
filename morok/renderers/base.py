"""What C-like languages share: a LINEAR in, readable text out.

A renderer is a capability record and templates: a method `op_<name>` for each op it has. This
module decides what deserves a name, where statements go and how expressions nest; a language says
how types, constants and operations are spelled.

An op gets a statement of its own (`float v3 = …;`) unless it is used once, in the block where it
stands, and stays short; then it is written where it is used. A read of memory moves to its use only
if nothing is written in between.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from morok.codegen import local_layout
from morok.dtype import AddrSpace, DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, Capability, GroupOp, KernelInfo, Ops, UOp
from morok.renderers.repeats import repeats

__all__ = [
    "CLike",
    "Context",
    "Expr",
    "Level",
    "Rendering",
    "always_positive",
    "base_buffer",
    "ends_threads",
    "is_position",
    "lane_pairs",
    "shifts_within",
    "splat_value",
]

INDENT = "  "
LONGEST_INLINE = 72
"""An expression longer than this gets a name even if it is used once."""


class Level(IntEnum):
    """How tightly an expression binds. Below ADDITIVE, operands always stand in parentheses."""

    OTHER = 0  # comparisons, bit operations, shifts, conditionals
    ADDITIVE = 1
    MULTIPLICATIVE = 2
    UNARY = 3
    ATOM = 4


class Expr(NamedTuple):
    """Text of an expression and how tightly it binds."""

    text: str
    level: Level = Level.ATOM

    def at(self, level: Level) -> str:
        """The text as an operand that must bind at least as tightly as `level`."""
        return self.text if self.level >= level else f"({self.text})"

    def __str__(self) -> str:
        return self.text


def base_buffer(pointer: UOp) -> UOp:
    """The definition behind a pointer: a PARAM, DEFINE_LOCAL or DEFINE_REG."""
    while pointer.op in (Ops.AFTER, Ops.BARRIER):
        pointer = pointer.src[0]
    return pointer


def splat_value(node: UOp) -> UOp | None:
    """The scalar that is in every lane of a vector, if it is written so; None otherwise."""
    op = node.op
    if op is Ops.VECTORIZE:
        src = node.src
        return src[0] if src.count(src[0]) == len(src) else None
    if op is Ops.VCONST:
        values = node.arg
        first = values[0]
        same = values.count(first) == len(values)
        if isinstance(first, float) and (not same or first == 0):  # NaN, or zeros of two signs
            same = len({value.hex() for value in values}) == 1
        return UOp(Ops.CONST, node.dtype.scalar, (), first) if same else None
    return None


def shifts_within(count: UOp, bits: int) -> bool:
    """Whether every lane of a shift count is proved within 0 … bits - 1."""
    if count.vmin is not None and count.vmin >= 0 and count.vmax is not None and count.vmax < bits:
        return True
    if count.op is not Ops.AND:
        return False
    masks = [splat_value(s) if s.dtype.count > 1 else s for s in count.src]
    return any(m is not None and m.op is Ops.CONST and 0 <= m.arg < bits for m in masks)


def always_positive(node: UOp) -> bool:
    """Whether every lane of an integer is proved greater than 0."""
    return node.vmin is not None and node.vmin > 0


_POSITION_OPS = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR, Ops.AND})


def is_position(node: UOp, known: dict[UOp, DType]) -> bool:
    """Whether an int32 node may be held in 64 bits: a position computed from loop counters that
    provably never wraps. On a 64-bit machine that saves a sign extension at every access."""
    if node.op in (Ops.RANGE, Ops.DEFINE_VAR):
        return True
    low, high = node.vmin, node.vmax
    if node.op not in _POSITION_OPS or low is None or high is None:
        return False
    if low <= -(1 << 31) or high >= (1 << 31) - 1:
        return False
    return all(s.op is Ops.CONST or known.get(s) is dtypes.int64 for s in node.src)


class Rendering:
    """What rendering one LINEAR needs in any language."""

    def __init__(self, linear: UOp, name: str) -> None:
        self.ops = linear.src
        self.name = name
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}
        self.stored = {base_buffer(op.src[0].src[0]) for op in self.ops if op.op is Ops.STORE}
        for op in self.ops:  # what a text of the program's does to memory, only it knows
            if op.op is Ops.CUSTOM or op.op is Ops.CUSTOM_I:
                self.stored.update(base_buffer(s) for s in op.src if s.dtype.is_ptr)
        self.offsets, self.scratch = local_layout(linear)
        self.info = next((op.arg for op in self.ops if op.op is Ops.SINK and op.arg), KernelInfo())
        self.repeats = repeats(self.ops)
        self.held: dict[UOp, DType] = {}  # the dtype of the variable of each value
        self.errors: list[tuple[str, UOp]] = []

    @property
    def pending_error(self) -> InvalidGraphError | None:
        """What could not be rendered so far, as the error that `render` will raise."""
        if not self.errors:
            return None
        faults = "; ".join(dict.fromkeys(message for message, _ in self.errors))
        message, node = self.errors[0]
        return InvalidGraphError(
            f"cannot render {self.name}: {faults}", node=node, stage="render", rule=message
        )

    def fresh(self, prefix: str) -> str:
        """A name nothing else has."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"


class Context(Rendering):
    """The state of rendering one LINEAR in a language with expressions."""

    def __init__(self, linear: UOp, name: str) -> None:
        super().__init__(linear, name)
        self.depth = 1
        self.exprs: dict[UOp, Expr] = {}
        self.taken: set[str] = set()  # names of definitions and loop counters
        self.prelude: dict[str, str] = {}  # definitions in front of the kernel, by name
        self.types: dict[tuple[DType, bool], str] = {}  # names of types that are defined
        self.pairs = lane_pairs(self.ops)
        used = [_operands(op, self.pairs) for op in self.ops]
        uses = Counter(itertools.chain.from_iterable(used))
        self.inline = _inline_candidates(self.ops, used, uses)
        self.uses = uses  # how often a value is used as a whole, not lane by lane
        for op in self.ops:
            if op.op is Ops.GEP:
                uses[op.src[0]] -= 1

    def fail(self, message: str, node: UOp) -> Expr:
        """Notes an error and goes on with a placeholder."""
        self.errors.append((message, node))
        return Expr("0")

    def unique(self, name: str) -> str:
        """`name`, or one like it if something has it already."""
        wanted = name
        while wanted in self.taken:
            wanted = self.fresh(f"{name}_")
        self.taken.add(wanted)
        return wanted

    def emit(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def define(self, name: str, text: str) -> None:
        """Puts a definition in front of the kernel, once."""
        self.prelude.setdefault(name, text)


# Ops whose text is so cheap that every user repeats it.
_TRANSPARENT = frozenset(
    {Ops.CONST, Ops.VCONST, Ops.INDEX, Ops.POINTER_INDEX, Ops.AFTER, Ops.GROUP, Ops.SINK}
)
_INLINABLE = GroupOp.ALU | {
    *(Ops.CAST, Ops.BITCAST, Ops.LOAD, Ops.GEP, Ops.VECTORIZE, Ops.CAT, Ops.WMMA)
}
_WRITTEN_BY_USERS = _INLINABLE | _TRANSPARENT
_FENCES = frozenset({Ops.STORE, Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.BARRIER, Ops.CUSTOM})
_OPERANDS = {
    Ops.LOAD: slice(1, None),
    Ops.STORE: slice(2),
    **dict.fromkeys((Ops.IF, Ops.AFTER, Ops.BARRIER, Ops.RANGE), slice(1)),
    **dict.fromkeys((Ops.END, Ops.GROUP, Ops.SINK, Ops.ENDIF), slice(0)),
}
"""Which sources are operands; all of them for ops that are not listed."""
_VALUES = _INLINABLE | {Ops.VCONST, Ops.CUSTOM_I}
_NO_TEXT = frozenset({Ops.GROUP, Ops.SINK, Ops.INDEX, Ops.AFTER, Ops.POINTER_INDEX})


def _inline_candidates(
    ops: tuple[UOp, ...], used: list[tuple[UOp, ...]], uses: Mapping[UOp, int]
) -> set[UOp]:
    """The ops that may be written where they are used: one user, same block, no write between.

    `used` are the operands of each op, `uses` says how often a value is one.
    """
    user: dict[UOp, UOp] = {}
    epoch = block = 0
    blocks = [0]
    epochs: dict[UOp, int] = {}
    homes: dict[UOp, int] = {}
    reads: set[UOp] = set()  # what reads memory where it is written
    for op, sources in zip(ops, used, strict=True):
        for source in sources:
            user[source] = op
        epochs[op] = epoch
        homes[op] = blocks[-1]
        kind = op.op
        if kind in _WRITTEN_BY_USERS:
            if kind is Ops.LOAD or not reads.isdisjoint(op.src):
                reads.add(op)
        elif kind in _FENCES:
            epoch += 1
            if kind is Ops.RANGE or kind is Ops.IF:
                block += 1
                blocks.append(block)
                if kind is Ops.RANGE:
                    homes[op] = block
            elif (kind is Ops.END or kind is Ops.ENDIF) and len(blocks) > 1:
                blocks.pop()
    chosen: set[UOp] = set()
    placed: set[UOp] = set()  # transparent ops that stand in one place
    # Where what is written by its user is written: from here on, `epochs` and `homes` say that.
    for op in reversed(ops):
        if uses.get(op) != 1:
            continue
        kind = op.op
        last = user[op]
        if kind in _TRANSPARENT:
            # Written by every user: it stands where its only user stands, or nowhere in particular.
            placed.add(op)
        elif (
            kind not in _INLINABLE
            or last.op is Ops.GEP
            or (last.op in _TRANSPARENT and last not in placed)
            or homes[last] != homes[op]
            or (epochs[last] != epochs[op] and op in reads)
        ):
            continue
        else:
            chosen.add(op)
        epochs[op], homes[op] = epochs[last], homes[last]
    return chosen


def lane_pairs(ops: tuple[UOp, ...]) -> set[UOp]:
    """The CATs of two vectors of one type of which lanes are picked, several at a time, and nothing
    else is done with them: a shuffle of the two, which never stand together."""
    picks = {op for op in ops if op.op is Ops.GEP and len(op.arg) > 1 and op.src[0].op is Ops.CAT}
    if not picks:
        return set()
    found = {op.src[0] for op in picks}
    whole = {source for op in ops if op not in picks for source in op.src}
    return {
        pair
        for pair in found - whole
        if len(pair.src) == 2 and pair.src[0].dtype is pair.src[1].dtype
    }


def _operands(op: UOp, pairs: set[UOp]) -> tuple[UOp, ...]:
    """The sources whose text an op uses."""
    if op in pairs:
        return ()
    if op.op is Ops.GEP and op.src[0] in pairs:
        both: tuple[UOp, ...] = op.src[0].src
        return both
    part = _OPERANDS.get(op.op)
    return op.src if part is None else op.src[part]


Template = Callable[[Any, Context, UOp], Expr]


class CLike(ABC):
    """A renderer for a language with C's expressions and statements."""

    capability: Capability
    pre_matcher: Any = None
    language = "c"
    infix: ClassVar[dict[Ops, tuple[str, Level]]] = {
        Ops.ADD: ("+", Level.ADDITIVE),
        Ops.SUB: ("-", Level.ADDITIVE),
        Ops.MUL: ("*", Level.MULTIPLICATIVE),
        Ops.FDIV: ("/", Level.MULTIPLICATIVE),
        Ops.AND: ("&", Level.OTHER),
        Ops.OR: ("|", Level.OTHER),
        Ops.XOR: ("^", Level.OTHER),
        Ops.LT: ("<", Level.OTHER),
        Ops.LE: ("<=", Level.OTHER),
        Ops.GT: (">", Level.OTHER),
        Ops.GE: (">=", Level.OTHER),
        Ops.EQ: ("==", Level.OTHER),
        Ops.NE: ("!=", Level.OTHER),
    }

    # ---- what a language says --------------------------------------------------------------------

    @abstractmethod
    def value_dtypes(self, ops: Iterable[UOp]) -> dict[UOp, DType]:
        """The dtype of the variable that holds each value, where a language has its own idea."""

    @abstractmethod
    def type_of(self, ctx: Context, node: UOp) -> str:
        """The type of the variable that holds the value of `node`."""

    @abstractmethod
    def constant(self, ctx: Context, dtype: DType, value: Any) -> Expr:
        """A scalar literal of exactly `dtype`."""

    @abstractmethod
    def expression(self, ctx: Context, node: UOp) -> Expr:
        """The value of an ALU op, conversion, vector op or LOAD."""

    @abstractmethod
    def statement(self, ctx: Context, node: UOp) -> None:
        """Emits an op that is no value: a definition, a STORE, the head of a loop."""

    @abstractmethod
    def assemble(self, ctx: Context) -> str:
        """The source text, when every op has been seen."""

    # ---- the walk --------------------------------------------------------------------------------

    def render(self, linear: UOp, name: str) -> str:
        """Source of a kernel called `name`. InvalidGraphError names all that has no rendering."""
        ctx = Context(linear, name)
        ctx.held = self.value_dtypes(ctx.ops)
        for op in ctx.ops:
            self._visit(ctx, op)
        if (error := ctx.pending_error) is not None:
            raise error
        return self.assemble(ctx)

    def _visit(self, ctx: Context, op: UOp) -> None:
        kind = op.op
        if op in ctx.pairs:
            return
        if kind in _VALUES:
            self._value(ctx, op)
        elif kind in _NO_TEXT:
            if kind is Ops.AFTER and op.src[0] in ctx.exprs:
                ctx.exprs[op] = ctx.exprs[op.src[0]]
        elif kind is Ops.CONST:
            ctx.exprs[op] = self.constant(ctx, op.dtype, op.arg)
        elif kind is Ops.END or kind is Ops.ENDIF:
            ctx.depth -= 1
            ctx.emit("}")
            self.loop_ended(ctx, op)
        else:
            self.statement(ctx, op)

    def _value(self, ctx: Context, op: UOp) -> None:
        expr = self.expression(ctx, op)
        short = op in ctx.inline and len(expr.text) <= LONGEST_INLINE
        if short or op.op is Ops.VCONST or self.always_inline(op):
            ctx.exprs[op] = expr
            return
        name = ctx.fresh("x" if op.op is Ops.LOAD else "v")
        ctx.emit(f"{self.type_of(ctx, op)} {name} = {expr};")
        ctx.exprs[op] = Expr(name)
        self.named_value(ctx, op, name)

    @abstractmethod
    def named_value(self, ctx: Context, node: UOp, name: str) -> None:
        """Emits what a language wants behind the statement that gives a value its name."""

    @abstractmethod
    def loop_ended(self, ctx: Context, node: UOp) -> None:
        """Emits what a language wants behind an END or ENDIF."""

    def always_inline(self, node: UOp) -> bool:
        """Whether every user writes this value again: it is as short as its name."""
        if node.op is Ops.GEP:
            return len(node.arg) == 1
        constant = splat_value(node)
        return constant is not None and constant.op is Ops.CONST

    def expr(self, ctx: Context, node: UOp) -> Expr:
        """The text of a value that was visited before."""
        found = ctx.exprs.get(node)
        return found if found is not None else ctx.fail(f"{node.op.name} has no rendering", node)

    def binary(self, symbol: str, level: Level, a: Expr, b: Expr) -> Expr:
        """`a symbol b` with the parentheses it needs."""
        if level is Level.OTHER:
            return Expr(f"{a.at(Level.UNARY)} {symbol} {b.at(Level.UNARY)}", level)
        return Expr(f"{a.at(level)} {symbol} {b.at(_TIGHTER[level])}", level)


_TIGHTER: dict[Level, Level] = {
    level: Level(level + 1) for level in Level if level is not Level.ATOM
}


def ends_threads(ops: tuple[UOp, ...], end: UOp) -> bool:
    """Whether an END closes the last THREAD loop of a kernel that goes on behind it: the rest is
    for the call whose lo is 0."""
    loop = end.src[-1]
    if not _is_thread(loop):
        return False
    following = ops[ops.index(end) + 1 :]
    if any(map(_is_thread, following)):
        return False
    return any(op.op not in (Ops.SINK, Ops.GROUP) for op in following)


def _is_thread(node: UOp) -> bool:
    return node.op is Ops.RANGE and node.arg[1] is AxisType.THREAD


def is_register(pointer: UOp) -> bool:
    """Whether a pointer points at registers."""
    return pointer.dtype.addrspace is AddrSpace.REG


def int_literal(value: int, suffix: str = "") -> Expr:
    """A decimal literal; the least int64 has none and is written as a difference."""
    if value == -(1 << 63):
        return Expr(f"-{-(value + 1)}{suffix} - 1", Level.ADDITIVE)
    return Expr(f"{value}{suffix}", Level.ATOM if value >= 0 else Level.UNARY)


FLOAT_STORAGE = {
    dtypes.float16: dtypes.uint16,
    dtypes.bfloat16: dtypes.uint16,
    dtypes.fp8e4m3: dtypes.uint8,
    dtypes.fp8e5m2: dtypes.uint8,
}
"""Float formats without arithmetic, and the integers that hold their bits."""
