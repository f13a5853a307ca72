"""The symbols that rules are written in.

A data rule is an ordinary Python function (or a table row) over these symbols: it runs once, when
the rule is defined, and what it builds is kept. One expression means three things by its place:

    left    a pattern of nodes           x * c0          matches MUL(x, CONST)
    guard   arithmetic on known ints     c0 * c1 < 8     evaluated in int64; overflow: not fired
    right   nodes and constants to build x * (c0 * c1)   MUL(x, CONST of the product)

On the right, what is made only of constants and bounds is computed; the rest is built. An
expression *object* of the left that occurs again on the right or in a guard means the matched node.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from morok.dtype import DType
from morok.errors import RuleError
from morok.ir.ops import Ops

KINDS: Final = "biufxvp"
"""The dtype classes: bool, signed, unsigned, float, index, void, pointer (`DType.kind`)."""


class _Any:
    """The type of ANY."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
"""The argument pattern that every argument fits (None would mean "has no argument")."""


def check_kinds(kinds: str | None, rule: str | None = None) -> str | None:
    """`kinds` in canonical order, or RuleError when it is no class string such as "iux"."""
    if kinds is None:
        return None
    if not isinstance(kinds, str) or not kinds or set(kinds) - set(KINDS):
        raise RuleError(
            f"{kinds!r} is no dtype class: expected letters out of {KINDS!r}, e.g. 'iux'", rule=rule
        )
    return "".join(kind for kind in KINDS if kind in kinds)


