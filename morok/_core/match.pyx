"""The matcher: runs compiled rules (`program.pyx`) on nodes.

A commutative choice remembers where it stood; when a later instruction, a guard, or the right side
fails, the last choice is tried the other way. In a guard an unknown bound, an overflow or a
division by zero means "does not fire".

A `Matcher` is an ordered set of programs, in buckets by the op of the root. Before a program runs,
the ops it needs among the sources and the dtype class are compared, so most rules cost a few
instructions on most nodes, and no failing guard ever enters Python.

Registers borrow: everything they name lies below the root, which the caller keeps alive.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.bounds cimport type_limits
from morok._core.constant cimport const_payload, const_value, is_constant, make_int, make_number
from morok._core.infer cimport (
    DT_BOOL,
    DTYPES,
    OP_CONST,
    OP_VCONST,
    OP_VECTORIZE,
    dtype_id,
    infer_dtype,
)
from morok._core.node cimport clear_normal, intern, peek, swap_provenance, take
from morok._core.program cimport (
    ADD, AND, ARG_FIXED, AS_BOOL, AS_INFERRED, AS_REGISTER, BITS, BUILD, CHECK, COMMUTE, CONST,
    CONTEXT, Code, DIVIDES, END, EQ, FLOORDIV, FLOORMOD, GE, GT, HIGHEST, IS_CONST, IS_POW2,
    Instruction, K, KIND, LANES, LE, LOAD, LOG2, LOWEST, LT, MAX, MAX_ARGUMENTS, MAX_CHOICES,
    MAX_REGISTERS, MAX_STACK, MIN, MUL, NE, NEG, NOT, NO_ARG, NUMBER, OR, Program, REG, SAME,
    SAME_DTYPE, SAME_NODE, SHL, SUB, TAKE, TEST_ARG, TEST_CONSTANT, TEST_DTYPE, TEST_KINDS,
    TEST_LITERAL, TEST_MIN_NSRC, TEST_NSRC, TEST_NUMERIC, Test, VALUE, VMAX, VMIN, WADD, WCONST,
    WNEG, WSUB, XOR, add_native, native_rule, op_mask,
)
from morok._core.types cimport (
    ARG_FLOAT,
    ARG_NONE,
    NODE_BOUNDED,
    CNode,
    mk_add,
    mk_floordiv,
    mk_floormod,
    mk_mul,
    mk_sub,
)

from morok.errors import RuleError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)
    object PyObject_Vectorcall(object, PyObject **, size_t, PyObject *)
    int PyObject_RichCompareBool(object, object, int) except -1

cdef extern from *:
    """
    #ifdef MOROK_CHECKED
    #define MOROK_CHECKS 1
    #else
    #define MOROK_CHECKS 0
    #endif
    """
    bint CHECKS "MOROK_CHECKS"

cdef enum:
    PY_EQ = 2


cdef int register_native(str name, native_rule function) except -1:
    return add_native(name, function)


def checked_build():
    """Whether this build checks what a release trusts: MOROK_BUILD=debug, trace or sanitize."""
    return CHECKS


cdef inline bint _kind_ok(uint32_t mask, uint16_t dtype) noexcept:
    return (mask >> (DTYPES[dtype].kind & 31)) & 1


# ---- running programs ----------------------------------------------------------------------------

cdef inline bint _passes(Test *t, CNode *x) noexcept:
    if not ((t.ops1 >> (x.op - 64) if x.op >= 64 else t.ops0 >> x.op) & 1):
        return False
    return t.flags == 0 or _passes_rest(t, x)


cdef bint _passes_rest(Test *t, CNode *x) noexcept:
    """Everything but the op."""
    cdef uint8_t akind = 0
    cdef int64_t iarg = 0
    if t.flags & TEST_NSRC and x.nsrc != t.nsrc:
        return False
    if t.flags & TEST_MIN_NSRC and x.nsrc < t.nsrc:
        return False
    if t.flags & TEST_KINDS and not _kind_ok(t.kinds, x.dtype):
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


cdef int _evaluate(Code **code, CNode **reg, int64_t *stack, int n) noexcept:
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
            elif c.op == SAME_DTYPE:
                stack[n] = reg[c.reg].dtype == reg[c.dreg].dtype
            else:
                stack[n] = _kind_ok(<uint32_t>c.value, reg[c.reg].dtype)
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


cdef int _right(Program p, CNode **reg, CNode **out) except -1:
    """Build the right side. 1: `out` is a new reference; 0: a constant has no value."""
    cdef CNode *built[MAX_STACK + 1]
    cdef int64_t ints[MAX_STACK + 1]
    cdef int n = 0, k = 0, _i
    cdef Code *c = p.right
    cdef CNode *made
    cdef int64_t v
    cdef bint ok = True
    try:
        while c.op != END:
            if c.op == REG:
                made = reg[c.reg]
                c_incref(made.self)
            elif c.op == BUILD:
                made = _build(c, reg, &built[n - c.n])
                for _i in range(c.n):
                    n -= 1
                    c_decref(built[n].self)
            elif c.op == CONST or c.op == WCONST:
                k -= 1
                v = ints[k]
                if c.op == WCONST:
                    v = _wrapped(_constant_dtype(c, reg), v, &ok)
                made = make_int(_constant_dtype(c, reg), v) if ok else NULL
            elif c.op == NUMBER:
                made = make_number(_constant_dtype(c, reg), <object>c.arg)
            else:
                k = _evaluate(&c, reg, ints, k)
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
            c_decref(built[n].self)


cdef object _outer_provenance(CNode *root):
    """Stamp what a rule builds with the root's origin, unless something is current already."""
    cdef object outer = swap_provenance(<object>root.provenance)
    if outer is not None:
        swap_provenance(outer)
    return outer


