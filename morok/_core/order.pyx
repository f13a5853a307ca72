"""The order of commutative operands.

A hash of an operand's structure that leaves out what two equal computations on other buffers and in
other loops may differ in (UNIQUE, slots, axis numbers), so that equal kernels are one kernel.
Operands that it does not tell apart keep the order they have. The same in every process.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from morok._core.constant cimport is_constant
from morok._core.infer cimport DTYPES, OPS
from morok._core.match cimport register_native
from morok._core.program cimport WANTS_NODE_RIGHT
from morok._core.node cimport ArgRecord, build_alu
from morok._core.types cimport ARG_NONE, ARG_OBJECT, CNode, mk_mix

cdef enum:
    KEY_DEPTH = 3  # levels of an operand that the hash looks at
    KEY_SOURCES = 3  # sources of a node that it looks at

cdef bint _named = False  # the masks are filled in: ops are registered after this module loads
cdef uint64_t _anonymous0 = 0, _anonymous1 = 0  # ops whose argument only tells equals apart


cdef void _look_up_ops() noexcept:
    global _named, _anonymous0, _anonymous1
    cdef int i
    for i in range(128):
        if OPS[i].known and (<object>OPS[i].member).name in (
                "UNIQUE", "LUNIQUE", "PARAM", "RANGE", "DEFINE_LOCAL", "DEFINE_REG"):
            if i < 64:
                _anonymous0 |= <uint64_t>1 << i
            else:
                _anonymous1 |= <uint64_t>1 << (i - 64)
    _named = True


cdef uint64_t _order_key(CNode *n, int depth) noexcept:
    """A hash of the structure down to `depth` levels, the same for equal computations anywhere."""
    cdef uint64_t h = OPS[n.op].seed0 ^ (DTYPES[n.dtype].seed1 << 1) ^ n.nsrc
    cdef uint32_t i
    if not ((_anonymous0 if n.op < 64 else _anonymous1) >> (n.op & 63)) & 1:
        if n.akind == ARG_OBJECT:
            h = mk_mix(h ^ (<ArgRecord>n.arg).h0, <uint64_t>0xD6E8FEB86659FD93)
        elif n.akind != ARG_NONE:
            h = mk_mix(h ^ <uint64_t>n.iarg, <uint64_t>0xA0761D6478BD642F)
    if depth:
        for i in range(min(n.nsrc, <uint32_t>KEY_SOURCES)):
            h = mk_mix(h ^ _order_key(n.src[i], depth - 1), <uint64_t>0xE7037ED1A0B428DB)
    return h


cdef bint comes_after(CNode *a, CNode *b) noexcept:
    """Whether b stands before a: by the hash of the op's name, and of the structure only where
    those tie."""
    cdef uint64_t x = OPS[a.op].seed0, y = OPS[b.op].seed0
    if a == b:
        return False
    if x != y:
        return x > y
    if not _named:
        _look_up_ops()
    return _order_key(a, KEY_DEPTH) > _order_key(b, KEY_DEPTH)


cdef int _rule_commute(CNode *root, CNode **out) except -1:
    """Constants right, otherwise operands by a hash that leaves out slots, loop numbers and the
    like; equal ones keep their order. Never for floats."""
    cdef CNode *src[2]
    cdef uint8_t kind = DTYPES[root.src[0].dtype].kind
    if root.nsrc != 2 or kind == c'f':
        return 0
    if is_constant(root.src[1]):
        return 0
    if not is_constant(root.src[0]) and not comes_after(root.src[0], root.src[1]):
        return 0
    src[0] = root.src[1]
    src[1] = root.src[0]
    out[0] = build_alu(root.op, 2, src)
    return 1


register_native("order.commutative", _rule_commute, WANTS_NODE_RIGHT)
