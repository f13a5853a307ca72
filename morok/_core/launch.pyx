"""Running machine code: libraries in memory, kernels, and plans that run many kernels in one call.

A plan is a flat array of function pointers. Running it fills one table of addresses under the GIL,
then calls every kernel without the GIL and without touching a Python object. All that an execution
writes, besides the buffers it is given, belongs to a lease, so several threads may run one plan.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os

from morok._core.image cimport CodeImage
from morok._core.memory cimport Buffer, give_block, take_block
from morok._core.pool cimport launch_split, threads_wanted

from morok._core.image import is_relocatable
from morok.errors import DeviceError, InvalidGraphError

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    int RTLD_LOCAL
    void *dlopen(const char *path, int flags)
    void *dlsym(void *handle, const char *name)
    int dlclose(void *handle)
    char *dlerror()

cdef enum:
    MAX_FREE_LEASES = 4  # more threads than this in one plan allocate anew
    MAX_KEPT_ARENA = 1 << 16  # a larger arena goes back to the pool between executions
    NO_VARS = -1

cdef unsigned long loaded = 0  # libraries loaded so far


# ---- libraries -----------------------------------------------------------------------------------


cdef bytes unique_path(int fd):
    """A path to the open file `fd` that no other library was loaded by.

    dlopen gives back an old library when the path's text is the same, and file numbers come again.
    So the count of libraries is spelled into the path, a bit a component: "./" for 1, "/" for 0.
    """
    global loaded
    cdef unsigned long bits
    loaded += 1
    bits = loaded
    parts = ["/proc/self/fd/"]
    while bits:
        parts.append("./" if bits & 1 else "/")
        bits >>= 1
    parts.append(str(fd))
    return "".join(parts).encode()


cdef void *open_image(bytes image) except? NULL:
    """dlopen of a shared object's bytes; NULL leaves the reason in dlerror()."""
    cdef void *handle
    cdef bytes path
    try:
        fd = os.memfd_create("morok", os.MFD_CLOEXEC)
    except OSError:  # an old kernel or a sandbox: a file will do
        fd = -1
    if fd >= 0:
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(image)
            path = unique_path(fd)
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)
            if handle != NULL:
                return handle
        finally:
            os.close(fd)
    import tempfile  # rarely needed, and slow to import

    with tempfile.NamedTemporaryFile(prefix="morok-", suffix=".so") as file:
        file.write(image)
        file.flush()
        path = os.fsencode(file.name)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL)


cdef class Library:
    """A shared object loaded from bytes; see the stub."""

    def __init__(self, bytes image not None, str name not None="kernels"):
        if self.handle != NULL or self.image is not None:
            raise TypeError("a Library is loaded once")
        self.name = name
        if is_relocatable(image):
            try:
                self.image = CodeImage(image)
            except DeviceError as error:
                text = error.message
                raise DeviceError(f"cannot load the library {name!r}: {text}") from error
            return
        dlerror()
        try:
            self.handle = open_image(image)
        except OSError as error:
            raise DeviceError(f"cannot load the library {name!r}: {error}") from error
        if self.handle == NULL:
            raise DeviceError(f"cannot load the library {name!r}: {last_error()}")

    # Owns `handle`. Plans hold their kernels and these their library, so no code is running here.
    def __dealloc__(self):
        if self.handle != NULL:
            dlclose(self.handle)

    def symbol(self, str name not None):
        return <size_t>find_symbol(self, name)

    def kernel(self, str name not None):
        cdef Kernel kernel = Kernel.__new__(Kernel)
        kernel.address = find_symbol(self, name)
        kernel.library = self
        kernel.name = name
        return kernel

    def __repr__(self):
        return f"<Library {self.name!r}>"

    def __reduce__(self):
        raise TypeError("a Library is mapped into this process: send its bytes instead")


cdef str last_error():
    cdef char *text = dlerror()
    return text.decode(errors="replace") if text != NULL else "no reason given"


cdef void *find_symbol(Library library, str name) except NULL:
    cdef void *address
    if library.image is not None:
        if name not in library.image.functions:
            raise DeviceError(f"the library {library.name!r} has no kernel {name!r}")
        return <void *><size_t>library.image.functions[name]
    if library.handle == NULL:
        raise DeviceError(f"the library {library.name!r} is not loaded")
    address = dlsym(library.handle, name.encode())
    if address == NULL:
        raise DeviceError(f"the library {library.name!r} has no kernel {name!r}: {last_error()}")
    return address


