"""The affine primitive: one integer expression as sum(coefficient * atom) + offset.

ADD, SUB, NEG, MUL and SHL by a constant are taken apart; everything else is an atom. In `index`
arithmetic, whose integers are unbounded, that is always right. In a fixed-width dtype a node is
taken apart only where the bounds of its sources prove that it does not wrap, so a form always
states the mathematical value. An int64 overflow of a coefficient means that there is no form.

Order of terms: magnitude of the coefficient, descending, positive before negative; then the order
of commutative operands (`order.pyx`); ties keep the order of the expression. The constant stands
last.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from morok._core.bounds cimport type_limits
from morok._core.constant cimport const_value, make_int
from morok._core.infer cimport (
    DTYPES,
    OP_ADD,
    OP_MUL,
    OP_NEG,
    OP_SHL,
    OP_SUB,
    OP_WHERE,
    dtype_id,
)
from morok._core.node cimport build_alu, peek, take
from morok._core.order cimport comes_after
from morok._core.ptrmap cimport PtrMap, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport (
    NODE_BOUNDED,
    NODE_INVALID,
    CNode,
    mk_add,
    mk_mul,
    mk_sub,
    object_of,
)

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)

cdef enum:
    MAX_VISITS = 512  # nodes taken apart for one form; a shared sub-sum is visited once per use
    MAX_PENDING = 96


cdef bint counts_as_int(uint16_t dtype) noexcept:
    """Signed, unsigned or index, scalar or vector."""
    cdef uint8_t k = DTYPES[dtype].kind
    return k == c'i' or k == c'u' or k == c'x'


cdef CNode *make_const(uint16_t dtype, int64_t value) except NULL:
    """An integer or bool constant of a scalar or vector dtype that holds it; a new reference."""
    cdef CNode *n = make_int(dtype, value)
    if n == NULL:
        raise OverflowError(f"{value} does not fit {<object>DTYPES[dtype].obj}")
    return n


# ---- taking apart -------------------------------------------------------------------------------

cdef void form_clear(Form *f) noexcept:
    f.n = 0
    f.offset = 0


cdef int form_add_term(Form *f, CNode *atom, int64_t coeff) noexcept:
    """f += coeff * atom; a term that becomes 0 leaves, the others keep their order."""
    cdef uint32_t i
    if coeff == 0:
        return 1
    for i in range(f.n):
        if f.terms[i].atom == atom:
            if mk_add(f.terms[i].coeff, coeff, &f.terms[i].coeff):
                return 0
            if f.terms[i].coeff == 0:
                f.n -= 1
                while i < f.n:
                    f.terms[i] = f.terms[i + 1]
                    i += 1
            return 1
    if f.n == MAX_TERMS:
        return 0
    f.terms[f.n].atom = atom
    f.terms[f.n].coeff = coeff
    f.n += 1
    return 1


cdef int form_add_offset(Form *f, int64_t value) noexcept:
    """f += value"""
    return not mk_add(f.offset, value, &f.offset)


cdef int form_merge(Form *f, Form *g, int64_t scale) noexcept:
    """f += scale * g"""
    cdef uint32_t i
    cdef int64_t c
    for i in range(g.n):
        if mk_mul(g.terms[i].coeff, scale, &c) or not form_add_term(f, g.terms[i].atom, c):
            return 0
    return not mk_mul(g.offset, scale, &c) and form_add_offset(f, c)


cdef int form_negate(Form *f) noexcept:
    """f = -f"""
    cdef uint32_t i
    for i in range(f.n):
        if mk_sub(0, f.terms[i].coeff, &f.terms[i].coeff):
            return 0
    return not mk_sub(0, f.offset, &f.offset)


cdef int64_t form_coeff(Form *f, CNode *atom) noexcept:
    """The coefficient of `atom`, 0 if it is none of the atoms."""
    cdef uint32_t i
    for i in range(f.n):
        if f.terms[i].atom == atom:
            return f.terms[i].coeff
    return 0


cdef int64_t form_gcd(Form *f) noexcept:
    """The greatest common divisor of the coefficients (not the offset); 0 without terms."""
    cdef uint32_t i
    cdef uint64_t a = 0, b, t
    for i in range(f.n):
        b = _magnitude(f.terms[i].coeff)
        while b:
            t = a % b
            a = b
            b = t
        if a == 1:
            break
    return <int64_t>a if a <= <uint64_t>INT64_MAX else 1


cdef inline uint64_t _magnitude(int64_t c) noexcept:
    return <uint64_t>c if c >= 0 else 0 - <uint64_t>c


cdef bint _in_type(uint16_t dtype, int64_t lo, int64_t hi) noexcept:
    """Whether [lo, hi] lies in a fixed-width dtype. Of uint64 only the lower half is looked at."""
    cdef int64_t a, b
    if type_limits(dtype, &a, &b):
        return lo >= a and hi <= b
    return lo >= 0


cdef bint _sound(CNode *n) noexcept:
    """Whether a sum, difference or product states the mathematical value: it cannot wrap."""
    cdef CNode *x = n.src[0]
    cdef CNode *y
    cdef int64_t a, b, c, d
    if DTYPES[n.dtype].kind == c'x':
        return True
    if not x.flags & NODE_BOUNDED:
        return False
    if n.op == OP_NEG:
        return not (mk_sub(0, x.vmax, &a) or mk_sub(0, x.vmin, &b)) and _in_type(n.dtype, a, b)
    y = n.src[1]
    if not y.flags & NODE_BOUNDED:
        return False
    if n.op == OP_ADD:
        return (not (mk_add(x.vmin, y.vmin, &a) or mk_add(x.vmax, y.vmax, &b))
                and _in_type(n.dtype, a, b))
    if n.op == OP_SUB:
        return (not (mk_sub(x.vmin, y.vmax, &a) or mk_sub(x.vmax, y.vmin, &b))
                and _in_type(n.dtype, a, b))
    c = y.vmin
    if n.op == OP_SHL:
        if c != y.vmax or c < 0 or c > 62:
            return False
        c = <int64_t>1 << c
        return not (mk_mul(x.vmin, c, &a) or mk_mul(x.vmax, c, &b)) and _in_type(n.dtype, a, b)
    # MUL: one side is constant, so the extremes are at its product with the other's ends
    if mk_mul(x.vmin, c, &a) or mk_mul(x.vmax, y.vmax, &b):
        return False
    if mk_mul(x.vmin, y.vmax, &c) or mk_mul(x.vmax, y.vmin, &d):
        return False
    return _in_type(n.dtype, min(min(a, b), min(c, d)), max(max(a, b), max(c, d)))


cdef inline bint _is_invalid(CNode *n) noexcept:
    """Invalid itself, or a WHERE with an arm that is: what no arithmetic may swallow."""
    if n.flags & NODE_INVALID:
        return True
    if n.op != OP_WHERE or n.nsrc != 3:
        return False
    return (n.src[1].flags | n.src[2].flags) & NODE_INVALID != 0


cdef int form_add(Form *f, CNode *n, int64_t scale) noexcept:
    """f += scale * n, taken apart in reading order."""
    cdef Term pending[MAX_PENDING]
    cdef uint32_t depth = 1, visits = 0
    cdef int64_t c, v
    cdef CNode *x
    pending[0].atom = n
    pending[0].coeff = scale
    while depth:
        depth -= 1
        x = pending[depth].atom
        c = pending[depth].coeff
        visits += 1
        if visits > MAX_VISITS or depth + 2 > MAX_PENDING or _is_invalid(x):
            return 0
        if const_value(x, &v):
            if mk_mul(v, c, &v) or not form_add_offset(f, v):
                return 0
            continue
        if x.op == OP_ADD and x.nsrc == 2 and _sound(x):
            pending[depth].atom = x.src[1]
            pending[depth].coeff = c
            pending[depth + 1].atom = x.src[0]
            pending[depth + 1].coeff = c
            depth += 2
            continue
        if x.op == OP_SUB and x.nsrc == 2 and _sound(x):
            if mk_sub(0, c, &v):
                return 0
            pending[depth].atom = x.src[1]
            pending[depth].coeff = v
            pending[depth + 1].atom = x.src[0]
            pending[depth + 1].coeff = c
            depth += 2
            continue
        if x.op == OP_NEG and x.nsrc == 1 and _sound(x):
            if mk_sub(0, c, &v):
                return 0
            pending[depth].atom = x.src[0]
            pending[depth].coeff = v
            depth += 1
            continue
        if x.op == OP_MUL and x.nsrc == 2:
            if const_value(x.src[1], &v) and _sound(x):
                if mk_mul(c, v, &v):
                    return 0
                pending[depth].atom = x.src[0]  # by 0, too: it may be Invalid
                pending[depth].coeff = v
                depth += 1
                continue
            if const_value(x.src[0], &v) and _sound(x):
                if mk_mul(c, v, &v):
                    return 0
                pending[depth].atom = x.src[1]
                pending[depth].coeff = v
                depth += 1
                continue
        if (x.op == OP_SHL and x.nsrc == 2 and const_value(x.src[1], &v) and 0 <= v <= 62
                and _sound(x)):
            if mk_mul(c, <int64_t>1 << v, &v):
                return 0
            pending[depth].atom = x.src[0]
            pending[depth].coeff = v
            depth += 1
            continue
        if not form_add_term(f, x, c):
            return 0
    return 1


# ---- bounds -------------------------------------------------------------------------------------

cdef bint form_bounds(Form *f, int64_t *lo, int64_t *hi) noexcept:
    """The interval of a form, atom by atom; False when an atom is unbounded or int64 overflows."""
    cdef uint32_t i
    cdef int64_t a, b, c
    cdef CNode *x
    lo[0] = f.offset
    hi[0] = f.offset
    for i in range(f.n):
        x = f.terms[i].atom
        c = f.terms[i].coeff
        if not x.flags & NODE_BOUNDED or mk_mul(x.vmin, c, &a) or mk_mul(x.vmax, c, &b):
            return False
        if c < 0:
            a, b = b, a
        if mk_add(lo[0], a, lo) or mk_add(hi[0], b, hi):
            return False
    return True


cdef bint form_fits(Form *f, uint16_t dtype) noexcept:
    """Whether the form's value and its coefficients are proved to lie in `dtype`."""
    cdef int64_t lo, hi
    cdef uint32_t i
    if DTYPES[dtype].kind == c'x':
        return True
    if not form_bounds(f, &lo, &hi) or not _in_type(dtype, lo, hi):
        return False
    for i in range(f.n):
        lo = f.terms[i].coeff
        if lo == INT64_MIN or not _in_type(dtype, 0, -lo if lo < 0 else lo):
            return False
    return f.offset != INT64_MIN and _in_type(dtype, 0, -f.offset if f.offset < 0 else f.offset)


