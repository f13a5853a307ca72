"""What a node knows about itself: dtype, shape, bounds, open ranges, device.

Every op names one kind of each in its row of the op table; the kinds are implemented here, in
`bounds` and in `scope`, and nowhere else. Inference is no verifier: an argument that has not the
form its row asks for gives a node without shape, which the verifier reports; sizes that do not fit
are an error here.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from morok._core.argument cimport ArgRecord
from morok._core.bounds cimport infer_bounds
from morok._core.hashtable cimport (
    Table,
    identity,
    table_init,
    table_insert,
    table_of,
    table_reserve,
)
from morok._core.scope cimport infer_ranges
from morok._core.types cimport ARG_BOOL, ARG_INT, ARG_OBJECT, NODE_BOUNDED, CNode, object_of

import hashlib

from morok.dtype import DType, dtypes
from morok.errors import DTypeError, ShapeError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    PyObject *c_item "PyTuple_GET_ITEM"(PyObject *, Py_ssize_t)
    Py_ssize_t c_size "PyTuple_GET_SIZE"(PyObject *)

cdef enum:
    MAX_OPS = 128
    MAX_DTYPES = 4096

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
    S_TUPLE_ITEM
    S_MULTI
    S_SHARD

_DTYPE_KINDS = ("given", "src0", "src1", "bool", "index", "void", "element", "scalar", "vector")
_SHAPE_KINDS = (
    "none", "scalar", "elementwise", "src0", "buffer", "buffer_view", "reshape", "expand",
    "permute", "pad", "shrink", "flip", "reduce_axis", "bufferize", "index", "tuple_item",
    "multi", "shard",
)
_BOUNDS_KINDS = (
    "none", "dtype", "const", "range", "define_var", "special", "bind", "add", "sub", "mul", "neg",
    "floordiv", "floormod", "idiv", "mod", "max", "min", "and", "or", "xor", "not", "shl", "shr",
    "lt", "le", "gt", "ge", "eq", "ne", "where", "cast", "union", "abs", "sign", "square", "src0",
)


cdef uint16_t OP_ALLREDUCE = 0, OP_CALL = 0, OP_COPY = 0, OP_FUNCTION = 0, OP_MSTACK = 0
cdef uint16_t OP_MSELECT = 0, OP_MULTI = 0, OP_TUPLE = 0
_NEEDED_OPS = (
    "ADD", "AFTER", "ALLREDUCE", "CALL", "CONST", "COPY", "DEVICE", "FUNCTION", "MSELECT",
    "MSTACK", "MUL", "MULTI", "NEG", "RANGE", "SHL", "SUB", "TUPLE", "VCONST", "VECTORIZE",
    "WHERE",
)
cdef uint16_t *_NUMBERS[20]  # where their numbers stand
_NUMBERS[:] = [
    &OP_ADD, &OP_AFTER, &OP_ALLREDUCE, &OP_CALL, &OP_CONST, &OP_COPY, &OP_DEVICE, &OP_FUNCTION,
    &OP_MSELECT, &OP_MSTACK, &OP_MUL, &OP_MULTI, &OP_NEG, &OP_RANGE, &OP_SHL, &OP_SUB, &OP_TUPLE,
    &OP_VCONST, &OP_VECTORIZE, &OP_WHERE,
]

DTYPES = <DTypeInfo *>calloc(MAX_DTYPES, sizeof(DTypeInfo))
if DTYPES == NULL:
    raise MemoryError()

cdef Table _dtype_infos  # rows of DTYPES, by the identity of the DType
table_init(&_dtype_infos, 256)
cdef tuple EMPTY_SHAPE = ()


# ---- registration -------------------------------------------------------------------------------

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
    if name in _NEEDED_OPS:
        _NUMBERS[_NEEDED_OPS.index(name)][0] = i
    Py_INCREF(member)
    info.member = <PyObject *>member
    info.known = True


cdef uint16_t dtype_id(object dtype) except? 0xFFFF:
    """Fast entry: the id of a DType."""
    cdef void *info = table_of(&_dtype_infos, <PyObject *>dtype)
    if info != NULL:
        return (<DTypeInfo *>info).id
    return _enter_dtype(dtype)


cdef uint16_t _enter_dtype(object dtype) except? 0xFFFF:
    """The first sight of a DType puts it into the table."""
    cdef DTypeInfo *info
    cdef uint64_t i
    if type(dtype) is not DType:
        raise TypeError(f"dtype must be a DType, got {type(dtype).__name__}")
    i = dtype.id
    if i >= MAX_DTYPES:
        raise OverflowError(f"more than {MAX_DTYPES} dtypes in one process")
    info = &DTYPES[i]
    info.kind = ord(dtype.kind)
    info.bits = dtype.bits
    info.count = dtype.count
    info.id = <uint16_t>i
    _seed("dtype:" + dtype.name, &info.seed0, &info.seed1)
    info.scalar = info.id if dtype.scalar is dtype else dtype_id(dtype.scalar)
    info.base = info.id if dtype.base is dtype else dtype_id(dtype.base)
    table_reserve(&_dtype_infos)
    if not info.known:  # nobody else came while Python ran
        Py_INCREF(dtype)
        info.obj = <PyObject *>dtype
        info.known = True
        table_insert(&_dtype_infos, identity(<PyObject *>dtype), info)
    return info.id


DT_BOOL = dtype_id(dtypes.bool_)
DT_INDEX = dtype_id(dtypes.index)
DT_VOID = dtype_id(dtypes.void)


# ---- dtype --------------------------------------------------------------------------------------

cdef uint16_t infer_dtype(uint16_t op, CNode **src, uint64_t nsrc) except? 0xFFFF:
    """Fast entry: the dtype that follows from the sources."""
    cdef uint8_t k = OPS[op].dtype_kind
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
            return DTYPES[src[0].dtype].base
        if k == D_SCALAR:
            return DTYPES[src[0].dtype].scalar
        if k == D_VECTOR:
            return dtype_id((<object>DTYPES[src[0].dtype].obj).scalar.vec(nsrc))
        if k == D_SRC1 and nsrc >= 2:
            return src[1].dtype
    name = (<object>OPS[op].member).name
    if k == D_GIVEN:
        raise DTypeError(f"{name}: expected a dtype, it does not follow from the sources")
    raise DTypeError(f"{name}: expected the sources its dtype follows from, got {nsrc}")


# ---- shape --------------------------------------------------------------------------------------

cdef object _misfit(CNode *n, str field, str expected, str got):
    """The error for sizes that do not fit."""
    return ShapeError(f"{(<object>OPS[n.op].member).name}.{field}: expected {expected}, got {got}")


cdef object _arg(CNode *n):
    """The argument if it is an int or an object, else None."""
    if n.akind == ARG_OBJECT:
        return (<ArgRecord>n.arg).value
    return n.iarg if n.akind == ARG_INT else None


cdef bint _all_ints(object values) except -1:
    """Is it a tuple of ints?"""
    if type(values) is not tuple:
        return False
    for v in <tuple>values:
        if type(v) is not int:
            return False
    return True


cdef tuple _symbolic_sizes(CNode *operand):
    """The elements of a `VECTORIZE`: ints where they are constants, else the nodes themselves; None
    if one may be negative."""
    cdef uint32_t i
    cdef CNode *s
    cdef list dims = []
    for i in range(operand.nsrc):
        s = operand.src[i]
        if not s.flags & NODE_BOUNDED or s.vmin < 0:
            return None
        dims.append(s.vmin if s.op == OP_CONST else <object>object_of(s))
    return tuple(dims)


cdef tuple _sizes(CNode *n, uint32_t i, str field):
    """A shape operand: `CONST` with a tuple of ints, none negative, or a `VECTORIZE` of what has
    such bounds."""
    cdef object dims = None
    if i < n.nsrc and n.src[i].op == OP_CONST:
        dims = _arg(n.src[i])
    elif i < n.nsrc and n.src[i].op == OP_VECTORIZE:
        dims = _symbolic_sizes(n.src[i])
        if dims is not None:
            return <tuple>dims
    if not _all_ints(dims) or min(<tuple>dims, default=0) < 0:
        got = repr(dims)
        if i >= n.nsrc:
            got = "nothing"
        elif dims is None:
            got = (<object>OPS[n.src[i].op].member).name
        raise _misfit(n, field, "non-negative ints, a constant", got)
    return <tuple>dims


cdef object _product(tuple dims):
    p = 1
    for d in dims:
        p *= d
    return p


cdef list _parts(tuple dims):
    """Products of ints, and between them the symbolic dims: what a reshape must keep."""
    cdef list parts = [1]
    for d in dims:
        if type(d) is int:
            parts[len(parts) - 1] *= d
        else:
            parts += [d, 1]
    return parts


cdef object _simple(object dim):
    """An int where a dim is one."""
    if type(dim) is int:
        return dim
    dim = dim.simplify()
    return dim.arg if <int>dim.op == OP_CONST else dim


cdef object _sum(object a, object b):
    """a + b, simplified where it is symbolic."""
    if type(a) is int and type(b) is int:
        return a + b
    if type(a) is int:
        a, b = b, a
    return a if type(b) is int and b == 0 else _simple(a + b)


cdef object _difference(object a, object b):
    """a - b, simplified where it is symbolic."""
    if a is b:
        return 0
    if type(b) is int:
        return _sum(a, -b)
    return _simple(a - b)


cdef bint _may_be_negative(object size) except -1:
    if type(size) is not int:
        size = size.vmin
    return size is None or size < 0


cdef PyObject *_elementwise(CNode *n) except? NULL:
    """The common shape of the sources, borrowed; a source of rank 0 goes with any shape."""
    cdef uint32_t i
    cdef PyObject *found = <PyObject *>EMPTY_SHAPE
    cdef PyObject *s
    for i in range(n.nsrc):
        s = n.src[i].shape
        if s == NULL:
            return NULL
        if s == found or c_size(s) == 0:
            continue
        if c_size(found) == 0:
            found = s
        elif <tuple>found != <tuple>s:
            got = f"{<tuple>found} and {<tuple>s}"
            raise _misfit(n, "src", "sources of one shape (or of rank 0)", got)
    return found


cdef tuple _reshape(CNode *n, tuple shape):
    cdef tuple dims = _sizes(n, 1, "new_shape")
    if not _all_ints(dims) or not _all_ints(shape):
        if _parts(dims) != _parts(shape):
            expected = (
                f"the symbolic dims of {shape} kept, and as many elements between them (a symbolic "
                "dim is neither split nor joined: cut or pad to an int first)"
            )
            raise _misfit(n, "new_shape", expected, f"{dims}")
    elif _product(dims) != _product(shape):
        raise _misfit(
            n,
            "new_shape",
            f"a shape of {_product(shape)} elements, as {shape} has",
            f"{dims} of {_product(dims)} elements",
        )
    return dims


cdef tuple _expand(CNode *n, tuple shape):
    cdef tuple dims = _sizes(n, 1, "new_shape")
    cdef Py_ssize_t i, rank = len(shape)
    if len(dims) != rank:
        raise _misfit(n, "new_shape", f"a shape of rank {rank}, as {shape} has", f"{dims}")
    for i in range(rank):
        if shape[i] != dims[i] and shape[i] != 1:
            expected = f"size {shape[i]} on axis {i}, as {shape} has (only size 1 expands)"
            raise _misfit(n, "new_shape", expected, f"{dims}")
    return dims


cdef tuple _permute(CNode *n, tuple shape):
    axes = _arg(n)
    if not _all_ints(axes):
        return None
    if sorted(axes) != list(range(len(shape))):
        raise _misfit(n, "axes", f"a permutation of the {len(shape)} axes of {shape}", f"{axes}")
    return tuple([shape[i] for i in <tuple>axes])


cdef tuple _flip(CNode *n, tuple shape):
    flags = _arg(n)
    if type(flags) is not tuple:
        return None
    if len(<tuple>flags) != len(shape):
        raise _misfit(n, "axes", f"one flag for each axis of {shape}", f"{flags}")
    return shape


cdef tuple _pad(CNode *n, tuple shape):
    cdef tuple begins = _sizes(n, 1, "begin_pads")
    cdef tuple ends = _sizes(n, 2, "end_pads")
    if len(begins) != len(shape) or len(ends) != len(shape):
        expected = f"two pads for each axis of {shape}"
        raise _misfit(n, "begin_pads, end_pads", expected, f"{begins} and {ends}")
    return tuple([_sum(_sum(s, b), e) for b, s, e in zip(begins, shape, ends)])


cdef tuple _shrink(CNode *n, tuple shape):
    cdef tuple begins = _sizes(n, 1, "begins")
    cdef tuple ends = _sizes(n, 2, "ends")
    cdef Py_ssize_t i, rank = len(shape)
    if len(begins) != rank or len(ends) != rank:
        expected = f"a begin and an end for each axis of {shape}"
        raise _misfit(n, "begins, ends", expected, f"{begins} and {ends}")
    for i in range(rank):
        length, behind = _difference(ends[i], begins[i]), _difference(shape[i], ends[i])
        if _may_be_negative(length) or _may_be_negative(behind):
            expected = f"0 <= begin <= end <= {shape[i]} on axis {i} of {shape}"
            raise _misfit(n, "begins, ends", expected, f"{begins} to {ends}")
    return tuple([_difference(e, b) for b, e in zip(begins, ends)])


cdef tuple _reduce_axis(CNode *n, tuple shape):
    arg = _arg(n)
    if type(arg) is not tuple or len(<tuple>arg) != 2 or not _all_ints((<tuple>arg)[1]):
        return None
    axes = <tuple>(<tuple>arg)[1]
    for a in axes:
        if not 0 <= a < len(shape):
            raise _misfit(n, "axes", f"axes of {shape}", f"{axes}")
    return tuple([d for j, d in enumerate(shape) if j not in axes])


cdef tuple _index(CNode *n, tuple shape):
    """The dims that are not indexed."""
    cdef int64_t indices = <int64_t>n.nsrc - 1
    if n.akind == ARG_BOOL and n.iarg:
        indices -= 1
    if indices < 0:
        return None
    if indices > <int64_t>len(shape):
        expected = f"at most {len(shape)} indices for a buffer of shape {shape}"
        raise _misfit(n, "indices", expected, f"{indices} indices")
    return shape[indices:]


cdef tuple _buffer(CNode *n, Py_ssize_t place):
    """One dim: the argument, or its item `place` (-1: the last one) if it is a tuple."""
    size = _arg(n)
    if type(size) is tuple and len(<tuple>size) != 0:
        size = (<tuple>size)[len(<tuple>size) - 1 if place < 0 else place]
    return (size,) if type(size) is int and size >= 0 else None


cdef tuple _bufferize(CNode *n):
    """The ends of the ranges; a constant stands for a dim of size 1."""
    cdef uint32_t i
    cdef CNode *end
    cdef list dims = []
    for i in range(1, n.nsrc):
        if n.src[i].op == OP_CONST:
            dims.append(1)
            continue
        if n.src[i].op != OP_RANGE or n.src[i].nsrc == 0:
            return None
        end = n.src[i].src[0]
        if end.op == OP_CONST:
            if end.akind != ARG_INT or end.iarg < 0:
                return None
            dims.append(end.iarg)
        else:
            dims.append(<object>object_of(end))
    return tuple(dims)


cdef PyObject *_tuple_item(CNode *n) noexcept:
    """The shape of one value of a TUPLE, FUNCTION or CALL, borrowed."""
    cdef CNode *body
    if n.nsrc == 0:
        return NULL
    body = n.src[0]
    while (body.op == OP_CALL or body.op == OP_FUNCTION) and body.nsrc:
        body = body.src[0]
    if body.op != OP_TUPLE or n.akind != ARG_INT or not 0 <= n.iarg < <int64_t>body.nsrc:
        return NULL
    return body.src[n.iarg].shape


cdef tuple _multi(CNode *n, tuple shape):
    """The shards of an MSTACK one after the other along the axis; a replicated value is one."""
    cdef int64_t axis = n.iarg if n.akind == ARG_INT else -1
    if axis < 0 or n.src[0].op != OP_MSTACK:
        return shape
    if axis >= <int64_t>len(shape):
        raise _misfit(n, "axis", f"an axis of {shape}", f"{axis}")
    return (*shape[:axis], shape[axis] * n.src[0].nsrc, *shape[axis + 1:])


cdef tuple _computed_shape(CNode *n, uint8_t k):
    """The shape by the kinds that make a new tuple."""
    cdef tuple shape
    if k == S_BUFFER:
        return _buffer(n, -1)
    if k == S_BUFFER_VIEW:
        return _buffer(n, 0)
    if k == S_BUFFERIZE:
        return _bufferize(n)
    if n.nsrc == 0:
        return None
    if n.src[0].shape == NULL:
        return EMPTY_SHAPE if k == S_INDEX else None
    shape = <tuple>n.src[0].shape
    if k == S_RESHAPE:
        return _reshape(n, shape)
    if k == S_EXPAND:
        return _expand(n, shape)
    if k == S_PERMUTE:
        return _permute(n, shape)
    if k == S_PAD:
        return _pad(n, shape)
    if k == S_SHRINK:
        return _shrink(n, shape)
    if k == S_FLIP:
        return _flip(n, shape)
    if k == S_REDUCE_AXIS:
        return _reduce_axis(n, shape)
    if k == S_MULTI:
        return _multi(n, shape)
    return _index(n, shape)


cdef int _infer_shape(CNode *n) except -1:
    cdef uint8_t k = OPS[n.op].shape_kind
    cdef PyObject *shape = NULL
    cdef tuple computed
    if k == S_NONE or (k == S_INDEX and DTYPES[n.dtype].kind == b"p"):  # an address has no dims
        return 0
    if k == S_ELEMENTWISE:
        shape = _elementwise(n)
    elif k == S_SCALAR:
        # a shape constant is no value
        if n.op != OP_CONST or n.akind != ARG_OBJECT or type((<ArgRecord>n.arg).value) is not tuple:
            shape = <PyObject *>EMPTY_SHAPE
    elif k == S_SRC0:
        if n.nsrc:
            shape = n.src[0].shape
    elif k == S_TUPLE_ITEM:
        shape = _tuple_item(n)
    elif k == S_SHARD:  # of what is put together, or of the stack itself
        if n.nsrc:
            shape = n.src[0].shape
            if n.src[0].op == OP_MULTI and n.src[0].nsrc:
                shape = n.src[0].src[0].shape
    else:
        computed = _computed_shape(n, k)
        if computed is not None:
            shape = <PyObject *>computed
    if shape != NULL:
        c_incref(shape)
        n.shape = shape
    return 0


# ---- all together -------------------------------------------------------------------------------

cdef int64_t _axis_number(CNode *n) except? -1:
    """The axis number of a RANGE, kept in `iarg` for the order of loops; 0 if it has none."""
    cdef object axis = None
    if type((<ArgRecord>n.arg).value) is tuple and len(<tuple>(<ArgRecord>n.arg).value) != 0:
        axis = getattr((<tuple>(<ArgRecord>n.arg).value)[0], "number", None)
    return axis if type(axis) is int and -INT64_MAX <= axis <= INT64_MAX else 0


cdef void _infer_device(CNode *n) noexcept:
    """Where the value is: at a DEVICE below, the first one found by way of the sources."""
    cdef uint32_t i
    cdef CNode *stack
    if n.op == OP_DEVICE:
        n.device = n
    elif (n.op == OP_COPY or n.op == OP_ALLREDUCE) and n.nsrc >= 2:
        n.device = n.src[1].device
    elif n.op == OP_MSELECT and n.nsrc and n.akind == ARG_INT:
        stack = n.src[0].src[0] if n.src[0].op == OP_MULTI and n.src[0].nsrc else n.src[0]
        if 0 <= n.iarg < <int64_t>stack.nsrc:
            n.device = stack.src[n.iarg].device
    else:
        for i in range(n.nsrc):
            if n.src[i].device != NULL:
                n.device = n.src[i].device
                break


cdef int infer_all(CNode *n) except -1:
    """Fast entry: fill in shape, bounds, open ranges and device."""
    if n.op == OP_RANGE and n.akind == ARG_OBJECT:
        n.iarg = _axis_number(n)
    _infer_shape(n)
    infer_bounds(n)
    infer_ranges(n)
    _infer_device(n)
    return 0
