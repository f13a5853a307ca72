"""The matcher: runs compiled rules (`program.pyx`) on nodes.

A commutative choice remembers where it stood; when a later instruction, a guard, or the right side
fails, the last choice is tried the other way. In a guard an unknown bound, an overflow or a
division by zero means "does not fire".

A `Matcher` is an ordered set of programs, in buckets by the op of the root. What a node looks like
from outside (its op and dtype class, the ops of its first two sources, whether these stand over
constants, sums and products, whether they are one node) decides which programs could match at all;
that choice is made once for each look, so most rules cost nothing on most nodes, and no failing
guard ever enters Python.

Registers borrow: everything they name lies below the root, which the caller keeps alive.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from morok._core.evaluate cimport build_right, evaluate, passes_rest
from morok._core.glimpse cimport Glimpse, could_match
from morok._core.infer cimport DTYPES, OP_CONST, OP_VCONST, OP_VECTORIZE
from morok._core.node cimport clear_normal, peek, swap_provenance, take
from morok._core.program cimport (
    CHECK, COMMUTE, CONTEXT, Code, Instruction, LOAD, MAX_ARGUMENTS, MAX_CHOICES,
    MAX_REGISTERS, MAX_STACK, Program, SAME, TAKE, Test, add_native, native_rule, op_mask,
)
from morok._core.types cimport (
    CNode, NODE_KIN_SHIFT, NODE_OVER_SHIFT, NODE_VALUE_SHIFT, mk_mix, object_of,
)

import weakref

from morok.errors import RuleError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)
    object PyObject_Vectorcall(object, PyObject **, size_t, PyObject *)
    int PyObject_RichCompareBool(object, object, int) except -1

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
    PY_EQ = 2
    FEW_LOOKS = 64  # room in a new set


cdef int register_native(str name, native_rule function, uint8_t wants) except -1:
    return add_native(name, function, wants)


def checked_build():
    """Whether this build checks what a release trusts: MOROK_BUILD=debug, trace or sanitize."""
    return CHECKS


# ---- running programs ----------------------------------------------------------------------------

cdef inline bint _passes(Test *t, CNode *x) noexcept:
    if not ((t.ops1 >> (x.op - 64) if x.op >= 64 else t.ops0 >> x.op) & 1):
        return False
    return t.flags == 0 or passes_rest(t, x)


cdef object _outer_provenance(CNode *root):
    """Stamp what a rule builds with the root's origin, unless something is current already."""
    cdef object outer = swap_provenance(<object>root.provenance)
    if outer is not None:
        swap_provenance(outer)
    return outer


cdef inline int _fire(
    Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered
) except -1:
    """Apply a program whose pattern and guards hold. 1: `out` is a new reference."""
    cdef CNode *root = reg[0]
    if p.native != NULL and root.provenance == NULL:
        return p.native(root, out) and _accept(p, root, out)
    return _fire_for(p, reg, ctx, out, entered)


cdef int _fire_for(
    Program p, CNode **reg, PyObject *ctx, CNode **out, uint64_t *entered
) except -1:
    """`_fire`, with the root's provenance for new nodes and the rule's name on errors."""
    cdef CNode *root = reg[0]
    cdef bint stamped = root.provenance != NULL and _outer_provenance(root) is None
    try:
        if p.native != NULL:
            return p.native(root, out) and _accept(p, root, out)
        if p.function is not None:
            entered[0] += 1
            return _call(p, reg, ctx, out)
        return build_right(p.right, reg, out) and _accept(p, root, out)
    except Exception as error:
        node = <object>object_of(root)
        error.add_note(f"in rule {p.name}, at {node.op.name} : {node.dtype}")
        raise
    finally:
        if stamped:
            swap_provenance(None)


cdef int _call(Program p, CNode **reg, PyObject *ctx, CNode **out) except -1:
    """Ask a rule's Python function. 1: `out` is a new reference."""
    cdef PyObject *args[MAX_ARGUMENTS + 1]
    cdef int i
    for i in range(p.n_arguments):
        args[i + 1] = ctx if p.arguments[i] == CONTEXT else object_of(reg[p.arguments[i]])
    answer = PyObject_Vectorcall(p.function, &args[1], p.n_arguments, NULL)
    if answer is None:
        return 0
    try:
        out[0] = peek(answer)
    except TypeError:
        kind = type(answer).__name__
        raise RuleError(f"a rule returns a UOp or None, not {kind}", rule=p.name) from None
    if out[0] == reg[0]:
        if CHECKS:
            raise RuleError("a rule returned its own node: return None instead", rule=p.name)
        return 0
    c_incref(object_of(out[0]))
    return 1