class Term:
    """Base of all symbols: the operators and methods that build bigger terms."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise RuleError(
            "a symbol has no truth value while a rule is defined: combine guards with & | ~, "
            "write 0 < c < 9 as two guards, and say same(x, y) for 'the same node'"
        )

    def __add__(self, other: object) -> Apply:
        return Apply(Ops.ADD, (self, lift(other)))

    def __radd__(self, other: object) -> Apply:
        return Apply(Ops.ADD, (lift(other), self))

    def __sub__(self, other: object) -> Apply:
        return Apply(Ops.SUB, (self, lift(other)))

    def __rsub__(self, other: object) -> Apply:
        return Apply(Ops.SUB, (lift(other), self))

    def __mul__(self, other: object) -> Apply:
        return Apply(Ops.MUL, (self, lift(other)))

    def __rmul__(self, other: object) -> Apply:
        return Apply(Ops.MUL, (lift(other), self))

    def __truediv__(self, other: object) -> Apply:
        return Apply(Ops.FDIV, (self, lift(other)))

    def __rtruediv__(self, other: object) -> Apply:
        return Apply(Ops.FDIV, (lift(other), self))

    def __floordiv__(self, other: object) -> Apply:
        return Apply(Ops.FLOORDIV, (self, lift(other)))

    def __rfloordiv__(self, other: object) -> Apply:
        return Apply(Ops.FLOORDIV, (lift(other), self))

    def __mod__(self, other: object) -> Apply:
        return Apply(Ops.FLOORMOD, (self, lift(other)))

    def __rmod__(self, other: object) -> Apply:
        return Apply(Ops.FLOORMOD, (lift(other), self))

    def __lshift__(self, other: object) -> Apply:
        return Apply(Ops.SHL, (self, lift(other)))

    def __rlshift__(self, other: object) -> Apply:
        return Apply(Ops.SHL, (lift(other), self))

    def __rshift__(self, other: object) -> Apply:
        return Apply(Ops.SHR, (self, lift(other)))

    def __and__(self, other: object) -> Apply:
        return Apply(Ops.AND, (self, lift(other)))

    def __rand__(self, other: object) -> Apply:
        return Apply(Ops.AND, (lift(other), self))

    def __or__(self, other: object) -> Apply:
        return Apply(Ops.OR, (self, lift(other)))

    def __ror__(self, other: object) -> Apply:
        return Apply(Ops.OR, (lift(other), self))

    def __xor__(self, other: object) -> Apply:
        return Apply(Ops.XOR, (self, lift(other)))

    def __rxor__(self, other: object) -> Apply:
        return Apply(Ops.XOR, (lift(other), self))

    def __neg__(self) -> Apply:
        return Apply(Ops.NEG, (self,))

    def __invert__(self) -> Apply:
        return Apply(Ops.NOT, (self,))

    def __lt__(self, other: object) -> Apply:
        return Apply(Ops.LT, (self, lift(other)))

    def __le__(self, other: object) -> Apply:
        return Apply(Ops.LE, (self, lift(other)))

    def __gt__(self, other: object) -> Apply:
        return Apply(Ops.GT, (self, lift(other)))

    def __ge__(self, other: object) -> Apply:
        return Apply(Ops.GE, (self, lift(other)))

    def __eq__(self, other: object) -> Apply:  # type: ignore[override]
        return Apply(Ops.EQ, (self, lift(other)))

    def __ne__(self, other: object) -> Apply:  # type: ignore[override]
        return Apply(Ops.NE, (self, lift(other)))

    def eq(self, other: object) -> Apply:
        """EQ: as `==`, in the spelling of UOp, where `==` is identity."""
        return Apply(Ops.EQ, (self, lift(other)))

    def ne(self, other: object) -> Apply:
        """NE: as `!=`, in the spelling of UOp."""
        return Apply(Ops.NE, (self, lift(other)))

    def where(self, yes: object, no: object) -> Apply:
        """WHERE(self, yes, no)"""
        return Apply(Ops.WHERE, (self, lift(yes), lift(no)))

    def maximum(self, other: object) -> Apply:
        """MAX(self, other)"""
        return Apply(Ops.MAX, (self, lift(other)))

    def minimum(self, other: object) -> Apply:
        """MIN(self, other)"""
        return Apply(Ops.MIN, (self, lift(other)))

    def cast(self, dtype: DType | DTypeOf | None = None) -> Apply:
        """CAST(self). On the left no dtype means any; on the right it is a DType (given the lanes
        of `self`) or `y.dtype`, the dtype of the node that y is bound to."""
        return Apply(Ops.CAST, (self,), target=dtype)

    def bitcast(self, dtype: DType | DTypeOf | None = None) -> Apply:
        """BITCAST(self); dtype as in `cast`."""
        return Apply(Ops.BITCAST, (self,), target=dtype)

    def alu(self, op: Ops, *others: object) -> Apply:
        """`op` with self as its first operand."""
        return Apply(op, (self, *map(lift, others)))

    @property
    def vmin(self) -> Fact:
        """The known lower bound of the matched node (unknown: the rule does not fire)."""
        return Fact("vmin", (self,))

    @property
    def vmax(self) -> Fact:
        """The known upper bound of the matched node."""
        return Fact("vmax", (self,))

    @property
    def dtype(self) -> DTypeOf:
        """The dtype of the matched node, for `cast` and `node` on the right."""
        return DTypeOf(self)

    @property
    def arg(self) -> ArgOf:
        """The argument of the matched node, for `node(..., arg=x.arg)` on the right."""
        return ArgOf(self)


@dataclass(frozen=True, eq=False, slots=True)
class Capture(Term):
    """A name that a rule binds. Equal names are the same capture: both places must be one node. One
    that the rule has no use for begins with `_`."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise RuleError(f"a capture needs a name, got {self.name!r}")


class Var(Capture):
    """A capture of any node."""

    __slots__ = ()


class Const(Capture):
    """A capture of a constant: CONST, or a VCONST or VECTORIZE whose lanes are one constant.

    In guards and computed constants it stands for the integer value; a float has none there, so
    such a guard never holds for floats.
    """

    # no subclass of Var: Python would turn `x < c` round, asking the subclass first
    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Term):
    """A number written in a rule. `numeric` (see `num`): whatever the dtype."""

    value: bool | int | float
    numeric: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Term):
    """An op applied to terms. `attr` (argument) and `target` (dtype): what a pattern asks for, or
    what a right side gives the node it builds."""

    op: Ops
    src: tuple[Term, ...]
    attr: Any = ANY
    target: DType | DTypeOf | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Fact(Term):
    """A question of the guard language: one of `FACTS`, about terms."""

    name: str
    src: tuple[Term, ...]
    kinds: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Wrap(Term):
    """Integer arithmetic on the right that wraps in the dtype of the constant it makes."""

    src: Term


@dataclass(frozen=True, eq=False, slots=True)
class DTypeOf:
    """The dtype of a capture."""

    of: Term


