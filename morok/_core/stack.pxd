# cython: language_level=3
"""The stack of a walk over a graph without recursion."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc

from morok._core.types cimport CNode


cdef struct Frame:
    CNode *node  # borrowed: it lies below a root, or the walk holds it
    uint32_t next  # sources that were looked at


cdef struct Stack:
    Frame *frames  # capacity cap; whoever made the stack frees it
    Py_ssize_t n  # depth
    Py_ssize_t cap  # allocated frames


cdef inline void stack_init(Stack *s) noexcept:
    s.frames = NULL
    s.n = 0
    s.cap = 0


cdef inline int stack_grow(Stack *s) except -1:
    cdef Py_ssize_t cap = s.cap * 2 + 256
    cdef Frame *grown = <Frame *>realloc(s.frames, cap * sizeof(Frame))
    if grown == NULL:
        raise MemoryError()
    s.frames = grown
    s.cap = cap
    return 0


cdef inline int stack_push(Stack *s, CNode *n, uint32_t next) except -1:
    if s.n == s.cap:
        stack_grow(s)
    s.frames[s.n].node = n
    s.frames[s.n].next = next
    s.n += 1
    return 0
