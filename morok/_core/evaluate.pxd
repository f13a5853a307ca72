# cython: language_level=3
"""The parts of a program: tests of nodes, guards, right sides."""

from libc.stdint cimport int64_t, uint16_t, uint32_t

from morok._core.infer cimport DTYPES
from morok._core.program cimport Code, Test
from morok._core.types cimport CNode


cdef inline bint kind_ok(uint32_t mask, uint16_t dtype) noexcept:
    return (mask >> (DTYPES[dtype].kind & 31)) & 1


# everything a test asks but the op
cdef bint passes_rest(Test *t, CNode *x) noexcept
# Run integer code up to the first op on nodes, or the end; `n` values are on the stack already.
# The stack depth after it; -1 = a bound is unknown, or int64 is left.
cdef int evaluate(Code **code, CNode **reg, int64_t *stack, int n) noexcept
# Build a right side. 1: `out` is a new reference; 0: a constant has no value in its dtype.
cdef int build_right(Code *code, CNode **reg, CNode **out) except -1