cdef inline bint _same_shape(CNode *a, CNode *b) except -1:
    if a.shape == b.shape or a.shape == NULL or b.shape == NULL:
        return True
    return PyObject_RichCompareBool(<object>a.shape, <object>b.shape, PY_EQ)


cdef int _accept(Program p, CNode *root, CNode **out) except -1:
    """A data or native rule changes neither dtype nor shape: where it would, it does not fire."""
    cdef bint ok
    if out[0] == root:
        c_decref(object_of(root))
        return 0
    ok = out[0].dtype == root.dtype and _same_shape(out[0], root)
    if not ok:
        c_decref(object_of(out[0]))
    return ok


cdef int _run(Program p, CNode *root, PyObject *ctx, CNode **out, uint64_t *entered) except -1:
    """1: the program rewrote `root` to `out`, a new reference; 0: it does not apply."""
    cdef CNode *reg[MAX_REGISTERS + 1]
    cdef Instruction *choices[MAX_CHOICES]
    cdef Instruction *x = p.steps
    cdef Code *guard
    cdef int64_t ints[MAX_STACK + 1]
    cdef int n_choices = 0
    cdef bint swapped = False, ok
    cdef CNode *n
    reg[0] = root
    while True:
        if x.kind == LOAD:
            reg[x.dst] = reg[x.src].src[x.index]
            ok = _passes(&x.test, reg[x.dst])
        elif x.kind == TAKE:
            reg[x.dst] = reg[x.src].src[x.index]
            ok = True
        elif x.kind == CHECK:
            ok = _passes(&x.test, reg[x.dst])
        elif x.kind == SAME:
            ok = reg[x.dst] == reg[x.src]
        elif x.kind == COMMUTE:
            n = reg[x.src]
            if swapped:
                swapped = False
                reg[x.dst] = n.src[1]
                reg[x.dst + 1] = n.src[0]
            else:
                reg[x.dst] = n.src[0]
                reg[x.dst + 1] = n.src[1]
                if n.src[0] != n.src[1]:
                    choices[n_choices] = x
                    n_choices += 1
            ok = True
        else:
            ok = True
            if p.guard != NULL:
                guard = p.guard
                ok = evaluate(&guard, reg, ints, 0) > 0 and ints[0] != 0
            if ok:
                if _fire(p, reg, ctx, out, entered):
                    return 1
                ok = False
        if ok:
            x += 1
            continue
        if n_choices == 0:
            return 0
        n_choices -= 1
        x = choices[n_choices]
        swapped = True


# ---- sets of programs ----------------------------------------------------------------------------

cdef uint64_t _source_bits0[128]  # what a source of this op adds to the set of ops of sources
cdef uint64_t _source_bits1[128]
cdef uint64_t _bits_given = 0  # bits of CNode.normal in use
cdef uint64_t _bits_dead = 0  # bits of sets that are gone: nodes may still carry them
cdef list _matchers = []  # weak references to all sets
cdef bint _timing = False


cdef void set_timing(bint on) noexcept:
    global _timing
    _timing = on


cdef inline uint64_t _now() noexcept:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1_000_000_000 + <uint64_t>t.tv_nsec


cdef int _learn_source_bits() except -1:
    """One bit an op; VCONST and VECTORIZE may be constants, so they count as CONST too."""
    cdef int op
    for op in range(128):
        _source_bits0[op] = <uint64_t>1 << op if op < 64 else 0
        _source_bits1[op] = <uint64_t>1 << (op - 64) if op >= 64 else 0
    for op in (OP_VCONST, OP_VECTORIZE):
        _source_bits0[op] |= _source_bits0[OP_CONST]
        _source_bits1[op] |= _source_bits1[OP_CONST]
    return 0


cdef inline uint32_t _kind_bit(CNode *n) noexcept:
    return <uint32_t>1 << (DTYPES[n.dtype].kind & 31)


cdef inline uint64_t _look_key(CNode *n) noexcept:
    """All that decides which entries are worth a try, in a word that is not 0."""
    cdef uint64_t key = <uint64_t>1 << 63 | n.op
    cdef CNode *s
    key |= <uint64_t>(DTYPES[n.dtype].kind & 31) << 7 | <uint64_t>min(n.nsrc, <uint32_t>3) << 12
    key |= <uint64_t>(n.flags >> NODE_KIN_SHIFT & 15) << 46
    if n.nsrc:
        s = n.src[0]
        key |= <uint64_t>s.op << 14 | _outlook(s) << 21
        key |= <uint64_t>(DTYPES[s.dtype].kind & 31) << 27
        if n.nsrc > 1:
            key |= <uint64_t>(n.src[1] == s) << 32
            s = n.src[1]
            key |= <uint64_t>s.op << 33 | _outlook(s) << 40
    return key


