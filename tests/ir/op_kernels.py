"""A small kernel around every op that belongs in one, with what NumPy says it computes.

A case is a SINK as rangeify hands it on (or, where that cannot have the op, a LINEAR), the contents
of its buffers and what some of them hold afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from morok.dtype import AddrSpace, DType, dtypes, from_numpy, to_numpy
from morok.ir import (
    OPS,
    AxisType,
    BufferizeOpts,
    GroupOp,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    WmmaUpcastAxes,
)

Array = np.ndarray
F32, F16 = dtypes.float32, dtypes.float16
I32, U64, IDX = dtypes.int32, dtypes.uint64, dtypes.index
N = 32
RTOL = 2e-6  # of float32 functions that are not exact


@dataclass
class Case:
    """A kernel, its buffers by slot, and the contents wanted of some of them afterwards."""

    root: UOp
    arrays: list[Array]
    wanted: Mapping[int, Array]
    variables: Mapping[str, int] = field(default_factory=dict)
    exact: bool = True


def loop(end: int = N, number: int = 0, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp.range(end, number, kind, renumbered=True)


def memory(slot: int, dtype: DType = F32, size: int = N) -> UOp:
    return UOp.param(slot, dtype.ptr(), size)


def sink(*statements: UOp) -> UOp:
    return UOp.new_sink(*statements, info=KernelInfo("every_op"))


def numbers(dtype: DType = F32, size: int = N, seed: int = 0) -> Array:
    """Values that no function has trouble with: positive, quarters for floats."""
    draw = np.random.default_rng(seed)
    if dtype.kind == "f":
        return (draw.integers(1, 40, size) / 4).astype(to_numpy(dtype))
    return draw.integers(
        0 if dtype.kind == "b" else 1, 2 if dtype.kind == "b" else 40, size
    ).astype(to_numpy(dtype))


def blank(dtype: DType = F32, size: int = N) -> Array:
    return np.zeros(size, to_numpy(dtype))


def elementwise(
    value: Callable[..., UOp], wanted: Callable[..., Array], *inputs: Array, exact: bool = True
) -> Case:
    """out[i] = value(inputs[0][i], …)"""
    i = loop()
    reads = [memory(slot, from_numpy(a.dtype)).at(i) for slot, a in enumerate(inputs, 1)]
    result = value(*reads)
    out = memory(0, result.dtype).at(i).store(result, i)
    arrays = [blank(result.dtype), *inputs]
    return Case(sink(out), arrays, {0: np.asarray(wanted(*inputs))}, exact=exact)


# ALU ----------------------------------------------------------------------------------------------


def _truncated(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def threefry(counter: int, key: int) -> int:
    """Threefry 2x32 with 20 rounds, in Python's ints."""
    mask = 0xFFFFFFFF
    x = [counter & mask, counter >> 32]
    k = [key & mask, key >> 32]
    k.append(k[0] ^ k[1] ^ 0x1BD11BDA)
    x = [(x[0] + k[0]) & mask, (x[1] + k[1]) & mask]
    for turn in range(20):
        by = ((13, 15, 26, 6), (17, 29, 16, 24))[turn // 4 % 2][turn % 4]
        x[0] = (x[0] + x[1]) & mask
        x[1] = ((x[1] << by | x[1] >> (32 - by)) & mask) ^ x[0]
        if turn % 4 == 3:
            step = turn // 4 + 1
            x[0] = (x[0] + k[step % 3]) & mask
            x[1] = (x[1] + k[(step + 1) % 3] + step) & mask
    return x[0] | x[1] << 32


NUMPY: dict[Ops, Callable[..., Array]] = {
    Ops.NEG: np.negative,
    Ops.NOT: np.invert,
    Ops.SQRT: np.sqrt,
    Ops.RSQRT: lambda a: 1 / np.sqrt(a),
    Ops.RECIPROCAL: np.reciprocal,
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG: np.log,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TAN: np.tan,
    Ops.TRUNC: np.trunc,
    Ops.FLOOR: np.floor,
    Ops.CEIL: np.ceil,
    Ops.ROUND: np.round,
    Ops.ABS: np.abs,
    Ops.SIGN: np.sign,
    Ops.ERF: np.vectorize(math.erf),
    Ops.SQUARE: np.square,
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.IDIV: _truncated,
    Ops.MOD: np.fmod,
    Ops.FLOORDIV: np.floor_divide,
    Ops.FLOORMOD: np.mod,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.POW: np.power,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.LT: np.less,
    Ops.LE: np.less_equal,
    Ops.GT: np.greater,
    Ops.GE: np.greater_equal,
    Ops.EQ: np.equal,
    Ops.NE: np.not_equal,
    Ops.THREEFRY: np.vectorize(lambda c, k: threefry(int(c), int(k)), otypes=[np.uint64]),
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
}
_INTS = frozenset(
    {Ops.NOT, Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR}
    | {Ops.SHL, Ops.SHR}
)
_INEXACT = frozenset(
    {Ops.RSQRT, Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF, Ops.POW}
)


def arithmetic(op: Ops) -> Case:
    """An ALU op on signed numbers where it has them."""
    arity = OPS[op].arity
    if op is Ops.THREEFRY:
        inputs = [np.arange(N, dtype=np.uint64) << np.uint64(k) for k in (3, 33)]
    elif op is Ops.WHERE:
        inputs = [numbers(dtypes.bool_), numbers(seed=1), numbers(seed=2)]
    elif op in (Ops.SHL, Ops.SHR):
        inputs = [numbers(I32) * -3, numbers(I32, seed=1) % 20]
    else:
        inputs = [numbers(I32 if op in _INTS else F32, seed=k) for k in range(arity)]
        if (
            op in (Ops.NEG, Ops.ABS, Ops.SIGN, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND)
            or arity > 1
        ):
            inputs[0] = np.where(np.arange(N) % 2, inputs[0], -inputs[0])
        if op is Ops.POW:
            inputs = [np.abs(inputs[0]) / 4, inputs[1] / 4]
        if op in (Ops.EQ, Ops.NE):
            inputs[1][::3] = inputs[0][::3]
    return elementwise(
        lambda a, *rest: a.alu(op, *rest), NUMPY[op], *inputs, exact=op not in _INEXACT
    )


# Loops, memory, statements ------------------------------------------------------------------------


def copied() -> Case:
    """for i: out[i] = 3 * x[i]"""
    return elementwise(lambda x: x * 3.0, lambda x: x * 3, numbers())


def ended() -> Case:
    """The loop is closed by an END."""
    i = loop()
    store = memory(0).at(i).store(memory(1).at(i) + 1.0)
    x = numbers()
    return Case(sink(store.close(i)), [blank(), x], {0: x + 1})


def loaded() -> Case:
    """A gated LOAD with another value where its gate is false."""
    i = loop()
    read = memory(1).at(i + 5, gate=i < N - 5).load(UOp.const(F32, -1.0))
    x = numbers()
    return Case(
        sink(memory(0).at(i).store(read, i)),
        [blank(), x],
        {0: np.concatenate([x[5:], np.full(5, -1, np.float32)])},
    )


def reduced() -> Case:
    """All four reductions of the rows of (4, 8)."""
    i, k = loop(4), loop(8, 1, AxisType.REDUCE)
    x = numbers() / 4
    row = memory(4).at(i * 8 + k)
    stores = [memory(s, size=4).at(i).store(row.reduce(op, k), i) for s, op in enumerate(ReduceOp)]
    rows = x.reshape(4, 8)
    wanted = dict(enumerate((rows.sum(1), rows.prod(1), rows.max(1), rows.min(1))))
    return Case(sink(*stores), [*(blank(size=4) for _ in range(4)), x], wanted, exact=False)


def local_buffer() -> Case:
    """A row is kept in local memory and read twice."""
    i, k, j = loop(4), loop(8, 1), loop(8, 2)
    row = (memory(1).at(i * 8 + k) * 2.0).bufferize(
        k, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL)
    )
    store = memory(0).at(i * 8 + j).store(row.at(j) + row.at(7 - j), i, j)
    x = numbers()
    rows = x.reshape(4, 8) * 2
    return Case(sink(store), [blank(), x], {0: (rows + rows[:, ::-1]).ravel()})


