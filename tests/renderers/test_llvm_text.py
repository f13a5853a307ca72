"""The text of LLVM IR kernels: phi nodes, positions, choices without branches, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from morok.codegen import (
    add_ifs,
    control_flow,
    final_rewrite,
    get_program,
    linearize,
    scratch_bytes,
)
from morok.dtype import AddrSpace, DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisId, AxisType, KernelInfo, Ops, UOp
from morok.renderers import LLVMRenderer
from tests.codegen import kernels
from tests.codegen.compiled import build, c_renderer, launch, llvm_renderer

F32, I32 = dtypes.float32, dtypes.int32
AVX2 = LLVMRenderer(("sse2", "sse4_1", "avx", "avx2", "fma", "f16c"))


def loop(end: int | UOp, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
    end = UOp.const(I32, end) if isinstance(end, int) else end
    return UOp(Ops.RANGE, I32, (end,), (AxisId(number, True), kind))


def at(buffer: UOp, index: UOp | int, lanes: int = 1, gate: UOp | None = None) -> UOp:
    position = UOp.const(I32, index) if isinstance(index, int) else index
    src = (buffer, position) if gate is None else (buffer, position, gate)
    base = buffer.dtype.base
    return UOp(Ops.INDEX, base.vec(lanes) if lanes > 1 else base, src, gate is not None)


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp.param(slot, dtype.ptr(), size)


def text(*statements: UOp, info: KernelInfo | None = None) -> str:
    sink = UOp(Ops.SINK, dtypes.void, statements, info or KernelInfo("test"))
    ready = control_flow(final_rewrite(sink, AVX2.capability))
    return AVX2.render(add_ifs(linearize(ready), AVX2.capability), "test")


def run(sink: UOp, *arrays: np.ndarray, **variables: int) -> list[np.ndarray]:
    """By both renderers, which must agree bit for bit."""
    results = []
    for target in (c_renderer(), llvm_renderer()):
        program = get_program(sink, target)
        (kernel,) = build([program])
        results.append(launch(kernel, program, list(arrays), variables))
    for c, llvm in zip(*results, strict=True):
        assert c.tobytes() == llvm.tobytes()
    return results[1]


def total(reg: UOp, value: UOp, rng: UOp, outer: tuple[UOp, ...] = ()) -> UOp:
    """The sum of `value` over `rng`, in a register."""
    first = at(reg.after(*outer) if outer else reg, 0).store(0.0)
    now = at(reg.after(first, rng), 0).load()
    step = at(reg.after(first), 0).store(now + value)
    return at(reg.after(UOp(Ops.END, dtypes.void, (step, rng))), 0).load()


def test_a_kernel_reads_well() -> None:
    i = loop(128, 0)
    x = at(param(1, 1024), i * 8, 8).load()
    code = text(at(param(0, 1024), i * 8, 8).store(x * x + 1.5, i))
    assert (
        code
        == """\
define void @test(ptr %bufs, ptr %vars, ptr %scratch, i64 %lo, i64 %hi) #0 {
entry:
  %p0 = load ptr, ptr %bufs, align 8
  %v0 = getelementptr inbounds ptr, ptr %bufs, i64 1
  %p1 = load ptr, ptr %v0, align 8
  br label %loop0
loop0:  ; Loop
  %i0_0 = phi i64 [ 0, %entry ], [ %next0, %loop0 ]
  %v1 = mul nsw i64 %i0_0, 8
  %v2 = getelementptr inbounds float, ptr %p1, i64 %v1
  %x0 = load <8 x float>, ptr %v2, align 4
  %v3 = fmul <8 x float> %x0, %x0
  %c0 = load <8 x float>, ptr @test.c0, align 64, !invariant.load !0
  %v4 = fadd <8 x float> %v3, %c0
  %v5 = getelementptr inbounds float, ptr %p0, i64 %v1
  store <8 x float> %v4, ptr %v5, align 4
  %next0 = add nsw i64 %i0_0, 1
  %more0 = icmp ne i64 %next0, 128
  br i1 %more0, label %loop0, label %done0