# ---- order --------------------------------------------------------------------------------------

cdef void form_sort(Form *f) noexcept:
    """Put the terms into the canonical order (a stable insertion sort; forms are short)."""
    cdef Term t
    cdef uint32_t i, j
    for i in range(1, f.n):
        t = f.terms[i]
        j = i
        while j and _after(&f.terms[j - 1], &t):
            f.terms[j] = f.terms[j - 1]
            j -= 1
        f.terms[j] = t


cdef inline bint _after(Term *s, Term *t) noexcept:
    """Whether s stands behind t."""
    cdef uint64_t a = _magnitude(s.coeff), b = _magnitude(t.coeff)
    if a != b:
        return a < b
    if (s.coeff < 0) != (t.coeff < 0):
        return s.coeff < 0
    return comes_after(s.atom, t.atom)


# ---- putting together ---------------------------------------------------------------------------

cdef inline bint _is_term(Term *t, CNode *n) noexcept:
    cdef int64_t v
    if t.coeff == 1:
        return n == t.atom
    return n.op == OP_MUL and n.src[0] == t.atom and const_value(n.src[1], &v) and v == t.coeff


cdef bint form_is(Form *f, CNode *n) noexcept:
    """Whether `n` is what `form_build` makes of a sorted index form."""
    cdef uint32_t i = f.n
    cdef int64_t v
    if i == 0:
        return const_value(n, &v) and v == f.offset
    if f.offset:
        if n.op != OP_ADD or not const_value(n.src[1], &v) or v != f.offset:
            return False
        n = n.src[0]
    while i > 1:
        i -= 1
        if n.op != OP_ADD or not _is_term(&f.terms[i], n.src[1]):
            return False
        n = n.src[0]
    return _is_term(&f.terms[0], n)


