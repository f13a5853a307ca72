"""Rewriting a graph to a fixed point, without recursion.

    result(n):
        q = before(n)                     if a `before` rule applies, result(q)
        r = n with result(s) for each of its sources s
        q = rules(r)                      if a rule applies, result(q)
        otherwise                         r

Each node is done once in a call. What is known about it stands in one of four places:

* nothing to do: no rule starts at an op that occurs here or below (`below0`, `below1`);
* normal: its bit in `CNode.normal` says that these rules, which read nothing but the node, once
  left everything here and below as it is;
* `CNode.memo`, if this call is the one that claimed the node (`CNode.owner`). The claim list holds
  the node and its result and releases both at the end, whatever happens;
* this call's own map, for nodes claimed by another rewrite that is running: one that called us from
  a rule, or one in another thread, which Python let in while it was inside a rule.

The GIL is held, so between two calls of Python nobody else runs. Frames borrow their node: it lies
below the root or below a replacement that a frame further down the stack owns.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from morok._core.match cimport Matcher, set_timing
from morok._core.node cimport peek, take, with_sources
from morok._core.ptrmap cimport PtrMap, PtrSlot, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport CNode

import time

from morok._core.walk import toposort
from morok.errors import RewriteLimitError

cdef extern from "Python.h":
    void c_incref "Py_INCREF"(PyObject *)
    void c_decref "Py_DECREF"(PyObject *)

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *) noexcept

cdef enum:
    FEW = 32  # sources handled without malloc
    RING = 64  # rewrites remembered for the report of a limit
    MANY_STEPS = 0xFFF  # how often signals are looked for

cdef uint32_t _node_limit = 1000  # replacements of one node, or one after another
cdef uint64_t _call_limit = 500_000  # replacements in a call, at least
cdef uint64_t _call_factor = 50  # replacements in a call, for each node of the graph

cdef enum Stage:
    ENTER  # not seen yet
    LEAVE  # sources are done
    FINISH  # the replacement is done


cdef struct Frame:
    CNode *n  # borrowed
    CNode *rebuilt  # FINISH: n with new sources, owned; or NULL
    CNode *next  # FINISH: the replacement, owned
    uint32_t step  # replacements that led to n
    uint32_t width  # most sources of a node on that way
    uint8_t stage  # Stage
    uint8_t plain  # not offered to `before` rules: it is a node with new sources


cdef struct Claim:
    CNode *n  # owned
    CNode *result  # owned unless it is n; moved here from n.memo at the end


cdef struct Fired:
    uint32_t rule  # position in its set
    bint before  # the set is `before`


cdef uint64_t _calls = 0  # numbers the rewrites; 0 = nobody
cdef uint64_t _visited = 0  # nodes entered, by all rewrites
cdef uint64_t _replaced = 0  # replacements, by all rewrites that have ended
cdef object _tracer = None


def set_tracer(tracer):
    """Report rewrites to `tracer`, an object with `begin(name, root)`,
    `step(rule, before, after, seconds)` and `end(root)`; None stops reporting. Returns the previous
    one."""
    global _tracer
    old = _tracer
    _tracer = tracer
    set_timing(tracer is not None)
    return old


cdef class _Rewrite:
    """The state of one call."""

    cdef Matcher rules  # or None
    cdef Matcher before  # or None
    cdef object ctx
    cdef object tracer  # or None
    cdef str name
    cdef uint64_t number  # of this call; claims carry it
    cdef uint64_t roots0  # ops that some rule starts at
    cdef uint64_t roots1
    cdef uint64_t bits  # normal-form bits of the sets; 0 = not used
    cdef Frame *frames
    cdef Py_ssize_t n_frames, cap_frames
    cdef Claim *claims
    cdef Py_ssize_t n_claims, cap_claims
    cdef PtrMap others  # results of nodes that someone else claimed; made when needed
    cdef list held  # keeps keys and values of `others`
    cdef uint64_t hits  # replacements so far
    cdef uint64_t limit  # of hits
    cdef Fired ring[64]  # the last replacements
    cdef CNode *root  # borrowed

    def __dealloc__(self):
        self.release()
        free(self.frames)
        free(self.claims)
        ptrmap_free(&self.others)

    cdef void release(self) noexcept:
        """Give back all claims and references. Claims first: what dies may run other rewrites."""
        cdef Py_ssize_t i
        cdef Claim c
        cdef Frame f
        for i in range(self.n_claims):
            self.claims[i].result = self.claims[i].n.memo
            self.claims[i].n.memo = NULL
            self.claims[i].n.owner = 0
        while self.n_frames:
            self.n_frames -= 1
            f = self.frames[self.n_frames]
            if f.stage == FINISH:
                if f.rebuilt != NULL:
                    c_decref(f.rebuilt.self)
                c_decref(f.next.self)
        while self.n_claims:
            self.n_claims -= 1
            c = self.claims[self.n_claims]
            if c.result != NULL and c.result != c.n:
                c_decref(c.result.self)
            c_decref(c.n.self)

    # ---- what is known of a node -----------------------------------------------------------------

    cdef inline CNode *result(self, CNode *n) noexcept:
        """Its result, borrowed, or NULL while unknown."""
        cdef PtrSlot *s
        if self.bits and (n.normal & self.bits) == self.bits:
            return n
        if not ((n.below0 & self.roots0) | (n.below1 & self.roots1)):
            return n
        if n.owner == self.number:
            return n.memo
        if self.others.used:
            s = ptrmap_find(&self.others, n)
            if s.key != NULL:
                return <CNode *>s.value
        return NULL

    cdef inline bint claim(self, CNode *n) except -1:
        """Make the memo slot of `n` ours; False if another rewrite has it."""
        cdef Claim *grown
        if n.owner == self.number:
            return True
        if n.owner != 0 or (self.others.used and ptrmap_find(&self.others, n).key != NULL):
            return False
        if self.n_claims == self.cap_claims:
            self.cap_claims = self.cap_claims * 2 if self.cap_claims else 256
            grown = <Claim *>realloc(self.claims, self.cap_claims * sizeof(Claim))
            if grown == NULL:
                raise MemoryError()
            self.claims = grown
        c_incref(n.self)
        n.owner = self.number
        n.memo = NULL
        n.steps = 0
        self.claims[self.n_claims].n = n
        self.claims[self.n_claims].result = NULL
        self.n_claims += 1
        return True

    cdef inline int settle(self, CNode *n, CNode *result) except -1:
        """Note the result of `n`."""
        cdef CNode *old
        if self.claim(n):
            old = n.memo
            if result != n:
                c_incref(result.self)
            n.memo = result
            if old != NULL and old != n:
                c_decref(old.self)
            return 0
        if self.held is None:
            ptrmap_init(&self.others, 64)
            self.held = []
        self.held.append(<object>n.self)
        self.held.append(<object>result.self)
        ptrmap_put(&self.others, n, result)
        return 0

    cdef inline int unchanged(self, CNode *n, bint plain) except -1:
        """No rule applies at `n`, and its sources are their own results."""
        cdef uint32_t k
        cdef CNode *s
        if self.bits and not (plain and self.before is not None):
            if self.before is not None:
                # a source may be a node that `before` never saw
                for k in range(n.nsrc):
                    s = n.src[k]
                    if (s.normal & self.bits) != self.bits and (
                            (s.below0 & self.roots0) | (s.below1 & self.roots1)):
                        return self.settle(n, n)
            n.normal |= self.bits
            if n.owner != self.number:
                return 0
        return self.settle(n, n)

    # ---- the walk --------------------------------------------------------------------------------

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Room for `more` frames, so that pushing them cannot fail."""
        cdef Frame *grown
        cdef Py_ssize_t cap = self.cap_frames * 2 if self.cap_frames else 256
        if self.n_frames + more > self.cap_frames:
            cap = max(cap, self.n_frames + more)
            grown = <Frame *>realloc(self.frames, cap * sizeof(Frame))
            if grown == NULL:
                raise MemoryError()
            self.frames = grown
            self.cap_frames = cap
        return 0

    cdef inline Frame *push(
        self, CNode *n, uint32_t step, uint32_t width, uint8_t stage, bint plain
    ) noexcept:
        cdef Frame *f = &self.frames[self.n_frames]
        f.n = n
        f.step = step
        f.width = width
        f.stage = stage
        f.plain = plain
        self.n_frames += 1
        return f

    cdef int enter(self, CNode *n, uint32_t step, uint32_t width, bint plain) except -1:
        """First sight of `n`: offer it to `before`, then walk its sources."""
        global _visited
        cdef int64_t i
        cdef Py_ssize_t here
        cdef CNode *s
        if self.result(n) != NULL:
            return 0
        _visited += 1
        if self.before is not None and not plain and self.apply(self.before, n, n, step, width):
            return 0
        if self.n_frames + n.nsrc + 1 > self.cap_frames:
            self.reserve(<Py_ssize_t>n.nsrc + 1)
        here = self.n_frames
        self.push(n, step, width, LEAVE, plain)
        i = <int64_t>n.nsrc - 1
        while i >= 0:
            # Many sources are not looked at twice: each is, when its frame comes up.
            s = n.src[i]
            if i >= FEW or self.result(s) == NULL:
                self.push(s, 0, 0, ENTER, False)
                if i < FEW and s.nsrc:
                    # the walk is there soon: ask for the sources of all siblings at once
                    prefetch(s.src[0])
                    prefetch(<char *>s.src[0] + 64)
                    if s.nsrc > 1:
                        prefetch(s.src[1])
                        prefetch(<char *>s.src[1] + 64)
            i -= 1
        if self.n_frames == here + 1:
            self.n_frames = here
            self.leave(n, step, width, plain)
        return 0

    cdef int leave(self, CNode *n, uint32_t step, uint32_t width, bint plain) except -1:
        """The sources of `n` are done: rebuild it if they changed, then offer it to the rules."""
        cdef CNode *few[FEW]
        cdef CNode **src = few
        cdef CNode *r = n
        cdef CNode *known
        cdef uint32_t k
        cdef bint changed = False
        cdef object _held = None  # keeps r alive
        for k in range(n.nsrc):
            if self.result(n.src[k]) != n.src[k]:
                changed = True
                break
        if changed:
            if n.nsrc > FEW:
                src = <CNode **>malloc(n.nsrc * sizeof(CNode *))
                if src == NULL:
                    raise MemoryError()
            try:
                for k in range(n.nsrc):
                    src[k] = self.result(n.src[k])
                r = with_sources(n, src)
            finally:
                if src != few:
                    free(src)
            _held = take(r)
            if r.provenance == NULL and n.provenance != NULL:
                c_incref(n.provenance)
                r.provenance = n.provenance
            known = self.result(r)
            if known != NULL:
                return self.settle(n, known)
            plain = True
        if self.rules is not None and self.apply(self.rules, n, r, step, width):
            return 0
        self.unchanged(r, plain)
        if r != n:
            self.settle(n, r)
        return 0

    cdef int apply(
        self, Matcher matcher, CNode *n, CNode *r, uint32_t step, uint32_t width
    ) except -1:
        """Offer `r` (n, or n with new sources) to a set. 1: it was replaced, and the frames that go
        on with the replacement are pushed; 0: no rule applies."""
        cdef uint32_t which = 0
        cdef CNode *next = NULL
        cdef Frame *f
        cdef double start = 0
        if matcher.start[r.op] == matcher.start[r.op + 1]:
            return 0
        if self.n_frames + 2 > self.cap_frames:
            self.reserve(2)
        if self.tracer is not None:
            start = time.perf_counter()
        if not matcher.step(r, <PyObject *>self.ctx, &next, &which):
            return 0
        f = self.push(n, step, width, FINISH, False)
        f.next = next
        f.rebuilt = NULL
        if r != n:
            c_incref(r.self)
            f.rebuilt = r
        width = max(width, r.nsrc)
        self.push(next, step + 1, width, ENTER, False)
        if self.tracer is not None:
            self.tracer.step(matcher.programs[which].name, <object>r.self, <object>next.self,
                             time.perf_counter() - start)
        self.ring[self.hits % RING].rule = which
        self.ring[self.hits % RING].before = matcher is not self.rules
        self.hits += 1
        if self.claim(r) and r.steps < 0xFFFF:
            r.steps += 1
        if (step >= _node_limit + 4 * width or (r.owner == self.number and r.steps > _node_limit)
                or self.hits > self.limit):
            self.check_limit(r, step, width)
        if self.hits & MANY_STEPS == 0:
            PyErr_CheckSignals()
        return 1

    cdef CNode *run(self, CNode *root) except NULL:
        """The result of `root`, borrowed from the claims."""
        cdef Frame f
        self.root = root
        self.reserve(1)
        self.push(root, 0, 0, ENTER, False)
        while self.n_frames:
            self.n_frames -= 1
            f = self.frames[self.n_frames]
            self.foresee()
            if f.stage == ENTER:
                self.enter(f.n, f.step, f.width, f.plain)
            elif f.stage == LEAVE:
                if self.result(f.n) == NULL:
                    self.leave(f.n, f.step, f.width, f.plain)
            else:
                self.finish(&f)
        return self.result(root)

    cdef inline void foresee(self) noexcept:
        """Ask for the memory of the nodes that are next but one, and of the next one's sources: a
        large graph does not fit the cache, and waiting for it would be half the time of a walk."""
        cdef CNode *n
        cdef uint32_t k
        if self.n_frames < 2:
            return
        n = self.frames[self.n_frames - 2].n
        prefetch(n)
        prefetch(<char *>n + 64)
        n = self.frames[self.n_frames - 1].n
        for k in range(min(n.nsrc, <uint32_t>2)):
            prefetch(n.src[k])
            prefetch(<char *>n.src[k] + 64)

    cdef int finish(self, Frame *f) except -1:
        """The replacement of a node is done: its result is the node's."""
        cdef CNode *result = self.result(f.next)
        cdef object _next = take(f.next), _rebuilt = None  # keep both alive
        if f.rebuilt != NULL:
            _rebuilt = take(f.rebuilt)
            self.settle(f.rebuilt, result)
        self.settle(f.n, result)
        return 0

    # ---- limits ----------------------------------------------------------------------------------

    cdef int check_limit(self, CNode *n, uint32_t step, uint32_t width) except -1:
        """Raise RewriteLimitError, unless it is the call's limit and the graph is large."""
        cdef uint64_t size
        if step < _node_limit + 4 * width and (n.owner != self.number or n.steps <= _node_limit):
            size = len(toposort(<object>self.root.self))
            if self.limit < size * _call_factor:
                self.limit = size * _call_factor
                return 0
            raise self.limit_error(n, self.limit)
        raise self.limit_error(n, _node_limit)

    cdef object limit_error(self, CNode *n, uint64_t limit):
        """The error, with the rules that go round and how often each fired of late."""
        cdef uint64_t i, count = min(self.hits, <uint64_t>RING)
        cdef list names = []
        cdef Fired f
        cdef dict counts = {}
        for i in range(self.hits - count, self.hits):
            f = self.ring[i % RING]
            names.append((self.before if f.before else self.rules).programs[f.rule].name)
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        cycle = _cycle(names)
        if cycle:
            text = f"these rules undo each other or repeat: {' -> '.join(cycle)}"
        else:
            text = "its rules make ever more work"
        return RewriteLimitError(
            f"the rewrite does not come to rest: {text}",
            rewrite=self.name,
            limit=limit,
            node=<object>n.self,
            counts=counts,
        )


