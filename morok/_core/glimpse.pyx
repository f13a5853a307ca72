"""What can be said of a rule from the ops around a node alone.

A program is run on what is known of a root before its sources are looked at: their ops, for each
whether a constant, an ADD or a MUL is among its own sources, of a constant whether it is 0, 1 or
-1, and whether the two have a source in common or one is a source of the other. A register is one
of the first two sources, or a source of one of these, or something of which nothing is known. What
is not known passes.
"""

from libc.stdint cimport int8_t, uint16_t, uint64_t, uint8_t

from morok._core.infer cimport (
    OP_ADD, OP_CONST, OP_MUL, OP_NEG, OP_SHL, OP_SUB, OP_VCONST, OP_VECTORIZE,
)
from morok._core.program cimport (
    CHECK, COMMUTE, Instruction, LOAD, MATCHED, MAX_REGISTERS, Program, SAME, TAKE, TEST_ARG,
    TEST_CONSTANT, TEST_LITERAL, TEST_MIN_NSRC, TEST_NSRC, TEST_NUMERIC, Test, WANTS_CONSTANTS,
    WANTS_CONST_RIGHT, WANTS_NODE_RIGHT, WANTS_POINT, WANTS_SUM,
)
from morok._core.types cimport (
    ARG_INT, CONST_ONE, CONST_OTHER, CONST_ZERO, NODE_KIN, NODE_LEFT_IN_RIGHT, NODE_OVER_ADD,
    NODE_OVER_CONST, NODE_OVER_MUL, NODE_POINT, NODE_RIGHT_IN_LEFT, const_class,
)

cdef enum:
    NUMBER_TESTS = TEST_CONSTANT | TEST_LITERAL | TEST_NUMERIC
    MANY = 3  # sources: so many, or more


cdef struct Known:
    int8_t place  # which source of the root it is, -1 = none of the first two
    int8_t parent  # of which source of the root it is a source, -1 = unknown


cdef inline bint _has(Test *t, uint64_t op) noexcept:
    return (t.ops1 >> (op - 64) if op >= 64 else t.ops0 >> op) & 1


cdef inline bint _only(Test *t, uint64_t op) noexcept:
    """Whether `op` is the one that passes."""
    if op >= 64:
        return t.ops0 == 0 and t.ops1 == <uint64_t>1 << (op - 64)
    return t.ops1 == 0 and t.ops0 == <uint64_t>1 << op


cdef inline bint _number(uint64_t op) noexcept:
    return op == OP_CONST or op == OP_VCONST or op == OP_VECTORIZE


cdef bint _may_pass(Test *t, Known k, Glimpse *g) noexcept:
    cdef uint64_t op
    cdef uint16_t over
    if k.place >= 0:
        op = g.ops[k.place]
        if not _has(t, op) or (t.flags & NUMBER_TESTS and not _number(op)):
            return False
        return op != OP_CONST or _may_be(t, g.values[k.place])
    if k.parent < 0:
        return True
    over = g.over[k.parent]
    if t.flags & NUMBER_TESTS or _only(t, OP_CONST):
        return over & NODE_OVER_CONST != 0
    if _only(t, OP_ADD):
        return over & NODE_OVER_ADD != 0
    if _only(t, OP_MUL):
        return over & NODE_OVER_MUL != 0
    return True


cdef inline bint _may_be(Test *t, uint16_t value) noexcept:
    """Whether a CONST of this class may pass."""
    if t.flags & (TEST_LITERAL | TEST_ARG):
        return const_class(t.akind, t.iarg) == value
    return not t.flags & TEST_NUMERIC or const_class(ARG_INT, t.iarg) == value