cdef CNode *_binary(uint16_t op, CNode *a, CNode *b) except NULL:
    """op(a, b); takes over both references."""
    cdef CNode *src[2]
    src[0] = a
    src[1] = b
    try:
        return build_alu(op, 2, src)
    finally:
        c_decref(object_of(a))
        c_decref(object_of(b))


cdef CNode *_scaled(CNode *atom, int64_t coeff) except NULL:
    c_incref(object_of(atom))
    if coeff == 1:
        return atom
    return _binary(OP_MUL, atom, make_const(atom.dtype, coeff))


cdef CNode *form_build(Form *f, uint16_t dtype) except NULL:
    """The expression of a form, a new reference. Terms stand in the order they have.

    `index`: ((c0*a0 + c1*a1) + …) + offset, negative numbers as they are. Fixed-width dtypes have
    the positive terms first and subtract the others; unsigned ones also subtract a negative offset.
    """
    cdef CNode *acc = NULL
    cdef uint32_t i
    cdef bint ideal = DTYPES[dtype].kind == c'x'
    cdef int64_t offset = f.offset
    for i in range(f.n):
        if ideal or f.terms[i].coeff > 0:
            acc = _plus(acc, OP_ADD, _scaled(f.terms[i].atom, f.terms[i].coeff))
    if acc == NULL or (offset > 0 and not ideal):
        if acc == NULL or offset:
            acc = _plus(acc, OP_ADD, make_const(dtype, offset))
        offset = 0
    if not ideal:
        for i in range(f.n):
            if f.terms[i].coeff < 0:
                acc = _plus(acc, OP_SUB, _scaled(f.terms[i].atom, -f.terms[i].coeff))
    if offset < 0 and DTYPES[dtype].kind == c'u':
        acc = _plus(acc, OP_SUB, make_const(dtype, -offset))
    elif offset:
        acc = _plus(acc, OP_ADD, make_const(dtype, offset))
    return acc


