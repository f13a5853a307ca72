# cython: language_level=3
"""Interval transfer functions."""

from libc.stdint cimport int64_t, uint16_t

from morok._core.types cimport CNode


cdef enum BoundsKind:  # in the order of `_BOUNDS_KINDS` of infer.pyx
    B_NONE  # unknown
    B_DTYPE  # the limits of the dtype
    B_CONST  # the argument
    B_RANGE  # 0 up to the source
    B_DEFINE_VAR  # what the argument says
    B_SPECIAL  # as B_RANGE
    B_BIND  # the variable
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
    B_UNION  # all sources together
    B_ABS
    B_SIGN
    B_SQUARE
    B_SRC0  # the first source


# fills in vmin, vmax and their flag of a new node whose sources are complete
cdef int infer_bounds(CNode *n) except -1
# limits of an integer or bool dtype; False where int64 cannot say them or there are none
cdef bint type_limits(uint16_t dtype, int64_t *lo, int64_t *hi) noexcept