def _cycle(names):
    """The shortest run of names whose repetition ends the list; () if none repeats."""
    for length in range(1, len(names) // 2 + 1):
        if names[-length:] == names[-2 * length:-length]:
            return tuple(names[-length:])
    return ()


# ---- entries -------------------------------------------------------------------------------------

cdef CNode *rewrite_graph(
    CNode *root, Matcher rules, Matcher before, object ctx, str name
) except NULL:
    global _calls, _replaced
    cdef uint64_t roots0 = 0, roots1 = 0, bits = 0, bits_before = 0
    cdef _Rewrite r
    cdef CNode *out
    if rules is not None:
        roots0 = rules.roots0
        roots1 = rules.roots1
        bits = rules.normal_bit()
    if before is not None:
        roots0 |= before.roots0
        roots1 |= before.roots1
        bits_before = before.normal_bit()
        if bits_before == 0 or rules is None:
            bits = bits_before
        elif bits != 0:
            bits |= bits_before
    if bits and (root.normal & bits) == bits:
        roots0 = roots1 = 0
    if not ((root.below0 & roots0) | (root.below1 & roots1)):
        c_incref(root.self)
        return root
    r = _Rewrite.__new__(_Rewrite)
    _calls += 1
    r.number = _calls
    r.rules = rules
    r.before = before
    r.ctx = ctx
    r.name = name
    r.tracer = _tracer
    r.roots0 = roots0
    r.roots1 = roots1
    r.bits = bits
    r.limit = _call_limit
    try:
        if r.tracer is not None:
            r.tracer.begin(name, <object>root.self)
        out = r.run(root)
        c_incref(out.self)
        if r.tracer is not None:
            r.tracer.end(<object>out.self)
        return out
    except BaseException as error:
        if name:
            error.add_note(f"in rewrite {name}")
        if r.tracer is not None:
            r.tracer.end(None)
        raise
    finally:
        _replaced += r.hits
        r.release()


def graph_rewrite(root, rules, before=None, ctx=None, name=""):
    """`root` with the rules of the Matchers `rules` (sources first) and `before` (node first)
    applied to a fixed point. See `morok.ir.graph_rewrite`, which takes rule sets."""
    return take(rewrite_graph(peek(root), rules, before, ctx, name))


def rewrite_stats():
    """Counts since the start of the process: `calls` that had something to do, nodes `visited`, and
    nodes `replaced` by a rule."""
    return {"calls": _calls, "visited": _visited, "replaced": _replaced}


def rewrite_limits(node=None, call=None, factor=None):
    """Set the limits that are given: replacements of one node, in a call, and in a call for each
    node of its graph. Returns the limits in force before."""
    global _node_limit, _call_limit, _call_factor
    old = {"node": _node_limit, "call": _call_limit, "factor": _call_factor}
    if node is not None:
        _node_limit = node
    if call is not None:
        _call_limit = call
    if factor is not None:
        _call_factor = factor
    return old
