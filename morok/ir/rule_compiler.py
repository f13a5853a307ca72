"""From a rule's pattern, guards and right side to the code that the core runs.

Everything that can be wrong with a rule is found here, when the rule is defined: variables that the
left does not bind, expressions outside the guard language, literals whose dtype nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from morok.dtype import DType, dtypes
from morok.errors import RuleError
from morok.ir.ops import Ops
from morok.ir.optable import OPS, GroupOp
from morok.ir.pattern import Pat, TermPatterns
from morok.ir.terms import (
    ANY,
    FACTS,
    Apply,
    ArgOf,
    Capture,
    Const,
    DTypeOf,
    Fact,
    Literal,
    Term,
    Wrap,
    is_boolean,
    spell,
    walk,
)

Code = list[tuple[Any, ...]]
"""Postfix code, or matching steps; see `morok._core.program.Program`."""

Like = tuple[str, int | None, DType | None]
"""Where a constant's dtype comes from: ("register", r, None), ("bool", r, None), ("fixed", r, t)"""

GUARD_OPS: Final[dict[Ops, str]] = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.NEG: "neg", Ops.FLOORDIV: "floordiv",
    Ops.FLOORMOD: "floormod", Ops.MAX: "max", Ops.MIN: "min", Ops.SHL: "shl", Ops.LT: "lt",
    Ops.LE: "le", Ops.GT: "gt", Ops.GE: "ge", Ops.EQ: "eq", Ops.NE: "ne", Ops.AND: "and",
    Ops.OR: "or", Ops.XOR: "xor", Ops.NOT: "not",
}  # fmt: skip
"""What guards and computed constants may use, besides `terms.FACTS`."""

_WRAPPING: Final = {Ops.ADD: "wadd", Ops.SUB: "wsub", Ops.MUL: "wmul", Ops.NEG: "wneg"}
_ROOT: Final[Like] = ("register", 0, None)


