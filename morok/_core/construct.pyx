"""Where Python builds nodes: `UOp(op, dtype, src, arg)`, `node`, `build`."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memcpy

from morok._core.argument cimport ArgRecord, record_of
from morok._core.infer cimport OPS, dtype_id, infer_dtype
from morok._core.node cimport adopt_class, glance, intern, take
from morok._core.types cimport ARG_BOOL, ARG_FLOAT, ARG_INT, ARG_NONE, ARG_OBJECT, CNode

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object, int *) except? -1
    PyObject *c_item "PyTuple_GET_ITEM"(object, Py_ssize_t)
    Py_ssize_t PyVectorcall_NARGS(size_t)
    ctypedef object (*vectorcallfunc)(object, PyObject *const *, size_t, PyObject *)
    ctypedef struct TypeStruct "PyTypeObject":
        void *tp_getattro
    void PyType_Modified(type)

cdef enum:
    FEW = 16  # sources handled without malloc


cdef int _read_sources(int op, tuple src, CNode **out) except -1:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(src)):
        out[i] = glance(c_item(src, i))
        if out[i] == NULL:
            raise TypeError(
                f"source {i} of {(<object>OPS[op].member).name} must be a UOp, "
                f"got {type(<object>c_item(src, i)).__name__}"
            )
    return 0


cdef CNode *_intern(int op, PyObject *dtype, Py_ssize_t n, CNode **src, object arg) except NULL:
    """The node with this argument and dtype (NULL: the one that follows from the sources)."""
    cdef uint16_t number
    cdef int64_t iarg = 0
    cdef int overflow = 0
    cdef double d
    cdef ArgRecord r
    number = infer_dtype(op, src, n) if dtype == NULL else dtype_id(<object>dtype)
    if arg is None:
        return intern(op, number, n, src, ARG_NONE, 0, NULL)
    if type(arg) is int:
        iarg = PyLong_AsLongLongAndOverflow(arg, &overflow)
        if not overflow:
            return intern(op, number, n, src, ARG_INT, iarg, NULL)
    elif type(arg) is float:
        d = arg
        memcpy(&iarg, &d, 8)
        return intern(op, number, n, src, ARG_FLOAT, iarg, NULL)
    elif arg is True or arg is False:
        return intern(op, number, n, src, ARG_BOOL, arg is True, NULL)
    r = record_of(arg)
    return intern(op, number, n, src, ARG_OBJECT, 0, <PyObject *>r)


cdef object _make(object op, PyObject *dtype, object src, object arg):
    cdef CNode *few[FEW]
    cdef CNode **p
    cdef Py_ssize_t n
    cdef int number = op
    if type(src) is not tuple:
        raise TypeError(f"src must be a tuple of UOps, got {type(src).__name__}")
    if not 0 <= number < 128 or not OPS[number].known:
        raise ValueError(f"unknown op {op}")
    n = PyTuple_GET_SIZE(src)
    if n <= FEW:
        _read_sources(number, <tuple>src, few)
        return take(_intern(number, dtype, n, few, arg))
    p = <CNode **>PyMem_Malloc(n * sizeof(CNode *))
    if p == NULL:
        raise MemoryError()
    try:
        _read_sources(number, <tuple>src, p)
        return take(_intern(number, dtype, n, p, arg))
    finally:
        PyMem_Free(p)


def node(op, dtype, src=(), arg=None):
    """The node of this structure: the same object for the same structure."""
    return _make(op, <PyObject *>dtype, src, arg)


def build(op, src, arg=None):
    """Like `node`, with the dtype inferred from the sources by the op's dtype kind."""
    return _make(op, NULL, src if type(src) is tuple else tuple(src), arg)


cdef tuple _PARAMETERS = ("op", "dtype", "src", "arg")


cdef object _with_names(PyObject *const *args, Py_ssize_t n, tuple names):
    """The call with keywords, or with a wrong number of arguments."""
    cdef PyObject *given[4]
    cdef Py_ssize_t i, place
    if n > 4:
        raise TypeError(f"UOp() takes op, dtype, src and arg, got {n} positional arguments")
    for i in range(4):
        given[i] = args[i] if i < n else NULL
    for i in range(len(names)):
        place = 0
        while place < 4 and names[i] != _PARAMETERS[place]:
            place += 1
        if place == 4 or given[place] != NULL:
            raise TypeError(f"UOp() got an unexpected or repeated argument {names[i]!r}")
        given[place] = args[n + i]
    for i in range(2):
        if given[i] == NULL:
            raise TypeError(f"UOp() needs the argument {_PARAMETERS[i]!r}")
    return _make(
        <object>given[0],
        given[1],
        <object>given[2] if given[2] != NULL else (),
        <object>given[3] if given[3] != NULL else None,
    )


cdef object _vectorcall(object cls, PyObject *const *args, size_t nargsf, PyObject *kwnames):
    """UOp(op, dtype, src=(), arg=None)."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    if kwnames == NULL:
        if n == 3:
            return _make(<object>args[0], args[1], <object>args[2], None)
        if n == 4:
            return _make(<object>args[0], args[1], <object>args[2], <object>args[3])
        if n == 2:
            return _make(<object>args[0], args[1], (), None)
        return _with_names(args, n, ())
    return _with_names(args, n, <tuple>kwnames)


def register_uop_class(cls):
    """Make `cls`, a subclass of Node without fields, the class of every node. Once per process."""
    adopt_class(cls, <void *><vectorcallfunc>_vectorcall)


def plain_lookup(type metaclass):
    """Look attributes of the classes of `metaclass` up as those of any class.

    Before Python 3.12 the metaclass of enums has a `__getattr__`, which finds nothing that `type`
    does not, and whose presence alone makes `Ops.ADD` six times as slow.
    """
    if not issubclass(metaclass, type):
        raise TypeError(f"{metaclass.__name__} is no metaclass")
    (<TypeStruct *>metaclass).tp_getattro = (<TypeStruct *>type).tp_getattro
    PyType_Modified(metaclass)


def rebuild(rows):
    """The last node of a pickled list of rows (op name, dtype, places of sources, argument)."""
    cdef int i
    ops = {}
    for i in range(128):
        if OPS[i].known:
            ops[(<object>OPS[i].member).name] = <object>OPS[i].member
    out = []
    for name, dtype, src, arg in rows:
        out.append(node(ops[name], dtype, tuple([out[j] for j in src]), arg))
    return out[len(out) - 1]