cdef class Kernel:
    """A function of a library, which it keeps loaded. Made by `Library.kernel`."""

    def __init__(self):
        raise TypeError("a Kernel is made by Library.kernel(name)")

    @property
    def ptr(self):
        return <size_t>self.address

    def __repr__(self):
        return f"<Kernel {self.name!r}>"

    def __reduce__(self):
        raise TypeError("a Kernel is code of this process: send its source instead")


# ---- plans ---------------------------------------------------------------------------------------


cdef void destroy_lease(Lease *lease) noexcept:
    if lease.arena != NULL:
        give_block(lease.arena)
    if lease.scratch != NULL:
        give_block(lease.scratch)
    free(lease.slots)
    free(lease.args)
    free(lease.vars)
    free(lease.own_vars)
    free(lease)


cdef void *zeroed(size_t count, size_t size) except NULL:
    """An array of at least one zeroed element; MemoryError if there is no memory."""
    cdef void *array = calloc(count if count else 1, size)
    if array == NULL:
        raise MemoryError()
    return array


cdef int checked_index(object value, Py_ssize_t count, str what, str name) except -1:
    cdef Py_ssize_t index = value
    if not 0 <= index < count:
        raise InvalidGraphError(
            f"kernel {name!r} uses {what} {index}, the plan has {count}", rule="plan", got=index
        )
    return <int>index


