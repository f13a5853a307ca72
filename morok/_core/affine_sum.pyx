"""Canonical sums of index arithmetic: one order, equal terms combined, divisions recombined."""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t

from morok._core.affine cimport (
    Form,
    MAX_TERMS,
    form_add,
    form_add_offset,
    form_add_term,
    form_build,
    form_clear,
    form_coeff,
    form_is,
    form_merge,
    form_sort,
    make_const,
)
from morok._core.affine_divide cimport apply_owned, is_div, is_mod, op_of_kind
from morok._core.affine_witness cimport check_sums
from morok._core.bounds cimport B_FLOORMOD
from morok._core.infer cimport DTYPES
from morok._core.match cimport register_native
from morok._core.program cimport WANTS_SUM
from morok._core.types cimport CNode, mk_mul, mk_sub, object_of

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)

cdef enum:
    MAX_ROUNDS = 16  # recombinations in one sum

cdef enum AtomKind:
    OTHER
    QUOTIENT  # x // d
    REST  # x % d


cdef inline CNode *_new_ref(CNode *n) noexcept:
    c_incref(object_of(n))
    return n


cdef struct Owned:
    uint32_t n  # nodes in use
    CNode *nodes[MAX_ROUNDS]  # references that a form only borrows


cdef void _release(Owned *o) noexcept:
    while o.n:
        o.n -= 1
        c_decref(object_of(o.nodes[o.n]))


cdef int _rule_sum(CNode *root, CNode **out) except -1:
    """A sum, difference or constant multiple in canonical order, equal terms combined, quotients
    and remainders of one division recombined."""
    cdef Form f
    cdef Form before
    cdef Owned made
    cdef uint32_t rounds = 0
    cdef int done = 0
    if DTYPES[root.dtype].kind != c'x':
        return 0
    form_clear(&f)
    if not form_add(&f, root, 1):
        return 0
    if f.n == 1 and f.terms[0].coeff == 1 and f.offset == 0 and f.terms[0].atom == root:
        return 0
    made.n = 0
    before = f
    try:
        while rounds < MAX_ROUNDS and _recombine(&f, &made):
            rounds += 1
        if rounds:
            check_sums(&before, &f)
        form_sort(&f)
        if not form_is(&f, root):
            out[0] = form_build(&f, root.dtype)
            done = 1
    finally:
        _release(&made)
    return done


cdef int _recombine(Form *f, Owned *made) except -1:
    """One step that lowers the number of divisions in a sum. 1 = done; f may be garbage after -1
    only."""
    cdef uint8_t kinds[MAX_TERMS]
    cdef uint32_t i, j
    cdef bint any_kind = False
    cdef CNode *x
    cdef int64_t d
    if f.n < 2:
        return 0
    for i in range(f.n):
        if is_div(f.terms[i].atom, &x, &d):
            kinds[i] = QUOTIENT
        else:
            kinds[i] = REST if is_mod(f.terms[i].atom, &x, &d) else OTHER
        any_kind = any_kind or kinds[i] != OTHER
    if not any_kind:
        return 0
    for i in range(f.n):
        if kinds[i] == OTHER:
            continue
        for j in range(f.n):
            if i == j or kinds[j] == OTHER:
                continue
            if kinds[i] == REST:
                if kinds[j] == QUOTIENT:
                    if _quotient_and_rest(f, i, j):
                        return 1
                elif _two_rests(f, i, j, made):
                    return 1
            elif kinds[j] == QUOTIENT and _nested_quotients(f, i, j, made):
                return 1
        if kinds[i] == QUOTIENT and _whole_and_quotient(f, i, made):
            return 1
    return 0


cdef bint _try(Form *f, Form *t) noexcept:
    f[0] = t[0]
    return True


