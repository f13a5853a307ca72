"""Which graphs read some nodes: one walk for any number of roots."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from morok._core.node cimport glance, new_mark, peek
from morok._core.types cimport CNode


cdef struct Frame:
    CNode *node  # borrowed: it lies below a root
    uint32_t next  # sources that were looked at


cdef inline CNode *_source(CNode *n, uint32_t k) noexcept:
    """What is read to have the value of `n`: its holder or its sources; NULL past the end."""
    if n.realized != NULL:
        return glance(n.realized) if k == 0 else NULL
    return n.src[k] if k < n.nsrc else NULL


def reaching(list roots, targets):
    """See the stub."""
    cdef Frame *frames = NULL
    cdef Frame *grown
    cdef uint64_t depth = 0
    cdef uint64_t cap = 0
    cdef uint32_t no = new_mark()
    cdef uint32_t yes = new_mark()
    cdef CNode *n
    cdef CNode *s
    cdef list out = []
    cdef list kept = list(targets)
    for target in kept:
        peek(target).mark = yes
    # No Python code runs from here on, so the marks are this walk's.
    try:
        for root in roots:
            n = peek(root)
            if n.mark != yes and n.mark != no:
                depth = 0
                s = n
                while True:
                    if s != NULL:  # enter it
                        if depth == cap:
                            cap = cap * 2 + 256
                            grown = <Frame *>realloc(frames, cap * sizeof(Frame))
                            if grown == NULL:
                                raise MemoryError()
                            frames = grown
                        frames[depth].node = s
                        frames[depth].next = 0
                        depth += 1
                    n = frames[depth - 1].node
                    s = _source(n, frames[depth - 1].next)
                    if s == NULL:
                        n.mark = no
                        depth -= 1
                    elif s.mark == yes:
                        n.mark = yes
                        depth -= 1
                        s = NULL
                    elif s.mark == no:
                        frames[depth - 1].next += 1
                        s = NULL
                    if depth == 0:
                        break
                n = peek(root)
            out.append(n.mark == yes)
    finally:
        free(frames)
    return out
