"""Compiled rules and the matcher that runs them.

A rule is a `Program`: a straight list of instructions over registers (register 0 is the root) that
checks a node and loads its sources. A commutative choice remembers where it stood; when a later
instruction, a guard, or the right side fails, the last choice is tried the other way. Guards are
postfix code on int64: an unknown bound, an overflow or a division by zero means "does not fire".
A right side is postfix code too, or a Python function, or a function written in C.

A `Matcher` is an ordered set of programs, in buckets by the op of the root. Before a program runs,
the ops it needs among the sources and the dtype class are compared, so most rules cost a few
instructions on most nodes, and no failing guard ever enters Python.

Registers borrow: everything they name lies below the root, which the caller keeps alive.
"""

from cpython.object cimport PyObject
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from morok._core.bounds cimport type_limits
from morok._core.constant cimport const_payload, const_value, is_constant, make_int, make_number
from morok._core.infer cimport DT_BOOL, DTYPES, OP_CONST, OP_VCONST, OP_VECTORIZE, OPS, dtype_id, infer_dtype
from morok._core.node cimport clear_normal, intern, peek, swap_provenance, take
from morok._core.types cimport (
    ARG_BOOL,
    ARG_FLOAT,
    ARG_INT,
    ARG_NONE,
    NODE_BOUNDED,
    CNode,
    mk_add,
    mk_floordiv,
    mk_floormod,
    mk_mul,
    mk_sub,
)

from morok._core.node import node
from morok.dtype import dtypes
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
    MAX_REGISTERS = 32
    MAX_CHOICES = 16
    MAX_STACK = 24
    MAX_ARGUMENTS = 16
    CONTEXT = 255  # the argument that is no register: the pass context
    PY_EQ = 2

cdef enum TestFlag:
    TEST_NSRC = 1  # exactly nsrc sources
    TEST_MIN_NSRC = 2  # nsrc sources or more
    TEST_CONSTANT = 4  # a number, or a vector that repeats one
    TEST_LITERAL = 8  # the number (akind, iarg)
    TEST_NUMERIC = 16  # the number iarg, or the float fbits, or the truth value iarg
    TEST_ARG = 32  # the argument (akind, iarg or arg)
    TEST_DTYPE = 64  # lanes of dtype
    TEST_KINDS = 128  # a dtype of the classes `kinds`

cdef enum InstructionKind:
    CHECK  # test register dst
    LOAD  # dst = src.src[index], then test
    TAKE  # dst = src.src[index]
    COMMUTE  # dst, dst + 1 = the two sources of src, in either order
    SAME  # dst and src hold one node
    MATCHED  # all instructions passed

cdef enum CodeOp:
    END
    # integers; each pushes one value
    K
    VALUE
    VMIN
    VMAX
    LOWEST
    HIGHEST
    BITS
    LANES
    IS_CONST
    SAME_NODE
    SAME_DTYPE
    KIND
    # integers; one operand
    NEG
    NOT
    IS_POW2
    LOG2
    # integers; two operands
    ADD
    SUB
    MUL
    FLOORDIV
    FLOORMOD
    MAX
    MIN
    SHL
    AND
    OR
    XOR
    LT
    LE
    GT
    GE
    EQ
    NE
    DIVIDES
    WADD
    WSUB
    WMUL
    WNEG
    # nodes
    REG
    NUMBER
    CONST
    WCONST
    BUILD

cdef enum DTypeMode:
    AS_REGISTER  # the dtype of a register
    AS_BOOL  # bool, with a register's lanes
    AS_FIXED  # a fixed dtype, with a register's lanes when it is scalar
    AS_INFERRED  # BUILD: follows from the sources
    AS_CAST  # BUILD: a fixed dtype with the lanes of the first source

cdef enum ArgMode:
    NO_ARG
    ARG_FIXED
    ARG_OF_REGISTER

_INSTRUCTIONS = {"check": CHECK, "load": LOAD, "take": TAKE, "commute": COMMUTE, "same": SAME}
_CODES = {
    "k": K, "value": VALUE, "vmin": VMIN, "vmax": VMAX, "lowest": LOWEST, "highest": HIGHEST, "bits": BITS,
    "lanes": LANES, "is_const": IS_CONST, "same": SAME_NODE, "same_dtype": SAME_DTYPE, "kind": KIND,
    "neg": NEG, "not": NOT, "is_pow2": IS_POW2, "log2": LOG2, "add": ADD, "sub": SUB, "mul": MUL,
    "floordiv": FLOORDIV, "floormod": FLOORMOD, "max": MAX, "min": MIN, "shl": SHL, "and": AND, "or": OR,
    "xor": XOR, "lt": LT, "le": LE, "gt": GT, "ge": GE, "eq": EQ, "ne": NE, "divides": DIVIDES,
    "wadd": WADD, "wsub": WSUB, "wmul": WMUL, "wneg": WNEG, "reg": REG, "number": NUMBER, "const": CONST,
    "wconst": WCONST, "build": BUILD,
}
_DTYPE_MODES = {
    "register": AS_REGISTER, "bool": AS_BOOL, "fixed": AS_FIXED, "inferred": AS_INFERRED, "cast": AS_CAST,
}


