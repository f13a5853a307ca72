"""The text of kernels: layout, names, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from morok.codegen import (
    add_ifs,
    control_flow,
    final_rewrite,
    get_program,
    launch_extent,
    linearize,
    scratch_bytes,
    variable_names,
)
from morok.dtype import AddrSpace, DType, dtypes, to_numpy
from morok.errors import InvalidGraphError
from morok.ir import AxisId, AxisType, KernelInfo, Ops, UOp
from morok.renderers import CRenderer
from tests.codegen.compiled import build, c_renderer, launch, source

F32, I32 = dtypes.float32, dtypes.int32
AVX2 = CRenderer(("sse2", "sse4_1", "avx", "avx2", "fma", "f16c"))


def loop(end: int, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Ops.RANGE, I32, (UOp.const(I32, end),), (AxisId(number, True), kind))


def at(buffer: UOp, index: UOp | int, lanes: int = 1, gate: UOp | None = None) -> UOp:
    position = UOp.const(I32, index) if isinstance(index, int) else index
    src = (buffer, position) if gate is None else (buffer, position, gate)
    base = buffer.dtype.base
    return UOp(Ops.INDEX, base.vec(lanes) if lanes > 1 else base, src, gate is not None)


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp.param(slot, dtype.ptr(), size)


def text(*statements: UOp, info: KernelInfo | None = None, target: CRenderer = AVX2) -> str:
    sink = UOp(Ops.SINK, dtypes.void, statements, info or KernelInfo("test"))
    ready = control_flow(final_rewrite(sink, target.capability))
    return target.render(add_ifs(linearize(ready), target.capability), "test")


def body(code: str) -> str:
    return code[code.index("void test(") :].partition("\n")[2]


def test_a_kernel_reads_well() -> None:
    i = loop(128, 0)
    x = at(param(1, 1024), i * 8, 8).load()
    code = text(at(param(0, 1024), i * 8, 8).store(x * x + 1.5, i))
    assert (
        code
        == """\
