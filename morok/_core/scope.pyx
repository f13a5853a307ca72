"""Open ranges: which RANGEs a node's value depends on that nothing below it has ended.

A set is shared by every node that has the same one as a source; members are borrowed, since each lies below
the holder. A RANGE is a member of its own set.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from morok._core.infer cimport OP_RANGE, OPS
from morok._core.types cimport CNode, RangeSet


cdef inline bint _before(CNode *a, CNode *b) noexcept:
    """Loop order: axis number, then content."""
    if a.iarg != b.iarg:
        return a.iarg < b.iarg
    if a.h0 != b.h0:
        return a.h0 < b.h0
    return a.h1 < b.h1


cdef bint _holds(RangeSet *s, CNode *r) noexcept:
    cdef uint32_t i
    for i in range(s.n):
        if s.members[i] == r:
            return True
    return False


cdef bint _subset(RangeSet *a, RangeSet *b) noexcept:
    cdef uint32_t i
    if a.n > b.n:
        return False
    for i in range(a.n):
        if not _holds(b, a.members[i]):
            return False
    return True


cdef RangeSet *_new_set(CNode **members, uint32_t n) except NULL:
    cdef RangeSet *s = <RangeSet *>malloc(sizeof(RangeSet) + n * sizeof(CNode *))
    if s == NULL:
        raise MemoryError()
    s.refs = 0
    s.n = n
    memcpy(s.members, members, n * sizeof(CNode *))
    return s


cdef RangeSet *_union(RangeSet *a, RangeSet *b) except? NULL:
    """The union, a new set unless one side holds the other."""
    cdef CNode *few[32]
    cdef CNode **m = few
    cdef uint32_t i = 0, j = 0, k = 0
    cdef RangeSet *s
    if a == NULL or a == b:
        return b
    if b == NULL or _subset(b, a):
        return a
    if _subset(a, b):
        return b
    if a.n + b.n > 32:
        m = <CNode **>malloc((a.n + b.n) * sizeof(CNode *))
        if m == NULL:
            raise MemoryError()
    while i < a.n or j < b.n:
        if j == b.n or (i < a.n and a.members[i] == b.members[j]):
            m[k] = a.members[i]
            i += 1
            if j < b.n:
                j += 1
        elif i == a.n or not _before(a.members[i], b.members[j]):
            m[k] = b.members[j]
            j += 1
        else:
            m[k] = a.members[i]
            i += 1
        k += 1
    try:
        s = _new_set(m, k)
    finally:
        if m != few:
            free(m)
    return s


cdef RangeSet *_without(RangeSet *s, CNode **ended, uint32_t n) except? NULL:
    """`s` less the ended ranges; NULL when nothing is left."""
    cdef CNode *few[64]
    cdef uint32_t i, j, k = 0
    cdef bint gone
    if s.n > 64:
        raise OverflowError("more than 64 open ranges at one node")
    for i in range(s.n):
        gone = False
        for j in range(n):
            if ended[j] == s.members[i]:
                gone = True
        if not gone:
            few[k] = s.members[i]
            k += 1
    if k == s.n:
        return s
    if k == 0:
        return NULL
    return _new_set(few, k)


cdef void release_ranges(RangeSet *r) noexcept:
    """Give back one node's share."""
    if r != NULL:
        r.refs -= 1
        if r.refs == 0:
            free(r)


cdef inline void _drop_unused(RangeSet *s) noexcept:
    if s != NULL and s.refs == 0:
        free(s)


cdef int infer_ranges(CNode *n) except -1:
    cdef RangeSet *s = NULL
    cdef RangeSet *t
    cdef RangeSet own
    cdef uint32_t i, j
    cdef int e
    for i in range(n.nsrc):
        if n.src[i].ranges != NULL:
            t = _union(s, n.src[i].ranges)
            if t != s:
                _drop_unused(s)
            s = t
    if s != NULL:
        e = OPS[n.op].range_end
        if e >= 0 and <uint32_t>e < n.nsrc:
            for i in range(<uint32_t>e, n.nsrc):
                if s != NULL and n.src[i].op == OP_RANGE:
                    t = _without(s, &n.src[i], 1)
                    if t != s:
                        _drop_unused(s)
                    s = t
        if OPS[n.op].inherits_ended:
            for j in range(1, n.nsrc):
                e = OPS[n.src[j].op].range_end
                if e >= 0 and <uint32_t>e < n.src[j].nsrc and s != NULL:
                    t = _without(s, n.src[j].src + e, n.src[j].nsrc - e)
                    if t != s:
                        _drop_unused(s)
                    s = t
    if n.op == OP_RANGE:
        own.n = 1
        own.refs = 1
        own.members[0] = n
        if s == NULL:
            s = _new_set(own.members, 1)
        else:
            t = _union(s, &own)
            if t != s:
                _drop_unused(s)
            s = t
    if s != NULL:
        s.refs += 1
    n.ranges = s
    return 0
