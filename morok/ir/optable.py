"""The op table: every fact about an op, declared once, in its row.

A row says how an op's sources and argument are laid out, and names the kinds by which the core
infers dtype, shape and bounds. Everything else is computed from the rows: the field properties of
UOp, the groups in `GroupOp`, what the core knows about ops (registered when this module is
imported), the verifier's cheap checks, and the printer.

Layout of `sources`: comma separated names; `*name` takes any number, `[name]` may be absent: it is
present when there are that many sources. INDEX, whose gate follows any number of indices, says so
in its argument (`has_gate`).
Layout of `args`: one field is the argument itself, several are positions of an argument tuple.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from morok import _core
from morok.ir.ops import Ops

__all__ = ["OPS", "Category", "GroupOp", "OpSpec", "SourceField"]


class Category(enum.Enum):
    """The groups of the field guide's quick reference."""

    LOOP = "loop control"
    REDUCTION = "reduction"
    MEMORY = "memory"
    KERNEL = "kernel and callable"
    VECTOR = "vector"
    EXPANSION = "expansion"
    HARDWARE = "hardware"
    CONTROL = "control"
    DEFINITION = "definition"
    MOVEMENT = "movement"
    ALU = "ALU"
    ADDITIONAL = "additional"


@dataclass(frozen=True, slots=True)
class SourceField:
    """One name in the layout of an op's sources."""

    name: str
    variadic: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return (
            f"*{self.name}" if self.variadic else f"[{self.name}]" if self.optional else self.name
        )


def _layout(text: str) -> tuple[SourceField, ...]:
    fields = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        fields.append(SourceField(part.strip("*[]"), part.startswith("*"), part.startswith("[")))
    return tuple(fields)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """A row of the op table."""

    op: Ops
    category: Category
    doc: str
    sources: tuple[SourceField, ...]
    args: tuple[str, ...]
    dtype_kind: str
    shape_kind: str
    bounds_kind: str
    range_end: int | None = None  # index of the first source that is an ended range
    inherits_ended: bool = False  # ends what its sources after the first end
    expandable: bool = False  # an UNROLL source spreads through it
    commutative: bool = False
    arity: int = 0  # 1, 2 or 3 for the unary, binary and ternary ops
    comparison: bool = False
    at_least: int = 0  # sources that an op whose sources are all alike must have
    min_src: int = field(init=False, default=0)
    max_src: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        required = sum(not (source.variadic or source.optional) for source in self.sources)
        open_ended = any(source.variadic for source in self.sources)
        object.__setattr__(self, "min_src", max(required, self.at_least))
        object.__setattr__(self, "max_src", None if open_ended else len(self.sources))

    @property
    def name(self) -> str:
        return self.op.name


OPS: dict[Ops, OpSpec] = {}
"""The op table, in the order of `Ops`."""


def _row(
    op: Ops,
    category: Category,
    sources: str,
    args: str,
    dtype: str,
    shape: str,
    bounds: str,
    doc: str,
    *,
    range_end: int | None = None,
    inherits_ended: bool = False,
    expandable: bool = False,
    at_least: int = 0,
) -> None:
    OPS[op] = OpSpec(
        op,
        category,
        doc,
        _layout(sources),
        tuple(args.split()),
        dtype,
        shape,
        bounds,
        range_end=range_end,
        inherits_ended=inherits_ended,
        expandable=expandable,
        at_least=at_least,
    )


def _alu(
    op: Ops,
    bounds: str,
    doc: str,
    *,
    dtype: str = "src0",
    commutative: bool = False,
    sources: str = "a, b",
) -> None:
    layout = _layout(sources)
    OPS[op] = OpSpec(
        op,
        Category.ALU,
        doc,
        layout,
        (),
        dtype,
        "elementwise",
        bounds,
        expandable=True,
        commutative=commutative,
        arity=len(layout),
        comparison=dtype == "bool",
    )


# fmt: off
C = Category
_row(Ops.RANGE, C.LOOP, "end, *deps", "axis_id axis_type", "index", "scalar", "range",
     "Opens a loop; its value is the counter, 0 up to `end` (exclusive). `deps`: ranges it needs.")
