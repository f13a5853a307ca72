"""Rules as programs for the matcher: building them, and the registry of rules written in C.

A program is a straight list of instructions over registers (register 0 is the root) that checks a
node and loads its sources; postfix code for its guards, on int64; and postfix code, a Python
function or a C function for its right side. `match.pyx` runs them.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from morok._core.infer cimport OPS, dtype_id
from morok._core.node cimport peek
from morok._core.types cimport CNode

from morok._core.construct import node
from morok.dtype import dtypes
from morok.errors import RuleError

_INSTRUCTIONS = {"check": CHECK, "load": LOAD, "take": TAKE, "commute": COMMUTE, "same": SAME}
_CODES = {
    "k": K, "value": VALUE, "vmin": VMIN, "vmax": VMAX, "lowest": LOWEST, "highest": HIGHEST,
    "bits": BITS, "lanes": LANES, "is_const": IS_CONST, "same": SAME_NODE,
    "same_dtype": SAME_DTYPE, "ends_idle": ENDS_IDLE,
    "kind": KIND, "neg": NEG, "not": NOT, "is_pow2": IS_POW2,
    "log2": LOG2, "add": ADD, "sub": SUB, "mul": MUL, "floordiv": FLOORDIV, "floormod": FLOORMOD,
    "max": MAX, "min": MIN, "shl": SHL, "and": AND, "or": OR, "xor": XOR, "lt": LT, "le": LE,
    "gt": GT, "ge": GE, "eq": EQ, "ne": NE, "divides": DIVIDES, "wadd": WADD, "wsub": WSUB,
    "wmul": WMUL, "wneg": WNEG, "reg": REG, "number": NUMBER, "const": CONST, "wconst": WCONST,
    "build": BUILD,
}
_DTYPE_MODES = {
    "register": AS_REGISTER, "bool": AS_BOOL, "fixed": AS_FIXED, "inferred": AS_INFERRED,
    "cast": AS_CAST,
}


cdef int _argument_holder() except -1:
    """The op SOURCE: its nodes have no sources and any argument."""
    cdef int op
    for op in range(128):
        if OPS[op].known and (<object>OPS[op].member).name == "SOURCE":
            return op
    raise RuntimeError("the op table is not registered: import morok.ir")


# ---- native rules --------------------------------------------------------------------------------

cdef struct NativeRow:
    native_rule function  # never NULL
    uint8_t wants  # NativeWants

cdef NativeRow _natives[256]
cdef int _n_natives = 0
cdef dict _native_names = {}  # name -> row


cdef int add_native(str name, native_rule function, uint8_t wants) except -1:
    global _n_natives
    if name in _native_names or _n_natives == 256:
        raise ValueError(f"native rule {name} is registered already, or there are too many")
    _natives[_n_natives].function = function
    _natives[_n_natives].wants = wants
    _native_names[name] = _n_natives
    _n_natives += 1
    return 0


def native_rules():
    """Names of the rules written in C that are registered so far."""
    return sorted(_native_names)


# ---- building programs ---------------------------------------------------------------------------

cdef uint32_t _kind_mask(object kinds) except? 0:
    cdef uint32_t mask = 0
    if kinds is None:
        return 0xFFFFFFFF
    for letter in kinds:
        mask |= <uint32_t>1 << (<int>ord(letter) & 31)
    return mask


cdef int op_mask(object ops, uint64_t *low, uint64_t *high) except -1:
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
    """`wanted`: any of ops, kinds, dtype, nsrc, min_nsrc, constant, literal, numeric, arg."""
    cdef CNode *holder
    cdef double d
    t.flags = 0
    op_mask(wanted.get("ops"), &t.ops0, &t.ops1)
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

    def __init__(
        self, str name, *, roots, need=(), dict root=None, kinds=None, subject_first=False,
        steps=(), guard=None, right=None, function=None, arguments=(), native=None, pure=True
    ):
        cdef int i
        self.name = name
        self.pure = pure
        self.roots = tuple(int(op) for op in roots)
        self.keep = []
        op_mask(need, &self.need0, &self.need1)
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
                known = ", ".join(native_rules())
                raise RuleError(f"no native rule {native!r}: there are {known}", rule=name)
            self.native = _natives[<int>_native_names[native]].function
            self.wants = _natives[<int>_native_names[native]].wants

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
            x.dst = _register(step[1])
            if x.kind == COMMUTE:
                _register(step[1] + 1)
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
                    message = f"an expression is nested more than {MAX_STACK} deep"
                    raise RuleError(message, rule=self.name)
            if ints != (0 if nodes else 1) or built != (1 if nodes else 0):
                raise RuleError("malformed code", rule=self.name)
        except BaseException:
            PyMem_Free(out)
            raise
        return out

    cdef int _constant_or_build(self, Code *c, tuple row) except -1:
        """("number", value, dtype) ("const", dtype) ("wconst", dtype) ("build", op, n, dtype, arg).

        dtype = (mode, register or None, DType or None)
        arg = None, ("fixed", value) or ("of", register)
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
