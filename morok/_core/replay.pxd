# cython: language_level=3
"""Recorded functions: what a dispatcher may ask of them."""

from cpython.object cimport PyObject

from morok._core.launch cimport ExecutionPlan


cdef struct Entry:
    int kind  # ARGUMENT, CLOSURE or GRADIENT
    int index  # of the argument or closure tensor, or of the entry whose gradient this is
    int slot  # in the plan, -1 if the plan does not use it
    bint written  # the plan overwrites it
    int gradient  # what must stand in `grad`: 0 anything, 1 None, 2 a tensor
    PyObject *leaf  # whether it must be a leaf: True or False, immortal enough
    bint kept  # the old value is needed: what it lies in is not written anew


cdef struct Way:
    int kind  # EDGE_…
    PyObject *holder  # borrowed from `edges`
    PyObject *key  # borrowed from `edges`
    Py_ssize_t index  # in a list or deque, offset in an object, or size of a container
    PyObject *value  # borrowed from `edges`


cdef struct Part:
    int slot  # that begins in
    int whole  # this one
    Py_ssize_t offset  # bytes behind its beginning


cdef struct Grad:
    int entry  # whose gradient is set
    int output  # to which result, or -1: to None, or -2 - e: to the tensor of entry e


cdef class Capture:
    cdef ExecutionPlan plan  # runs it
    cdef Entry *entries  # owned array
    cdef Way *ways  # owned array
    cdef Grad *grads  # owned array
    cdef Part *parts  # owned array
    cdef int *output_slots  # owned array: where each result lies in the plan, -1 without elements
    cdef int *output_grads  # owned array: the entry whose gradient a result becomes, or -1
    cdef int *number_slots  # owned array: where the random counters and keys go
    cdef int n_entries  # tensors that go in
    cdef int n_arguments  # the first of them
    cdef int n_ways  # edges
    cdef int n_grads  # gradients that are set
    cdef int n_parts  # slots that lie in others
    cdef int n_outputs  # new tensors
    cdef int n_numbers  # random counters and keys
    cdef int n_given  # slots filled for each replay
    cdef bint writes  # it overwrites tensors or sets gradients: one at a time
    cdef bint plain_arguments  # every argument is itself a tensor
    cdef public object key  # of the arguments; None: compare `signature`
    cdef public object grad_mode  # whether gradients were recorded
    cdef public object settings  # the Config it was last replayed with; None: do not ask
    cdef readonly unsigned long replays  # how often it ran
    cdef tuple signature  # (dtype, shape, leaf) of each argument
    cdef tuple places  # for each argument, the closure tensor it is, or -1
    cdef bint wants_entries  # the tensors that went in are needed at the end
    cdef dict gradients  # for an entry of kind GRADIENT, its (dtype number, shape)
    cdef list closure  # tensors
    cdef list edges  # (kind, holder, key, value), for their references
    cdef list constants  # (slot, Buffer)
    cdef list pools  # for each result, tensors handed out before
    cdef list forms  # for each result, (dtype, shape)
    cdef object make  # (dtype, shape) -> Tensor
    cdef object prepare  # (waiting, observed) -> None
    cdef object numbers  # () -> random counters and keys
    cdef object acquire  # takes the lock of all writers
    cdef object release  # gives it back
    cdef object rebuild  # results -> what the function returns
    cdef public object details  # for whoever made the capture
    cdef public object report  # (start, nanoseconds of each kernel) -> None, or None
    cdef int single  # the result that the function returns as it is, or -1

    # the result of a replay on these tensors, MISS or PLAIN
    cdef object run(self, list arguments)
    cdef object run_now(self, list arguments)
    cdef bint holds(self, list arguments) except -1
    cdef PyObject *tensor_of(self, int i, list arguments) noexcept
    cdef object output(self, int i, list arguments)
    cdef bint has_form(self, int i, PyObject *tensor) except -1
    # whether these are plain tensors such as the function was recorded with
    cdef bint fits(self, tuple args) except -1
