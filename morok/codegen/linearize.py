"""Stages 19 to 22: from a kernel's graph to the flat list of ops a renderer reads.

19  final_rewrite   every END closes one range; vector ops only as the target has them
20  control_flow    every RANGE is one loop: statements that close it share it; see also `branches`
21  linearize       the order of execution
22  add_ifs         gated stores stand in IF … ENDIF where the target has no other way

Where an op stands is decided by its open ranges alone: in the block of the innermost loop among
them. So what does not change in a loop is computed outside it, and a REDUCE between an outer and an
inner loop of a STORE needs no special case. Order within a block follows from dependencies alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce as fold
from operator import or_

from morok._core import execution_order, rebuild, rebuild_together, toposort
from morok.codegen.branches import inside_branches
from morok.dtype import AddrSpace, dtypes
from morok.ir import AxisId, AxisType, Capability, GroupOp, Ops, UOp
from morok.optimizer import next_number

__all__ = ["add_ifs", "control_flow", "final_rewrite", "linearize"]

# ---- stage 19 ------------------------------------------------------------------------------------


def final_rewrite(sink: UOp, capability: Capability) -> UOp:
    """Stage 19. Goal: few forms are left for the linearizer and the renderer.

    Before: STORE(i, v, *ranges) and END(x, *ranges) close any number of ranges. After: only ENDs
    close ranges, one each, the innermost loop first:

        STORE(i, v, r0, r1) -> END(END(STORE(i, v), r1), r0)

    A range that the statement does not depend on is dropped: repeating it changes nothing. CAT and
    VCONST become VECTORIZE unless the target has them.
    """
    visit = {Ops.STORE: _closed_store, Ops.END: lambda _, src: _closed(src[0], src[1:])}
    visit |= {op: by for op, by in _BY_LANE.items() if op not in capability.ops}
    done: UOp = rebuild(sink, visit)
    return done


def _closed_store(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return _closed(UOp(Ops.STORE, node.dtype, src[:2]), src[2:])


def _joined_lanes(node: UOp, src: tuple[UOp, ...]) -> UOp:
    lanes = [s.gep(i) if s.dtype.count > 1 else s for s in src for i in _lanes(s)]
    return UOp(Ops.VECTORIZE, node.dtype, tuple(lanes))


def _constant_lanes(node: UOp, _: tuple[UOp, ...]) -> UOp:
    lanes = [UOp(Ops.CONST, node.dtype.scalar, (), value) for value in node.arg]
    return UOp(Ops.VECTORIZE, node.dtype, tuple(lanes))


_BY_LANE = {Ops.CAT: _joined_lanes, Ops.VCONST: _constant_lanes}


def _lanes(vector: UOp) -> range:
    return range(vector.dtype.count)


def _closed(statement: UOp, ranges: Iterable[UOp]) -> UOp:
    """Loops around a statement, the highest axis number innermost."""
    is_open = set(statement.open_ranges)
    wanted = [rng for rng in dict.fromkeys(ranges) if rng in is_open]
    for rng in sorted(wanted, key=_loop_order, reverse=True):
        statement = UOp(Ops.END, dtypes.void, (statement, rng))
    return statement


def _loop_order(rng: UOp) -> tuple[int, bytes]:
    return rng.arg[0].number, rng.key


# ---- stage 20 ------------------------------------------------------------------------------------


def control_flow(sink: UOp) -> UOp:
    """Stage 20. Goal: a RANGE is a loop: exactly one END closes it.

    Before: several ENDs may close a RANGE. After: those in one scope that do not need each other's
    results are one,

        END(a, r), END(b, r) -> END(GROUP(a, b), r)

    and those that cannot share the loop (one needs the other, or they stand in different scopes)
    close a RANGE of their own, in which their statements are computed anew.
    """
    while True:
        order = toposort(sink, having=Ops.END)
        closers: dict[UOp, list[UOp]] = {}
        for node in order:
            if node.op is Ops.END:
                closers.setdefault(node.src[1], []).append(node)
        shared = {rng: ends for rng, ends in closers.items() if len(ends) > 1}
        if not shared:
            return sink
        apart = _first_conflict(order, shared)
        if apart is None:
            return _merged(sink, shared)
        sink = _separated(sink, apart, next_number(sink))


def _first_conflict(order: list[UOp], shared: dict[UOp, list[UOp]]) -> list[UOp] | None:
    """ENDs of the outermost range that must leave its loop; None if all can share.

    Sets of ENDs are bit masks. `above[e]` is what must be complete before e's loop starts or within
    it, and grows as loops are merged, since a loop as a whole waits for what any part waits for.
    """
    ends = [end for group in shared.values() for end in group]
    bit = {end: 1 << i for i, end in enumerate(ends)}
    above = _needs(order, bit)
    for rng in sorted(shared, key=_loop_order):
        # What an END needs, needs less than the END.
        group = sorted(shared[rng], key=lambda end: above[end].bit_count())
        mask = sum(bit[end] for end in group)
        kinds: dict[tuple[tuple[UOp, ...], int], list[UOp]] = {}
        for end, level in _levels(group, bit, above, mask):
            kinds.setdefault((end.open_ranges, level), []).append(end)
        if len(kinds) > 1:
            return list(kinds.values())[1]
        union = mask
        for end in group:
            union |= above[end]
        for end in ends:
            if above[end] & mask:
                above[end] |= union
        if union != mask:
            for end in group:
                above[end] |= union & ~mask
    return None


def _levels(
    group: list[UOp], bit: dict[UOp, int], above: dict[UOp, int], mask: int
) -> Iterator[tuple[UOp, int]]:
    """Each END of a group, sources first, with how many others one behind another it waits for."""
    at: list[int] = []  # the ENDs of each level
    for end in group:
        needed = above[end] & mask
        level = len(at)
        while level and not needed & at[level - 1]:
            level -= 1
        if level == len(at):
            at.append(0)
        at[level] |= bit[end]
        yield end, level


def _needs(order: list[UOp], bit: dict[UOp, int]) -> dict[UOp, int]:
    """For each END of `bit`, the others below it; `order` lists what has an END here or below."""
    below: dict[UOp, int] = {}
    needs: dict[UOp, int] = {}
    for node in order:
        mask = 0
        for source in node.src:
            if source in below:
                mask |= below[source]
        if node in bit:
            needs[node] = mask
            mask |= bit[node]
        below[node] = mask
    return needs


def _separated(sink: UOp, ends: list[UOp], number: int) -> UOp:
    """`ends`, all of one range, close a range numbered `number` instead."""
    old = ends[0].src[1]
    axis, kind = old.arg
    fresh = UOp(Ops.RANGE, old.dtype, old.src, (AxisId(number, axis.renumbered), kind))
    bodies = [end.src[0] for end in ends]
    new: dict[UOp, UOp] = {old: fresh}
    # Only where the range is open: a loop over it that is complete is not the one renamed.
    for node in toposort(bodies, stop=lambda node: old not in node.open_ranges):
        if node not in new:
            if old in node.open_ranges:
                src = tuple([new[source] for source in node.src])
                new[node] = UOp(node.op, node.dtype, src, node.arg)
            else:
                new[node] = node
    renamed = {
        end: UOp(Ops.END, end.dtype, (new[body], fresh))
        for end, body in zip(ends, bodies, strict=True)
    }
    return sink.substitute(renamed)


def _merged(sink: UOp, shared: dict[UOp, list[UOp]]) -> UOp:
    """The ENDs of each range as one END of a GROUP."""
    done: UOp = rebuild_together(sink, [*shared.values()], _one_end)
    return done


def _one_end(ends: Sequence[UOp], sources: list[tuple[UOp, ...]]) -> list[UOp]:
    bodies = tuple(dict.fromkeys(body for body, _ in sources))
    body = UOp(Ops.GROUP, dtypes.void, bodies) if len(bodies) > 1 else bodies[0]
    return [UOp(Ops.END, dtypes.void, (body, sources[0][1]))] * len(ends)


# ---- stage 21 ------------------------------------------------------------------------------------

_DEFINITIONS = (Ops.PARAM, Ops.DEFINE_VAR, Ops.DEFINE_LOCAL, Ops.DEFINE_REG)


def linearize(sink: UOp) -> UOp:
    """Stage 21. Goal: a LINEAR, which can be read from front to back.

    Before: each END closes one RANGE and each RANGE has one END. After: every op stands behind its
    sources; RANGE … END bracket a loop's body; definitions come first and the SINK last. The order
    depends on the graph's structure only. InvalidGraphError for a range that is never closed.

    What does not need a loop of type THREAD follows it, so that one thread alone may run it.
    """
    order = toposort(sink)
    shared = [node for node in reversed(order) if node.op is Ops.END and _is_shared(node.src[1])]
    inside = inside_branches(order) if sink.has(Ops.IF) else {}
    body = execution_order(
        order, [*shared, sink], inside, _reads_of_old_contents(order), _BLOCK_OPS
    )
    first = [op for op in body if op.op in _DEFINITIONS]
    first.sort(key=lambda op: (_DEFINITIONS.index(op.op), op.arg))
    rest = [op for op in body if op.op not in _DEFINITIONS]
    return UOp(Ops.LINEAR, dtypes.void, (*first, *rest))


_BLOCK_OPS = (Ops.END, Ops.IF, Ops.ENDIF)


def _is_shared(head: UOp) -> bool:
    """Whether threads share out the iterations of a loop."""
    return head.op is Ops.RANGE and head.arg[1] is AxisType.THREAD


def _reads_of_old_contents(order: list[UOp]) -> list[tuple[UOp, list[UOp]]]:
    """Each STORE to a PARAM with the LOADs of it that are not after it: they see the old contents.

    A LOAD that is to see what a STORE wrote says so: its pointer is AFTER(PARAM, the STORE).
    """
    reads: dict[UOp, list[UOp]] = {}
    for node in order:
        if node.op is Ops.LOAD and node.src[1].src[0].op is Ops.PARAM:
            reads.setdefault(node.src[1].src[0], []).append(node)
    stores = [node for node in order if node.op is Ops.STORE and _param(node) in reads]
    if not stores:
        return []
    bit = {store: 1 << i for i, store in enumerate(stores)}
    behind: dict[UOp, int] = {}
    for node in toposort(order[-1], having=Ops.STORE):
        mask = bit.get(node, 0)
        for source in node.src:
            if source in behind:
                mask |= behind[source]
        behind[node] = mask
    after = {  # any of these stores
        param: fold(or_, (behind.get(read, 0) for read in found)) for param, found in reads.items()
    }
    return [(store, _not_after(store, bit[store], reads, behind, after)) for store in stores]


def _not_after(
    store: UOp,
    bit: int,
    reads: dict[UOp, list[UOp]],
    behind: dict[UOp, int],
    after: dict[UOp, int],
) -> list[UOp]:
    found = reads[_param(store)]
    if not after[_param(store)] & bit:
        return found
    return [read for read in found if not behind.get(read, 0) & bit]


def _param(store: UOp) -> UOp:
    pointer: UOp = store.src[0].src[0]
    while pointer.op is Ops.AFTER:
        pointer = pointer.src[0]
    return pointer


# ---- stage 22 ------------------------------------------------------------------------------------

_PURE = (GroupOp.ALU | {Ops.CAST, Ops.BITCAST, Ops.INDEX, Ops.CONST, Ops.VCONST}) | {
    Ops.VECTORIZE,
    Ops.GEP,
    Ops.CAT,
}


def add_ifs(linear: UOp, capability: Capability) -> UOp:
    """Stage 22. Goal: a store under a condition is a store in an IF.

    Before: STORE(INDEX(b, i, gate), v). After: IF(gate, STORE(INDEX(b, i), v)), STORE(…), ENDIF;
    neighbouring stores with one gate share the IF. Stores whose gate differs by lane stay: the
    target is predicated or renders them lane by lane; stores to registers never have gates.
    """
    if all(_scalar_gate(op) is None for op in linear.src):
        return linear
    out: list[UOp] = []
    new: dict[UOp, UOp] = {}
    gate: UOp | None = None
    start = 0
    body: list[UOp] = []

    def finish() -> None:
        nonlocal gate
        if gate is not None:
            head = UOp(Ops.IF, dtypes.void, (gate, *body))
            out[start:start] = [head]
            out.append(UOp(Ops.ENDIF, dtypes.void, (head,)))
            gate = None

    for op in linear.src:
        src = tuple([new.get(source, source) for source in op.src])
        copy = op if src == op.src else UOp(op.op, op.dtype, src, op.arg)
        wanted = _scalar_gate(copy)
        if wanted is None:
            if gate is not None and copy.op in _PURE:
                out.insert(start, copy)  # computed before the condition is asked
                start += 1
            else:
                finish()
                out.append(copy)
        else:
            if gate is not wanted:
                finish()
                gate, start, body = wanted, len(out), []
            index = copy.src[0]
            plain = UOp(Ops.INDEX, index.dtype, index.src[:-1], False)
            copy = UOp(Ops.STORE, copy.dtype, (plain, *copy.src[1:]))
            out.insert(start, plain)
            start += 1
            out.append(copy)
            body.append(copy)
        if copy is not op:
            new[op] = copy
    finish()
    return UOp(Ops.LINEAR, dtypes.void, tuple(dict.fromkeys(out)))


def _scalar_gate(op: UOp) -> UOp | None:
    """The condition of a gated STORE that is one for all lanes."""
    if op.op is not Ops.STORE or op.src[0].op is not Ops.INDEX or not op.src[0].arg:
        return None
    gate = op.src[0].src[-1]
    memory = op.src[0].src[0].dtype.addrspace is not AddrSpace.REG
    return gate if gate.dtype.count == 1 and memory else None