def ordered(order: Callable[[UOp, UOp], UOp]) -> Case:
    """tmp[i] = x[i]; then out[i] = tmp[N - 1 - i], where `order` says "then"."""
    i, j = loop(), loop(N, 1)
    tmp = memory(1)
    written = tmp.at(i).store(memory(2).at(i), i)
    read = order(tmp, written).at(N - 1 - j)
    x = numbers()
    store = memory(0).at(j).store(read, j)
    return Case(sink(written, store), [blank(), blank(), x], {0: x[::-1], 1: x})


def local_memory() -> Case:
    """A DEFINE_LOCAL that is filled and read."""
    i, j = loop(), loop(N, 1)
    local = UOp.define_local(F32, N, 0)
    filled = local.after(local.at(i).store(memory(1).at(i), i))
    x = numbers()
    store = memory(0).at(j).store(filled.at(N - 1 - j), j)
    return Case(sink(store), [blank(), x], {0: x[::-1]})


def register() -> Case:
    """A running maximum in a DEFINE_REG."""
    i = loop()
    reg = UOp.define_reg(F32, 1, 0)
    started = reg.after(reg.at(0).store(UOp.const(F32, -1.0)))
    step = started.at(0).store(started.after(i).at(0).maximum(memory(1).at(i))).close(i)
    x = numbers()
    return Case(
        sink(memory(0, size=1).at(0).store(reg.after(step).at(0))),
        [blank(size=1), x],
        {0: x.max(keepdims=True)},
    )


