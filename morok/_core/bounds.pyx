"""Bounds of integer and bool nodes, and the folding of their constants.

A transfer function answers the interval of a node from those of its sources: exact where that is cheap, wider
where it is not, "unknown" where int64 cannot say it; never wrong. `index` values are ideal integers whose
divisors are not zero; fixed-width types wrap (then the interval is the type's limits) and divide by zero to 0.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.infer cimport DTYPES, OP_VCONST, OPS, DTypeInfo
from morok._core.node cimport ArgRecord
from morok._core.types cimport (
    ARG_BOOL,
    ARG_INT,
    ARG_OBJECT,
    NODE_BOUNDED,
    NODE_INVALID,
    CNode,
    mk_add,
    mk_floordiv,
    mk_floormod,
    mk_mul,
    mk_sub,
)


cdef bint type_limits(uint16_t dtype, int64_t *lo, int64_t *hi) noexcept:
    """Limits of an integer or bool dtype; False where int64 cannot say them or there are none."""
    cdef DTypeInfo *d = &DTYPES[dtype]
    if d.kind == c'b':
        lo[0] = 0
        hi[0] = 1
        return True
    if d.kind == c'i':
        lo[0] = INT64_MIN if d.bits == 64 else -(<int64_t>1 << (d.bits - 1))
        hi[0] = INT64_MAX if d.bits == 64 else (<int64_t>1 << (d.bits - 1)) - 1
        return True
    if d.kind == c'u' and d.bits < 64:
        lo[0] = 0
        hi[0] = (<int64_t>1 << d.bits) - 1
        return True
    return False


cdef inline bint _is_int(uint16_t dtype) noexcept:
    cdef uint8_t k = DTYPES[dtype].kind
    return k == c'b' or k == c'i' or k == c'u' or k == c'x'


cdef inline void _set(CNode *n, int64_t lo, int64_t hi) noexcept:
    """Known bounds; a fixed-width type that they leave wraps, so then they are the type's limits."""
    cdef int64_t a, b
    if DTYPES[n.dtype].kind != c'x':
        if not type_limits(n.dtype, &a, &b):
            if lo < 0:
                return
        elif lo < a or hi > b:
            lo = a
            hi = b
    n.vmin = lo
    n.vmax = hi
    n.flags |= NODE_BOUNDED


cdef inline void _limits(CNode *n) noexcept:
    cdef int64_t a, b
    if type_limits(n.dtype, &a, &b):
        _set(n, a, b)


cdef inline bint _known(CNode *n) noexcept:
    return n.flags & NODE_BOUNDED != 0


cdef inline bint _const_invalid(CNode *n) noexcept:
    return n.flags & NODE_INVALID != 0


cdef struct Span:
    int64_t lo  # least value seen
    int64_t hi  # greatest value seen
    bint any  # something was seen


cdef inline void _see(Span *s, int64_t v) noexcept:
    if not s.any or v < s.lo:
        s.lo = v
    if not s.any or v > s.hi:
        s.hi = v
    s.any = True


cdef inline int64_t _div(int64_t a, int64_t b, bint floor, bint *bad) noexcept:
    if b == -1:
        if a == INT64_MIN:
            bad[0] = True
            return 0
        return -a
    return mk_floordiv(a, b) if floor else a / b


cdef inline void _divide(CNode *n, int64_t a, int64_t b, int64_t c, int64_t d, bint floor) noexcept:
    """Quotients of [a, b] by [c, d]. For a fixed sign of the divisor the extremes lie at corners."""
    cdef Span s
    cdef bint bad = False
    cdef int64_t e
    s.any = False
    if d >= 1:
        e = c if c > 1 else 1
        _see(&s, _div(a, e, floor, &bad))
        _see(&s, _div(a, d, floor, &bad))
        _see(&s, _div(b, e, floor, &bad))
        _see(&s, _div(b, d, floor, &bad))
    if c <= -1:
        e = d if d < -1 else -1
        _see(&s, _div(a, c, floor, &bad))
        _see(&s, _div(a, e, floor, &bad))
        _see(&s, _div(b, c, floor, &bad))
        _see(&s, _div(b, e, floor, &bad))
    if c <= 0 <= d and DTYPES[n.dtype].kind != c'x':
        _see(&s, 0)
    if bad:
        _limits(n)
    elif s.any:
        _set(n, s.lo, s.hi)


