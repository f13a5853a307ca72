"""The threads that kernels run on beside the one that launches them; `pool.h` is the pool."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t

import atexit

from morok import config
from morok.cores import available_cores

cdef extern from "pool.h" nogil:
    int morok_pool_init()
    void morok_stop_workers()
    void morok_launch(
        kernel_fn run,
        void **bufs,
        const int64_t *vars,
        void *scratch,
        size_t scratch_bytes,
        int64_t hi,
        int threads,
        int coarse,
    )
    size_t morok_scratch_bytes()
    int morok_worker_count()
    unsigned long morok_launch_count()
    unsigned long morok_joined_count()


cdef void launch_split(
    kernel_fn run,
    void **bufs,
    const int64_t *vars,
    void *scratch,
    size_t scratch_bytes,
    int64_t hi,
    int threads,
    bint coarse,
) noexcept nogil:
    morok_launch(run, bufs, vars, scratch, scratch_bytes, hi, threads, coarse)


cdef int threads_wanted() except -1:
    cdef int wanted = config.get().threads
    return wanted if wanted else available_cores()


def stop_workers():
    with nogil:
        morok_stop_workers()


def pool_stats():
    return {
        "workers": morok_worker_count(),
        "launches": morok_launch_count(),
        "joined": morok_joined_count(),
        "scratch_bytes": morok_scratch_bytes(),
    }


if morok_pool_init() != 0:
    raise MemoryError("no room to register what the pool does after a fork")
atexit.register(stop_workers)
