# cython: language_level=3
"""Compiled rules: what other core modules may call."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.types cimport CNode

# A rule written in C. 1: `out` is the replacement, a new reference. 0: does not apply.
ctypedef int (*native_rule)(CNode *root, CNode **out) except -1

# Makes a native rule known by name. Call it when the module that implements the rule is imported.
cdef int register_native(str name, native_rule function) except -1

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
    cdef list keep  # owns what `arg` pointers borrow

    cdef CNode *hold(self, object value) except NULL
    cdef int _set_steps(self, list steps) except -1
    cdef Code *_codes(self, list codes, bint nodes) except NULL
    cdef int _constant_or_build(self, Code *c, tuple row) except -1


cdef struct Entry:
    PyObject *program  # borrowed: the Matcher holds it
    uint64_t need0  # copy of the program's filter
    uint64_t need1
    uint32_t index  # position in the set
    uint32_t kinds  # dtype class of the subject
    bint first  # the subject is the first source


cdef class Matcher:
    cdef readonly tuple programs  # in order
    cdef readonly str name
    cdef readonly bint pure  # all programs are
    cdef Entry *entries  # rules by root op, in order
    cdef uint32_t start[129]  # entries of op i: start[i] up to start[i + 1]
    cdef uint64_t roots0  # ops that some rule starts at
    cdef uint64_t roots1
    cdef uint64_t bit  # own bit of CNode.normal, 0 = none
    cdef bint asked  # a bit was asked for
    cdef uint64_t *tried  # per rule: passed the filter
    cdef uint64_t *hits  # per rule: rewrote
    cdef uint64_t *entered  # per rule: Python functions called

    # 1: `out` is the replacement (new reference) and `which` the rule; 0: no rule applies.
    cdef int step(self, CNode *n, PyObject *ctx, CNode **out, uint32_t *which) except -1
    cdef uint64_t normal_bit(self) noexcept
