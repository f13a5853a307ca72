# cython: language_level=3
"""Constants: reading and making them, scalar or the same in every lane of a vector."""

from libc.stdint cimport int64_t, uint8_t, uint16_t

from morok._core.types cimport CNode

# CONST with a number, or a VCONST or VECTORIZE that repeats one number
cdef bint is_constant(CNode *n) noexcept
# the int64 value of an integer or bool constant: 1 = known
cdef bint const_value(CNode *n, int64_t *value) noexcept
# the payload of a constant (of its lanes): argument kind and bits; 0 = none that fits 64 bits
cdef bint const_payload(CNode *n, uint8_t *akind, int64_t *iarg) noexcept
# New references; NULL without an exception when the dtype has no such value (make_* only).
cdef CNode *make_int(uint16_t dtype, int64_t value) except? NULL
cdef CNode *make_number(uint16_t dtype, object value) except? NULL
# `lane` (CONST) in every lane of `dtype`; for a scalar dtype the lane itself
cdef CNode *splat(uint16_t dtype, CNode *lane) except NULL
cdef CNode *make_float(uint16_t scalar, double value) except NULL