cdef inline int _fire(
    Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered
) except -1:
    """Apply a program whose pattern and guards hold. 1: `out` is a new reference."""
    cdef CNode *root = reg[0]
    if p.native != NULL and root.provenance == NULL:
        return p.native(root, out) and _accept(p, root, out)
    return _fire_for(p, reg, ctx, out, entered)


cdef int _fire_for(
    Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered
) except -1:
    """`_fire`, with the root's provenance for new nodes and the rule's name on errors."""
    cdef CNode *root = reg[0]
    cdef bint stamped = root.provenance != NULL and _outer_provenance(root) is None
    try:
        if p.native != NULL:
            return p.native(root, out) and _accept(p, root, out)
        if p.function is not None:
            entered[0] += 1
            return _call(p, reg, ctx, out)
        return _right(p, reg, out) and _accept(p, root, out)
    except Exception as error:
        node = <object>root.self
        error.add_note(f"in rule {p.name}, at {node.op.name} : {node.dtype}")
        raise
    finally:
        if stamped:
            swap_provenance(None)


cdef int _call(Program p, CNode **reg, PyObject *ctx, CNode **out) except -1:
    """Ask a rule's Python function. 1: `out` is a new reference."""
    cdef PyObject *args[MAX_ARGUMENTS + 1]
    cdef int i
    for i in range(p.n_arguments):
        args[i + 1] = ctx if p.arguments[i] == CONTEXT else reg[p.arguments[i]].self
    answer = PyObject_Vectorcall(p.function, &args[1], p.n_arguments, NULL)
    if answer is None:
        return 0
    try:
        out[0] = peek(answer)
    except TypeError:
        kind = type(answer).__name__
        raise RuleError(f"a rule returns a UOp or None, not {kind}", rule=p.name) from None
    if out[0] == reg[0]:
        if CHECKS:
            raise RuleError("a rule returned its own node: return None instead", rule=p.name)
        return 0
    c_incref(out[0].self)
    return 1


