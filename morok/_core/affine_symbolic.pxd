# cython: language_level=3
"""Affine forms and values that are no constants."""

from libc.stdint cimport int64_t

from morok._core.affine cimport Form


# A bound of f that knows that a RANGE stays below an end that is no constant: 0 = unknown.
cdef bint form_limit(Form *f, bint upper, int64_t *limit) noexcept