@dataclass(frozen=True, eq=False, slots=True)
class ArgOf:
    """The argument of a capture."""

    of: Term


@dataclass(frozen=True, slots=True)
class FactSpec:
    """What a fact takes and gives. `of_nodes`: about the nodes, not about integer values."""

    arity: int
    boolean: bool
    of_nodes: bool
    doc: str


FACTS: Final[dict[str, FactSpec]] = {
    "vmin": FactSpec(1, False, True, "known lower bound"),
    "vmax": FactSpec(1, False, True, "known upper bound"),
    "lowest": FactSpec(1, False, True, "least value of the node's integer or bool dtype"),
    "highest": FactSpec(1, False, True, "greatest value of the node's integer or bool dtype"),
    "bits": FactSpec(1, False, True, "bits of one lane of the node's dtype"),
    "lanes": FactSpec(1, False, True, "lanes of the node's dtype"),
    "is_const": FactSpec(1, True, True, "the node is what Const captures"),
    "same": FactSpec(2, True, True, "both are one node"),
    "same_dtype": FactSpec(2, True, True, "both have one dtype"),
    "ends_idle": FactSpec(
        1, True, True, "a loop that the node ends is a constant, or not one of its first source"
    ),
    "kind": FactSpec(1, True, True, "the node's dtype is of the class"),
    "divides": FactSpec(2, True, False, "the first is not 0 and divides the second"),
    "is_pow2": FactSpec(1, True, False, "a power of two, 1 included"),
    "log2": FactSpec(1, False, False, "exponent of a power of two, unknown for others"),
}
"""The guard language, besides + - * // % << min max, comparisons, and & | ^ ~ on truth values."""


def lift(value: object) -> Term:
    """A term as it is, a number as a Literal; RuleError for anything else."""
    if isinstance(value, Term):
        return value
    if isinstance(value, (bool, int, float)) and type(value) in (bool, int, float):  # no NumPy's
        return Literal(value)
    raise RuleError(f"{value!r} cannot stand in a rule: expected a symbol or a Python number")


def num(value: int | float) -> Literal:
    """The number `value` whatever the dtype: on the left `x * num(1)` matches both 1 and 1.0.

    A zero means +0.0 for floats; write -0.0 (a float literal, compared by bits) for the other.
    """
    return Literal(value, numeric=True)


def node(op: Ops, *src: object, arg: Any = ANY, dtype: DType | DTypeOf | None = None) -> Apply:
    """`op` of terms. Left: exactly these sources, and this `arg` and `dtype` when given. Right:
    the node to build; `arg` (default none) may be `y.arg`, `dtype` is for ops whose own is given.
    """
    return Apply(op, tuple(map(lift, src)), arg, dtype)


def wrap(term: Term) -> Wrap:
    """On the right: the constant that `term` (+ - * of constants) is in wrapping arithmetic."""
    return Wrap(term)


def divides(divisor: object, number: object) -> Fact:
    """Guard: `divisor` is not zero and `number` is a multiple of it."""
    return Fact("divides", (lift(divisor), lift(number)))


def is_pow2(value: object) -> Fact:
    """Guard: `value` is 1, 2, 4, …"""
    return Fact("is_pow2", (lift(value),))


def log2(value: object) -> Fact:
    """The exponent of a power of two; anything else keeps the rule from firing."""
    return Fact("log2", (lift(value),))


def is_const(x: Term) -> Fact:
    """Guard: x is bound to a constant, as `Const` captures it."""
    return Fact("is_const", (x,))


def not_const(x: Term) -> Apply:
    """Guard: x is bound to no constant."""
    return ~Fact("is_const", (x,))


def same(x: Term, y: Term) -> Fact:
    """Guard: x and y are bound to the same node."""
    return Fact("same", (x, y))


def same_dtype(x: Term, y: Term) -> Fact:
    """Guard: the nodes of x and y have the same dtype."""
    return Fact("same_dtype", (x, y))


def ends_idle(x: Term) -> Fact:
    """Guard: a loop that x ends is a constant, or none that its first source depends on."""
    return Fact("ends_idle", (x,))


def kind(x: Term, kinds: str) -> Fact:
    """Guard: the dtype of x is of the class, e.g. kind(x, "iu")."""
    return Fact("kind", (x,), check_kinds(kinds))


