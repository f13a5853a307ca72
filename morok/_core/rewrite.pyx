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
* the claim list, if this call is the one that claimed the node (`CNode.owner`, `CNode.place`). It
  holds the node and its result and releases both at the end, whatever happens;
* this call's own map, for nodes claimed by another rewrite that is running: one that called us from
  a rule, or one in another thread, which Python let in while it was inside a rule.

The GIL is held, so between two calls of Python nobody else runs. Frames borrow their node: it lies
below the root or below a replacement that a frame further down the stack owns.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from morok._core.match cimport Matcher, set_timing
from morok._core.node cimport peek, take, with_sources
from morok._core.ptrmap cimport PtrMap, PtrSlot, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport CNode, object_of

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
    WIDE = 8  # with more sources, those to come are asked for one by one
    LAG = 4  # frames down from the top that are asked for next
    AHEAD = 12  # nodes of a straight run that are asked for in advance
    BURST = 10  # nodes that are asked for where such a run may begin
    RING = 64  # rewrites remembered for the report of a limit
    MANY_STEPS = 0xFFF  # how often signals are looked for

cdef uint32_t _node_limit = 1000  # replacements of one node, or one after another
cdef uint64_t _call_limit = 500_000  # replacements in a call, at least
cdef uint64_t _call_factor = 50  # replacements in a call, for each node of the graph

cdef enum:
    TO_ENTER = 0xFFFFFFFF  # Frame.next: not seen yet
    TO_FINISH = 0xFFFFFFFE  # Frame.next: a replacement of it is being done, on top of this frame
    CHANGED = 1  # Frame.way
    WAY = 2  # Frame.way


cdef struct Frame:
    CNode *n  # borrowed
    uint32_t next  # sources that are done
    uint32_t way  # WAY * number of the replacement that led here (from 1, 0 = none), and CHANGED


cdef struct Replacement:
    CNode *rebuilt  # the node with new sources, owned; or NULL
    CNode *next  # what replaces it, owned
    uint32_t step  # replacements that led to `next`, one after another
    uint32_t width  # most sources of a node on that way


cdef struct Claim:
    CNode *n  # owned
    CNode *result  # owned unless it is n; NULL while unknown
    uint32_t steps  # replacements of n


cdef struct Fired:
    uint32_t rule  # position in its set
    bint before  # the set is `before`


cdef uint64_t _calls = 0  # rewrites that had something to do
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


cdef void _ask(CNode *n, uint64_t bits, int depth) noexcept:
    """Ask for the memory of what stands `depth` below a node and has not been simplified."""
    if depth == 0:
        prefetch(n)
        return
    if bits and (n.normal & bits) == bits:
        return
    if n.nsrc:
        _ask(n.src[0], bits, depth - 1)
        if n.nsrc > 1:
            _ask(n.src[1], bits, depth - 1)


cdef inline void _foresee(CNode *n, uint32_t i, uint64_t bits) noexcept:
    """Ask for the memory of sources that come after source i, and of what is below them: the walk
    looks at them one after the other, and waiting for each would be half its time."""
    cdef int depth
    for depth in range(5):
        if i + 11 - 2 * depth < n.nsrc:
            _ask(n.src[i + 11 - 2 * depth], bits, depth)


