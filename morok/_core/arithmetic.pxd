# cython: language_level=3
"""Integer arithmetic on constants."""

from libc.stdint cimport int64_t, uint16_t


# op(a, b) for operands of src_dtype in the semantics of dtype: 1 = done, 0 = not foldable;
# unary ops ignore b
cdef int fold_int(
    uint16_t op, uint16_t dtype, uint16_t src_dtype, int64_t a, int64_t b, int64_t *out
) noexcept
