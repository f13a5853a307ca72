"""The transfer functions of `bounds` on arrays of intervals, for checks of all there are."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from morok._core.bounds cimport infer_bounds
from morok._core.infer cimport dtype_id
from morok._core.types cimport NODE_BOUNDED, CNode


cdef inline void _operand(CNode *n, object dtype_of, int64_t low, int64_t high):
    n.dtype = dtype_id(dtype_of)
    n.vmin = low
    n.vmax = high
    n.flags = NODE_BOUNDED


def interval_transfer(int op, dtype, source, fixed, bint first, operands, out):
    """See the stub."""
    cdef const int64_t[:, ::1] given = operands
    cdef int64_t[:, ::1] found = out
    cdef CNode n
    cdef CNode x
    cdef CNode y
    cdef CNode *varying = &x if fixed is None or not first else &y
    cdef Py_ssize_t i
    if given.shape[0] != found.shape[0] or given.shape[1] != 2 or found.shape[1] != 2:
        raise ValueError("operands and out are arrays of as many pairs")
    memset(&n, 0, sizeof(CNode))
    memset(&x, 0, sizeof(CNode))
    memset(&y, 0, sizeof(CNode))
    _operand(&x, source, 0, 0)
    _operand(&y, source, 0, 0)
    n.op = op
    n.dtype = dtype_id(dtype)
    n.src = n.few
    n.nsrc = 1 if fixed is None else 2
    n.few[0] = &x
    n.few[1] = &y
    if fixed is not None and first:
        x.vmin, x.vmax = fixed
    elif fixed is not None:
        y.vmin, y.vmax = fixed
    for i in range(given.shape[0]):
        varying.vmin = given[i, 0]
        varying.vmax = given[i, 1]
        n.flags = 0
        infer_bounds(&n)
        found[i, 0] = n.vmin if n.flags & NODE_BOUNDED else 1
        found[i, 1] = n.vmax if n.flags & NODE_BOUNDED else 0
