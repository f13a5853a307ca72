"""C functions that touch only some lanes of a vector in memory.

x86 has them from AVX on, for elements of 4 and 8 bytes: lanes whose mask is clear are not accessed,
wherever they lie. A load gives zero there. Elements of 8 bytes are pairs of 4: both halves of their
masks are equal. 64 bytes are two times 32.
"""

from __future__ import annotations

from functools import cache

from morok.dtype import DType, dtypes
from morok.renderers.c_helpers import Helper, helper_name
from morok.renderers.c_types import mask_of, vector_name

__all__ = ["masked_load", "masked_store"]


def _pieces(dtype: DType, features: frozenset[str]) -> tuple[int, int]:
    """(how many instructions, lanes of 4 bytes in each); 0 where the target has none."""
    words = dtype.itemsize // 4
    if "avx" not in features or dtype.bits not in (32, 64) or words not in (4, 8, 16):
        return 0, 0
    return (1, words) if words <= 8 else (2, 8)


def _names(words: int) -> tuple[str, str, str, DType, DType]:
    """Floats and masks of an instruction, the suffix of its name, and their dtypes."""
    floats, bits = dtypes.float32.vec(words), dtypes.int32.vec(words)
    return vector_name(floats), vector_name(bits), "256" if words == 8 else "", floats, bits


@cache
def masked_load(dtype: DType, features: frozenset[str]) -> Helper | None:
    """The lanes at `p` that the mask has, zero in the others; None where a target has no such
    load."""
    count, words = _pieces(dtype, features)
    if not count:
        return None
    floats, bits, width, *uses = _names(words)
    value, mask = vector_name(dtype), vector_name(mask_of(dtype))
    load = f"__builtin_ia32_maskloadps{width}"
    if count == 1:
        body = f"  return ({value}){load}((const {floats} *)p, ({bits})m);"
    else:
        union = f"union {{ {value} all; {mask} mask; {bits} bits[2]; {floats} half[2]; }}"
        body = f"""  {union} u = {{.mask = m}};
  u.half[0] = {load}((const {floats} *)p, u.bits[0]);
  u.half[1] = {load}((const {floats} *)p + 1, u.bits[1]);
  return u.all;"""
    name = helper_name("masked_load", dtype)
    text = f"static inline {value} {name}(const void *p, {mask} m) {{\n{body}\n}}"
    return Helper(name, text, (dtype, mask_of(dtype), *uses))


@cache
def masked_store(dtype: DType, features: frozenset[str]) -> Helper | None:
    """Stores the lanes that the mask has at `p`; None where a target has no such store."""
    count, words = _pieces(dtype, features)
    if not count:
        return None
    floats, bits, width, *uses = _names(words)
    value, mask = vector_name(dtype), vector_name(mask_of(dtype))
    store = f"__builtin_ia32_maskstoreps{width}"
    if count == 1:
        body = f"  {store}(({floats} *)p, ({bits})m, ({floats})v);"
    else:
        union = f"union {{ {value} all; {mask} mask; {bits} bits[2]; {floats} half[2]; }}"
        body = f"""  {union} u = {{.all = v}}, w = {{.mask = m}};
  {store}(({floats} *)p, w.bits[0], u.half[0]);
  {store}(({floats} *)p + 1, w.bits[1], u.half[1]);"""
    name = helper_name("masked_store", dtype)
    text = f"static inline void {name}(void *p, {mask} m, {value} v) {{\n{body}\n}}"
    return Helper(name, text, (dtype, mask_of(dtype), *uses))