def lowest(x: Term) -> Fact:
    """The least value of x's integer or bool dtype (unknown for index, floats, 64-bit unsigned)."""
    return Fact("lowest", (x,))


def highest(x: Term) -> Fact:
    """The greatest value of x's integer or bool dtype."""
    return Fact("highest", (x,))


def bits(x: Term) -> Fact:
    """Bits of one lane of x's dtype."""
    return Fact("bits", (x,))


def lanes(x: Term) -> Fact:
    """Lanes of x's dtype."""
    return Fact("lanes", (x,))


_defining = threading.local()


@contextmanager
def collect_guards() -> Iterator[list[Term]]:
    """Gathers what `when` is given while a rule's function runs."""
    outer = getattr(_defining, "guards", None)
    guards: list[Term] = []
    _defining.guards = guards
    try:
        yield guards
    finally:
        _defining.guards = outer


def when(*guards: object) -> None:
    """Inside a data rule's function: the rule fires only where all `guards` hold."""
    open_list = getattr(_defining, "guards", None)
    if open_list is None:
        raise RuleError("when() belongs inside a function decorated with .rule")
    open_list.extend(map(lift, guards))


_BOOLEAN_OPS: Final = frozenset({Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE})
_LOGIC_OPS: Final = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.NOT})


def is_boolean(term: Term) -> bool:
    """Whether `term`, read as a guard, is a truth value."""
    if isinstance(term, Literal):
        return isinstance(term.value, bool)
    if isinstance(term, Fact):
        return FACTS[term.name].boolean
    if isinstance(term, Apply):
        if term.op in _LOGIC_OPS:
            return all(map(is_boolean, term.src))
        return term.op in _BOOLEAN_OPS
    return False


def walk(term: Term) -> Iterator[Term]:
    """`term` and everything in it, outside first."""
    yield term
    if isinstance(term, Apply | Fact):
        for part in term.src:
            yield from walk(part)
        if isinstance(term, Apply):
            for token in (term.attr, term.target):
                if isinstance(token, ArgOf | DTypeOf):
                    yield from walk(token.of)
    elif isinstance(term, Wrap):
        yield from walk(term.src)


_INFIX: Final = {
    Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FDIV: "/", Ops.FLOORDIV: "//",
    Ops.FLOORMOD: "%", Ops.SHL: "<<", Ops.SHR: ">>", Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^",
    Ops.LT: "<", Ops.LE: "<=", Ops.GT: ">", Ops.GE: ">=", Ops.EQ: "==", Ops.NE: "!=",
}  # fmt: skip
_PREFIX: Final = {Ops.NEG: "-", Ops.NOT: "~"}


def spell(term: object, *, outer: bool = True) -> str:
    """The text of a term, the same in every process: part of a rule's digest."""
    match term:
        case Capture():
            return term.name
        case Literal():
            return f"num({term.value!r})" if term.numeric else repr(term.value)
        case Wrap():
            return f"wrap({spell(term.src)})"
        case Fact(name="vmin" | "vmax"):
            return f"{spell(term.src[0], outer=False)}.{term.name}"
        case Fact():
            inner = [spell(part) for part in term.src]
            return f"{term.name}({', '.join(inner + ([repr(term.kinds)] if term.kinds else []))})"
        case DTypeOf():
            return f"{spell(term.of, outer=False)}.dtype"
        case ArgOf():
            return f"{spell(term.of, outer=False)}.arg"
        case Apply():
            return _spell_apply(term, outer)
    return str(term)


def _spell_apply(term: Apply, outer: bool) -> str:
    plain = term.attr is ANY and term.target is None
    if plain and len(term.src) == 2 and term.op in _INFIX:
        text = f" {_INFIX[term.op]} ".join(spell(part, outer=False) for part in term.src)
        return text if outer else f"({text})"
    if plain and len(term.src) == 1 and term.op in _PREFIX:
        return _PREFIX[term.op] + spell(term.src[0], outer=False)
    parts = [spell(part) for part in term.src]
    if term.attr is not ANY:
        parts.append(f"arg={spell(term.attr) if isinstance(term.attr, ArgOf) else repr(term.attr)}")
    if term.target is not None:
        parts.append(f"dtype={spell(term.target)}")
    return f"{term.op.name}({', '.join(parts)})"