def grouped() -> Case:
    i = loop()
    x = numbers()
    stores = [memory(s).at(i).store(memory(2).at(i) + float(s), i) for s in range(2)]
    return Case(sink(UOp.group(*stores)), [blank(), blank(), x], {0: x, 1: x + 1})


def gated_store() -> Case:
    """IF … ENDIF: out[i] = x[i] where i < 9"""
    i = loop()
    store = memory(0).at(i, gate=i < 9).store(memory(1).at(i), i)
    x = numbers()
    return Case(sink(store), [blank(), x], {0: np.where(np.arange(N) < 9, x, 0)})


def variable(bind: bool) -> Case:
    """for i < n: out[i] = x[i] * n"""
    n = UOp.define_var("n", 1, N)
    value = n.bind(7) if bind else n
    i = UOp.range(n, 0, renumbered=True)
    store = memory(0).at(i).store(memory(1).at(i) * value.cast(F32), i)
    x = numbers()
    wanted = np.where(np.arange(N) < 7, x * 7, 0)
    return Case(sink(store), [blank(), x], {0: wanted}, {"n": 7})


# Vectors ------------------------------------------------------------------------------------------


def vector(value: Callable[[UOp, UOp], UOp], wanted: Callable[[Array], Array]) -> Case:
    """out[4i : 4i + lanes] = value(x, 4i), for the eight rows of four of x."""
    i = loop(8)
    result = value(memory(1), i * 4)
    count = result.dtype.count
    target = memory(0, size=8 * count).at(i * count)
    target = UOp(Ops.INDEX, result.dtype, target.src, False)
    x = numbers()
    rows = np.asarray(wanted(x.reshape(8, 4)), np.float32)
    return Case(sink(target.store(result, i)), [blank(size=8 * count), x], {0: rows.ravel()})


def lanes(x: UOp, start: UOp, count: int = 4) -> UOp:
    return UOp.vectorize(*(x.at(start + k) for k in range(count)))


WEIGHTS = (1.0, 2.0, 4.0, 8.0)


def unrolled(x: UOp, start: UOp) -> UOp:
    """Rows of four as a value in four versions, doubled and collected again."""
    return (lanes(x, start).unroll(((0, 4),)) * 2.0).contract(((0, 4),))