cdef int _argument_holder() except -1:
    """The op SOURCE: its nodes have no sources and any argument."""
    cdef int op
    for op in range(128):
        if OPS[op].known and (<object>OPS[op].member).name == "SOURCE":
            return op
    raise RuntimeError("the op table is not registered: import morok.ir")



# ---- native rules ---------------------------------------------------------------------------------

cdef struct NativeRow:
    native_rule function  # never NULL

cdef NativeRow _natives[256]
cdef int _n_natives = 0
cdef dict _native_names = {}  # name -> row


cdef int register_native(str name, native_rule function) except -1:
    global _n_natives
    if name in _native_names or _n_natives == 256:
        raise ValueError(f"native rule {name} is registered already, or there are too many")
    _natives[_n_natives].function = function
    _native_names[name] = _n_natives
    _n_natives += 1
    return 0


def checked_build():
    """Whether this build checks what a release trusts: MOROK_BUILD=debug, trace or sanitize."""
    return CHECKS


def native_rules():
    """Names of the rules written in C that are registered so far."""
    return sorted(_native_names)


# ---- building programs ----------------------------------------------------------------------------

cdef uint32_t _kind_mask(object kinds) except? 0:
    cdef uint32_t mask = 0
    if kinds is None:
        return 0xFFFFFFFF
    for letter in kinds:
        mask |= <uint32_t>1 << (<int>ord(letter) & 31)
    return mask


cdef inline bint _kind_ok(uint32_t mask, uint16_t dtype) noexcept:
    return (mask >> (DTYPES[dtype].kind & 31)) & 1


cdef int _op_mask(object ops, uint64_t *low, uint64_t *high) except -1:
    low[0] = high[0] = 0
    if ops is None:
        low[0] = high[0] = <uint64_t>0xFFFFFFFFFFFFFFFF
        return 0
    for op in ops:
        if int(op) < 64:
            low[0] |= <uint64_t>1 << <int>int(op)
        else:
            high[0] |= <uint64_t>1 << <int>(int(op) - 64)
    return 0


cdef int _set_test(Program p, Test *t, dict wanted) except -1:
    """`wanted`: ops, kinds, dtype, nsrc, min_nsrc, constant, literal, numeric, arg; all may be absent."""
    cdef CNode *holder
    cdef double d
    t.flags = 0
    _op_mask(wanted.get("ops"), &t.ops0, &t.ops1)
    t.kinds = _kind_mask(wanted.get("kinds"))
    if "kinds" in wanted:
        t.flags |= TEST_KINDS
    if "nsrc" in wanted:
        t.nsrc = wanted["nsrc"]
        t.flags |= TEST_NSRC
    elif "min_nsrc" in wanted:
        t.nsrc = wanted["min_nsrc"]
        t.flags |= TEST_MIN_NSRC
    if "dtype" in wanted:
        t.dtype = dtype_id(wanted["dtype"])
        t.flags |= TEST_DTYPE
    if wanted.get("constant"):
        t.flags |= TEST_CONSTANT
    if "literal" in wanted or "arg" in wanted:
        t.flags |= TEST_LITERAL if "literal" in wanted else TEST_ARG
        holder = p.hold(wanted["literal"] if "literal" in wanted else wanted["arg"])
        t.akind = holder.akind
        t.iarg = holder.iarg
        t.arg = holder.arg
    if "numeric" in wanted:
        t.flags |= TEST_NUMERIC
        t.iarg = wanted["numeric"]
        d = wanted["numeric"]
        memcpy(&t.fbits, &d, 8)
    return 0


cdef int _register(object r) except -1:
    if not 0 <= r < MAX_REGISTERS:
        raise RuleError(f"a pattern of more than {MAX_REGISTERS} nodes is too large for one rule")
    return r


