# cython: language_level=3
"""Equality of sums by the definition of their divisions."""

from morok._core.affine cimport Form
from morok._core.types cimport CNode


cdef int check_sums(Form *f, Form *g) except -1

cdef int check_nodes(CNode *x, CNode *y) except -1
