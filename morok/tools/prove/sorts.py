"""The sorts that a rule is proved at: every way to give dtypes to its left side.

A sort stands for dtypes of its class: 8 and 16 bits for ints of any width (32 and 64 too for rules
that name numbers for which 16 bits are few), small IEEE formats for floats, unbounded integers for
`index`. An `index` that only bitwise ops or casts touch is a bit vector: bitwise ops work bit by
bit whatever the width, and a cast sees the 64 bits of a position, beside ints of 64 bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from morok.dtype import DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import OPS, GroupOp, Invalid, Ops, Pat, Rule, UOp, check_node


@dataclass(frozen=True, slots=True)
class Sort:
    """A class of dtypes (`DType.kind`) at a width; `exponent`: bits of a float's exponent. An
    `index` of 0 bits is an unbounded integer."""

    kind: str
    bits: int
    exponent: int = 0

    def __str__(self) -> str:
        if self.kind == "x":
            return "index" if self.bits == 0 else f"index{self.bits}"
        name = {"b": "bool", "i": "int", "u": "uint", "f": "float"}[self.kind]
        if self.kind == "f":
            return f"{name}{self.bits}e{self.exponent}"
        return name if self.kind == "b" else f"{name}{self.bits}"

    @property
    def low(self) -> int:
        """Least value of a bool or a fixed-width int."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def high(self) -> int:
        """Greatest value of a bool or a fixed-width int."""
        if self.kind == "b":
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind == "i" else (1 << self.bits) - 1


BOOL = Sort("b", 8)
INDEX = Sort("x", 0)
INDEX_BITS = Sort("x", 16)
INDEX_WORD = Sort("x", 64)
FLOAT8 = Sort("f", 8, 4)
FLOAT16 = Sort("f", 16, 5)
BFLOAT16 = Sort("f", 16, 8)
FLOAT32 = Sort("f", 32, 8)
INTS = (Sort("i", 8), Sort("i", 16), Sort("u", 8), Sort("u", 16))
PLAIN = (BOOL, *INTS, FLOAT8, INDEX)
"""Sorts for rules without casts between dtypes."""
CASTING = (BOOL, *INTS, FLOAT8, FLOAT16, BFLOAT16, FLOAT32, INDEX)
"""Sorts for rules with them."""
WORDS = (Sort("i", 64), Sort("u", 64))
"""Ints as wide as a position, where a rule casts one to the other."""
WIDE = (Sort("i", 32), Sort("u", 32), *WORDS)
"""Ints that a rule is looked at beside `INTS` when its numbers say nothing at 16 bits."""
FEW_BITS = 16
BY_WIDTH = frozenset({Ops.SHL, Ops.SHR, Ops.POW})
"""Ops whose second operand counts bits."""
BITS_IN_GUARDS = frozenset({"bits", "log2", "shl", "mul", "wmul"})

BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.NOT})
PASSING = frozenset({Ops.REDUCE, Ops.AFTER, Ops.VECTORIZE, Ops.CAT})
"""Ops that, with one source, are that source."""
_BY_KIND = {
    "b": dtypes.bool_, "i": dtypes.int8, "u": dtypes.uint8, "f": dtypes.float32, "x": dtypes.index,
}  # fmt: skip


class UnsupportedError(Exception):
    """What the prover has no meaning for."""


def sort_of(dtype: DType) -> Sort:
    """The sort of a dtype that a rule names."""
    for sort in (BOOL, *INTS, *WIDE, FLOAT16, FLOAT32, INDEX):
        if sort.kind == dtype.kind and (sort.kind in "bx" or sort.bits == dtype.bits):
            return BFLOAT16 if dtype is dtypes.bfloat16 else sort
    raise UnsupportedError(f"no sort for {dtype}")


@cache
def is_defined(op: Ops, kind: str) -> bool:
    """Whether the verifier accepts `op` on operands of a dtype class."""
    dtype = _BY_KIND[kind]
    source = UOp(Ops.INDEX, dtype, (UOp.param(0, dtype, 8), UOp.const(dtypes.index, 0)), False)
    result = dtypes.bool_ if OPS[op].comparison else dtype
    try:
        check_node(UOp(op, result, (source,) * OPS[op].arity))
    except InvalidGraphError:
        return False
    return True


class _Classes:
    """Union-find over the nodes of a pattern that have one dtype."""

    def __init__(self) -> None:
        self.parent: dict[object, object] = {}
        self.allowed: dict[object, str] = {}
        self.fixed: dict[object, Sort] = {}

    def find(self, key: object) -> object:
        while (above := self.parent.setdefault(key, key)) is not key:
            key = above
        return key

    def union(self, a: object, b: object) -> None:
        a, b = self.find(a), self.find(b)
        if a is b:
            return
        self.parent[b] = a
        self.restrict(a, self.allowed.pop(b, "biufx"))
        if b in self.fixed:
            self.fix(a, self.fixed.pop(b))

    def restrict(self, key: object, kinds: str) -> None:
        key = self.find(key)
        self.allowed[key] = "".join(k for k in self.allowed.get(key, "biufx") if k in kinds)

    def fix(self, key: object, sort: Sort) -> None:
        key = self.find(key)
        if self.fixed.setdefault(key, sort) != sort:
            self.allowed[key] = ""
        self.restrict(key, sort.kind)


def _op(pattern: Pat) -> Ops | None:
    """The op of an inner node; None for captures and numbers."""
    if pattern.constant or pattern.literal is not None or pattern.ops is None:
        return None
    (op,) = pattern.ops
    return op


