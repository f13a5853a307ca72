"""The parts of a program: tests of nodes, guards in postfix code, right sides.

Registers borrow their nodes. Integers are int64: what is unknown or overflows has no value.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.bounds cimport type_limits
from morok._core.constant cimport const_payload, const_value, is_constant, make_int, make_number
from morok._core.infer cimport DT_BOOL, DTYPES, OP_CONST, OPS, dtype_id, infer_dtype
from morok._core.node cimport intern
from morok._core.program cimport (
    ADD, AND, ARG_FIXED, AS_BOOL, AS_INFERRED, AS_REGISTER, BITS, BUILD, CONST, Code, DIVIDES,
    END, ENDS_IDLE, EQ,
    FLOORDIV, FLOORMOD, GE, GT, HIGHEST, IS_CONST, IS_POW2, K, KIND, LANES, LE, LOG2,
    LOWEST, LT, MAX, MAX_STACK, MIN, MUL, NE, NEG, NOT, NO_ARG, NUMBER, OR, REG, SAME_DTYPE,
    SAME_NODE, SHL, SUB, TEST_ARG, TEST_CONSTANT, TEST_DTYPE, TEST_KINDS, TEST_LITERAL,
    TEST_MIN_NSRC, TEST_NSRC, TEST_NUMERIC, Test, VALUE, VMAX, VMIN, WADD, WCONST, WNEG, WSUB,
    XOR,
)
from morok._core.types cimport (
    ARG_FLOAT,
    ARG_NONE,
    NODE_BOUNDED,
    CNode,
    RangeSet,
    mk_add,
    mk_floordiv,
    mk_floormod,
    mk_mul,
    mk_sub,
    object_of,
)

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)


cdef bint passes_rest(Test *t, CNode *x) noexcept:
    """Everything but the op."""
    cdef uint8_t akind = 0
    cdef int64_t iarg = 0
    if t.flags & TEST_NSRC and x.nsrc != t.nsrc:
        return False
    if t.flags & TEST_MIN_NSRC and x.nsrc < t.nsrc:
        return False
    if t.flags & TEST_KINDS and not kind_ok(t.kinds, x.dtype):
        return False
    if t.flags & TEST_DTYPE and DTYPES[x.dtype].scalar != t.dtype and x.dtype != t.dtype:
        return False
    if t.flags & TEST_CONSTANT and not is_constant(x):
        return False
    if t.flags & TEST_LITERAL:
        if not const_payload(x, &akind, &iarg) or akind != t.akind or iarg != t.iarg:
            return False
    if t.flags & TEST_NUMERIC:
        if not const_payload(x, &akind, &iarg):
            return False
        if iarg != (t.fbits if akind == ARG_FLOAT else t.iarg):
            return False
    if t.flags & TEST_ARG:
        if x.akind != t.akind or x.arg != t.arg:
            return False
        if x.arg == NULL and x.akind != ARG_NONE and x.iarg != t.iarg:
            return False
    return True


cdef inline bint _limit(CNode *x, bint high, int64_t *out) noexcept:
    cdef int64_t lo = 0, hi = 0
    if not type_limits(DTYPES[x.dtype].scalar, &lo, &hi):
        return False
    out[0] = hi if high else lo
    return True


cdef bint _ends_idle(CNode *x) noexcept:
    """Whether a loop that x ends is a constant, or does not occur in the first source."""
    cdef int start = OPS[x.op].range_end
    cdef uint32_t i, k
    cdef RangeSet *used = x.src[0].ranges if x.nsrc else NULL
    if start < 0:
        return False
    for i in range(<uint32_t>start, x.nsrc):
        if x.src[i].op == OP_CONST:
            return True
        for k in range(used.n if used != NULL else 0):
            if used.members[k] == x.src[i]:
                break
        else:
            return True
    return False


cdef int evaluate(Code **code, CNode **reg, int64_t *stack, int n) noexcept:
    """Run integer code up to the first op on nodes, or the end. The depth then; -1 = unknown."""
    cdef Code *c = code[0]
    cdef int64_t a, b, r = 0
    while c.op != END and c.op < REG:
        if c.op <= KIND:
            if c.op == K:
                stack[n] = c.value
            elif c.op == VALUE:
                if not const_value(reg[c.reg], &stack[n]):
                    return -1
            elif c.op == VMIN or c.op == VMAX:
                if not reg[c.reg].flags & NODE_BOUNDED:
                    return -1
                stack[n] = reg[c.reg].vmin if c.op == VMIN else reg[c.reg].vmax
            elif c.op == LOWEST or c.op == HIGHEST:
                if not _limit(reg[c.reg], c.op == HIGHEST, &stack[n]):
                    return -1
            elif c.op == BITS:
                stack[n] = DTYPES[reg[c.reg].dtype].bits
            elif c.op == LANES:
                stack[n] = DTYPES[reg[c.reg].dtype].count
            elif c.op == IS_CONST:
                stack[n] = is_constant(reg[c.reg])
            elif c.op == SAME_NODE:
                stack[n] = reg[c.reg] == reg[c.dreg]
            elif c.op == ENDS_IDLE:
                stack[n] = _ends_idle(reg[c.reg])
            elif c.op == SAME_DTYPE:
                stack[n] = reg[c.reg].dtype == reg[c.dreg].dtype
            else:
                stack[n] = kind_ok(<uint32_t>c.value, reg[c.reg].dtype)
            n += 1
            c += 1
            continue
        if c.op <= LOG2 or c.op == WNEG:
            a = stack[n - 1]
            if c.op == NEG:
                if mk_sub(0, a, &r):
                    return -1
            elif c.op == WNEG:
                r = <int64_t>(0 - <uint64_t>a)
            elif c.op == NOT:
                r = not a
            elif c.op == IS_POW2:
                r = a > 0 and (a & (a - 1)) == 0
            else:
                if a <= 0 or (a & (a - 1)) != 0:
                    return -1
                r = 0
                while a > 1:
                    a >>= 1
                    r += 1
            stack[n - 1] = r
            c += 1
            continue
        n -= 1
        b = stack[n]
        a = stack[n - 1]
        if c.op == ADD:
            if mk_add(a, b, &r):
                return -1
        elif c.op == SUB:
            if mk_sub(a, b, &r):
                return -1
        elif c.op == MUL:
            if mk_mul(a, b, &r):
                return -1
        elif c.op == FLOORDIV or c.op == FLOORMOD:
            if b == 0:
                return -1
            if b == -1:
                if c.op == FLOORMOD:
                    r = 0
                elif mk_sub(0, a, &r):
                    return -1
            else:
                r = mk_floordiv(a, b) if c.op == FLOORDIV else mk_floormod(a, b)
        elif c.op == SHL:
            if b < 0 or b > 62 or mk_mul(a, <int64_t>1 << b, &r):
                return -1
        elif c.op == DIVIDES:
            r = a != 0 and (a == -1 or b % a == 0)
        elif c.op == MAX:
            r = a if a > b else b
        elif c.op == MIN:
            r = a if a < b else b
        elif c.op == AND:
            r = a & b
        elif c.op == OR:
            r = a | b
        elif c.op == XOR:
            r = a ^ b
        elif c.op == LT:
            r = a < b
        elif c.op == LE:
            r = a <= b
        elif c.op == GT:
            r = a > b
        elif c.op == GE:
            r = a >= b
        elif c.op == EQ:
            r = a == b
        elif c.op == NE:
            r = a != b
        elif c.op == WADD:
            r = <int64_t>(<uint64_t>a + <uint64_t>b)
        elif c.op == WSUB:
            r = <int64_t>(<uint64_t>a - <uint64_t>b)
        else:
            r = <int64_t>(<uint64_t>a * <uint64_t>b)
        stack[n - 1] = r
        c += 1
    code[0] = c
    return n


cdef uint16_t _with_lanes(uint16_t dtype, uint16_t lanes) except? 0xFFFF:
    if lanes == 1 or DTYPES[dtype].count != 1:
        return dtype
    return dtype_id((<object>DTYPES[dtype].obj).vec(lanes))


cdef uint16_t _constant_dtype(Code *c, CNode **reg) except? 0xFFFF:
    if c.mode == AS_REGISTER:
        return reg[c.dreg].dtype
    return _with_lanes(DT_BOOL if c.mode == AS_BOOL else c.dtype, DTYPES[reg[c.dreg].dtype].count)


cdef int64_t _wrapped(uint16_t dtype, int64_t v, bint *ok) noexcept:
    """`v` modulo 2**bits as a value of an integer dtype; not ok where int64 cannot hold it."""
    cdef int shift = 64 - DTYPES[dtype].bits
    cdef uint8_t kind = DTYPES[dtype].kind
    ok[0] = kind == c'i' or (kind == c'u' and (shift > 0 or v >= 0))
    if kind == c'i':
        return (<int64_t>(<uint64_t>v << shift)) >> shift
    return <int64_t>((<uint64_t>v << shift) >> shift)


cdef CNode *_build(Code *c, CNode **reg, CNode **src) except NULL:
    cdef uint16_t dtype
    cdef CNode *like = reg[c.areg]
    if c.mode == AS_INFERRED:
        dtype = infer_dtype(c.number, src, c.n)
    elif c.mode == AS_REGISTER:
        dtype = reg[c.dreg].dtype
    elif c.n > 0:
        dtype = _with_lanes(c.dtype, DTYPES[src[0].dtype].count)
    else:
        dtype = c.dtype
    if c.amode == NO_ARG:
        return intern(c.number, dtype, c.n, src, ARG_NONE, 0, NULL)
    if c.amode == ARG_FIXED:
        return intern(c.number, dtype, c.n, src, c.akind, c.value, c.arg)
    return intern(c.number, dtype, c.n, src, like.akind, like.iarg, like.arg)


cdef int build_right(Code *code, CNode **reg, CNode **out) except -1:
    """Build the right side. 1: `out` is a new reference; 0: a constant has no value."""
    cdef CNode *built[MAX_STACK + 1]
    cdef int64_t ints[MAX_STACK + 1]
    cdef int n = 0, k = 0, _i
    cdef Code *c = code
    cdef CNode *made
    cdef int64_t v
    cdef bint ok = True
    try:
        while c.op != END:
            if c.op == REG:
                made = reg[c.reg]
                c_incref(object_of(made))
            elif c.op == BUILD:
                made = _build(c, reg, &built[n - c.n])
                for _i in range(c.n):
                    n -= 1
                    c_decref(object_of(built[n]))
            elif c.op == CONST or c.op == WCONST:
                k -= 1
                v = ints[k]
                if c.op == WCONST:
                    v = _wrapped(_constant_dtype(c, reg), v, &ok)
                made = make_int(_constant_dtype(c, reg), v) if ok else NULL
            elif c.op == NUMBER:
                made = make_number(_constant_dtype(c, reg), <object>c.arg)
            else:
                k = evaluate(&c, reg, ints, k)
                if k < 0:
                    break
                continue
            if made == NULL:
                break
            built[n] = made
            n += 1
            c += 1
        if c.op == END:
            out[0] = built[0]
            n = 0
            return 1
        return 0
    finally:
        while n:
            n -= 1
            c_decref(object_of(built[n]))
