# cython: language_level=3
"""Interval transfer functions and integer constant folding."""

from libc.stdint cimport int64_t, uint16_t

from morok._core.types cimport CNode


cdef enum BoundsKind:
    B_NONE
    B_DTYPE
    B_CONST
    B_RANGE
    B_DEFINE_VAR
    B_SPECIAL
    B_BIND
    B_ADD
    B_SUB
    B_MUL
    B_NEG
    B_FLOORDIV
    B_FLOORMOD
    B_IDIV
    B_MOD
    B_MAX
    B_MIN
    B_AND
    B_OR
    B_XOR
    B_NOT
    B_SHL
    B_SHR
    B_LT
    B_LE
    B_GT
    B_GE
    B_EQ
    B_NE
    B_WHERE
    B_CAST
    B_UNION
    B_ABS
    B_SIGN
    B_SQUARE
    B_SRC0


# fills in vmin, vmax and their flag of a new node whose sources are complete
cdef int infer_bounds(CNode *n) except -1
# op(a, b) for operands of src_dtype in the semantics of dtype: 1 = done, 0 = not foldable; unary ops ignore b
cdef int fold_int(uint16_t op, uint16_t dtype, uint16_t src_dtype, int64_t a, int64_t b, int64_t *out) noexcept
# limits of an integer or bool dtype; False where int64 cannot say them or there are none
cdef bint type_limits(uint16_t dtype, int64_t *lo, int64_t *hi) noexcept
