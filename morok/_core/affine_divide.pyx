"""Floor division and remainder of affine forms.

Each rule finds a witness, forms q and r with  numerator = g*q + r  and  0 <= r < g,  and the
witness is checked before the rule answers. So two lemmas prove the family, for d = g*e and e, g >
0:

    numerator // d = q // e            numerator % d = g * (q % e) + r

The truncating pair IDIV and MOD equals the floor pair where the numerator is not negative, and is
treated only there. In fixed-width dtypes, forms are mathematical values (see `affine.pyx`), and an
answer is given only when its parts are proved to lie in the dtype.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t

from morok._core.affine cimport (
    MAX_TERMS,
    Form,
    counts_as_int,
    form_add,
    form_add_offset,
    form_add_term,
    form_bounds,
    form_build,
    form_clear,
    form_fits,
    form_merge,
    form_negate,
    form_sort,
    make_const,
)
from morok._core.affine_witness cimport check_nodes
from morok._core.bounds cimport B_FLOORDIV, B_FLOORMOD, B_IDIV, B_MOD
from morok._core.constant cimport const_value
from morok._core.infer cimport OP_NEG, OPS
from morok._core.match cimport register_native
from morok._core.program cimport WANTS_CONST_RIGHT
from morok._core.node cimport build_alu
from morok._core.types cimport (
    NODE_BOUNDED,
    CNode,
    mk_add,
    mk_floordiv,
    mk_floormod,
    mk_mul,
    mk_sub,
    object_of,
)

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)

cdef enum:
    MAX_FREE = 6  # terms whose remainder is searched both ways
    KINDS = 48


# ---- ops by meaning -----------------------------------------------------------------------------

cdef uint16_t _op_of[KINDS]  # op number by bounds kind; 0 = not looked up yet


cdef uint16_t op_of_kind(uint8_t kind) noexcept:
    """The op whose meaning is `kind` (one op each, for the kinds used here)."""
    cdef int i
    if _op_of[kind] == 0:
        for i in range(128):
            if OPS[i].known and OPS[i].bounds_kind == kind:
                _op_of[kind] = i
    return _op_of[kind]


cdef CNode *apply_owned(uint16_t op, CNode *a, CNode *b) except NULL:
    """op(a, b), a new reference; takes over both."""
    cdef CNode *src[2]
    src[0] = a
    src[1] = b
    try:
        return build_alu(op, 2, src)
    finally:
        c_decref(object_of(a))
        c_decref(object_of(b))


cdef inline CNode *_new_ref(CNode *n) noexcept:
    c_incref(object_of(n))
    return n


cdef bint _as_division(CNode *n, uint8_t floor_kind, uint8_t trunc_kind, CNode **x,
                       int64_t *d) noexcept:
    """Whether n is x // d (or x % d) in floor semantics with a constant d > 0."""
    cdef uint8_t k = OPS[n.op].bounds_kind
    if n.nsrc != 2 or (k != floor_kind and k != trunc_kind):
        return False
    if not const_value(n.src[1], d) or d[0] <= 0:
        return False
    x[0] = n.src[0]
    return k == floor_kind or (x[0].flags & NODE_BOUNDED and x[0].vmin >= 0)


cdef bint is_div(CNode *n, CNode **x, int64_t *d) noexcept:
    return _as_division(n, B_FLOORDIV, B_IDIV, x, d)


cdef bint is_mod(CNode *n, CNode **x, int64_t *d) noexcept:
    return _as_division(n, B_FLOORMOD, B_MOD, x, d)


# ---- the witness --------------------------------------------------------------------------------

cdef bint _witness(Form *n, int64_t g, Form *q, Form *r) noexcept:
    """Whether n = g*q + r as forms, and 0 <= r < g by bounds."""
    cdef Form t
    cdef int64_t lo, hi
    t = r[0]
    if g <= 0 or not form_merge(&t, q, g) or not form_merge(&t, n, -1):
        return False
    return t.n == 0 and t.offset == 0 and form_bounds(r, &lo, &hi) and lo >= 0 and hi < g


