"""From a rule and a choice of sorts to what z3 has to refute.

A rule is right at these sorts when no values exist for which the left side is defined, the guards
hold and the computed constants fit their dtypes, but the right side is undefined or different. The
guards and the right side are read from the code that the core runs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from morok.dtype import DType
from morok.ir import OPS, Invalid, Ops, Pat, Rule
from morok.tools.prove import numbers
from morok.tools.prove.meaning import Value, World, literal, z3_sort
from morok.tools.prove.sorts import (
    BOOL,
    INDEX,
    PASSING,
    Sort,
    UnsupportedError,
    is_defined,
    sort_of,
)

COMPARISONS = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
DTYPE_BITS = {"x": 64}  # as `bits` sees them, where the sort has others


class NeverFiresError(Exception):
    """At these sorts the guards, or a constant's dtype, keep the rule from firing."""


class IllTypedError(Exception):
    """The right side is no well-formed expression, or has another dtype than the left."""


def known(condition: Any) -> bool:
    """Whether a truth value is True or False already."""
    return bool(z3.is_true(condition) or z3.is_false(condition))


@dataclass
class Obligation:
    """What z3 has to refute: `refuted_by` holds for counterexamples only."""

    fires: list[Any]  # conditions under which the rule fires
    axioms: list[Any]
    left: Value
    right: Value
    captures: Mapping[str, Value]
    names_invalid: bool  # the left side is about what is undefined
    vague: bool  # a counterexample shows nothing, see `World`

    @property
    def counterexample(self) -> list[Any]:
        """The conjunction that no values may satisfy."""
        same = z3.And(self.right.defined, self.left.term == self.right.term)
        return [*self.axioms, *self.fires, self.left.defined, z3.Not(same)]

    @property
    def conditions(self) -> list[Any]:
        """Truth values whose cases are looked at one by one."""
        found = [v for v in self.captures.values() if v.sort == BOOL]
        return [c for v in found for c in (v.term, v.defined) if z3.is_const(c) and not known(c)]

    @property
    def firing(self) -> list[Any]:
        """Holds for values at which the rule fires and has something to keep."""
        defined = [] if self.names_invalid else [self.left.defined]
        return [*self.axioms, *self.fires, *defined]


