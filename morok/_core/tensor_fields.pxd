# cython: language_level=3
"""Tensors as the core sees them."""

from cpython.object cimport PyObject, PyTypeObject


cdef extern from "Python.h":
    PyTypeObject *field_type "Py_TYPE"(PyObject *)
    bint derives "PyType_IsSubtype"(PyTypeObject *, PyTypeObject *)

cdef enum Look:
    READY = 0
    WAITING = 1  # must be realised first
    OBSERVED = 2  # somebody may see it being overwritten
    LENT = 3  # somebody else's memory would be written

cdef struct Fields:
    Py_ssize_t uop  # offset of the graph
    Py_ssize_t grad  # offset of the gradient
    Py_ssize_t home  # offset of the memory that a pending write goes to
    Py_ssize_t rg  # offset of whether gradients flow into it
    Py_ssize_t leaf  # offset of whether it is a leaf

cdef Fields at  # where the fields of a tensor lie
cdef PyTypeObject *tensor_type  # the class of tensors

cdef inline PyObject *field(PyObject *tensor, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>tensor + offset))[0]

cdef inline bint is_tensor(PyObject *o) noexcept:
    return field_type(o) == tensor_type or derives(field_type(o), tensor_type)

# where a field in `__slots__` lies
cdef Py_ssize_t offset_of(object cls, str name) except -1
# finds the memory of a tensor (borrowed), and whether it may be used as it stands: a Look
cdef int look(PyObject *tensor, bint written, PyObject **memory) except -1
