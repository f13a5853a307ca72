"""The order of execution of a graph of loops and branches: see the stub."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from morok._core.infer cimport OP_RANGE
from morok._core.node cimport peek
from morok._core.ptrmap cimport PtrMap, ptrmap_find, ptrmap_free, ptrmap_init, ptrmap_put
from morok._core.types cimport CNode, object_of

from morok.errors import InvalidGraphError


cdef enum:
    OUTSIDE = -1  # the outermost block
    UNKNOWN = -2  # no block was found yet; of a head: nothing closes it


cdef struct Edge:
    int32_t user  # what needs `source` in its own block
    int32_t source  # stands in the same block


cdef class _Blocks:
    """Nodes are named by their places in `order`, blocks by their heads: a RANGE or an IF."""

    cdef list order  # keeps the nodes
    cdef Py_ssize_t n  # nodes
    cdef PtrMap places  # node -> its place
    cdef CNode **nodes  # by place; all arrays are freed together with the object
    cdef int32_t *home  # the block a node stands in
    cdef int32_t *branch  # the IF it stands in, UNKNOWN for none
    cdef int32_t *close  # of a head: its END or ENDIF
    cdef int32_t *parent  # of a head: the block that it stands in
    cdef int32_t *depth  # of a RANGE: how many loops are around it, and itself
    cdef Edge *edges  # in the order in which they were found
    cdef Py_ssize_t n_edges  # used
    cdef Py_ssize_t cap  # allocated
    cdef int32_t *first  # of a node: where its sources begin in `needs`; and the end
    cdef int32_t *needs  # sources in the same block, user by user
    cdef int32_t *items  # of all blocks, one after another
    cdef int32_t *begin  # of a head: where its items begin
    cdef int32_t *stop  # of a head: where they end
    cdef int32_t used  # items
    cdef uint8_t *state  # 1: waits for what it needs, 2: stands in its block
    cdef uint16_t end  # number of END
    cdef uint16_t if_  # number of IF
    cdef uint16_t endif  # number of ENDIF

    def __cinit__(self, list order, int end, int if_, int endif):
        cdef Py_ssize_t i, size = (len(order) + 2) * sizeof(int32_t)
        self.order = order
        self.n = len(order)
        self.end, self.if_, self.endif = end, if_, endif
        ptrmap_init(&self.places, 1024)
        self.nodes = <CNode **>malloc((self.n + 1) * sizeof(CNode *))
        self.home = <int32_t *>malloc(size)
        self.branch = <int32_t *>malloc(size)
        self.close = <int32_t *>malloc(size)
        self.parent = <int32_t *>malloc(size)
        self.depth = <int32_t *>malloc(size)
        self.first = <int32_t *>malloc(size)
        self.items = <int32_t *>malloc(size)
        self.begin = <int32_t *>malloc(size)
        self.stop = <int32_t *>malloc(size)
        self.state = <uint8_t *>malloc(self.n + 1)
        if (
            self.nodes == NULL
            or self.home == NULL
            or self.branch == NULL
            or self.close == NULL
            or self.parent == NULL
            or self.depth == NULL
            or self.first == NULL
            or self.items == NULL
            or self.begin == NULL
            or self.stop == NULL
            or self.state == NULL
        ):
            raise MemoryError()
        memset(self.state, 0, self.n + 1)
        for i in range(self.n):
            self.nodes[i] = peek(order[i])
            ptrmap_put(&self.places, self.nodes[i], <void *>i)
            self.branch[i] = self.close[i] = self.parent[i] = UNKNOWN

    def __dealloc__(self):
        ptrmap_free(&self.places)
        free(self.nodes)
        free(self.home)
        free(self.branch)
        free(self.close)
        free(self.parent)
        free(self.depth)
        free(self.edges)
        free(self.first)
        free(self.needs)
        free(self.items)
        free(self.begin)
        free(self.stop)
        free(self.state)

    cdef inline int32_t place(self, CNode *n) noexcept:
        """Where a node below the root stands in `order`."""
        return <int32_t><Py_ssize_t>ptrmap_find(&self.places, n).value

    cdef object fault(self, str message, CNode *n, str rule):
        node = <object>object_of(n)
        return InvalidGraphError(message, node=node, stage="linearize", rule=rule)

    # ---- which block a node stands in -----------------------------------------------------------

    cdef int32_t block(self, int32_t i) except? UNKNOWN:
        """The branch that a node stands in, or the innermost loop among its open ranges."""
        cdef CNode *n = self.nodes[i]
        cdef int32_t best = OUTSIDE, rng
        cdef uint32_t k
        if self.branch[i] != UNKNOWN:
            return self.branch[i]
        if n.ranges == NULL:
            return OUTSIDE
        for k in range(n.ranges.n):
            rng = self.place(n.ranges.members[k])
            if self.close[rng] == UNKNOWN:
                raise self.fault(
                    "a range is used and never closed", n.ranges.members[k], "ranges closed"
                )
            if best == OUTSIDE or self.depth[rng] > self.depth[best]:
                best = rng
        return best

    cdef int find_loops(self) except -1:
        """Every RANGE has one END. Outer loops first: they are closed last."""
        cdef Py_ssize_t i
        cdef int32_t rng
        for i in range(self.n - 1, -1, -1):
            if self.nodes[i].op != self.end:
                continue
            rng = self.place(self.nodes[i].src[1])
            if self.close[rng] != UNKNOWN:
                raise self.fault("two ENDs close one RANGE", self.nodes[i], "one loop")
            self.parent[rng] = self.block(i)
            self.depth[rng] = 1
            if self.parent[rng] != OUTSIDE:
                self.depth[rng] += self.depth[self.parent[rng]]
            self.close[rng] = i
        return 0

    cdef int find_branches(self, dict inside) except -1:
        cdef Py_ssize_t i
        cdef int32_t head
        for node, branch in inside.items():
            self.branch[self.place(peek(node))] = self.place(peek(branch))
        for i in range(self.n):
            if self.nodes[i].op == self.endif:
                head = self.place(self.nodes[i].src[0])
                self.close[head] = i
                self.parent[head] = self.block(i)
        return 0

    cdef int32_t child(self, int32_t inner, int32_t outer) except UNKNOWN:
        """The loop directly in block `outer` that holds block `inner`."""
        cdef int32_t found = inner
        while self.parent[found] != outer:
            if self.parent[found] < 0:
                raise self.fault(
                    "a value is used outside the loop it is computed in",
                    self.nodes[self.close[inner]],
                    "scopes",
                )
            found = self.parent[found]
        return found

    # ---- what each node needs within its own block ----------------------------------------------

    cdef int need(self, int32_t user, int32_t source) except -1:
        cdef Edge *grown
        if self.n_edges == self.cap:
            self.cap = self.cap * 2 + 1024
            grown = <Edge *>realloc(self.edges, self.cap * sizeof(Edge))
            if grown == NULL:
                raise MemoryError()
            self.edges = grown
        self.edges[self.n_edges].user = user
        self.edges[self.n_edges].source = source
        self.n_edges += 1
        return 0

    cdef int find_needs(self) except -1:
        """An END stands for its whole loop, an ENDIF for its whole branch: its IF's condition."""
        cdef Py_ssize_t i
        cdef int32_t at, source
        cdef uint32_t k
        cdef CNode *n
        for i in range(self.n):
            self.home[i] = self.block(i)
        for i in range(self.n):
            n = self.nodes[i]
            if n.op == self.if_:
                continue  # its condition is its ENDIF's, its body its own
            if n.op == self.endif:
                self.need(i, self.place(n.src[0].src[0]))
            for k in range(n.nsrc):
                if n.src[k].op == OP_RANGE or n.src[k].op == self.if_:
                    continue
                source = self.place(n.src[k])
                at = self.home[source]
                if n.op == self.end and at == self.place(n.src[1]):
                    continue  # the loop's own body
                if at == self.home[i] and n.op != OP_RANGE:
                    self.need(i, source)
                elif self.home[i] != OUTSIDE:
                    self.need(self.close[self.child(self.home[i], at)], source)
                else:
                    raise self.fault(
                        "a value is used outside the loop it is computed in", n, "scopes"
                    )
        return 0

    cdef int sort_needs(self) except -1:
        """The edges user by user, each once, otherwise in their order."""
        cdef Py_ssize_t i
        cdef int32_t total = 0, kept = 0, start, user
        cdef int32_t *seen = self.items  # not in use yet: the last user of each source
        cdef int32_t k
        self.needs = <int32_t *>malloc((self.n_edges + 1) * sizeof(int32_t))
        if self.needs == NULL:
            raise MemoryError()
        memset(self.first, 0, (self.n + 2) * sizeof(int32_t))
        for i in range(self.n_edges):
            self.first[self.edges[i].user + 2] += 1
        for i in range(self.n):
            total += self.first[i + 1]
            self.first[i + 1] = total
        for i in range(self.n_edges):
            user = self.edges[i].user + 1
            self.needs[self.first[user]] = self.edges[i].source
            self.first[user] += 1
        for i in range(self.n):
            seen[i] = -1
        start = 0
        for user in range(<int32_t>self.n):
            total = self.first[user + 1]
            self.first[user] = kept
            for k in range(start, total):
                if seen[self.needs[k]] != user:
                    seen[self.needs[k]] = user
                    self.needs[kept] = self.needs[k]
                    kept += 1
            start = total
        self.first[self.n] = kept
        return 0

    # ---- the items of each block ----------------------------------------------------------------

    cdef int place_item(self, int32_t root, int32_t *stack) except -1:
        """Append `root` to `items`, behind what it needs."""
        cdef int32_t depth = 0, i, k
        cdef int32_t *next_need = self.depth  # not in use any more: the next source to look at
        if self.state[root]:
            return 0
        stack[0] = root
        next_need[root] = self.first[root]
        self.state[root] = 1
        while depth >= 0:
            i = stack[depth]
            if next_need[i] == self.first[i + 1]:
                self.state[i] = 2
                self.items[self.used] = i
                self.used += 1
                depth -= 1
                continue
            k = self.needs[next_need[i]]
            next_need[i] += 1
            if self.state[k] == 1:
                raise self.fault("loops need each other's results", self.nodes[k], "acyclic")
            if self.state[k] == 0:
                self.state[k] = 1
                next_need[k] = self.first[k]
                depth += 1
                stack[depth] = k
        return 0

    cdef int fill(self, list roots) except -1:
        """`roots` go to the outermost block; every other one is filled from its statements."""
        cdef int32_t *stack = <int32_t *>malloc((self.n + 1) * sizeof(int32_t))
        cdef int32_t head, place
        cdef uint32_t k, start, stop
        cdef CNode *n
        if stack == NULL:
            raise MemoryError()
        try:
            for root in roots:
                place = self.place(peek(root))
                if self.home[place] == OUTSIDE:
                    self.place_item(place, stack)
            self.begin[self.n], self.stop[self.n] = 0, self.used
            for head in range(<int32_t>self.n):
                if self.close[head] == UNKNOWN:
                    continue
                # The statements of a loop are what its END closes, of a branch what its IF lists.
                n = self.nodes[head]
                start, stop = 1, n.nsrc
                if n.op != self.if_:
                    n = self.nodes[self.close[head]]
                    start, stop = 0, 1
                self.begin[head] = self.used
                for k in range(start, stop):
                    place = self.place(n.src[k])
                    if self.home[place] == head:
                        self.place_item(place, stack)
                self.stop[head] = self.used
        finally:
            free(stack)
        return 0

    cdef list flat(self):
        """All items, blocks written out: head, items, END or ENDIF."""
        cdef list out = []
        cdef list outer = []  # (place among the items, head) of the blocks around
        cdef int32_t at = self.begin[self.n], block = self.n, i
        cdef CNode *n
        while True:
            if at == self.stop[block]:
                if not outer:
                    return out
                out.append(<object>object_of(self.nodes[self.close[block]]))
                at, block = outer.pop()
                continue
            i = self.items[at]
            n = self.nodes[i]
            at += 1
            if n.op == self.end or n.op == self.endif:
                outer.append((at, block))
                block = self.place(n.src[n.nsrc - 1])
                at = self.begin[block]
                n = self.nodes[block]
            out.append(<object>object_of(n))


def execution_order(list order, list roots, dict inside, list behind, tuple kinds):
    """See the stub."""
    cdef _Blocks blocks = _Blocks(order, *kinds)
    cdef int32_t later, earlier
    blocks.find_loops()
    if inside:
        blocks.find_branches(inside)
    blocks.find_needs()
    for user, sources in behind:
        later = blocks.place(peek(user))
        for source in sources:
            earlier = blocks.place(peek(source))
            if blocks.home[later] == blocks.home[earlier]:
                blocks.need(later, earlier)
    blocks.sort_needs()
    blocks.fill(roots)
    return blocks.flat()
