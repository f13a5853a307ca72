"""Stage 20, second half: branches around long computations that a condition makes pointless.

A WHERE computes both its arms. Where one arm alone needs dozens of ops (the reduction of huge
arguments of sin and cos) and its condition holds for no lane, they are skipped:

    WHERE(c, rare, usual)  ->  reg = usual
                               IF(some lane of c): reg = WHERE(c, rare, usual); ENDIF
                               reg

Only arithmetic moves into the branch: it cannot fail, so that the values are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce as fold

from morok._core import rebuild_together, toposort
from morok.dtype import AddrSpace, dtypes
from morok.ir import Capability, GroupOp, Ops, UOp
from morok.optimizer import conjuncts, memory_of

__all__ = ["PURE", "branch_around", "inside_branches", "skip_sums"]

LEAST_OPS = 48
"""Fewer ops than this cost less than the branch."""

PURE = frozenset(
    {*GroupOp.ALU, Ops.CAST, Ops.BITCAST, Ops.VECTORIZE, Ops.GEP, Ops.CAT, Ops.INDEX, Ops.AFTER}
)
"""Ops that may stand behind a branch: they touch no memory."""


def skip_sums(sink: UOp) -> UOp:
    """Goal: a sum that conditions leave out is not computed.

    Before: WHERE(c, sum, 0), the sum a register that a loop updates, which runs whatever c says.
    After, where nothing else needs what the loop computes and c, or a part of it, is one for all
    lanes, the loop has no iteration unless that holds:

        RANGE(end)  ->  RANGE(WHERE(c, end, 0))

    Sums side by side share the loop: it runs if the condition of one of them holds. A condition on
    a loop that the sum stands outside of is of no use: the sum is formed before it is known.

    A sum that goes on where an outer one stands, WHERE(c, sum, what it began with), is that without
    asking where the loop runs for c alone.
    """
    if not sink.has(Ops.WHERE) or not sink.has(Ops.END):
        return sink
    order = toposort(sink)
    users: dict[UOp, list[UOp]] = {node: [] for node in order}
    for node in order:
        for source in node.src:
            users[source].append(node)
    asked: dict[UOp, UOp] = {}  # inner loops before outer ones
    certain: dict[UOp, UOp] = {}
    for node in order:
        if node.op is not Ops.END or not _only_sums(node):
            continue
        choices = _choices(node, users)
        conditions = _weakest(choices.values())
        if not conditions:
            continue
        needed = fold(lambda a, b: a | b, conditions)
        if not needed.open_ranges or not set(needed.open_ranges) <= set(node.open_ranges):
            continue  # else it is asked in an inner loop
        asked[node.src[1]] = needed
        first = _first_values(node)
        for choice, condition in choices.items():
            goes_on = first.get(memory_of(choice.src[1].src[1])) is choice.src[2]
            if condition is needed and goes_on and _same_for_all_lanes(choice.src[0]):
                certain[choice] = choice.src[1].substitute(certain)
    skipped: dict[UOp, UOp] = {}
    for rng, needed in reversed(asked.items()):
        # What is asked may count a loop that is skipped itself.
        end = needed.substitute(skipped).where(rng.src[0], UOp.const(rng.src[0].dtype, 0))
        skipped[rng] = UOp(Ops.RANGE, rng.dtype, (end, *rng.src[1:]), rng.arg)
    return sink.substitute(certain).substitute(skipped) if skipped else sink


def _only_sums(end: UOp) -> bool:
    """Does a loop write nothing but registers?"""
    stack = [end.src[0]]
    while stack:
        node = stack.pop()
        if node.op is Ops.GROUP:
            stack += node.src
        elif node.op is Ops.END:
            stack.append(node.src[0])
        elif node.op is not Ops.STORE or node.src[0].src[0].dtype.addrspace is not AddrSpace.REG:
            return False
    return True


def _choices(end: UOp, users: dict[UOp, list[UOp]]) -> dict[UOp, UOp]:
    """The WHEREs that choose what a loop computes, each with its condition; none if something else
    needs it, too."""
    choices: dict[UOp, UOp] = {}
    stack = list(users[end])
    seen: dict[UOp, None] = {}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if node.op is Ops.AFTER or node.op is Ops.INDEX:
            stack += users[node]
        elif node.op is Ops.LOAD and users[node]:
            for user in users[node]:
                chosen = user.op is Ops.WHERE and node is user.src[1] and node is not user.src[2]
                condition = _scalar(user.src[0]) if chosen else None
                if condition is None or condition.has(Ops.LOAD):
                    return {}
                choices[user] = condition
        else:
            return {}
    return choices


def _weakest(conditions: Iterable[UOp]) -> list[UOp]:
    """Of some conditions those without which others may hold: a & b says nothing beside a."""
    terms = {condition: frozenset(conjuncts(condition)) for condition in conditions}
    return [
        condition
        for condition, own in terms.items()
        if not any(other < own for other in terms.values())
    ]


def _first_values(end: UOp) -> dict[UOp, UOp]:
    """What the registers that a loop updates begin with."""
    found: dict[UOp, UOp] = {}
    stack = [end.src[0]]
    while stack:
        node = stack.pop()
        if node.op is Ops.STORE:
            for init in node.src[0].src[0].src[1:]:
                if init.op is Ops.STORE:
                    found[memory_of(node.src[0])] = init.src[1]
        else:
            stack += node.src if node.op is Ops.GROUP else node.src[:1]
    return found


def _scalar(condition: UOp) -> UOp | None:
    """What a condition is for all lanes alike, or of several that all must hold, those that are."""
    if condition.dtype.count == 1:
        return condition
    if condition.op is Ops.AND:
        parts = [part for source in condition.src if (part := _scalar(source)) is not None]
        return fold(lambda a, b: a & b, parts) if parts else None
    same = condition.op is Ops.VECTORIZE and len(set(condition.src)) == 1
    return condition.src[0] if same else None


def _same_for_all_lanes(condition: UOp) -> bool:
    """Is that (`_scalar`) all that a condition says?"""
    if condition.op is Ops.AND:
        return all(map(_same_for_all_lanes, condition.src))
    return condition.dtype.count == 1 or _scalar(condition) is not None


def branch_around(sink: UOp, capability: Capability) -> UOp:
    """Goal: the work of a rare arm is done only if some lane needs it.

    Before: WHEREs choose between values that are computed always. After: an arm of at least
    LEAST_OPS ops used for nothing else is computed within IF … ENDIF, and the choice is made there;
    WHEREs of one condition share it.
    """
    if Ops.IF not in capability.ops or not sink.has(Ops.WHERE):
        return sink
    order = toposort(sink)
    arms = _exclusive(order)
    size: dict[UOp, int] = {}
    for condition in arms.values():
        size[condition] = size.get(condition, 0) + 1
    chosen = {condition for condition, count in size.items() if count >= LEAST_OPS}
    if not chosen:
        return sink
    taken = [
        node
        for node in order
        if node.op is Ops.WHERE and node.src[0] in chosen and node.src[1] in arms
    ]
    return _rebuilt(order, {node for node in taken if arms[node.src[1]] is node.src[0]})


def _exclusive(order: list[UOp]) -> dict[UOp, UOp]:
    """Nodes that only the first arms of WHEREs of one condition need: node -> the condition."""
    users: dict[UOp, list[UOp]] = {node: [] for node in order}
    for node in order:
        for source in node.src:
            users[source].append(node)
    owner: dict[UOp, UOp] = {}
    for node in reversed(order):
        if node.op not in PURE or not users[node]:
            continue
        conditions = {_condition(node, user, owner) for user in users[node]}
        if len(conditions) == 1 and (condition := conditions.pop()) is not None:
            owner[node] = condition
    return owner


def _condition(node: UOp, user: UOp, owner: dict[UOp, UOp]) -> UOp | None:
    """The condition under which `user` needs `node`; None if it may always."""
    if user.op is Ops.WHERE and user.src[1] is node and node not in (user.src[0], user.src[2]):
        condition: UOp = user.src[0]
        # In the same loops: what an outer loop computes is best left there.
        if node.open_ranges == user.open_ranges == condition.open_ranges:
            return owner.get(user, condition)
    inherited = owner.get(user)
    return inherited if inherited is not None and node.open_ranges == user.open_ranges else None


def _groups(order: list[UOp], taken: set[UOp]) -> dict[UOp, list[UOp]]:
    """Which WHEREs share an IF with each: those of one condition with equally many taken ones one
    below another under them. So no member of a group waits for its own group."""
    below: dict[UOp, int] = {}
    shared: dict[tuple[UOp, int], list[UOp]] = {}
    groups: dict[UOp, list[UOp]] = {}
    for node in order:
        depth = max((below[source] for source in node.src), default=0)
        if node in taken:
            groups[node] = shared.setdefault((node.src[0], depth), [])
            groups[node].append(node)
            depth += 1
        below[node] = depth
    return groups


def _rebuilt(order: list[UOp], taken: set[UOp]) -> UOp:
    """The graph with the WHEREs `taken` made within IFs, a group in one."""
    number = 1 + max((n.arg[1] for n in order if n.op is Ops.DEFINE_REG), default=-1)

    def branch(wheres: Sequence[UOp], values: list[tuple[UOp, ...]]) -> list[UOp]:
        nonlocal number
        number += len(wheres)
        return _branch(values, number - len(wheres))

    groups = {group[0]: group for group in _groups(order, taken).values()}
    done: UOp = rebuild_together(order[-1], [*groups.values()], branch)
    return done


def _branch(choices: list[tuple[UOp, ...]], number: int) -> list[UOp]:
    """WHERE(c, rare, usual) of several (c, rare, usual) with one c, by way of registers."""
    condition = choices[0][0]
    registers, stores = [], []
    for offset, (_, rare, usual) in enumerate(choices):
        dtype = usual.dtype
        reg = UOp(Ops.DEFINE_REG, dtype.ptr(AddrSpace.REG), (), (1, number + offset))
        ranges = UOp(Ops.WHERE, dtype, (condition, rare, usual)).open_ranges
        init = _slot(reg.after(*ranges)).store(usual)
        value = rare if condition.dtype.count == 1 else condition.where(rare, usual)
        stores.append(_slot(reg.after(init)).store(value))
        registers.append(reg)
    end = UOp.if_(condition, *stores).endif()
    return [_slot(reg.after(end)).load() for reg in registers]


def _slot(reg: UOp) -> UOp:
    return UOp(Ops.INDEX, reg.dtype.base, (reg, UOp.const(dtypes.int32, 0)), False)


def inside_branches(order: list[UOp]) -> dict[UOp, UOp]:
    """What stands within the IFs of a graph: node -> its IF. Bodies, and what only they need."""
    home: dict[UOp, UOp] = {}
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for source in node.src:
            users.setdefault(source, []).append(node)
    for node in reversed(order):
        if node.op is Ops.IF:
            for statement in node.src[1:]:
                home[statement] = node
        elif node not in home and node.op in PURE:
            homes = {home.get(user) for user in users.get(node, ())}
            branch = homes.pop() if len(homes) == 1 else None
            if branch is not None and node.open_ranges == branch.open_ranges:
                home[node] = branch
    return home
