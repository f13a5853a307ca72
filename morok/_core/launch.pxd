# cython: language_level=3
"""Running machine code: libraries, kernels and plans."""

from libc.stdint cimport int64_t

from morok._core.image cimport CodeImage
from morok._core.memory cimport Block
from morok._core.pool cimport kernel_fn


cdef struct Step:
    kernel_fn run  # machine code
    int64_t lo  # start of the kernel's part
    int64_t hi  # end of the kernel's part
    int first_arg  # its first entry in `Plan.arg_slots` and `Lease.args`
    int n_args  # its entries there
    int first_var  # its first entry in `Lease.own_vars`, or -1: it reads `Lease.vars`
    int split  # several threads may run parts of 0 to `hi` at the same time: 1 many, 2 few parts
    size_t scratch_bytes  # what each of them needs


cdef struct Lease:
    Lease *next  # next free lease of the plan
    void **slots  # address in each slot
    void **args  # addresses in the order the kernels want them
    int64_t *vars  # the plan's variables
    int64_t *own_vars  # variables in the order the kernels want them
    Block *arena  # memory of the plan's own slots, or NULL
    Block *scratch  # memory for one kernel at a time, or NULL
    int threads  # how many threads a kernel may run on


cdef class Library:
    cdef void *handle  # from dlopen, owned; NULL for a relocatable object
    cdef CodeImage image  # a relocatable object's code, or None
    cdef readonly str name  # for messages
    cdef object __weakref__  # lazily made list of weak references


cdef class Kernel:
    cdef readonly Library library  # keeps the code mapped
    cdef readonly str name  # its symbol
    cdef void *address  # borrowed from `library`
    cdef object __weakref__  # lazily made list of weak references


cdef class ExecutionPlan:
    cdef Step *steps  # owned array, one entry a kernel
    cdef int *arg_slots  # owned array: slot of each argument of each kernel
    cdef int *var_slots  # owned array: variable of each entry of `own_vars`
    cdef size_t *arena_offsets  # owned array: place of each own slot in the arena
    cdef Lease *free_leases  # owned list; a lease in use belongs to its execution
    cdef int n_steps  # kernels
    cdef int n_args  # arguments of all kernels
    cdef int n_vars  # variables of the plan that each run gives
    cdef tuple constants  # values of the variables behind those
    cdef int n_own_vars  # entries of `own_vars`
    cdef int n_slots  # all slots
    cdef int n_given  # slots filled by the caller; the rest lie in the arena
    cdef size_t scratch_bytes  # largest need of a kernel
    cdef size_t arena_bytes  # size of the arena
    cdef bint splits  # some kernel may run on several threads
    cdef int n_free  # leases in `free_leases`
    cdef tuple kept  # libraries and whatever else must outlive the plan
    cdef readonly tuple names  # name of each kernel
    cdef readonly tuple groups  # kernels by dependency: those of a group may run side by side

    cdef int fill_steps(self, list calls) except -1
    cdef Lease *acquire(self) except NULL
    cdef int furnish(self, Lease *lease) except -1
    cdef void release(self, Lease *lease) noexcept
    cdef void execute(self, Lease *lease) noexcept nogil
    cdef tuple execute_timed(self, Lease *lease)
    cdef int bind(self, Lease *lease, tuple buffers, tuple variables) except -1
