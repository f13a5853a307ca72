"""Two small native rules: values that their bounds decide, and gates that are decided."""

from libc.stdint cimport int64_t

from morok._core.constant cimport const_value, make_int
from morok._core.infer cimport OP_WHERE
from morok._core.match cimport register_native
from morok._core.node cimport intern
from morok._core.program cimport WANTS_ANYTHING, WANTS_POINT
from morok._core.types cimport ARG_BOOL, NODE_BOUNDED, NODE_INVALID, CNode


cdef int _rule_bounds(CNode *root, CNode **out) except -1:
    """A value whose bounds meet is that constant. (A WHERE with an Invalid arm says more: it
    stays)."""
    if not root.flags & NODE_BOUNDED or root.vmin != root.vmax:
        return 0
    if root.op == OP_WHERE and (root.src[1].flags | root.src[2].flags) & NODE_INVALID:
        return 0
    out[0] = make_int(root.dtype, root.vmin)
    return out[0] != NULL


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


register_native("fold.bounds", _rule_bounds, WANTS_POINT)
register_native("index.gate", _rule_gate, WANTS_ANYTHING)
