"""The native rule "fold": an op of constants is a constant.

Exactly what running the op would give, in its own dtype: integers wrap, floats are rounded once to
nearest even (float32 and float64 in C; narrower ones in float64 and then once more, which is exact
rounding for + - * / and the square root of formats of at most 24 bits [Figueroa, When is double
rounding innocuous?, 1995]). What several backends may answer differently is not folded:
transcendental functions, the sign of a zero that MAX or MIN choose, the bits of a NaN.

Vectors are folded lane by lane; WHERE of a constant condition is the arm it chooses.
"""

from cpython.object cimport PyObject
from libc.math cimport ceil, fabs, floor, rint, sqrt, sqrtf, trunc
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from morok._core.arithmetic cimport fold_int
from morok._core.constant cimport const_value, is_constant, make_float, make_int, make_number
from morok._core.infer cimport DTYPES, OP_CONST, OP_VCONST, OP_VECTORIZE, OP_WHERE, OPS
from morok._core.match cimport register_native
from morok._core.node cimport ArgRecord, peek, take
from morok._core.program cimport WANTS_CONSTANTS
from morok._core.types cimport ARG_BOOL, ARG_FLOAT, ARG_INT, ARG_OBJECT, CNode, object_of

from morok._core.construct import node
from morok.dtype import cast_value, from_bits, to_bits

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    uint64_t PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF

cdef enum Fold:
    NEVER
    INTEGERS  # what fold_int knows
    CASTS
    BITCASTS
    ADD
    SUB
    MUL
    FDIV
    MAX
    MIN
    LT
    LE
    GT
    GE
    EQ
    NE
    NEG
    ABS
    SQUARE
    SQRT
    RECIPROCAL
    TRUNC
    FLOOR
    CEIL
    ROUND
    AND
    OR
    XOR
    NOT
    SHL
    SHR
    FLOORDIV
    FLOORMOD

_NAMES = {
    "CAST": CASTS, "BITCAST": BITCASTS, "ADD": ADD, "SUB": SUB, "MUL": MUL, "FDIV": FDIV,
    "MAX": MAX, "MIN": MIN, "LT": LT, "LE": LE, "GT": GT, "GE": GE, "EQ": EQ, "NE": NE,
    "NEG": NEG, "ABS": ABS, "SQUARE": SQUARE, "SQRT": SQRT, "RECIPROCAL": RECIPROCAL,
    "TRUNC": TRUNC, "FLOOR": FLOOR, "CEIL": CEIL, "ROUND": ROUND, "AND": AND, "OR": OR,
    "XOR": XOR, "NOT": NOT, "SHL": SHL, "SHR": SHR, "FLOORDIV": FLOORDIV, "FLOORMOD": FLOORMOD,
    "IDIV": FLOORDIV, "MOD": FLOORMOD, "SIGN": INTEGERS,
}
cdef uint8_t _fold[128]  # Fold of each op
cdef bint _known = False


cdef int _learn() except -1:
    """Ask the op table for op numbers; it is registered after this module is imported."""
    global _known
    cdef int op
    for op in range(128):
        _fold[op] = NEVER
        if OPS[op].known:
            _fold[op] = _NAMES.get((<object>OPS[op].member).name, NEVER)
    _known = True
    return 0


# ---- floats --------------------------------------------------------------------------------------

cdef inline double _double(CNode *n) noexcept:
    cdef double d
    memcpy(&d, &n.iarg, 8)
    return d