cdef inline uint64_t _outlook(CNode *s) noexcept:
    """What a source adds to the look of its user: three bits about its sources, three about its
    value."""
    return s.flags >> NODE_OVER_SHIFT & 7 | s.flags >> NODE_VALUE_SHIFT << 3


cdef inline Look *_find_look(Matcher m, uint64_t key) noexcept:
    """The place of a key, or the empty one where it would go."""
    cdef uint64_t i = mk_mix(key, <uint64_t>0x9E3779B97F4A7C15) & m.look_mask
    while m.looks[i].key != key and m.looks[i].key != 0:
        i = (i + 1) & m.look_mask
    return &m.looks[i]


cdef inline int _scan(
    Matcher m, CNode *n, PyObject *ctx, CNode **out, uint32_t *which, bint timed
) except -1:
    """Try the rules that start at the op of `n` and could match, in order."""
    cdef uint64_t key
    cdef Look *look
    cdef Entry *e
    cdef uint64_t s0 = 0, s1 = 0, since = 0
    cdef uint32_t i, k, end
    cdef int done
    if m.start[n.op] == m.start[n.op + 1]:
        return 0
    key = _look_key(n)
    look = _find_look(m, key)
    if look.key == 0:
        if m.n_looks * 2 > m.look_mask:
            m.grow_looks()
            look = _find_look(m, key)
        m.choose(look, key, n)
    i = look.start
    end = look.end
    if n.nsrc > 2 and i != end:
        for k in range(n.nsrc):
            s0 |= _source_bits0[n.src[k].op]
            s1 |= _source_bits1[n.src[k].op]
    while i != end:
        # A rule may run this set again, which may move `chosen` and `looks`.
        e = &m.entries[m.chosen[i]]
        i += 1
        if n.nsrc > 2 and (e.need0 & ~s0) | (e.need1 & ~s1):
            continue
        m.tried[e.index] += 1
        if timed:
            since = _now()
        if e.native != NULL:
            done = _fire(<Program>e.program, &n, ctx, out, &m.entered[e.index])
        elif e.root.flags == 0 or passes_rest(e.root, n):
            done = _run(<Program>e.program, n, ctx, out, &m.entered[e.index])
        else:
            done = 0
        if timed:
            m.spent[e.index] += _now() - since
        if done:
            m.hits[e.index] += 1
            which[0] = e.index
            return 1
    return 0


