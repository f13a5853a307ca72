"""What a node knows about itself: dtype, shape, bounds, open ranges, device.

Every op names one kind of each in its row of the op table; the kinds are implemented here and nowhere
else. The bounds of a node are the trusted base of many rewrite rules: a transfer function may answer
"unknown", never a wrong interval. They are checked exhaustively in `tests/core/test_bounds.py`.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from morok._core.bounds cimport infer_bounds
from morok._core.node cimport ArgRecord
from morok._core.scope cimport infer_ranges
from morok._core.types cimport ARG_BOOL, ARG_INT, ARG_OBJECT, CNode

import hashlib

from morok.errors import DTypeError, ShapeError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)

cdef enum:
    MAX_OPS = 128
    MAX_DTYPES = 4096
    NO_DTYPE = 0xFFFF

cdef enum DtypeKind:
    D_GIVEN
    D_SRC0
    D_SRC1
    D_BOOL
    D_INDEX
    D_VOID
    D_ELEMENT
    D_SCALAR
    D_VECTOR

cdef enum ShapeKind:
    S_NONE
    S_SCALAR
    S_ELEMENTWISE
    S_SRC0
    S_BUFFER
    S_BUFFER_VIEW
    S_RESHAPE
    S_EXPAND
    S_PERMUTE
    S_PAD
    S_SHRINK
    S_FLIP
    S_REDUCE_AXIS
    S_BUFFERIZE
    S_INDEX

_DTYPE_KINDS = ("given", "src0", "src1", "bool", "index", "void", "element", "scalar", "vector")
_SHAPE_KINDS = (
    "none", "scalar", "elementwise", "src0", "buffer", "buffer_view", "reshape", "expand", "permute", "pad", "shrink",
    "flip", "reduce_axis", "bufferize", "index",
)
_BOUNDS_KINDS = (
    "none", "dtype", "const", "range", "define_var", "special", "bind", "add", "sub", "mul", "neg",
    "floordiv", "floormod", "idiv", "mod", "max", "min", "and", "or", "xor", "not", "shl", "shr", "lt",
    "le", "gt", "ge", "eq", "ne", "where", "cast", "union", "abs", "sign", "square", "src0",
)

DTYPES = <DTypeInfo *>calloc(MAX_DTYPES, sizeof(DTypeInfo))
cdef uint16_t OP_COPY = 0, OP_ALLREDUCE = 0
cdef tuple EMPTY_SHAPE = ()


# ---- registration ---------------------------------------------------------------------------------

cdef int _seed(str text, uint64_t *a, uint64_t *b) except -1:
    cdef bytes digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    memcpy(a, <const char *>digest, 8)
    memcpy(b, <const char *>digest + 8, 8)
    return 0


def register_op(int i, member, str dtype_kind, str shape_kind, str bounds_kind, int range_end,
                bint inherits_ended, bint commutative):
    """Enter one row of the op table: number, Ops member, kinds; `range_end` is -1 for none."""
    cdef str name = member.name
    cdef OpInfo *info
    global OP_CONST, OP_RANGE, OP_ADD, OP_SUB, OP_MUL, OP_NEG, OP_FLOORDIV, OP_FLOORMOD, OP_WHERE
    global OP_VECTORIZE, OP_VCONST, OP_GEP, OP_CAST, OP_DEFINE_VAR, OP_DEVICE, OP_INDEX, OP_AFTER, OP_SHL
    global OP_COPY, OP_ALLREDUCE
    if not 0 <= i < MAX_OPS:
        raise ValueError(f"op number {i} of {name} is not below {MAX_OPS}")
    info = &OPS[i]
    if info.known:
        raise ValueError(f"op number {i} is registered twice, now as {name}")
    info.dtype_kind = _DTYPE_KINDS.index(dtype_kind)
    info.shape_kind = _SHAPE_KINDS.index(shape_kind)
    info.bounds_kind = _BOUNDS_KINDS.index(bounds_kind)
    info.range_end = range_end
    info.inherits_ended = inherits_ended
    info.commutative = commutative
    _seed("op:" + name, &info.seed0, &info.seed1)
    Py_INCREF(member)
    info.member = <PyObject *>member
    info.known = True
    if name == "CONST": OP_CONST = i
    elif name == "RANGE": OP_RANGE = i
    elif name == "ADD": OP_ADD = i
    elif name == "SUB": OP_SUB = i
    elif name == "MUL": OP_MUL = i
    elif name == "NEG": OP_NEG = i
    elif name == "FLOORDIV": OP_FLOORDIV = i
    elif name == "FLOORMOD": OP_FLOORMOD = i
    elif name == "WHERE": OP_WHERE = i
    elif name == "VECTORIZE": OP_VECTORIZE = i
    elif name == "VCONST": OP_VCONST = i
    elif name == "GEP": OP_GEP = i
    elif name == "CAST": OP_CAST = i
    elif name == "DEFINE_VAR": OP_DEFINE_VAR = i
    elif name == "DEVICE": OP_DEVICE = i
    elif name == "INDEX": OP_INDEX = i
    elif name == "AFTER": OP_AFTER = i
    elif name == "SHL": OP_SHL = i
    elif name == "COPY": OP_COPY = i
    elif name == "ALLREDUCE": OP_ALLREDUCE = i


cdef uint16_t dtype_id(object dtype) except? 0xFFFF:
    """The id of a DType; the first sight of one enters it into the table."""
    cdef uint16_t i
    cdef DTypeInfo *info
    global DT_BOOL, DT_INDEX, DT_VOID
    try:
        i = dtype.id
    except AttributeError:
        raise TypeError(f"dtype must be a DType, got {type(dtype).__name__}") from None
    if i >= MAX_DTYPES:
        raise OverflowError(f"more than {MAX_DTYPES} dtypes in one process")
    info = &DTYPES[i]
    if info.known:
        return i
    info.kind = ord(dtype.kind)
    info.bits = dtype.bits
    info.count = dtype.count
    info.base = dtype.base.id if dtype.base is not None else NO_DTYPE
    _seed("dtype:" + dtype.name, &info.seed0, &info.seed1)
    Py_INCREF(dtype)
    info.obj = <PyObject *>dtype
    info.known = True
    info.scalar = i if dtype.scalar is dtype else dtype_id(dtype.scalar)
    if dtype.name == "bool": DT_BOOL = i
    elif dtype.name == "index": DT_INDEX = i
    elif dtype.name == "void": DT_VOID = i
    if info.base != NO_DTYPE:
        dtype_id(dtype.base)
    return i


# ---- dtype ----------------------------------------------------------------------------------------

cdef uint16_t infer_dtype(uint16_t op, CNode **src, uint64_t nsrc) except? 0xFFFF:
    """The dtype that follows from the sources; DTypeError when the op's dtype must be given."""
    cdef uint8_t k = OPS[op].dtype_kind
    cdef uint16_t base
    if k == D_INDEX:
        return DT_INDEX
    if k == D_VOID:
        return DT_VOID
    if nsrc >= 1:
        if k == D_SRC0:
            return src[0].dtype
        if k == D_BOOL:
            if DTYPES[src[0].dtype].count == 1:
                return DT_BOOL
            return dtype_id((<object>DTYPES[DT_BOOL].obj).vec(DTYPES[src[0].dtype].count))
        if k == D_ELEMENT:
            base = DTYPES[src[0].dtype].base
            return src[0].dtype if base == NO_DTYPE else base
        if k == D_SCALAR:
            return DTYPES[src[0].dtype].scalar
        if k == D_VECTOR:
            return dtype_id((<object>DTYPES[src[0].dtype].obj).scalar.vec(nsrc))
        if k == D_SRC1 and nsrc >= 2:
            return src[1].dtype
    raise DTypeError(f"{(<object>OPS[op].member).name}: the dtype does not follow from {nsrc} sources")


