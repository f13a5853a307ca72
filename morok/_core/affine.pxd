# cython: language_level=3
"""Affine forms: sum(coefficient * atom) + offset of an integer expression."""

from libc.stdint cimport int64_t, uint16_t, uint32_t

from morok._core.types cimport CNode


cdef enum:
    MAX_TERMS = 64  # terms of one form; longer sums have none, so that long chains stay linear


cdef struct Term:
    CNode *atom  # no sum, no constant multiple; borrowed from the expression
    int64_t coeff  # never 0


cdef struct Form:
    uint32_t n  # terms in use
    int64_t offset  # the constant
    Term terms[MAX_TERMS]


# A result of 0 means: int64 overflow or too many terms; the form is then garbage and must be
# dropped.
cdef void form_clear(Form *f) noexcept
cdef int form_add(Form *f, CNode *n, int64_t scale) noexcept
cdef int form_add_term(Form *f, CNode *atom, int64_t coeff) noexcept
cdef int form_add_offset(Form *f, int64_t value) noexcept
cdef int form_merge(Form *f, Form *g, int64_t scale) noexcept
cdef int form_negate(Form *f) noexcept
cdef int64_t form_coeff(Form *f, CNode *atom) noexcept
cdef int64_t form_gcd(Form *f) noexcept
# Bounds from those of the atoms: 0 = unknown.
cdef bint form_bounds(Form *f, int64_t *lo, int64_t *hi) noexcept
# Whether the value lies in `dtype` for certain (always, for index).
cdef bint form_fits(Form *f, uint16_t dtype) noexcept
cdef void form_sort(Form *f) noexcept
cdef bint form_is(Form *f, CNode *n) noexcept
cdef CNode *form_build(Form *f, uint16_t dtype) except NULL

cdef CNode *make_const(uint16_t dtype, int64_t value) except NULL
cdef bint counts_as_int(uint16_t dtype) noexcept