cdef inline bint _same_shape(CNode *a, CNode *b) except -1:
    if a.shape == b.shape or a.shape == NULL or b.shape == NULL:
        return True
    return PyObject_RichCompareBool(<object>a.shape, <object>b.shape, PY_EQ)


cdef int _accept(Program p, CNode *root, CNode **out) except -1:
    """A data or native rule changes neither dtype nor shape: where it would, it does not fire."""
    cdef bint ok
    if out[0] == root:
        c_decref(root.self)
        return 0
    ok = out[0].dtype == root.dtype and _same_shape(out[0], root)
    if not ok:
        c_decref(out[0].self)
    return ok


cdef int _run(Program p, CNode *root, PyObject *ctx, CNode **out, uint64_t *entered) except -1:
    """1: the program rewrote `root` to `out`, a new reference; 0: it does not apply."""
    cdef CNode *reg[MAX_REGISTERS + 1]
    cdef Instruction *choices[MAX_CHOICES]
    cdef Instruction *x = p.steps
    cdef Code *guard
    cdef int64_t ints[MAX_STACK + 1]
    cdef int n_choices = 0
    cdef bint swapped = False, ok
    cdef CNode *n
    reg[0] = root
    while True:
        if x.kind == LOAD:
            reg[x.dst] = reg[x.src].src[x.index]
            ok = _passes(&x.test, reg[x.dst])
        elif x.kind == TAKE:
            reg[x.dst] = reg[x.src].src[x.index]
            ok = True
        elif x.kind == CHECK:
            ok = _passes(&x.test, reg[x.dst])
        elif x.kind == SAME:
            ok = reg[x.dst] == reg[x.src]
        elif x.kind == COMMUTE:
            n = reg[x.src]
            if swapped:
                swapped = False
                reg[x.dst] = n.src[1]
                reg[x.dst + 1] = n.src[0]
            else:
                reg[x.dst] = n.src[0]
                reg[x.dst + 1] = n.src[1]
                if n.src[0] != n.src[1]:
                    choices[n_choices] = x
                    n_choices += 1
            ok = True
        else:
            ok = True
            if p.guard != NULL:
                guard = p.guard
                ok = _evaluate(&guard, reg, ints, 0) > 0 and ints[0] != 0
            if ok:
                if _fire(p, reg, ctx, out, entered):
                    return 1
                ok = False
        if ok:
            x += 1
            continue
        if n_choices == 0:
            return 0
        n_choices -= 1
        x = choices[n_choices]
        swapped = True


# ---- sets of programs ----------------------------------------------------------------------------

cdef uint64_t _source_bits0[128]  # what a source of this op adds to the set of ops of sources
cdef uint64_t _source_bits1[128]
cdef uint64_t _bits_given = 0  # bits of CNode.normal in use
cdef uint64_t _bits_dead = 0  # bits of sets that are gone: nodes may still carry them


cdef int _learn_source_bits() except -1:
    """One bit an op; VCONST and VECTORIZE may be constants, so they count as CONST too."""
    cdef int op
    for op in range(128):
        _source_bits0[op] = <uint64_t>1 << op if op < 64 else 0
        _source_bits1[op] = <uint64_t>1 << (op - 64) if op >= 64 else 0
    for op in (OP_VCONST, OP_VECTORIZE):
        _source_bits0[op] |= _source_bits0[OP_CONST]
        _source_bits1[op] |= _source_bits1[OP_CONST]
    return 0


