"""Halves on processors that have no instructions for them.

On the fields of the formats: a shift moves the mantissa, one float addition or multiplication
handles subnormal numbers.
"""

from __future__ import annotations

from morok.dtype import dtypes
from morok.renderers.llvm_context import LLVMContext
from morok.renderers.llvm_types import constant, ir_type, lanes_type

__all__ = ["half_of", "of_half"]


def of_half(ctx: LLVMContext, x: str, count: int) -> str:
    """float16 bits to float32."""
    bits, single = ir_type(dtypes.uint32.vec(count)), ir_type(dtypes.float32.vec(count))

    def number(value: int) -> str:
        return constant(dtypes.uint32.vec(count), value)

    word = ctx.pure(f"zext {ir_type(dtypes.uint16.vec(count))} {x} to {bits}")
    size = ctx.pure(f"and {bits} {word}, {number(0x7FFF)}")
    sign = ctx.pure(f"shl {bits} {ctx.pure(f'lshr {bits} {word}, {number(15)}')}, {number(31)}")
    moved = ctx.pure(f"shl {bits} {size}, {number(13)}")
    small = ctx.pure(f"bitcast {bits} {moved} to {single}")
    scaled = ctx.pure(f"fmul {single} {small}, {constant(dtypes.float32.vec(count), 2.0**112)}")
    finite = ctx.pure(f"bitcast {single} {scaled} to {bits}")
    special = ctx.pure(f"or {bits} {moved}, {number(0x7F800000)}")
    is_special = ctx.pure(f"icmp uge {bits} {size}, {number(0x7C00)}")
    truth = lanes_type(dtypes.uint32.vec(count), "i1")
    chosen = ctx.pure(f"select {truth} {is_special}, {bits} {special}, {bits} {finite}")
    signed = ctx.pure(f"or {bits} {chosen}, {sign}")
    return ctx.pure(f"bitcast {bits} {signed} to {single}")


def half_of(ctx: LLVMContext, x: str, count: int) -> str:
    """float32 to float16 bits, rounded to nearest even."""
    dtype = dtypes.uint32.vec(count)
    bits, single, truth = (
        ir_type(dtype),
        ir_type(dtypes.float32.vec(count)),
        lanes_type(dtype, "i1"),
    )

    def number(value: int) -> str:
        return constant(dtype, value)

    def choose(limit: int, test: str, one: str, other: str) -> str:
        mask = ctx.pure(f"icmp {test} {bits} {size}, {number(limit)}")
        return ctx.pure(f"select {truth} {mask}, {bits} {one}, {bits} {other}")

    word = ctx.pure(f"bitcast {single} {x} to {bits}")
    size = ctx.pure(f"and {bits} {word}, {number(0x7FFFFFFF)}")
    sign = ctx.pure(f"shl {bits} {ctx.pure(f'lshr {bits} {word}, {number(31)}')}, {number(15)}")
    tiny = ctx.pure(f"bitcast {bits} {size} to {single}")
    aligned = ctx.pure(f"fadd {single} {tiny}, {constant(dtypes.float32.vec(count), 0.5)}")
    subnormal = ctx.pure(f"bitcast {single} {aligned} to {bits}")
    subnormal = ctx.pure(f"sub {bits} {subnormal}, {number(0x3F000000)}")
    odd = ctx.pure(f"and {bits} {ctx.pure(f'lshr {bits} {size}, {number(13)}')}, {number(1)}")
    biased = ctx.pure(f"add {bits} {size}, {number(0xFFF - 0x38000000)}")
    normal = ctx.pure(f"lshr {bits} {ctx.pure(f'add {bits} {biased}, {odd}')}, {number(13)}")
    value = choose(0x38800000, "uge", normal, subnormal)
    value = choose(0x477FF000, "uge", number(0x7C00), value)
    value = choose(0x7F800000, "ugt", number(0x7E00), value)
    signed = ctx.pure(f"or {bits} {value}, {sign}")
    return ctx.pure(f"trunc {bits} {signed} to {ir_type(dtypes.uint16.vec(count))}")