cdef bint _float_arithmetic(uint8_t f, bint single, double a, double b, double *r) noexcept:
    """One operation rounded to float64, or float32 if `single`. False: not folded."""
    cdef float x = <float>a, y = <float>b
    if f == ADD:
        r[0] = <double>(x + y) if single else a + b
    elif f == SUB:
        r[0] = <double>(x - y) if single else a - b
    elif f == MUL:
        r[0] = <double>(x * y) if single else a * b
    elif f == FDIV:
        r[0] = <double>(x / y) if single else a / b
    elif f == SQUARE:
        r[0] = <double>(x * x) if single else a * a
    elif f == RECIPROCAL:
        r[0] = <double>(<float>1 / x) if single else 1 / a
    elif f == SQRT:
        r[0] = <double>sqrtf(x) if single else sqrt(a)
    elif f == NEG:
        r[0] = -a
    elif f == ABS:
        r[0] = fabs(a)
    elif f == TRUNC:
        r[0] = trunc(a)
    elif f == FLOOR:
        r[0] = floor(a)
    elif f == CEIL:
        r[0] = ceil(a)
    elif f == ROUND:
        r[0] = rint(a)
    elif f == MAX or f == MIN:
        if a != a or b != b:
            r[0] = a + b
        elif a == b:
            if memcmp_doubles(a, b):
                return False
            r[0] = a
        else:
            r[0] = a if (a > b) == (f == MAX) else b
    else:
        return False
    return True


cdef inline bint memcmp_doubles(double a, double b) noexcept:
    """Whether equal doubles differ in bits: a positive and a negative zero."""
    cdef int64_t x, y
    memcpy(&x, &a, 8)
    memcpy(&y, &b, 8)
    return x != y


cdef CNode *_floats(
    CNode *root, uint8_t f, uint16_t scalar, uint16_t source, CNode *a, CNode *b
) except? NULL:
    cdef double x = _double(a), y = _double(b) if b != NULL else 0.0, r = 0
    cdef uint16_t bits = DTYPES[source].bits
    if f >= LT and f <= NE:
        if f == LT:
            r = x < y
        elif f == LE:
            r = x <= y
        elif f == GT:
            r = x > y
        elif f == GE:
            r = x >= y
        elif f == EQ:
            r = x == y
        else:
            r = x != y
        return make_int(scalar, r != 0)
    if not _float_arithmetic(f, bits == 32, x, y, &r):
        return NULL
    if bits < 32 and r == r:
        r = cast_value(r, <object>DTYPES[scalar].obj)
    return make_float(scalar, r)


# ---- integers that int64 does not hold -----------------------------------------------------------

cdef bint _unsigned(CNode *n, uint64_t *v) except -1:
    if n.akind == ARG_INT:
        v[0] = <uint64_t>n.iarg
        return n.iarg >= 0
    if n.akind != ARG_OBJECT or type((<ArgRecord>n.arg).value) is not int:
        return False
    v[0] = PyLong_AsUnsignedLongLong((<ArgRecord>n.arg).value)
    return True


cdef CNode *_uint64(CNode *root, uint8_t f, uint16_t scalar, CNode *a, CNode *b) except? NULL:
    """Arithmetic modulo 2**64."""
    cdef uint64_t x = 0, y = 0, r = 0
    if not _unsigned(a, &x) or (b != NULL and not _unsigned(b, &y)):
        return NULL
    if f == ADD:
        r = x + y
    elif f == SUB:
        r = x - y
    elif f == MUL:
        r = x * y
    elif f == SQUARE:
        r = x * x
    elif f == NEG:
        r = 0 - x
    elif f == NOT:
        r = ~x
    elif f == AND:
        r = x & y
    elif f == OR:
        r = x | y
    elif f == XOR:
        r = x ^ y
    elif f == SHL:
        r = x << y if y < 64 else 0
    elif f == SHR:
        r = x >> y if y < 64 else 0
    elif f == FLOORDIV:
        r = x // y if y else 0
    elif f == FLOORMOD:
        r = x % y if y else 0
    elif f == MAX:
        r = x if x > y else y
    elif f == MIN:
        r = x if x < y else y
    elif f == ABS:
        r = x
    elif f == LT:
        r = x < y
    elif f == LE:
        r = x <= y
    elif f == GT:
        r = x > y
    elif f == GE:
        r = x >= y
    elif f == EQ:
        r = x == y
    elif f == NE:
        r = x != y
    else:
        return NULL
    if r <= <uint64_t>INT64_MAX:
        return make_int(scalar, <int64_t>r)
    return make_number(scalar, r)


# ---- one lane ------------------------------------------------------------------------------------

