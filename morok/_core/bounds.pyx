"""Bounds of integer and bool nodes.

A transfer function answers the interval of a node from those of its sources: exact where that is
cheap, wider where it is not, "unknown" where int64 cannot say it; never wrong. `index` values are
ideal integers whose divisors are not zero; fixed-width types wrap (then the interval is the type's
limits) and divide by zero to 0.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.infer cimport DTYPES, OP_VCONST, OPS, DTypeInfo
from morok._core.argument cimport ArgRecord
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
    """Known bounds; a fixed-width type that they leave wraps: then they are the type's limits."""
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
    """Quotients of [a, b] by [c, d]. For one sign of the divisor the extremes lie at corners."""
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


cdef int _vconst(CNode *n) except -1:
    """The least and the greatest lane."""
    cdef Span s = Span(0, 0, False)
    if n.akind != ARG_OBJECT or type((<ArgRecord>n.arg).value) is not tuple:
        return 0
    for v in <tuple>(<ArgRecord>n.arg).value:
        if type(v) is not int and type(v) is not bool:
            return 0
        if not INT64_MIN <= v <= INT64_MAX:
            return 0
        _see(&s, v)
    if s.any:
        _set(n, s.lo, s.hi)
    return 0


cdef int _define_var(CNode *n) except -1:
    """The bounds that the argument (name, least, greatest) states."""
    cdef object arg = (<ArgRecord>n.arg).value if n.akind == ARG_OBJECT else None
    if type(arg) is not tuple or len(<tuple>arg) != 3:
        return 0
    lo = (<tuple>arg)[1]
    hi = (<tuple>arg)[2]
    if type(lo) is int and type(hi) is int and INT64_MIN <= lo <= hi <= INT64_MAX:
        _set(n, lo, hi)
    return 0


cdef int _const(CNode *n) except -1:
    if n.akind == ARG_INT or n.akind == ARG_BOOL:
        if _is_int(n.dtype):
            n.vmin = n.iarg
            n.vmax = n.iarg
            n.flags |= NODE_BOUNDED
    elif n.akind == ARG_OBJECT and DTYPES[n.dtype].kind == c'x':
        kind = type((<ArgRecord>n.arg).value)
        if kind is not tuple and kind is not int:
            n.flags |= NODE_INVALID
    return 0


cdef int _union(CNode *n) except -1:
    """All sources together; of a VCONST, all lanes."""
    cdef uint32_t i
    cdef int64_t lo, hi
    if n.op == OP_VCONST:
        return _vconst(n)
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


cdef void _where(CNode *n) noexcept:
    """Both arms together; an arm that is not taken, or Invalid, does not count."""
    cdef CNode *x = n.src[0]
    cdef CNode *a = n.src[1]
    cdef CNode *b = n.src[2]
    if _known(x) and x.vmin == x.vmax:
        if not x.vmin:
            a = b
        b = a
    if _const_invalid(b):
        b = a
    elif _const_invalid(a):
        a = b
    if _known(a) and _known(b):
        _set(n, min(a.vmin, b.vmin), max(a.vmax, b.vmax))
    elif not _const_invalid(a):
        _limits(n)


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


cdef void _binary(CNode *n, uint8_t k, CNode *x, CNode *y) noexcept:
    cdef int64_t a, b, c, d, lo, hi, t, u
    if B_LT <= k <= B_NE:
        _compare(n, k, x, y)
        return
    if not (_known(x) and _known(y)):
        if k == B_FLOORMOD and _known(y) and y.vmin > 0 and DTYPES[n.dtype].kind == c'x':
            _set(n, 0, y.vmax - 1)
        else:
            _limits(n)
        return
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


cdef int infer_bounds(CNode *n) except -1:
    """Fast entry: fill in the bounds of a new node."""
    cdef uint8_t k = OPS[n.op].bounds_kind
    cdef CNode *x
    if k == B_NONE:
        return 0
    if k == B_CONST:
        return _const(n)
    if not _is_int(n.dtype):
        return 0
    if k == B_DTYPE:
        _limits(n)
        return 0
    if k == B_DEFINE_VAR:
        return _define_var(n)
    if k == B_UNION:
        return _union(n)
    if n.nsrc == 0:
        return 0
    x = n.src[0]
    if k == B_RANGE or k == B_SPECIAL:
        # an empty loop has no values: any bounds are true of them, but not reversed ones
        if _known(x):
            _set(n, 0, x.vmax - 1 if x.vmax > 0 else 0)
    elif k == B_BIND:
        # the variable's bounds, not today's value: kernels serve every binding
        if _known(x):
            _set(n, x.vmin, x.vmax)
    elif k == B_WHERE:
        if n.nsrc == 3:
            _where(n)
    elif k in (B_SRC0, B_CAST, B_NEG, B_NOT, B_ABS, B_SIGN, B_SQUARE):
        if n.nsrc == 1 or k == B_SRC0 or k == B_CAST:
            _unary(n, k, x)
    elif n.nsrc == 2:
        _binary(n, k, x, n.src[1])
    return 0
