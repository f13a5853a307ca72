# cython: language_level=3
"""The threads that kernels run on beside the one that launches them."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t

# What a compiled kernel looks like. It handles the part lo <= i < hi of its parallel axis.
ctypedef void (*kernel_fn)(
    void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi
) noexcept nogil

# Runs iterations 0 to `hi` of a kernel on up to `threads` threads and waits for them. `scratch`, of
# `scratch_bytes`, is the calling thread's; others have their own. `coarse`: in few parts.
cdef void launch_split(
    kernel_fn run,
    void **bufs,
    const int64_t *vars,
    void *scratch,
    size_t scratch_bytes,
    int64_t hi,
    int threads,
    bint coarse,
) noexcept nogil
# The setting `threads`, or as many as there are cores.
cdef int threads_wanted() except -1
