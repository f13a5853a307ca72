"""Comparisons, MAX and MIN of affine forms, and chains of AND and OR of such comparisons."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from morok._core.affine cimport (
    Form,
    counts_as_int,
    form_add,
    form_add_offset,
    form_add_term,
    form_bounds,
    form_clear,
    form_coeff,
    form_fits,
    form_gcd,
    form_negate,
    form_sort,
    make_const,
)
from morok._core.affine_divide cimport (
    MAX_CANDIDATES,
    apply_owned,
    form_built,
    is_div,
    op_of_kind,
    split_candidates,
    split_period,
)
from morok._core.affine_symbolic cimport form_limit
from morok._core.bounds cimport B_EQ, B_GE, B_GT, B_LE, B_LT, B_MAX, B_NE, B_NOT
from morok._core.constant cimport const_value
from morok._core.infer cimport DTYPES, OPS
from morok._core.match cimport register_native
from morok._core.program cimport WANTS_ANYTHING
from morok._core.order cimport comes_after
from morok._core.types cimport CNode, mk_mul, mk_sub, object_of

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)

cdef enum:
    MAX_CLAUSES = 32  # of one chain of AND or OR


cdef inline CNode *_new_ref(CNode *n) noexcept:
    c_incref(object_of(n))
    return n


# ---- comparisons --------------------------------------------------------------------------------

cdef int _rule_compare(CNode *root, CNode **out) except -1:
    """LT, LE, GT, GE, EQ, NE of integers, on the form f = a - b.

    Decided by bounds; a common factor is divided out, a small rest below it dropped
    (4*x + y < 8, 0 <= y < 4: x < 2), a quotient multiplied out (x//c < k: x < c*k); LE and GT
    become LT and GE. Positive terms stand left, negative ones right, the constant right; the
    leading coefficient is positive.
    """
    cdef Form f
    cdef Form q
    cdef Form r
    cdef int64_t candidates[MAX_CANDIDATES]
    cdef int64_t lo, hi, d, k
    cdef uint8_t kind = OPS[root.op].bounds_kind
    cdef uint32_t i, n
    cdef bint found = True, below, equal
    cdef CNode *x
    if not counts_as_int(root.src[0].dtype) or root.src[1].dtype != root.src[0].dtype:
        return 0
    form_clear(&f)
    if not form_add(&f, root.src[0], 1) or not form_add(&f, root.src[1], -1):
        return 0
    # f < 0 (below), f >= 0, f == 0 (equal) or f != 0
    equal = kind == B_EQ or kind == B_NE
    below = kind == B_LT or kind == B_LE or kind == B_EQ
    if (kind == B_LE or kind == B_GT) and not form_add_offset(&f, -1):
        return 0
    while found:
        found = False
        if equal and form_bounds(&f, &lo, &hi) and (lo > 0 or hi < 0 or (lo == 0 and hi == 0)):
            out[0] = make_const(root.dtype, below == (lo == 0 and hi == 0))
            return 1
        if not equal and form_limit(&f, True, &hi) and hi < 0:
            out[0] = make_const(root.dtype, below)
            return 1
        if not equal and form_limit(&f, False, &lo) and lo >= 0:
            out[0] = make_const(root.dtype, not below)
            return 1
        if equal:
            d = form_gcd(&f)
            if d > 1 and f.offset % d:
                out[0] = make_const(root.dtype, not below)
                return 1
            if d > 1:
                found = split_period(&f, d, &q, &r)
        else:
            n = split_candidates(&f, 0, candidates)
            for i in range(n):
                if split_period(&f, candidates[i], &q, &r):
                    found = True
                    break
        if found:
            f = q
            continue
        form_sort(&f)
        if f.n and f.terms[_leading(&f) if equal else 0].coeff < 0:
            # f < 0  <=>  -f - 1 >= 0
            if not form_negate(&f) or (not equal and not form_add_offset(&f, -1)):
                return 0
            below = below if equal else not below
            form_sort(&f)
        if not equal and f.n == 1 and f.terms[0].coeff == 1 and is_div(f.terms[0].atom, &x, &d):
            # x//d + k < 0  <=>  x + k*d < 0
            k = f.offset
            form_clear(&q)
            if (not mk_mul(k, d, &k) and form_add(&q, x, 1) and form_add_offset(&q, k)
                    and (q.n != 1 or q.terms[0].atom != f.terms[0].atom)):
                f = q
                found = True
    return _comparison(root, &f, equal, below, out)


cdef uint32_t _leading(Form *f) noexcept:
    """Of the terms of greatest magnitude in a sorted form, the first by order key: its sign tells
    which way round an equation stands."""
    cdef uint32_t i, best = 0
    cdef int64_t c = f.terms[0].coeff
    for i in range(1, f.n):
        if f.terms[i].coeff != c and f.terms[i].coeff + c != 0:
            break
        if comes_after(f.terms[best].atom, f.terms[i].atom):
            best = i
    return best


cdef CNode *_side(Form *f, CNode *root, uint16_t dtype) except NULL:
    """The expression of a form; an operand of the root that has this form stays as it is, since
    sums of fixed-width ints have another order than forms."""
    cdef Form g
    cdef uint32_t i, k
    for i in range(2):
        form_clear(&g)
        if not form_add(&g, root.src[i], 1) or g.n != f.n or g.offset != f.offset:
            continue
        for k in range(f.n):
            if form_coeff(&g, f.terms[k].atom) != f.terms[k].coeff:
                break
        else:
            return _new_ref(root.src[i])
    return form_built(f, dtype)


cdef int _comparison(CNode *root, Form *f, bint equal, bint below, CNode **out) except -1:
    """f < 0 and its kin as  positive terms < negated negative terms - offset."""
    cdef Form left
    cdef Form right
    cdef CNode *a
    cdef CNode *b
    cdef uint32_t i
    cdef int64_t c
    cdef bint swapped
    cdef uint8_t kind
    cdef uint16_t dtype = root.src[0].dtype
    form_clear(&left)
    form_clear(&right)
    for i in range(f.n):
        c = f.terms[i].coeff
        if c > 0:
            form_add_term(&left, f.terms[i].atom, c)
        elif mk_sub(0, c, &c) or not form_add_term(&right, f.terms[i].atom, c):
            return 0
    if mk_sub(0, f.offset, &right.offset):
        return 0
    # between two sums: l < r + 1 is r >= l, and l >= r + 1 is r < l
    swapped = not equal and right.n != 0 and right.offset == 1
    if swapped:
        right.offset = 0
        below = not below
    if not form_fits(&left, dtype) or not form_fits(&right, dtype):
        return 0
    if equal:
        kind = B_EQ if below else B_NE
    else:
        kind = B_LT if below else B_GE
    a = _side(&left, root, dtype)
    try:
        b = _side(&right, root, dtype)
    except BaseException:
        c_decref(object_of(a))
        raise
    out[0] = apply_owned(op_of_kind(kind), b if swapped else a, a if swapped else b)
    if out[0] == root:
        c_decref(object_of(root))
        return 0
    return 1


cdef int _rule_extreme(CNode *root, CNode **out) except -1:
    """MAX, MIN of integers whose difference has a known sign."""
    cdef Form f
    cdef int64_t v
    cdef bint greatest = OPS[root.op].bounds_kind == B_MAX
    if not counts_as_int(root.dtype):
        return 0
    form_clear(&f)
    if not form_add(&f, root.src[0], 1) or not form_add(&f, root.src[1], -1):
        return 0
    if form_limit(&f, False, &v) and v >= 0:
        out[0] = _new_ref(root.src[0 if greatest else 1])
        return 1
    if form_limit(&f, True, &v) and v <= 0:
        out[0] = _new_ref(root.src[1 if greatest else 0])
        return 1
    return 0


# ---- chains of AND and OR -----------------------------------------------------------------------

cdef struct Clause:
    CNode *node  # the clause; NULL = dropped
    CNode *left  # for a comparison with a constant: its left side, else NULL
    uint8_t kind  # and its meaning: B_LT, B_GE, B_EQ or B_NE
    int64_t limit  # the constant


cdef int _flatten(CNode *root, Clause *clauses) noexcept:
    """The clauses of a chain in reading order; -1 when there are too many."""
    cdef CNode *pending[MAX_CLAUSES + 2]
    cdef uint32_t depth = 1
    cdef int n = 0
    cdef CNode *x
    cdef Clause *c
    cdef uint8_t kind
    pending[0] = root
    while depth:
        depth -= 1
        x = pending[depth]
        if x.op == root.op:
            if depth + 2 > MAX_CLAUSES:
                return -1
            pending[depth] = x.src[1]
            pending[depth + 1] = x.src[0]
            depth += 2
            continue
        if n == MAX_CLAUSES:
            return -1
        c = &clauses[n]
        n += 1
        c.node = x
        c.left = NULL
        kind = OPS[x.op].bounds_kind
        if kind in (B_LT, B_GE, B_EQ, B_NE) and counts_as_int(x.src[0].dtype):
            if const_value(x.src[1], &c.limit):
                c.left = x.src[0]
                c.kind = kind
    return n


cdef bint _opposite(CNode *a, CNode *b) noexcept:
    """Whether one clause is written as the negation of the other."""
    cdef uint8_t k = OPS[a.op].bounds_kind, m = OPS[b.op].bounds_kind
    if k == B_NOT and a.src[0] == b or m == B_NOT and b.src[0] == a:
        return True
    if not (k == B_LT and m == B_GE or k == B_GE and m == B_LT or k == B_EQ and m == B_NE
            or k == B_NE and m == B_EQ):
        return False
    return counts_as_int(a.src[0].dtype) and a.src[0] == b.src[0] and a.src[1] == b.src[1]


cdef int _pair(Clause *a, Clause *b, bint conjunction) noexcept:
    """What two clauses say together: 1 a is enough, 2 b is enough, 3 all is decided, 0 nothing."""
    cdef int verdict
    if a.node == b.node:
        return 1
    if _opposite(a.node, b.node):
        return 3
    if a.left == NULL or a.left != b.left:
        return 0
    if a.kind == B_EQ or (a.kind == B_NE and b.kind != B_EQ):
        return _point(a, b, conjunction)
    if b.kind == B_EQ or b.kind == B_NE:
        verdict = _point(b, a, conjunction)
        return 3 - verdict if verdict == 1 or verdict == 2 else verdict
    if a.kind == b.kind:
        # x < 3 and x < 5: the first; x < 3 or x < 5: the second; the other way round for >=
        return 1 if (a.limit <= b.limit) == ((a.kind == B_LT) == conjunction) else 2
    if a.kind == B_GE:
        a, b = b, a
    # a: left < a.limit, b: left >= b.limit
    if conjunction:
        return 3 if b.limit >= a.limit else 0
    return 3 if b.limit <= a.limit else 0


cdef int _point(Clause *a, Clause *b, bint conjunction) noexcept:
    """The verdict for an a that is left == limit or left != limit, and any b of the same left."""
    cdef bint holds
    if b.kind == B_LT:
        holds = a.limit < b.limit
    elif b.kind == B_GE:
        holds = a.limit >= b.limit
    else:
        holds = (a.limit == b.limit) == (b.kind == B_EQ)
    if a.kind == B_EQ:
        if conjunction:
            return 1 if holds else 3
        return 2 if holds else 0
    if conjunction:
        return 0 if holds else 2
    return 3 if holds else 1


cdef int _chain(CNode *root, bint conjunction, CNode **out) except -1:
    """A chain of AND (OR) without clauses that others imply; False (True) when two contradict."""
    cdef Clause clauses[MAX_CLAUSES]
    cdef int i, j, n, verdict
    cdef bint dropped = False
    cdef CNode *acc = NULL
    if DTYPES[root.dtype].kind != c'b':
        return 0
    n = _flatten(root, clauses)
    for i in range(n):
        for j in range(i + 1, n):
            if clauses[i].node == NULL or clauses[j].node == NULL:
                continue
            verdict = _pair(&clauses[i], &clauses[j], conjunction)
            if verdict == 3:
                out[0] = make_const(root.dtype, not conjunction)
                return 1
            if verdict:
                clauses[j if verdict == 1 else i].node = NULL
                dropped = True
    if not dropped:
        return 0
    for i in range(n):
        if clauses[i].node != NULL:
            acc = (_new_ref(clauses[i].node) if acc == NULL
                   else apply_owned(root.op, acc, _new_ref(clauses[i].node)))
    out[0] = acc
    return 1


cdef int _rule_and(CNode *root, CNode **out) except -1:
    return _chain(root, True, out)


cdef int _rule_or(CNode *root, CNode **out) except -1:
    return _chain(root, False, out)


register_native("affine.compare", _rule_compare, WANTS_ANYTHING)
register_native("affine.extreme", _rule_extreme, WANTS_ANYTHING)
register_native("affine.and", _rule_and, WANTS_ANYTHING)
register_native("affine.or", _rule_or, WANTS_ANYTHING)