cdef CNode *_cast(uint8_t f, uint16_t scalar, uint16_t source, CNode *a) except? NULL:
    """CAST or BITCAST of a scalar constant, by the rules of `morok.dtype`."""
    cdef object value = (<object>object_of(a)).arg, to = <object>DTYPES[scalar].obj, result
    if f == CASTS:
        return make_number(scalar, cast_value(value, to))
    if DTYPES[scalar].bits != DTYPES[source].bits or value != value:
        return NULL
    result = from_bits(to_bits(value, <object>DTYPES[source].obj), to)
    return make_number(scalar, result) if result == result else NULL


cdef CNode *_lane(CNode *root, CNode *a, CNode *b) except? NULL:
    """The CONST that `root`'s op gives for scalar constants (b NULL: unary); NULL: not folded."""
    cdef uint8_t f = _fold[root.op]
    cdef uint16_t scalar = DTYPES[root.dtype].scalar, source = a.dtype
    cdef uint8_t kind = DTYPES[source].kind
    cdef int64_t v
    if f == CASTS or f == BITCASTS:
        return _cast(f, scalar, source, a)
    if kind == c'f':
        if a.akind != ARG_FLOAT or (b != NULL and b.akind != ARG_FLOAT):
            return NULL
        return _floats(root, f, scalar, source, a, b)
    if a.akind == ARG_INT or a.akind == ARG_BOOL:
        if b == NULL or b.akind == ARG_INT or b.akind == ARG_BOOL:
            if fold_int(root.op, scalar, source, a.iarg, b.iarg if b != NULL else 0, &v):
                return make_int(scalar, v)
    if kind == c'u' and DTYPES[source].bits == 64:
        return _uint64(root, f, scalar, a, b)
    return NULL


# ---- vectors -------------------------------------------------------------------------------------

cdef object _lane_of(CNode *n, uint32_t i):
    """Lane i of a constant as a scalar CONST; None if it is no constant."""
    if n.op == OP_CONST:
        return <object>object_of(n) if is_constant(n) else None
    if n.op == OP_VECTORIZE:
        return <object>object_of(n.src[i]) if i < n.nsrc and is_constant(n.src[i]) else None
    if n.op != OP_VCONST:
        return None
    values = (<ArgRecord>n.arg).value
    return node(OP_CONST, <object>DTYPES[DTYPES[n.dtype].scalar].obj, (), values[i])


cdef int _vector(CNode *root, CNode **out) except -1:
    cdef uint32_t i, count = DTYPES[root.dtype].count
    cdef CNode *lane
    cdef list values = []
    for i in range(root.nsrc):
        if DTYPES[root.src[i].dtype].count != count:
            return 0
    for i in range(count):
        a = _lane_of(root.src[0], i)
        b = _lane_of(root.src[1], i) if root.nsrc == 2 else None
        if a is None or (b is None and root.nsrc == 2):
            return 0
        lane = _lane(root, peek(a), peek(b) if b is not None else NULL)
        if lane == NULL:
            return 0
        values.append(take(lane).arg)
    made = node(OP_VCONST, <object>DTYPES[root.dtype].obj, (), tuple(values))
    out[0] = peek(made)
    c_incref(object_of(out[0]))
    return 1


cdef int _choose(CNode *root, CNode **out) except -1:
    """WHERE of a constant condition."""
    cdef int64_t condition
    if not const_value(root.src[0], &condition):
        return 0
    out[0] = root.src[1] if condition else root.src[2]
    c_incref(object_of(out[0]))
    return 1


cdef int _rule_fold(CNode *root, CNode **out) except -1:
    cdef CNode *a
    if root.op == OP_WHERE:
        return _choose(root, out)
    if not _known:
        _learn()
    if _fold[root.op] == NEVER or root.nsrc == 0 or root.nsrc > 2:
        return 0
    a = root.src[0]
    if DTYPES[root.dtype].count > 1:
        return _vector(root, out)
    if a.op != OP_CONST or not is_constant(a):
        return 0
    if root.nsrc == 2 and (root.src[1].op != OP_CONST or not is_constant(root.src[1])):
        return 0
    out[0] = _lane(root, a, root.src[1] if root.nsrc == 2 else NULL)
    return out[0] != NULL


register_native("fold", _rule_fold, WANTS_CONSTANTS)