cdef class Matcher:
    """An ordered, frozen set of programs. `pure`: none reads anything but the node."""

    def __init__(self, str name, programs):
        cdef Program p
        cdef uint32_t filled = 0, index
        cdef Entry *e
        cdef Py_ssize_t total
        cdef dict buckets = {}
        self.name = name
        self.programs = tuple(programs)
        self.pure = all([(<Program?>q).pure for q in self.programs])
        for index, p in enumerate(self.programs):
            for op in p.roots:
                buckets.setdefault(op, []).append(index)
        total = sum([len(bucket) for bucket in buckets.values()])
        self.entries = <Entry *>PyMem_Calloc(total + 1, sizeof(Entry))
        self.tried = <uint64_t *>PyMem_Calloc(3 * len(self.programs) + 1, sizeof(uint64_t))
        if self.entries == NULL or self.tried == NULL:
            raise MemoryError()
        self.hits = self.tried + len(self.programs)
        self.entered = self.hits + len(self.programs)
        op_mask(buckets, &self.roots0, &self.roots1)
        _learn_source_bits()
        for op in range(128):
            self.start[op] = filled
            for index in buckets.get(op, ()):
                e = &self.entries[filled]
                p = <Program>self.programs[index]
                e.program = <PyObject *>p
                e.need0 = p.need0
                e.need1 = p.need1
                e.kinds = p.subject_kinds
                e.first = p.subject_first
                e.native = p.native
                e.root = &p.root
                e.index = index
                filled += 1
        self.start[128] = filled

    def __dealloc__(self):
        global _bits_dead
        _bits_dead |= self.bit
        PyMem_Free(self.entries)
        PyMem_Free(self.tried)

    cdef uint64_t normal_bit(self) noexcept:
        """The bit of CNode.normal that is this set's alone; 0 if it is impure or none is left."""
        global _bits_given, _bits_dead
        if not self.asked:
            self.asked = True
            if _bits_dead and _bits_given == <uint64_t>0xFFFFFFFFFFFFFFFF:
                clear_normal(_bits_dead)
                _bits_given &= ~_bits_dead
                _bits_dead = 0
            if self.pure and _bits_given != <uint64_t>0xFFFFFFFFFFFFFFFF:
                self.bit = (_bits_given + 1) & ~_bits_given
                _bits_given |= self.bit
        return self.bit

    cdef int step(self, CNode *n, PyObject *ctx, CNode **out, uint32_t *which) except -1:
        cdef Entry *e = &self.entries[self.start[n.op]]
        cdef Entry *end = &self.entries[self.start[n.op + 1]]
        cdef uint64_t s0 = 0, s1 = 0
        cdef uint32_t k, kind, kind_first
        cdef int done
        if e == end:
            return 0
        kind = kind_first = <uint32_t>1 << (DTYPES[n.dtype].kind & 31)
        for k in range(n.nsrc):
            s0 |= _source_bits0[n.src[k].op]
            s1 |= _source_bits1[n.src[k].op]
        if n.nsrc:
            kind_first = <uint32_t>1 << (DTYPES[n.src[0].dtype].kind & 31)
        while e != end:
            if (e.need0 & ~s0) | (e.need1 & ~s1) or not e.kinds & (kind_first if e.first else kind):
                e += 1
                continue
            self.tried[e.index] += 1
            if e.native != NULL:
                done = _fire(<Program>e.program, &n, ctx, out, &self.entered[e.index])
            elif e.root.flags == 0 or _passes_rest(e.root, n):
                done = _run(<Program>e.program, n, ctx, out, &self.entered[e.index])
            else:
                done = 0
            if done:
                self.hits[e.index] += 1
                which[0] = e.index
                return 1
            e += 1
        return 0

    def rewrite(self, root, ctx=None):
        """The replacement of this one node by the first rule that applies, or None."""
        cdef CNode *out = NULL
        cdef uint32_t which = 0
        if self.step(peek(root), <PyObject *>ctx, &out, &which):
            return take(out)
        return None

    def stats(self):
        """(name, tries, hits, entries into Python) of each rule, in order."""
        return [(self.programs[i].name, self.tried[i], self.hits[i], self.entered[i])
                for i in range(len(self.programs))]

    def reset_stats(self):
        """Counts from zero again."""
        cdef Py_ssize_t i
        for i in range(3 * len(self.programs)):
            self.tried[i] = 0
