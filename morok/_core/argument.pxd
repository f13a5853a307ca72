# cython: language_level=3
"""Interned arguments of nodes."""

from libc.stdint cimport uint64_t


cdef class ArgRecord:
    cdef readonly object value  # the argument as given by its first user
    cdef uint64_t h0  # content hash, low half
    cdef uint64_t h1  # content hash, high half
    cdef uint64_t place  # hash of the spelling in the table of arguments
    cdef char *spelling  # canonical spelling, owned
    cdef size_t length  # bytes of the spelling


# the record of this argument; TypeError if it cannot be part of a node
cdef ArgRecord record_of(object value)
# living records
cdef uint64_t count_records() noexcept