# ---- shape ----------------------------------------------------------------------------------------

cdef str _op_name(CNode *n):
    return (<object>OPS[n.op].member).name


cdef tuple _shape_of(CNode *n):
    return <tuple>n.shape if n.shape != NULL else None


cdef tuple _dims_arg(CNode *n, int i):
    """The dims of a shape operand: `CONST` with a tuple of ints."""
    if <uint32_t>i >= n.nsrc or n.src[i].op != OP_CONST or n.src[i].akind != ARG_OBJECT:
        raise ShapeError(f"{_op_name(n)}: source {i} must be a shape constant")
    value = (<ArgRecord>n.src[i].arg).value
    if type(value) is not tuple:
        raise ShapeError(f"{_op_name(n)}: source {i} must be a shape constant, got {value!r}")
    return <tuple>value


cdef object _arg(CNode *n):
    return (<ArgRecord>n.arg).value if n.akind == ARG_OBJECT else (n.iarg if n.akind == ARG_INT else None)


cdef tuple _elementwise(CNode *n):
    """The common shape of the sources; a source of rank 0 goes with any shape."""
    cdef uint32_t i
    cdef PyObject *found = <PyObject *>EMPTY_SHAPE
    cdef PyObject *s
    for i in range(n.nsrc):
        s = n.src[i].shape
        if s == NULL:
            return None
        if s == found or len(<tuple>s) == 0:
            continue
        if len(<tuple>found) == 0:
            found = s
        elif <tuple>found != <tuple>s:
            raise ShapeError(f"{_op_name(n)}: shapes {<tuple>found} and {<tuple>s} differ")
    return <tuple>found


