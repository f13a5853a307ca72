"""Walks over graphs, without recursion: topological order, substitution, slices."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from morok._core.node cimport Node, new_mark, peek, take, with_sources
from morok._core.ptrmap cimport PtrMap, PtrSlot, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.stack cimport Frame, Stack, stack_init, stack_push
from morok._core.types cimport CNode, RangeSet, object_of


# ---- order --------------------------------------------------------------------------------------

cdef int _append_all(list out, list roots, uint64_t ops0, uint64_t ops1) except -1:
    """Append what lies below the roots and has one of these ops, here or below. Nodes are marked,
    since no Python code runs in between."""
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef uint32_t mark = new_mark()
    stack_init(&s)
    try:
        for r in roots:
            n = peek(r)
            if n.mark == mark or not ((n.below0 & ops0) | (n.below1 & ops1)):
                continue
            n.mark = mark
            stack_push(&s, n, 0)
            while s.n:
                f = &s.frames[s.n - 1]
                if f.next == f.node.nsrc:
                    out.append(<object>object_of(f.node))
                    s.n -= 1
                    continue
                n = f.node.src[f.next]
                f.next += 1
                if n.mark != mark and (n.below0 & ops0) | (n.below1 & ops1):
                    n.mark = mark
                    if n.nsrc:
                        stack_push(&s, n, 0)
                    else:
                        out.append(<object>object_of(n))
    finally:
        free(s.frames)
    return 0


cdef int _append_until(list out, list roots, object stop) except -1:
    """Append what lies below the roots and not below nodes that `stop` names."""
    cdef PtrMap seen
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef bint call = callable(stop)
    stack_init(&s)
    ptrmap_init(&seen, 256)
    try:
        for r in roots:
            n = peek(r)
            if not ptrmap_put(&seen, n, NULL):
                continue
            stack_push(&s, n, n.nsrc if (stop(r) if call else r in stop) else 0)
            while s.n:
                f = &s.frames[s.n - 1]
                if f.next == f.node.nsrc:
                    out.append(<object>object_of(f.node))
                    s.n -= 1
                    continue
                n = f.node.src[f.next]
                f.next += 1
                if ptrmap_put(&seen, n, NULL):
                    o = <object>object_of(n)
                    stack_push(&s, n, n.nsrc if (stop(o) if call else o in stop) else 0)
    finally:
        free(s.frames)
        ptrmap_free(&seen)
    return 0


def toposort(root, *, stop=None, having=None):
    """See the stub."""
    cdef list out = []
    cdef list roots = [root] if isinstance(root, Node) else list(root)
    cdef uint64_t all_ops = ~<uint64_t>0
    cdef int op
    if having is not None:
        op = having
        if op < 64:
            _append_all(out, roots, <uint64_t>1 << op, 0)
        else:
            _append_all(out, roots, 0, <uint64_t>1 << (op - 64))
    elif stop is None:
        _append_all(out, roots, all_ops, all_ops)
    else:
        _append_until(out, roots, stop)
    return out


cdef int _append_open(list out, list roots, CNode *rng) except -1:
    """Append what lies below the roots and depends on `rng`; nodes are marked."""
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef uint32_t mark = new_mark()
    stack_init(&s)
    try:
        for r in roots:
            n = peek(r)
            if n.mark == mark or not _is_open(n, rng):
                continue
            n.mark = mark
            stack_push(&s, n, 0)
            while s.n:
                f = &s.frames[s.n - 1]
                if f.next == f.node.nsrc:
                    out.append(<object>object_of(f.node))
                    s.n -= 1
                    continue
                n = f.node.src[f.next]
                f.next += 1
                if n.mark != mark and _is_open(n, rng):
                    n.mark = mark
                    stack_push(&s, n, 0)
    finally:
        free(s.frames)
    return 0


def region(root, rng):
    """The nodes below `root` (a UOp or a sequence of UOps) that depend on the RANGE `rng`, sources
    before users. What closes it is not entered: `rng` is another loop there."""
    cdef list out = []
    _append_open(out, [root] if isinstance(root, Node) else list(root), peek(rng))
    return out


def backward_slice(root):
    """The set of all nodes below `root`, `root` included."""
    return set(toposort(root))


def consumers(root):
    """For each node below `root`, the list of its users (each once), in topological order."""
    cdef list order = toposort(root)
    cdef dict out = {}
    for u in order:
        out[u] = []
    for u in order:
        for s in dict.fromkeys((<Node>u).src):
            (<list>out[s]).append(u)
    return out


# ---- substitution -------------------------------------------------------------------------------

cdef class _Rebuilt:
    """Results of a substitution: node -> new node, with references that keep the new ones alive."""

    cdef PtrMap map  # results; borrowed nodes
    cdef list keep  # what was given and what was built
    cdef uint64_t ops0  # a node with none of these ops here or below is its own result
    cdef uint64_t ops1

    def __cinit__(self):
        ptrmap_init(&self.map, 256)
        self.keep = []

    def __dealloc__(self):
        ptrmap_free(&self.map)

    cdef inline CNode *result(self, CNode *n) noexcept:
        """The new node for `n`, borrowed, or NULL while unknown."""
        cdef PtrSlot *slot
        if not ((n.below0 & self.ops0) | (n.below1 & self.ops1)):
            return n
        slot = ptrmap_find(&self.map, n)
        return <CNode *>slot.value if slot.key != NULL else NULL

    cdef tuple sources(self, CNode *n):
        """The results of a node's sources."""
        cdef tuple src = PyTuple_New(n.nsrc)
        cdef uint32_t k
        for k in range(n.nsrc):
            item = <object>object_of(self.result(n.src[k]))
            Py_INCREF(item)
            PyTuple_SET_ITEM(src, k, item)
        return src

    cdef CNode *rebuild(self, CNode *n) except NULL:
        """`n` on the results of its sources, borrowed."""
        cdef CNode *few[32]
        cdef CNode **src = few
        cdef CNode *new = n
        cdef uint32_t k
        cdef bint changed = False
        if n.nsrc > 32:
            src = <CNode **>malloc(n.nsrc * sizeof(CNode *))
            if src == NULL:
                raise MemoryError()
        try:
            for k in range(n.nsrc):
                src[k] = self.result(n.src[k])
                changed |= src[k] != n.src[k]
            if changed:
                new = with_sources(n, src)
                self.keep.append(take(new))
        finally:
            if src != few:
                free(src)
        return new


