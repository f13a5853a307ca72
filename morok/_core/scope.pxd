# cython: language_level=3
"""Open ranges of nodes."""

from morok._core.types cimport CNode, RangeSet


# fills in the open ranges of a new node whose sources are complete
cdef int infer_ranges(CNode *n) except -1
# gives back one node's share of a set, which may be NULL
cdef void release_ranges(RangeSet *r) noexcept
