"""Integer arithmetic on constants.

`index` values are ideal integers: what leaves int64 is not folded, and neither is a division by
zero. Fixed-width types wrap, divide by zero to 0 and shift by their width or more to 0 (or the
sign). A bool is 0 or 1.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint16_t, uint64_t

from morok._core.bounds cimport (
    B_ABS,
    B_ADD,
    B_AND,
    B_EQ,
    B_FLOORDIV,
    B_FLOORMOD,
    B_GE,
    B_GT,
    B_IDIV,
    B_LE,
    B_LT,
    B_MAX,
    B_MIN,
    B_MOD,
    B_MUL,
    B_NE,
    B_NEG,
    B_NOT,
    B_OR,
    B_SHL,
    B_SHR,
    B_SIGN,
    B_SQUARE,
    B_SUB,
    B_XOR,
)
from morok._core.infer cimport DTYPES, OPS, DTypeInfo
from morok._core.types cimport mk_add, mk_floordiv, mk_floormod, mk_mul, mk_sub


cdef inline bint _is_int(uint16_t dtype) noexcept:
    cdef uint8_t k = DTYPES[dtype].kind
    return k == c'b' or k == c'i' or k == c'u' or k == c'x'


cdef inline int _give(int64_t value, int64_t *out) noexcept:
    out[0] = value
    return 1


cdef int _wrap(uint16_t dtype, uint64_t v, int64_t *out) noexcept:
    """Reduce to the width of a fixed-width dtype. 0 if int64 cannot hold the result."""
    cdef DTypeInfo *d = &DTYPES[dtype]
    cdef int unused
    if d.kind == c'b':
        return _give(v != 0, out)
    if d.bits == 64:
        if d.kind == c'u' and v >> 63:
            return 0
        return _give(<int64_t>v, out)
    unused = 64 - d.bits
    if d.kind == c'i':
        return _give((<int64_t>(v << unused)) >> unused, out)
    return _give(<int64_t>((v << unused) >> unused), out)


cdef int _compare(uint8_t k, int64_t a, int64_t b, int64_t *out) noexcept:
    if k == B_LT:
        return _give(a < b, out)
    if k == B_LE:
        return _give(a <= b, out)
    if k == B_GT:
        return _give(a > b, out)
    if k == B_GE:
        return _give(a >= b, out)
    if k == B_EQ:
        return _give(a == b, out)
    return _give(a != b, out)


cdef int _divide(uint8_t k, uint16_t dtype, int64_t a, int64_t b, int64_t *out) noexcept:
    cdef bint ideal = DTYPES[dtype].kind == c'x'
    if b == 0:
        out[0] = 0
        return not ideal
    if b == -1:
        if k == B_FLOORMOD or k == B_MOD:
            return _give(0, out)
        if not ideal:
            return _wrap(dtype, 0 - <uint64_t>a, out)
        return a != INT64_MIN and _give(-a, out)
    if k == B_FLOORDIV:
        return _give(mk_floordiv(a, b), out)
    if k == B_IDIV:
        return _give(a / b, out)
    if k == B_FLOORMOD:
        return _give(mk_floormod(a, b), out)
    return _give(a % b, out)


cdef int _shift(uint8_t k, uint16_t dtype, int64_t a, int64_t b, int64_t *out) noexcept:
    if b < 0:
        return 0
    if k == B_SHR:
        return _give(a >> (b if b < 63 else 63), out)
    if DTYPES[dtype].kind == c'x':
        return b < 62 and not mk_mul(a, <int64_t>1 << b, out)
    if b >= DTYPES[dtype].bits:
        return _give(0, out)
    return _wrap(dtype, <uint64_t>a << b, out)


cdef int fold_int(
    uint16_t op, uint16_t dtype, uint16_t src_dtype, int64_t a, int64_t b, int64_t *out
) noexcept:
    """Fast entry: `op(a, b)` for operands of `src_dtype` in the semantics of `dtype`."""
    cdef uint8_t k = OPS[op].bounds_kind
    cdef bint ideal = DTYPES[dtype].kind == c'x'
    cdef bint unsigned64 = DTYPES[src_dtype].kind == c'u' and DTYPES[src_dtype].bits == 64
    cdef int64_t r = 0
    cdef bint bad
    if not (_is_int(dtype) and _is_int(src_dtype)):
        return 0
    if B_LT <= k <= B_NE:
        return _compare(k, a, b, out)
    if k == B_MAX:
        return _give(max(a, b), out)
    if k == B_MIN:
        return _give(min(a, b), out)
    if k == B_ADD or k == B_SUB or k == B_MUL or k == B_NEG or k == B_SQUARE:
        if k == B_ADD:
            bad = mk_add(a, b, &r)
        elif k == B_SUB:
            bad = mk_sub(a, b, &r)
        elif k == B_NEG:
            bad = mk_sub(0, a, &r)
        else:
            bad = mk_mul(a, b if k == B_MUL else a, &r)
        if ideal or unsigned64:
            out[0] = r
            return not bad and not (unsigned64 and r < 0)
        return _wrap(dtype, <uint64_t>r, out)
    if k == B_FLOORDIV or k == B_IDIV or k == B_FLOORMOD or k == B_MOD:
        return _divide(k, dtype, a, b, out)
    if k == B_AND:
        return _give(a & b, out)
    if k == B_OR:
        return _give(a | b, out)
    if k == B_XOR:
        return _give(a ^ b, out)
    if k == B_NOT:
        if DTYPES[dtype].kind == c'b':
            return _give(not a, out)
        if ideal:
            return _give(-1 - a, out)
        return not unsigned64 and _wrap(dtype, ~<uint64_t>a, out)
    if k == B_SHL or k == B_SHR:
        return _shift(k, dtype, a, b, out)
    if k == B_ABS:
        if a == INT64_MIN:
            return 0
        if a < 0:
            a = -a
        return _give(a, out) if ideal else _wrap(dtype, <uint64_t>a, out)
    if k == B_SIGN:
        return _give((a > 0) - (a < 0), out)
    return 0
