# cython: language_level=3
"""Division of affine forms, and small tools of the rules on them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from morok._core.affine cimport Form
from morok._core.types cimport CNode


cdef enum:
    MAX_CANDIDATES = 12  # moduli tried for one division


# The greatest common divisor of two numbers >= 0; gcd(a, 0) = a.
cdef int64_t gcd(int64_t a, int64_t b) noexcept
# The op number of a bounds kind that one op has.
cdef uint16_t op_of_kind(uint8_t kind) noexcept
# op(a, b), a new reference; takes over both.
cdef CNode *apply_owned(uint16_t op, CNode *a, CNode *b) except NULL
# The expression of a form, sorted; a new reference.
cdef CNode *form_built(Form *f, uint16_t dtype) except NULL
# Whether n is x // d (x % d) in floor semantics with a constant d > 0; x is borrowed.
cdef bint is_div(CNode *n, CNode **x, int64_t *d) noexcept
cdef bint is_mod(CNode *n, CNode **x, int64_t *d) noexcept
# n = g*q + r with 0 <= r < g by bounds: True when found and checked.
cdef bint split_period(Form *n, int64_t g, Form *q, Form *r) noexcept
# Moduli worth a split, descending: divisors of d; of anything, for d = 0.
cdef uint32_t split_candidates(Form *n, int64_t d, int64_t *out) noexcept
# The expression of a form as the answer of a rule, in out: 1, or 0 when it is the root itself.
cdef int answer_form(Form *f, CNode *root, CNode **out) except -1
