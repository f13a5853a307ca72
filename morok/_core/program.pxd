# cython: language_level=3
"""Rules as programs: the instructions, and what other core modules may call."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.types cimport CNode

# A rule written in C. 1: `out` is the replacement, a new reference. 0: does not apply.
ctypedef int (*native_rule)(CNode *root, CNode **out) except -1

# Makes a native rule known by name. `wants`: NativeWants, what a node needs to be offered to it.
cdef int add_native(str name, native_rule function, uint8_t wants) except -1
# The bits of an iterable of op numbers; all for None.
cdef int op_mask(object ops, uint64_t *low, uint64_t *high) except -1

cdef enum:
    MAX_REGISTERS = 32
    MAX_CHOICES = 16
    MAX_STACK = 24
    MAX_ARGUMENTS = 16
    CONTEXT = 255  # the argument that is no register: the pass context

cdef enum TestFlag:
    TEST_NSRC = 1  # exactly nsrc sources
    TEST_MIN_NSRC = 2  # nsrc sources or more
    TEST_CONSTANT = 4  # a number, or a vector that repeats one
    TEST_LITERAL = 8  # the number (akind, iarg)
    TEST_NUMERIC = 16  # the number iarg, or the float fbits, or the truth value iarg
    TEST_ARG = 32  # the argument (akind, iarg or arg)
    TEST_DTYPE = 64  # lanes of dtype
    TEST_KINDS = 128  # a dtype of the classes `kinds`

cdef enum NativeWants:
    WANTS_ANYTHING = 0
    WANTS_CONSTANTS = 1  # one or two sources are constants, of three or more the first
    WANTS_POINT = 2  # the root's bounds meet
    WANTS_CONST_RIGHT = 4  # the second source is a constant
    WANTS_NODE_RIGHT = 8  # the second source is no scalar constant
    WANTS_SUM = 16  # an ADD, or something of which an operand is a constant or a sum

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
    ENDS_IDLE
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


cdef struct Test:
    uint64_t ops0  # allowed ops 0..63
    uint64_t ops1  # allowed ops 64..127
    uint32_t kinds  # allowed dtype classes, bit (letter & 31)
    uint32_t nsrc  # sources wanted
    uint8_t flags  # TestFlag: what else is asked
    uint8_t akind  # argument kind wanted
    uint16_t dtype  # dtype wanted (of a lane)
    int64_t iarg  # argument wanted: payload
    int64_t fbits  # literal of any kind: the bits of its float
    PyObject *arg  # argument wanted: ArgRecord, kept alive by the Program


cdef struct Instruction:
    uint8_t kind  # InstructionKind
    uint8_t dst  # register written or tested
    uint8_t src  # register read
    uint32_t index  # which source of it
    Test test  # CHECK and LOAD


cdef struct Code:
    uint8_t op  # CodeOp
    uint8_t reg  # register
    uint8_t mode  # BUILD and CONST: where the dtype comes from
    uint8_t dreg  # register of the dtype
    uint16_t n  # BUILD: number of sources
    uint16_t number  # BUILD: op; otherwise a fixed dtype
    uint16_t dtype  # fixed dtype
    uint8_t amode  # BUILD: where the argument comes from
    uint8_t areg  # register of the argument
    uint8_t akind  # fixed argument: kind
    int64_t value  # literal, or payload of the fixed argument
    PyObject *arg  # fixed argument: ArgRecord; literal: the number; kept alive by the Program


cdef class Program:
    cdef readonly str name  # full name: "set.rule"
    cdef readonly bint pure  # reads nothing but the node
    cdef readonly tuple roots  # numbers of the ops it starts at
    cdef uint64_t need0  # ops that must occur among the sources
    cdef uint64_t need1
    cdef Test root  # asked of the root, ops aside
    cdef uint32_t subject_kinds  # dtype class asked of the subject
    cdef bint subject_first  # the subject is the first source (comparisons), not the root
    cdef Instruction *steps  # ends with MATCHED
    cdef Code *guard  # ends with END; NULL = none
    cdef Code *right  # ends with END; NULL for opaque and native rules
    cdef object function  # opaque rule
    cdef uint8_t arguments[16]  # registers it gets; CONTEXT = the pass context
    cdef int n_arguments
    cdef native_rule native  # or NULL
    cdef uint8_t wants  # NativeWants of the native rule
    cdef list keep  # owns what `arg` pointers borrow

    cdef CNode *hold(self, object value) except NULL
    cdef int _set_steps(self, list steps) except -1
    cdef Code *_codes(self, list codes, bint nodes) except NULL
    cdef int _constant_or_build(self, Code *c, tuple row) except -1