_row(Ops.END, C.LOOP, "computation, *ranges", "", "void", "none", "none",
     "Closes loops around `computation`.", range_end=1, expandable=True)

_row(Ops.REDUCE_AXIS, C.REDUCTION, "src", "reduce_op axes", "src0", "reduce_axis", "dtype",
     "Reduces dimensions of a tensor and drops them: [10, 20] over axis 1 is [10].")
_row(Ops.REDUCE, C.REDUCTION, "src, *ranges", "reduce_op", "src0", "src0", "dtype",
     "Accumulates `src` over the iterations of `ranges` and closes them.",
     range_end=1, expandable=True)
_row(Ops.ALLREDUCE, C.REDUCTION, "src, device", "reduce_op", "src0", "src0", "dtype",
     "Reduces the partial results of several devices, an MSTACK, to one on `device`.")

_row(Ops.BUFFER, C.MEMORY, "unique, device", "size", "given", "buffer", "dtype",
     "Tensor storage of `size` elements; `unique` keeps equal buffers apart.")
_row(Ops.BUFFER_VIEW, C.MEMORY, "buffer", "size offset", "src0", "buffer_view", "dtype",
     "`size` elements of a buffer from element `offset` on.", inherits_ended=True)
_row(Ops.BUFFERIZE, C.MEMORY, "compute, *ranges", "opts", "src0", "bufferize", "src0",
     "Materialises `compute`, one dimension a range.", range_end=1, expandable=True)
_row(Ops.INDEX, C.MEMORY, "buffer, *indices, [gate]", "has_gate", "element", "index", "dtype",
     "The element of `buffer` at `indices`; read as a value it is 0 where the gate is false.",
     expandable=True)
_row(Ops.POINTER_INDEX, C.MEMORY, "ptr, offset", "", "src0", "none", "none",
     "Pointer `offset` bytes behind `ptr`.", expandable=True)
_row(Ops.LOAD, C.MEMORY, "buffer, index, [alt]", "", "src1", "scalar", "dtype",
     "Reads memory. `alt`: the value where the gate of `index` is false (memory untouched).",
     expandable=True)
_row(Ops.STORE, C.MEMORY, "index, value, *ranges", "", "void", "none", "none",
     "Writes `value` at `index` (an INDEX: its first source is the buffer) and closes `ranges`.",
     range_end=2, expandable=True)

_row(Ops.SINK, C.KERNEL, "*sources", "info", "void", "none", "none",
     "Collects several roots; with a KernelInfo it is the body of a kernel.")
_row(Ops.CALL, C.KERNEL, "body, *args", "info", "src0", "src0", "none",
     "Invokes a body with concrete arguments; closes the RANGEs among them.", range_end=1)
_row(Ops.FUNCTION, C.KERNEL, "body, *args", "info", "void", "none", "none",
     "A reusable body over formal PARAMs; several values are returned as a TUPLE.", range_end=1)
_row(Ops.TUPLE, C.KERNEL, "*src", "", "void", "none", "none",
     "Several values as one.")
_row(Ops.GET_TUPLE, C.KERNEL, "src", "index", "given", "tuple_item", "dtype",
     "One value of a TUPLE, of a FUNCTION whose body is one, or of a CALL of either.")
_row(Ops.PROGRAM, C.KERNEL, "sink, device, [linear], [source], [binary]", "stages",
     "void", "none", "none",
     "A kernel on its way through linearize, render and compile; `stages` names what is filled.")
_row(Ops.LINEAR, C.KERNEL, "*ops", "", "void", "none", "none",
     "A flat sequence of ops in order of execution.")
_row(Ops.SOURCE, C.KERNEL, "", "code", "void", "none", "none",
     "Rendered source text.")
_row(Ops.PROGRAM_BINARY, C.KERNEL, "", "bytes", "void", "none", "none",
     "A compiled artifact.")
_row(Ops.AFTER, C.KERNEL, "passthrough, *deps", "", "src0", "src0", "src0",
     "`passthrough`, once every one of `deps` is complete.", inherits_ended=True, expandable=True)
_row(Ops.BARRIER, C.KERNEL, "src, *deps", "", "src0", "src0", "src0",
     "Work-group synchronisation: every work-item arrives before one goes on.")

