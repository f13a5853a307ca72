"""Small native rules: values that their bounds decide, the order of commutative operands, decided gates."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from morok._core.affine cimport comes_after
from morok._core.constant cimport const_value, is_constant, make_int
from morok._core.infer cimport DTYPES, OP_WHERE
from morok._core.match cimport register_native
from morok._core.node cimport build_alu, intern
from morok._core.types cimport ARG_BOOL, NODE_BOUNDED, NODE_INVALID, CNode

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)


cdef int _rule_bounds(CNode *root, CNode **out) except -1:
    """A value whose bounds meet is that constant (an Invalid arm still says something: it stays)."""
    if not root.flags & NODE_BOUNDED or root.vmin != root.vmax:
        return 0
    if root.op == OP_WHERE and (root.src[1].flags | root.src[2].flags) & NODE_INVALID:
        return 0
    out[0] = make_int(root.dtype, root.vmin)
    return out[0] != NULL


cdef int _rule_commute(CNode *root, CNode **out) except -1:
    """Constants right, otherwise operands by a hash that leaves out slots, loop numbers and the like; equal
    ones keep their order. Never for floats."""
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


cdef int _rule_gate(CNode *root, CNode **out) except -1:
    """INDEX with a constant gate: without it where true, 0 where false."""
    cdef int64_t v
    if root.akind != ARG_BOOL or not root.iarg or not const_value(root.src[root.nsrc - 1], &v):
        return 0
    if v:
        out[0] = intern(root.op, root.dtype, root.nsrc - 1, root.src, ARG_BOOL, 0, NULL)
        return 1
    out[0] = make_int(root.dtype, 0)
    return out[0] != NULL


register_native("fold.bounds", _rule_bounds)
register_native("order.commutative", _rule_commute)
register_native("index.gate", _rule_gate)