cdef class Program:
    """One rule, compiled. Built by `morok.ir.rules`; see there for the language.

    steps      ("check", reg, test) ("load", dst, src, index, test) ("take", dst, src, index)
               ("commute", dst, src) ("same", a, b)
    guard      (code, operand…) in postfix order, or None
    right      the same, or None for a rule with a `function` or a `native` name
    function   called with the nodes in the registers `arguments`; -1 stands for the context
    """

    def __init__(self, str name, *, roots, need=(), dict root=None, kinds=None, subject_first=False, steps=(),
                 guard=None, right=None, function=None, arguments=(), native=None, pure=True):
        cdef int i
        self.name = name
        self.pure = pure
        self.roots = tuple(int(op) for op in roots)
        self.keep = []
        _op_mask(need, &self.need0, &self.need1)
        _set_test(self, &self.root, root or {})
        self.subject_kinds = _kind_mask(kinds)
        self.subject_first = subject_first
        self._set_steps(list(steps))
        self.guard = self._codes(guard, False) if guard else NULL
        self.right = self._codes(right, True) if right else NULL
        self.function = function
        if len(arguments) > MAX_ARGUMENTS:
            raise RuleError(f"a rule's function takes at most {MAX_ARGUMENTS} arguments", rule=name)
        self.n_arguments = len(arguments)
        for i in range(self.n_arguments):
            self.arguments[i] = CONTEXT if arguments[i] < 0 else _register(arguments[i])
        if native is not None:
            if native not in _native_names:
                raise RuleError(f"no native rule {native!r}: there are {', '.join(native_rules())}", rule=name)
            self.native = _natives[<int>_native_names[native]].function

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.guard)
        PyMem_Free(self.right)

    cdef CNode *hold(self, object value) except NULL:
        """The node that keeps an argument interned while this program lives."""
        holder = node(_argument_holder(), dtypes.void, (), value)
        self.keep.append(holder)
        return peek(holder)

    cdef int _set_steps(self, list steps) except -1:
        cdef Instruction *x
        cdef int choices = 0
        self.steps = <Instruction *>PyMem_Calloc(len(steps) + 1, sizeof(Instruction))
        if self.steps == NULL:
            raise MemoryError()
        for i, step in enumerate(steps):
            x = &self.steps[i]
            x.kind = _INSTRUCTIONS[step[0]]
            x.dst = _register(step[1] + (1 if x.kind == COMMUTE else 0)) - (1 if x.kind == COMMUTE else 0)
            if x.kind == CHECK:
                _set_test(self, &x.test, step[2])
            else:
                x.src = _register(step[2])
            if x.kind == COMMUTE:
                choices += 1
            elif x.kind == LOAD or x.kind == TAKE:
                x.index = step[3]
                if x.kind == LOAD:
                    _set_test(self, &x.test, step[4])
        if choices > MAX_CHOICES:
            raise RuleError(f"a pattern has at most {MAX_CHOICES} commutative ops", rule=self.name)
        self.steps[len(steps)].kind = MATCHED
        return 0

    cdef Code *_codes(self, list codes, bint nodes) except NULL:
        """Translate postfix code, checking that its stacks neither overflow nor underflow."""
        cdef Code *out = <Code *>PyMem_Calloc(len(codes) + 1, sizeof(Code))
        cdef Code *c
        cdef CNode *holder
        cdef int ints = 0, built = 0
        if out == NULL:
            raise MemoryError()
        try:
            for i, row in enumerate(codes):
                c = &out[i]
                c.op = _CODES[row[0]]
                if c.op == K:
                    c.value = row[1]
                elif c.op >= VALUE and c.op <= KIND:
                    c.reg = _register(row[1])
                    if c.op == KIND:
                        c.value = _kind_mask(row[2])
                    elif c.op == SAME_NODE or c.op == SAME_DTYPE:
                        c.dreg = _register(row[2])
                elif c.op == REG:
                    c.reg = _register(row[1])
                elif c.op >= NUMBER:
                    self._constant_or_build(c, row)
                if c.op <= KIND:
                    ints += 1
                elif c.op >= ADD and c.op <= WMUL:
                    ints -= 1
                elif c.op == CONST or c.op == WCONST:
                    ints -= 1
                    built += 1
                elif c.op == REG or c.op == NUMBER:
                    built += 1
                elif c.op == BUILD:
                    built += 1 - c.n
                if ints < 0 or built < 0 or ints > MAX_STACK or built > MAX_STACK:
                    raise RuleError(f"an expression is nested more than {MAX_STACK} deep", rule=self.name)
            if ints != (0 if nodes else 1) or built != (1 if nodes else 0):
                raise RuleError("malformed code", rule=self.name)
        except BaseException:
            PyMem_Free(out)
            raise
        return out

    cdef int _constant_or_build(self, Code *c, tuple row) except -1:
        """("number", value, dtype) ("const", dtype) ("wconst", dtype) ("build", op, n, dtype, arg).

        dtype = (mode, register or None, DType or None); arg = None, ("fixed", value) or ("of", register).
        """
        cdef CNode *holder
        if c.op == NUMBER:
            self.keep.append(row[1])
            c.arg = <PyObject *>row[1]
            dtype = row[2]
        elif c.op == BUILD:
            c.number = int(row[1])
            c.n = row[2]
            dtype = row[3]
            if row[4] is not None:
                if row[4][0] == "of":
                    c.amode = ARG_OF_REGISTER
                    c.areg = _register(row[4][1])
                else:
                    c.amode = ARG_FIXED
                    holder = self.hold(row[4][1])
                    c.akind = holder.akind
                    c.value = holder.iarg
                    c.arg = holder.arg
        else:
            dtype = row[1]
        c.mode = _DTYPE_MODES[dtype[0]]
        if dtype[1] is not None:
            c.dreg = _register(dtype[1])
        if dtype[2] is not None:
            c.dtype = dtype_id(dtype[2])
        return 0