cdef inline void _floormod(CNode *n, int64_t a, int64_t b, int64_t c, int64_t d) noexcept:
    cdef int64_t lo = 0, hi = 0
    cdef bint bad = False
    if c == d and c != 0:
        if _div(a, c, True, &bad) == _div(b, c, True, &bad) and not bad:
            _set(n, mk_floormod(a, c), mk_floormod(b, c))
            return
    if d > 0:
        hi = d - 1
        if a >= 0 and c > 0 and b < hi:
            hi = b
    if c < 0:
        lo = c + 1
    if c <= 0 <= d and DTYPES[n.dtype].kind != c'x':
        lo = min(lo, 0)
        hi = max(hi, 0)
    elif c == 0 and d == 0:
        return
    _set(n, lo, hi)


cdef inline void _truncmod(CNode *n, int64_t a, int64_t b, int64_t c, int64_t d) noexcept:
    cdef int64_t m, lo, hi
    if c == d and c != 0 and c != -1 and a / c == b / c and (a >= 0 or b <= 0):
        _set(n, a % c, b % c)
        return
    if c == INT64_MIN or (c == 0 and d == 0 and DTYPES[n.dtype].kind == c'x'):
        _limits(n)
        return
    m = max(-c if c < 0 else c, -d if d < 0 else d) - 1
    if m < 0:
        m = 0
    lo = 0 if a >= 0 else max(a, -m)
    hi = 0 if b <= 0 else min(b, m)
    _set(n, lo, hi)


cdef inline int64_t _mask_above(int64_t v) noexcept:
    """The least 2**k - 1 that is not below v >= 0."""
    cdef uint64_t m = v
    m |= m >> 1
    m |= m >> 2
    m |= m >> 4
    m |= m >> 8
    m |= m >> 16
    m |= m >> 32
    return <int64_t>m


cdef inline void _bitwise(CNode *n, uint8_t k, int64_t a, int64_t b, int64_t c, int64_t d) noexcept:
    if k == B_AND:
        if a >= 0 and c >= 0:
            _set(n, b if a == b and c == d and b == d else 0, min(b, d))
        elif a >= 0:
            _set(n, 0, b)
        elif c >= 0:
            _set(n, 0, d)
        else:
            _limits(n)
    elif a >= 0 and c >= 0:
        if k == B_OR:
            _set(n, max(a, c), _mask_above(b | d))
        else:
            _set(n, 0, _mask_above(b | d))
    else:
        _limits(n)


cdef inline int64_t _shift_right(int64_t v, int64_t s) noexcept:
    return v >> (s if s < 63 else 63)


cdef inline void _shift(CNode *n, uint8_t k, int64_t a, int64_t b, int64_t c, int64_t d) noexcept:
    cdef Span s
    cdef int64_t w = DTYPES[n.dtype].bits, lo, hi, p
    if c < 0:
        _limits(n)
        return
    if k == B_SHL:
        if c != d or c >= min(w, <int64_t>63):
            _limits(n)
            return
        p = <int64_t>1 << c
        if mk_mul(a, p, &lo) or mk_mul(b, p, &hi):
            _limits(n)
            return
        _set(n, lo, hi)
        return
    s.any = False
    _see(&s, _shift_right(a, c))
    _see(&s, _shift_right(a, d))
    _see(&s, _shift_right(b, c))
    _see(&s, _shift_right(b, d))
    _set(n, s.lo, s.hi)


cdef inline void _compare(CNode *n, uint8_t k, CNode *x, CNode *y) noexcept:
    cdef int64_t a, b, c, d
    cdef bint known = _known(x) and _known(y)
    cdef int64_t lo = 0, hi = 1
    if known:
        a = x.vmin
        b = x.vmax
        c = y.vmin
        d = y.vmax
        if k == B_LT:
            lo = b < c
            hi = a < d
        elif k == B_LE:
            lo = b <= c
            hi = a <= d
        elif k == B_GT:
            lo = a > d
            hi = b > c
        elif k == B_GE:
            lo = a >= d
            hi = b >= c
        elif k == B_EQ:
            lo = a == b and c == d and a == c
            hi = not (b < c or d < a)
        else:
            lo = b < c or d < a
            hi = not (a == b and c == d and a == c)
    _set(n, lo, hi)


