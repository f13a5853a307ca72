"""Interned nodes.

A node is `(op, dtype, sources, argument)`. Building the same structure twice gives the same object, from any
thread: the table below maps the 128-bit content hash to the living node and compares structure on a hit. The
table borrows its nodes; a node leaves it when it dies.

Ownership: a node owns its sources, its argument record, its shape, its share of the range set, its provenance
and the node that holds its realized value. `device` and the members of the range set lie below the node and
are borrowed. Sources are released through an explicit stack, so that a chain of any depth can die.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from morok._core.infer cimport (
    DTYPES,
    OP_CONST,
    OPS,
    dtype_id,
    infer_all,
    infer_dtype,
)
from morok._core.scope cimport release_ranges
from morok._core.types cimport (
    ARG_BOOL,
    ARG_FLOAT,
    ARG_INT,
    ARG_NONE,
    ARG_OBJECT,
    NODE_BOUNDED,
    CNode,
    mk_mix,
)

import dataclasses
import enum
import hashlib
import struct

from morok.dtype import DType

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)
    Py_ssize_t c_refcount "Py_REFCNT"(PyObject *)
    PyTypeObject *c_type "Py_TYPE"(PyObject *)
    PyObject *c_alloc "PyType_GenericAlloc"(PyTypeObject *, Py_ssize_t)
    int64_t PyLong_AsLongLongAndOverflow(object, int *) except? -1
    PyObject *c_item "PyTuple_GET_ITEM"(object, Py_ssize_t)
    int PyType_IsSubtype(PyTypeObject *, PyTypeObject *)
    Py_ssize_t PyVectorcall_NARGS(size_t)
    ctypedef object (*vectorcallfunc)(object, PyObject *const *, size_t, PyObject *)
    struct c_type_struct "_typeobject":
        void *tp_vectorcall


# ---- the table ------------------------------------------------------------------------------------

cdef struct Entry:
    uint64_t hash  # h0 of the node
    CNode *node  # borrowed; NULL = empty

cdef Entry *_table = NULL
cdef uint64_t _mask = 0
cdef uint64_t _live = 0, _built = 0, _hits = 0
cdef PyTypeObject *_uop_type = NULL
cdef object _uop_class = None


cdef int _table_alloc(uint64_t capacity) except -1:
    global _table, _mask
    cdef Entry *fresh = <Entry *>calloc(capacity, sizeof(Entry))
    if fresh == NULL:
        raise MemoryError()
    _table = fresh
    _mask = capacity - 1
    return 0


_table_alloc(1 << 14)


cdef int _table_grow() except -1:
    cdef Entry *old = _table
    cdef uint64_t n = _mask + 1, i, j
    _table_alloc(n * 2)
    for i in range(n):
        if old[i].node != NULL:
            j = old[i].hash & _mask
            while _table[j].node != NULL:
                j = (j + 1) & _mask
            _table[j] = old[i]
    free(old)
    return 0


cdef void _table_remove(CNode *n) noexcept:
    """Backward-shift deletion: no tombstones, so churn does not slow the table down."""
    global _live
    cdef uint64_t i = n.h0 & _mask, j, home
    while _table[i].node != n:
        if _table[i].node == NULL:
            return
        i = (i + 1) & _mask
    _live -= 1
    j = i
    while True:
        _table[i].node = NULL
        while True:
            j = (j + 1) & _mask
            if _table[j].node == NULL:
                return
            home = _table[j].hash & _mask
            if ((j - home) & _mask) >= ((j - i) & _mask):
                break
        _table[i] = _table[j]
        i = j


# ---- arguments ------------------------------------------------------------------------------------

cdef dict _arguments = {}  # canonical spelling -> ArgRecord, as long as a node uses it
cdef dict _enum_spelling = {}  # Enum members live for ever, so their spellings may too


cdef class ArgRecord:
    """One interned argument. Equal spelling = equal argument; types, signs of zero and NaN bits count."""

    def __init__(self):
        raise TypeError("ArgRecord is made by the core")


cdef str _spell(object v):
    cdef type t = type(v)
    if t is int:
        return str(v)
    if t is tuple:
        return "(" + ",".join([_spell(x) for x in v]) + ")"
    if t is bool:
        return "T" if v else "F"
    if v is None:
        return "N"
    if t is float:
        return "f" + struct.pack(">d", v).hex()
    if t is str:
        return repr(v)
    if t is bytes:
        return "b" + v.hex()
    if isinstance(v, enum.Enum):
        s = _enum_spelling.get(v)
        if s is None:
            s = _enum_spelling[v] = f"E{t.__name__}.{v.name}"
        return s
    if t is DType:
        return "D" + v.name
    if dataclasses.is_dataclass(t) and t.__dataclass_params__.frozen:
        return "C" + t.__name__ + "(" + ",".join([_spell(getattr(v, f)) for f in t.__dataclass_fields__]) + ")"
    raise TypeError(
        f"an argument of type {t.__name__} cannot be part of a node: "
        "use None, bool, int, float, str, bytes, Enum, DType, a frozen dataclass or a tuple of those"
    )


cdef ArgRecord _record(object v):
    cdef bytes spelling = _spell(v).encode()
    cdef ArgRecord r
    cdef bytes digest
    found = _arguments.get(spelling)
    if found is not None:
        return <ArgRecord>found
    r = ArgRecord.__new__(ArgRecord)
    r.value = v
    r.spelling = spelling
    digest = hashlib.blake2b(spelling, digest_size=16).digest()
    memcpy(&r.h0, <const char *>digest, 8)
    memcpy(&r.h1, <const char *>digest + 8, 8)
    r.uses = 0
    _arguments[spelling] = r
    return r


cdef void _release_argument(PyObject *arg):
    cdef ArgRecord r = <ArgRecord>arg
    r.uses -= 1
    if r.uses == 0:
        _arguments.pop(r.spelling, None)
    c_decref(arg)


# ---- dying ----------------------------------------------------------------------------------------

cdef PyObject **_dying = NULL  # references to give back, once their holders are gone
cdef Py_ssize_t _n_dying = 0, _cap_dying = 0
cdef bint _draining = False


cdef void _bury(PyObject *o) noexcept:
    global _dying, _n_dying, _cap_dying
    if _n_dying == _cap_dying:
        _cap_dying = _cap_dying * 2 if _cap_dying else 256
        _dying = <PyObject **>realloc(_dying, _cap_dying * sizeof(PyObject *))
    _dying[_n_dying] = o
    _n_dying += 1


cdef void _drain() noexcept:
    """Drop what is waiting. Deaths that this causes only add to the list: no recursion."""
    global _n_dying, _draining
    cdef PyObject *o
    if _draining:
        return
    _draining = True
    while _n_dying:
        _n_dying -= 1
        o = _dying[_n_dying]
        c_decref(o)
    _draining = False


# ---- provenance -----------------------------------------------------------------------------------

cdef extern from "provenance.h":
    PyObject *mk_provenance  # per thread


cdef object swap_provenance(object new):
    """Make `new` the current provenance of this thread; the previous one (None if none)."""
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
    """Stamp `obj` (the user's line, a tensor method …) on nodes this thread builds; returns what was set before."""
    return swap_provenance(obj)


# ---- nodes ----------------------------------------------------------------------------------------

@cython.no_gc
cdef class Node:
    """Base of UOp. Holds the C structure; has no Python fields."""

    def __init__(self, *args, **kwargs):
        raise TypeError("nodes are made by UOp(op, dtype, src, arg)")

    def __dealloc__(self):
        # Leave the table first: a callback may build the same structure while this object dies.
        cdef CNode *n = &self.n
        cdef uint32_t i
        if n.self == NULL:
            return
        _table_remove(n)
        for i in range(n.nsrc):
            _bury(n.src[i].self)
        if n.src != n.few:
            free(n.src)
        if n.arg != NULL:
            _release_argument(n.arg)
        if n.shape != NULL:
            c_decref(n.shape)
        release_ranges(n.ranges)
        if n.realized != NULL:
            _bury(n.realized)
        if n.provenance != NULL:
            _bury(n.provenance)
        n.self = NULL
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
        cdef uint32_t i
        cdef tuple t = PyTuple_New(self.n.nsrc)
        cdef object o
        for i in range(self.n.nsrc):
            o = <object>self.n.src[i].self
            Py_INCREF(o)
            PyTuple_SET_ITEM(t, i, o)
        return t

    @property
    def arg(self):
        """The argument: None, bool, int, float, or the object given by the first who built this node."""
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
        """The open RANGEs, in loop order (axis number, then content)."""
        cdef uint32_t i
        if self.n.ranges == NULL:
            return ()
        return tuple([<object>self.n.ranges.members[i].self for i in range(self.n.ranges.n)])

    @property
    def device(self):
        """The DEVICE node that the value lives on, or None."""
        return <object>self.n.device.self if self.n.device != NULL else None

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
        cdef int i = int(op)
        return ((self.n.below0 if i < 64 else self.n.below1) >> (i & 63)) & 1 != 0

    def __reduce__(self):
        # A flat list, sources first: pickling must not recurse along the graph.
        from morok._core.walk import toposort

        place = {}
        rows = []
        for u in toposort(self):
            place[u] = len(rows)
            rows.append((u.op.name, u.dtype, tuple([place[s] for s in u.src]), u.arg))
        return _rebuild, (rows,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


def _rebuild(rows):
    """The last node of a pickled list of rows (op name, dtype, places of sources, argument)."""
    ops = {(<object>OPS[i].member).name: <object>OPS[i].member for i in range(128) if OPS[i].known}
    out = []
    for name, dtype, src, arg in rows:
        out.append(node(ops[name], dtype, tuple([out[i] for i in src]), arg))
    return out[len(out) - 1]


cdef CNode *peek(object o) except NULL:
    """Fast entry: the structure of a Python node, borrowed."""
    if c_type(<PyObject *>o) != _uop_type:
        raise TypeError(f"expected a UOp, got {type(o).__name__}")
    return &(<Node>o).n


cdef object take(CNode *n):
    """Fast entry: an owned reference becomes a Python object."""
    cdef object o = <object>n.self
    c_decref(n.self)
    return o


cdef void _discard(CNode *n):
    """Give back what a node that never entered the table owns. `n.self` is NULL: it will die silently."""
    if n.src != n.few:
        free(n.src)
        n.src = n.few
    if n.shape != NULL:
        c_decref(n.shape)
        n.shape = NULL
    release_ranges(n.ranges)
    n.ranges = NULL


cdef CNode *_find(uint64_t hash, uint16_t op, uint16_t dtype, uint32_t nsrc, CNode **src, uint8_t akind,
                  int64_t iarg, PyObject *arg) noexcept:
    """The living node of this structure, borrowed, or NULL."""
    cdef uint64_t i = hash & _mask
    cdef uint32_t k
    cdef CNode *n
    while True:
        n = _table[i].node
        if n == NULL:
            return NULL
        if (_table[i].hash == hash and n.op == op and n.dtype == dtype and n.nsrc == nsrc and n.akind == akind
                and n.arg == arg and (n.iarg == iarg or akind == ARG_OBJECT or akind == ARG_NONE)):
            k = 0
            while k < nsrc and n.src[k] == src[k]:
                k += 1
            # A node whose count is 0 is dying (a weak reference's callback runs): it must not be found.
            if k == nsrc and c_refcount(n.self) != 0:
                return n
        i = (i + 1) & _mask


cdef CNode *intern(uint16_t op, uint16_t dtype, uint32_t nsrc, CNode **src, uint8_t akind, int64_t iarg,
                   PyObject *arg) except NULL:
    """Fast entry: the node of this structure, a new reference. `arg` is an ArgRecord or NULL."""
    global _live, _built, _hits
    cdef uint64_t a, b, i
    cdef uint32_t k
    cdef CNode *n
    cdef CNode *found
    cdef PyObject *o
    cdef Node u
    a = OPS[op].seed0 ^ DTYPES[dtype].seed0 ^ (<uint64_t>akind << 56) ^ <uint64_t>nsrc
    b = mk_mix(OPS[op].seed1 ^ DTYPES[dtype].seed1 ^ <uint64_t>0x9E3779B97F4A7C15, a | 1)
    if akind == ARG_OBJECT:
        a = mk_mix(a ^ (<ArgRecord>arg).h0, <uint64_t>0xD6E8FEB86659FD93)
        b = mk_mix(b ^ (<ArgRecord>arg).h1, <uint64_t>0xA0761D6478BD642F)
    elif akind != ARG_NONE:
        a = mk_mix(a ^ <uint64_t>iarg, <uint64_t>0xD6E8FEB86659FD93)
        b = mk_mix(b + <uint64_t>iarg, <uint64_t>0xA0761D6478BD642F)
    for k in range(nsrc):
        a = mk_mix(a ^ src[k].h0, <uint64_t>0xE7037ED1A0B428DB + b)
        b = mk_mix(b ^ src[k].h1, <uint64_t>0x8EBC6AF09C88C6E3 + a)
    a = mk_mix(a ^ b, <uint64_t>0x589965CC75374CC3)
    n = _find(a, op, dtype, nsrc, src, akind, iarg, arg)
    if n != NULL:
        c_incref(n.self)
        _hits += 1
        return n
    if _uop_type == NULL:
        raise RuntimeError("no node class is registered: import morok.ir")
    o = c_alloc(_uop_type, 0)
    if o == NULL:
        raise MemoryError()
    u = <Node>o
    n = &u.n
    n.op = op
    n.dtype = dtype
    n.akind = akind
    n.nsrc = nsrc
    n.h0 = a
    n.h1 = b
    n.iarg = iarg
    n.arg = arg
    n.src = n.few
    if nsrc > 3:
        n.src = <CNode **>malloc(nsrc * sizeof(CNode *))
        if n.src == NULL:
            c_decref(o)
            raise MemoryError()
    if op < 64:
        n.below0 = <uint64_t>1 << op
    else:
        n.below1 = <uint64_t>1 << (op - 64)
    for k in range(nsrc):
        n.src[k] = src[k]
        n.below0 |= src[k].below0
        n.below1 |= src[k].below1
    try:
        infer_all(n)
    except BaseException:
        _discard(n)
        c_decref(o)
        raise
    # Inference may have run Python code, and so another thread, which may have built the same node.
    found = _find(a, op, dtype, nsrc, src, akind, iarg, arg)
    if found != NULL:
        _discard(n)
        c_decref(o)
        c_incref(found.self)
        _hits += 1
        return found
    for k in range(nsrc):
        c_incref(src[k].self)
    if arg != NULL:
        c_incref(arg)
        (<ArgRecord>arg).uses += 1
    n.self = o
    if mk_provenance != NULL:
        c_incref(mk_provenance)
        n.provenance = mk_provenance
    i = a & _mask
    while _table[i].node != NULL:
        i = (i + 1) & _mask
    _table[i].hash = a
    _table[i].node = n
    _live += 1
    _built += 1
    if _live * 2 > _mask:
        _table_grow()
    # `u` and `o` are one reference each: keep one for the caller, Cython gives back `u`.
    return n


cdef CNode *const_int(uint16_t dtype, int64_t value) except NULL:
    """Fast entry: an integer (or, for bool, truth) constant."""
    if DTYPES[dtype].kind == c'b':
        return intern(OP_CONST, dtype, 0, NULL, ARG_BOOL, value, NULL)
    return intern(OP_CONST, dtype, 0, NULL, ARG_INT, value, NULL)


cdef CNode *with_sources(CNode *n, CNode **src) except NULL:
    """Fast entry: `n` with other sources, op, dtype and argument kept."""
    return intern(n.op, n.dtype, n.nsrc, src, n.akind, n.iarg, n.arg)


cdef CNode *build_alu(uint16_t op, uint32_t nsrc, CNode **src) except NULL:
    """Fast entry: a node without argument whose dtype follows from its sources."""
    return intern(op, infer_dtype(op, src, nsrc), nsrc, src, ARG_NONE, 0, NULL)


cdef object _make(int op, uint16_t dtype, object src, object arg):
    cdef CNode *few[8]
    cdef CNode **p = few
    cdef Py_ssize_t i, n
    cdef int64_t iarg = 0
    cdef uint8_t akind = ARG_NONE
    cdef int overflow = 0
    cdef double d
    cdef ArgRecord r = None
    cdef CNode *out
    if type(src) is not tuple:
        raise TypeError(f"src must be a tuple of UOps, got {type(src).__name__}")
    if not 0 <= op < 128 or not OPS[op].known:
        raise ValueError(f"unknown op {op}")
    n = PyTuple_GET_SIZE(src)
    if arg is not None:
        if type(arg) is int:
            iarg = PyLong_AsLongLongAndOverflow(arg, &overflow)
            akind = ARG_INT
            if overflow:
                iarg = 0
        elif type(arg) is float:
            d = arg
            memcpy(&iarg, &d, 8)
            akind = ARG_FLOAT
        elif type(arg) is bool:
            iarg = 1 if arg else 0
            akind = ARG_BOOL
        if akind == ARG_NONE or overflow:
            r = _record(arg)
            akind = ARG_OBJECT
    if n > 8:
        p = <CNode **>PyMem_Malloc(n * sizeof(CNode *))
        if p == NULL:
            raise MemoryError()
    try:
        for i in range(n):
            if c_type(c_item(src, i)) != _uop_type:
                raise TypeError(
                    f"source {i} of {(<object>OPS[op].member).name} must be a UOp, got {type(src[i]).__name__}")
            p[i] = &(<Node>c_item(src, i)).n
        out = intern(op, dtype, n, p, akind, iarg, <PyObject *>r if r is not None else NULL)
    finally:
        if p != few:
            PyMem_Free(p)
        if r is not None and r.uses == 0:
            _arguments.pop(r.spelling, None)
    return take(out)


def node(op, dtype, src=(), arg=None):
    """The node of this structure: the same object for the same structure."""
    return _make(op, dtype_id(dtype), src, arg)


def build(op, src, arg=None):
    """Like `node`, with the dtype inferred from the sources by the op's dtype kind."""
    cdef CNode *few[8]
    cdef Py_ssize_t i, n = len(src)
    if n > 8:
        raise ValueError("build() takes at most 8 sources")
    for i in range(n):
        few[i] = peek(src[i])
    return _make(op, infer_dtype(op, few, n), src, arg)


cdef object _vectorcall(object cls, PyObject *const *args, size_t nargsf, PyObject *kwnames):
    """UOp(op, dtype, src=(), arg=None)."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i
    cdef object src = (), arg = None
    if kwnames == NULL and 2 <= n <= 4:
        if n > 2:
            src = <object>args[2]
        if n > 3:
            arg = <object>args[3]
        return _make(<object>args[0], dtype_id(<object>args[1]), src, arg)
    positional = [<object>args[i] for i in range(n)]
    named = {}
    if kwnames != NULL:
        for i, name in enumerate(<tuple>kwnames):
            named[name] = <object>args[n + i]
    return node(*positional, **named)


def register_uop_class(cls):
    """Make `cls`, a subclass of Node without fields, the class of every node. Once per process."""
    global _uop_type, _uop_class
    if _uop_class is not None:
        raise RuntimeError("the node class is registered already")
    if not issubclass(cls, Node) or cls.__basicsize__ != Node.__basicsize__:
        raise TypeError("the node class must derive from Node and have __slots__ = ()")
    _uop_class = cls
    _uop_type = <PyTypeObject *>cls
    (<c_type_struct *>_uop_type).tp_vectorcall = <void *><vectorcallfunc>_vectorcall


cdef void clear_normal(uint64_t mask) noexcept:
    """Fast entry: forget, for every living node, that the rule sets of these bits have simplified it."""
    cdef uint64_t i
    for i in range(_mask + 1):
        if _table[i].node != NULL:
            _table[i].node.normal &= ~mask


def node_stats():
    """Counts since the process began: nodes `built`, `hits` of the table; now `live` nodes, live `arguments`."""
    return {"live": _live, "built": _built, "hits": _hits, "arguments": len(_arguments), "slots": _mask + 1,
            "node_bytes": Node.__basicsize__}
