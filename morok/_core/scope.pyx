"""Open ranges: which RANGEs a node's value depends on that nothing below it has ended.

    RANGE               what its sources leave open, and itself
    range-ending ops    what their sources leave open, less the ended sources
    AFTER               what its sources leave open, less what its dependencies end
    COPY, BUFFER_VIEW   nothing: they end what their source leaves open
    every other op      what its sources leave open

A set is shared by every node that has the same one as a source; members are borrowed, since each
lies below the holder. A RANGE is a member of its own set.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from morok._core.infer cimport OP_AFTER, OP_RANGE, OPS
from morok._core.ptrmap cimport PtrMap, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport CNode, RangeSet


cdef inline bint _before(CNode *a, CNode *b) noexcept:
    """Loop order: axis number, then content."""
    if a.iarg != b.iarg:
        return a.iarg < b.iarg
    if a.h0 != b.h0:
        return a.h0 < b.h0
    return a.h1 < b.h1


# ---- sets ---------------------------------------------------------------------------------------

cdef RangeSet *_new_set(uint32_t capacity) except NULL:
    cdef RangeSet *s = <RangeSet *>malloc(sizeof(RangeSet) + capacity * sizeof(CNode *))
    if s == NULL:
        raise MemoryError()
    s.refs = 0
    s.n = 0
    return s


cdef inline void _drop_unused(RangeSet *s) noexcept:
    if s != NULL and s.refs == 0:
        free(s)


cdef void release_ranges(RangeSet *r) noexcept:
    """Fast entry: give back one node's share."""
    if r != NULL:
        r.refs -= 1
        if r.refs == 0:
            free(r)


cdef bint _subset(RangeSet *a, RangeSet *b) noexcept:
    """Is every member of `a` in `b`?"""
    cdef uint32_t i = 0, j = 0
    if a.n > b.n:
        return False
    while i < a.n:
        while j < b.n and b.members[j] != a.members[i]:
            j += 1
        if j == b.n:
            return False
        i += 1
    return True


cdef RangeSet *_union(RangeSet *a, RangeSet *b) except? NULL:
    """The union: one of the two if it holds the other, else a new set. Neither is given back."""
    cdef uint32_t i = 0, j = 0
    cdef RangeSet *s
    cdef CNode *next
    if a == NULL or a == b:
        return b
    if b == NULL or _subset(b, a):
        return a
    if _subset(a, b):
        return b
    s = _new_set(a.n + b.n)
    while i < a.n or j < b.n:
        if j == b.n or (i < a.n and _before(a.members[i], b.members[j])):
            next = a.members[i]
            i += 1
        else:
            next = b.members[j]
            j += 1
            if i < a.n and a.members[i] == next:
                i += 1
        s.members[s.n] = next
        s.n += 1
    return s


cdef RangeSet *_without(RangeSet *s, CNode **ended, uint32_t n) except? NULL:
    """`s` less what is in `ended`: `s` itself, a new set, or NULL if nothing is left.

    An unused `s` that is not the result is freed.
    """
    cdef RangeSet *left = NULL
    cdef uint32_t i, j, kept = 0
    cdef bint gone
    for i in range(s.n):
        gone = False
        for j in range(n):
            if ended[j] == s.members[i]:
                gone = True
                break
        if gone and left == NULL and kept == i:
            # the first one to go: what was kept so far moves to a set of its own
            left = _new_set(s.n)
            memcpy(left.members, s.members, kept * sizeof(CNode *))
        if not gone:
            if left != NULL:
                left.members[kept] = s.members[i]
            kept += 1
    if left == NULL:
        return s
    _drop_unused(s)
    left.n = kept
    if kept == 0:
        free(left)
        return NULL
    return left


# ---- what an op ends ----------------------------------------------------------------------------

cdef RangeSet *_end_by(RangeSet *s, CNode *dep) except? NULL:
    """`s` less what `dep`, no AFTER, ends."""
    cdef int e = OPS[dep.op].range_end
    if e >= 0:
        if <uint32_t>e < dep.nsrc:
            return _without(s, dep.src + e, dep.nsrc - <uint32_t>e)
    elif OPS[dep.op].inherits_ended and dep.nsrc != 0 and dep.src[0].ranges != NULL:
        return _without(s, dep.src[0].ranges.members, dep.src[0].ranges.n)
    return s


cdef RangeSet *_end_by_afters(RangeSet *s, CNode *n) except? NULL:
    """`s` less what the dependencies of `n` end, and the AFTERs among them in their turn.

    Not recursive: chains are long. Shared parts are looked at once.
    """
    cdef PtrMap seen
    cdef CNode **waiting = NULL
    cdef CNode **grown
    cdef CNode *dep
    cdef Py_ssize_t count = 0, room = 0
    cdef uint32_t i
    ptrmap_init(&seen, 64)
    try:
        while s != NULL:
            for i in range(1, n.nsrc):
                dep = n.src[i]
                if dep.op != OP_AFTER:
                    if s != NULL:
                        s = _end_by(s, dep)
                elif ptrmap_put(&seen, dep, NULL):
                    if count == room:
                        room = room * 2 + 16
                        grown = <CNode **>realloc(waiting, room * sizeof(CNode *))
                        if grown == NULL:
                            raise MemoryError()
                        waiting = grown
                    waiting[count] = dep
                    count += 1
            if count == 0:
                break
            count -= 1
            n = waiting[count]
    finally:
        free(waiting)
        ptrmap_free(&seen)
    return s


cdef RangeSet *_end_by_dependencies(RangeSet *s, CNode *n) except? NULL:
    """`s` less what the dependencies of the AFTER `n` end."""
    cdef uint32_t i
    for i in range(1, n.nsrc):
        if n.src[i].op == OP_AFTER and n.src[i].nsrc > 1:
            return _end_by_afters(s, n)
    for i in range(1, n.nsrc):
        if s != NULL:
            s = _end_by(s, n.src[i])
    return s


cdef int infer_ranges(CNode *n) except -1:
    """Fast entry: the open ranges of a new node whose sources are complete."""
    cdef RangeSet *s = NULL
    cdef RangeSet *t
    cdef RangeSet own
    cdef uint32_t i
    cdef int e
    for i in range(n.nsrc):
        if n.src[i].ranges != NULL and n.src[i].ranges != s:
            t = _union(s, n.src[i].ranges)
            if t != s:
                _drop_unused(s)
                s = t
    if n.op == OP_RANGE:
        own.refs = 1
        own.n = 1
        own.members[0] = n
        if s == NULL:
            s = _new_set(1)
            s.n = 1
            s.members[0] = n
        else:
            t = _union(s, &own)
            _drop_unused(s)
            s = t
    elif s != NULL:
        e = OPS[n.op].range_end
        if e >= 0:
            if <uint32_t>e < n.nsrc:
                s = _without(s, n.src + e, n.nsrc - <uint32_t>e)
        elif n.op == OP_AFTER:
            s = _end_by_dependencies(s, n)
        elif OPS[n.op].inherits_ended:
            _drop_unused(s)
            s = NULL
    if s != NULL:
        s.refs += 1
    n.ranges = s
    return 0
