# cython: language_level=3
"""Data structures of the core, shared by its modules. Declarations only."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef struct CNode


cdef extern from "core.h" nogil:
    uint64_t mk_mix(uint64_t a, uint64_t b)  # 64x64 -> 128 multiply, halves xored
    bint mk_add(int64_t a, int64_t b, int64_t *out)  # true on overflow
    bint mk_sub(int64_t a, int64_t b, int64_t *out)  # true on overflow
    bint mk_mul(int64_t a, int64_t b, int64_t *out)  # true on overflow
    int64_t mk_floordiv(int64_t a, int64_t b)  # b != 0 and not (min, -1)
    int64_t mk_floormod(int64_t a, int64_t b)  # b != 0
    # the Python object that a structure is part of
    PyObject *object_of "mk_object_of"(const CNode *n)


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
    NODE_INTERNED = 32  # the node is in the table, and owns its sources
    # of nodes with two sources
    NODE_RIGHT_IN_LEFT = 64  # the second source is a source of the first
    NODE_LEFT_IN_RIGHT = 128  # the first source is a source of the second
    NODE_KIN = 256  # the two have a source in common
    NODE_KIN_SHIFT = 6  # the position of the lowest of the three
    NODE_POINT = 512  # the bounds meet
    NODE_VALUE_SHIFT = 10  # the position of the ConstClass of a CONST, three bits


cdef enum ConstClass:
    CONST_OTHER  # no number, or one that takes more than 64 bits
    CONST_ZERO
    CONST_ONE
    CONST_MINUS_ONE
    CONST_NUMBER  # another one


cdef inline uint16_t const_class(uint8_t akind, int64_t iarg) noexcept:
    """What rules with literals ask first of the argument of a CONST."""
    if akind == ARG_INT or akind == ARG_BOOL:
        if iarg == 0:
            return CONST_ZERO
        return CONST_ONE if iarg == 1 else CONST_MINUS_ONE if iarg == -1 else CONST_NUMBER
    if akind != ARG_FLOAT:
        return CONST_OTHER
    if iarg == 0:
        return CONST_ZERO
    if iarg == 0x3FF0000000000000:
        return CONST_ONE
    return CONST_MINUS_ONE if iarg == <int64_t>0xBFF0000000000000 else CONST_NUMBER


cdef struct RangeSet:
    uint32_t refs  # nodes that share this set
    uint32_t n  # members
    CNode *members[1]  # sorted by (axis number, hash); borrowed: each is below its holder


cdef struct CNode:
    # One line of memory, all that a walk asks of a node where nothing is to be done
    uint16_t op  # number of the op in the op table
    uint16_t dtype  # DType.id
    uint16_t flags  # NodeFlag bits
    uint8_t akind  # ArgKind
    uint32_t nsrc  # number of sources
    uint32_t owner  # number of the rewrite that claimed this node, 0 = free
    uint64_t normal  # bit i: rule set i has simplified this node
    uint64_t below0  # ops 0..63 that occur here or below
    uint64_t below1  # ops 64..127 that occur here or below
    CNode **src  # sources, owned references; points to `few` or to malloc'ed memory
    CNode *few[3]  # room for up to three sources; the third is in the next line
    # The next line: what guards and lookups ask
    uint32_t mark  # number of the last walk that came here
    uint32_t place  # which of its owner's claims this node is
    int64_t vmin  # lower bound, if NODE_BOUNDED
    int64_t vmax  # upper bound, if NODE_BOUNDED
    int64_t iarg  # payload of scalar arguments; axis number of a RANGE
    PyObject *arg  # ArgRecord, owned, or NULL
    uint64_t h0  # content hash, low half: equal in every process
    uint64_t h1  # content hash, high half
    # Three quarters of a line; the rest is the header of the object behind
    PyObject *shape  # tuple of dims, owned, or NULL
    RangeSet *ranges  # open ranges, shared and counted, or NULL
    CNode *device  # DEVICE node below, borrowed, or NULL
    PyObject *provenance  # owned, outside identity, or NULL
    PyObject *realized  # owned node whose memory holds this value, or NULL
