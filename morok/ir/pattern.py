"""Patterns: what a rule's left side asks of a node and of what lies below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from morok.dtype import DType
from morok.errors import RuleError
from morok.ir.ops import Ops
from morok.ir.optable import OPS
from morok.ir.terms import (
    ANY,
    Apply,
    Capture,
    Const,
    DTypeOf,
    Literal,
    Term,
    check_kinds,
    lift,
    walk,
)

CONSTANT_OPS: Final = frozenset({Ops.CONST, Ops.VCONST, Ops.VECTORIZE})
"""Ops of the nodes that can be what `Const` captures: a number, or a vector repeating one."""


class Pat:
    """A pattern of one node.

    ops    an op, several, or None for any
    src    patterns of its sources: Pat, None (anything), a symbol (`Var`, `Const`, an expression)
           or a number; None asks nothing of the sources. Two sources of a commutative op match in
           either order
    name   captures the node; one name at two places means the same node at both
    dtype  a class string such as "iux", or one DType (of a lane)
    arg    the exact argument; types, signs of zero and bits of NaN count
    rest   whether more sources may follow those of `src`
    """

    __slots__ = ("arg", "constant", "dtype", "kinds", "literal", "name", "ops", "rest", "src")

    def __init__(
        self,
        ops: Ops | Iterable[Ops] | None = None,
        src: tuple[object, ...] | None = None,
        *,
        name: str | None = None,
        dtype: str | DType | None = None,
        arg: Any = ANY,
        rest: bool = False,
    ) -> None:
        self.ops: frozenset[Ops] | None = _ops(ops)
        self.src: tuple[Pat, ...] | None = None
        if src is not None:
            parts = items(src, None, "src of a pattern", "a tuple of patterns")
            self.src = tuple(map(as_pattern, parts))
        self.name = name
        self.kinds: str | None = check_kinds(dtype) if isinstance(dtype, str) else None
        self.dtype: DType | None = dtype if isinstance(dtype, DType) else None
        self.arg = arg
        self.rest = rest
        self.constant = False
        self.literal: Literal | None = None
        if dtype is not None and self.kinds is None and self.dtype is None:
            raise RuleError(f"dtype={dtype!r}: expected a class string such as 'iux', or a DType")
        if rest and src is None:
            raise RuleError("rest=True needs the patterns of the first sources")

    @property
    def anything(self) -> bool:
        """Whether every node matches."""
        return (
            self.ops is None
            and self.src is None
            and self.kinds is None
            and self.dtype is None
            and self.literal is None
            and self.arg is ANY
            and not self.constant
        )

    @property
    def commutes(self) -> bool:
        """Whether the two sources are tried in both orders."""
        return (
            self.src is not None
            and len(self.src) == 2
            and not self.rest
            and self.ops is not None
            and all(OPS[op].commutative for op in self.ops)
        )

    @property
    def order(self) -> tuple[int, ...]:
        """The order in which the sources are checked: what fails most often first."""
        src = self.src or ()
        return tuple(sorted(range(len(src)), key=lambda i: (_openness(src[i]), i)))

    def walk(self) -> Iterator[Pat]:
        """This pattern and all below it, outside first."""
        yield self
        for part in self.src or ():
            yield from part.walk()

    def __repr__(self) -> str:
        if self.literal is not None:
            return repr(self.literal.value)
        parts = []
        if self.ops is not None:
            names = sorted(op.name for op in self.ops)
            parts.append(names[0] if len(names) == 1 else "{" + ", ".join(names) + "}")
        if self.src is not None:
            inner = ", ".join(map(repr, self.src)) + (", …" if self.rest else "")
            parts.append(f"({inner})")
        if self.name is not None:
            parts.append(f"name={self.name}")
        if self.kinds is not None or self.dtype is not None:
            parts.append(f"dtype={self.kinds or self.dtype}")
        if self.arg is not ANY:
            parts.append(f"arg={self.arg!r}")
        return f"{'Const' if self.constant else 'Pat'}({', '.join(parts)})"


def _ops(ops: Ops | Iterable[Ops] | None) -> frozenset[Ops] | None:
    if ops is None:
        return None
    several = several_ops({ops} if isinstance(ops, Ops | str) else ops)
    if not several:
        raise RuleError("an empty set of ops matches nothing")
    return several


def several_ops(
    ops: object, rule: str | None = None, argument: str = "the ops of a pattern"
) -> frozenset[Ops]:
    """Ops that are given as an iterable; RuleError, naming rule and argument, for anything else."""
    several = items(ops, rule, argument, "members of Ops")
    for op in several:
        if not isinstance(op, Ops):
            raise RuleError(f"{argument}: unknown op {op!r}: expected members of Ops", rule=rule)
    return frozenset(several)


def items(values: object, rule: str | None, argument: str, wanted: str) -> tuple[Any, ...]:
    """What an iterable gives; RuleError for what is none, or is text."""
    if isinstance(values, str) or not isinstance(values, Iterable) or isinstance(values, type):
        raise RuleError(f"{argument}: expected {wanted}, got {values!r}", rule=rule)
    return tuple(values)


def _openness(pattern: Pat) -> int:
    if pattern.literal is not None:
        return 0
    if pattern.constant:
        return 1
    return 3 if pattern.anything else 2


def as_pattern(part: object) -> Pat:
    """The pattern of a Pat, None, symbol or number."""
    if isinstance(part, Pat):
        return part
    if part is None:
        return Pat()
    return TermPatterns().pattern(lift(part))


class TermPatterns:
    """Translates left-side terms of one rule into patterns.

    An expression object that occurs twice becomes one name at two places; `name_of` also tells by
    which name a guard or right side may refer to a matched expression.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[Term, Pat]] = {}

    def pattern(self, term: Term) -> Pat:
        """The pattern that `term`, on the left, stands for."""
        if isinstance(term, Capture):
            made = Pat(name=term.name)
            if isinstance(term, Const):
                made.constant = True
                made.ops = CONSTANT_OPS
            return made
        if isinstance(term, Literal):
            made = Pat(CONSTANT_OPS)
            made.literal = term
            return made
        if not isinstance(term, Apply):
            raise RuleError(f"{type(term).__name__.lower()} cannot stand on a left side")
        if id(term) in self._made:
            return Pat(name=self._name(self._made[id(term)][1]))
        if isinstance(term.target, DTypeOf):
            raise RuleError("a left side cannot ask for another node's dtype: use same_dtype()")
        made = Pat(term.op, arg=term.attr, dtype=term.target)
        self._made[id(term)] = (term, made)
        made.src = tuple(map(self.pattern, term.src))
        spec = OPS[term.op]
        low, high = spec.min_src, spec.max_src
        if len(made.src) < low or (high is not None and len(made.src) > high):
            raise RuleError(f"{term.op.name} never has {len(made.src)} sources")
        return made

    def name_shared(self, term: Term) -> None:
        """Names what `term`, a guard or right side, shares with the left."""
        for part in walk(term):
            self.name_of(part)

    def name_of(self, term: Term) -> str | None:
        """The capture name of a matched expression object; None when the left lacks it."""
        if id(term) not in self._made:
            return None
        return self._name(self._made[id(term)][1])

    def _name(self, pattern: Pat) -> str:
        if pattern.name is None:
            place = [made for _, made in self._made.values()].index(pattern)
            pattern.name = f"#{place}"
        return pattern.name
