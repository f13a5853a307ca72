"""Buffers: aligned host memory from a bounded pool, or somebody else's memory kept alive.

A fresh page costs far more than the arithmetic done on it, so freed blocks wait in a pool, sorted
into size classes (eight a doubling, so at most an eighth is wasted). The pool is bounded: blocks
released longest ago go back to the system first. All of it runs under the GIL, which is its lock.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.stdlib cimport posix_memalign

import math

import numpy

from morok.errors import OutOfMemoryError, ShapeError

cdef extern from "Python.h":
    int PyBUF_SIMPLE
    int PyBUF_WRITABLE
    int PyObject_CheckBuffer(object o)
    int PyObject_GetBuffer(object o, Py_buffer *view, int flags) except -1
    void PyBuffer_Release(Py_buffer *view)
    int PyBuffer_FillInfo(
        Py_buffer *view, object o, void *buf, Py_ssize_t n, int readonly, int flags
    ) except -1

cdef extern from "<sys/mman.h>" nogil:
    int MADV_HUGEPAGE
    int madvise(void *start, size_t length, int advice)

cdef extern from *:
    """
    static inline int morok_top_bit(size_t n) { return 63 - __builtin_clzll(n); }
    """
    int morok_top_bit(size_t n) nogil  # position of the highest set bit; n > 0

cdef enum:
    ALIGNMENT = 64  # a cache line, and the widest vector
    FINE_CLASSES = 16  # classes below 1 KiB: multiples of 64
    FINE_BITS = 10
    CLASSES = FINE_CLASSES + 8 * (48 - FINE_BITS)
    MAX_BITS = 47  # the address space of a process
    HUGE_PAGE = 2 << 20
    PAGE = 4096

cdef struct Pool:
    Block *heads[CLASSES]  # the free blocks of each class, newest first
    Block *newest  # all free blocks by time of release
    Block *oldest  # the other end
    size_t limit  # bound of `bytes`
    size_t bytes  # in free blocks
    size_t blocks  # free blocks
    size_t live_buffers  # Buffer objects that own pool memory
    size_t live_bytes  # capacities of the blocks in use: theirs and what plans hold
    size_t peak_bytes  # largest live_bytes so far
    size_t external_buffers  # Buffer objects on somebody else's memory
    size_t external_bytes  # their sizes
    size_t taken_fresh  # blocks got from the system
    size_t taken_reused  # blocks got from the free lists

cdef Pool pool
pool.limit = 1 << 30


# ---- the pool ------------------------------------------------------------------------------------


cdef size_t round_up(size_t n, size_t unit) noexcept:
    return (n + unit - 1) // unit * unit


cdef int class_of(size_t nbytes, size_t *capacity) noexcept:
    """The size class of a request and the capacity all its blocks have; -1 if there is none."""
    cdef int bits, shift
    cdef size_t steps
    if nbytes <= (1 << FINE_BITS):
        steps = (nbytes + ALIGNMENT - 1) // ALIGNMENT if nbytes else 1
        capacity[0] = steps * ALIGNMENT
        return <int>steps - 1
    bits = morok_top_bit(nbytes - 1)
    if bits >= MAX_BITS:
        return -1
    shift = bits - 3
    steps = ((nbytes - 1) >> shift) + 1  # 9 to 16 steps of 2**shift
    capacity[0] = steps << shift
    return FINE_CLASSES + 8 * (bits - FINE_BITS) + <int>steps - 9


cdef char *map_huge(size_t capacity) noexcept:
    """Memory at a multiple of 2 MiB, with huge-page advice; NULL if there is none."""
    cdef size_t length = round_up(capacity, PAGE)
    cdef char *start = <char *>mmap(
        NULL, length + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
    )
    cdef size_t before
    if start == <char *>MAP_FAILED:
        return NULL
    before = -<uintptr_t>start & (HUGE_PAGE - 1)
    if before:
        munmap(start, before)
    if before < HUGE_PAGE:
        munmap(start + before + length, HUGE_PAGE - before)
    # Best effort: without huge pages the memory is slower, not wrong.
    madvise(start + before, length, MADV_HUGEPAGE)
    return start + before


cdef Block *fresh_block(size_t capacity, int size_class) noexcept:
    cdef Block *block = <Block *>malloc(sizeof(Block))
    cdef void *data = NULL
    if block == NULL:
        return NULL
    block.mapped = capacity >= HUGE_PAGE
    if block.mapped:
        data = map_huge(capacity)
    elif posix_memalign(&data, ALIGNMENT, capacity) != 0:
        data = NULL
    if data == NULL:
        free(block)
        return NULL
    block.data = <char *>data
    block.capacity = capacity
    block.size_class = size_class
    pool.taken_fresh += 1
    return block


cdef void destroy_block(Block *block) noexcept:
    if block.mapped:
        munmap(block.data, round_up(block.capacity, PAGE))
    else:
        free(block.data)
    free(block)


cdef void unlink_block(Block *block) noexcept:
    """Takes a block out of its free list and out of the list by age."""
    if block.prev_same != NULL:
        block.prev_same.next_same = block.next_same
    else:
        pool.heads[block.size_class] = block.next_same
    if block.next_same != NULL:
        block.next_same.prev_same = block.prev_same
    if block.prev_old != NULL:
        block.prev_old.next_old = block.next_old
    else:
        pool.newest = block.next_old
    if block.next_old != NULL:
        block.next_old.prev_old = block.prev_old
    else:
        pool.oldest = block.prev_old
    pool.bytes -= block.capacity
    pool.blocks -= 1


cdef void shrink_pool(size_t limit) noexcept:
    cdef Block *block
    while pool.bytes > limit:
        block = pool.oldest
        unlink_block(block)
        destroy_block(block)


cdef Block *find_block(size_t nbytes) noexcept:
    """A block of at least `nbytes` from the free lists, else the system; NULL if there is none."""
    cdef size_t capacity = 0
    cdef int size_class = class_of(nbytes, &capacity)
    cdef Block *block
    if size_class < 0:
        return NULL
    block = pool.heads[size_class]
    if block != NULL:
        unlink_block(block)
        pool.taken_reused += 1
        return block
    block = fresh_block(capacity, size_class)
    if block == NULL and pool.bytes:
        shrink_pool(0)  # the free blocks may be what is missing
        block = fresh_block(capacity, size_class)
    return block


cdef Block *take_block(size_t nbytes, str what) except NULL:
    cdef Block *block = find_block(nbytes)
    if block == NULL:
        raise OutOfMemoryError(
            f"no memory for {what}: free tensors, or work in smaller pieces",
            requested=nbytes,
            in_use=pool.live_bytes,
        )
    pool.live_bytes += block.capacity
    pool.peak_bytes = max(pool.peak_bytes, pool.live_bytes)
    return block


cdef void give_block(Block *block) noexcept:
    pool.live_bytes -= block.capacity
    if block.capacity > pool.limit:
        destroy_block(block)
        return
    shrink_pool(pool.limit - block.capacity)
    block.prev_same = NULL
    block.next_same = pool.heads[block.size_class]
    if block.next_same != NULL:
        block.next_same.prev_same = block
    pool.heads[block.size_class] = block
    block.prev_old = NULL
    block.next_old = pool.newest
    if block.next_old != NULL:
        block.next_old.prev_old = block
    else:
        pool.oldest = block
    pool.newest = block
    pool.bytes += block.capacity
    pool.blocks += 1


# ---- for Python ----------------------------------------------------------------------------------


cdef class Buffer:
    """`nbytes` of memory, not initialised; see the stub."""

    def __init__(self, Py_ssize_t nbytes):
        if self.data != NULL or self.owner is not None:
            raise TypeError("a Buffer is filled once")
        if nbytes < 0:
            raise ShapeError(f"a buffer of {nbytes} bytes: the size must not be negative")
        self.block = take_block(nbytes, "a buffer")
        self.data = self.block.data
        self.nbytes = nbytes
        pool.live_buffers += 1

    # Owns `block` (back to the pool) or, for external memory, `lent` and `owner`. An exported
    # Py_buffer holds a reference to this object, so nobody looks at the memory any more.
    def __dealloc__(self):
        if self.block != NULL:
            pool.live_buffers -= 1
            give_block(self.block)
        elif self.data != NULL:
            pool.external_buffers -= 1
            pool.external_bytes -= self.nbytes
        if self.holds_view:
            PyBuffer_Release(&self.lent)

    @staticmethod
    def from_object(object memory):
        cdef Buffer buffer = Buffer.__new__(Buffer)
        if not PyObject_CheckBuffer(memory):
            raise TypeError(f"{type(memory).__name__} does not lend its memory (buffer protocol)")
        try:
            try:
                PyObject_GetBuffer(memory, &buffer.lent, PyBUF_SIMPLE | PyBUF_WRITABLE)
            except (BufferError, ValueError):  # NumPy says ValueError when read-only
                PyObject_GetBuffer(memory, &buffer.lent, PyBUF_SIMPLE)
        except (BufferError, ValueError) as refusal:
            raise ShapeError(
                f"this memory cannot be used in place ({refusal}): make a C-contiguous copy first"
            ) from None
        buffer.holds_view = True
        buffer.owner = memory
        lend(buffer, <char *>buffer.lent.buf, buffer.lent.len, buffer.lent.readonly)
        return buffer

    @staticmethod
    def from_pointer(size_t address, Py_ssize_t nbytes, object owner, *, bint readonly=False):
        cdef Buffer buffer = Buffer.__new__(Buffer)
        if nbytes < 0 or (address == 0 and nbytes > 0):
            raise ShapeError(f"no memory: {nbytes} bytes at address {address:#x}")
        buffer.owner = owner
        lend(buffer, <char *>address, nbytes, readonly)
        return buffer

    def slice(self, Py_ssize_t offset, Py_ssize_t nbytes):
        cdef Buffer part
        if offset < 0 or nbytes < 0 or offset > self.nbytes - nbytes:
            raise ShapeError(
                f"bytes {offset} to {offset + nbytes} lie outside a buffer of {self.nbytes} bytes"
            )
        part = Buffer.__new__(Buffer)
        part.owner = self
        lend(part, self.data + offset, nbytes, self.readonly)
        return part

    def view(self, object dtype, object shape=None, Py_ssize_t offset=0):
        dtype = numpy.dtype(dtype)
        if shape is None:
            shape = ((self.nbytes - offset) // dtype.itemsize,)
        elif isinstance(shape, int):
            shape = (shape,)
        needed = math.prod(shape) * dtype.itemsize
        if offset < 0 or needed < 0 or offset + needed > self.nbytes:
            raise ShapeError(
                f"{dtype} of shape {shape} at byte {offset} needs {offset + needed} bytes, "
                f"the buffer has {self.nbytes}"
            )
        return numpy.ndarray(shape, dtype, self, offset)

    @property
    def ptr(self):
        return <size_t>self.data

    @property
    def external(self):
        return self.block == NULL

    @property
    def base(self):
        return self.owner

    @property
    def alignment(self):
        cdef size_t address = <size_t>self.data
        return min(address & (~address + 1), <size_t>HUGE_PAGE) if address else HUGE_PAGE

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.nbytes, self.readonly, flags)

    def __len__(self):
        return self.nbytes

    def __repr__(self):
        kind = "external, " if self.block == NULL else ""
        return f"<Buffer {kind}{self.nbytes} bytes at {<size_t>self.data:#x}>"

    def __reduce__(self):
        raise TypeError("a Buffer is memory of this process: send its view instead")


cdef void lend(Buffer buffer, char *data, Py_ssize_t nbytes, bint readonly) noexcept:
    """Completes a buffer on somebody else's memory."""
    buffer.data = data
    buffer.nbytes = nbytes
    buffer.readonly = readonly
    if data != NULL:
        pool.external_buffers += 1
        pool.external_bytes += nbytes


def memory_stats():
    return {
        "live_buffers": pool.live_buffers,
        "live_bytes": pool.live_bytes,
        "peak_bytes": pool.peak_bytes,
        "external_buffers": pool.external_buffers,
        "external_bytes": pool.external_bytes,
        "pooled_blocks": pool.blocks,
        "pooled_bytes": pool.bytes,
        "pool_limit": pool.limit,
        "taken_fresh": pool.taken_fresh,
        "taken_reused": pool.taken_reused,
    }


def reset_peak():
    pool.peak_bytes = pool.live_bytes


def clear_pool():
    shrink_pool(0)


def set_pool_limit(Py_ssize_t nbytes):
    if nbytes < 0:
        raise ShapeError(f"a pool of {nbytes} bytes: the bound must not be negative")
    pool.limit = nbytes
    shrink_pool(nbytes)
