# cython: language_level=3
"""Memory on the host: what the launcher may touch directly."""

from libc.stddef cimport size_t


cdef struct Block:
    char *data  # first byte, 64-byte aligned (2 MiB if mapped)
    size_t capacity  # usable bytes: the size of its class
    int size_class  # index of the free list it belongs to
    bint mapped  # from mmap, else from the C allocator
    Block *next_same  # next free block of its class
    Block *prev_same  # previous free block of its class, NULL for the head
    Block *next_old  # free block released just before this one
    Block *prev_old  # free block released just after this one


cdef class Buffer:
    cdef char *data  # first byte
    cdef readonly Py_ssize_t nbytes  # bytes asked for
    cdef readonly bint readonly  # kernels must not write here
    cdef bint holds_view  # `lent` is filled and must be released
    cdef Block *block  # owned pool memory; NULL if the memory is somebody else's
    cdef object owner  # keeps somebody else's memory alive
    cdef Py_buffer lent  # what the owner lent through the buffer protocol
    cdef object __weakref__  # lazily made list of weak references


# Takes a block of at least `nbytes` from the pool or the system; the caller owns it. `what` is for
# the message of the OutOfMemoryError.
cdef Block *take_block(size_t nbytes, str what) except NULL
# Gives a block back to the pool. Needs the GIL, as all of the pool does.
cdef void give_block(Block *block) noexcept