_row(Ops.VECTORIZE, C.VECTOR, "*elements", "", "vector", "src0", "union",
     "A vector of n scalars of one dtype.", expandable=True, at_least=1)
_row(Ops.GEP, C.VECTOR, "vector", "indices", "given", "src0", "union",
     "Elements of a vector: a scalar for one index, else a shorter vector.", expandable=True)
_row(Ops.VCONST, C.VECTOR, "", "values", "given", "scalar", "union",
     "A vector of constants.")
_row(Ops.CAT, C.VECTOR, "*sources", "", "given", "src0", "union",
     "Vectors joined to a longer one.", at_least=1)
_row(Ops.PTRCAT, C.VECTOR, "*sources", "", "given", "src0", "none",
     "Addresses grouped for a vectorised access.", at_least=1)

_row(Ops.UNROLL, C.EXPANSION, "src", "unroll_axes", "given", "src0", "union",
     "One value per iteration of the axes, the lanes of `src`: (axis, factor) pairs.")
_row(Ops.CONTRACT, C.EXPANSION, "src", "upcast_ranges", "given", "src0", "union",
     "Collects unrolled values in a vector: (axis, factor) pairs.")

_row(Ops.WMMA, C.HARDWARE, "a, b, c, *ranges", "metadata", "given", "scalar", "dtype",
     "Tensor-core multiply-accumulate D = A x B + C.", range_end=3, expandable=True)
_row(Ops.SPECIAL, C.HARDWARE, "end", "name", "index", "scalar", "special",
     "A hardware-provided index below `end`, e.g. blockIdx.x.")

_row(Ops.IF, C.CONTROL, "condition, *body", "", "void", "none", "none",
     "Executes `body` where the condition holds.")
_row(Ops.ENDIF, C.CONTROL, "if_op", "", "void", "none", "none",
     "Ends the body of an IF.")

_row(Ops.PARAM, C.DEFINITION, "[device]", "slot size", "given", "buffer", "dtype",
     "A buffer argument by position, of `size` elements; element dtype, pointer in kernels.")
_row(Ops.DEFINE_LOCAL, C.DEFINITION, "", "index size", "given", "none", "none",
     "Memory shared by a work-group (a stack array on a CPU).")
_row(Ops.DEFINE_VAR, C.DEFINITION, "", "name min_val max_val", "index", "scalar", "define_var",
     "A runtime variable with known, inclusive bounds.")
_row(Ops.DEFINE_REG, C.DEFINITION, "", "size id", "given", "none", "none",
     "A register; `id` keeps equal accumulators apart.")
_row(Ops.BIND, C.DEFINITION, "var, value", "", "src0", "scalar", "bind",
     "A DEFINE_VAR bound to a value.")
_row(Ops.UNIQUE, C.DEFINITION, "", "n", "void", "none", "none",
     "Identity, from a global counter.")
_row(Ops.LUNIQUE, C.DEFINITION, "", "n", "void", "none", "none",
     "Identity within a local scope such as a FUNCTION body.")
_row(Ops.DEVICE, C.DEFINITION, "", "spec", "void", "none", "none",
     "A device.")
_row(Ops.CONST, C.DEFINITION, "", "value", "given", "scalar", "const",
     "A constant; a tuple of ints is a shape.")

_row(Ops.RESHAPE, C.MOVEMENT, "src, new_shape", "", "src0", "reshape", "src0",
     "The same elements in row-major order under another shape.")
_row(Ops.PERMUTE, C.MOVEMENT, "src", "axes", "src0", "permute", "src0",
     "Dimensions in another order: result dimension i is source dimension axes[i].")
_row(Ops.EXPAND, C.MOVEMENT, "src, new_shape", "", "src0", "expand", "src0",
     "Broadcasts dimensions of size 1.")
_row(Ops.PAD, C.MOVEMENT, "src, begin_pads, end_pads", "", "src0", "pad", "dtype",
     "Zeros in front of and behind each dimension.")
_row(Ops.SHRINK, C.MOVEMENT, "src, begins, ends", "", "src0", "shrink", "src0",
     "The region begins <= i < ends of each dimension.")
