"""The core in plain Python: what a node is, what matches, what a rewrite gives.

This is the readable definition of `node`, `match` and `rewrite` (and, in `_reference_values`, of
`bounds` and `fold_constants`), and the oracle of their tests: slow, recursive, a page each. It is
never a fall-back. It reads the same rule objects as the compiled core (`morok.ir.rules.Rule`) and
shares no code with it.

Not here: shapes, ranges and devices (the tests of the twin use scalars), affine rules, the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from morok._core._reference_values import (
    I64,
    INTEGER_OPS,
    bounds_of,
    fold,
    lanes,
    limits,
    spelled,
)
from morok.dtype import DType, cast_value, dtypes

ANY_KIND = "biufxvp"


class Unknown(Exception):  # noqa: N818 - a signal, not an error
    """A guard asks for what is not known, or leaves int64."""


# ---- nodes ---------------------------------------------------------------------------------------


class RefNode:
    """(op, dtype, sources, argument). Made by a Table; the same structure is the same object."""

    __slots__ = ("arg", "bounds", "dtype", "op", "src")

    def __init__(self, op: Any, dtype: DType, src: tuple[RefNode, ...], arg: object) -> None:
        self.op = op
        self.dtype = dtype
        self.src = src
        self.arg = arg
        self.bounds = bounds_of(self)

    @property
    def name(self) -> str:
        return str(self.op.name)


class Table:
    """Interns nodes. `specs` maps an op to its row of the op table."""

    def __init__(self, specs: Mapping[Any, Any]) -> None:
        self.specs = specs
        self.ops = {op.name: op for op in specs}
        self._nodes: dict[object, RefNode] = {}

    def node(self, op: Any, dtype: DType, src: Sequence[RefNode] = (), arg: Any = None) -> RefNode:
        """The node of this structure. Arguments are told apart by type, floats by their bits."""
        key = (op, dtype.name, tuple(map(id, src)), spelled(arg))
        if key not in self._nodes:
            self._nodes[key] = RefNode(op, dtype, tuple(src), arg)
        return self._nodes[key]

    def constant(self, dtype: DType, value: Any) -> RefNode | None:
        """The constant `value` of `dtype`, repeated for a vector; None if it is no value of it."""
        scalar = dtype.scalar
        if scalar.kind in "vp" or (isinstance(value, float) and scalar.kind != "f"):
            return None
        if scalar.kind == "x":
            cast: Any = int(value)
            if not I64[0] <= cast <= I64[1]:
                return None
        else:
            cast = cast_value(float(value) if scalar.kind == "f" else value, scalar)
            if scalar.kind == "b":
                cast = bool(cast)
        if cast != value and value == value:
            return None
        if dtype.count == 1:
            return self.node(self.ops["CONST"], dtype, (), cast)
        return self.node(self.ops["VCONST"], dtype, (), (cast,) * dtype.count)

    def infer(self, op: Any, src: Sequence[RefNode]) -> DType:
        """The dtype that follows from the sources."""
        kind = self.specs[op].dtype_kind
        if kind == "bool":
            return dtypes.bool_.vec(src[0].dtype.count) if src[0].dtype.count > 1 else dtypes.bool_
        return src[1].dtype if kind == "src1" else src[0].dtype

    def from_graph(self, root: Any, seen: dict[int, RefNode] | None = None) -> RefNode:
        """The twin of a UOp."""
        seen = {} if seen is None else seen
        if id(root) not in seen:
            src = [self.from_graph(source, seen) for source in root.src]
            seen[id(root)] = self.node(root.op, root.dtype, src, root.arg)
        return seen[id(root)]

    def to_graph(self, root: RefNode, make: Callable[..., Any]) -> Any:
        """The UOp of a twin; `make` is UOp."""
        src = tuple(self.to_graph(source, make) for source in root.src)
        return make(root.op, root.dtype, src, root.arg)


# ---- matching ------------------------------------------------------------------------------------


def fits(pattern: Any, n: RefNode) -> bool:
    """Whether the node itself is as the pattern asks, its sources aside."""
    if pattern.ops is not None and n.op not in pattern.ops:
        return False
    if pattern.kinds is not None and n.dtype.kind not in pattern.kinds:
        return False
    if pattern.dtype is not None and pattern.dtype not in (n.dtype, n.dtype.scalar):
        return False
    if pattern.constant and lanes(n) is None:
        return False
    if pattern.literal is not None:
        return literal_fits(pattern.literal, lanes(n))
    if type(pattern.arg).__name__ != "_Any" and spelled(pattern.arg) != spelled(n.arg):
        return False
    if pattern.src is None:
        return True
    return len(n.src) >= len(pattern.src) if pattern.rest else len(n.src) == len(pattern.src)


def literal_fits(literal: Any, value: Any) -> bool:
    if literal.numeric and value is not None:
        wanted = float(literal.value) if isinstance(value, float) else int(literal.value)
        return spelled(wanted) == spelled(int(value) if isinstance(value, bool) else value)
    return spelled(literal.value) == spelled(value)


def matches(pattern: Any, n: RefNode, bound: dict[str, RefNode]) -> Iterator[dict[str, RefNode]]:
    """Every way in which the pattern fits, the first one first."""
    if not fits(pattern, n):
        return
    if pattern.name is not None:
        if bound.get(pattern.name, n) is not n:
            return
        bound = {**bound, pattern.name: n}
    if not pattern.src:
        yield bound
        return
    orders = [n.src]
    if pattern.commutes and n.src[0] is not n.src[1]:
        orders.append((n.src[1], n.src[0]))
    for sources in orders:
        yield from _match_all([(pattern.src[i], sources[i]) for i in pattern.order], bound)


def _match_all(
    pairs: list[tuple[Any, RefNode]], bound: dict[str, RefNode]
) -> Iterator[dict[str, RefNode]]:
    if not pairs:
        yield bound
        return
    for step in matches(*pairs[0], bound):
        yield from _match_all(pairs[1:], step)


# ---- guards and right sides ----------------------------------------------------------------------


class Scope:
    """Evaluates the terms of one rule under one match."""

    def __init__(self, table: Table, rule: Any, bound: dict[str, RefNode]) -> None:
        self.table = table
        self.bound = bound
        self.terms: dict[int, RefNode] = {}
        if rule.left is not None:
            self._bind(rule.left, rule.pattern)

    def _bind(self, term: Any, pattern: Any) -> None:
        """Expression objects of the left that have a capture name mean the node they matched."""
        if hasattr(term, "op"):
            if pattern.name in self.bound:
                self.terms[id(term)] = self.bound[pattern.name]
            for part, below in zip(term.src, pattern.src or (), strict=False):
                self._bind(part, below)

    def node(self, term: Any) -> RefNode | None:
        """The node that a capture or matched expression is bound to."""
        if hasattr(term, "name") and not hasattr(term, "src"):
            return self.bound[term.name]
        return self.terms.get(id(term))

    def integer(self, term: Any) -> int:
        """The value of a guard or computed constant, in int64; Unknown is raised otherwise."""
        kind = type(term).__name__
        if kind == "Literal":
            return int(term.value)
        if kind == "Const":
            value = lanes(self.bound[term.name])
            if not isinstance(value, int) or not I64[0] <= value <= I64[1]:
                raise Unknown
            return int(value)
        result = self._fact(term) if kind == "Fact" else self._apply(term)
        if not I64[0] <= result <= I64[1]:
            raise Unknown
        return int(result)

    def _fact(self, term: Any) -> int:
        nodes = [self.node(part) for part in term.src]
        n, m = nodes[0], nodes[-1]
        match term.name:
            case "is_pow2":
                value = self.integer(term.src[0])
                return value > 0 and value & (value - 1) == 0
            case "log2":
                value = self.integer(term.src[0])
                if value <= 0 or value & (value - 1):
                    raise Unknown
                return value.bit_length() - 1
            case "divides":
                value = self.integer(term.src[0])
                number = self.integer(term.src[1])
                return value != 0 and number % value == 0
        assert n is not None
        assert m is not None
        match term.name:
            case "vmin" | "vmax":
                if n.bounds is None:
                    raise Unknown
                return n.bounds[term.name == "vmax"]
            case "lowest" | "highest":
                limit = limits(n.dtype)
                if limit is None:
                    raise Unknown
                return limit[term.name == "highest"]
            case "bits":
                return n.dtype.bits
            case "lanes":
                return n.dtype.count
            case "is_const":
                return lanes(n) is not None
            case "same":
                return n is m
            case "same_dtype":
                return n.dtype is m.dtype
            case "kind":
                return n.dtype.kind in term.kinds
        raise AssertionError(term.name)

    def _apply(self, term: Any) -> int:
        values = [self.integer(part) for part in term.src]
        if term.op.name in ("FLOORDIV", "FLOORMOD") and values[1] == 0:
            raise Unknown
        if term.op.name == "SHL" and not 0 <= values[1] <= 62:
            raise Unknown
        return int(INTEGER_OPS[term.op.name](*values))

    def build(self, term: Any, want: DType | None) -> RefNode:
        """The node a right side stands for; Unknown if a constant has no value in its dtype."""
        found = self.node(term)
        if found is not None:
            return found
        kind = type(term).__name__
        if kind == "Literal":
            return self._constant(want, term.value)
        if kind == "Wrap" or self.computed(term):
            return self._computed(term, want)
        parts: list[RefNode | None] = [
            None if self.open(part) else self.build(part, None) for part in term.src
        ]
        known = next((part.dtype for part in parts if part is not None), None)
        if term.op.name == "WHERE":
            arm = parts[1] or parts[2]
            arms = want or (arm.dtype if arm else None)
            condition = dtypes.bool_ if arms is None or arms.count == 1 else None
            wants = [condition, arms, arms]
        else:
            comparison = self.table.specs[term.op].comparison
            wants = [known if comparison else known or want] * len(parts)
        src = [
            part or self.build(old, wanted)
            for part, old, wanted in zip(parts, term.src, wants, strict=True)
        ]
        return self.table.node(term.op, self._dtype(term, src), src, self._argument(term))

    def open(self, term: Any) -> bool:
        """Whether the term's dtype comes from its surroundings: a literal or computed constant."""
        return type(term).__name__ in ("Literal", "Wrap") or self.computed(term)

    def computed(self, term: Any) -> bool:
        if type(term).__name__ != "Apply":
            return type(term).__name__ == "Fact"
        plain = type(term.attr).__name__ == "_Any" and term.target is None
        return (
            plain
            and id(term) not in self.terms
            and term.op.name in INTEGER_OPS
            and all(
                type(part).__name__ in ("Literal", "Const") or self.computed(part)
                for part in term.src
            )
        )

    def _computed(self, term: Any, want: DType | None) -> RefNode:
        if type(term).__name__ != "Wrap":
            boolean = term.name in BOOLEAN if hasattr(term, "name") else term.op.name in BOOLEAN
            dtype = dtypes.bool_ if boolean else want or self._captures(term)[0].dtype
            return self._constant(dtype, self.integer(term))
        dtype = want or self._captures(term.src)[0].dtype
        if dtype.kind not in "iu":
            raise Unknown
        value = int(cast_value(self._wrapping(term.src), dtype.scalar))
        if value > I64[1]:
            raise Unknown
        return self._constant(dtype, value)

    def _wrapping(self, term: Any) -> int:
        if hasattr(term, "op"):
            return int(INTEGER_OPS[term.op.name](*map(self._wrapping, term.src)))
        return self.integer(term)

    def _captures(self, term: Any) -> list[RefNode]:
        found = self.node(term)
        if found is not None:
            return [found]
        return [n for part in getattr(term, "src", ()) for n in self._captures(part)]

    def _constant(self, dtype: DType | None, value: Any) -> RefNode:
        made = None if dtype is None else self.table.constant(dtype, value)
        if made is None:
            raise Unknown
        return made

    def _dtype(self, term: Any, src: list[RefNode]) -> DType:
        if term.target is None:
            return self.table.infer(term.op, src)
        if not isinstance(term.target, DType):
            found = self.node(term.target.of)
            assert found is not None
            return found.dtype
        count = src[0].dtype.count
        return term.target if count == 1 else term.target.vec(count)

    def _argument(self, term: Any) -> Any:
        if type(term.attr).__name__ == "_Any":
            return None
        if hasattr(term.attr, "of"):
            found = self.node(term.attr.of)
            assert found is not None
            return found.arg
        return term.attr


