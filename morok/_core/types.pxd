# cython: language_level=3
"""Data structures of the core, shared by its modules. Declarations only."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "core.h" nogil:
    uint64_t mk_mix(uint64_t a, uint64_t b)  # 64x64 -> 128 multiply, halves xored
    bint mk_add(int64_t a, int64_t b, int64_t *out)  # true on overflow
    bint mk_sub(int64_t a, int64_t b, int64_t *out)  # true on overflow
    bint mk_mul(int64_t a, int64_t b, int64_t *out)  # true on overflow
    int64_t mk_floordiv(int64_t a, int64_t b)  # b != 0 and not (min, -1)
    int64_t mk_floormod(int64_t a, int64_t b)  # b != 0


cdef enum ArgKind:
    ARG_NONE = 0
    ARG_INT = 1  # iarg is the value
    ARG_FLOAT = 2  # iarg is the bit pattern
    ARG_BOOL = 3  # iarg is 0 or 1
    ARG_OBJECT = 4  # arg is an interned ArgRecord


cdef enum NodeFlag:
    NODE_BOUNDED = 1  # vmin and vmax are known
    NODE_INVALID = 2  # the constant Invalid stands below (or here) as a value
    NODE_OVER_CONST = 4  # a source is a CONST, VCONST or VECTORIZE
    NODE_OVER_ADD = 8  # a source is an ADD
    NODE_OVER_MUL = 16  # a source is a MUL
    NODE_OVER_SHIFT = 2  # the position of the lowest of the three


cdef struct CNode


cdef struct RangeSet:
    uint32_t refs  # nodes that share this set
    uint32_t n  # members
    CNode *members[1]  # sorted by (axis number, hash); borrowed: each is below its holder


cdef struct CNode:
    # what walks ask of a node stands together, in front, and next what they ask for its sources
    uint16_t op  # number of the op in the op table
    uint16_t dtype  # DType.id
    uint8_t akind  # ArgKind
    uint8_t flags  # NodeFlag bits
    uint16_t steps  # rewrite steps seen by the active rewrite that owns `memo`
    uint32_t nsrc  # number of sources
    uint32_t mark  # number of the last walk that came here
    uint64_t normal  # bit i: rule set i has simplified this node
    uint64_t below0  # ops 0..63 that occur here or below
    uint64_t below1  # ops 64..127 that occur here or below
    uint64_t owner  # number of the rewrite that claimed `memo`, 0 = free
    CNode *memo  # result in the active rewrite that claimed this node
    CNode **src  # sources, owned references; points to `few` or to malloc'ed memory
    CNode *few[3]  # room for up to three sources
    PyObject *self  # the owning Python object; same lifetime. NULL until the node is in the table
    uint64_t h0  # content hash, low half: equal in every process
    int64_t vmin  # lower bound, if NODE_BOUNDED
    int64_t vmax  # upper bound, if NODE_BOUNDED
    uint64_t h1  # content hash, high half
    int64_t iarg  # payload of scalar arguments; axis number of a RANGE
    PyObject *arg  # ArgRecord, owned, or NULL
    PyObject *shape  # tuple of dims, owned, or NULL
    RangeSet *ranges  # open ranges, shared and counted, or NULL
    CNode *device  # DEVICE node below, borrowed, or NULL
    PyObject *provenance  # owned, outside identity, or NULL
    PyObject *realized  # owned node whose memory holds this value, or NULL