def two_axes(x: UOp, start: UOp) -> UOp:
    """a[i] - b[j] for two versions each, collected with j outermost: b from x, a constant."""
    a = UOp.vconst(F32, (100.0, 200.0)).unroll(((1, 2),))
    b = lanes(x, start, 2).unroll(((0, 2),))
    return (a - b).contract(((1, 2), (0, 2)))


def joined_addresses() -> Case:
    """LOAD and STORE of PTRCATs: rows of four with their halves exchanged."""
    i = loop(8)
    halves = [
        [UOp(Ops.INDEX, F32.vec(2), (memory(s), i * 4 + k), False) for k in (0, 2)] for s in (0, 1)
    ]
    store = UOp.ptrcat(*halves[0]).store(UOp.ptrcat(*reversed(halves[1])).load(), i)
    x = numbers()
    return Case(sink(store), [blank(), x], {0: np.roll(x.reshape(8, 4), 2, 1).ravel()})


TILE = WmmaMetadata(
    "tile",
    (2, 4, 3),  # N, M, K
    F16,
    F32,
    "none",
    threads=1,
    upcast_axes=WmmaUpcastAxes(((0, 12),), ((1, 6),), ((2, 8),)),
)


def tile_product() -> Case:
    """out = a @ b + c of one tile, a (4, 3), b (3, 2), c (4, 2)"""
    a, b, c = (numbers(d, n, n) for d, n in ((F16, 12), (F16, 6), (F32, 8)))
    zero = UOp.const(IDX, 0)
    parts = [
        UOp.vectorize(*(memory(slot, d, n).at(zero + k) for k in range(n)))
        for slot, d, n in ((1, F16, 12), (2, F16, 6), (3, F32, 8))
    ]
    target = UOp(Ops.INDEX, F32.vec(8), (memory(0, size=8), zero), False)
    wanted = a.reshape(4, 3).astype(np.float32) @ b.reshape(3, 2).astype(np.float32)
    return Case(
        sink(target.store(UOp.wmma(*parts, TILE))),
        [blank(size=8), a, b, c],
        {0: wanted.ravel() + c},
    )


# Values -------------------------------------------------------------------------------------------


def precast() -> Case:
    """A float16 sum that is rounded before it is widened: 2048 + 1 is 2048."""
    x = np.full(N, 2048, np.float16)
    one = np.ones(N, np.float16)
    return elementwise(
        lambda a, b: (a + b).precast().cast(F32), lambda a, b: (a + b).astype(np.float32), x, one
    )


def byte_offset() -> Case:
    """A LINEAR: out[3] = x[5], by way of bytes."""
    zero = [UOp.const(I32, value) for value in (12, 20)]
    out, x = memory(0), memory(1)
    target, source = out.pointer_index(zero[0]), x.pointer_index(zero[1])
    read = UOp(Ops.LOAD, F32, (x, source))
    store = UOp(Ops.STORE, dtypes.void, (target, read))
    linear = UOp.new_linear(out, x, *zero, target, source, read, store)
    values = numbers()
    wanted = blank()
    wanted[3] = values[5]
    return Case(linear, [blank(), values], {0: wanted})


def custom_statement() -> Case:
    """CUSTOM: a statement of C that writes memory."""
    i = loop()
    text = UOp.custom("{0}[{1}] = {2} * 2", memory(0), i, memory(1).at(i)).close(i)
    x = numbers()
    return Case(sink(text), [blank(), x], {0: x * 2})


def custom_expression() -> Case:
    x = numbers()
    return elementwise(
        lambda a: UOp.custom_i("__builtin_fabsf({0} - 5.0f)", F32, a), lambda a: np.abs(a - 5), x
    )


