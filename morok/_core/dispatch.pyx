"""Calls of recorded functions: arguments taken apart, and the latest recording tried first.

Lists, tuples, dicts and objects are entered, as deep as they go. What is not known here (arrays,
objects with slots) is left to the layer that registered `describe`.
"""

from cpython.object cimport PyObject

from morok._core.node cimport glance
from morok._core.replay cimport Capture
from morok._core.tensor_fields cimport at, field, is_tensor
from morok._core.types cimport CNode

from morok._core.replay import MISS, PLAIN

cdef extern from "Python.h":
    object object_dict "PyObject_GenericGetDict"(object o, void *context)
    Py_ssize_t c_list_size "PyList_GET_SIZE"(PyObject *)
    int enter_call "Py_EnterRecursiveCall"(const char *) except -1
    void leave_call "Py_LeaveRecursiveCall"()

cdef object describe = None  # (flat, value, name): takes apart what is not known here, and what
# instances of a subclass of list, tuple or dict have besides
cdef set simple = set()  # classes whose instances consist of a __dict__
cdef object grad_mode = None  # has the thread's `enabled`
cdef object recorder = None  # has the thread's `record`
cdef object tracer = None  # has the thread's `current` trace
cdef object settings = None  # () -> the Config in force
cdef list watchers = []  # whoever wants to be told about kernels


def dispatch_by(
    object describe_value,
    object thread_mode,
    object thread_record,
    object thread_trace,
    object current,
    list watching,
):
    global describe, grad_mode, recorder, tracer, settings, watchers
    describe, grad_mode, recorder, tracer = describe_value, thread_mode, thread_record, thread_trace
    settings, watchers = current, watching


def enter_attributes(object cls):
    simple.add(cls)


cdef class Flat:
    """Values taken apart; see the stub."""

    cdef readonly list key  # structure, classes, Python values
    cdef readonly list tensors  # in order, each once
    cdef readonly list opaque  # objects that were not entered
    cdef readonly list names  # where each tensor stands, or None
    cdef dict seen  # by address: the number of what was met

    def __init__(self, bint named=False):
        self.key = []
        self.tensors = []
        self.opaque = []
        self.names = [] if named else None
        self.seen = {}

    cpdef object add(self, object value, str name=None):
        if is_tensor(<PyObject *>value):
            self.add_tensor(value, name)
            return
        enter_call(" while the arguments of a jitted function are taken apart")
        try:
            self.add_other(value, name)
        finally:
            leave_call()

    cdef object add_other(self, object value, str name):
        cdef object cls = type(value)
        cdef Py_ssize_t i
        if value is None or cls is bool or cls is int or cls is str or cls is bytes:
            self.key.append(cls)
            self.key.append(value)
        elif cls is float:
            # Told apart by bits: -0.0 is not 0.0, and a NaN equals itself.
            self.key.append(cls)
            self.key.append(value if value < 0 or value > 0 else value.hex())
        elif isinstance(value, (list, tuple)):
            self.key.append(cls)
            self.key.append(len(value))
            if self.names is None:
                for each in value:
                    self.add(each)
            else:
                for i, each in enumerate(value):
                    self.add(each, f"{name}[{i}]")
            if cls is not list and cls is not tuple:
                describe(self, value, name)
        elif isinstance(value, dict):
            self.key.append(cls)
            self.key.append(len(value))
            for k, each in (<dict>value).items():
                self.add(k)
                self.add(each, None if self.names is None else f"{name}[{k!r}]")
            if cls is not dict:
                describe(self, value, name)
        elif cls in simple:
            self.add_attributes(value, name)
        else:
            describe(self, value, name)

    cdef object add_attributes(self, object value, str name):
        if self.again(value):
            return
        self.key.append(type(value))
        for attribute, each in (<dict>object_dict(value, NULL)).items():
            self.key.append(attribute)
            self.add(each, None if self.names is None else f"{name}.{attribute}")
        self.key.append(None)  # the end, which no attribute is called

    cdef object add_tensor(self, object value, str name):
        cdef CNode *n
        if self.again(value):
            return
        n = glance(field(<PyObject *>value, at.uop))
        self.key.append(<int>n.dtype)
        self.key.append(<object>n.shape)
        self.key.append(<object>field(<PyObject *>value, at.leaf))
        self.tensors.append(value)
        if self.names is not None:
            self.names.append(name)

    cpdef bint again(self, object value) except -1:
        cdef Py_ssize_t address = <Py_ssize_t><PyObject *>value
        number = self.seen.get(address)
        if number is None:
            self.seen[address] = -1 - len(self.seen)
            return False
        self.key.append(number)  # negative, as no number of a dtype is
        return True


cdef class Dispatcher:
    """A function that replays its latest capture where it fits; see the stub."""

    cdef public Capture latest  # tried first, or None
    cdef public object __wrapped__  # the function
    cdef dict __dict__  # what makes it look like the function
    cdef object __weakref__  # lazily made list of weak references

    def __call__(self, *args, **kwargs):
        cdef Capture latest = self.latest
        cdef Flat flat
        cdef object result
        if latest is None or not quick(latest):
            return self.call(args, kwargs)
        if latest.plain_arguments:
            if kwargs or not latest.fits(args):
                return self.call(args, kwargs)
            result = latest.run(list(args))
        else:
            flat = Flat()
            flat.add(args)
            flat.add(kwargs)
            if flat.key != latest.key:
                return self.call(args, kwargs)
            result = latest.run(flat.tensors)
        if result is MISS or result is PLAIN:
            return self.call(args, kwargs)
        return result


cdef bint quick(Capture latest) except -1:
    """Whether this call means what it meant when `latest` was replayed last, but for its
    arguments, and nothing is recorded, traced or watched."""
    return (
        grad_mode.enabled is latest.grad_mode
        and settings() is latest.settings
        and recorder.record is None
        and tracer.current is None
        and c_list_size(<PyObject *>watchers) == 0
    )