def ops_of(rule: Rule) -> set[Ops]:
    """All ops of the left and the right side."""
    assert rule.pattern is not None
    left = {op for pattern in rule.pattern.walk() if (op := _op(pattern)) is not None}
    return left | {row[1] for row in rule.right_code if row[0] == "build"}


def _key(pattern: Pat) -> object:
    return pattern.name if pattern.name is not None else id(pattern)


def _constrain(rule: Rule) -> _Classes:
    classes = _Classes()
    assert rule.pattern is not None
    for pattern in rule.pattern.walk():
        key = _key(pattern)
        classes.find(key)
        if isinstance(pattern.dtype, DType):
            classes.fix(key, sort_of(pattern.dtype))
        if pattern.literal is not None:
            value = pattern.literal.value
            numeric = pattern.literal.numeric
            kinds = {bool: "b", float: "f", int: "iux"}[type(value)]
            classes.restrict(key, "biufx" if numeric else kinds)
        op = _op(pattern)
        if op is not None:
            _constrain_op(classes, key, op, [_key(part) for part in pattern.src or ()], pattern)
    root = rule.pattern
    subject = _key(root)
    if (op := _op(root)) is not None and OPS[op].comparison:
        subject = _key((root.src or ())[0])
    if rule.kinds is not None:
        classes.restrict(subject, rule.kinds)
    return classes


def _constrain_op(classes: _Classes, key: object, op: Ops, src: list[object], pattern: Pat) -> None:
    if op in (Ops.CAST, Ops.BITCAST):
        return
    if op is Ops.CONST:
        if pattern.arg is Invalid:
            classes.fix(key, INDEX)
    elif op is Ops.RANGE:
        classes.fix(key, INDEX)
        classes.fix(src[0], INDEX)
    elif op in PASSING and len(src) == 1:
        classes.union(key, src[0])
    elif op is Ops.LOAD and len(src) == 3:
        classes.union(key, src[2])
        classes.fix(src[0], BOOL)  # the buffer, which has no value
        classes.fix(src[1], INDEX)
    elif op is Ops.WHERE:
        classes.fix(src[0], BOOL)
        classes.union(key, src[1])
        classes.union(key, src[2])
    elif op in GroupOp.ALU:
        for other in src[1:]:
            classes.union(src[0], other)
        if OPS[op].comparison:
            classes.fix(key, BOOL)
        else:
            classes.union(key, src[0])
        classes.restrict(src[0], "".join(k for k in "biufx" if is_defined(op, k)))
    else:
        raise UnsupportedError(f"{op.name} with {len(src)} sources has no meaning here")


def names_wide_numbers(rule: Rule) -> bool:
    """Whether the rule may behave at 32 or 64 bits as it does at no 8 or 16.

    So do numbers past 15 bits; and shorter ones that count bits, as in `(x << 9) << 9 -> 0`.
    """
    assert rule.pattern is not None
    code = [*rule.guard_code, *rule.right_code]
    found = [part.literal.value for part in rule.pattern.walk() if part.literal is not None]
    found += {row[1] for row in code if row[0] in ("k", "number")}
    sizes = [abs(value) for value in found if isinstance(value, int)]
    if any(size >= 1 << (FEW_BITS - 1) for size in sizes):
        return True
    counts = bool(ops_of(rule) & BY_WIDTH) or any(row[0] in BITS_IN_GUARDS for row in code)
    return counts and sum(sizes) >= FEW_BITS


def typings(rule: Rule) -> Iterator[Mapping[object, Sort]]:
    """Every choice of sorts for the left side, by name of the capture or id of the pattern."""
    classes = _constrain(rule)
    assert rule.pattern is not None
    keys = [_key(pattern) for pattern in rule.pattern.walk()]
    roots = list(dict.fromkeys(classes.find(key) for key in keys))
    ops = ops_of(rule)
    casts = bool(ops & {Ops.CAST, Ops.BITCAST})
    wide = WIDE if names_wide_numbers(rule) else ()
    extra = wide or WORDS if casts else wide
    choices = []
    for root in roots:
        allowed = classes.allowed.get(root, "biufx")
        if root in classes.fixed:
            choices.append([classes.fixed[root]] if classes.fixed[root].kind in allowed else [])
        else:
            sorts = (*(CASTING if casts else PLAIN), *extra)
            choices.append([s for s in sorts if s.kind in allowed])
    for chosen in itertools.product(*choices):
        if not wide and INDEX not in chosen and not set(WORDS).isdisjoint(chosen):
            continue
        of_root = dict(zip(roots, chosen, strict=True))
        yield _with_index_form(rule, ops, {key: of_root[classes.find(key)] for key in keys})


def _with_index_form(
    rule: Rule, ops: set[Ops], typing: dict[object, Sort]
) -> Mapping[object, Sort]:
    form = INDEX
    if ops & BITWISE and ops <= BITWISE | {Ops.WHERE, Ops.CONST}:
        form = INDEX_BITS
    assert rule.pattern is not None
    for pattern in rule.pattern.walk():
        op = _op(pattern)
        if op in (Ops.CAST, Ops.BITCAST):
            pair = {typing[_key(pattern)], typing[_key((pattern.src or ())[0])]}
            if INDEX in pair and BOOL not in pair:
                form = INDEX_WORD
    return {key: form if sort == INDEX else sort for key, sort in typing.items()}
