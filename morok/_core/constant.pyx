"""Constants: reading and making them.

A constant is a CONST holding a number, or a vector that repeats one: VCONST with equal lanes (the
canonical form, which is what is made here) or VECTORIZE of one CONST. So rules need no vector
twins.
"""

from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from morok._core.bounds cimport type_limits
from morok._core.infer cimport DTYPES, OP_CONST, OP_VCONST, OP_VECTORIZE
from morok._core.node cimport ArgRecord, const_int, intern, peek, take
from morok._core.types cimport ARG_BOOL, ARG_FLOAT, ARG_INT, ARG_NONE, ARG_OBJECT, CNode, object_of

from morok._core.construct import node
from morok.dtype import cast_value

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    PyObject *c_item "PyTuple_GET_ITEM"(object, Py_ssize_t)
    int64_t PyLong_AsLongLongAndOverflow(object, int *) except? -1


cdef bint _lane_payload(object lane, uint8_t *akind, int64_t *iarg) noexcept:
    """Argument kind and bits of a Python number; 0 for anything else."""
    cdef int overflow = 0
    cdef double d
    if type(lane) is int:
        iarg[0] = PyLong_AsLongLongAndOverflow(lane, &overflow)
        akind[0] = ARG_INT
        return not overflow
    if type(lane) is float:
        d = PyFloat_AS_DOUBLE(lane)
        memcpy(iarg, &d, 8)
        akind[0] = ARG_FLOAT
        return True
    if type(lane) is bool:
        iarg[0] = lane is True
        akind[0] = ARG_BOOL
        return True
    return False


cdef bint const_payload(CNode *n, uint8_t *akind, int64_t *iarg) noexcept:
    cdef uint32_t k
    cdef tuple lanes
    cdef Py_ssize_t i
    cdef uint8_t kind
    cdef int64_t bits
    if n.op == OP_CONST:
        akind[0] = n.akind
        iarg[0] = n.iarg
        return n.akind != ARG_OBJECT and n.akind != ARG_NONE
    if n.op == OP_VECTORIZE and n.nsrc > 0:
        for k in range(1, n.nsrc):
            if n.src[k] != n.src[0]:
                return False
        return n.src[0].op == OP_CONST and const_payload(n.src[0], akind, iarg)
    if n.op == OP_VCONST and n.akind == ARG_OBJECT:
        value = (<ArgRecord>n.arg).value
        if type(value) is not tuple:
            return False
        lanes = <tuple>value
        if PyTuple_GET_SIZE(lanes) == 0 or not _lane_payload(<object>c_item(lanes, 0), akind, iarg):
            return False
        for i in range(1, PyTuple_GET_SIZE(lanes)):
            if not _lane_payload(<object>c_item(lanes, i), &kind, &bits):
                return False
            if kind != akind[0] or bits != iarg[0]:
                return False
        return True
    return False


cdef bint is_constant(CNode *n) noexcept:
    cdef uint8_t akind = 0
    cdef int64_t iarg = 0
    if n.op == OP_CONST:
        # a big int is a number too; a shape or Invalid is none
        if n.akind == ARG_OBJECT:
            return type((<ArgRecord>n.arg).value) is int
        return n.akind != ARG_NONE
    return const_payload(n, &akind, &iarg)


cdef bint const_value(CNode *n, int64_t *value) noexcept:
    cdef uint8_t akind = 0
    if n.op == OP_CONST:
        value[0] = n.iarg
        return n.akind == ARG_INT or n.akind == ARG_BOOL
    return const_payload(n, &akind, value) and akind != ARG_FLOAT


cdef CNode *splat(uint16_t dtype, CNode *lane) except NULL:
    cdef object value
    cdef CNode *n
    if DTYPES[dtype].count == 1:
        c_incref(object_of(lane))
        return lane
    value = (<object>object_of(lane)).arg
    made = node(OP_VCONST, <object>DTYPES[dtype].obj, (), (value,) * DTYPES[dtype].count)
    n = peek(made)
    c_incref(object_of(n))
    return n


cdef CNode *_repeat(uint16_t dtype, CNode *lane) except NULL:
    """As `splat`, but consumes the reference to `lane`."""
    cdef object _held
    if DTYPES[dtype].count == 1:
        return lane
    _held = take(lane)
    return splat(dtype, lane)


cdef CNode *make_float(uint16_t scalar, double value) except NULL:
    """The CONST of a scalar float dtype; `value` is one of its values. All NaNs become one."""
    cdef int64_t bits
    if value != value:
        bits = 0x7FF8000000000000
    else:
        memcpy(&bits, &value, 8)
    return intern(OP_CONST, scalar, 0, NULL, ARG_FLOAT, bits, NULL)


cdef CNode *make_int(uint16_t dtype, int64_t value) except? NULL:
    cdef int64_t lo = 0, hi = 0
    cdef uint16_t scalar = DTYPES[dtype].scalar
    cdef uint8_t kind = DTYPES[dtype].kind
    if kind == c'x':
        return _repeat(dtype, const_int(scalar, value))
    if kind == c'f':
        return make_number(dtype, value)
    if not type_limits(scalar, &lo, &hi):
        if kind != c'u':
            return NULL
        hi = INT64_MAX
    if value < lo or value > hi:
        return NULL
    return _repeat(dtype, const_int(scalar, value))


cdef CNode *make_number(uint16_t dtype, object value) except? NULL:
    """A Python number as a constant of `dtype`, if it is exactly one of its values."""
    cdef uint16_t scalar = DTYPES[dtype].scalar
    cdef uint8_t kind = DTYPES[dtype].kind
    cdef CNode *n
    cdef int64_t v
    cdef int overflow = 0
    if kind == c'v' or kind == c'p':
        return NULL
    if kind == c'f':
        rounded = cast_value(float(value), <object>DTYPES[scalar].obj)
        if rounded != value and value == value:
            return NULL
        return _repeat(dtype, make_float(scalar, rounded))
    if type(value) is float:
        return NULL
    v = PyLong_AsLongLongAndOverflow(value, &overflow)
    if not overflow:
        return make_int(dtype, v)
    if kind != c'u' or DTYPES[dtype].bits != 64 or value < 0 or value >> 64:
        return NULL
    made = node(OP_CONST, <object>DTYPES[scalar].obj, (), value)
    n = peek(made)
    c_incref(object_of(n))
    return _repeat(dtype, n)
