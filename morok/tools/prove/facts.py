"""What a guard says of dtypes alone: most choices of sorts are out before z3 is asked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from morok.ir import Rule
from morok.tools.prove.sorts import Sort

INDEX_BITS = 64
Fact = Any  # bool, int, or None for what dtypes do not tell

COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "max": max, "min": min,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
ONE_OPERAND = ("neg", "wneg", "not", "is_pow2", "log2")
LEAVES = ("value", "vmin", "vmax", "lowest", "highest", "lanes", "is_const", "same")


def never_holds(rule: Rule, typing: Mapping[object, Sort]) -> bool:
    """Whether the guard is false whatever the values, at these sorts of the captures."""
    sorts = {register: typing[name] for name, register in rule.registers.items()}
    stack: list[Fact] = []
    for name, *operands in rule.guard_code:
        if name == "k":
            stack.append(operands[0])
        elif name == "kind":
            stack.append(sorts[operands[0]].kind in operands[1])
        elif name == "bits":
            sort = sorts[operands[0]]
            stack.append(INDEX_BITS if sort.kind == "x" else sort.bits)
        elif name == "same_dtype":
            stack.append(sorts[operands[0]] == sorts[operands[1]])
        elif name in LEAVES:
            stack.append(None)
        elif name in ONE_OPERAND:
            known = stack.pop()
            stack.append(not known if name == "not" and known is not None else None)
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(_combined(name, a, b))
    return bool(stack) and stack[-1] is not None and not stack[-1]


def _combined(name: str, a: Fact, b: Fact) -> Fact:
    if name == "and":
        if False in (a, b) or 0 in (a, b):
            return False
        return None if None in (a, b) else True
    if name == "or":
        if a or b:
            return True
        return None if None in (a, b) else False
    if None in (a, b) or name not in COMPUTED:
        return None
    return COMPUTED[name](a, b)
