"""The key of a graph without names, had by one walk: the graph itself is not built."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from morok._core.node cimport hash_head, hash_source, hash_tail, peek
from morok._core.ptrmap cimport PtrMap, PtrSlot, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.stack cimport Frame, Stack, stack_init, stack_push
from morok._core.types cimport CNode, object_of


cdef struct Hash:
    uint64_t h0  # low half
    uint64_t h1  # high half


cdef struct Walk:
    PtrMap seen  # node -> number of its hash
    Hash *hashes  # capacity hash_cap
    uint64_t n_hashes
    uint64_t hash_cap
    Stack stack  # nodes that were entered


cdef inline Hash *_known(Walk *w, CNode *n) noexcept:
    """The hash of what stands in the place of `n`, NULL while unknown."""
    cdef PtrSlot *slot = ptrmap_find(&w.seen, n)
    return &w.hashes[<uint64_t>slot.value] if slot.key != NULL else NULL


cdef int _note(Walk *w, CNode *n, uint64_t h0, uint64_t h1) except -1:
    cdef Hash *grown
    if w.n_hashes == w.hash_cap:
        w.hash_cap = w.hash_cap * 2 + 256
        grown = <Hash *>realloc(w.hashes, w.hash_cap * sizeof(Hash))
        if grown == NULL:
            raise MemoryError()
        w.hashes = grown
    w.hashes[w.n_hashes].h0 = h0
    w.hashes[w.n_hashes].h1 = h1
    ptrmap_put(&w.seen, n, <void *>w.n_hashes)
    w.n_hashes += 1
    return 0


def normal_key(root, dict visit, drop):
    """See the stub."""
    cdef PyObject *functions[128]
    cdef bint dropped[128]
    cdef Walk w
    cdef Frame *f
    cdef CNode *n
    cdef CNode *other
    cdef Hash *h
    cdef Hash found
    cdef uint64_t a, b
    cdef uint32_t k
    cdef int op
    cdef list keep = []
    w.hashes = NULL
    w.n_hashes = w.hash_cap = 0
    stack_init(&w.stack)
    for op in range(128):
        functions[op] = NULL
        dropped[op] = False
    for op in drop:
        dropped[op & 127] = True
    for member, function in visit.items():
        op = member
        functions[op & 127] = <PyObject *>function
    ptrmap_init(&w.seen, 1024)
    try:
        stack_push(&w.stack, peek(root), 0)
        while w.stack.n:
            f = &w.stack.frames[w.stack.n - 1]
            n = f.node
            if f.next == 0:
                if n.realized != NULL:
                    # The holder is walked in its turn; this node then takes the holder's hash.
                    holder = <object>n.realized
                    other = peek(holder)
                    h = _known(&w, other)
                    if h == NULL:
                        keep.append(holder)
                        stack_push(&w.stack, other, 0)
                    else:
                        found = h[0]
                        _note(&w, n, found.h0, found.h1)
                        w.stack.n -= 1
                    continue
                if functions[n.op] != NULL:
                    result = (<object>functions[n.op])(<object>object_of(n))
                    if result is not None:
                        other = peek(result)
                        _note(&w, n, other.h0, other.h1)
                        w.stack.n -= 1
                        continue
            while f.next < n.nsrc and _known(&w, n.src[f.next]) != NULL:
                f.next += 1
            if f.next < n.nsrc:
                f.next += 1
                stack_push(&w.stack, n.src[f.next - 1], 0)
                continue
            if dropped[n.op] and n.nsrc:
                found = _known(&w, n.src[0])[0]
                _note(&w, n, found.h0, found.h1)
            else:
                hash_head(n.op, n.dtype, n.nsrc, n.akind, n.iarg, n.arg, &a, &b)
                for k in range(n.nsrc):
                    h = _known(&w, n.src[k])
                    hash_source(&a, &b, h.h0, h.h1)
                _note(&w, n, hash_tail(a, b), b)
            w.stack.n -= 1
        found = _known(&w, peek(root))[0]
    finally:
        free(w.hashes)
        free(w.stack.frames)
        ptrmap_free(&w.seen)
    key = PyBytes_FromStringAndSize(NULL, 16)
    memcpy(PyBytes_AS_STRING(key), &found.h0, 8)
    memcpy(PyBytes_AS_STRING(key) + 8, &found.h1, 8)
    return key
