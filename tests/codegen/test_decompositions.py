"""Stage 18: what is decomposed, into what, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from morok.codegen import decompose, decompositions
from morok.codegen.branches import branch_around
from morok.dtype import AddrSpace, DType, dtypes
from morok.ir import Capability, GroupOp, KernelInfo, Level, Ops, UOp, graph_rewrite, verify
from tests.codegen.compiled import renderer
from tests.codegen.numpy_eval import evaluate

F32, I32, U64 = dtypes.float32, dtypes.int32, dtypes.uint64


def leaf(dtype: DType, number: int = 0) -> UOp:
    return UOp.param(number, dtype, 1)


def target(*extra: Ops) -> Capability:
    return replace(renderer().capability, ops=renderer().capability.ops | set(extra))


def rewritten(node: UOp, *extra: Ops) -> UOp:
    return graph_rewrite(node, decompositions, ctx=target(*extra))


def at(buffer: UOp, index: int | UOp = 0, dtype: DType | None = None) -> UOp:
    position = UOp.const(I32, index) if isinstance(index, int) else index
    return UOp(Ops.INDEX, dtype or buffer.dtype.base, (buffer, position), False)


def kernel(*statements: UOp) -> UOp:
    return UOp(Ops.SINK, dtypes.void, statements, KernelInfo("test"))


# ---- every op ------------------------------------------------------------------------------------

_UNARY_F = sorted(GroupOp.Unary - {Ops.NOT, Ops.CAST, Ops.BITCAST})


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [F32, dtypes.float64, dtypes.float16, dtypes.bfloat16], ids=str)
def test_only_ops_of_the_target_are_left(dtype: DType, lanes: int) -> None:
    vector = dtype.vec(lanes)
    x = at(UOp.param(1, dtype.ptr(), 4), dtype=vector).load()
    y = at(UOp.param(2, dtype.ptr(), 4), dtype=vector).load()
    values = [x.alu(op) for op in _UNARY_F]
    values += [x.alu(op, y) for op in (Ops.POW, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MOD, Ops.IDIV)]
    stores = [
        at(UOp.param(slot + 3, dtype.ptr(), 4), dtype=vector).store(value)
        for slot, value in enumerate(values)
    ]
    done = decompose(kernel(*stores), renderer().capability)
    verify(done, Level.KERNEL)
    for node in done.toposort():
        if node.op in GroupOp.ALU:
            assert node.op in renderer().capability.ops
            assert node.dtype.scalar not in (dtypes.float16, dtypes.bfloat16) or node.op in (
                Ops.CAST,
                Ops.BITCAST,
            )


@pytest.mark.parametrize("op", [Ops.EXP, Ops.SIN, Ops.FLOOR, Ops.SQUARE, Ops.RSQRT, Ops.ABS])
def test_an_op_of_the_target_stays(op: Ops) -> None:
    node = leaf(F32).alu(op)
    assert rewritten(node, op) is node
    assert rewritten(node) is not node


def test_sqrt_stays() -> None:
    assert rewritten(leaf(F32).sqrt()) is leaf(F32).sqrt()


# ---- integers ------------------------------------------------------------------------------------


def test_floor_division_of_what_is_not_negative_truncates() -> None:
    i = UOp(Ops.RANGE, I32, (UOp.const(I32, 1 << 30),), UOp.range(100, 0).arg)
    assert rewritten(i // 7) is i.idiv(7)
    assert rewritten(i % 7) is i.mod(7)


def test_small_numbers_are_divided_by_a_product() -> None:
    i = UOp(Ops.RANGE, I32, (UOp.const(I32, 100),), UOp.range(100, 0).arg)
    for quotient, rest in ((i // 7, i % 7), (i.idiv(7), i.mod(7))):
        assert rewritten(quotient) is (i * 9363) >> 16
        assert rewritten(rest) is i - ((i * 9363) >> 16) * 7
    assert [value * 9363 >> 16 for value in range(100)] == [value // 7 for value in range(100)]


def test_powers_of_two_are_bits() -> None:
    x, i = leaf(I32), UOp(Ops.RANGE, I32, (UOp.const(I32, 1 << 30),), UOp.range(100, 0).arg)
    assert rewritten(x * 8) is x * 8
    assert rewritten(i.idiv(8)) is i >> 3
    assert rewritten(i.mod(8)) is i & 7
    assert rewritten(x.idiv(8)) is x.idiv(8)
    assert rewritten(leaf(U64).idiv(8)) is leaf(U64) >> 3


def test_comparisons_that_a_target_lacks() -> None:
    lacking = GroupOp.Comparison - {Ops.LT, Ops.EQ}
    few = replace(renderer().capability, ops=renderer().capability.ops - lacking)
    for dtype in (I32, U64, F32):
        x, y = (at(UOp.param(k, dtype.ptr(), 1)).load() for k in (1, 2))
        ints = {Ops.GE: ~(x < y), Ops.LE: ~(y < x), Ops.GT: y < x, Ops.NE: ~x.eq(y)}
        floats = {**ints, Ops.GE: (y < x) | x.eq(y), Ops.LE: (x < y) | x.eq(y)}
        for op, expected in (floats if dtype is F32 else ints).items():
            sink = kernel(at(UOp.param(0, dtypes.bool_.ptr(), 1)).store(x.alu(op, y)))
            assert decompose(sink, few).src[0].src[1] is expected
            assert decompose(sink, renderer().capability) is sink


def test_floor_division_by_powers_of_two_is_bits() -> None:
    x = leaf(I32)
    assert rewritten(x // 8) is x >> 3
    assert rewritten(x % 8) is x & 7


def test_float_division_by_a_power_of_two_multiplies() -> None:
    x = leaf(F32)
    assert rewritten(x / 4.0) is x * 0.25
    assert rewritten(x / -0.5) is x * -2.0
    assert rewritten(x / 3.0) is x / 3.0
    assert rewritten(x / 0.0) is x / 0.0


def test_logic_on_bools() -> None:
    x, y = leaf(dtypes.bool), leaf(dtypes.bool, 1)
    assert rewritten(x < y) is ~x & y
    assert rewritten(x.eq(y)) is ~(x ^ y)
    assert rewritten(x.maximum(y)) is x | y


# ---- random bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "bits"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(
    counter: tuple[int, int], key: tuple[int, int], bits: tuple[int, int]
) -> None:
    """The known answers published with Random123 for threefry2x32, 20 rounds."""
    c, k = leaf(U64), leaf(U64, 1)
    graph = rewritten(c.threefry(k))
    values = {
        c: np.array([counter[0] | counter[1] << 32], np.uint64),
        k: np.array([key[0] | key[1] << 32], np.uint64),
    }
    assert int(evaluate(graph, values)[0]) == bits[0] | bits[1] << 32


# ---- multiply-add --------------------------------------------------------------------------------


def accumulation(value: UOp, space: AddrSpace = AddrSpace.REG) -> UOp:
    """acc = acc + value"""
    pointer = value.dtype.ptr(space)
    op, arg = (Ops.DEFINE_REG, (1, 0)) if space is AddrSpace.REG else (Ops.DEFINE_LOCAL, (0, 1))
    memory = (
        UOp(op, pointer, (), arg) if space is not AddrSpace.GLOBAL else UOp.param(9, pointer, 1)
    )
    return at(memory).store(at(memory).load() + value)


def test_products_are_fused_into_accumulators() -> None:
    a, b, c, d = (at(UOp.param(k, F32.ptr(), 1)).load() for k in range(4))
    capability = target(Ops.MULACC)
    store = decompose(kernel(accumulation(a * b + c * d)), capability).src[0]
    old = at(store.src[0].src[0]).load()
    inner = UOp(Ops.MULACC, F32, (a, b, old))
    assert store.src[1] is UOp(Ops.MULACC, F32, (c, d, inner))


def test_products_of_ints_are_fused_into_accumulators() -> None:
    a, b = (at(UOp.param(k, I32.ptr(), 1)).load() for k in range(2))
    store = decompose(kernel(accumulation(a * b)), target(Ops.MULACC)).src[0]
    old = at(store.src[0].src[0]).load()
    assert store.src[1] is UOp(Ops.MULACC, I32, (a, b, old))


def test_nothing_else_is_fused() -> None:
    a, b = (at(UOp.param(k, F32.ptr(), 1)).load() for k in range(2))
    capability = target(Ops.MULACC)
    elementwise = kernel(at(UOp.param(2, F32.ptr(), 1)).store(a * b + a))
    in_place = kernel(accumulation(a * b, AddrSpace.GLOBAL))
    ints = kernel(at(UOp.param(2, I32.ptr(), 1)).store(a.cast(I32) * b.cast(I32) + a.cast(I32)))
    for sink in (elementwise, in_place, ints):
        assert not decompose(sink, capability).has(Ops.MULACC)
    without = replace(capability, ops=capability.ops - {Ops.MULACC})
    assert not decompose(kernel(accumulation(a * b)), without).has(Ops.MULACC)


# ---- small floats --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2], ids=str)
def test_small_floats_are_rounded_once(dtype: DType) -> None:
    x = at(UOp.param(1, dtype.ptr(), 1)).load()
    out = at(UOp.param(0, dtype.ptr(), 1))
    done = decompose(kernel(out.store(x * x + x)), renderer().capability)
    wide = x.cast(F32)
    (expected,) = graph_rewrite(
        kernel(out.store((wide * wide + wide).cast(dtype))), decompositions, ctx=target()
    ).src
    assert done.src[0] is expected


def test_a_cast_that_was_asked_for_rounds() -> None:
    half = dtypes.float16
    x = at(UOp.param(1, F32.ptr(), 1)).load()
    out = at(UOp.param(0, F32.ptr(), 1))
    sink = kernel(out.store(x.cast(half).cast(F32) + 1.0))
    assert decompose(sink, renderer().capability) is sink


def test_accumulators_of_small_floats_are_wide() -> None:
    half = dtypes.float16
    x = at(UOp.param(1, half.ptr(), 1)).load()
    reg = UOp.define_reg(half, 1, 0)
    step = at(reg).store(at(reg).load().maximum(x))
    done = decompose(kernel(step), renderer().capability)
    (found,) = [node for node in done.toposort() if node.op is Ops.DEFINE_REG]
    assert found.dtype.base is F32
    assert not any(n.op is Ops.CAST and n.dtype is half for n in done.toposort())


# ---- branches ------------------------------------------------------------------------------------


def test_a_long_arm_stands_behind_a_branch() -> None:
    x = at(UOp.param(1, F32.ptr(), 1)).load()
    rare = x
    for _ in range(40):
        rare = rare * x + 1.0
    usual = x + 2.0
    condition = x > 100.0
    out = at(UOp.param(0, F32.ptr(), 1))
    sink = kernel(out.store(condition.where(rare, usual)))
    done = branch_around(sink, renderer().capability)
    (branch,) = [node for node in done.toposort() if node.op is Ops.IF]
    assert branch.src[0] is condition
    assert branch.src[1].src[1] is rare
    assert done.src[0].src[1].op is Ops.LOAD
    short = kernel(out.store(condition.where(x * 3.0, usual)))
    assert branch_around(short, renderer().capability) is short


def test_an_arm_that_is_used_elsewhere_is_computed_always() -> None:
    x = at(UOp.param(1, F32.ptr(), 1)).load()
    rare = x
    for _ in range(40):
        rare = rare * x + 1.0
    first, second = (at(UOp.param(slot, F32.ptr(), 1)) for slot in (0, 2))
    sink = kernel(first.store((x > 100.0).where(rare, x)), second.store(rare))
    assert branch_around(sink, renderer().capability) is sink


def test_an_arm_that_an_outer_loop_computes_stays_there() -> None:
    i = UOp(Ops.RANGE, I32, (UOp.const(I32, 8),), UOp.range(8, 0, renumbered=True).arg)
    j = UOp(Ops.RANGE, I32, (UOp.const(I32, 8),), UOp.range(8, 1, renumbered=True).arg)
    x = at(UOp.param(1, F32.ptr(), 8), i).load()
    rare = x
    for _ in range(40):
        rare = rare * x + 1.0
    y = at(UOp.param(2, F32.ptr(), 8), j).load()
    out = at(UOp.param(0, F32.ptr(), 64), i * 8 + j)
    sink = kernel(out.store((y > 1.0).where(rare, y)).close(j).close(i))
    assert branch_around(sink, renderer().capability) is sink
