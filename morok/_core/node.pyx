"""Interned nodes.

A node is `(op, dtype, sources, argument)`. Building the same structure twice gives the same
object, from any thread: the table below maps the 128-bit content hash to the living node and
compares structure on a hit. The table borrows its nodes; a node leaves it when it dies.

Ownership: a node owns its sources, its argument record, its shape, its share of the range set, its
provenance and the node that holds its realized value. `device` and the members of the range set
lie below the node and are borrowed. Sources are released through an explicit stack, so that a
chain of any depth can die.

Nodes reach other nodes only downwards, so the garbage collector has nothing to find among them and
does not visit them.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from morok._core.argument cimport ArgRecord, count_records
from morok._core.hashtable cimport (
    Entry,
    Table,
    table_home,
    table_init,
    table_insert,
    table_remove,
    table_reserve,
)
from morok._core.infer cimport (
    DTYPES, OP_ADD, OP_CONST, OP_MUL, OP_VCONST, OP_VECTORIZE, OPS, infer_all, infer_dtype,
)
from morok._core.scope cimport release_ranges
from morok._core.types cimport (
    ARG_BOOL,
    ARG_FLOAT,
    ARG_INT,
    ARG_NONE,
    ARG_OBJECT,
    NODE_BOUNDED,
    NODE_INTERNED,
    NODE_KIN,
    NODE_LEFT_IN_RIGHT,
    NODE_OVER_ADD,
    NODE_OVER_CONST,
    NODE_OVER_MUL,
    NODE_POINT,
    NODE_RIGHT_IN_LEFT,
    NODE_VALUE_SHIFT,
    CNode,
    const_class,
    mk_mix,
    object_of,
)

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)
    Py_ssize_t c_refcount "Py_REFCNT"(PyObject *)
    PyTypeObject *c_type "Py_TYPE"(PyObject *)

cdef extern from "node.h":
    PyObject *mk_provenance  # of this thread; owned, NULL = none
    object mk_new_object(PyTypeObject *cls)
    size_t mk_slot_memory()
    size_t MK_SLOT_BYTES
    void mk_adopt(PyTypeObject *cls, PyTypeObject *base, void *construct)


cdef Table _nodes  # all living nodes, by h0
cdef uint64_t _built = 0  # nodes made since the process began
cdef uint64_t _hits = 0  # nodes found since the process began
cdef uint32_t _walks = 0  # marks dealt out
cdef PyTypeObject *_uop_type = NULL  # the class of every node
table_init(&_nodes, 1 << 14)


# ---- dying --------------------------------------------------------------------------------------

cdef PyObject **_dying = NULL  # references to give back, once their holders are gone
cdef Py_ssize_t _n_dying = 0  # references waiting
cdef Py_ssize_t _cap_dying = 0  # room for them
cdef bint _draining = False  # someone is giving them back


cdef void _bury(PyObject *o) noexcept:
    """Give a reference back later, if this would end the life of `o`."""
    global _dying, _n_dying, _cap_dying
    cdef PyObject **grown
    if c_refcount(o) > 1:
        c_decref(o)
        return
    if _n_dying == _cap_dying:
        grown = <PyObject **>realloc(_dying, (_cap_dying * 2 + 256) * sizeof(PyObject *))
        if grown == NULL:
            c_decref(o)  # recursive, but better than nothing
            return
        _dying = grown
        _cap_dying = _cap_dying * 2 + 256
    _dying[_n_dying] = o
    _n_dying += 1


cdef void _drain() noexcept:
    """Drop what is waiting. Deaths that this causes only add to the list: no recursion."""
    global _n_dying, _draining
    _draining = True
    while _n_dying:
        _n_dying -= 1
        c_decref(_dying[_n_dying])
    _draining = False


# ---- provenance ---------------------------------------------------------------------------------

cdef object swap_provenance(object new):
    """Fast entry: make `new` the provenance of this thread; the previous one (None if none)."""
    global mk_provenance
    cdef PyObject *previous = mk_provenance
    cdef object old = None
    if new is None:
        mk_provenance = NULL
    else:
        c_incref(<PyObject *>new)
        mk_provenance = <PyObject *>new
    if previous != NULL:
        old = <object>previous
        c_decref(previous)
    return old


def set_provenance(obj):
    """Stamp `obj` (the user's line, a tensor method …) on nodes this thread builds.

    Returns what was set before.
    """
    return swap_provenance(obj)


# ---- nodes --------------------------------------------------------------------------------------

cdef tuple _tuple_of(CNode **nodes, Py_ssize_t n):
    cdef tuple t = PyTuple_New(n)
    cdef Py_ssize_t i
    cdef object o
    for i in range(n):
        o = <object>object_of(nodes[i])
        Py_INCREF(o)
        PyTuple_SET_ITEM(t, i, o)
    return t


cdef tuple _open_ranges(CNode *n):
    return _tuple_of(n.ranges.members, n.ranges.n) if n.ranges != NULL else ()


@cython.no_gc
cdef class Node:
    """Base of UOp. Holds the C structure; has no Python fields."""

    def __cinit__(self, *args, **kwargs):
        raise TypeError("nodes are made by UOp(op, dtype, src, arg)")

    def __dealloc__(self):
        # Leave the table first: a callback may build the same structure while this object dies.
        cdef CNode *n = &self.n
        cdef uint32_t i
        if n.flags & NODE_INTERNED:
            table_remove(&_nodes, n.h0, n)
            for i in range(n.nsrc):
                _bury(object_of(n.src[i]))
            if n.arg != NULL:
                c_decref(n.arg)
            if n.realized != NULL:
                _bury(n.realized)
            if n.provenance != NULL:
                _bury(n.provenance)
        # The rest is there, too, when inference failed and the node never entered the table.
        if n.nsrc > 3:
            free(n.src)
        if n.shape != NULL:
            c_decref(n.shape)
        if n.ranges != NULL:
            release_ranges(n.ranges)
        if _n_dying and not _draining:
            _drain()

    @property
    def op(self):
        """The Ops member."""
        return <object>OPS[self.n.op].member

    @property
    def dtype(self):
        """The DType of the value."""
        return <object>DTYPES[self.n.dtype].obj

    @property
    def src(self):
        """The sources, as a new tuple."""
        return _tuple_of(self.n.src, self.n.nsrc)

    @property
    def arg(self):
        """The argument: None, bool, int, float, or the object given by whoever built this node."""
        cdef double d
        if self.n.akind == ARG_OBJECT:
            return (<ArgRecord>self.n.arg).value
        if self.n.akind == ARG_INT:
            return self.n.iarg
        if self.n.akind == ARG_FLOAT:
            memcpy(&d, &self.n.iarg, 8)
            return d
        if self.n.akind == ARG_BOOL:
            return self.n.iarg != 0
        return None

    @property
    def key(self):
        """The 128-bit content hash as 16 bytes: equal in every process."""
        cdef bytes b = PyBytes_FromStringAndSize(NULL, 16)
        cdef char *p = b
        memcpy(p, &self.n.h0, 8)
        memcpy(p + 8, &self.n.h1, 8)
        return b

    @property
    def vmin(self):
        """Greatest known lower bound of an integer or bool value, or None."""
        return self.n.vmin if self.n.flags & NODE_BOUNDED else None

    @property
    def vmax(self):
        """Least known upper bound of an integer or bool value, or None."""
        return self.n.vmax if self.n.flags & NODE_BOUNDED else None

    @property
    def shape(self):
        """Dims as a tuple of ints, or None for a node that has no shape."""
        return <object>self.n.shape if self.n.shape != NULL else None

    @property
    def ranges(self):
        """As `open_ranges`; on some ops UOp has a field of this name instead."""
        return _open_ranges(&self.n)

    @property
    def open_ranges(self):
        """The RANGEs that the value depends on and nothing below has ended, in loop order."""
        return _open_ranges(&self.n)

    @property
    def ended_ranges(self):
        """The sources that this op ends, () for an op that ends none."""
        cdef int e = OPS[self.n.op].range_end
        if e < 0 or <uint32_t>e >= self.n.nsrc:
            return ()
        return _tuple_of(self.n.src + e, <Py_ssize_t>self.n.nsrc - e)

    @property
    def device(self):
        """The DEVICE node that the value lives on, or None."""
        return <object>object_of(self.n.device) if self.n.device != NULL else None

    @property
    def provenance(self):
        """What was current when this node was first built; no part of identity."""
        return <object>self.n.provenance if self.n.provenance != NULL else None

    @property
    def realized(self):
        """The node whose memory holds this value, or None."""
        return <object>self.n.realized if self.n.realized != NULL else None

    @realized.setter
    def realized(self, value):
        cdef PyObject *old = self.n.realized
        if value is None:
            self.n.realized = NULL
        else:
            if value is self:
                raise ValueError("a node cannot hold its own value")
            peek(value)
            c_incref(<PyObject *>value)
            self.n.realized = <PyObject *>value
        if old != NULL:
            c_decref(old)

    def has(self, op):
        """True if `op` occurs here or below."""
        cdef int i = op
        if not 0 <= i < 128:
            raise ValueError(f"unknown op {op}")
        return ((self.n.below0 if i < 64 else self.n.below1) >> (i & 63)) & 1 != 0

    def __reduce__(self):
        # A flat list, sources first: pickling must not recurse along the graph.
        from morok._core.construct import rebuild
        from morok._core.walk import toposort

        place = {}
        rows = []
        for u in toposort(self):
            place[u] = len(rows)
            rows.append((u.op.name, u.dtype, tuple([place[s] for s in u.src]), u.arg))
        return rebuild, (rows,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


cdef CNode *glance(PyObject *o) noexcept:
    """Fast entry: the structure of a Python node, borrowed, or NULL."""
    return &(<Node>o).n if c_type(o) == _uop_type else NULL


cdef CNode *peek(object o) except NULL:
    """Fast entry: the structure of a Python node, borrowed."""
    if c_type(<PyObject *>o) != _uop_type:
        raise TypeError(f"expected a UOp, got {type(o).__name__}")
    return &(<Node>o).n


cdef object take(CNode *n):
    """Fast entry: an owned reference becomes a Python object."""
    cdef object o = <object>object_of(n)
    c_decref(object_of(n))
    return o


# ---- building -----------------------------------------------------------------------------------

cdef CNode *_find(
    uint64_t hash,
    uint16_t op,
    uint16_t dtype,
    uint32_t nsrc,
    CNode **src,
    uint8_t akind,
    int64_t iarg,
    PyObject *arg,
) noexcept:
    """The living node of this structure, borrowed, or NULL."""
    cdef uint64_t i = table_home(&_nodes, hash)
    cdef uint32_t k
    cdef CNode *n
    while True:
        n = <CNode *>_nodes.entries[i].item
        if n == NULL:
            return NULL
        if (_nodes.entries[i].hash == hash and n.op == op and n.dtype == dtype and n.nsrc == nsrc
                and n.akind == akind and n.arg == arg
                and (n.iarg == iarg or akind == ARG_OBJECT or akind == ARG_NONE)):
            k = 0
            while k < nsrc and n.src[k] == src[k]:
                k += 1
            # A node whose count is 0 is dying (a callback of a weak reference runs): a miss.
            if k == nsrc and c_refcount(object_of(n)) != 0:
                return n
        i = (i + 1) & _nodes.mask


cdef void hash_head(
    uint16_t op,
    uint16_t dtype,
    uint32_t nsrc,
    uint8_t akind,
    int64_t iarg,
    PyObject *arg,
    uint64_t *a,
    uint64_t *b,
) noexcept:
    """Fast entry: begins the content hash of a node."""
    cdef uint64_t x, y
    x = OPS[op].seed0 ^ DTYPES[dtype].seed0 ^ (<uint64_t>akind << 56) ^ <uint64_t>nsrc
    y = mk_mix(OPS[op].seed1 ^ DTYPES[dtype].seed1 ^ <uint64_t>0x9E3779B97F4A7C15, x | 1)
    if akind == ARG_OBJECT:
        x = mk_mix(x ^ (<ArgRecord>arg).h0, <uint64_t>0xD6E8FEB86659FD93)
        y = mk_mix(y ^ (<ArgRecord>arg).h1, <uint64_t>0xA0761D6478BD642F)
    elif akind != ARG_NONE:
        x = mk_mix(x ^ <uint64_t>iarg, <uint64_t>0xD6E8FEB86659FD93)
        y = mk_mix(y + <uint64_t>iarg, <uint64_t>0xA0761D6478BD642F)
    a[0] = x
    b[0] = y


cdef void hash_source(uint64_t *a, uint64_t *b, uint64_t h0, uint64_t h1) noexcept:
    """Fast entry: the next source, by its hash."""
    a[0] = mk_mix(a[0] ^ h0, <uint64_t>0xE7037ED1A0B428DB + b[0])
    b[0] = mk_mix(b[0] ^ h1, <uint64_t>0x8EBC6AF09C88C6E3 + a[0])


cdef uint64_t hash_tail(uint64_t a, uint64_t b) noexcept:
    """Fast entry: the low half of the hash; `b` is the high half."""
    return mk_mix(a ^ b, <uint64_t>0x589965CC75374CC3)


cdef inline uint16_t _over(uint16_t op) noexcept:
    """What a source of this op adds to the flags of its user."""
    if op == OP_CONST or op == OP_VCONST or op == OP_VECTORIZE:
        return NODE_OVER_CONST
    return NODE_OVER_ADD if op == OP_ADD else NODE_OVER_MUL if op == OP_MUL else 0


cdef inline uint16_t _kinship(CNode *a, CNode *b) noexcept:
    """The flags of a node with these two sources that say where a node occurs twice."""
    cdef uint32_t i, k
    cdef uint16_t flags = 0
    if a.nsrc > 3 or b.nsrc > 3:
        return NODE_RIGHT_IN_LEFT | NODE_LEFT_IN_RIGHT | NODE_KIN  # it may be so
    for i in range(a.nsrc):
        if a.few[i] == b:
            flags |= NODE_RIGHT_IN_LEFT
        for k in range(b.nsrc):
            if a.few[i] == b.few[k]:
                flags |= NODE_KIN
    for k in range(b.nsrc):
        if b.few[k] == a:
            flags |= NODE_LEFT_IN_RIGHT
    return flags


cdef CNode *intern(
    uint16_t op,
    uint16_t dtype,
    uint32_t nsrc,
    CNode **src,
    uint8_t akind,
    int64_t iarg,
    PyObject *arg,
) except NULL:
    """Fast entry: the node of this structure, a new reference. `arg` is an ArgRecord or NULL."""
    global _built, _hits
    cdef uint64_t a, b, built
    cdef uint32_t k
    cdef CNode *n
    cdef CNode *found
    cdef Node u
    hash_head(op, dtype, nsrc, akind, iarg, arg, &a, &b)
    for k in range(nsrc):
        hash_source(&a, &b, src[k].h0, src[k].h1)
    a = hash_tail(a, b)
    n = _find(a, op, dtype, nsrc, src, akind, iarg, arg)
    if n != NULL:
        c_incref(object_of(n))
        _hits += 1
        return n
    if _uop_type == NULL:
        raise RuntimeError("no node class is registered: import morok.ir")
    # Until it is in the table, `u` owns its shape, ranges and malloc'ed list of sources, no more.
    built = _built
    u = <Node>mk_new_object(_uop_type)
    n = &u.n
    n.src = n.few
    if nsrc > 3:
        n.src = <CNode **>malloc(nsrc * sizeof(CNode *))
        if n.src == NULL:
            raise MemoryError()
    n.op = op
    n.dtype = dtype
    n.akind = akind
    n.nsrc = nsrc
    n.h0 = a
    n.h1 = b
    n.iarg = iarg
    n.arg = arg
    if op < 64:
        n.below0 = <uint64_t>1 << op
    else:
        n.below1 = <uint64_t>1 << (op - 64)
    for k in range(nsrc):
        n.src[k] = src[k]
        n.flags |= _over(src[k].op)
        n.below0 |= src[k].below0
        n.below1 |= src[k].below1
    if nsrc == 2:
        n.flags |= _kinship(src[0], src[1])
    elif op == OP_CONST:
        n.flags |= const_class(akind, iarg) << NODE_VALUE_SHIFT
    infer_all(n)
    if n.flags & NODE_BOUNDED and n.vmin == n.vmax:
        n.flags |= NODE_POINT
    if built != _built:
        # Inference ran Python code, and so another thread, which may have built the same node.
        found = _find(a, op, dtype, nsrc, src, akind, iarg, arg)
        if found != NULL:
            c_incref(object_of(found))
            _hits += 1
            return found
    table_reserve(&_nodes)
    for k in range(nsrc):
        c_incref(object_of(src[k]))
    if arg != NULL:
        c_incref(arg)
    if mk_provenance != NULL:
        c_incref(mk_provenance)
        n.provenance = mk_provenance
    table_insert(&_nodes, a, n)
    n.flags |= NODE_INTERNED
    _built += 1
    c_incref(object_of(n))
    return n


cdef CNode *const_int(uint16_t dtype, int64_t value) except NULL:
    """Fast entry: an integer (or, for bool, truth) constant."""
    cdef uint8_t akind = ARG_BOOL if DTYPES[dtype].kind == c'b' else ARG_INT
    return intern(OP_CONST, dtype, 0, NULL, akind, value, NULL)


cdef CNode *with_sources(CNode *n, CNode **src) except NULL:
    """Fast entry: `n` with other sources, op, dtype and argument kept."""
    return intern(n.op, n.dtype, n.nsrc, src, n.akind, n.iarg, n.arg)


cdef CNode *build_alu(uint16_t op, uint32_t nsrc, CNode **src) except NULL:
    """Fast entry: a node without argument whose dtype follows from its sources."""
    return intern(op, infer_dtype(op, src, nsrc), nsrc, src, ARG_NONE, 0, NULL)


# ---- all nodes ----------------------------------------------------------------------------------

cdef int adopt_class(type cls, void *construct) except -1:
    """Make `cls` the class of every node. Once per process."""
    global _uop_type
    if _uop_type != NULL:
        raise RuntimeError("the node class is registered already")
    if not issubclass(cls, Node) or cls.__basicsize__ != Node.__basicsize__:
        raise TypeError("the node class must derive from Node and have __slots__ = ()")
    if <size_t>Node.__basicsize__ != MK_SLOT_BYTES:
        raise TypeError(f"a node has {Node.__basicsize__} bytes, its slots have {MK_SLOT_BYTES}")
    mk_adopt(<PyTypeObject *>cls, <PyTypeObject *>Node, construct)
    _uop_type = <PyTypeObject *>cls
    return 0


cdef void clear_normal(uint64_t mask) noexcept:
    """Fast entry: forget, for every node, that the rule sets of these bits have simplified it."""
    cdef uint64_t i
    for i in range(_nodes.mask + 1):
        if _nodes.entries[i].item != NULL:
            (<CNode *>_nodes.entries[i].item).normal &= ~mask


cdef uint32_t new_mark() noexcept:
    """Fast entry: a mark that no node has."""
    global _walks
    cdef uint64_t i
    _walks += 1
    if _walks == 0:  # all numbers are used up: begin again
        for i in range(_nodes.mask + 1):
            if _nodes.entries[i].item != NULL:
                (<CNode *>_nodes.entries[i].item).mark = 0
        _walks = 1
    return _walks


def node_stats():
    """Counts since the process began: nodes `built`, `hits` of the table; now `live` nodes, live
    `arguments`, `slots` of the table; `node_bytes` of one object; `memory`, bytes held for objects
    and table."""
    return {
        "live": _nodes.used,
        "built": _built,
        "hits": _hits,
        "arguments": count_records(),
        "slots": _nodes.mask + 1,
        "node_bytes": Node.__basicsize__,
        "memory": mk_slot_memory() + (_nodes.mask + 1) * sizeof(Entry),
    }