BOOLEAN = frozenset(
    {
        *("LT", "LE", "GT", "GE", "EQ", "NE", "AND", "OR", "XOR", "NOT"),
        *("is_const", "same", "same_dtype", "kind", "divides", "is_pow2"),
    }
)


# ---- rewriting -----------------------------------------------------------------------------------


def apply(table: Table, rules: Sequence[Any], n: RefNode) -> RefNode | None:
    """What the first rule that applies makes of this one node, or None."""
    for rule in rules:
        if rule.roots is not None and n.op not in rule.roots:
            continue
        comparison = table.specs[n.op].comparison
        if (n.src[0] if comparison else n).dtype.kind not in (rule.kinds or ANY_KIND):
            continue
        result = fold(table, n) if rule.native == "fold" else apply_data(table, rule, n)
        if result is not None and result is not n and result.dtype is n.dtype:
            return result
    return None


def apply_data(table: Table, rule: Any, n: RefNode) -> RefNode | None:
    """The right side under the first match whose guards hold and whose constants have values."""
    for bound in matches(rule.pattern, n, {}):
        scope = Scope(table, rule, bound)
        try:
            # every guard is asked: what is unknown in one keeps the rule from firing
            if min([1, *(scope.integer(guard) for guard in rule.guards)]):
                made = scope.build(rule.right, n.dtype)
                if made is not n and made.dtype is n.dtype:
                    return made
        except Unknown:
            continue
    return None


def rewrite(
    table: Table, root: RefNode, rules: Sequence[Any], before: Sequence[Any] = ()
) -> RefNode:
    """The fixed point: see the definition at the head of `rewrite.pyx`."""
    done: dict[int, RefNode] = {}

    def result(n: RefNode) -> RefNode:
        if id(n) in done:
            return done[id(n)]
        replaced = apply(table, before, n)
        if replaced is not None:
            done[id(n)] = result(replaced)
            return done[id(n)]
        sources = [result(s) for s in n.src]
        new = n
        if any(a is not b for a, b in zip(sources, n.src, strict=True)):
            new = table.node(n.op, n.dtype, sources, n.arg)
        if id(new) in done:
            done[id(n)] = done[id(new)]
            return done[id(n)]
        replaced = apply(table, rules, new)
        final = new if replaced is None else result(replaced)
        done[id(new)] = done[id(n)] = final
        return final

    return result(root)