cdef tuple _movement(CNode *n, uint8_t kind):
    cdef tuple shape = _shape_of(n.src[0]), dims, begins, ends
    cdef Py_ssize_t rank, i
    if shape is None:
        return None
    rank = len(shape)
    if kind == S_RESHAPE:
        dims = _dims_arg(n, 1)
        if _product(dims) != _product(shape):
            raise ShapeError(f"RESHAPE: {shape} has {_product(shape)} elements, {dims} has {_product(dims)}")
        return dims
    if kind == S_EXPAND:
        dims = _dims_arg(n, 1)
        if len(dims) != rank:
            raise ShapeError(f"EXPAND: {shape} to {dims}: ranks differ")
        for i in range(rank):
            if shape[i] != dims[i] and shape[i] != 1:
                raise ShapeError(f"EXPAND: {shape} to {dims}: axis {i} is neither equal nor 1")
        return dims
    if kind == S_PERMUTE:
        dims = _arg(n)
        if sorted(dims) != list(range(rank)):
            raise ShapeError(f"PERMUTE: {dims} is no permutation of the axes of {shape}")
        return tuple([shape[i] for i in dims])
    if kind == S_FLIP:
        dims = _arg(n)
        if len(dims) != rank:
            raise ShapeError(f"FLIP: one flag for each axis of {shape}, got {dims}")
        return shape
    begins = _dims_arg(n, 1)
    ends = _dims_arg(n, 2)
    if len(begins) != rank or len(ends) != rank:
        raise ShapeError(f"{_op_name(n)}: {begins} and {ends} do not fit the rank of {shape}")
    if kind == S_PAD:
        for i in range(rank):
            if begins[i] < 0 or ends[i] < 0:
                raise ShapeError(f"PAD: pads must not be negative, got {begins} and {ends}")
        return tuple([b + s + e for b, s, e in zip(begins, shape, ends)])
    for i in range(rank):
        if not 0 <= begins[i] <= ends[i] <= shape[i]:
            raise ShapeError(f"SHRINK: {begins} to {ends} does not lie within {shape}")
    return tuple([e - b for b, e in zip(begins, ends)])


cdef object _product(tuple dims):
    p = 1
    for d in dims:
        p *= d
    return p


cdef tuple _infer_shape(CNode *n):
    cdef uint8_t k = OPS[n.op].shape_kind
    cdef tuple shape
    cdef uint32_t i, last
    if k == S_NONE:
        return None
    if k == S_SCALAR:
        if n.op == OP_CONST and n.akind == ARG_OBJECT and type((<ArgRecord>n.arg).value) is tuple:
            return None
        return EMPTY_SHAPE
    if k == S_ELEMENTWISE:
        return _elementwise(n)
    if k == S_BUFFER:
        size = _arg(n)
        if type(size) is tuple:
            size = size[len(size) - 1]
        return (size,)
    if k == S_BUFFER_VIEW:
        return (_arg(n)[0],)
    if n.nsrc == 0:
        return None
    if k == S_SRC0:
        return _shape_of(n.src[0])
    if k == S_REDUCE_AXIS:
        shape = _shape_of(n.src[0])
        if shape is None:
            return None
        axes = _arg(n)[1]
        for a in axes:
            if not 0 <= a < len(shape):
                raise ShapeError(f"REDUCE_AXIS: axis {a} out of range for {shape}")
        return tuple([d for j, d in enumerate(shape) if j not in axes])
    if k == S_BUFFERIZE:
        dims = []
        for i in range(1, n.nsrc):
            if n.src[i].op == OP_RANGE and n.src[i].src[0].akind == ARG_INT:
                dims.append(n.src[i].src[0].iarg)
            elif n.src[i].op == OP_CONST:
                dims.append(1)
            else:
                return None
        return tuple(dims)
    if k == S_INDEX:
        shape = _shape_of(n.src[0])
        if shape is None:
            return EMPTY_SHAPE
        last = n.nsrc - 1 - (1 if n.akind == ARG_BOOL and n.iarg else 0)
        if last > <uint32_t>len(shape):
            raise ShapeError(f"INDEX: {last} indices for a buffer of shape {shape}")
        return shape[last:]
    return _movement(n, k)


# ---- all together ---------------------------------------------------------------------------------

cdef int infer_all(CNode *n) except -1:
    """Fill in shape, bounds, open ranges and device of a new node whose sources are complete."""
    cdef uint32_t i
    cdef tuple shape
    if n.op == OP_RANGE and n.akind == ARG_OBJECT:
        n.iarg = (<ArgRecord>n.arg).value[0].number
    shape = _infer_shape(n)
    if shape is not None:
        c_incref(<PyObject *>shape)
        n.shape = <PyObject *>shape
    infer_bounds(n)
    infer_ranges(n)
    n.device = NULL
    if n.op == OP_DEVICE:
        n.device = n
    elif (n.op == OP_COPY or n.op == OP_ALLREDUCE) and n.nsrc >= 2:
        n.device = n.src[1].device
    else:
        for i in range(n.nsrc):
            if n.src[i].device != NULL:
                n.device = n.src[i].device
                break
    return 0
