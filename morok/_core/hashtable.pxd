# cython: language_level=3
"""Open addressing on a 64-bit hash that is stored beside a borrowed pointer.

Who looks something up walks the run that starts at `table_home` and compares for himself. Removal
moves later entries of the run up (no tombstones), so churn does not slow a table down.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free


cdef struct Entry:
    uint64_t hash  # of the item
    void *item  # borrowed; NULL = empty


cdef struct Table:
    Entry *entries  # mask + 1 of them
    uint64_t mask  # capacity - 1, a power of two less one
    uint64_t used  # full entries, at most two of three


cdef inline int table_init(Table *t, uint64_t capacity) except -1:
    t.entries = <Entry *>calloc(capacity, sizeof(Entry))
    if t.entries == NULL:
        raise MemoryError()
    t.mask = capacity - 1
    t.used = 0
    return 0


cdef inline uint64_t table_home(Table *t, uint64_t hash) noexcept:
    """Where the run of this hash begins."""
    return (hash >> 24) & t.mask


cdef inline int table_reserve(Table *t) except -1:
    """Room for one more entry: after this, `table_insert` cannot fail."""
    cdef Table grown
    cdef uint64_t i
    if (t.used + 1) * 3 <= t.mask * 2:
        return 0
    table_init(&grown, (t.mask + 1) * 2)
    for i in range(t.mask + 1):
        if t.entries[i].item != NULL:
            table_insert(&grown, t.entries[i].hash, t.entries[i].item)
    free(t.entries)
    t[0] = grown
    return 0


cdef inline void table_insert(Table *t, uint64_t hash, void *item) noexcept:
    """Enter an item that is not there; `table_reserve` has been called."""
    cdef uint64_t i = table_home(t, hash)
    while t.entries[i].item != NULL:
        i = (i + 1) & t.mask
    t.entries[i].hash = hash
    t.entries[i].item = item
    t.used += 1


cdef inline void table_remove(Table *t, uint64_t hash, void *item) noexcept:
    """Take an item out, if it is there."""
    cdef uint64_t i = table_home(t, hash), j, home
    while t.entries[i].item != item:
        if t.entries[i].item == NULL:
            return
        i = (i + 1) & t.mask
    t.used -= 1
    j = i
    while True:
        j = (j + 1) & t.mask
        if t.entries[j].item == NULL:
            break
        home = table_home(t, t.entries[j].hash)
        if ((j - home) & t.mask) >= ((j - i) & t.mask):
            t.entries[i] = t.entries[j]
            i = j
    t.entries[i].item = NULL


cdef inline uint64_t identity(PyObject *o) noexcept:
    """A hash that no two living objects share."""
    return <uint64_t><size_t>o * <uint64_t>0x9E3779B97F4A7C15


cdef inline void *table_of(Table *t, PyObject *o) noexcept:
    """The item entered under the identity of `o`, or NULL."""
    cdef uint64_t hash = identity(o), i = table_home(t, hash)
    while t.entries[i].item != NULL:
        if t.entries[i].hash == hash:
            return t.entries[i].item
        i = (i + 1) & t.mask
    return NULL