cdef class ExecutionPlan:
    """Kernels in the order they run, with their argument slots; see the stub."""

    def __init__(
        self,
        kernels,
        Py_ssize_t n_slots,
        *,
        Py_ssize_t n_vars=0,
        arena=(),
        Py_ssize_t arena_bytes=0,
        keep=(),
        groups=(),
        constants=(),
    ):
        if self.steps != NULL:
            raise TypeError("an ExecutionPlan is built once")
        if not 0 <= n_slots < 1 << 30 or not 0 <= n_vars < 1 << 30 or arena_bytes < 0:
            raise InvalidGraphError("the sizes of a plan must not be negative", rule="plan")
        calls = [call_of(kernel) for kernel in kernels]
        arena = tuple(arena)
        self.n_given = <int>n_slots
        self.n_slots = <int>(n_slots + len(arena))
        self.n_vars = <int>n_vars
        self.constants = tuple([<int64_t>value for value in constants])
        self.n_args = sum(len(call[1]) for call in calls)
        self.n_own_vars = sum(len(call[5] or ()) for call in calls)
        self.arena_bytes = arena_bytes
        self.steps = <Step *>zeroed(len(calls), sizeof(Step))
        self.arg_slots = <int *>zeroed(self.n_args, sizeof(int))
        self.var_slots = <int *>zeroed(self.n_own_vars, sizeof(int))
        self.arena_offsets = <size_t *>zeroed(len(arena), sizeof(size_t))
        for i, offset in enumerate(arena):
            if not 0 <= offset < arena_bytes or offset % 64:
                raise InvalidGraphError(
                    f"slot {n_slots + i} lies at byte {offset} of an arena of {arena_bytes} bytes: "
                    "expected a multiple of 64 inside",
                    rule="plan",
                )
            self.arena_offsets[i] = offset
        self.fill_steps(calls)
        self.groups = tuple(groups)
        self.kept = (tuple(keep), tuple(call[0] for call in calls))
        self.names = tuple(call[6] for call in calls)
        self.n_steps = <int>len(calls)

    # Owns the arrays and all free leases; leases in use imply a caller who holds the plan.
    def __dealloc__(self):
        cdef Lease *lease
        while self.free_leases != NULL:
            lease = self.free_leases
            self.free_leases = lease.next
            destroy_lease(lease)
        free(self.steps)
        free(self.arg_slots)
        free(self.var_slots)
        free(self.arena_offsets)

    cdef int fill_steps(self, list calls) except -1:
        cdef Step *step
        cdef int arg = 0
        cdef int var = 0
        for i, call in enumerate(calls):
            function, slots, scratch_bytes, lo, hi, variables, name, split = call
            step = &self.steps[i]
            step.run = <kernel_fn><void *>address_of(function, name)
            step.lo = lo
            step.hi = hi
            step.split = split
            step.scratch_bytes = scratch_bytes
            self.splits = self.splits or split > 0
            step.first_arg = arg
            step.n_args = <int>len(slots)
            for slot in slots:
                self.arg_slots[arg] = checked_index(slot, self.n_slots, "slot", name)
                arg += 1
            step.first_var = NO_VARS if variables is None else var
            for variable in variables or ():
                self.var_slots[var] = checked_index(
                    variable, self.n_vars + len(self.constants), "variable", name
                )
                var += 1
            self.scratch_bytes = max(self.scratch_bytes, <size_t>scratch_bytes)
        return 0

    cdef Lease *acquire(self) except NULL:
        """A lease nobody else uses. Hand it back with `release`."""
        cdef Lease *lease = self.free_leases
        cdef int i = 0
        if lease != NULL:
            self.free_leases = lease.next
            self.n_free -= 1
            try:
                lease.threads = threads_wanted() if self.splits else 1
                if lease.arena == NULL and self.arena_bytes:
                    self.furnish(lease)
            except BaseException:
                destroy_lease(lease)
                raise
            return lease
        lease = <Lease *>zeroed(1, sizeof(Lease))
        try:
            lease.threads = threads_wanted() if self.splits else 1
            lease.slots = <void **>zeroed(self.n_slots, sizeof(void *))
            lease.args = <void **>zeroed(self.n_args, sizeof(void *))
            lease.vars = <int64_t *>zeroed(self.n_vars + len(self.constants), sizeof(int64_t))
            lease.own_vars = <int64_t *>zeroed(self.n_own_vars, sizeof(int64_t))
            for value in self.constants:
                lease.vars[self.n_vars + i] = value
                i += 1
            for i in range(self.n_own_vars):
                lease.own_vars[i] = lease.vars[self.var_slots[i]]
            if self.scratch_bytes:
                lease.scratch = take_block(self.scratch_bytes, "the scratch space of a kernel")
            if self.arena_bytes:
                self.furnish(lease)
        except BaseException:
            destroy_lease(lease)
            raise
        return lease

    cdef int furnish(self, Lease *lease) except -1:
        """Gives the lease an arena."""
        cdef int i
        lease.arena = take_block(self.arena_bytes, "the intermediate values of a plan")
        for i in range(self.n_given, self.n_slots):
            lease.slots[i] = lease.arena.data + self.arena_offsets[i - self.n_given]
        return 0

    cdef void release(self, Lease *lease) noexcept:
        if self.n_free >= MAX_FREE_LEASES:
            destroy_lease(lease)
            return
        if lease.arena != NULL and self.arena_bytes > MAX_KEPT_ARENA:
            give_block(lease.arena)
            lease.arena = NULL
        lease.next = self.free_leases
        self.free_leases = lease
        self.n_free += 1

    cdef int bind(self, Lease *lease, tuple buffers, tuple variables) except -1:
        """Fills the lease's tables for these arguments."""
        cdef int i
        if len(buffers) != self.n_given:
            raise InvalidGraphError(
                "a plan runs on one buffer a slot",
                rule="plan",
                expected=f"{self.n_given} buffers",
                got=f"{len(buffers)} buffers",
            )
        if len(variables) != self.n_vars:
            raise InvalidGraphError(
                "a plan runs with one value a variable",
                rule="plan",
                expected=f"{self.n_vars} values",
                got=f"{len(variables)} values",
            )
        for i in range(self.n_given):
            item = buffers[i]
            if not isinstance(item, Buffer):
                raise TypeError(f"slot {i} of a plan takes a Buffer, not {type(item).__name__}")
            lease.slots[i] = (<Buffer>item).data
        for i in range(self.n_vars):
            lease.vars[i] = variables[i]
        for i in range(self.n_own_vars):
            lease.own_vars[i] = lease.vars[self.var_slots[i]]
        fill_args(lease.args, lease.slots, self.arg_slots, self.n_args)
        return 0

    cdef void execute(self, Lease *lease) noexcept nogil:
        """Runs every kernel on the addresses in `lease.slots`; all its variables are constants."""
        fill_args(lease.args, lease.slots, self.arg_slots, self.n_args)
        run_steps(self.steps, self.n_steps, lease)

    def run(self, buffers, vars=()):
        cdef tuple held = tuple(buffers)  # keeps the memory alive while the GIL is released
        cdef Lease *lease = self.acquire()
        try:
            self.bind(lease, held, tuple(vars))
            with nogil:
                run_steps(self.steps, self.n_steps, lease)
        finally:
            self.release(lease)

    def run_profiled(self, buffers, vars=()):
        cdef tuple held = tuple(buffers)
        cdef Lease *lease = self.acquire()
        try:
            self.bind(lease, held, tuple(vars))
            return self.execute_timed(lease)
        finally:
            self.release(lease)

    cdef tuple execute_timed(self, Lease *lease):
        """As `execute`; the start, and each kernel's nanoseconds."""
        cdef int64_t *ends = <int64_t *>zeroed(self.n_steps + 1, sizeof(int64_t))
        cdef int i
        try:
            with nogil:
                fill_args(lease.args, lease.slots, self.arg_slots, self.n_args)
                ends[0] = now()
                for i in range(self.n_steps):
                    run_steps(&self.steps[i], 1, lease)
                    ends[i + 1] = now()
            return ends[0], tuple([ends[i + 1] - ends[i] for i in range(self.n_steps)])
        finally:
            free(ends)

    def __len__(self):
        return self.n_steps

    @property
    def lease_bytes(self):
        return self.arena_bytes + self.scratch_bytes

    def __repr__(self):
        return f"<ExecutionPlan of {self.n_steps} kernels, {self.n_given} buffers>"

    def __reduce__(self):
        raise TypeError("an ExecutionPlan is code of this process and cannot be sent to another")


