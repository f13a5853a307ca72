"""The rewrite benchmark's rules and nodes in tinygrad, by its public API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, graph_rewrite
from tinygrad.uop.symbolic import symbolic

x, y = UPat.var("x"), UPat.var("y")
c, c0, c1, c2 = UPat.cvar("c"), UPat.cvar("c0"), UPat.cvar("c1"), UPat.cvar("c2")
ALU = {"+": Ops.ADD, "*": Ops.MUL, "/": Ops.FLOORDIV, "%": Ops.FLOORMOD}
FOLD: dict[Ops, Callable[[int, int], int | None]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else None,
    Ops.FLOORMOD: lambda a, b: a % b if b else None,
}


def fold(root: UOp, a: UOp, b: UOp) -> UOp | None:
    value = FOLD[root.op](a.arg, b.arg)
    return None if value is None else root.const_like(value)


# fmt: off
TABLE: list[Any] = [
    (UPat(tuple(FOLD), src=(UPat.cvar("a"), UPat.cvar("b")), name="root"), fold),
    (x + 0, lambda x: x),
    (x * 1, lambda x: x),
    (x * 0, lambda x: x.const_like(0)),
    (x // 1, lambda x: x),
    (x % 1, lambda x: x.const_like(0)),
    ((x + c1) + c2, lambda x, c1, c2: x + (c1.arg + c2.arg)),
    ((x * c1) * c2, lambda x, c1, c2: x * (c1.arg * c2.arg)),
    ((x + c1) * c2, lambda x, c1, c2: x * c2 + (c1.arg * c2.arg)),
    ((x + c) + y, lambda x, c, y: (x + y) + c if y.op is not Ops.CONST else None),
    (x * c0 + x * c1, lambda x, c0, c1: x * (c0.arg + c1.arg)),
    (x + x * c, lambda x, c: x * (c.arg + 1)),
    (x + x, lambda x: x * 2),
    ((y + x * c0) + x * c1, lambda x, y, c0, c1: y + x * (c0.arg + c1.arg)),
    ((y + x) + x * c1, lambda x, y, c1: y + x * (c1.arg + 1)),
    ((y + x * c1) + x, lambda x, y, c1: y + x * (c1.arg + 1)),
    ((y + x) + x, lambda x, y: y + x * 2),
    ((x // c1) // c2, lambda x, c1, c2:
        x // (c1.arg * c2.arg) if c1.arg > 0 and c2.arg > 0 else None),
    ((x % c1) % c2, lambda x, c1, c2: x % c2 if c2.arg > 0 and c1.arg % c2.arg == 0 else None),
    (x // c, lambda x, c: x.const_like(x.vmin // c.arg)
        if c.arg > 0 and x.vmin // c.arg == x.vmax // c.arg else None),
    (x % c, lambda x, c: x + (x.vmin // c.arg) * c.arg * -1
        if c.arg > 0 and x.vmin // c.arg == x.vmax // c.arg else None),
    ((x * c0) // c1, lambda x, c0, c1:
        x * (c0.arg // c1.arg) if c1.arg > 0 and c0.arg % c1.arg == 0 else None),
    ((x * c0) // c1, lambda x, c0, c1:
        x // (c1.arg // c0.arg) if c0.arg > 0 and c1.arg > 0 and c1.arg % c0.arg == 0 else None),
    ((x * c0) % c1, lambda x, c0, c1:
        x.const_like(0) if c1.arg > 0 and c0.arg % c1.arg == 0 else None),
    ((x * c0) % c1, lambda x, c0, c1: (x % (c1.arg // c0.arg)) * c0.arg
        if c0.arg > 1 and c1.arg > 0 and c1.arg % c0.arg == 0 else None),
    ((y + x * c0) // c1, lambda x, y, c0, c1: y // c1 + x * (c0.arg // c1.arg)
        if c1.arg > 0 and c0.arg % c1.arg == 0 else None),
    ((y + x * c0) % c1, lambda x, y, c0, c1:
        y % c1 if c1.arg > 0 and c0.arg % c1.arg == 0 else None),
    ((x + c0) // c1, lambda x, c0, c1: (x + (c0.arg % c1.arg)) // c1 + (c0.arg // c1.arg)
        if c1.arg > 0 and c0.arg // c1.arg != 0 else None),
    ((x + c0) % c1, lambda x, c0, c1:
        (x + (c0.arg % c1.arg)) % c1 if c1.arg > 0 and c0.arg // c1.arg != 0 else None),
    (x % c + (x // c) * c, lambda x, c: x if c.arg > 0 else None),
]
# fmt: on
RULES = PatternMatcher(TABLE)


class System:
    """See `bench._rewrite_cases.Rewriter`."""

    @staticmethod
    def version() -> str:
        return version("tinygrad")

    def constant(self, value: int) -> Any:
        return self.loop(4, 0).const_like(value)

    def loop(self, extent: int, axis: int) -> Any:
        return UOp.range(extent, axis)

    def binary(self, op: str, a: Any, b: Any) -> Any:
        return a.alu(ALU[op], self.constant(b) if isinstance(b, int) else b)

    def sink(self, nodes: Sequence[Any]) -> Any:
        return UOp.sink(*nodes)

    def rules(self) -> Any:
        return RULES  # it remembers nothing between calls

    def catalogue(self) -> Any:
        return symbolic

    def rewrite(self, root: Any, rules: Any) -> Any:
        return graph_rewrite(root, rules)

    def count(self, root: Any) -> int:
        return len(root.toposort())