cdef bint _quotient_and_rest(Form *f, uint32_t i, uint32_t j) noexcept:
    """c*(u % b) + c*b*(u // b) -> c*u, where the quotient may stand in another shape:
    v // (a*b) + t  for  u = w//a + k  and  v = w + k*a - t*a*b."""
    cdef CNode *u
    cdef CNode *v
    cdef CNode *w
    cdef int64_t b, e, a = 1, c, ab, k = 0, t
    cdef Form x
    cdef Form g
    if not is_mod(f.terms[i].atom, &u, &b) or not is_div(f.terms[j].atom, &v, &e):
        return False
    c = f.terms[i].coeff
    if mk_mul(c, b, &t) or t != f.terms[j].coeff:
        return False
    form_clear(&x)
    if u.dtype != v.dtype or not form_add(&x, u, 1):
        return False
    if e == b:
        w = u
    elif x.n == 1 and x.terms[0].coeff == 1 and is_div(x.terms[0].atom, &w, &a):
        k = x.offset
    else:
        return False
    if mk_mul(a, b, &ab) or ab != e or mk_mul(k, a, &k):
        return False
    # t = (w + k*a - v) / (a*b) must be a whole constant
    form_clear(&g)
    if not form_add(&g, w, 1) or not form_add(&g, v, -1) or not form_add_offset(&g, k):
        return False
    if g.n or g.offset % ab:
        return False
    g = f[0]
    if (not form_add_term(&g, f.terms[i].atom, -c) or not form_add_term(&g, f.terms[j].atom, -t)
            or not form_merge(&g, &x, c)):
        return False
    form_clear(&x)
    if not form_add(&x, w, 1) or not form_add(&x, v, -1) or not form_add_offset(&x, k):
        return False
    if mk_mul(x.offset / ab, t, &k) or mk_sub(0, k, &k) or not form_add_offset(&g, k):
        return False
    return _try(f, &g)


cdef int _two_rests(Form *f, uint32_t i, uint32_t j, Owned *made) except -1:
    """c*a*((w//a) % b) + c*(w % a) -> c*(w % (a*b))"""
    cdef CNode *u
    cdef CNode *v
    cdef CNode *w
    cdef int64_t a, b, e, t
    if not is_mod(f.terms[i].atom, &u, &b) or not is_mod(f.terms[j].atom, &w, &a):
        return 0
    if not is_div(u, &v, &e) or v != w or e != a:
        return 0
    if mk_mul(f.terms[j].coeff, a, &t) or t != f.terms[i].coeff or mk_mul(a, b, &b):
        return 0
    return _replace_two(f, i, j, B_FLOORMOD, w, b, f.terms[j].coeff, made)


cdef int _nested_quotients(Form *f, uint32_t i, uint32_t j, Owned *made) except -1:
    """c*(v // a) - c*b*(v // (a*b)) -> c*((v//a) % b)"""
    cdef CNode *v
    cdef CNode *w
    cdef int64_t a, e, t
    if not is_div(f.terms[i].atom, &v, &a) or not is_div(f.terms[j].atom, &w, &e):
        return 0
    if v != w or e % a or e == a or mk_mul(f.terms[i].coeff, e / a, &t) or mk_sub(0, t, &t):
        return 0
    if t != f.terms[j].coeff:
        return 0
    return _replace_two(f, i, j, B_FLOORMOD, f.terms[i].atom, e / a, f.terms[i].coeff, made)


cdef int _replace_two(Form *f, uint32_t i, uint32_t j, uint8_t kind, CNode *x, int64_t d, int64_t c,
                      Owned *made) except -1:
    """Terms i and j give way to c * kind(x, d)."""
    cdef Form g
    cdef CNode *n
    g = f[0]
    if (made.n == MAX_ROUNDS or not form_add_term(&g, f.terms[i].atom, -f.terms[i].coeff)
            or not form_add_term(&g, f.terms[j].atom, -f.terms[j].coeff)):
        return 0
    n = apply_owned(op_of_kind(kind), _new_ref(x), make_const(x.dtype, d))
    made.nodes[made.n] = n
    made.n += 1
    return form_add_term(&g, n, c) and _try(f, &g)


cdef int _whole_and_quotient(Form *f, uint32_t j, Owned *made) except -1:
    """c*v - c*e*(v // e) -> c*(v % e), where every term of v stands in the sum with coefficient
    c."""
    cdef CNode *v
    cdef CNode *n
    cdef int64_t e, c, t
    cdef uint32_t k
    cdef Form x
    cdef Form g
    if not is_div(f.terms[j].atom, &v, &e) or f.terms[j].coeff % e or f.terms[j].coeff == INT64_MIN:
        return 0
    c = -(f.terms[j].coeff / e)
    form_clear(&x)
    if c == 0 or made.n == MAX_ROUNDS or not form_add(&x, v, 1) or x.n == 0:
        return 0
    for k in range(x.n):
        if mk_mul(x.terms[k].coeff, c, &t) or form_coeff(f, x.terms[k].atom) != t:
            return 0
    g = f[0]
    if not form_add_term(&g, f.terms[j].atom, -f.terms[j].coeff):
        return 0
    if mk_sub(0, c, &t) or not form_merge(&g, &x, t):
        return 0
    n = apply_owned(op_of_kind(B_FLOORMOD), _new_ref(v), make_const(v.dtype, e))
    made.nodes[made.n] = n
    made.n += 1
    return form_add_term(&g, n, c) and _try(f, &g)


register_native("affine.sum", _rule_sum, WANTS_SUM)