class RuleCompiler:
    """Compiles one rule. `kinds` is the dtype class of the rule's subject."""

    def __init__(self, rule: str, pattern: Pat, names: TermPatterns, kinds: str | None) -> None:
        self.rule = rule
        self.pattern = pattern
        self.kinds = kinds
        self.registers: dict[str, int] = {}
        self.steps: Code = []
        self._terms = names
        self._used = 1
        self._check_literals(pattern, root=True)
        self._visit(pattern, 0)

    # ---- left ------------------------------------------------------------------------------------

    def subject_first(self) -> bool:
        """Whether the dtype class is asked of the first source: in rules about comparisons."""
        ops = self.pattern.ops or frozenset()
        comparisons = ops & GroupOp.Comparison
        if comparisons and comparisons != ops and self.kinds is not None:
            raise self.error("a dtype class needs roots that are all comparisons, or none")
        return bool(comparisons)

    def need(self) -> set[Ops]:
        """Ops that must occur among the root's sources."""
        found = set()
        for part in self.pattern.src or ():
            if part.constant or part.literal is not None:
                found.add(Ops.CONST)
            elif part.ops is not None and len(part.ops) == 1:
                found |= part.ops
        return found

    def root_test(self) -> dict[str, Any]:
        """What is asked of the root itself; its ops are the bucket."""
        test = self._test(self.pattern)
        test.pop("ops", None)
        return test

    def _test(self, pattern: Pat) -> dict[str, Any]:
        test: dict[str, Any] = {}
        if pattern.ops is not None:
            test["ops"] = pattern.ops
        if pattern.kinds is not None:
            test["kinds"] = pattern.kinds
        if pattern.dtype is not None:
            test["dtype"] = pattern.dtype
        if pattern.src is not None:
            test["min_nsrc" if pattern.rest else "nsrc"] = len(pattern.src)
        if pattern.constant:
            test["constant"] = True
        if pattern.literal is not None:
            test["numeric" if pattern.literal.numeric else "literal"] = pattern.literal.value
        elif pattern.arg is not ANY:
            test["arg"] = pattern.arg
        return test

    def _visit(self, pattern: Pat, register: int) -> None:
        """Steps for what lies below a node that passed its own test."""
        if pattern.name is not None:
            first = self.registers.setdefault(pattern.name, register)
            if first != register:
                self.steps.append(("same", register, first))
        if not pattern.src:
            return
        if pattern.commutes:
            base = self._take_registers(2)
            self.steps.append(("commute", base, register))
            for i in pattern.order:
                if not pattern.src[i].anything:
                    self.steps.append(("check", base + i, self._test(pattern.src[i])))
                self._visit(pattern.src[i], base + i)
            return
        for i in pattern.order:
            part = pattern.src[i]
            if part.anything and part.name is None:
                continue
            place = self._take_registers(1)
            if part.anything:
                self.steps.append(("take", place, register, i))
            else:
                self.steps.append(("load", place, register, i, self._test(part)))
            self._visit(part, place)

    def _take_registers(self, count: int) -> int:
        self._used += count
        return self._used - count

    def _check_literals(self, pattern: Pat, *, root: bool = False) -> None:
        """An int literal matches ints only; where floats may stand the author has to say so."""
        for part in pattern.src or ():
            literal = part.literal
            if literal is not None and type(literal.value) is int and not literal.numeric:
                kinds = pattern.kinds or (pattern.dtype.kind if pattern.dtype else self.kinds)
                indexed = pattern.ops is not None and all(
                    OPS[op].dtype_kind == "index" for op in pattern.ops
                )
                if not indexed and (kinds is None or "f" in kinds):
                    value = literal.value
                    raise self.error(
                        f"the literal {value} never matches a float: restrict the dtype, or write "
                        f"num({value}) for every dtype, or {float(value)} for floats"
                    )
            self._check_literals(part)

    # ---- guards ----------------------------------------------------------------------------------

    def guards(self, guards: Sequence[Term]) -> Code | None:
        """The conjunction of all guards."""
        code: Code = []
        for place, guard in enumerate(guards):
            if not is_boolean(guard):
                raise self.error(f"the guard {spell(guard)} is no truth value")
            code += self.integer(guard)
            if place:
                code.append(("and",))
        return code or None

    def integer(self, term: Term) -> Code:
        """Code that pushes the integer or truth value of `term`."""
        match term:
            case Literal(value=bool() | int()):
                return [("k", int(term.value))]
            case Const():
                return [("value", self.register(term))]
            case Fact() if FACTS[term.name].of_nodes:
                places = [self.register(part) for part in term.src]
                return [(term.name, *places, *([term.kinds] if term.kinds else []))]
            case Fact():
                return [*(c for part in term.src for c in self.integer(part)), (term.name,)]
            case Apply() if self._is_plain(term) and term.op in GUARD_OPS:
                if term.op in (Ops.AND, Ops.OR, Ops.XOR, Ops.NOT) and not is_boolean(term):
                    raise self.error(f"& | ^ ~ in {spell(term)} combine truth values only")
                parts = [c for part in term.src for c in self.integer(part)]
                return [*parts, (GUARD_OPS[term.op],)]
        hint = ": annotate it as Const" if isinstance(term, Capture) else ""
        raise self.error(f"{spell(term)} is outside the guard language{hint}")

    def register(self, term: Term) -> int:
        """The register of a capture or of a matched expression."""
        name = term.name if isinstance(term, Capture) else self._terms.name_of(term)
        if name is None or name not in self.registers:
            raise self.error(f"{spell(term)} is not bound on the left side")
        return self.registers[name]

    # ---- right -----------------------------------------------------------------------------------

    def right(self, term: Term) -> Code:
        """Code that builds the right side."""
        return self._node(term, _ROOT)

    def _node(self, term: Term, want: Like | None) -> Code:
        if isinstance(term, Capture) or self._terms.name_of(term) is not None:
            return [("reg", self.register(term))]
        if isinstance(term, Literal):
            if want is None:
                raise self.error(f"the dtype of the literal {term.value!r} is not known here")
            return [("number", term.value, want)]
        if isinstance(term, Wrap):
            return [*self._wrapping(term.src), ("wconst", self._constant_like(term.src, want))]
        if self._is_computed(term):
            return [*self.integer(term), ("const", self._constant_like(term, want))]
        if not isinstance(term, Apply):
            raise self.error(f"{spell(term)} cannot be built")
        code: Code = []
        for part, wanted in zip(term.src, self._wanted(term, want), strict=True):
            code += self._node(part, wanted)
        code.append(("build", term.op, len(term.src), self._dtype(term), self._argument(term)))
        return code

    def _wrapping(self, term: Term) -> Code:
        if isinstance(term, Apply) and self._is_plain(term) and term.op in _WRAPPING:
            parts = [c for part in term.src for c in self._wrapping(part)]
            return [*parts, (_WRAPPING[term.op],)]
        if isinstance(term, Literal | Const | Fact):
            return self.integer(term)
        raise self.error(f"wrap() takes + - * and - of constants, not {spell(term)}")

    def _is_plain(self, term: Apply) -> bool:
        return term.attr is ANY and term.target is None

    def _is_computed(self, term: Term) -> bool:
        """Made only of constants, literals and facts, so that it is one constant."""
        if isinstance(term, Apply):
            return (
                self._is_plain(term)
                and term.op in GUARD_OPS
                and self._terms.name_of(term) is None
                and all(isinstance(p, Literal | Const) or self._is_computed(p) for p in term.src)
            )
        return isinstance(term, Fact)

    def _constant_like(self, term: Term, want: Like | None) -> Like:
        if is_boolean(term):
            return ("bool", 0 if want is None else want[1], None)
        like = want or self._like(term)
        if like is None:
            raise self.error(f"the dtype of the constant {spell(term)} is not known here")
        return like

    def _like(self, term: Term) -> Like | None:
        """Where the dtype of `term` can be read before it is built."""
        if isinstance(term, Capture) or self._terms.name_of(term) is not None:
            return ("register", self.register(term), None)
        if isinstance(term, Literal):
            return None
        if isinstance(term, Wrap) or self._is_computed(term):
            inner = [part for part in walk(term) if isinstance(part, Capture)]
            found = ("register", self.register(inner[0]), None) if inner else None
            return ("bool", found[1] if found else 0, None) if is_boolean(term) else found
        if not isinstance(term, Apply):
            return None
        if isinstance(term.target, DTypeOf):
            return self._like(term.target.of)
        lanes = next((like for part in term.src if (like := self._like(part))), None)
        if term.target is not None:
            return ("fixed", lanes[1] if lanes else None, term.target)
        kind = OPS[term.op].dtype_kind
        if kind == "src1":
            return self._like(term.src[1]) or self._like(term.src[2])
        if kind == "bool":
            return ("bool", lanes[1] if lanes else 0, None)
        if kind == "index":
            return ("fixed", None, dtypes.index)
        return lanes if kind == "src0" else None

    def _wanted(self, term: Apply, want: Like | None) -> list[Like | None]:
        """For each operand, the dtype a literal there has."""
        if term.op is Ops.WHERE:
            arms = want or self._like(term.src[1]) or self._like(term.src[2])
            return [("bool", 0, None), arms, arms]
        if term.op in GroupOp.ALU:
            known = next((like for part in term.src if (like := self._like(part))), None)
            return [known if OPS[term.op].comparison else known or want] * len(term.src)
        return [None] * len(term.src)

    def _dtype(self, term: Apply) -> Like:
        if isinstance(term.target, DTypeOf):
            return ("register", self.register(term.target.of), None)
        if term.target is not None:
            return ("cast", None, term.target)
        if OPS[term.op].dtype_kind == "given":
            raise self.error(f"{spell(term)} on the right needs a dtype")
        return ("inferred", None, None)

    def _argument(self, term: Apply) -> tuple[str, Any] | None:
        if term.attr is ANY or term.attr is None:
            return None
        if isinstance(term.attr, ArgOf):
            return ("of", self.register(term.attr.of))
        return ("fixed", term.attr)

    def error(self, message: str) -> RuleError:
        return RuleError(message, rule=self.rule)


def listing(code: Code | None) -> list[str]:
    """Code as lines for people."""
    return [" ".join([row[0], *map(_operand, row[1:])]) for row in code or ()]


def _operand(value: object) -> str:
    if isinstance(value, frozenset):
        return "{" + " ".join(sorted(op.name for op in value)) + "}"
    if isinstance(value, dict):
        return "[" + " ".join(f"{key}={_operand(entry)}" for key, entry in value.items()) + "]"
    if isinstance(value, tuple):
        return "(" + " ".join(_operand(part) for part in value if part is not None) + ")"
    return value.name if isinstance(value, Ops) else str(value)