cdef void _vconst(CNode *n):
    cdef Span s
    s.any = False
    if n.akind != ARG_OBJECT:
        return
    for v in (<ArgRecord>n.arg).value:
        if type(v) is not int and type(v) is not bool:
            return
        if not INT64_MIN <= v <= INT64_MAX:
            return
        _see(&s, v)
    if s.any:
        _set(n, s.lo, s.hi)


cdef void _unary(CNode *n, uint8_t k, CNode *x) noexcept:
    cdef int64_t a, b, t
    if not _known(x):
        if k != B_CAST and k != B_SRC0:
            _limits(n)
            return
        if k == B_CAST:
            _limits(n)
        return
    a = x.vmin
    b = x.vmax
    if k == B_SRC0:
        _set(n, a, b)
    elif k == B_CAST:
        if DTYPES[n.dtype].kind == c'b':
            _set(n, 0 if a <= 0 <= b else 1, 0 if a == 0 and b == 0 else 1)
        else:
            _set(n, a, b)
            if not _known(n) and DTYPES[n.dtype].kind == c'u' and a >= 0:
                _set(n, a, b)
    elif k == B_NEG:
        if a == INT64_MIN:
            _limits(n)
        else:
            _set(n, -b, -a)
    elif k == B_NOT:
        if DTYPES[n.dtype].kind == c'b':
            _set(n, 1 - b, 1 - a)
        elif DTYPES[n.dtype].kind == c'u':
            _limits(n)
        else:
            _set(n, -1 - b, -1 - a)
    elif k == B_ABS:
        if a == INT64_MIN:
            _limits(n)
        elif a >= 0:
            _set(n, a, b)
        elif b <= 0:
            _set(n, -b, -a)
        else:
            _set(n, 0, max(-a, b))
    elif k == B_SIGN:
        _set(n, (a > 0) - (a < 0), (b > 0) - (b < 0))
    else:  # B_SQUARE
        t = max(-a if a > INT64_MIN and a < 0 else a, -b if b > INT64_MIN and b < 0 else b)
        if a == INT64_MIN or mk_mul(t, t, &b):
            _limits(n)
        elif DTYPES[n.dtype].kind == c'x' or a >= 0 or x.vmax <= 0:
            a = 0 if a <= 0 <= x.vmax else min(a * a, x.vmax * x.vmax)
            _set(n, a, b)
        else:
            _set(n, 0, b)