cdef class _Rewrite:
    """The state of one call."""

    cdef Matcher rules  # or None
    cdef Matcher before  # or None
    cdef object ctx
    cdef object tracer  # or None
    cdef str name
    cdef uint32_t number  # of this call, not 0; comes again after 2**32 calls
    cdef uint64_t roots0  # ops that some rule starts at
    cdef uint64_t roots1
    cdef uint64_t bits  # normal-form bits of the sets; 0 = not used
    cdef Frame *frames
    cdef Py_ssize_t n_frames, cap_frames
    cdef Replacement *ways  # those that are being done: a frame TO_FINISH for each
    cdef uint32_t n_ways, cap_ways
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
        free(self.ways)
        free(self.claims)
        ptrmap_free(&self.others)

    cdef void release(self) noexcept:
        """Give back all claims and references. Claims first: what dies may run other rewrites."""
        cdef Py_ssize_t i
        cdef Claim c
        cdef Replacement w
        for i in range(self.n_claims):
            self.claims[i].n.owner = 0
        self.n_frames = 0
        while self.n_ways:
            self.n_ways -= 1
            w = self.ways[self.n_ways]
            if w.rebuilt != NULL:
                c_decref(object_of(w.rebuilt))
            c_decref(object_of(w.next))
        while self.n_claims:
            self.n_claims -= 1
            c = self.claims[self.n_claims]
            if c.result != NULL and c.result != c.n:
                c_decref(object_of(c.result))
            c_decref(object_of(c.n))

    # ---- what is known of a node -----------------------------------------------------------------

    cdef inline CNode *result(self, CNode *n) noexcept:
        """Its result, borrowed, or NULL while unknown."""
        cdef PtrSlot *s
        if self.bits and (n.normal & self.bits) == self.bits:
            return n
        if not ((n.below0 & self.roots0) | (n.below1 & self.roots1)):
            return n
        if n.owner == self.number:
            return self.claims[n.place].result
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
        c_incref(object_of(n))
        n.owner = self.number
        n.place = <uint32_t>self.n_claims
        self.claims[self.n_claims].n = n
        self.claims[self.n_claims].result = NULL
        self.claims[self.n_claims].steps = 0
        self.n_claims += 1
        return True

    cdef inline int settle(self, CNode *n, CNode *result) except -1:
        """Note the result of `n`."""
        cdef CNode *old
        if self.claim(n):
            old = self.claims[n.place].result
            if result != n:
                c_incref(object_of(result))
            self.claims[n.place].result = result
            if old != NULL and old != n:
                c_decref(object_of(old))
            return 0
        if self.held is None:
            ptrmap_init(&self.others, 64)
            self.held = []
        self.held.append(<object>object_of(n))
        self.held.append(<object>object_of(result))
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

    cdef int grow_frames(self) except -1:
        cdef Py_ssize_t cap = self.cap_frames * 2 if self.cap_frames else 256
        cdef Frame *grown = <Frame *>realloc(self.frames, cap * sizeof(Frame))
        if grown == NULL:
            raise MemoryError()
        self.frames = grown
        self.cap_frames = cap
        return 0

    cdef int grow_ways(self) except -1:
        cdef uint32_t cap = self.cap_ways * 2 if self.cap_ways else 16
        cdef Replacement *grown = <Replacement *>realloc(self.ways, cap * sizeof(Replacement))
        if grown == NULL:
            raise MemoryError()
        self.ways = grown
        self.cap_ways = cap
        return 0

    cdef inline int push(self, CNode *n, uint32_t next, uint32_t way) except -1:
        cdef Frame *f
        if self.n_frames == self.cap_frames:
            self.grow_frames()
        f = &self.frames[self.n_frames]
        f.n = n
        f.next = next
        f.way = way
        self.n_frames += 1
        return 0

    cdef CNode *run(self, CNode *root) except NULL:
        """The result of `root`, borrowed from the claims."""
        global _visited
        cdef uint32_t first = 0 if self.before is None else TO_ENTER  # a source's stage
        cdef uint32_t i, way
        cdef int64_t step, last = 0
        cdef int turned = 1
        cdef Frame *f
        cdef CNode *n
        cdef CNode *s
        cdef CNode *known
        self.root = root
        self.push(root, TO_ENTER, 0)
        while self.n_frames:
            f = &self.frames[self.n_frames - 1]
            n = f.n
            i = f.next
            if i >= TO_FINISH:
                if i == TO_FINISH:
                    self.finish(n)
                    continue
                if self.result(n) != NULL:
                    self.n_frames -= 1
                    continue
                _visited += 1
                if self.before is not None:
                    way = f.way
                    self.n_frames -= 1
                    if self.apply(self.before, n, n, way):
                        continue
                    self.n_frames += 1
                    f = &self.frames[self.n_frames - 1]
                i = 0
            known = n
            while i < n.nsrc:
                s = n.src[i]
                if n.nsrc > WIDE:
                    _foresee(n, i, self.bits)
                known = self.result(s)
                if known != s:
                    if known == NULL:
                        break
                    f.way |= CHANGED
                i += 1
            if known == NULL:
                f.next = i
                self.push(s, first, 0)
                if self.before is None:
                    _visited += 1
                prefetch(s.src[0])
                if s.nsrc > 1:
                    prefetch(s.src[1])
                if s.nsrc:
                    step = <char *>s.src[0] - <char *>s
                    if step == last:
                        prefetch(<char *>s + AHEAD * step)
                    last = step
                turned = 1
                continue
            way = f.way
            self.n_frames -= 1
            self.foresee(turned)
            turned = LAG
            self.leave(n, way)
        return self.result(root)

    cdef inline void foresee(self, int first) noexcept:
        """Ask for the memory of what comes after the top frame is left: of frames further down, and
        of their next sources from the frame `first` on. What lies below such a source is guessed:
        what a loop built lies at one distance."""
        cdef Frame *f
        cdef CNode *s
        cdef int64_t step
        cdef int k, j
        if self.n_frames <= LAG:
            return
        prefetch(self.frames[self.n_frames - LAG - 1].n)
        for j in range(first, LAG + 1):
            f = &self.frames[self.n_frames - j]
            if f.next + 1 < f.n.nsrc and f.n.nsrc <= WIDE:
                s = f.n.src[f.next + 1]
                if s.nsrc and (s.normal & self.bits) != self.bits:
                    step = <char *>s.src[0] - <char *>s
                    for k in range(1, BURST):
                        prefetch(<char *>s + k * step)

    cdef int leave(self, CNode *n, uint32_t way) except -1:
        """The sources of `n` are done: rebuild it if they changed, then offer it to the rules."""
        if way & CHANGED:
            return self.leave_changed(n, way)
        if self.rules is not None and self.apply(self.rules, n, n, way):
            return 0
        return self.unchanged(n, False)

    cdef int leave_changed(self, CNode *n, uint32_t way) except -1:
        cdef CNode *few[FEW]
        cdef CNode **src = few
        cdef CNode *r
        cdef CNode *known
        cdef uint32_t k
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
        _held = take(r)  # keeps it alive
        if r.provenance == NULL and n.provenance != NULL:
            c_incref(n.provenance)
            r.provenance = n.provenance
        known = self.result(r)
        if known != NULL:
            return self.settle(n, known)
        if self.rules is not None and self.apply(self.rules, n, r, way):
            return 0
        self.unchanged(r, True)
        return self.settle(n, r)

    cdef int apply(self, Matcher matcher, CNode *n, CNode *r, uint32_t way) except -1:
        """Offer `r` (n, or n with new sources) to a set. 1: it was replaced, and the frames that go
        on with the replacement are pushed; 0: no rule applies."""
        cdef uint32_t which = 0
        cdef CNode *next = NULL
        cdef Replacement *w
        cdef double start = 0
        if matcher.start[r.op] == matcher.start[r.op + 1]:
            return 0
        if self.tracer is not None:
            start = time.perf_counter()
        if not matcher.step(r, <PyObject *>self.ctx, &next, &which):
            return 0
        self.replace(n, r, next, way)
        if self.tracer is not None:
            self.tracer.step(
                matcher.programs[which].name,
                <object>object_of(r),
                <object>object_of(next),
                time.perf_counter() - start,
            )
        self.ring[self.hits % RING].rule = which
        self.ring[self.hits % RING].before = matcher is not self.rules
        self.hits += 1
        if self.claim(r):
            self.claims[r.place].steps += 1
        w = &self.ways[self.n_ways - 1]
        if w.step > _node_limit + 4 * w.width or self.worn(r) or self.hits > self.limit:
            self.check_limit(r, w)
        if self.hits & MANY_STEPS == 0:
            PyErr_CheckSignals()
        return 1

    cdef int replace(self, CNode *n, CNode *r, CNode *next, uint32_t way) except -1:
        """Push the frames that go on with `next`, of which the reference is taken over."""
        cdef Replacement *w
        cdef Replacement *led = NULL
        cdef object _next = take(next)  # lost if there is no memory
        if self.n_ways == self.cap_ways:
            self.grow_ways()
        if way >= WAY:
            led = &self.ways[way // WAY - 1]
        self.push(n, TO_FINISH, 0)
        w = &self.ways[self.n_ways]
        self.n_ways += 1
        c_incref(object_of(next))
        w.next = next
        w.rebuilt = NULL
        if r != n:
            c_incref(object_of(r))
            w.rebuilt = r
        w.step = led.step + 1 if led != NULL else 1
        w.width = max(led.width, r.nsrc) if led != NULL else r.nsrc
        return self.push(next, TO_ENTER, WAY * self.n_ways)

    cdef int finish(self, CNode *n) except -1:
        """The replacement of a node is done: its result is the node's."""
        cdef Replacement w
        cdef CNode *result
        self.n_frames -= 1
        self.n_ways -= 1
        w = self.ways[self.n_ways]
        result = self.result(w.next)
        _next = take(w.next)  # keeps it alive
        if w.rebuilt != NULL:
            _rebuilt = take(w.rebuilt)
            self.settle(w.rebuilt, result)
        return self.settle(n, result)

    # ---- limits ----------------------------------------------------------------------------------

    cdef inline bint worn(self, CNode *n) noexcept:
        """Whether rules replaced this node too often."""
        return n.owner == self.number and self.claims[n.place].steps > _node_limit

    cdef int check_limit(self, CNode *n, Replacement *w) except -1:
        """Raise RewriteLimitError, unless it is the call's limit and the graph is large."""
        cdef uint64_t size
        if w.step <= _node_limit + 4 * w.width and not self.worn(n):
            size = len(toposort(<object>object_of(self.root)))
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
            node=<object>object_of(n),
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
        c_incref(object_of(root))
        return root
    r = _Rewrite.__new__(_Rewrite)
    _calls += 1
    r.number = <uint32_t>(_calls % 0xFFFFFFFF) + 1
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
            r.tracer.begin(name, <object>object_of(root))
        out = r.run(root)
        c_incref(object_of(out))
        if r.tracer is not None:
            r.tracer.end(<object>object_of(out))
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
