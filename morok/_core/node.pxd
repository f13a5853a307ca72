# cython: language_level=3
"""Interned nodes: what other core modules may call."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.types cimport CNode


cdef class Node:
    cdef CNode n  # the structure; `n.self` points back here
    cdef object __weakref__  # lazily made list of weak references


cdef class ArgRecord:
    cdef readonly object value  # the argument as given by its first user
    cdef bytes spelling  # canonical spelling: the key of the argument table
    cdef uint64_t h0  # content hash, low half
    cdef uint64_t h1  # content hash, high half
    cdef uint64_t uses  # nodes that hold this record; at 0 it leaves the table


# All return a NEW reference to `n.self` (the caller owns it) or NULL with an exception set.
cdef CNode *intern(uint16_t op, uint16_t dtype, uint32_t nsrc, CNode **src, uint8_t akind, int64_t iarg, PyObject *arg) except NULL
cdef CNode *const_int(uint16_t dtype, int64_t value) except NULL
cdef CNode *with_sources(CNode *n, CNode **src) except NULL
cdef CNode *build_alu(uint16_t op, uint32_t nsrc, CNode **src) except NULL
# Turns an owned reference into a Python object (consumes the reference).
cdef object take(CNode *n)
# A borrowed CNode of a Python object; TypeError if it is no node.
cdef CNode *peek(object o) except NULL
cdef object swap_provenance(object new)
# Forgets normal-form bits in every living node.
cdef void clear_normal(uint64_t mask) noexcept
