"""C functions for instructions that multiply and add several short numbers at once."""

from __future__ import annotations

from functools import cache

from morok.dtype import dtypes
from morok.renderers.c_helpers import Helper

__all__ = ["dot_bf16"]


@cache
def dot_bf16() -> Helper:
    """c[i] + a[2i] * b[0] + a[2i + 1] * b[1] by x86's vdpbf16ps, which takes subnormals for 0.

    Compilers that know the type bfloat16 want operands of it, others of shorts.
    """
    text = """static inline f32x16 dot_bf16x32(f32x16 c, u16x32 a, u16x2 b) {
  const i32x16 pairs = (int32_t)b - (i32x16){};
#if defined(__clang__)
  typedef __bf16 shorts __attribute__((vector_size(64)));
  return __builtin_ia32_dpbf16ps_512(c, (shorts)a, (shorts)pairs);
#elif __GNUC__ >= 13
  typedef __bf16 shorts __attribute__((vector_size(64)));
  return __builtin_ia32_dpbf16ps_v16sf(c, (shorts)a, (shorts)pairs);
#else
  typedef short shorts __attribute__((vector_size(64)));
  return __builtin_ia32_dpbf16ps_v16sf(c, (shorts)a, (shorts)pairs);
#endif
}"""
    types = (dtypes.float32.vec(16), dtypes.uint16.vec(32), dtypes.uint16.vec(2))
    return Helper("dot_bf16x32", text, (*types, dtypes.int32.vec(16), dtypes.int32))