cdef bint _may_be_same(Known a, Known b, Glimpse *g) noexcept:
    """Whether two registers may hold one node."""
    if a.place >= 0 and b.place >= 0:
        return a.place == b.place or g.same
    if g.nsrc != 2 or a.place + a.parent < -1 or b.place + b.parent < -1:
        return True
    if a.place < 0 and b.place < 0:
        return a.parent == b.parent or g.flags & NODE_KIN != 0
    if a.place < 0:
        a, b = b, a
    # a is a source of the root, b a source of one
    if a.place == b.parent:
        return False
    return g.flags & (NODE_RIGHT_IN_LEFT if a.place == 1 else NODE_LEFT_IN_RIGHT) != 0


cdef inline Known _source(Known *reg, Instruction *x, Glimpse *g) noexcept:
    """What stands at source `x.index` of a register."""
    cdef Known k
    k.place = k.parent = -1
    if x.src == 0 and x.index < 2:
        k.place = <int8_t>x.index
    elif x.src != 0:
        k.parent = reg[x.src].place
    return k


cdef bint _plain(uint64_t op) noexcept:
    """Whether sums take a node of this op for one atom."""
    return not (op == OP_ADD or op == OP_SUB or op == OP_NEG or op == OP_MUL or op == OP_SHL
                or _number(op))


cdef bint _number_at(Glimpse *g, int i) noexcept:
    """Whether the constant at source i is a number for certain."""
    return g.ops[i] == OP_CONST and g.values[i] != CONST_OTHER


cdef bint _may_sum(Glimpse *g) noexcept:
    """Whether terms of a sum may be put together or in another order."""
    if g.nsrc != 2:
        return True
    if g.op == OP_MUL and not (_number(g.ops[0]) or _number(g.ops[1])):
        return False
    if g.op != OP_MUL and g.op != OP_ADD:
        return True
    # x + 3, x * 3: nothing to be done
    return not (_plain(g.ops[0]) and _number_at(g, 1) and g.values[1] != CONST_ZERO
                and (g.op == OP_ADD or g.values[1] != CONST_ONE))


cdef bint _wanted(uint8_t wants, Glimpse *g) noexcept:
    """Whether a node has what a native rule wants."""
    if wants & WANTS_POINT and not g.flags & NODE_POINT:
        return False
    if wants & WANTS_CONSTANTS and g.nsrc:
        if not _number(g.ops[0]) or (g.nsrc == 2 and not _number(g.ops[1])):
            return False
    if g.nsrc >= 2:
        if wants & WANTS_CONST_RIGHT and not _number(g.ops[1]):
            return False
        if wants & WANTS_NODE_RIGHT and _number_at(g, 1):
            return False
    return not wants & WANTS_SUM or _may_sum(g)


cdef bint could_match(Program p, Glimpse *g) noexcept:
    cdef Known reg[MAX_REGISTERS + 1]
    cdef Instruction *x = p.steps
    cdef Instruction *choice = NULL  # the root's sources, of which the other order is to be tried
    cdef bint swapped = False, ok
    if g.nsrc < MANY:
        if p.root.flags & TEST_NSRC and p.root.nsrc != g.nsrc:
            return False
        if p.root.flags & TEST_MIN_NSRC and p.root.nsrc > g.nsrc:
            return False
    if p.native != NULL:
        return _wanted(p.wants, g)
    reg[0].place = reg[0].parent = -1
    while x.kind != MATCHED:
        ok = True
        if x.kind == LOAD:
            reg[x.dst] = _source(reg, x, g)
            ok = _may_pass(&x.test, reg[x.dst], g)
        elif x.kind == TAKE:
            reg[x.dst] = _source(reg, x, g)
        elif x.kind == CHECK:
            ok = x.dst == 0 or _may_pass(&x.test, reg[x.dst], g)
        elif x.kind == SAME:
            ok = _may_be_same(reg[x.dst], reg[x.src], g)
        elif x.kind == COMMUTE:
            reg[x.dst] = reg[x.dst + 1] = _source(reg, x, g)
            if x.src == 0:
                reg[x.dst].place = swapped
                reg[x.dst + 1].place = not swapped
                choice = NULL if swapped else x
        if ok:
            x += 1
            continue
        if choice == NULL:
            return False
        x = choice
        swapped = True
    return True