cdef class Matcher:
    """An ordered, frozen set of programs. `pure`: none reads anything but the node."""

    def __init__(self, str name, programs):
        cdef Program p
        cdef uint32_t filled = 0, index
        cdef Entry *e
        cdef Py_ssize_t total
        cdef dict buckets = {}
        self.name = name
        self.programs = tuple(programs)
        self.pure = all([(<Program?>q).pure for q in self.programs])
        for index, p in enumerate(self.programs):
            for op in p.roots:
                buckets.setdefault(op, []).append(index)
        total = sum([len(bucket) for bucket in buckets.values()])
        self.entries = <Entry *>PyMem_Calloc(total + 1, sizeof(Entry))
        self.tried = <uint64_t *>PyMem_Calloc(4 * len(self.programs) + 1, sizeof(uint64_t))
        self.looks = <Look *>PyMem_Calloc(FEW_LOOKS, sizeof(Look))
        self.look_mask = FEW_LOOKS - 1
        if self.entries == NULL or self.tried == NULL or self.looks == NULL:
            raise MemoryError()
        self.hits = self.tried + len(self.programs)
        self.entered = self.hits + len(self.programs)
        self.spent = self.entered + len(self.programs)
        op_mask(buckets, &self.roots0, &self.roots1)
        _learn_source_bits()
        for op in range(128):
            self.start[op] = filled
            for index in buckets.get(op, ()):
                e = &self.entries[filled]
                p = <Program>self.programs[index]
                e.program = <PyObject *>p
                e.need0 = p.need0
                e.need1 = p.need1
                e.kinds = p.subject_kinds
                e.first = p.subject_first
                e.native = p.native
                e.root = &p.root
                e.index = index
                filled += 1
        self.start[128] = filled
        _matchers.append(weakref.ref(self, _matchers.remove))

    def __dealloc__(self):
        global _bits_dead
        _bits_dead |= self.bit
        PyMem_Free(self.entries)
        PyMem_Free(self.tried)
        PyMem_Free(self.looks)
        PyMem_Free(self.chosen)

    cdef int grow_looks(self) except -1:
        """Twice the room for looks."""
        cdef Look *old = self.looks
        cdef uint64_t i, n = self.look_mask + 1
        self.looks = <Look *>PyMem_Calloc(n * 2, sizeof(Look))
        if self.looks == NULL:
            self.looks = old
            raise MemoryError()
        self.look_mask = n * 2 - 1
        for i in range(n):
            if old[i].key != 0:
                _find_look(self, old[i].key)[0] = old[i]
        PyMem_Free(old)
        return 0

    cdef int choose(self, Look *look, uint64_t key, CNode *n) except -1:
        """Note which entries could match a node that looks like `n`."""
        cdef uint64_t s0 = 0, s1 = 0
        cdef uint32_t k, i, first = self.start[n.op], last = self.start[n.op + 1]
        cdef uint32_t kind = _kind_bit(n), kind_first = kind
        cdef uint32_t *grown
        cdef Glimpse g
        cdef Entry *e
        if self.n_chosen + (last - first) > self.cap_chosen:
            k = self.cap_chosen * 2 + (last - first)
            grown = <uint32_t *>PyMem_Realloc(self.chosen, k * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            self.chosen = grown
            self.cap_chosen = k
        g.op = n.op
        g.flags = n.flags
        g.nsrc = min(n.nsrc, <uint32_t>3)
        g.same = n.nsrc > 1 and n.src[0] == n.src[1]
        for k in range(2):
            g.ops[k] = n.src[k].op if k < n.nsrc else 0
            g.over[k] = n.src[k].flags if k < n.nsrc else 0
            g.values[k] = n.src[k].flags >> NODE_VALUE_SHIFT if k < n.nsrc else 0
            if k < n.nsrc:
                s0 |= _source_bits0[g.ops[k]]
                s1 |= _source_bits1[g.ops[k]]
        if n.nsrc:
            kind_first = _kind_bit(n.src[0])
        look.key = key
        look.start = self.n_chosen
        for i in range(first, last):
            e = &self.entries[i]
            if not e.kinds & (kind_first if e.first else kind):
                continue
            if n.nsrc <= 2 and (e.need0 & ~s0) | (e.need1 & ~s1):
                continue
            if could_match(<Program>e.program, &g):
                self.chosen[self.n_chosen] = i
                self.n_chosen += 1
        look.end = self.n_chosen
        self.n_looks += 1
        return 0

    cdef uint64_t normal_bit(self) noexcept:
        """The bit of CNode.normal that is this set's alone; 0 if it is impure or none is left."""
        global _bits_given, _bits_dead
        if not self.asked:
            self.asked = True
            if _bits_dead and _bits_given == <uint64_t>0xFFFFFFFFFFFFFFFF:
                clear_normal(_bits_dead)
                _bits_given &= ~_bits_dead
                _bits_dead = 0
            if self.pure and _bits_given != <uint64_t>0xFFFFFFFFFFFFFFFF:
                self.bit = (_bits_given + 1) & ~_bits_given
                _bits_given |= self.bit
        return self.bit

    cdef int step(self, CNode *n, PyObject *ctx, CNode **out, uint32_t *which) except -1:
        if _timing:
            return _scan(self, n, ctx, out, which, True)
        return _scan(self, n, ctx, out, which, False)

    def rewrite(self, root, ctx=None):
        """The replacement of this one node by the first rule that applies, or None."""
        cdef CNode *out = NULL
        cdef uint32_t which = 0
        if self.step(peek(root), <PyObject *>ctx, &out, &which):
            return take(out)
        return None

    def stats(self):
        """(name, tries, hits, entries into Python, seconds) of each rule, in order."""
        return [
            (self.programs[i].name, self.tried[i], self.hits[i], self.entered[i],
             self.spent[i] * 1e-9)
            for i in range(len(self.programs))
        ]

    def reset_stats(self):
        """Counts from zero again."""
        cdef Py_ssize_t i
        for i in range(4 * len(self.programs)):
            self.tried[i] = 0


def rule_stats():
    """Name -> (tries, hits, entries into Python, seconds) of each rule, over all sets."""
    cdef dict totals = {}
    for reference in list(_matchers):
        matcher = reference()
        for name, *counts in matcher.stats() if matcher is not None else ():
            known = totals.get(name)
            totals[name] = tuple(
                counts if known is None else [a + b for a, b in zip(known, counts)]
            )
    return totals
