"""Walks over graphs, without recursion: topological order, substitution, slices."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from morok._core.node cimport Node, peek, take, with_sources
from morok._core.ptrmap cimport PtrMap, PtrSlot, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport CNode

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)


cdef struct Frame:
    CNode *node  # borrowed: it lies below the root
    bint leaving  # its sources are done


cdef struct Stack:
    Frame *frames  # capacity cap
    Py_ssize_t n  # depth
    Py_ssize_t cap  # allocated frames


cdef inline int _push(Stack *s, CNode *n, bint leaving) except -1:
    cdef Frame *grown
    if s.n == s.cap:
        s.cap = s.cap * 2 if s.cap else 256
        grown = <Frame *>realloc(s.frames, s.cap * sizeof(Frame))
        if grown == NULL:
            raise MemoryError()
        s.frames = grown
    s.frames[s.n].node = n
    s.frames[s.n].leaving = leaving
    s.n += 1
    return 0


def toposort(root, *, stop=None):
    """Every node below `root` (a UOp or a sequence of UOps), sources before users, each once.

    `stop` is a predicate or a container of nodes: such a node is listed, what lies below it is not entered.
    """
    cdef PtrMap seen
    cdef Stack s
    cdef CNode *n
    cdef Frame f
    cdef list out = [], roots
    cdef int64_t i
    cdef bint call = callable(stop)
    roots = [root] if isinstance(root, Node) else list(root)
    s.frames = NULL
    s.n = 0
    s.cap = 0
    ptrmap_init(&seen, 256)
    try:
        for r in reversed(roots):
            _push(&s, peek(r), False)
        while s.n:
            s.n -= 1
            f = s.frames[s.n]
            n = f.node
            if f.leaving:
                out.append(<object>n.self)
                continue
            if not ptrmap_put(&seen, n, NULL):
                continue
            _push(&s, n, True)
            if stop is not None:
                if stop(<object>n.self) if call else <object>n.self in stop:
                    continue
            i = <int64_t>n.nsrc - 1
            while i >= 0:
                if ptrmap_find(&seen, n.src[i]).key == NULL:
                    _push(&s, n.src[i], False)
                i -= 1
    finally:
        free(s.frames)
        ptrmap_free(&seen)
    return out


def backward_slice(root):
    """The set of all nodes below `root`, `root` included."""
    return set(toposort(root))


def consumers(root):
    """For each node below `root`, the list of its users (each once), in topological order."""
    cdef dict out = {}
    for u in toposort(root):
        out[u] = []
        for s in dict.fromkeys(u.src):
            (<list>out[s]).append(u)
    return out


cdef class _Rebuilt:
    """Results of a substitution: node -> new node, with the references that keep the new ones alive."""

    cdef PtrMap map
    cdef list keep

    def __cinit__(self):
        ptrmap_init(&self.map, 256)
        self.keep = []

    def __dealloc__(self):
        ptrmap_free(&self.map)


cdef bint _open_in(CNode *n, list keys):
    """Is one of these RANGEs open at `n`?"""
    cdef uint32_t i
    if n.ranges == NULL:
        return False
    for k in keys:
        for i in range(n.ranges.n):
            if n.ranges.members[i] == peek(k):
                return True
    return False


cdef object _substitute(object root, dict replace, bint realized, bint open_only):
    cdef _Rebuilt done = _Rebuilt()
    cdef Stack s
    cdef Frame f
    cdef CNode *n
    cdef CNode *few[32]
    cdef CNode **src
    cdef CNode *new
    cdef PtrSlot *slot
    cdef int64_t i
    cdef uint32_t k
    cdef bint changed
    cdef list keys = list(replace) if open_only else []
    s.frames = NULL
    s.n = 0
    s.cap = 0
    try:
        for old, fresh in replace.items():
            done.keep.append(old)
            done.keep.append(fresh)
            ptrmap_put(&done.map, peek(old), peek(fresh))
        _push(&s, peek(root), False)
        while s.n:
            s.n -= 1
            f = s.frames[s.n]
            n = f.node
            if not f.leaving:
                if ptrmap_find(&done.map, n).key != NULL:
                    continue
                if open_only and not _open_in(n, keys):
                    ptrmap_put(&done.map, n, n)
                    continue
                if realized and n.realized != NULL:
                    # The holder is walked in its turn; this node then takes the holder's result.
                    new = peek(<object>n.realized)
                    slot = ptrmap_find(&done.map, new)
                    if slot.key == NULL:
                        _push(&s, n, False)
                        _push(&s, new, False)
                    else:
                        ptrmap_put(&done.map, n, slot.value)
                    continue
                _push(&s, n, True)
                i = <int64_t>n.nsrc - 1
                while i >= 0:
                    if ptrmap_find(&done.map, n.src[i]).key == NULL:
                        _push(&s, n.src[i], False)
                    i -= 1
                continue
            if ptrmap_find(&done.map, n).key != NULL:
                continue
            changed = False
            src = few
            if n.nsrc > 32:
                src = <CNode **>malloc(n.nsrc * sizeof(CNode *))
                if src == NULL:
                    raise MemoryError()
            for k in range(n.nsrc):
                src[k] = <CNode *>ptrmap_find(&done.map, n.src[k]).value
                changed |= src[k] != n.src[k]
            new = n
            try:
                if changed:
                    new = with_sources(n, src)
                    done.keep.append(take(new))
            finally:
                if src != few:
                    free(src)
            ptrmap_put(&done.map, n, new)
        slot = ptrmap_find(&done.map, peek(root))
        return <object>(<CNode *>slot.value).self
    finally:
        free(s.frames)


def substitute(root, dict replace, *, bint open_only=False):
    """`root` with each key of `replace` replaced by its value. Replacements are not entered.

    With `open_only` the keys are RANGEs, and a node at which none of them is open is left alone: a loop that
    some op below has closed is not the one meant.
    """
    return _substitute(root, replace, False, open_only)


def cut_realized(root):
    """`root` with every node that has a realized value replaced by the node that holds it."""
    return _substitute(root, {}, True, False)