cdef CNode *_plus(CNode *acc, uint16_t op, CNode *n) except NULL:
    if acc == NULL:
        return n
    return _binary(op, acc, n)


# ---- for Python ---------------------------------------------------------------------------------

cdef int _form_of(Form *f, CNode *n, int64_t scale) noexcept:
    """form_add after a look at the dtype."""
    return counts_as_int(n.dtype) and form_add(f, n, scale)


def affine_form(node):
    """`node` as (((atom, coefficient), …), constant), in the canonical order of terms.

    A node that is no sum is its own atom, and so is one whose form would overflow int64 or have
    more than 64 terms. The value is the mathematical one: a fixed-width sum that may wrap is an
    atom.
    """
    cdef Form f
    cdef CNode *n = peek(node)
    cdef uint32_t i
    form_clear(&f)
    if not _form_of(&f, n, 1):
        return ((node, 1),), 0
    form_sort(&f)
    terms = [(<object>object_of(f.terms[i].atom), f.terms[i].coeff) for i in range(f.n)]
    return tuple(terms), f.offset


cdef bint _occurs(CNode *needle, CNode *root) except -1:
    """Whether `needle` is `root` or stands below it."""
    cdef PtrMap seen
    cdef list stack
    cdef CNode *n
    cdef uint32_t i
    cdef uint64_t bit = <uint64_t>1 << (needle.op & 63)
    if root == needle:
        return True
    if not (root.below0 if needle.op < 64 else root.below1) & bit:
        return False
    stack = [<object>object_of(root)]
    ptrmap_init(&seen, 64)
    try:
        while stack:
            n = peek(stack.pop())
            for i in range(n.nsrc):
                if n.src[i] == needle:
                    return True
                if (n.src[i].below0 if needle.op < 64 else n.src[i].below1) & bit:
                    if ptrmap_put(&seen, n.src[i], NULL):
                        stack.append(<object>object_of(n.src[i]))
    finally:
        ptrmap_free(&seen)
    return False


def affine_split(node, atom):
    """(coefficient, rest) with node == coefficient * atom + rest and `atom` nowhere in `rest`.

    (0, node) when `atom` does not occur; None when it also occurs inside another atom
    (non-linearly).
    """
    cdef Form f
    cdef CNode *n = peek(node)
    cdef CNode *a = peek(atom)
    cdef int64_t c
    cdef uint32_t i
    form_clear(&f)
    if not _form_of(&f, n, 1):
        if n == a:
            return 1, take(make_const(n.dtype, 0))
        return None if _occurs(a, n) else (0, node)
    c = form_coeff(&f, a)
    for i in range(f.n):
        if f.terms[i].atom != a and _occurs(a, f.terms[i].atom):
            return None
    if c == 0:
        return 0, node
    form_add_term(&f, a, -c)
    form_sort(&f)
    return c, take(form_build(&f, n.dtype))


def affine_add(pairs, constant, dtype):
    """The canonical sum of coefficient * node over `pairs` of (node, coefficient), plus `constant`.

    Sums among the nodes are taken apart and equal atoms combined. OverflowError where a number
    leaves int64; ValueError above 64 terms, or when a fixed-width sum is not proved to stay in its
    dtype.
    """
    cdef Form f
    cdef int64_t c
    cdef uint16_t number = dtype_id(dtype)
    if not counts_as_int(number):
        raise TypeError(f"an affine sum is of an integer dtype, got {dtype}")
    form_clear(&f)
    f.offset = constant
    for node, coeff in pairs:
        c = coeff
        if peek(node).dtype != number:
            raise TypeError(f"a term of dtype {node.dtype} in a sum of {dtype}")
        if not _form_of(&f, peek(node), c):
            raise ValueError("the sum overflows int64 or has more than 64 terms")
    if not form_fits(&f, number):
        raise ValueError(f"the sum is not proved to lie in {dtype}")
    form_sort(&f)
    return take(form_build(&f, number))