done0:
  ret void
}
@test.c0 = private unnamed_addr constant <8 x float> splat (float 1.5), align 64
attributes #0 = { nounwind "frame-pointer"="all" }
!0 = !{}
!1 = !{i32 1}
"""
    )


def test_an_accumulator_is_a_phi_node() -> None:
    i, j = loop(5, 0), loop(7, 1, AxisType.REDUCE)
    reg = UOp(Ops.DEFINE_REG, F32.ptr(AddrSpace.REG), (), (1, 3))
    value = total(reg, at(param(1, 35), i * 7 + j).load(), j, (i,))
    code = text(at(param(0, 5), i).store(value, i))
    assert "alloca" not in code
    assert "%acc3_0 = phi float [ 0.0, %loop0 ], [ %v" in code
    assert code.count("phi float") == 1  # the outer loop does not carry it


def test_a_loop_that_may_be_empty_is_guarded() -> None:
    n = UOp.define_var("n", 0, 9)
    i, j = loop(3, 0), loop(n.cast(I32), 1, AxisType.REDUCE)
    reg = UOp(Ops.DEFINE_REG, F32.ptr(AddrSpace.REG), (), (1, 0))
    value = total(reg, at(param(1, 27), i * 9 + j).load(), j, (i,))
    sink = UOp(Ops.SINK, dtypes.void, (at(param(0, 3), i).store(value, i),), KernelInfo("test"))
    data = np.arange(27, dtype=np.float32)
    for n_value in (0, 1, 9):
        got = run(sink, np.full(3, -1, np.float32), data, n=n_value)[0]
        assert (got == data.reshape(3, 9)[:, :n_value].sum(1)).all()


def test_registers_at_computed_positions_stay_in_memory() -> None:
    i = loop(4, 0)
    reg = UOp(Ops.DEFINE_REG, F32.ptr(AddrSpace.REG), (), (4, 0))
    fill = at(reg, i).store(at(param(1, 4), i).load() * 2.0, i)
    j = loop(4, 1)
    back = at(reg.after(fill), 3 - j).load()
    sink = UOp(Ops.SINK, dtypes.void, (at(param(0, 4), j).store(back, j),), KernelInfo("test"))
    assert "alloca [4 x float]" in get_program(sink, AVX2).src[3].arg
    got = run(sink, np.zeros(4, np.float32), np.arange(4, dtype=np.float32))[0]
    assert got.tolist() == [6, 4, 2, 0]


def test_constants_of_positions_become_displacements() -> None:
    i = loop(8, 0)
    x = param(1, 4096)
    value = at(x, (i * 4 + 1) * 16 + 3).load() + at(x, i * 64 + 500).load()
    code = text(at(param(0, 8), i).store(value, i))
    assert code.count("mul nsw i64 %i0_0, 64") == 1
    assert ", i64 19\n" in code
    assert ", i64 500\n" in code


def test_a_condition_of_a_read_chooses_the_address() -> None:
    i = loop(10, 0)
    inside = (i > 1) & (i < 8)
    x = param(1, 8)
    reads = [at(x, i + k, gate=inside).load(UOp.const(F32, 7.0)) for k in (-2, -1)]
    sink = UOp(Ops.SINK, dtypes.void, (at(param(0, 10), i).store(reads[0] - reads[1], i),))
    code = get_program(sink, AVX2).src[3].arg
    assert code.count("select i1") == 1
    assert "br i1 %v" not in code
    data = np.float32([1, 4, 9, 16, 25, 36, 49, 64])
    got = run(sink, np.zeros(10, np.float32), data)[0]
    assert got.tolist() == [0, 0, *(data[:6] - data[1:7]), 0, 0]


@pytest.mark.parametrize("alt", [None, (True, False) * 4, (True,) * 8])
@pytest.mark.parametrize("lanes", [1, 8])
def test_bools_under_a_condition(lanes: int, alt: tuple[bool, ...] | None) -> None:
    i = loop(4, 0)
    x, out = param(1, 32, dtypes.bool), param(0, 4 * lanes, dtypes.bool)
    read = at(x, i * 8, lanes, gate=i < 2)
    if alt is None:
        value = read.load()
    else:
        value = read.load(
            UOp.vconst(dtypes.bool, alt) if lanes > 1 else UOp.const(dtypes.bool, alt[0])
        )
    sink = UOp(Ops.SINK, dtypes.void, (at(out, i * lanes, lanes).store(value, i),))
    data = np.arange(32) % 3 == 0
    got = run(sink, np.zeros(4 * lanes, np.bool_), data)[0].reshape(4, lanes)
    assert (got[:2] == data.reshape(4, 8)[:2, :lanes]).all()
    assert (got[2:] == (alt or (False,) * 8)[:lanes]).all()


def test_gates_that_differ_by_lane() -> None:
    lanes = UOp.vconst(I32, range(8))
    x, out = param(1, 8), param(0, 8)
    odd = (lanes & 1).ne(0)
    read = at(x, 0, 8, gate=odd).load(UOp.vconst(F32, [9.0] * 8))
    sink = UOp(Ops.SINK, dtypes.void, (at(out, 0, 8, gate=lanes < 6).store(read + 1.0),))
    code = get_program(sink, AVX2).src[3].arg
    assert "@llvm.masked.load.v8f32.p0(" in code
    assert "@llvm.masked.store.v8f32.p0(" in code
    got = run(sink, np.full(8, -1, np.float32), np.arange(8, dtype=np.float32))[0]
    assert got.tolist() == [10, 2, 10, 4, 10, 6, -1, -1]


def test_gates_of_several_conditions_stay_whole_words() -> None:
    """Loop-wide and lane-wide conditions: ends of rows in an image with a border."""
    i = loop(6, 0)
    lanes = UOp.vconst(I32, range(8))
    inside = UOp(Ops.VECTORIZE, dtypes.bool.vec(8), ((i >= 1) & (i < 5),) * 8)
    gate = inside & (lanes >= 2) & (lanes < 7)
    x = at(param(1, 64), i * 8, 8, gate).load(UOp.vconst(F32, [0.0] * 8))
    statement = at(param(0, 48), i * 8, 8).store(x + 1.0, i)
    code = text(statement)
    assert "= and <8 x i1>" not in code.partition("loop0")[0]
    assert "icmp slt <8 x i32>" in code
    values = np.arange(1, 65, dtype=np.float32)
    (got,) = run(
        UOp(Ops.SINK, dtypes.void, (statement,), KernelInfo("test")),
        np.zeros(48, np.float32),
        values,
    )[:1]
    column, row = np.arange(48) % 8, np.arange(48) // 8
    kept = (column >= 2) & (column < 7) & (row >= 1) & (row < 5)
    assert np.array_equal(got, np.where(kept, values[:48], 0) + 1)


def test_a_float_is_chosen_without_a_branch() -> None:
    """Under a comparison of floats by a mask, else as an integer: x86 has no other way."""
    i = loop(5, 0)
    x, k = at(param(1, 5), i).load(), at(param(2, 5, I32), i).load()
    chosen = k.ne(3).where(x, UOp.const(F32, -0.0))
    code = text(at(param(0, 5), i).store(chosen, i))
    assert "i32 %v" in next(line for line in code.splitlines() if "= select i1" in line)
    compared = text(at(param(0, 5), i).store((x < 2.0).where(x, UOp.const(F32, 7.0)), i))
    assert "float %x" in next(line for line in compared.splitlines() if "= select i1" in line)


def test_accesses_that_are_compared_with_one_another_are_few() -> None:
    """Each write of a block is compared with all its other accesses, but not a thousand of them."""
    statements = [at(param(0, 1024), 7 * k).store(float(k)) for k in range(100)]
    code = text(*statements)
    parts = [part.count("store float") for part in code.split('asm sideeffect "", "~{memory}"')]
    assert parts == [64, 36]


def test_lanes_of_two_vectors_are_picked_without_joining_them() -> None:
    """A vector that no register holds would be taken apart again, lane by lane."""
    a, b = (at(param(1, 16), 8 * k, 8).load() for k in range(2))
    both = UOp(Ops.CAT, F32.vec(16), (a, b))
    lanes = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
    picked = [UOp(Ops.GEP, F32.vec(8), (both,), of) for of in lanes]
    stores = [at(param(0, 16), 8 * k, 8).store(value) for k, value in enumerate(picked)]
    assert "<16 x float>" not in text(*stores)
    data = np.arange(16, dtype=np.float32)
    sink = UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo("test"))
    got = run(sink, np.zeros(16, np.float32), data)[0]
    assert (got == data[[*lanes[0], *lanes[1]]]).all()


@pytest.mark.parametrize(("count", "weight"), [(2, 1), (9, 8), (31, 30), (32, None), (400, None)])
def test_loops_that_turn_rarely_say_so(count: int, weight: int | None) -> None:
    i = loop(count, 0)
    code = text(at(param(0, count), i).store(1.0, i))
    assert ("!prof" in code) == (weight is not None)
    assert weight is None or f'!{{!"branch_weights", i32 {weight}, i32 1}}' in code


def test_streaming_stores() -> None:
    i = loop(8, 0)
    value = at(param(1, 64), i * 8, 8).load() * 2.0
    sink = UOp(
        Ops.SINK,
        dtypes.void,
        (at(param(0, 64), i * 8, 8).store(value, i),),
        KernelInfo("test", streaming=True),
    )
    assert "!nontemporal" in get_program(sink, AVX2).src[3].arg
    data = np.arange(64, dtype=np.float32)
    assert (run(sink, np.zeros(64, np.float32), data)[0] == data * 2).all()


def test_scratch_and_byte_offsets() -> None:
    i = loop(5, 0)
    row = UOp.define_local(F32, 5, 0)
    fill = at(row, i).store(i.cast(F32), i)
    local = row.after(fill)
    pointer = UOp(Ops.POINTER_INDEX, local.dtype, (local, UOp.const(I32, 12)))
    read = UOp(Ops.LOAD, F32, (local, pointer))
    sink = UOp(Ops.SINK, dtypes.void, (at(param(0, 1), 0).store(read),))
    assert scratch_bytes(get_program(sink, AVX2)) == 64
    assert run(sink, np.zeros(1, np.float32))[0][0] == 3


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        (F32, 0.1, "float 0x3FB99999A0000000"),
        (F32, -0.0, "float -0.0"),
        (F32, float("inf"), "float 0x7FF0000000000000"),
        (F32, float("nan"), "float 0x7FF8000000000000"),
        (dtypes.float64, 0.1, "double 0x3FB999999999999A"),
        (dtypes.int64, -(1 << 63), "i64 -9223372036854775808"),
        (dtypes.uint64, (1 << 64) - 1, "i64 18446744073709551615"),
        (dtypes.bool, True, "i8 1"),
        (dtypes.float16, 1.0, "i16 15360"),
    ],
)
def test_constants_are_exact(dtype: DType, value: float, wanted: str) -> None:
    assert f"store {wanted}, ptr %p0" in text(at(param(0, 1, dtype), 0).store(value))


def test_everything_that_cannot_be_rendered_is_named() -> None:
    x = at(param(1, 1), 0).load()
    value = UOp(Ops.SIN, F32, (x,)) + UOp(
        Ops.THREEFRY, dtypes.uint64, (x.cast(dtypes.uint64),) * 2
    ).cast(F32)
    with pytest.raises(InvalidGraphError, match="LLVM IR has no SIN") as error:
        text(at(param(0, 1), 0).store(value))
    assert "THREEFRY" in str(error.value)
    assert error.value.stage == "render"


def test_no_operation_carries_fast_math_flags() -> None:
    x = at(param(1, 8), 0, 8).load()
    code = text(at(param(0, 8), 0, 8).store(x * x + x / 3.0))
    assert "fast" not in code
    assert "contract" not in code
    assert "llvm.fma" not in code


@pytest.mark.parametrize(
    ("kernel", "opts"),
    [
        (kernels.matmul(8, 16, 16), "UPCAST(1, 4); UPCAST(0, 4)"),
        (kernels.softmax(4, 16), ""),
        (kernels.elementwise(8, 64), "UPCAST(1, 4)"),
    ],
    ids=["product", "softmax", "elementwise"],
)
def test_other_machines_need_nothing_of_x86(kernel: kernels.Kernel, opts: str) -> None:
    """LLVM makes an object for AArch64 of what is rendered for its vectors."""
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    sink = kernels.opted(kernel, opts)
    code = get_program(sink, LLVMRenderer(("ARM_NEON",))).src[3].arg
    assert "x86" not in code
    module = binding.parse_assembly(code)
    module.verify()
    target = binding.Target.from_triple("aarch64-linux-gnu")
    machine = target.create_target_machine(cpu="cortex-a72", opt=1)
    assert machine.emit_object(module)[18:20] == b"\xb7\x00"
