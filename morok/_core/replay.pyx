"""Replaying a recorded function: tensors in, one plan, tensors out, hardly any Python.

A tensor's memory is found by the number of its BUFFER. What a replay overwrites must be seen by
nobody else: where reference counts show that only the tensor itself holds its BUFFER, and only that
holds the memory, nobody can; else `prepare` does what a write owes to others. Results are tensors
handed out by an earlier replay that were dropped since, again by their reference counts, or new.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from morok._core.launch cimport ExecutionPlan, Lease
from morok._core.memory cimport Buffer
from morok._core.node cimport glance
from morok._core.tensor_fields cimport (
    LENT,
    READY,
    WAITING,
    at,
    field,
    is_tensor,
    look,
    offset_of,
)
from morok._core.types cimport CNode

from morok.errors import InvalidGraphError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)
    Py_ssize_t c_refcount "Py_REFCNT"(PyObject *)
    PyObject *c_false "Py_False"  # as an object: Cython takes `False` for a number
    PyObject *c_true "Py_True"
    PyObject *c_list_item "PyList_GET_ITEM"(PyObject *, Py_ssize_t)
    Py_ssize_t c_list_size "PyList_GET_SIZE"(PyObject *)
    PyObject *c_cell_get "PyCell_GET"(PyObject *)

cdef enum:
    POOLED = 2  # tensors kept for each result: one with the caller, one to write
    ARGUMENT = 0
    CLOSURE = 1
    GRADIENT = 2
    EDGE_DICT = 0
    EDGE_LIST = 1
    EDGE_CELL = 2
    EDGE_SLOT = 3
    EDGE_DEQUE = 4
    EDGE_MEMBER = 5
    EDGE_SIZE = 6
    EDGE_CLASS = 7

MISS = object()
PLAIN = object()
EDGE_KINDS = {
    "dict": EDGE_DICT,
    "list": EDGE_LIST,
    "cell": EDGE_CELL,
    "slot": EDGE_SLOT,
    "deque": EDGE_DEQUE,
    "member": EDGE_MEMBER,
    "size": EDGE_SIZE,
    "class": EDGE_CLASS,
}


cdef class Capture:
    """A recorded function as one plan; see the stub."""

    def __init__(
        self,
        ExecutionPlan plan not None,
        *,
        int n_given,
        list entries not None,
        list closure not None,
        list edges not None,
        list constants not None,
        list parts not None,
        list outputs not None,
        list grads not None,
        list number_slots not None,
        object grad_mode,
        tuple signature not None,
        tuple places not None,
        bint plain_arguments,
        object make,
        object prepare,
        object numbers,
        object lock,
        object rebuild,
        int single,
    ):
        cdef int i
        if self.plan is not None:
            raise TypeError("a Capture is built once")
        self.plan = plan
        self.n_given = n_given
        self.closure = closure
        self.edges = edges
        self.constants = constants
        self.grad_mode = grad_mode
        self.signature = signature
        self.places = places
        self.plain_arguments = plain_arguments
        self.make, self.prepare, self.numbers = make, prepare, numbers
        self.acquire, self.release = lock.acquire, lock.release
        self.rebuild = rebuild
        self.single = single
        self.wants_entries = single < 0 or any([output < -1 for _, output in grads])
        self.n_arguments = <int>len(signature)
        self.entries = <Entry *>rows(len(entries), sizeof(Entry))
        self.gradients = {}
        for i, (kind, index, slot, written, gradient, leaf, kept, form) in enumerate(entries):
            self.entries[i].kind = kind
            self.entries[i].index = index
            self.entries[i].slot = slot
            self.entries[i].written = written
            self.entries[i].gradient = gradient
            self.entries[i].leaf = c_false
            if leaf:
                self.entries[i].leaf = c_true
            self.entries[i].kept = kept
            self.writes = self.writes or written
            if kind == GRADIENT:
                self.gradients[i] = form
        self.n_entries = <int>len(entries)
        self.ways = <Way *>rows(len(edges), sizeof(Way))
        for i, (kind, holder, key, value) in enumerate(edges):
            self.ways[i].kind = kind
            self.ways[i].holder = <PyObject *>holder
            self.ways[i].key = <PyObject *>key
            self.ways[i].value = <PyObject *>value
            if kind == EDGE_LIST or kind == EDGE_DEQUE:
                self.ways[i].index = key
            elif kind == EDGE_SIZE:
                self.ways[i].index = value
            elif kind == EDGE_SLOT:
                self.ways[i].index = offset_of(type(holder), key)
        self.n_ways = <int>len(edges)
        self.grads = <Grad *>rows(len(grads), sizeof(Grad))
        self.output_slots = <int *>rows(len(outputs), sizeof(int))
        self.output_grads = <int *>rows(len(outputs), sizeof(int))
        self.forms = []
        self.pools = []
        for i, (slot, dtype, shape) in enumerate(outputs):
            self.output_slots[i] = slot
            self.output_grads[i] = -1
            self.forms.append((dtype, shape))
            self.pools.append([])
        self.n_outputs = <int>len(outputs)
        for i, (entry, output) in enumerate(grads):
            self.grads[i] = Grad(entry, output)
            if output >= 0:
                self.output_grads[output] = entry
            self.writes = True
        self.n_grads = <int>len(grads)
        self.parts = <Part *>rows(len(parts), sizeof(Part))
        for i, (slot, whole, offset) in enumerate(parts):
            self.parts[i] = Part(slot, whole, offset)
        self.n_parts = <int>len(parts)
        self.number_slots = <int *>rows(len(number_slots), sizeof(int))
        for i, slot in enumerate(number_slots):
            self.number_slots[i] = slot
        self.n_numbers = <int>len(number_slots)

    def __dealloc__(self):
        free(self.entries)
        free(self.ways)
        free(self.grads)
        free(self.parts)
        free(self.output_slots)
        free(self.output_grads)
        free(self.number_slots)

    def replay(self, list arguments not None):
        return self.run(arguments)

    cdef object run(self, list arguments):
        if not self.writes:
            return self.run_now(arguments)
        self.acquire()
        try:
            return self.run_now(arguments)
        finally:
            self.release()

    cdef bint holds(self, list arguments) except -1:
        """Whether everything is where it was when the function was recorded."""
        cdef Way *way
        cdef PyObject *found
        cdef int i, k
        for i in range(self.n_ways):
            way = &self.ways[i]
            if way.kind == EDGE_DICT:
                found = <PyObject *>PyDict_GetItemWithError(<object>way.holder, <object>way.key)
            elif way.kind == EDGE_LIST:
                found = NULL
                if way.index < c_list_size(way.holder):
                    found = c_list_item(way.holder, way.index)
            elif way.kind == EDGE_CELL:
                found = c_cell_get(way.holder)
            elif way.kind == EDGE_DEQUE:
                found = NULL
                if way.index < len(<object>way.holder):
                    found = <PyObject *>(<object>way.holder)[way.index]
            elif way.kind == EDGE_MEMBER:
                found = way.value if <object>way.value in <object>way.holder else NULL
            elif way.kind == EDGE_SIZE:
                found = way.value if len(<object>way.holder) == way.index else NULL
            elif way.kind == EDGE_CLASS:
                attribute = getattr(<object>way.holder, <object>way.key, None)
                found = <PyObject *>attribute
            else:
                found = field(way.holder, way.index)
            if found != way.value:
                return False
        for i in range(self.n_arguments):
            k = self.places[i]
            if k >= 0:
                if arguments[i] is not self.closure[k]:
                    return False
            else:
                for tensor in self.closure:
                    if tensor is arguments[i]:
                        return False
        return True

    cdef PyObject *tensor_of(self, int i, list arguments) noexcept:
        """The tensor of an entry, borrowed; NULL for a gradient that is not there."""
        cdef Entry *entry = &self.entries[i]
        cdef PyObject *found
        if entry.kind == ARGUMENT:
            return c_list_item(<PyObject *>arguments, entry.index)
        if entry.kind == CLOSURE:
            return c_list_item(<PyObject *>self.closure, entry.index)
        found = field(self.tensor_of(entry.index, arguments), at.grad)
        return found if found != <PyObject *>None and is_tensor(found) else NULL

    cdef object run_now(self, list arguments):
        cdef Entry *entry
        cdef PyObject *tensor
        cdef PyObject *grad
        cdef PyObject *memory = NULL
        cdef PyObject **memories
        cdef Lease *lease = NULL
        cdef uint64_t *drawn = NULL
        cdef int i, state
        cdef bint again = False
        cdef list outputs = []
        cdef list tensors = []
        cdef list waiting
        cdef list observed
        if not self.holds(arguments):
            return MISS
        memories = <PyObject **>rows(self.n_given, sizeof(PyObject *))
        try:
            while True:
                waiting = None
                observed = None
                for i in range(self.n_entries):
                    entry = &self.entries[i]
                    tensor = self.tensor_of(i, arguments)
                    if entry.gradient:
                        grad = field(tensor, at.grad)
                        if (grad == <PyObject *>None) != (entry.gradient == 1):
                            return MISS
                    if tensor != NULL and field(tensor, at.leaf) != entry.leaf:
                        return MISS
                    if entry.slot < 0:
                        continue
                    if tensor == NULL or not self.has_form(i, tensor):
                        return MISS
                    state = look(tensor, entry.written, &memory)
                    if state == READY:
                        c_incref(memory)
                        memories[entry.slot] = memory
                    elif state == WAITING:
                        if waiting is None:
                            waiting = []
                        waiting.append(<object>tensor)
                    elif state == LENT:
                        return PLAIN
                    if entry.written and state != READY:
                        if observed is None:
                            observed = []
                        observed.append(<object>tensor)
                if waiting is None and observed is None:
                    break
                if again:
                    return PLAIN  # somebody holds on to it in a way we do not know
                drop(memories, self.n_given)
                self.prepare(waiting or [], observed or [])
                again = True
            for i in range(self.n_outputs):
                outputs.append(self.output(i, arguments))
                if self.output_slots[i] < 0:
                    continue
                if look(<PyObject *>outputs[i], False, &memory) != READY:
                    raise InvalidGraphError("a fresh tensor has no memory", stage="replay")
                c_incref(memory)
                memories[self.output_slots[i]] = memory
            for slot, constant in self.constants:
                c_incref(<PyObject *>constant)
                memories[<int>slot] = <PyObject *>constant
            lease = self.plan.acquire()
            if self.n_numbers:
                drawn = <uint64_t *>rows(self.n_numbers, sizeof(uint64_t))
                for i, number in enumerate(self.numbers()):
                    drawn[i] = number
                    lease.slots[self.number_slots[i]] = &drawn[i]
            for i in range(self.n_given):
                if memories[i] != NULL:
                    lease.slots[i] = (<Buffer>memories[i]).data
            for i in range(self.n_parts):
                lease.slots[self.parts[i].slot] = (
                    <char *>lease.slots[self.parts[i].whole] + self.parts[i].offset
                )
            if self.report is None:
                with nogil:
                    self.plan.execute(lease)
            else:
                began, durations = self.plan.execute_timed(lease)
        finally:
            drop(memories, self.n_given)
            free(memories)
            free(drawn)
            if lease != NULL:
                self.plan.release(lease)
        self.replays += 1
        if self.report is not None:
            self.report(began, durations)
        if self.wants_entries:
            for i in range(self.n_entries):
                tensor = self.tensor_of(i, arguments)
                tensors.append(None if tensor == NULL else <object>tensor)
        for i in range(self.n_grads):
            tensor = self.tensor_of(self.grads[i].entry, arguments)
            if self.grads[i].output >= 0:
                set_grad(tensor, outputs[self.grads[i].output])
            elif self.grads[i].output == -1:
                set_grad(tensor, None)
            else:
                set_grad(tensor, tensors[-2 - self.grads[i].output])
        if self.single >= 0:
            return outputs[self.single]
        return self.rebuild(outputs, tensors)

    cdef object output(self, int i, list arguments):
        """A tensor whose memory may be written for result `i`, and which the caller may have."""
        cdef list pool = self.pools[i]
        cdef PyObject *tensor
        cdef PyObject *in_place = NULL
        cdef PyObject *memory = NULL
        cdef int j
        if self.output_grads[i] >= 0:
            tensor = self.tensor_of(self.output_grads[i], arguments)
            in_place = field(tensor, at.grad)
            for j in range(self.n_entries):
                if self.entries[j].kept and self.tensor_of(j, arguments) == in_place:
                    in_place = NULL  # what was accumulated before is still needed
        for candidate in pool:
            tensor = <PyObject *>candidate
            # The pool and `candidate` hold it, and perhaps the place where the result goes.
            if c_refcount(tensor) != (3 if tensor == in_place else 2):
                continue
            if field(tensor, at.rg) != c_false or field(tensor, at.grad) != <PyObject *>None:
                continue
            if look(tensor, True, &memory) == READY:
                return candidate
        dtype, shape = self.forms[i]
        made = self.make(dtype, shape)
        if not pool and self.output_grads[i] < 0:
            # The next call will need it, if the caller still has this one: now, so that memory does
            # not grow later.
            pool.append(self.make(dtype, shape))
        pool.append(made)
        if c_list_size(<PyObject *>pool) > POOLED:
            del pool[0]
        return made

    cdef bint has_form(self, int i, PyObject *tensor) except -1:
        """Whether a gradient that is read looks as it did; other tensors always do."""
        cdef CNode *n
        if self.entries[i].kind != GRADIENT:
            return True
        n = glance(field(tensor, at.uop))
        number, shape = self.gradients[i]
        return n.dtype == <int>number and <object>n.shape == shape

    cdef bint fits(self, tuple args) except -1:
        cdef Py_ssize_t i, k
        cdef PyObject *tensor
        cdef CNode *n
        if not self.plain_arguments or len(args) != self.n_arguments:
            return False
        for i in range(self.n_arguments):
            tensor = <PyObject *>args[i]
            if not is_tensor(tensor):
                return False
            for k in range(i):
                if args[k] is args[i]:
                    return False
            n = glance(field(tensor, at.uop))
            number, shape, leaf = <tuple>self.signature[i]
            if n.dtype != <int>number or <object>field(tensor, at.leaf) is not leaf:
                return False
            if n.shape != <PyObject *>shape and <object>n.shape != shape:
                return False
        return True


cdef void drop(PyObject **memories, int n) noexcept:
    """Gives back references to memory."""
    cdef int i
    for i in range(n):
        if memories[i] != NULL:
            c_decref(memories[i])
            memories[i] = NULL


cdef void set_grad(PyObject *tensor, object new) noexcept:
    cdef PyObject **place = <PyObject **>(<char *>tensor + at.grad)
    cdef PyObject *old = place[0]
    if <PyObject *>new != old:
        c_incref(<PyObject *>new)
        place[0] = <PyObject *>new
        c_decref(old)


cdef void *rows(Py_ssize_t count, size_t size) except NULL:
    """A zeroed array of at least one element."""
    cdef void *array = calloc(count if count else 1, size)
    if array == NULL:
        raise MemoryError()
    return array