_row(Ops.FLIP, C.MOVEMENT, "src", "axes", "src0", "flip", "src0",
     "Reverses dimensions: one bool each.")

_row(Ops.COPY, C.ADDITIONAL, "src, device", "", "src0", "src0", "src0",
     "Copies a value to a device.", inherits_ended=True)
_row(Ops.MSTACK, C.ADDITIONAL, "*buffers", "", "src0", "src0", "union",
     "Per-device buffers as one value.", at_least=1)
_row(Ops.MSELECT, C.ADDITIONAL, "buffer", "device_index", "src0", "shard", "src0",
     "One device's buffer of an MSTACK or MULTI.")
_row(Ops.MULTI, C.ADDITIONAL, "src", "axis", "src0", "multi", "src0",
     "One value, the shards of an MSTACK put together along `axis` (None: each is all of it).")
_row(Ops.GROUP, C.ADDITIONAL, "*sources", "", "void", "none", "none",
     "Ops grouped for scheduling.")
_row(Ops.DETACH, C.ADDITIONAL, "src", "mark", "src0", "src0", "src0",
     "Identity that stops gradients; no rule looks through it. `mark` keeps gradient leaves apart.")
_row(Ops.CONTIGUOUS, C.ADDITIONAL, "src", "hints", "src0", "src0", "src0",
     "Identity whose value is to be laid out contiguously.")
_row(Ops.CONTIGUOUS_BACKWARD, C.ADDITIONAL, "src", "", "src0", "src0", "src0",
     "Identity whose gradient is made CONTIGUOUS.")
_row(Ops.PRECAST, C.ADDITIONAL, "src", "", "src0", "src0", "src0",
     "Identity that makes a value exist in its own dtype before a cast.")
_row(Ops.NOOP, C.ADDITIONAL, "src", "note", "src0", "src0", "src0",
     "Identity. `note` tells rules above something about the value.")
_row(Ops.CUSTOM, C.ADDITIONAL, "*deps", "format", "given", "none", "none",
     "Inline statement from a format string (C backend only).")
_row(Ops.CUSTOM_I, C.ADDITIONAL, "*deps", "format", "given", "elementwise", "dtype",
     "Inline expression from a format string.")
_row(Ops.CUSTOM_FUNCTION, C.ADDITIONAL, "*deps", "kind payload", "void", "none", "none",
     "Runtime hook that a device registers.")

_alu(Ops.CAST, "cast", "Converts the value; saturating and truncating from float to int.",
     dtype="given", sources="src")
_alu(Ops.BITCAST, "dtype", "The same bits as another dtype of equal width.",
     dtype="given", sources="src")

_alu(Ops.NEG, "neg", "-a", sources="a")
_alu(Ops.NOT, "not", "Bitwise complement; logical for bool.", sources="a")
_alu(Ops.SQRT, "dtype", "Square root, correctly rounded.", sources="a")
_alu(Ops.RSQRT, "dtype", "1 / sqrt(a)", sources="a")
_alu(Ops.RECIPROCAL, "dtype", "1 / a", sources="a")
_alu(Ops.EXP, "dtype", "e ** a", sources="a")
_alu(Ops.EXP2, "dtype", "2 ** a", sources="a")
_alu(Ops.LOG, "dtype", "Natural logarithm.", sources="a")
_alu(Ops.LOG2, "dtype", "Logarithm to base 2.", sources="a")
_alu(Ops.SIN, "dtype", "Sine of an angle in radians.", sources="a")
_alu(Ops.COS, "dtype", "Cosine of an angle in radians.", sources="a")
_alu(Ops.TAN, "dtype", "Tangent of an angle in radians.", sources="a")
_alu(Ops.TRUNC, "src0", "Rounds toward zero.", sources="a")
_alu(Ops.FLOOR, "src0", "Rounds down.", sources="a")
_alu(Ops.CEIL, "src0", "Rounds up.", sources="a")
_alu(Ops.ROUND, "src0", "Rounds half to even; keeps the sign of zero.", sources="a")
_alu(Ops.ABS, "abs", "Magnitude; the lowest int stays itself.", sources="a")
_alu(Ops.SIGN, "sign", "-1, 0 or 1; NaN stays NaN.", sources="a")
_alu(Ops.ERF, "dtype", "Error function.", sources="a")
_alu(Ops.SQUARE, "square", "a * a", sources="a")

