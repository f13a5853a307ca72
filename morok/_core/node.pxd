# cython: language_level=3
"""Interned nodes: what other core modules may call."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.argument cimport ArgRecord
from morok._core.types cimport CNode


cdef class Node:
    cdef CNode n  # the structure; `object_of(&n)` is this object
    cdef object __weakref__  # lazily made list of weak references


# The next four return a NEW reference to the node, which the caller owns; NULL with an exception.

# the node of this structure; `arg` is an ArgRecord or NULL
cdef CNode *intern(
    uint16_t op,
    uint16_t dtype,
    uint32_t nsrc,
    CNode **src,
    uint8_t akind,
    int64_t iarg,
    PyObject *arg,
) except NULL
# an integer (or, for bool, truth) constant
cdef CNode *const_int(uint16_t dtype, int64_t value) except NULL
# `n` with other sources, as many as it has
cdef CNode *with_sources(CNode *n, CNode **src) except NULL
# a node without argument whose dtype follows from its sources
cdef CNode *build_alu(uint16_t op, uint32_t nsrc, CNode **src) except NULL

# an owned reference as a Python object (consumes the reference)
cdef object take(CNode *n)
# the structure of a Python node, borrowed; TypeError if it is none
cdef CNode *peek(object o) except NULL
# the same, or NULL without an exception
cdef CNode *glance(PyObject *o) noexcept
# makes `new` the provenance of this thread, None for none; gives the previous one
cdef object swap_provenance(object new)
# forgets normal-form bits in every living node
cdef void clear_normal(uint64_t mask) noexcept
# a number for the `mark` of nodes that no earlier walk has used
cdef uint32_t new_mark() noexcept
# adopts the class of all nodes; `construct` is a vectorcallfunc
cdef int adopt_class(type cls, void *construct) except -1

# The content hash of a node in three steps, so that a walk can have the hash of what it would build
cdef void hash_head(
    uint16_t op,
    uint16_t dtype,
    uint32_t nsrc,
    uint8_t akind,
    int64_t iarg,
    PyObject *arg,
    uint64_t *a,
    uint64_t *b,
) noexcept
cdef void hash_source(uint64_t *a, uint64_t *b, uint64_t h0, uint64_t h1) noexcept
cdef uint64_t hash_tail(uint64_t a, uint64_t b) noexcept