typedef __INT64_TYPE__ int64_t;
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
void test(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  float *p0 = bufs[0];
  const float *p1 = bufs[1];
  for (int64_t i0 = 0; i0 < 128; i0++) {  // Loop
    int64_t v0 = i0 * 8;
    f32x8 x0 = *(f32x8u *)(p1 + v0);
    __asm__("" : "+x"(x0));
    *(f32x8u *)(p0 + v0) = x0 * x0 + 1.5f;
  }
}
"""
    )


def test_parentheses_only_where_needed() -> None:
    x, y = at(param(1, 4), 0).load(), at(param(1, 4), 1).load()
    code = text(at(param(0, 1), 0).store((x + y) * (x - (y - x)) / (x * y)))
    assert "(x0 + x1) * (x0 - (x1 - x0)) / (x0 * x1)" in code


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        (F32, 0.1, "0x1.99999ap-4f"),
        (F32, 1e-45, "0x1p-149f"),
        (F32, -0.0, "-0.0f"),
        (F32, float("inf"), "__builtin_inff()"),
        (F32, float("nan"), '__builtin_nanf("")'),
        (F32, 12582912.0, "12582912.0f"),
        (dtypes.float64, 0.1, "0x1.999999999999ap-4"),
        (dtypes.float64, -float("inf"), "-__builtin_inf()"),
        (I32, -(1 << 31), "(int32_t)(-2147483648)"),
        (dtypes.int64, -(1 << 63), "(int64_t)(-9223372036854775807 - 1)"),
        (dtypes.uint64, (1 << 64) - 1, "(uint64_t)18446744073709551615u"),
        (dtypes.uint8, 200, "(uint8_t)200"),
        (dtypes.bool, True, "1"),
        (dtypes.float16, 1.0, "(uint16_t)15360"),
    ],
)
def test_constants_are_exact(dtype: DType, value: float, wanted: str) -> None:
    code = text(at(param(0, 1, dtype), 0).store(UOp.const(dtype, value)))
    assert f"p0[0] = {wanted};" in code


def test_a_thread_loop_runs_from_lo_to_hi() -> None:
    i = loop(100, 0, AxisType.THREAD)
    code = text(at(param(0, 100), i).store(1.0, i))
    assert "for (int64_t i0 = lo; i0 < hi; i0++) {  // Thread" in code


def test_what_a_program_says_to_the_runtime() -> None:
    i = UOp.range(100, 0, AxisType.THREAD, renumbered=True)
    n, m = UOp.define_var("n", 1, 50), UOp.define_var("m", 1, 9)
    out = UOp.param(0, F32.ptr(), 200)
    value = (n * 1000 + m).cast(F32)
    sink = UOp(Ops.SINK, dtypes.void, (out.at(i).store(value, i),), KernelInfo("2 words!"))
    program = get_program(sink, c_renderer())
    assert variable_names(program) == ("m", "n")
    extent = launch_extent(program)
    assert extent is not None
    assert extent.arg == 100
    assert scratch_bytes(program) == 0
    assert "void k_2_words(" in source(program)
    (kernel,) = build([program])
    got = launch(kernel, program, [np.zeros(200, np.float32)], {"n": 3, "m": 7})[0]
    assert (got[:100] == 3007).all()
    assert (got[100:] == 0).all()


def test_scratch_is_laid_out_in_lines_of_64_bytes() -> None:
    i = loop(5, 0)
    rows = [UOp.define_local(dtype, 5, k) for k, dtype in enumerate((F32, dtypes.uint8))]
    fills = [at(row, i).store(UOp.const(row.dtype.base, k + 1), i) for k, row in enumerate(rows)]
    reads = [at(row.after(fill), 2).load().cast(F32) for row, fill in zip(rows, fills, strict=True)]
    sink = UOp(Ops.SINK, dtypes.void, (at(param(0, 1), 0).store(reads[0] + reads[1]),))
    program = get_program(sink, c_renderer())
    assert scratch_bytes(program) == 128
    assert "(char *)scratch + 64" in source(program)
    (kernel,) = build([program])
    assert launch(kernel, program, [np.zeros(1, np.float32)], {})[0][0] == 3


def test_a_read_does_not_move_behind_a_write() -> None:
    """x = b[0]; b[0] = 2; c[0] = x + b[0]"""
    b, c = param(0, 1), param(1, 1)
    old = at(b, 0).load()
    write = at(b.after(at(c, 0).store(old)), 0).store(2.0)
    new = at(b.after(write), 0).load()
    sink = UOp(Ops.SINK, dtypes.void, (at(c.after(write), 0).store(old + new),))
    program = get_program(sink, c_renderer())
    (kernel,) = build([program])
    got = launch(kernel, program, [np.full(1, 5, np.float32), np.zeros(1, np.float32)], {})
    assert got[0][0] == 2
    assert got[1][0] == 7


def test_gates_that_differ_by_lane() -> None:
    lanes = UOp.vconst(I32, range(8))
    x, out = param(1, 8), param(0, 8)
    odd = (lanes & 1).ne(0)
    read = at(x, 0, 8, gate=odd).load(UOp.vconst(F32, [9.0] * 8))
    store = at(out, 0, 8, gate=lanes < 6).store(read + 1.0)
    sink = UOp(Ops.SINK, dtypes.void, (store,))
    program = get_program(sink, c_renderer())
    (kernel,) = build([program])
    data = np.arange(8, dtype=np.float32)
    got = launch(kernel, program, [np.full(8, -1, np.float32), data], {})[0]
    assert got.tolist() == [10, 2, 10, 4, 10, 6, -1, -1]


@pytest.mark.parametrize("dtype", [F32, dtypes.float64, I32, dtypes.uint64, dtypes.int8])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("features", [(), AVX2.features, {*AVX2.features, "avx512f"}])
def test_lanes_beyond_a_buffer_are_not_touched(
    dtype: DType, lanes: int, features: frozenset[str]
) -> None:
    """Also with vectors that the processor here has in two parts"""
    numbers = UOp.vconst(I32, range(lanes))
    inside = numbers < lanes - 1
    zero = UOp.vconst(dtype, [0] * lanes)
    read = at(param(1, lanes - 1, dtype), 0, lanes, gate=inside).load(zero)
    store = at(param(0, lanes - 1, dtype), 0, lanes, gate=inside).store(read + read)
    program = get_program(UOp(Ops.SINK, dtypes.void, (store,)), CRenderer(features))
    named = "masked_load" in source(program)
    assert named == ("avx" in features and dtype.bits > 8 and dtype.itemsize * lanes >= 16)
    if not set(features) <= c_renderer().features | {"avx512f"}:
        return
    (kernel,) = build([program])
    data = np.arange(lanes - 1).astype(to_numpy(dtype))
    got = launch(kernel, program, [np.zeros_like(data), data], {})[0]
    assert (got == 2 * data).all()


def test_masks_of_different_width_meet() -> None:
    i = loop(4, 0)
    small, wide = param(1, 32, dtypes.int8), param(2, 32)
    below = at(small, i * 8, 8).load() < UOp.vconst(dtypes.int8, [5] * 8)
    above = at(wide, i * 8, 8).load() > UOp.vconst(F32, [1.0] * 8)
    out = at(param(0, 32, dtypes.bool), i * 8, 8).store(below & above, i)
    program = get_program(UOp(Ops.SINK, dtypes.void, (out,)), c_renderer())
    (kernel,) = build([program])
    x = np.arange(32, dtype=np.int8) % 9
    y = np.linspace(0, 3, 32, dtype=np.float32)
    got = launch(kernel, program, [np.zeros(32, np.bool_), x, y], {})[0]
    assert (got == ((x < 5) & (y > 1))).all()


def test_streaming_stores() -> None:
    i = loop(8, 0)
    value = at(param(1, 64), i * 8, 8).load() * 2.0
    sink = UOp(
        Ops.SINK,
        dtypes.void,
        (at(param(0, 64), i * 8, 8).store(value, i),),
        KernelInfo("test", streaming=True),
    )
    program = get_program(sink, c_renderer())
    if c_renderer().features & {"avx", "sse2"}:
        assert "stream_f32x8(" in source(program) or "avx" not in c_renderer().features
        assert "sfence" in source(program)
    (kernel,) = build([program])
    data = np.arange(64, dtype=np.float32)
    assert (launch(kernel, program, [np.zeros(64, np.float32), data], {})[0] == data * 2).all()


def test_byte_offsets() -> None:
    p = param(1, 8)
    pointer = UOp(Ops.POINTER_INDEX, p.dtype, (p, UOp.const(I32, 12)))
    code = text(at(param(0, 1), 0).store(UOp(Ops.LOAD, F32, (p, pointer))))
    assert "((float *)((char *)p1 + 12))[0]" in code


def test_custom_code() -> None:
    x = at(param(1, 1), 0).load()
    inline = UOp(Ops.CUSTOM_I, F32, (x, x), "({0} > 0 ? {1} : 0)")
    code = text(at(param(0, 1), 0).store(inline + 1.0))
    assert "(x0 > 0 ? x0 : 0)" in code


def test_everything_that_cannot_be_rendered_is_named() -> None:
    x = at(param(1, 1), 0).load()
    value = UOp(Ops.SIN, F32, (x,)) + UOp(
        Ops.THREEFRY, dtypes.uint64, (x.cast(dtypes.uint64),) * 2
    ).cast(F32)
    with pytest.raises(InvalidGraphError, match="C has no SIN") as error:
        text(at(param(0, 1), 0).store(value))
    assert "THREEFRY" in str(error.value)
    assert error.value.stage == "render"


@pytest.mark.parametrize("op", [Ops.BARRIER, Ops.SPECIAL])
def test_ops_of_other_targets(op: Ops) -> None:
    x = at(param(1, 8), 0).load()
    foreign = (
        UOp(op, F32, (x,)) if op is Ops.BARRIER else UOp(op, I32, (UOp.const(I32, 4),), "gidx0")
    )
    value = foreign if foreign.dtype is F32 else foreign.cast(F32)
    with pytest.raises(InvalidGraphError, match=op.name):
        text(at(param(0, 1), 0).store(value))


def test_accumulators_of_vectors_are_variables() -> None:
    reg = UOp(Ops.DEFINE_REG, F32.vec(8).ptr(AddrSpace.REG), (), (1, 3))
    init = at(reg, 0).store(UOp.vconst(F32, [0.0] * 8))
    value = at(reg.after(init), 0).load() + 1.0
    code = text(at(param(0, 8), 0, 8).store(value))
    assert "f32x8 acc3;" in code
    assert "acc3 = 0.0f - (f32x8){};" in code


def test_features_are_asked_of_the_compiler() -> None:
    asked = CRenderer.for_target(lambda name: name in ("avx", "fma", "unknown"))
    assert asked.features == {"avx", "fma"}
    assert Ops.MULACC in asked.capability.ops
    assert asked.capability.max_width(F32) == 8
    assert CRenderer(("sse2",)).capability.max_width(F32) == 4
    assert CRenderer(("avx512f",)).capability.max_width(dtypes.float64) == 8