cdef bint split_period(Form *n, int64_t g, Form *q, Form *r) noexcept:
    """Find q and r with n = g*q + r and 0 <= r < g.

    A coefficient c leaves c mod g or c mod g - g in r (congruence); with either choice r must lie
    in one period [m*g, (m+1)*g), and then m moves into q.
    """
    cdef uint32_t free[MAX_TERMS]
    cdef int64_t rest[MAX_TERMS]
    cdef uint32_t i, j, k = 0, mask, tries
    cdef int64_t c, w, need = 0, lo, hi, a, b, m, base
    cdef CNode *x
    for i in range(n.n):
        c = mk_floormod(n.terms[i].coeff, g)
        if c == 0:
            continue
        x = n.terms[i].atom
        if not x.flags & NODE_BOUNDED or mk_sub(x.vmax, x.vmin, &w):
            return False
        # the narrower choice of this term must leave room in a period
        if mk_mul(w, min(c, g - c), &w) or mk_add(need, w, &need) or need >= g:
            return False
        free[k] = i
        rest[k] = c if n.terms[i].coeff > 0 else c - g  # first choice: the smaller quotient
        k += 1
    base = mk_floormod(n.offset, g)
    tries = 1 << min(k, <uint32_t>MAX_FREE)
    for mask in range(tries):
        lo = base
        hi = base
        for j in range(k):
            c = rest[j]
            if j < MAX_FREE and (mask >> j) & 1:
                c = c - g if c > 0 else c + g
            x = n.terms[free[j]].atom
            if mk_mul(x.vmin, c, &a) or mk_mul(x.vmax, c, &b):
                break
            if c < 0:
                a, b = b, a
            if mk_add(lo, a, &lo) or mk_add(hi, b, &hi):
                break
        else:
            m = mk_floordiv(lo, g)
            if m == mk_floordiv(hi, g):
                return _distribute(n, g, q, r, free, rest, k, mask, base, m)
    return False


cdef bint _distribute(Form *n, int64_t g, Form *q, Form *r, uint32_t *free, int64_t *rest,
                      uint32_t k, uint32_t mask, int64_t base, int64_t m) noexcept:
    """Fill q and r for the choice that `split_period` found."""
    cdef uint32_t i, j = 0
    cdef int64_t c, d
    form_clear(q)
    form_clear(r)
    for i in range(n.n):
        c = 0
        if j < k and free[j] == i:
            c = rest[j]
            if j < MAX_FREE and (mask >> j) & 1:
                c = c - g if c > 0 else c + g
            j += 1
        if mk_sub(n.terms[i].coeff, c, &d):
            return False
        if not form_add_term(r, n.terms[i].atom, c) or not form_add_term(q, n.terms[i].atom, d / g):
            return False
    if mk_mul(m, g, &c) or mk_sub(base, c, &r.offset):
        return False
    q.offset = mk_floordiv(n.offset, g)
    return form_add_offset(q, m) and _witness(n, g, q, r)


cdef uint32_t split_candidates(Form *n, int64_t d, int64_t *out) noexcept:
    """Divisors of d (of anything, for d = 0) worth a split, descending: d and gcds of
    coefficients."""
    cdef uint32_t i, k = 0
    cdef int64_t g = 0, c
    if d:
        out[0] = d
        k = 1
    for i in range(n.n):
        c = n.terms[i].coeff
        if c == INT64_MIN:
            continue
        c = -c if c < 0 else c
        k = _candidate(gcd(c, d), out, k)
        g = gcd(g, c)
        k = _candidate(gcd(g, d), out, k)
    return k


cdef uint32_t _candidate(int64_t g, int64_t *out, uint32_t k) noexcept:
    cdef uint32_t i = 0, j
    if g <= 1:
        return k
    while i < k and out[i] > g:
        i += 1
    if (i < k and out[i] == g) or k == MAX_CANDIDATES:
        return k
    for j in range(k, i, -1):
        out[j] = out[j - 1]
    out[i] = g
    return k + 1


cdef int64_t gcd(int64_t a, int64_t b) noexcept:
    while b:
        a, b = b, a % b
    return a


# ---- division and remainder ---------------------------------------------------------------------

