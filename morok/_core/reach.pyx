"""Which graphs read some nodes: one walk for any number of roots."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from morok._core.node cimport glance, new_mark, peek
from morok._core.stack cimport Frame, Stack, stack_init, stack_push
from morok._core.types cimport CNode


cdef inline CNode *_source(CNode *n, uint32_t k) noexcept:
    """What is read to have the value of `n`: its holder or its sources; NULL past the end."""
    if n.realized != NULL:
        return glance(n.realized) if k == 0 else NULL
    return n.src[k] if k < n.nsrc else NULL


def reaching(list roots, targets):
    """See the stub."""
    cdef Stack stack
    cdef Frame *f
    cdef uint32_t no = new_mark()
    cdef uint32_t yes = new_mark()
    cdef CNode *n
    cdef CNode *s
    cdef list out = []
    cdef list kept = list(targets)
    for target in kept:
        peek(target).mark = yes
    stack_init(&stack)
    # No Python code runs from here on, so the marks are this walk's.
    try:
        for root in roots:
            n = peek(root)
            if n.mark != yes and n.mark != no:
                stack_push(&stack, n, 0)
                while stack.n:
                    f = &stack.frames[stack.n - 1]
                    n = f.node
                    s = _source(n, f.next)
                    if s == NULL:
                        n.mark = no
                        stack.n -= 1
                    elif s.mark == yes:
                        n.mark = yes
                        stack.n -= 1
                    elif s.mark == no:
                        f.next += 1
                    else:
                        stack_push(&stack, s, 0)
                n = peek(root)
            out.append(n.mark == yes)
    finally:
        free(stack.frames)
    return out
