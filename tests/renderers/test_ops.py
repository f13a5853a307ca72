"""Every op on every dtype, scalar and vector, compiled: the same bits as the reference."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from morok.codegen import get_program
from morok.dtype import DType, dtypes, max_value, min_value, to_numpy
from morok.float_format import FORMATS
from morok.ir import AxisType, KernelInfo, Ops, Renderer, UOp, interpret_kernel
from morok.optimizer import parse_opts, prepare, replay
from morok.renderers import CRenderer, LLVMRenderer
from tests.codegen.compiled import build, c_renderer, launch, llvm_renderer

SIZE = 448  # a multiple of every vector width, at least the number of pairs below
FLOATS = (dtypes.float32, dtypes.float64)
HALVES = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)


def interesting(dtype: DType) -> list[float]:
    """Values at the borders of a dtype."""
    if dtype.kind == "b":
        return [0, 1]
    if dtype.kind == "f":
        specials = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.25, np.inf, -np.inf, np.nan, 100.7, -0.3]
        limits = {"float32": [3e38, 1e-45, 2.0**31, -(2.0**63)], "float64": [1e308, 5e-324, 1e40]}
        return specials + limits.get(dtype.name, [448.0, 0.002, 57344.0])
    low, high = int(min_value(dtype)), int(max_value(dtype))
    values = {low, low + 1, 0, 1, 2, 3, 5, 7, 8, 31, 33, 63, 100, high - 1, high, high // 3}
    return sorted(values | ({-1, -2, -3, -7, -64} if dtype.kind == "i" else set()))


def storage(dtype: DType) -> np.dtype:
    """How an array of a dtype is handed to the reference: narrow floats as float32 values."""
    if dtype in HALVES and dtype is not dtypes.float16:
        return np.dtype(np.float32)
    return np.dtype(to_numpy(dtype))


def pairs(dtype: DType, other: DType | None = None) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of interesting values, repeated to SIZE."""
    grid = list(itertools.product(interesting(dtype), interesting(other or dtype)))
    grid = list(itertools.islice(itertools.cycle(grid), SIZE))
    x = np.array([a for a, _ in grid], storage(dtype))
    y = np.array([b for _, b in grid], storage(other or dtype))
    return x, y


def ops_of(dtype: DType) -> list[tuple[str, Callable[[UOp, UOp], UOp]]]:
    """What can be done with two values of a dtype."""

    def alu(op: Ops) -> tuple[str, Callable[[UOp, UOp], UOp]]:
        return op.name, lambda x, y: x.alu(op, y)

    def unary(op: Ops) -> tuple[str, Callable[[UOp, UOp], UOp]]:
        return op.name, lambda x, y: x.alu(op)

    compared = [alu(op) for op in (Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE)]
    both = [*compared, ("WHERE", lambda x, y: (x < y).where(x, y))]
    bits = [alu(op) for op in (Ops.AND, Ops.OR, Ops.XOR)] + [unary(Ops.NOT)]
    arithmetic = [alu(op) for op in (Ops.ADD, Ops.SUB, Ops.MUL)] + [unary(Ops.NEG)]
    arithmetic += [unary(Ops.SQUARE), unary(Ops.ABS), unary(Ops.SIGN)]
    division = [alu(op) for op in (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD)]
    constants = [
        (f"{name} by {c}", lambda x, y, f=f, c=c: f(x, x.const_like(c)))
        for name, f in (("//", UOp.__floordiv__), ("%", UOp.__mod__), ("idiv", UOp.idiv))
        for c in (1, 3, 8)
    ]
    if dtype.kind == "b":
        extremes = [alu(Ops.MAX), alu(Ops.MIN), alu(Ops.ADD), alu(Ops.MUL)]
        return both + bits + extremes
    if dtype.kind == "f":
        rest = [alu(Ops.FDIV), unary(Ops.RECIPROCAL), unary(Ops.SQRT), unary(Ops.RSQRT)]
        rest += [unary(op) for op in (Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND)]
        rest += [("x/4", lambda x, y: x / 4.0), ("2/x", lambda x, y: 2.0 / x)]
        return both + arithmetic + rest + [alu(Ops.MOD), alu(Ops.FLOORDIV), alu(Ops.FLOORMOD)]
    shifts = [
        alu(Ops.SHL),
        alu(Ops.SHR),
        ("x<<3", lambda x, y: x << 3),
        ("x>>3", lambda x, y: x >> 3),
    ]
    extremes = [alu(Ops.MAX), alu(Ops.MIN), alu(Ops.POW)]
    return both + bits + arithmetic + division + constants + shifts + extremes


def kernel(
    x_dtype: DType, y_dtype: DType, outputs: list[Callable[[UOp, UOp], UOp]], lanes: int
) -> UOp:
    """out_k[i] = outputs[k](x[i], y[i]), vectors of `lanes`; x and y are the last PARAMs."""
    i = UOp.range(SIZE, 0, AxisType.LOOP, renumbered=True)
    count = len(outputs)
    x = UOp.param(count, x_dtype.ptr(), SIZE).at(i)
    y = UOp.param(count + 1, y_dtype.ptr(), SIZE).at(i)
    stores = []
    for slot, output in enumerate(outputs):
        value = output(x, y)
        stores.append(UOp.param(slot, value.dtype.ptr(), SIZE).at(i).store(value, i))
    name = f"ops_{x_dtype.name}_{lanes}"
    sink = UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo(name))
    return replay(prepare(sink), parse_opts(f"UPCAST(0,{lanes})" if lanes > 1 else ""))


