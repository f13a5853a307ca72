"""What shows that a sum with divisions is another: both by the definition of remainder.

    x % d        = x - d*(x // d)
    (d*q + r)//d = q + r // d
    (x//a + k)//d = (x + k*a) // (a*d)

These three lemmas (proved by `python -m morok prove`) bring every sum to one of plain terms and
quotients of rests below their divisors. Two sums that come to the same are equal. A checked build
asks this of every answer that recombines, nests or reduces.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uintptr_t

from morok._core.affine cimport (
    Form,
    form_add,
    form_add_offset,
    form_add_term,
    form_clear,
    form_coeff,
    form_merge,
)
from morok._core.bounds cimport B_FLOORDIV, B_FLOORMOD, B_IDIV, B_MOD
from morok._core.constant cimport const_value
from morok._core.infer cimport DTYPES, OPS
from morok._core.node cimport peek
from morok._core.types cimport (
    NODE_BOUNDED,
    CNode,
    mk_floordiv,
    mk_floormod,
    mk_mul,
)

cdef extern from *:
    """
    #ifdef MOROK_CHECKED
    #define MOROK_CHECKS 1
    #else
    #define MOROK_CHECKS 0
    #endif
    """
    bint CHECKS "MOROK_CHECKS"

cdef enum:
    MAX_QUOTIENTS = 24
    MAX_DEPTH = 8


cdef struct Ledger:
    uint32_t n  # quotients known
    bint vague  # something did not fit, or has two readings: nothing is shown
    int64_t divisors[MAX_QUOTIENTS]
    Form numerators[MAX_QUOTIENTS]


cdef inline CNode *_name(uint32_t i) noexcept:
    """What stands for a quotient among the atoms of a form: no pointer is odd."""
    return <CNode *><uintptr_t>(2 * i + 1)


cdef inline bint _is_name(CNode *atom, uint32_t *i) noexcept:
    i[0] = <uint32_t>(<uintptr_t>atom >> 1)
    return <uintptr_t>atom & 1


cdef bint _equal(Form *f, Form *g) noexcept:
    cdef Form t = f[0]
    return form_merge(&t, g, -1) and t.n == 0 and t.offset == 0


cdef void _add_quotient(Ledger *ledger, Form *n, int64_t d, Form *out, int64_t scale) noexcept:
    """out += scale * (n // d)"""
    cdef Form q
    cdef Form r
    cdef Form whole
    cdef uint32_t i, k, nested = 0, inner = 0
    cdef int64_t c, a
    form_clear(&q)
    form_clear(&r)
    for i in range(n.n):
        c = n.terms[i].coeff
        if (not form_add_term(&q, n.terms[i].atom, mk_floordiv(c, d))
                or not form_add_term(&r, n.terms[i].atom, mk_floormod(c, d))):
            ledger.vague = True
            return
    q.offset = mk_floordiv(n.offset, d)
    r.offset = mk_floormod(n.offset, d)
    if not form_merge(out, &q, scale):
        ledger.vague = True
        return
    if r.n == 0:
        return
    for i in range(r.n):
        if r.terms[i].coeff == 1 and _is_name(r.terms[i].atom, &k):
            nested += 1
            inner = k
    # The same quotient in the whole part, too, would stay there: two readings of one value.
    if nested > 1 or (nested and form_coeff(&q, _name(inner)) != 0):
        ledger.vague = True
        return
    if nested:
        a = ledger.divisors[inner]
        whole = ledger.numerators[inner]
        if (not form_add_term(&r, _name(inner), -1) or not form_merge(&whole, &r, a)
                or mk_mul(a, d, &d)):
            ledger.vague = True
            return
        _add_quotient(ledger, &whole, d, out, scale)
        return
    for i in range(ledger.n):
        if ledger.divisors[i] == d and _equal(&ledger.numerators[i], &r):
            break
    else:
        i = ledger.n
        if i == MAX_QUOTIENTS:
            ledger.vague = True
            return
        ledger.divisors[i] = d
        ledger.numerators[i] = r
        ledger.n += 1
    if not form_add_term(out, _name(i), scale):
        ledger.vague = True


cdef void _define(Ledger *ledger, Form *f, Form *out, uint32_t depth) noexcept:
    """out += f, its divisions by their definitions"""
    cdef Form numerator
    cdef Form x
    cdef uint32_t i
    cdef int64_t c, d
    cdef uint8_t k
    cdef CNode *atom
    cdef bint rest
    for i in range(f.n):
        atom = f.terms[i].atom
        c = f.terms[i].coeff
        k = OPS[atom.op].bounds_kind
        rest = k == B_FLOORMOD or k == B_MOD
        if k == B_IDIV or k == B_MOD:  # truncation is another division where signs are not known
            if not (atom.src[0].flags & NODE_BOUNDED and atom.src[0].vmin >= 0):
                ledger.vague = True
                return
        if (not (rest or k == B_FLOORDIV or k == B_IDIV) or not const_value(atom.src[1], &d)
                or d <= 0):
            if not form_add_term(out, atom, c):
                ledger.vague = True
            continue
        form_clear(&numerator)
        form_clear(&x)
        if depth == MAX_DEPTH or not form_add(&numerator, atom.src[0], 1):
            ledger.vague = True
            return
        _define(ledger, &numerator, &x, depth + 1)
        if rest:
            if not form_merge(out, &x, c) or mk_mul(c, -d, &c):
                ledger.vague = True
                return
        _add_quotient(ledger, &x, d, out, c)
    if not form_add_offset(out, f.offset):
        ledger.vague = True


cdef bint same_by_definition(Form *f, Form *g, bint *vague) noexcept:
    """Whether two sums come to the same; `vague` where that cannot be told."""
    cdef Ledger ledger
    cdef Form a
    cdef Form b
    ledger.n = 0
    ledger.vague = False
    form_clear(&a)
    form_clear(&b)
    _define(&ledger, f, &a, 0)
    _define(&ledger, g, &b, 0)
    vague[0] = ledger.vague
    return not ledger.vague and _equal(&a, &b)


cdef int check_sums(Form *f, Form *g) except -1:
    """In checked builds: AssertionError when two sums are not the same by definition."""
    cdef bint vague = False
    if CHECKS and not same_by_definition(f, g, &vague) and not vague:
        raise AssertionError("a rule of sums has no witness")
    return 0


cdef int check_nodes(CNode *x, CNode *y) except -1:
    """In checked builds: the same of two nodes of `index`, whose sums are what they say."""
    cdef Form f
    cdef Form g
    if CHECKS and DTYPES[x.dtype].kind == c'x':
        form_clear(&f)
        form_clear(&g)
        if form_add(&f, x, 1) and form_add(&g, y, 1):
            check_sums(&f, &g)
    return 0


def affine_same(a, b):
    """See the stub."""
    cdef Form f
    cdef Form g
    cdef bint vague = False
    form_clear(&f)
    form_clear(&g)
    if not form_add(&f, peek(a), 1) or not form_add(&g, peek(b), 1):
        return None
    same = same_by_definition(&f, &g, &vague)
    return None if vague else same