cdef bint _is_open(CNode *n, CNode *rng) noexcept:
    """Is this RANGE open at `n`?"""
    cdef uint32_t i
    if n.ranges == NULL:
        return False
    for i in range(n.ranges.n):
        if n.ranges.members[i] == rng:
            return True
    return False


cdef bint _open_in(CNode *n, RangeSet *keys) noexcept:
    """Is one of these RANGEs open at `n`?"""
    cdef uint32_t i, j
    if n.ranges == NULL:
        return False
    for i in range(n.ranges.n):
        for j in range(keys.n):
            if n.ranges.members[i] == keys.members[j]:
                return True
    return False


cdef object _substitute(object root, dict replace, RangeSet *keys):
    """`keys`: enter only nodes at which one of them is open; NULL = every node."""
    cdef _Rebuilt done = _Rebuilt()
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    stack_init(&s)
    done.ops0 = done.ops1 = 0
    try:
        for old, fresh in replace.items():
            done.keep.append(old)
            done.keep.append(fresh)
            n = peek(old)
            ptrmap_put(&done.map, n, peek(fresh))
            if n.op < 64:
                done.ops0 |= <uint64_t>1 << n.op
            else:
                done.ops1 |= <uint64_t>1 << (n.op - 64)
        n = peek(root)
        if done.result(n) == NULL:
            stack_push(&s, n, 0)
        while s.n:
            f = &s.frames[s.n - 1]
            n = f.node
            if f.next == 0:
                if keys != NULL and not _open_in(n, keys):
                    ptrmap_put(&done.map, n, n)
                    s.n -= 1
                    continue
            while f.next < n.nsrc and done.result(n.src[f.next]) != NULL:
                f.next += 1
            if f.next < n.nsrc:
                f.next += 1
                stack_push(&s, n.src[f.next - 1], 0)
                continue
            ptrmap_put(&done.map, n, done.rebuild(n))
            s.n -= 1
        return <object>object_of(done.result(peek(root)))
    finally:
        free(s.frames)


def substitute(root, dict replace, *, bint open_only=False):
    """`root` with each key of `replace` replaced by its value. Replacements are not entered.

    With `open_only` the keys are RANGEs, and a node at which none of them is open is left alone: a
    loop that some op below has closed is not the one meant.
    """
    cdef RangeSet *keys = NULL
    if not open_only:
        return _substitute(root, replace, NULL)
    keys = <RangeSet *>malloc(sizeof(RangeSet) + len(replace) * sizeof(CNode *))
    if keys == NULL:
        raise MemoryError()
    try:
        keys.n = 0
        for old in replace:
            keys.members[keys.n] = peek(old)
            keys.n += 1
        return _substitute(root, replace, keys)
    finally:
        free(keys)


def cut_realized(root, dict visit=None, drop=()):
    """See the stub."""
    cdef PyObject *functions[128]
    cdef bint dropped[128]
    cdef _Rebuilt done = _Rebuilt()
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef CNode *known
    cdef int op
    stack_init(&s)
    done.ops0 = done.ops1 = ~<uint64_t>0
    for op in range(128):
        functions[op] = NULL
        dropped[op] = False
    for op in drop:
        dropped[op & 127] = True
    if visit is not None:
        done.keep.append(visit)
        for member, function in visit.items():
            op = member
            functions[op & 127] = <PyObject *>function
    try:
        stack_push(&s, peek(root), 0)
        while s.n:
            f = &s.frames[s.n - 1]
            n = f.node
            if f.next == 0:
                if n.realized != NULL:
                    # The holder is walked in its turn; this node then takes the holder's result.
                    holder = <object>n.realized
                    known = done.result(peek(holder))
                    if known == NULL:
                        done.keep.append(holder)
                        stack_push(&s, peek(holder), 0)
                    else:
                        ptrmap_put(&done.map, n, known)
                        s.n -= 1
                    continue
                if functions[n.op] != NULL:
                    # Asked once: a node with sources comes back here only with `next` above 0.
                    result = (<object>functions[n.op])(<object>object_of(n))
                    if result is not None:
                        done.keep.append(result)
                        ptrmap_put(&done.map, n, peek(result))
                        s.n -= 1
                        continue
            while f.next < n.nsrc and done.result(n.src[f.next]) != NULL:
                f.next += 1
            if f.next < n.nsrc:
                f.next += 1
                stack_push(&s, n.src[f.next - 1], 0)
                continue
            if dropped[n.op] and n.nsrc:
                ptrmap_put(&done.map, n, done.result(n.src[0]))
            else:
                ptrmap_put(&done.map, n, done.rebuild(n))
            s.n -= 1
        return <object>object_of(done.result(peek(root)))
    finally:
        free(s.frames)