_alu(Ops.ADD, "add", "a + b; OR for bool.", commutative=True)
_alu(Ops.SUB, "sub", "a - b")
_alu(Ops.MUL, "mul", "a * b; AND for bool.", commutative=True)
_alu(Ops.FDIV, "dtype", "a / b of floats.")
_alu(Ops.IDIV, "idiv", "Quotient truncated toward zero, as C; 0 for divisor 0.")
_alu(Ops.MOD, "mod", "Remainder of IDIV, sign of the dividend; 0 for divisor 0.")
_alu(Ops.FLOORDIV, "floordiv", "Quotient rounded down, as Python; 0 for int divisor 0.")
_alu(Ops.FLOORMOD, "floormod", "Remainder of FLOORDIV, sign of the divisor; 0 for int divisor 0.")
_alu(Ops.MAX, "max", "The larger; NaN if either is.", commutative=True)
_alu(Ops.MIN, "min", "The smaller; NaN if either is.", commutative=True)
_alu(Ops.POW, "dtype", "a ** b; for ints by repeated multiplication, wrapping.")
_alu(Ops.AND, "and", "Bitwise and; logical for bool.", commutative=True)
_alu(Ops.OR, "or", "Bitwise or; logical for bool.", commutative=True)
_alu(Ops.XOR, "xor", "Bitwise exclusive or; logical for bool.", commutative=True)
_alu(Ops.SHL, "shl", "a * 2**b; 0 when b >= width.")
_alu(Ops.SHR, "shr", "floor(a / 2**b); 0 or the sign when b >= width.")
_alu(Ops.LT, "lt", "a < b", dtype="bool")
_alu(Ops.LE, "le", "a <= b", dtype="bool")
_alu(Ops.GT, "gt", "a > b", dtype="bool")
_alu(Ops.GE, "ge", "a >= b", dtype="bool")
_alu(Ops.EQ, "eq", "a == b", dtype="bool", commutative=True)
_alu(Ops.NE, "ne", "a != b", dtype="bool", commutative=True)
_alu(Ops.THREEFRY, "dtype", "Threefry 2x32 of a uint64 counter and a uint64 key.")

_alu(Ops.WHERE, "where", "b where a holds, else c.", dtype="src1", sources="a, b, c")
_alu(Ops.MULACC, "dtype", "a * b + c, of floats rounded once.", sources="a, b, c")
# fmt: on

_CASTS = frozenset({Ops.CAST, Ops.BITCAST})


def _select(test: Callable[[OpSpec], bool]) -> frozenset[Ops]:
    return frozenset(op for op, spec in OPS.items() if test(spec))


class GroupOp:
    """Sets of ops, computed from the table."""

    Unary = _select(lambda spec: spec.arity == 1 and spec.op not in _CASTS)
    Binary = _select(lambda spec: spec.arity == 2)
    Ternary = _select(lambda spec: spec.arity == 3)
    ALU = Unary | Binary | Ternary
    Cast = _CASTS
    Elementwise = ALU | Cast
    Comparison = _select(lambda spec: spec.comparison)
    Commutative = _select(lambda spec: spec.commutative)
    Movement = _select(lambda spec: spec.category is Category.MOVEMENT)
    RangeEnding = _select(lambda spec: spec.range_end is not None)
    InheritsEnded = _select(lambda spec: spec.inherits_ended)
    Expandable = _select(lambda spec: spec.expandable)
    Definition = _select(lambda spec: spec.category is Category.DEFINITION)
    Void = _select(lambda spec: spec.dtype_kind == "void")
    Identity = frozenset(
        {Ops.DETACH, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.PRECAST, Ops.NOOP}
    )
    All = frozenset(OPS)


for _spec in OPS.values():
    _core.register_op(
        int(_spec.op),
        _spec.op,
        _spec.dtype_kind,
        _spec.shape_kind,
        _spec.bounds_kind,
        -1 if _spec.range_end is None else _spec.range_end,
        _spec.inherits_ended,
        _spec.commutative,
    )