cdef int infer_bounds(CNode *n) except -1:
    cdef uint8_t k = OPS[n.op].bounds_kind
    cdef int64_t a, b, c, d, lo, hi, t, u
    cdef uint32_t i
    cdef CNode *x
    cdef CNode *y
    if k == B_NONE:
        return 0
    if k == B_CONST:
        if n.akind == ARG_INT or n.akind == ARG_BOOL:
            if _is_int(n.dtype):
                n.vmin = n.iarg
                n.vmax = n.iarg
                n.flags |= NODE_BOUNDED
        elif n.akind == ARG_OBJECT and DTYPES[n.dtype].kind == c'x':
            if type((<ArgRecord>n.arg).value) is not tuple and type((<ArgRecord>n.arg).value) is not int:
                n.flags |= NODE_INVALID
        elif n.op == OP_VCONST:
            _vconst(n)
        return 0
    if not _is_int(n.dtype):
        return 0
    if k == B_DTYPE:
        _limits(n)
        return 0
    if k == B_RANGE or k == B_SPECIAL:
        if n.nsrc >= 1 and _known(n.src[0]):
            _set(n, 0, n.src[0].vmax - 1)
        return 0
    if k == B_DEFINE_VAR:
        value = (<ArgRecord>n.arg).value
        _set(n, value[1], value[2])
        return 0
    if k == B_UNION:
        if n.op == OP_VCONST:
            _vconst(n)
            return 0
        if n.nsrc == 0 or not _known(n.src[0]):
            _limits(n)
            return 0
        lo = n.src[0].vmin
        hi = n.src[0].vmax
        for i in range(1, n.nsrc):
            if not _known(n.src[i]):
                _limits(n)
                return 0
            lo = min(lo, n.src[i].vmin)
            hi = max(hi, n.src[i].vmax)
        _set(n, lo, hi)
        return 0
    if n.nsrc == 0:
        return 0
    x = n.src[0]
    if k == B_BIND:
        # The variable's bounds, not today's value: kernels serve every binding.
        if _known(x):
            _set(n, x.vmin, x.vmax)
        return 0
    if k == B_WHERE:
        if n.nsrc != 3:
            return 0
        if _known(x) and x.vmin == x.vmax:
            y = n.src[1] if x.vmin else n.src[2]
            if _known(y):
                _set(n, y.vmin, y.vmax)
            elif not _const_invalid(y):
                _limits(n)
            return 0
        if _const_invalid(n.src[2]):
            if _known(n.src[1]):
                _set(n, n.src[1].vmin, n.src[1].vmax)
        elif _const_invalid(n.src[1]):
            if _known(n.src[2]):
                _set(n, n.src[2].vmin, n.src[2].vmax)
        elif _known(n.src[1]) and _known(n.src[2]):
            _set(n, min(n.src[1].vmin, n.src[2].vmin), max(n.src[1].vmax, n.src[2].vmax))
        else:
            _limits(n)
        return 0
    if n.nsrc == 1 or k == B_SRC0 or k == B_CAST:
        if k in (B_SRC0, B_CAST, B_NEG, B_NOT, B_ABS, B_SIGN, B_SQUARE):
            _unary(n, k, x)
        return 0
    if n.nsrc != 2:
        return 0
    y = n.src[1]
    if k >= B_LT and k <= B_NE:
        _compare(n, k, x, y)
        return 0
    if not (_known(x) and _known(y)):
        if k == B_FLOORMOD and _known(y) and y.vmin > 0 and DTYPES[n.dtype].kind == c'x':
            _set(n, 0, y.vmax - 1)
        else:
            _limits(n)
        return 0
    a = x.vmin
    b = x.vmax
    c = y.vmin
    d = y.vmax
    if k == B_ADD:
        if mk_add(a, c, &lo) or mk_add(b, d, &hi):
            _limits(n)
        else:
            _set(n, lo, hi)
    elif k == B_SUB:
        if mk_sub(a, d, &lo) or mk_sub(b, c, &hi):
            _limits(n)
        else:
            _set(n, lo, hi)
    elif k == B_MUL:
        if mk_mul(a, c, &lo) or mk_mul(a, d, &hi) or mk_mul(b, c, &t) or mk_mul(b, d, &u):
            _limits(n)
        else:
            _set(n, min(min(lo, hi), min(t, u)), max(max(lo, hi), max(t, u)))
    elif k == B_FLOORDIV:
        _divide(n, a, b, c, d, True)
    elif k == B_IDIV:
        _divide(n, a, b, c, d, False)
    elif k == B_FLOORMOD:
        _floormod(n, a, b, c, d)
    elif k == B_MOD:
        _truncmod(n, a, b, c, d)
    elif k == B_MAX:
        _set(n, max(a, c), max(b, d))
    elif k == B_MIN:
        _set(n, min(a, c), min(b, d))
    elif k == B_AND or k == B_OR or k == B_XOR:
        _bitwise(n, k, a, b, c, d)
    elif k == B_SHL or k == B_SHR:
        _shift(n, k, a, b, c, d)
    return 0


# ---- constant folding -----------------------------------------------------------------------------

cdef inline int _wrap(uint16_t dtype, uint64_t v, int64_t *out) noexcept:
    """Reduce to the width of a fixed integer dtype. 0 if int64 cannot hold the result."""
    cdef DTypeInfo *d = &DTYPES[dtype]
    cdef int s
    if d.kind == c'b':
        out[0] = v != 0
        return 1
    if d.bits == 64:
        if d.kind == c'u' and v >> 63:
            return 0
        out[0] = <int64_t>v
        return 1
    s = 64 - d.bits
    out[0] = (<int64_t>(v << s)) >> s if d.kind == c'i' else <int64_t>((v << s) >> s)
    return 1