cdef int _divide(CNode *root, bint mod, CNode **out) except -1:
    """FLOORDIV, IDIV (mod: FLOORMOD, MOD) by a constant. 1 = answered."""
    cdef Form n
    cdef Form q
    cdef Form r
    cdef int64_t candidates[MAX_CANDIDATES]
    cdef int64_t d, lo = 0, hi = 0, m
    cdef uint32_t i, k
    cdef bint bounded
    cdef bint floor = OPS[root.op].bounds_kind in (B_FLOORDIV, B_FLOORMOD)
    cdef CNode *x = root.src[0]
    if not counts_as_int(root.dtype) or not const_value(root.src[1], &d) or d == 0:
        return 0
    form_clear(&n)
    if not form_add(&n, x, 1):
        return 0
    bounded = _bounds(&n, x, &lo, &hi)
    if not floor and (d < 0 or not bounded or lo < 0):
        return 0
    if d < 0:
        return _negative_divisor(root, &n, d, mod, out)
    if bounded and mk_floordiv(lo, d) == mk_floordiv(hi, d):
        m = mk_floordiv(lo, d)
        if not mod:
            out[0] = make_const(root.dtype, m)
            return 1
        if m == 0:
            out[0] = _new_ref(x)
            return 1
        if not mk_mul(m, -d, &m) and form_add_offset(&n, m) and form_fits(&n, root.dtype):
            return answer_form(&n, root, out)
        return 0
    k = split_candidates(&n, d, candidates)
    for i in range(k):
        if split_period(&n, candidates[i], &q, &r):
            return _factored(root, mod, candidates[i], d / candidates[i], &q, &r, out)
    if _nested(root, &n, d, mod, lo >= 0 and bounded, out) or _reduce(root, &n, d, mod, out):
        check_nodes(root, out[0])
        return 1
    return 0


cdef bint _bounds(Form *n, CNode *x, int64_t *lo, int64_t *hi) noexcept:
    """The bounds of x: the tighter of its form's and its own."""
    if not form_bounds(n, lo, hi):
        if not x.flags & NODE_BOUNDED:
            return False
        lo[0] = x.vmin
        hi[0] = x.vmax
    elif x.flags & NODE_BOUNDED:
        lo[0] = max(lo[0], x.vmin)
        hi[0] = min(hi[0], x.vmax)
    return lo[0] <= hi[0]


cdef int answer_form(Form *f, CNode *root, CNode **out) except -1:
    """The expression of a form as the answer of a rule, unless it is the root itself."""
    form_sort(f)
    out[0] = form_build(f, root.dtype)
    if out[0] == root:
        c_decref(object_of(root))
        return 0
    return 1


cdef CNode *form_built(Form *f, uint16_t dtype) except NULL:
    form_sort(f)
    return form_build(f, dtype)


cdef int _negative_divisor(CNode *root, Form *n, int64_t d, bint mod, CNode **out) except -1:
    """x // -d = -x // d, x % -d = -(-x % d)"""
    cdef CNode *inner
    cdef CNode *src[1]
    if d == INT64_MIN or not _holds(root.dtype, -d):
        return 0
    if not form_negate(n) or not form_fits(n, root.dtype):
        return 0
    inner = apply_owned(root.op, form_built(n, root.dtype), make_const(root.dtype, -d))
    if mod:
        src[0] = inner
        out[0] = build_alu(OP_NEG, 1, src)
        c_decref(object_of(inner))
    else:
        out[0] = inner
    return 1


cdef int _factored(CNode *root, bint mod, int64_t g, int64_t e, Form *q, Form *r,
                   CNode **out) except -1:
    """From n = g*q + r with 0 <= r < g:  n // (g*e) = q // e,  n % (g*e) = g * (q % e) + r"""
    cdef CNode *inner
    cdef int done
    if e == 1:
        if not form_fits(r if mod else q, root.dtype):
            return 0
        return answer_form(r if mod else q, root, out)
    if not form_fits(q, root.dtype) or (mod and not form_fits(r, root.dtype)):
        return 0
    inner = apply_owned(root.op, form_built(q, root.dtype), make_const(root.dtype, e))
    if not mod:
        out[0] = inner
        return 1
    try:
        done = form_add_term(r, inner, g) and form_fits(r, root.dtype) and answer_form(r, root, out)
    finally:
        c_decref(object_of(inner))
    return done


