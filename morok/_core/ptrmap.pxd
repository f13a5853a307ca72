# cython: language_level=3
"""A map from node to 64-bit payload: open addressing, no deletion. Holds no references."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from morok._core.types cimport CNode


cdef struct PtrSlot:
    CNode *key  # NULL = empty
    void *value  # payload: a node, or an index cast to a pointer


cdef struct PtrMap:
    PtrSlot *slots  # capacity mask + 1
    uint64_t mask  # capacity - 1, a power of two less one
    uint64_t used  # occupied slots


cdef inline int ptrmap_init(PtrMap *m, uint64_t capacity) except -1:
    m.slots = <PtrSlot *>calloc(capacity, sizeof(PtrSlot))
    if m.slots == NULL:
        raise MemoryError()
    m.mask = capacity - 1
    m.used = 0
    return 0


cdef inline void ptrmap_free(PtrMap *m) noexcept:
    free(m.slots)
    m.slots = NULL


cdef inline PtrSlot *ptrmap_find(PtrMap *m, CNode *key) noexcept:
    """The slot of `key`, or the empty slot where it would go."""
    cdef uint64_t i = (key.h0 >> 9) & m.mask
    while m.slots[i].key != NULL and m.slots[i].key != key:
        i = (i + 1) & m.mask
    return &m.slots[i]


cdef inline int ptrmap_put(PtrMap *m, CNode *key, void *value) except -1:
    """Set the value of `key`; 1 if the key is new."""
    cdef PtrSlot *s = ptrmap_find(m, key)
    cdef PtrMap grown
    cdef uint64_t i
    if s.key != NULL:
        s.value = value
        return 0
    if (m.used + 1) * 2 > m.mask:
        ptrmap_init(&grown, (m.mask + 1) * 2)
        for i in range(m.mask + 1):
            if m.slots[i].key != NULL:
                s = ptrmap_find(&grown, m.slots[i].key)
                s[0] = m.slots[i]
        grown.used = m.used
        free(m.slots)
        m[0] = grown
        s = ptrmap_find(m, key)
    s.key = key
    s.value = value
    m.used += 1
    return 1
