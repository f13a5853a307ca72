# cython: language_level=3
"""The closed set of inference kinds: dtype, shape, bounds, open ranges, device."""

from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint64_t

from morok._core.types cimport CNode


cdef struct OpInfo:
    bint known  # registered
    uint8_t dtype_kind  # how the dtype follows from the sources
    uint8_t shape_kind  # how the shape follows
    uint8_t bounds_kind  # how the bounds follow (also the op's meaning for constant folding)
    int16_t range_end  # index of the first source that is an ended range, -1 = none
    bint inherits_ended  # ends what its sources end (AFTER) or leave open (COPY, BUFFER_VIEW)
    bint commutative  # two operands may change places
    uint64_t seed0  # hash of the op's name, low half
    uint64_t seed1  # hash of the op's name, high half
    PyObject *member  # the Ops member, owned for ever


cdef struct DTypeInfo:
    bint known  # seen
    uint8_t kind  # ord() of DType.kind: b i u f x v p
    uint16_t bits  # per element
    uint16_t count  # elements, 1 = scalar
    uint16_t scalar  # id of the element dtype
    uint16_t base  # id of the pointee, 0xFFFF if no pointer
    uint16_t id  # position in DTYPES
    uint64_t seed0  # hash of the dtype's name, low half
    uint64_t seed1  # hash of the dtype's name, high half
    PyObject *obj  # the DType, owned for ever


cdef OpInfo OPS[128]  # by op number
cdef DTypeInfo *DTYPES  # by DType.id

# op numbers that the core itself needs; set when the op table registers them
cdef uint16_t OP_ADD, OP_AFTER, OP_CONST, OP_DEVICE, OP_MUL, OP_NEG, OP_RANGE, OP_SHL, OP_SUB
cdef uint16_t OP_VCONST, OP_VECTORIZE, OP_WHERE
# ids of dtypes that the core itself needs
cdef uint16_t DT_BOOL, DT_INDEX, DT_VOID

# the id of a DType; TypeError for anything else
cdef uint16_t dtype_id(object dtype) except? 0xFFFF
# the dtype that follows from the sources; DTypeError when it does not
cdef uint16_t infer_dtype(uint16_t op, CNode **src, uint64_t nsrc) except? 0xFFFF
# fills in shape, bounds, open ranges and device of a new node whose sources are complete
cdef int infer_all(CNode *n) except -1