cdef int _nested(CNode *root, Form *n, int64_t d, bint mod, bint natural, CNode **out) except -1:
    """(x//a + k) // d -> (x + k*a) // (a*d)
    x%m // d -> (x//d) % (m/d)            for d | m
    (c*(x%m) + y) % d -> (c*x + y) % d    for d | c*m
    """
    cdef CNode *x
    cdef int64_t a, c, lo, hi
    cdef Form t
    cdef uint32_t i
    cdef bint found = False
    if not mod:
        if n.n != 1 or n.terms[0].coeff != 1:
            return 0
        if is_div(n.terms[0].atom, &x, &a):
            form_clear(&t)
            if (mk_mul(a, d, &d) or mk_mul(n.offset, a, &c) or not form_add(&t, x, 1)
                    or not form_add_offset(&t, c) or not form_fits(&t, root.dtype)
                    or not _holds(root.dtype, d)):
                return 0
            x = _new_ref(x) if c == 0 else form_built(&t, root.dtype)
            out[0] = apply_owned(root.op, x, make_const(root.dtype, d))
            return 1
        if n.offset == 0 and is_mod(n.terms[0].atom, &x, &a) and a % d == 0:
            natural = x.flags & NODE_BOUNDED and x.vmin >= 0 and OPS[root.op].bounds_kind == B_IDIV
            x = apply_owned(op_of_kind(B_IDIV if natural else B_FLOORDIV), _new_ref(x),
                            make_const(root.dtype, d))
            out[0] = apply_owned(op_of_kind(B_MOD if natural else B_FLOORMOD), x,
                                 make_const(root.dtype, a / d))
            return 1
        return 0
    t = n[0]
    for i in range(n.n):
        c = n.terms[i].coeff
        if (is_mod(n.terms[i].atom, &x, &a) and not mk_mul(c, a, &a) and a % d == 0
                and c != INT64_MIN):
            if not form_add_term(&t, n.terms[i].atom, -c) or not form_add(&t, x, c):
                return 0
            found = True
    if not found or not form_fits(&t, root.dtype):
        return 0
    if OPS[root.op].bounds_kind == B_MOD and not (form_bounds(&t, &lo, &hi) and lo >= 0):
        return 0
    out[0] = apply_owned(root.op, form_built(&t, root.dtype), make_const(root.dtype, d))
    return 1


cdef bint _holds(uint16_t dtype, int64_t v) noexcept:
    """Whether a constant v >= 0 lies in the dtype."""
    cdef Form f
    form_clear(&f)
    f.offset = v
    return form_fits(&f, dtype)


cdef int _reduce(CNode *root, Form *n, int64_t d, bint mod, CNode **out) except -1:
    """n = d*q + r:  n // d = q + r // d,  n % d = r % d, with small coefficients in r.

    The constant of r is its least natural number for which r is not negative (when that is known),
    so that equal divisions look alike and need no floor correction.
    """
    cdef Form q
    cdef Form r
    cdef int64_t c, k, lo, hi
    cdef uint32_t i
    cdef CNode *inner
    cdef int done
    form_clear(&q)
    form_clear(&r)
    for i in range(n.n):
        c = n.terms[i].coeff
        if (not form_add_term(&q, n.terms[i].atom, c / d)
                or not form_add_term(&r, n.terms[i].atom, c - c / d * d)):
            return 0
    k = mk_floormod(n.offset, d)
    r.offset = k
    if form_bounds(&r, &lo, &hi) and lo < 0:
        if mk_sub(0, mk_floordiv(lo, d), &c) or mk_mul(c, d, &c) or mk_add(k, c, &k):
            return 0
    r.offset = k
    if mk_sub(n.offset, k, &c):
        return 0
    q.offset = c / d
    if q.n == 0 and q.offset == 0:
        return 0
    if not form_fits(&r, root.dtype) or not form_fits(&q, root.dtype):
        return 0
    if OPS[root.op].bounds_kind in (B_IDIV, B_MOD) and not (form_bounds(&r, &lo, &hi) and lo >= 0):
        return 0
    if not _congruent(n, d, &q, &r):
        return 0
    inner = apply_owned(root.op, form_built(&r, root.dtype), make_const(root.dtype, d))
    if mod:
        out[0] = inner
        return 1
    try:
        done = (form_add_term(&q, inner, 1) and form_fits(&q, root.dtype)
                and answer_form(&q, root, out))
    finally:
        c_decref(object_of(inner))
    return done


cdef bint _congruent(Form *n, int64_t d, Form *q, Form *r) noexcept:
    """Whether n = d*q + r as forms."""
    cdef Form t
    t = r[0]
    return (form_merge(&t, q, d) and form_merge(&t, n, -1) and t.n == 0 and t.offset == 0)


cdef int _rule_floordiv(CNode *root, CNode **out) except -1:
    return _divide(root, False, out)


cdef int _rule_floormod(CNode *root, CNode **out) except -1:
    return _divide(root, True, out)


register_native("affine.floordiv", _rule_floordiv, WANTS_CONST_RIGHT)
register_native("affine.floormod", _rule_floormod, WANTS_CONST_RIGHT)
