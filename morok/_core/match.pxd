# cython: language_level=3
"""Sets of compiled rules: what other core modules may call."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from morok._core.program cimport Test, native_rule
from morok._core.types cimport CNode

# Makes a native rule known by name. Call it when the module that implements the rule is imported.
# `wants`: NativeWants, a node that lacks one of them is not offered to the rule.
cdef int register_native(str name, native_rule function, uint8_t wants) except -1
# Whether the time of every try is taken.
cdef void set_timing(bint on) noexcept


cdef struct Entry:
    PyObject *program  # borrowed: the Matcher holds it
    native_rule native  # of the program
    Test *root  # of the program
    uint64_t need0  # copy of the program's filter
    uint64_t need1
    uint32_t index  # position in the set
    uint32_t kinds  # dtype class of the subject
    bint first  # the subject is the first source


cdef struct Look:
    uint64_t key  # what the choice depends on; 0 = empty
    uint32_t start  # first of its entries in `Matcher.chosen`
    uint32_t end  # one past the last


cdef class Matcher:
    cdef readonly tuple programs  # in order
    cdef readonly str name
    cdef readonly bint pure  # all programs are
    cdef Entry *entries  # rules by root op, in order
    cdef uint32_t start[129]  # entries of op i: start[i] up to start[i + 1]
    cdef Look *looks  # by the look of a node: the entries that could match; open addressing
    cdef uint64_t n_looks, look_mask
    cdef uint32_t *chosen  # positions in `entries`
    cdef uint32_t n_chosen, cap_chosen
    cdef uint64_t roots0  # ops that some rule starts at
    cdef uint64_t roots1
    cdef uint64_t bit  # own bit of CNode.normal, 0 = none
    cdef bint asked  # a bit was asked for
    cdef uint64_t *tried  # per rule: passed the filter
    cdef uint64_t *hits  # per rule: rewrote
    cdef uint64_t *entered  # per rule: Python functions called
    cdef uint64_t *spent  # per rule: nanoseconds of its tries, while timing is on
    cdef object __weakref__

    cdef int grow_looks(self) except -1
    cdef int choose(self, Look *look, uint64_t key, CNode *n) except -1
    # 1: `out` is the replacement (new reference) and `which` the rule; 0: no rule applies.
    cdef int step(self, CNode *n, PyObject *ctx, CNode **out, uint32_t *which) except -1
    cdef uint64_t normal_bit(self) noexcept