@dataclass
class Translator:
    """One rule at one choice of sorts; `constants`: captures that are given a number."""

    rule: Rule
    typing: Mapping[object, Sort]
    constants: Mapping[str, int] = field(default_factory=dict)
    world: World = field(default_factory=World)
    by_name: dict[str, Value] = field(default_factory=dict)
    registers: dict[int, Value] = field(default_factory=dict)
    constant_registers: set[int] = field(default_factory=set)
    fires: list[Any] = field(default_factory=list)
    _bounds: dict[tuple[int, str], Any] = field(default_factory=dict)
    _divisions: dict[tuple[object, object], tuple[Any, Any]] = field(default_factory=dict)

    def obligation(self) -> Obligation:
        """Raises NeverFiresError, IllTypedError, or UnsupportedError for what has no meaning."""
        assert self.rule.pattern is not None
        left = self._left(self.rule.pattern)
        self.registers[0] = left
        for name, register in self.rule.registers.items():
            self.registers[register] = self.by_name[name]
        for pattern in self.rule.pattern.walk():
            if pattern.constant and pattern.name is not None:
                self.constant_registers.add(self.rule.registers[pattern.name])
        if self.rule.guard_code:
            (holds,) = self._integers(list(self.rule.guard_code))
            self._require(numbers.truth(holds))
        right = self._right()
        if right.sort != left.sort:
            raise NeverFiresError(f"{left.sort} on the left, {right.sort} on the right")
        captures = {name: value for name, value in self.by_name.items() if name[0] != "#"}
        invalid = any(pattern.arg is Invalid for pattern in self.rule.pattern.walk())
        return Obligation(
            self.fires, self.world.axioms, left, right, captures, invalid, self.world.vague
        )

    def _require(self, condition: Any) -> None:
        if condition is False or z3.is_false(condition):
            raise NeverFiresError("a guard never holds")
        if condition is not True:
            self.fires.append(condition)

    # ---- left ------------------------------------------------------------------------------------

    def _left(self, pattern: Pat) -> Value:
        """The value of a pattern; names are bound on the way."""
        name = pattern.name
        if name is not None and name in self.by_name:
            return self.by_name[name]
        value = self._new(pattern)
        if name is not None:
            self.by_name[name] = value
        return value

    def _new(self, pattern: Pat) -> Value:
        sort = self.typing[pattern.name if pattern.name is not None else id(pattern)]
        if pattern.literal is not None:
            number = literal(pattern.literal.value, sort)
            if number is None:
                raise NeverFiresError(f"{pattern.literal.value} is no {sort}")
            return number
        if pattern.constant:
            return self._constant(pattern.name or "", sort)
        if pattern.ops is None:
            term = z3.Const(pattern.name or "_", z3_sort(sort))
            return Value(term, sort, z3.Bool(f"{pattern.name} is defined"))
        (op,) = pattern.ops
        if op is Ops.CONST and pattern.arg is Invalid:
            return Value(self.world.fresh("invalid", z3_sort(sort)), sort, z3.BoolVal(False))
        if op is Ops.CONST:
            return Value(self.world.fresh("constant", z3_sort(sort)), sort)
        src = [self._left(part) for part in pattern.src or ()]
        if op is Ops.RANGE:
            step = self.world.fresh("step", z3_sort(sort))
            self.world.axioms.append(z3.And(step >= 0, step < src[0].term))
            return Value(step, sort, src[0].defined)
        if op is Ops.LOAD:
            # a CONST where the INDEX stood: its gate never holds, and what is read is the other
            return src[2]
        if op in PASSING:
            return src[0]
        if op is Ops.BITCAST:
            return self._bitcast(src[0], sort)
        return self.world.apply(op, sort, src)

    def _constant(self, name: str, sort: Sort) -> Value:
        if name in self.constants and sort.kind != "f":
            given = literal(self.constants[name], sort)
            if given is None:
                raise NeverFiresError(f"{self.constants[name]} is no {sort}")
            return given
        return Value(z3.Const(name, z3_sort(sort)), sort)

    def _bitcast(self, value: Value, sort: Sort) -> Value:
        """The same bits at another sort of the same width."""
        same = self.world.bitcast(value, sort)
        if same is None:
            raise NeverFiresError("a scalar keeps its width in a BITCAST")
        return same

    # ---- integers --------------------------------------------------------------------------------

    def _integers(self, code: list[tuple[Any, ...]]) -> list[Any]:
        """Runs integer code up to its end; the stack then."""
        stack: list[Any] = []
        for row in code:
            self._integer(row, stack)
        return stack

    def _integer(self, row: tuple[Any, ...], stack: list[Any]) -> None:
        name, operands = row[0], row[1:]
        if name == "k":
            stack.append(operands[0])
        elif name in LEAVES:
            stack.append(LEAVES[name](self, *operands))
        elif name in UNARY:
            stack.append(UNARY[name](self, stack.pop()))
        elif name in BINARY:
            b, a = stack.pop(), stack.pop()
            stack.append(BINARY[name](self, a, b))
        elif name in COMPARISONS:
            b, a = numbers.number(stack.pop()), numbers.number(stack.pop())
            stack.append(numbers.compare(a, b, COMPARISONS[name]))
        else:
            raise UnsupportedError(f"the guard operation {name}")

    def _value(self, register: int) -> Any:
        value = self.registers[register]
        return self._as_number(value.term, value.sort)

    def _as_number(self, term: Any, sort: Sort) -> Any:
        if sort.kind == "f":
            raise NeverFiresError("a float has no value in guards")
        if sort.kind == "b":
            return numbers.number(term)
        if z3.is_int_value(term):
            return int(term.as_long())
        if sort.bits == 0:
            return term
        if z3.is_bv_value(term):
            return int(term.as_long() if sort.kind == "u" else term.as_signed_long())
        return z3.ZeroExt(1, term) if sort.kind == "u" else term

    def _bound(self, register: int, which: str) -> Any:
        """A known bound of a node: any number on the right side of its value."""
        key = (register, which)
        value = self.registers[register]
        if key not in self._bounds:
            if value.sort.kind == "f":
                raise NeverFiresError("a float has no known bounds")
            bound = self.world.fresh(which, z3_sort(value.sort))
            low, high = self._as_number(bound, value.sort), self._as_number(value.term, value.sort)
            if which == "vmax":
                low, high = high, low
            ordered = numbers.compare(low, high, operator.le)
            self.world.axioms.append(z3.Implies(value.defined, ordered))
            self._bounds[key] = self._as_number(bound, value.sort)
        return self._bounds[key]

    def _limit(self, register: int, highest: bool) -> int:
        sort = self.registers[register].sort
        if sort.kind in "xf":
            raise NeverFiresError(f"{sort} has no known limits")
        return sort.high if highest else sort.low

    def _bits(self, register: int) -> int:
        sort = self.registers[register].sort
        return DTYPE_BITS.get(sort.kind, sort.bits)

    def _lanes(self, register: int) -> Any:
        count = z3.Int("lanes")
        self.world.axioms.append(count >= 1)
        return count

    def _is_const(self, register: int) -> Any:
        if register in self.constant_registers:
            return True
        constant = z3.Bool(f"register {register} is constant")
        self.world.axioms.append(z3.Implies(constant, self.registers[register].defined))
        return constant

    def _same(self, a: int, b: int) -> Any:
        x, y = self.registers[a], self.registers[b]
        if x.sort != y.sort:
            return False
        same = z3.Bool(f"registers {a} and {b} are one node")
        self.world.axioms.append(z3.Implies(same, z3.And(x.term == y.term, x.defined == y.defined)))
        return same

    def _same_dtype(self, a: int, b: int) -> bool:
        return self.registers[a].sort == self.registers[b].sort

    def _kind(self, register: int, kinds: str) -> bool:
        return self.registers[register].sort.kind in kinds

    def _divide(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Floor quotient and remainder; where b is 0 the rule does not fire."""
        if not (numbers.is_known(a) and numbers.is_known(b)) and (z3.is_int(a) or z3.is_int(b)):
            self._require(numbers.as_int(b) != 0)
            return self.world.int_divide(numbers.as_int(a), numbers.as_int(b), True)
        self._require(numbers.compare(b, 0, operator.ne))
        quotient = numbers.floor_quotient(a, b)
        return quotient, numbers.subtract(a, numbers.multiply(quotient, b))

    def _divides(self, a: Any, b: Any) -> Any:
        nonzero = numbers.compare(a, 0, operator.ne)
        if numbers.is_known(a) and numbers.is_known(b):
            return a != 0 and b % a == 0
        if z3.is_int(a) or z3.is_int(b):
            _, rest = self.world.int_divide(numbers.as_int(b), numbers.as_int(a), True)
            return z3.And(nonzero, rest == 0)
        quotient = numbers.floor_quotient(b, a)
        rest = numbers.subtract(b, numbers.multiply(quotient, a))
        return z3.And(nonzero, rest == 0)

    def _log2(self, a: Any) -> Any:
        self._require(numbers.is_power_of_two(a))
        return numbers.log2(a)

    def _shift(self, a: Any, b: Any) -> Any:
        self._require(numbers.compare(b, 0, operator.ge))
        self._require(numbers.compare(b, 62, operator.le))
        return numbers.shift_left(a, b)

    # ---- right -----------------------------------------------------------------------------------

    def _right(self) -> Value:
        integers: list[Any] = []
        built: list[Value] = []
        for row in self.rule.right_code:
            name = row[0]
            if name == "reg":
                built.append(self.registers[row[1]])
            elif name == "number":
                value = literal(row[1], self._like(row[2]))
                if value is None:
                    raise NeverFiresError(f"{row[1]} is no constant of its dtype")
                built.append(value)
            elif name in ("const", "wconst"):
                built.append(self._computed(integers.pop(), self._like(row[1]), name == "wconst"))
            elif name == "build":
                count = row[2]
                args = built[len(built) - count :]
                del built[len(built) - count :]
                built.append(self._build(row[1], args, row[3], row[4]))
            else:
                self._integer(row, integers)
        (result,) = built
        return result

    def _like(self, like: tuple[str, int | None, DType | None]) -> Sort:
        mode, register, dtype = like
        if mode == "bool":
            return BOOL
        if mode == "fixed":
            assert dtype is not None
            return sort_of(dtype)
        assert register is not None
        return self.registers[register].sort

    def _computed(self, value: Any, sort: Sort, wraps: bool) -> Value:
        """A computed constant; where its dtype does not hold it, the rule does not fire."""
        if sort.kind == "b":
            truth = numbers.truth(value)
            if isinstance(truth, bool):
                truth = z3.BoolVal(truth)
            return Value(truth, sort)
        value = numbers.number(value)
        if sort.kind == "f":
            number = literal(value, sort) if numbers.is_known(value) else None
            if number is None:
                raise UnsupportedError("a float constant that is computed")
            return number
        if wraps and sort.kind == "x":
            raise NeverFiresError("an index does not wrap")
        if sort.bits == 0:
            return Value(numbers.as_int(value), sort)
        if not wraps and sort.kind in "iu":
            self._require(numbers.compare(value, sort.low, operator.ge))
            self._require(numbers.compare(value, sort.high, operator.le))
        return Value(numbers.as_vector(value, sort.bits), sort)

    def _build(
        self,
        op: Ops,
        args: list[Value],
        dtype: tuple[str, int | None, DType | None],
        argument: tuple[str, Any] | None,
    ) -> Value:
        if op is Ops.CONST and argument == ("fixed", Invalid):
            return Value(self.world.fresh("invalid", z3_sort(INDEX)), INDEX, z3.BoolVal(False))
        mode = dtype[0]
        if mode == "inferred":
            kind = OPS[op].dtype_kind
            sort = BOOL if kind == "bool" else args[1 if kind == "src1" else 0].sort
        elif mode == "register":
            sort = self._like(dtype)
        else:
            sort = self._like(("fixed", None, dtype[2]))
        if op is Ops.BITCAST:
            return self._bitcast(args[0], sort)
        if op in PASSING and len(args) == 1:
            return args[0]
        if op is not Ops.CAST:
            self._check(op, args)
        return self.world.apply(op, sort, args)

    def _check(self, op: Ops, args: list[Value]) -> None:
        """What the verifier asks of the operands of an ALU op."""
        rest = args[1:] if op is Ops.WHERE else args
        if op is Ops.WHERE and args[0].sort != BOOL:
            raise IllTypedError(f"WHERE of a {args[0].sort}")
        if len({value.sort for value in rest}) != 1:
            sorts = ", ".join(str(value.sort) for value in rest)
            raise IllTypedError(f"{op.name} of {sorts}")
        if op is not Ops.WHERE and not is_defined(op, rest[0].sort.kind):
            raise IllTypedError(f"{op.name} of {rest[0].sort}")


LEAVES: dict[str, Any] = {
    "value": Translator._value,
    "vmin": lambda t, register: t._bound(register, "vmin"),
    "vmax": lambda t, register: t._bound(register, "vmax"),
    "lowest": lambda t, register: t._limit(register, False),
    "highest": lambda t, register: t._limit(register, True),
    "bits": Translator._bits,
    "lanes": Translator._lanes,
    "is_const": Translator._is_const,
    "same": Translator._same,
    "same_dtype": Translator._same_dtype,
    "kind": Translator._kind,
}
"""Facts about nodes: method of Translator, of registers."""

UNARY: dict[str, Any] = {
    "neg": lambda t, a: numbers.subtract(0, numbers.number(a)),
    "wneg": lambda t, a: numbers.subtract(0, numbers.number(a)),
    "not": lambda t, a: not a if isinstance(a, bool) else z3.Not(numbers.truth(a)),
    "is_pow2": lambda t, a: numbers.is_power_of_two(a),
    "log2": Translator._log2,
}


def _logic(connect: Any, a: Any, b: Any) -> Any:
    a, b = numbers.truth(a), numbers.truth(b)
    if isinstance(a, bool) and isinstance(b, bool):
        return z3.is_true(z3.simplify(connect(z3.BoolVal(a), z3.BoolVal(b))))
    joined = z3.simplify(connect(a, b))
    return bool(z3.is_true(joined)) if z3.is_true(joined) or z3.is_false(joined) else joined


BINARY: dict[str, Any] = {
    "add": lambda t, a, b: numbers.add(a, b),
    "wadd": lambda t, a, b: numbers.add(a, b),
    "sub": lambda t, a, b: numbers.subtract(a, b),
    "wsub": lambda t, a, b: numbers.subtract(a, b),
    "mul": lambda t, a, b: numbers.multiply(a, b),
    "wmul": lambda t, a, b: numbers.multiply(a, b),
    "floordiv": lambda t, a, b: t._divide(a, b)[0],
    "floormod": lambda t, a, b: t._divide(a, b)[1],
    "divides": Translator._divides,
    "max": lambda t, a, b: numbers.choose(numbers.compare(a, b, operator.ge), a, b),
    "min": lambda t, a, b: numbers.choose(numbers.compare(a, b, operator.le), a, b),
    "shl": Translator._shift,
    "and": lambda t, a, b: _logic(z3.And, a, b),
    "or": lambda t, a, b: _logic(z3.Or, a, b),
    "xor": lambda t, a, b: _logic(z3.Xor, a, b),
}
