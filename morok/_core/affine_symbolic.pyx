"""Affine forms and values that are no constants: divisors and ends of loops that are variables."""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint32_t

from morok._core.affine cimport (
    Form,
    form_add,
    form_add_offset,
    form_add_term,
    form_bounds,
    form_clear,
    form_gcd,
    form_merge,
    make_const,
)
from morok._core.affine_divide cimport answer_form, apply_owned, form_built, gcd
from morok._core.constant cimport const_value
from morok._core.infer cimport DTYPES, OP_MUL, OP_RANGE
from morok._core.match cimport register_native
from morok._core.program cimport WANTS_NODE_RIGHT
from morok._core.node cimport take
from morok._core.types cimport NODE_BOUNDED, CNode, mk_mul, object_of

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)

cdef enum:
    MAX_FACTORS = 8  # of a product


cdef inline CNode *_new_ref(CNode *n) noexcept:
    c_incref(object_of(n))
    return n

cdef uint32_t _factors(CNode *n, CNode **out, uint32_t k) noexcept:
    """The factors of a product, from position k on; MAX_FACTORS + 1 when there are too many."""
    if k > MAX_FACTORS:
        return k
    if n.op == OP_MUL and n.nsrc == 2:
        k = _factors(n.src[0], out, k)
        return _factors(n.src[1], out, k) if k <= MAX_FACTORS else k
    if k < MAX_FACTORS:
        out[k] = n
    return k + 1


cdef uint32_t _without_constants(CNode **factors, uint32_t n, int64_t *c) noexcept:
    """Takes the constants out of a list of factors; c is their product, 0 on overflow."""
    cdef uint32_t i, k = 0
    cdef int64_t v
    c[0] = 1
    for i in range(n):
        if not const_value(factors[i], &v):
            factors[k] = factors[i]
            k += 1
        elif mk_mul(c[0], v, c):
            c[0] = 0
            return 0
    return k


cdef int _over(CNode *atom, CNode **divisors, uint32_t n, CNode **rest) except -1:
    """atom = rest * product of divisors; `rest` is a new reference, NULL for 1. 0: not a
    multiple."""
    cdef CNode *factors[MAX_FACTORS]
    cdef uint32_t i, j, k = _factors(atom, factors, 0)
    rest[0] = NULL
    if k > MAX_FACTORS:
        return 0
    for i in range(n):
        for j in range(k):
            if factors[j] == divisors[i]:
                break
        else:
            return 0
        k -= 1
        while j < k:
            factors[j] = factors[j + 1]
            j += 1
    for j in range(k):
        if j == 0:
            rest[0] = _new_ref(factors[j])
        else:
            rest[0] = apply_owned(OP_MUL, rest[0], _new_ref(factors[j]))
    return 1


cdef bint form_limit(Form *f, bint upper, int64_t *limit) noexcept:
    """A bound of f that knows that a RANGE stays below its end, also when the end is no constant:
    the largest (smallest) value has every such range at its last (first) or first (last) value."""
    cdef Form g
    cdef Form end
    cdef int64_t lo, hi, c
    cdef uint32_t i, rounds = 0
    cdef CNode *x
    g = f[0]
    i = 0
    while i < g.n:
        x = g.terms[i].atom
        c = g.terms[i].coeff
        if x.op != OP_RANGE or x.src[0].flags & NODE_BOUNDED and x.src[0].vmin == x.src[0].vmax:
            i += 1
            continue
        rounds += 1
        if c == INT64_MIN or rounds > MAX_FACTORS or not form_add_term(&g, x, -c):
            return False
        if (c > 0) == upper:
            form_clear(&end)
            if (not form_add(&end, x.src[0], 1) or not form_add_offset(&end, -1)
                    or not form_merge(&g, &end, c)):
                return False
        i = 0
    if not form_bounds(&g, &lo, &hi):
        return False
    limit[0] = hi if upper else lo
    return True


cdef bint _below(Form *r, CNode *d) noexcept:
    """Whether 0 <= r < d is known."""
    cdef Form t
    cdef int64_t v
    t = r[0]
    if not form_limit(&t, False, &v) or v < 0:
        return False
    return form_add(&t, d, -1) and form_limit(&t, True, &v) and v < 0


cdef CNode *_times(CNode *product, CNode *factor) except NULL:
    """product * factor, of new references; NULL as a product is 1."""
    if product == NULL:
        return factor
    return apply_owned(OP_MUL, product, factor)