cdef void fill_args(void **args, void **slots, int *arg_slots, int n) noexcept nogil:
    cdef int i
    for i in range(n):
        args[i] = slots[arg_slots[i]]


cdef void run_steps(Step *steps, int n, Lease *lease) noexcept nogil:
    cdef void *scratch = lease.scratch.data if lease.scratch != NULL else NULL
    cdef void **args = lease.args
    cdef const int64_t *given = lease.vars
    cdef const int64_t *own = lease.own_vars
    cdef const int64_t *values
    cdef Step *step = steps
    cdef Step *end = steps + n
    while step < end:
        values = given if step.first_var == NO_VARS else own + step.first_var
        if step.split and lease.threads > 1:
            launch_split(
                step.run,
                args + step.first_arg,
                values,
                scratch,
                step.scratch_bytes,
                step.hi,
                lease.threads,
                step.split == 2,
            )
        else:
            step.run(args + step.first_arg, values, scratch, step.lo, step.hi)
        step += 1


cdef int64_t now() noexcept nogil:
    """Nanoseconds on the clock of time.perf_counter_ns and time.monotonic_ns."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef tuple call_of(object kernel):
    """(function, slots, scratch, lo, hi, vars, name, split) of a kernel, defaults filled in."""
    given = tuple(kernel)
    if not 2 <= len(given) <= 8:
        raise InvalidGraphError(
            "a kernel of a plan is (function, slots, scratch bytes, lo, hi, variables, name,"
            " split): the first two, and as many of the others as are wanted",
            rule="plan",
            got=f"{len(given)} entries",
        )
    given += (0, 0, 1, None, "", 0)[len(given) - 2 :]
    function, slots, scratch_bytes, lo, hi, variables, name, split = given
    if not isinstance(function, (Kernel, int)):
        raise TypeError(f"a plan runs a Kernel or an address, not {type(function).__name__}")
    if scratch_bytes < 0:
        raise InvalidGraphError("scratch bytes are negative", rule="plan", got=scratch_bytes)
    if not name:
        name = (<Kernel>function).name if isinstance(function, Kernel) else hex(function)
    variables = None if variables is None else tuple(variables)
    if not 0 <= split <= 2 or (split and (lo != 0 or hi < 1)):
        raise InvalidGraphError(
            f"kernel {name!r} is split among threads from 0 to a positive end",
            rule="plan",
            got=(lo, hi),
        )
    return function, tuple(slots), scratch_bytes, lo, hi, variables, name, int(split)


cdef size_t address_of(object function, str name) except 0:
    cdef size_t address
    address = <size_t>(<Kernel>function).address if isinstance(function, Kernel) else function
    if address == 0:
        raise InvalidGraphError(f"kernel {name!r} has no code: its address is 0", rule="plan")
    return address


cdef void copy_bytes(
    void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi
) noexcept nogil:
    """A kernel: bytes `lo` to `hi` of the second buffer go to the first."""
    memcpy(<char *>bufs[0] + lo, <char *>bufs[1] + lo, <size_t>(hi - lo))


COPY_KERNEL = <size_t><void *>copy_bytes