# ---- one visit a node ---------------------------------------------------------------------------

def rebuild(root, dict visit):
    """`root` with `visit[op](node, src)` in the place of every node of the ops in `visit`, sources
    first; `src` is the tuple of what the node's sources became. Any other node is built on its new
    sources if one changed; what has none of these ops below is not looked at.
    """
    cdef PyObject *functions[128]
    cdef _Rebuilt done = _Rebuilt()
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef CNode *new
    cdef int op
    stack_init(&s)
    done.ops0 = done.ops1 = 0
    for op in range(128):
        functions[op] = NULL
    for member, function in visit.items():
        op = member
        if not 0 <= op < 128:
            raise ValueError(f"unknown op {member}")
        functions[op] = <PyObject *>function
        done.keep.append(function)
        if op < 64:
            done.ops0 |= <uint64_t>1 << op
        else:
            done.ops1 |= <uint64_t>1 << (op - 64)
    try:
        n = peek(root)
        if done.result(n) == NULL:
            stack_push(&s, n, 0)
        while s.n:
            f = &s.frames[s.n - 1]
            n = f.node
            while f.next < n.nsrc and done.result(n.src[f.next]) != NULL:
                f.next += 1
            if f.next < n.nsrc:
                f.next += 1
                stack_push(&s, n.src[f.next - 1], 0)
                continue
            if functions[n.op] == NULL:
                new = done.rebuild(n)
            else:
                result = (<object>functions[n.op])(<object>object_of(n), done.sources(n))
                new = peek(result)
                done.keep.append(result)
            ptrmap_put(&done.map, n, new)
            s.n -= 1
        return <object>object_of(done.result(peek(root)))
    finally:
        free(s.frames)


def rebuild_together(root, list groups, visit):
    """See the stub."""
    cdef _Rebuilt done = _Rebuilt()
    cdef PtrMap number  # a member -> the number of its group, from 1 on
    cdef list starts = [0]  # where the sources of each group begin in `flat`; and the end
    cdef CNode **flat = NULL
    cdef CNode **src
    cdef Stack s
    cdef Frame *f
    cdef CNode *n
    cdef PtrSlot *slot
    cdef Py_ssize_t group, total = 0
    cdef uint32_t k, count
    stack_init(&s)
    ptrmap_init(&number, 64)
    done.ops0 = done.ops1 = 0
    try:
        for group, members in enumerate(groups, 1):
            for member in members:
                n = peek(member)
                ptrmap_put(&number, n, <void *>group)
                total += n.nsrc
                if n.op < 64:
                    done.ops0 |= <uint64_t>1 << n.op
                else:
                    done.ops1 |= <uint64_t>1 << (n.op - 64)
            starts.append(total)
        flat = <CNode **>malloc((total + 1) * sizeof(CNode *))
        if flat == NULL:
            raise MemoryError()
        total = 0
        for members in groups:
            for member in members:
                n = peek(member)
                for k in range(n.nsrc):
                    flat[total] = n.src[k]
                    total += 1
        n = peek(root)
        if done.result(n) == NULL:
            stack_push(&s, n, 0)
        while s.n:
            f = &s.frames[s.n - 1]
            n = f.node
            slot = ptrmap_find(&number, n)
            group = <Py_ssize_t>slot.value if slot.key != NULL else 0
            src, count = n.src, n.nsrc
            if group:
                src = flat + <Py_ssize_t>starts[group - 1]
                count = <Py_ssize_t>starts[group] - <Py_ssize_t>starts[group - 1]
            while f.next < count and done.result(src[f.next]) != NULL:
                f.next += 1
            if f.next < count:
                f.next += 1
                stack_push(&s, src[f.next - 1], 0)
                continue
            s.n -= 1
            if done.result(n) != NULL:
                continue
            if not group:
                ptrmap_put(&done.map, n, done.rebuild(n))
                continue
            members = groups[group - 1]
            results = visit(members, [done.sources(peek(member)) for member in members])
            done.keep.append(results)
            for member, result in zip(members, results, strict=True):
                ptrmap_put(&done.map, peek(member), peek(result))
        return <object>object_of(done.result(peek(root)))
    finally:
        free(s.frames)
        free(flat)
        ptrmap_free(&number)
