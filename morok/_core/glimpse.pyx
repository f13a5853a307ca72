"""What can be said of a rule from the ops around a node alone.

A program is run on what is known of a root before its sources are looked at: their ops, and for
each whether a constant, an ADD or a MUL is among its own sources. A register is one of the first
two sources, or something of which at most its parent is known. What is not known passes.
"""

from libc.stdint cimport int8_t, uint64_t, uint8_t

from morok._core.infer cimport OP_ADD, OP_CONST, OP_MUL, OP_VCONST, OP_VECTORIZE
from morok._core.program cimport (
    CHECK, COMMUTE, Instruction, LOAD, MATCHED, MAX_REGISTERS, Program, SAME, TAKE, TEST_CONSTANT,
    TEST_LITERAL, TEST_MIN_NSRC, TEST_NSRC, TEST_NUMERIC, Test,
)
from morok._core.types cimport NODE_OVER_ADD, NODE_OVER_CONST, NODE_OVER_MUL

cdef enum:
    NUMBER_TESTS = TEST_CONSTANT | TEST_LITERAL | TEST_NUMERIC
    OVER_ANY = NODE_OVER_CONST | NODE_OVER_ADD | NODE_OVER_MUL
    MANY = 3  # sources: so many, or more


cdef struct Known:
    int8_t place  # which source of the root it is, -1 = unknown
    uint8_t over  # for an unknown node: NODE_OVER bits of its parent, OVER_ANY = unknown


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
    if k.place >= 0:
        op = g.ops[k.place]
        return _has(t, op) and (not t.flags & NUMBER_TESTS or _number(op))
    if t.flags & NUMBER_TESTS or _only(t, OP_CONST):
        return k.over & NODE_OVER_CONST != 0
    if _only(t, OP_ADD):
        return k.over & NODE_OVER_ADD != 0
    if _only(t, OP_MUL):
        return k.over & NODE_OVER_MUL != 0
    return True


cdef inline Known _source(Known *reg, Instruction *x, Glimpse *g) noexcept:
    """What stands at source `x.index` of a register."""
    cdef Known k
    k.place = -1
    k.over = OVER_ANY
    if x.src == 0 and x.index < 2:
        k.place = <int8_t>x.index
    elif x.src != 0 and reg[x.src].place >= 0:
        k.over = g.over[reg[x.src].place]
    return k


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
    reg[0].place = -1
    reg[0].over = OVER_ANY
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
            if x.dst and x.src and reg[x.dst].place >= 0 and reg[x.src].place >= 0:
                ok = reg[x.dst].place == reg[x.src].place or g.same
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