KERNELS: dict[Ops, Callable[[], Case]] = {
    **{op: (lambda op=op: arithmetic(op)) for op in sorted(GroupOp.ALU)},
    **dict.fromkeys((Ops.RANGE, Ops.INDEX, Ops.STORE, Ops.SINK, Ops.PARAM, Ops.CONST), copied),
    Ops.END: ended,
    Ops.LOAD: loaded,
    Ops.REDUCE: reduced,
    Ops.BUFFERIZE: local_buffer,
    Ops.AFTER: lambda: ordered(lambda tmp, written: tmp.after(written)),
    Ops.BARRIER: lambda: ordered(lambda tmp, written: tmp.barrier(written)),
    Ops.DEFINE_LOCAL: local_memory,
    Ops.DEFINE_REG: register,
    Ops.GROUP: grouped,
    Ops.IF: gated_store,
    Ops.ENDIF: gated_store,
    Ops.DEFINE_VAR: lambda: variable(False),
    Ops.BIND: lambda: variable(True),
    Ops.VECTORIZE: lambda: vector(lanes, lambda x: x),
    Ops.GEP: lambda: vector(lambda x, i: lanes(x, i).gep((2, 0)), lambda x: x[:, [2, 0]]),
    Ops.VCONST: lambda: vector(
        lambda x, i: lanes(x, i) * UOp.vconst(F32, WEIGHTS), lambda x: x * WEIGHTS
    ),
    Ops.CAT: lambda: vector(
        lambda x, i: UOp.cat(lanes(x, i), lanes(x, i) + 1.0), lambda x: np.hstack([x, x + 1])
    ),
    Ops.UNROLL: lambda: vector(
        two_axes,
        lambda x: np.stack([100 - x[:, 0], 100 - x[:, 1], 200 - x[:, 0], 200 - x[:, 1]], axis=1),
    ),
    Ops.CONTRACT: lambda: vector(unrolled, lambda x: x * 2),
    Ops.PTRCAT: joined_addresses,
    Ops.WMMA: tile_product,
    Ops.CAST: lambda: elementwise(lambda a: a.cast(I32), lambda a: a.astype(np.int32), numbers()),
    Ops.BITCAST: lambda: elementwise(
        lambda a: a.bitcast(I32), lambda a: a.view(np.int32), numbers()
    ),
    Ops.PRECAST: precast,
    Ops.CONTIGUOUS: lambda: elementwise(lambda a: a.contiguous(), lambda a: a, numbers()),
    Ops.NOOP: lambda: elementwise(lambda a: a.noop("seen"), lambda a: a, numbers()),
    Ops.POINTER_INDEX: byte_offset,
    Ops.CUSTOM: custom_statement,
    Ops.CUSTOM_I: custom_expression,
}
"""Every op that belongs in a kernel."""

ONLY_C = frozenset({Ops.CUSTOM, Ops.CUSTOM_I})
"""Text of the target language has no meaning on arrays."""

ONLY_LINEAR = frozenset({Ops.POINTER_INDEX})
"""Ops that stand in no graph, only in a LINEAR."""


def tiles() -> Case:
    """out = c + the sum over k of a[k] @ b[k]: a WMMA that closes the loop over its tiles."""
    k = loop(3, 0, AxisType.REDUCE)
    a, b, c = (numbers(d, n, n) for d, n in ((F16, 36), (F16, 18), (F32, 8)))
    zero = UOp.const(IDX, 0)
    parts = [
        UOp.vectorize(*(memory(slot, d, size).at(first + lane) for lane in range(n)))
        for slot, d, n, size, first in (
            (1, F16, 12, 36, k * 12),
            (2, F16, 6, 18, k * 6),
            (3, F32, 8, 8, zero),
        )
    ]
    target = UOp(Ops.INDEX, F32.vec(8), (memory(0, size=8), zero), False)
    wanted = np.einsum(
        "kij,kjl->il", a.reshape(3, 4, 3).astype(np.float32), b.reshape(3, 3, 2).astype(np.float32)
    )
    return Case(
        sink(target.store(UOp.wmma(*parts, TILE, k))),
        [blank(size=8), a, b, c],
        {0: wanted.ravel() + c},
    )


def along(axis: AxisType) -> Case:
    """out[i] = x[i] + 1 over a loop of some type."""
    i = loop(N, 0, axis)
    x = numbers()
    return Case(sink(memory(0).at(i).store(memory(1).at(i) + 1.0, i)), [blank(), x], {0: x + 1})
