"""Tensors as the core sees them: where their fields lie, and the memory that holds their value."""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

from morok._core.memory cimport Buffer
from morok._core.node cimport glance
from morok._core.types cimport CNode, object_of

cdef extern from "Python.h":
    Py_ssize_t c_refcount "Py_REFCNT"(PyObject *)
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef extern from "structmember.h":
    pass

cdef enum:
    KNOWN = 4096  # BUFFER numbers whose memory is remembered; a power of 2

cdef struct Known:
    int64_t number  # of the UNIQUE below a BUFFER
    PyObject *memory  # its Buffer, borrowed: valid while the BUFFER lives

cdef Known known[KNOWN]
cdef object memory_of_buffer = None  # BUFFER -> Buffer
cdef int op_reshape = -1
cdef int op_buffer = -1
cdef int op_shrink = -1
cdef object memory_under = None  # a SHRINK to symbolic dims -> what it shows all of


def configure(type cls, object buffer_of, int reshape, int buffer, int shrink, object under):
    global tensor_type, memory_of_buffer, op_reshape, op_buffer, op_shrink, memory_under
    at.uop = offset_of(cls, "uop")
    at.grad = offset_of(cls, "grad")
    at.home = offset_of(cls, "_home")
    at.rg = offset_of(cls, "_rg")
    at.leaf = offset_of(cls, "_leaf")
    tensor_type = <PyTypeObject *>cls
    memory_of_buffer = buffer_of
    op_reshape = reshape
    op_buffer = buffer
    op_shrink = shrink
    memory_under = under


cdef Py_ssize_t offset_of(object cls, str name) except -1:
    """Where a field in `__slots__` lies."""
    for base in cls.__mro__:
        found = base.__dict__.get(name)
        if found is not None:
            if type(found).__name__ != "member_descriptor":
                raise TypeError(f"{name} is no slot of {cls.__name__}")
            return (<PyMemberDescrObject *><PyObject *>found).d_member.offset
    raise TypeError(f"{cls.__name__} has no slot {name}")


cdef PyObject *memory_below(CNode *base) except NULL:
    """The Buffer of a BUFFER, borrowed from the table of all memory."""
    cdef int64_t number = base.src[0].iarg
    cdef Known *place = &known[number & (KNOWN - 1)]
    if place.number != number or place.memory == NULL:
        memory = memory_of_buffer(<object>object_of(base))
        place.number = number
        place.memory = <PyObject *>memory
    return place.memory


cdef CNode *_below(CNode *view) except NULL:
    """Of a SHRINK to symbolic dims what it shows all of, else itself; never new."""
    under = memory_under(<object>object_of(view))
    return glance(<PyObject *>under)


cdef int look(PyObject *tensor, bint written, PyObject **memory) except -1:
    cdef CNode *n = glance(field(tensor, at.uop))
    cdef bint alone = True
    if field(tensor, at.home) != <PyObject *>None:
        return WAITING
    if n.op == op_shrink:
        n = _below(n)
    if n.op != op_reshape and n.op != op_buffer:
        if n.realized == NULL:
            return WAITING
        n = glance(n.realized)
        if n.op == op_shrink:
            n = _below(n)
        alone = False
    while n.op == op_reshape:
        alone = alone and c_refcount(object_of(n)) == 1
        n = n.src[0]
    if n.op != op_buffer:
        return WAITING
    memory[0] = memory_below(n)
    if not written:
        return READY
    if (<Buffer>memory[0]).block == NULL:
        return LENT
    alone = alone and c_refcount(object_of(n)) == 1 and c_refcount(memory[0]) == 1
    return READY if alone else OBSERVED
