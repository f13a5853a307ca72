# cython: language_level=3
"""The order of commutative operands."""

from morok._core.types cimport CNode


# Whether b stands before a; False for nodes that the order cannot tell apart.
cdef bint comes_after(CNode *a, CNode *b) noexcept
