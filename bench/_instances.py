"""Instances of the left side of a data rule, and mutants that nearly are instances."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench._evaluation import loaded
from morok import _core
from morok.dtype import DType, dtypes, max_value, min_value
from morok.ir import OPS, GroupOp, Invalid, Ops, Rule, Term, UOp
from morok.ir.terms import ANY, Apply, Capture, Const, Literal, walk

BY_KIND: dict[str, tuple[DType, ...]] = {
    "b": (dtypes.bool_,),
    "i": (dtypes.int8, dtypes.int32, dtypes.int64),
    "u": (dtypes.uint8, dtypes.uint32, dtypes.uint64),
    "f": (dtypes.float32, dtypes.float64),
    "x": (dtypes.index,),
}
NUMBERS = tuple(dtype for kind in "biufx" for dtype in BY_KIND[kind])


BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.NOT, Ops.SHL, Ops.SHR})
OF_BOOL = GroupOp.Comparison | {Ops.WHERE, Ops.CAST, Ops.AND, Ops.OR, Ops.XOR, Ops.NOT}
OF_BOOL |= {Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN}
OF_FLOAT = frozenset({Ops.FDIV, Ops.SQRT, Ops.RECIPROCAL})


def defined(op: Ops, dtype: DType) -> bool:
    """Whether `op` has a meaning for results of a dtype."""
    if dtype.kind == "b":
        return op in OF_BOOL
    return op not in (BITWISE if dtype.kind == "f" else OF_FLOAT)


class MismatchError(Exception):
    """The choices made so far do not give a well-formed expression."""


@dataclass
class Builder:
    """One random attempt at the left side of a rule.

    `mutate`: the place, in order of building, of the term that becomes something else.
    """

    rng: random.Random
    mutate: int | None = None
    bound: dict[str, UOp] = field(default_factory=dict)
    built: dict[int, UOp] = field(default_factory=dict)
    place: int = 0
    mutated: bool = False

    def leaf(self, dtype: DType) -> UOp:
        """Something of a dtype: loaded, bounded, or a constant."""
        choice = self.rng.random()
        slot = self.rng.randrange(3)
        if choice < 0.3:
            return self.constant(dtype)
        if dtype is dtypes.index:
            low = self.rng.choice((-5, 0, 0, 1))
            return UOp.define_var(f"v{slot}", low, low + self.rng.randrange(1, 9))
        if choice < 0.5 and dtype.kind in "iu":
            low = self.rng.choice((-4, 0, 1)) if dtype.kind == "i" else self.rng.choice((0, 2))
            span = UOp.define_var(f"v{slot}", low, low + self.rng.choice((0, 3, 9)))
            return span.cast(dtype)
        return loaded(dtype, slot + 3 * NUMBERS.index(dtype))

    def constant(self, dtype: DType) -> UOp:
        """A constant of a dtype: small, or at the ends of its range."""
        if dtype.kind == "b":
            return UOp.const(dtype, self.rng.random() < 0.5)
        if dtype.kind == "f":
            return UOp.const(dtype, self.rng.choice((0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0)))
        choices = [0, 1, 2, 3, 4, 5, 7, 8, 16]
        if dtype.kind in "ix":
            choices += [-1, -2, -3]
        if dtype is not dtypes.index:
            choices += [int(max_value(dtype)), int(min_value(dtype))]
        return UOp.const(dtype, self.rng.choice(choices))

    def term(self, term: Term, dtype: DType) -> UOp:
        """A node for a term of the left side, of a dtype."""
        here = self.place
        self.place += 1
        if here == self.mutate:
            self.mutated = True
            if not (isinstance(term, Capture) and term.name in self.bound):
                return self.constant(dtype) if isinstance(term, Literal) else self.leaf(dtype)
            return self.leaf(dtype)
        if isinstance(term, Capture):
            node = self.bound.get(term.name)
            if node is None:
                made = self.constant(dtype) if isinstance(term, Const) else self.leaf(dtype)
                node = self.bound.setdefault(term.name, made)
            return self.checked(node, dtype)
        if isinstance(term, Literal):
            return self.literal(term, dtype)
        if not isinstance(term, Apply):
            raise MismatchError
        if id(term) not in self.built:
            self.built[id(term)] = self.apply(term, dtype)
        return self.checked(self.built[id(term)], dtype)

    def checked(self, node: UOp, dtype: DType) -> UOp:
        if node.dtype is not dtype:
            raise MismatchError
        return node

    def literal(self, term: Literal, dtype: DType) -> UOp:
        value = term.value
        if isinstance(value, bool) != (dtype.kind == "b") and not term.numeric:
            raise MismatchError
        if isinstance(value, float) and dtype.kind != "f":
            raise MismatchError
        if value < 0 and dtype.kind == "u":
            raise MismatchError
        return UOp.const(dtype, value)

    def apply(self, term: Apply, dtype: DType) -> UOp:
        if term.op is Ops.CONST and term.attr is Invalid and dtype is dtypes.index:
            return UOp.const(dtype, Invalid)
        if isinstance(term.target, DType) and term.target is not dtype:
            raise MismatchError
        if not defined(term.op, dtype):
            raise MismatchError
        src = tuple(
            self.term(part, wanted)
            for part, wanted in zip(term.src, self.operands(term, dtype), strict=True)
        )
        if self.rng.random() < 0.3 and term.op in GroupOp.Commutative:
            src = src[::-1]
        return UOp(term.op, dtype, src, None if term.attr is ANY else term.attr)

    def operands(self, term: Apply, dtype: DType) -> list[DType]:
        """The dtypes of the operands of an op with a result of `dtype`."""
        if term.op not in GroupOp.Elementwise:
            raise MismatchError
        if OPS[term.op].comparison:
            if dtype is not dtypes.bool_:
                raise MismatchError
            return [self.known(term) or self.rng.choice(NUMBERS)] * 2
        if term.op is Ops.WHERE:
            return [dtypes.bool_, dtype, dtype]
        if term.op is Ops.CAST:
            return [self.known(term) or self.rng.choice(NUMBERS)]
        if term.op is Ops.BITCAST:
            return [self.rng.choice([d for d in NUMBERS if d.bits == dtype.bits])]
        return [dtype] * len(term.src)

    def known(self, term: Apply) -> DType | None:
        """The dtype that an operand already has."""
        for part in term.src:
            if isinstance(part, Capture) and part.name in self.bound:
                return self.bound[part.name].dtype
        return None


def is_elementwise(rule: Rule) -> bool:
    """Whether the left side is data, and arithmetic: not about loops or lanes."""
    return rule.left is not None and all(
        part.op in GroupOp.Elementwise or part.op is Ops.CONST
        for part in walk(rule.left)
        if isinstance(part, Apply)
    )


def subjects(rule: Rule) -> list[DType]:
    """Dtypes of the rule's subject that it allows."""
    return [dtype for dtype in NUMBERS if rule.kinds is None or dtype.kind in rule.kinds]


def attempts(rule: Rule, seed: int, tries: int, mutate: bool = False) -> Iterator[UOp]:
    """Random expressions in the form of the rule's left side (with `mutate`: nearly so)."""
    left = rule.left
    assert isinstance(left, Apply)
    rng = random.Random(f"{rule.name} {seed}")
    size = 0
    for _ in range(tries):
        builder = Builder(rng, rng.randrange(max(size, 1)) if mutate else None)
        subject = rng.choice(subjects(rule) if not mutate or rng.random() < 0.8 else NUMBERS)
        try:
            if OPS[left.op].comparison:
                src = tuple(builder.term(part, subject) for part in left.src)
                yield UOp(left.op, dtypes.bool_, src)
            else:
                if isinstance(left.target, DType):
                    subject = left.target
                yield builder.apply(left, subject)
        except MismatchError:
            pass
        size = max(size, builder.place)


def fire(rule: Rule, node: UOp) -> UOp | None:
    """What one rule, alone, makes of a node."""
    result: UOp | None = _core.Matcher(rule.name, [rule.program]).rewrite(node)
    return result