# ---- running programs -----------------------------------------------------------------------------

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
        if not const_payload(x, &akind, &iarg) or iarg != (t.fbits if akind == ARG_FLOAT else t.iarg):
            return False
    if t.flags & TEST_ARG:
        if x.akind != t.akind or x.arg != t.arg or (x.arg == NULL and x.akind != ARG_NONE and x.iarg != t.iarg):
            return False
    return True


cdef inline bint _limit(CNode *x, bint high, int64_t *out) noexcept:
    cdef int64_t lo = 0, hi = 0
    if not type_limits(DTYPES[x.dtype].scalar, &lo, &hi):
        return False
    out[0] = hi if high else lo
    return True


cdef int _evaluate(Code **code, CNode **reg, int64_t *stack, int n) noexcept:
    """Run integer code up to the first op on nodes or the end. The new stack depth; -1 = unknown."""
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
        elif c.op == MAX: r = a if a > b else b
        elif c.op == MIN: r = a if a < b else b
        elif c.op == AND: r = a & b
        elif c.op == OR: r = a | b
        elif c.op == XOR: r = a ^ b
        elif c.op == LT: r = a < b
        elif c.op == LE: r = a <= b
        elif c.op == GT: r = a > b
        elif c.op == GE: r = a >= b
        elif c.op == EQ: r = a == b
        elif c.op == NE: r = a != b
        elif c.op == WADD: r = <int64_t>(<uint64_t>a + <uint64_t>b)
        elif c.op == WSUB: r = <int64_t>(<uint64_t>a - <uint64_t>b)
        else: r = <int64_t>(<uint64_t>a * <uint64_t>b)
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
    """Build the right side. 1: `out` is a new reference; 0: a constant has no value, so not fired."""
    cdef CNode *built[MAX_STACK + 1]
    cdef int64_t ints[MAX_STACK + 1]
    cdef int n = 0, k = 0, i
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
                for i in range(c.n):
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


cdef inline int _fire(Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered) except -1:
    """Apply a program whose pattern and guards hold. 1: `out` is a new reference."""
    cdef CNode *root = reg[0]
    if p.native != NULL and root.provenance == NULL:
        return p.native(root, out) and _accept(p, root, out)
    return _fire_for(p, reg, ctx, out, entered)


cdef int _fire_for(Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered) except -1:
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
        error.add_note(f"in rule {p.name}, at {(<object>root.self).op.name} : {(<object>root.self).dtype}")
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
        raise RuleError(f"a rule returns a UOp or None, not {type(answer).__name__}", rule=p.name) from None
    if out[0] == reg[0]:
        if CHECKS:
            raise RuleError("a rule returned the node it was given: return None instead", rule=p.name)
        return 0
    c_incref(out[0].self)
    return 1


cdef inline bint _same_shape(CNode *a, CNode *b) except -1:
    if a.shape == b.shape or a.shape == NULL or b.shape == NULL:
        return True
    return PyObject_RichCompareBool(<object>a.shape, <object>b.shape, PY_EQ)


cdef int _accept(Program p, CNode *root, CNode **out) except -1:
    """A data or native rule may change neither dtype nor shape: where it would, it does not fire."""
    cdef bint ok
    if out[0] == root:
        c_decref(root.self)
        return 0
    ok = out[0].dtype == root.dtype
    if CHECKS and not ok:
        raise RuleError(f"the right side has dtype {(<object>out[0].self).dtype} instead of "
                        f"{(<object>root.self).dtype}", rule=p.name)
    ok = ok and _same_shape(out[0], root)
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


# ---- sets of programs -----------------------------------------------------------------------------

cdef uint64_t _source_bits0[128]  # what a source of this op adds to the set of ops among the sources
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
        _op_mask(buckets, &self.roots0, &self.roots1)
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
                e.index = index
                filled += 1
        self.start[128] = filled

    def __dealloc__(self):
        global _bits_dead
        _bits_dead |= self.bit
        PyMem_Free(self.entries)
        PyMem_Free(self.tried)

    cdef uint64_t normal_bit(self) noexcept:
        """The bit of CNode.normal that is this set's alone; 0 if it reads more than the node, or none is left."""
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
            if (<Program>e.program).native != NULL:
                done = _fire(<Program>e.program, &n, ctx, out, &self.entered[e.index])
            elif (<Program>e.program).root.flags == 0 or _passes_rest(&(<Program>e.program).root, n):
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