cdef int _cancel(Form *r, CNode **divisors, uint32_t *k, CNode **common, list held) except -1:
    """Take factors that every term of r has out of r and of the divisors; `common` is their
    product, a new reference, or NULL."""
    cdef Form reduced
    cdef CNode *f
    cdef CNode *rest
    cdef uint32_t i, j = 0
    cdef bint done
    while j < k[0]:
        f = divisors[j]
        j += 1
        if r.offset or r.n == 0 or not f.flags & NODE_BOUNDED or f.vmin <= 0:
            continue
        form_clear(&reduced)
        for i in range(r.n):
            if not _over(r.terms[i].atom, &f, 1, &rest):
                break
            if rest == NULL:
                done = form_add_offset(&reduced, r.terms[i].coeff)
            else:
                held.append(take(rest))
                done = form_add_term(&reduced, rest, r.terms[i].coeff)
            if not done:
                break
        else:
            r[0] = reduced
            common[0] = _times(common[0], _new_ref(f))
            j -= 1
            k[0] -= 1
            for i in range(j, k[0]):
                divisors[i] = divisors[i + 1]
    return 0


cdef int _without_common(CNode *root, bint mod, Form *q, Form *r, CNode **divisors, uint32_t k,
                         int64_t c, list held, CNode **out) except -1:
    """g*n // (g*d) = n // d,  g*n % (g*d) = g * (n % d)  for g > 0, where the numerator is r and
    the divisor c * product of divisors; the quotient gets q added."""
    cdef CNode *common = NULL
    cdef CNode *d = NULL
    cdef CNode *inner
    cdef int64_t g
    cdef uint32_t i
    cdef Form answer
    for i in range(r.n):
        if r.terms[i].coeff == INT64_MIN:
            return 0
    if r.offset == INT64_MIN:
        return 0
    g = gcd(gcd(form_gcd(r), -r.offset if r.offset < 0 else r.offset), c)
    for i in range(r.n):
        r.terms[i].coeff = r.terms[i].coeff / g
    r.offset = r.offset / g
    _cancel(r, divisors, &k, &common, held)
    if common != NULL:
        held.append(take(common))
    elif g == 1:
        return 0
    for i in range(k):
        d = _times(d, _new_ref(divisors[i]))
    if d == NULL or c != g:
        d = _times(d, make_const(root.dtype, c / g))
    inner = apply_owned(root.op, form_built(r, root.dtype), d)
    if not mod:
        held.append(take(inner))
        return form_add_term(q, inner, 1) and answer_form(q, root, out)
    if common != NULL:
        inner = _times(inner, _new_ref(common))
    held.append(take(inner))
    form_clear(&answer)
    return form_add_term(&answer, inner, g) and answer_form(&answer, root, out)


cdef int _divide_by_node(CNode *root, bint mod, CNode **out) except -1:
    """n = d*q + r with a positive d that is no constant:
    0 <= r < d:  n // d = q,  n % d = r;   otherwise  n // d = q + r // d,  n % d = r % d, with
    common factors of r and d gone."""
    cdef CNode *d = root.src[1]
    cdef CNode *divisors[MAX_FACTORS]
    cdef CNode *rest
    cdef CNode *inner
    cdef Form n
    cdef Form q
    cdef Form r
    cdef Form rest_form
    cdef uint32_t i, k
    cdef int64_t c
    cdef int done, found = 0
    cdef list held = []
    if DTYPES[root.dtype].kind != c'x' or not d.flags & NODE_BOUNDED or d.vmin <= 0:
        return 0
    form_clear(&n)
    k = _factors(d, divisors, 0)
    if k > MAX_FACTORS or not form_add(&n, root.src[0], 1):
        return 0
    k = _without_constants(divisors, k, &c)
    if k == 0 or c <= 0:
        return 0
    form_clear(&q)
    form_clear(&r)
    r.offset = n.offset
    for i in range(n.n):
        if n.terms[i].coeff % c or not _over(n.terms[i].atom, divisors, k, &rest):
            if not form_add_term(&r, n.terms[i].atom, n.terms[i].coeff):
                return 0
            continue
        found = 1
        if rest == NULL:
            done = form_add_offset(&q, n.terms[i].coeff / c)
        else:
            held.append(take(rest))
            done = form_add_term(&q, rest, n.terms[i].coeff / c)
        if not done:
            return 0
    if _below(&r, d):
        return answer_form(&r if mod else &q, root, out)
    rest_form = r
    if _without_common(root, mod, &q, &rest_form, divisors, k, c, held, out):
        return 1
    if not found:
        return 0
    inner = apply_owned(root.op, form_built(&r, root.dtype), _new_ref(d))
    if mod:
        out[0] = inner
        return 1
    held.append(take(inner))
    return form_add_term(&q, inner, 1) and answer_form(&q, root, out)


cdef int _rule_floordiv_by_node(CNode *root, CNode **out) except -1:
    return _divide_by_node(root, False, out)


cdef int _rule_floormod_by_node(CNode *root, CNode **out) except -1:
    return _divide_by_node(root, True, out)


register_native("affine.floordiv_by_node", _rule_floordiv_by_node, WANTS_NODE_RIGHT)
register_native("affine.floormod_by_node", _rule_floormod_by_node, WANTS_NODE_RIGHT)