def to_memory(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The bytes that a kernel sees."""
    if dtype in HALVES and dtype is not dtypes.float16:
        encode = FORMATS[dtype.name].encode
        form = FORMATS[dtype.name]
        codes = [encode(form.round(float(value))) for value in array]
        return np.array(codes, np.uint16 if dtype.bits == 16 else np.uint8)
    return array


def from_memory(array: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype in HALVES and dtype is not dtypes.float16:
        decode = FORMATS[dtype.name].decode
        return np.array([decode(int(code)) for code in array], np.float32)
    return array


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where two arrays have the same values, NaNs and signs of zeros included."""
    if got.dtype.kind != "f":
        return np.asarray(got == want)
    zeros = (got == 0) & (want == 0)
    equal = (got == want) & (~zeros | (np.signbit(got) == np.signbit(want)))
    return np.asarray(equal | (np.isnan(got) & np.isnan(want)))


def check(
    x_dtype: DType,
    y_dtype: DType,
    named: list[tuple[str, Callable[[UOp, UOp], UOp]]],
    target: Renderer,
    loose_zeros: frozenset[str] = frozenset(),
) -> None:
    """Compiles all ops on scalars and vectors and compares with the reference."""
    x, y = pairs(x_dtype, y_dtype)
    widest = min(target.capability.max_width(d) for d in (x_dtype, y_dtype))
    sinks = [kernel(x_dtype, y_dtype, [f for _, f in named], lanes) for lanes in {1, 4, widest}]
    programs = [get_program(sink, target) for sink in sinks]
    plain = sinks[0]
    out_dtypes = [s.src[0].dtype for s in plain.src]
    blank = [np.zeros(SIZE, storage(dtype)) for dtype in out_dtypes]
    wanted = interpret_kernel(plain, [*blank, x, y])
    arrays = [to_memory(b, d) for b, d in zip(blank, out_dtypes, strict=True)]
    arrays += [to_memory(x, x_dtype), to_memory(y, y_dtype)]
    for program, compiled in zip(programs, build(programs), strict=True):
        results = launch(compiled, program, arrays, {})
        for (name, _), dtype, got, want in zip(named, out_dtypes, results, wanted, strict=False):
            value = from_memory(got, dtype)
            expected = np.asarray(want).astype(value.dtype)
            fine = same(value, expected)
            if name == "RSQRT":  # two roundings
                fine |= np.isclose(value, expected, rtol=np.finfo(value.dtype).eps, atol=0)
            if name in loose_zeros:
                fine |= (value == 0) & (expected == 0)
            where = np.flatnonzero(~fine)[:5]
            report = [(x[k], y[k], value[k], expected[k]) for k in where]
            assert not len(where), (
                f"{name} on {x_dtype} in {program.src[0].arg.applied_opts}: {report}"
            )


# Which of two zeros MAX, MIN and SIGN give is not promised.
LOOSE = frozenset({"MAX", "MIN", "SIGN", "WHERE"})


@pytest.fixture(params=["c", "llvm"])
def target(request: pytest.FixtureRequest) -> Renderer:
    return c_renderer() if request.param == "c" else llvm_renderer()


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool, *FLOATS], ids=str)
def test_ops(dtype: DType, target: Renderer) -> None:
    check(dtype, dtype, ops_of(dtype), target, LOOSE)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_ops_on_small_floats_round_once(dtype: DType, target: Renderer) -> None:
    named = [
        (name, f)
        for name, f in ops_of(dtype)
        if name not in ("RSQRT", "FLOORDIV", "FLOORMOD", "MOD")
    ]
    check(dtype, dtype, named, target, LOOSE)


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_casts(dtype: DType, target: Renderer) -> None:
    named = [(f"to {d}", lambda x, y, d=d: x.cast(d)) for d in dtypes.all if d is not dtype]
    check(dtype, dtype, named, target)


@pytest.mark.parametrize("features", [(), ("sse2",), ("sse2", "avx")], ids=str)
@pytest.mark.parametrize("language", ["c", "llvm"])
def test_older_processors(features: tuple[str, ...], language: str) -> None:
    """What newer processors have instructions for is spelled out for older ones."""
    older = CRenderer(features)
    if language == "llvm":
        llvm_renderer()  # or the test is skipped
        older = LLVMRenderer(features)
    check(dtypes.float32, dtypes.float32, ops_of(dtypes.float32), older, LOOSE)
    halves = [(f"to {d}", lambda x, y, d=d: x.cast(d)) for d in (dtypes.float16, dtypes.float64)]
    check(dtypes.float32, dtypes.float32, halves, older, LOOSE)
    check(dtypes.float16, dtypes.float16, [("ADD", lambda x, y: x + y)], older, LOOSE)
