# cython: language_level=3
"""Open ranges of nodes."""

from morok._core.types cimport CNode, RangeSet


cdef int infer_ranges(CNode *n) except -1
cdef void release_ranges(RangeSet *r) noexcept