cdef int fold_int(uint16_t op, uint16_t dtype, uint16_t src_dtype, int64_t a, int64_t b, int64_t *out) noexcept:
    """`op(a, b)` for operands of `src_dtype` in the semantics of `dtype`; unary ops ignore b."""
    cdef uint8_t k = OPS[op].bounds_kind
    cdef bint ideal = DTYPES[dtype].kind == c'x'
    cdef bint unsigned64 = DTYPES[src_dtype].kind == c'u' and DTYPES[src_dtype].bits == 64
    cdef int64_t width = DTYPES[dtype].bits, r = 0
    cdef bint bad = False
    if not (_is_int(dtype) and _is_int(src_dtype)):
        return 0
    if k >= B_LT and k <= B_NE:
        if k == B_LT: out[0] = a < b
        elif k == B_LE: out[0] = a <= b
        elif k == B_GT: out[0] = a > b
        elif k == B_GE: out[0] = a >= b
        elif k == B_EQ: out[0] = a == b
        else: out[0] = a != b
        return 1
    if k == B_MAX or k == B_MIN:
        out[0] = max(a, b) if k == B_MAX else min(a, b)
        return 1
    if k == B_ADD or k == B_SUB or k == B_MUL or k == B_NEG or k == B_SQUARE:
        if k == B_NEG:
            b = a
            a = 0
        elif k == B_SQUARE:
            b = a
        if k == B_ADD: bad = mk_add(a, b, &r)
        elif k == B_MUL or k == B_SQUARE: bad = mk_mul(a, b, &r)
        else: bad = mk_sub(a, b, &r)
        if ideal or unsigned64:
            out[0] = r
            return not bad and not (unsigned64 and r < 0)
        return _wrap(dtype, <uint64_t>r, out)
    if k == B_FLOORDIV or k == B_IDIV or k == B_FLOORMOD or k == B_MOD:
        if b == 0:
            out[0] = 0
            return not ideal
        if b == -1:
            if k == B_FLOORMOD or k == B_MOD:
                out[0] = 0
                return 1
            if a == INT64_MIN and ideal:
                return 0
            return _wrap(dtype, 0 - <uint64_t>a, out) if not ideal else _negate(a, out)
        if k == B_FLOORDIV: out[0] = mk_floordiv(a, b)
        elif k == B_IDIV: out[0] = a / b
        elif k == B_FLOORMOD: out[0] = mk_floormod(a, b)
        else: out[0] = a % b
        return 1
    if k == B_AND: out[0] = a & b
    elif k == B_OR: out[0] = a | b
    elif k == B_XOR: out[0] = a ^ b
    elif k == B_NOT:
        if DTYPES[dtype].kind == c'b':
            out[0] = not a
            return 1
        if unsigned64:
            return 0
        return _wrap(dtype, ~<uint64_t>a, out) if not ideal else _invert(a, out)
    elif k == B_SHL:
        if b < 0:
            return 0
        if ideal:
            return b < 62 and not mk_mul(a, <int64_t>1 << b, out)
        if b >= width:
            out[0] = 0
            return 1
        return _wrap(dtype, <uint64_t>a << b, out)
    elif k == B_SHR:
        if b < 0:
            return 0
        out[0] = _shift_right(a, b)
    elif k == B_ABS:
        if a == INT64_MIN:
            return 0
        return _wrap(dtype, <uint64_t>(-a if a < 0 else a), out) if not ideal else _magnitude(a, out)
    elif k == B_SIGN: out[0] = (a > 0) - (a < 0)
    else: return 0
    return 1


cdef inline int _negate(int64_t a, int64_t *out) noexcept:
    out[0] = -a
    return 1


cdef inline int _invert(int64_t a, int64_t *out) noexcept:
    out[0] = -1 - a
    return 1


cdef inline int _magnitude(int64_t a, int64_t *out) noexcept:
    out[0] = -a if a < 0 else a
    return 1
