"""The rewrite benchmark's rules and nodes in morok."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import morok
from morok import _core
from morok.dtype import dtypes
from morok.ir import Const, Ops, RuleSet, UOp, Var, graph_rewrite, not_const
from morok.symbolic import sym

x, y = Var("x"), Var("y")
_ = Var("_")
c, c0, c1, c2 = Const("c"), Const("c0"), Const("c1"), Const("c2")
ALU = {"+": Ops.ADD, "*": Ops.MUL, "/": Ops.FLOORDIV, "%": Ops.FLOORMOD}

RULES = RuleSet("bench", dtype="x")
RULES.native("fold", ops=ALU.values(), need=(Ops.CONST,))
# fmt: off
RULES.table([
    ("x+0",               x + 0,               x),
    ("x*1",               x * 1,               x),
    ("x*0",               _ * 0,               0),
    ("x//1",              x // 1,              x),
    ("x%1",               _ % 1,               0),
    ("(x+c1)+c2",         (x + c1) + c2,       x + (c1 + c2)),
    ("(x*c1)*c2",         (x * c1) * c2,       x * (c1 * c2)),
    ("(x+c1)*c2",         (x + c1) * c2,       x * c2 + (c1 * c2)),
    ("const right",       (x + c) + y,         (x + y) + c,                 not_const(y)),
    ("x*c0+x*c1",         x * c0 + x * c1,     x * (c0 + c1)),
    ("x+x*c",             x + x * c,           x * (c + 1)),
    ("x+x",               x + x,               x * 2),
    ("(y+x*c0)+x*c1",     (y + x * c0) + x * c1, y + x * (c0 + c1)),
    ("(y+x)+x*c1",        (y + x) + x * c1,    y + x * (c1 + 1)),
    ("(y+x*c1)+x",        (y + x * c1) + x,    y + x * (c1 + 1)),
    ("(y+x)+x",           (y + x) + x,         y + x * 2),
    ("(x//c1)//c2",       (x // c1) // c2,     x // (c1 * c2),              (c1 > 0, c2 > 0)),
    ("(x%c1)%c2",         (x % c1) % c2,       x % c2,                      (c2 > 0, c1 % c2 == 0)),
    ("x//c const",        x // c,              x.vmin // c,
     (c > 0, x.vmin // c == x.vmax // c)),
    ("x%c shift",         x % c,               x + (x.vmin // c) * c * -1,
     (c > 0, x.vmin // c == x.vmax // c)),
    ("(x*c0)//c1 exact",  (x * c0) // c1,      x * (c0 // c1),              (c1 > 0, c0 % c1 == 0)),
    ("(x*c0)//c1 cancel", (x * c0) // c1,      x // (c1 // c0),
     (c0 > 0, c1 > 0, c1 % c0 == 0)),
    ("(x*c0)%c1 zero",    (_ * c0) % c1,       0,                           (c1 > 0, c0 % c1 == 0)),
    ("(x*c0)%c1 factor",  (x * c0) % c1,       (x % (c1 // c0)) * c0,
     (c0 > 1, c1 > 0, c1 % c0 == 0)),
    ("(y+x*c0)//c1",      (y + x * c0) // c1,  y // c1 + x * (c0 // c1),    (c1 > 0, c0 % c1 == 0)),
    ("(y+x*c0)%c1",       (y + _ * c0) % c1,   y % c1,                      (c1 > 0, c0 % c1 == 0)),
    ("(x+c0)//c1",        (x + c0) // c1,      (x + (c0 % c1)) // c1 + (c0 // c1),
     (c1 > 0, c0 // c1 != 0)),
    ("(x+c0)%c1",         (x + c0) % c1,       (x + (c0 % c1)) % c1,
     (c1 > 0, c0 // c1 != 0)),
    ("recombine",         x % c + (x // c) * c, x,                          c > 0),
])
# fmt: on


class System:
    """See `bench._rewrite_cases.Rewriter`."""

    @staticmethod
    def version() -> str:
        return str(morok.__version__)

    def constant(self, value: int) -> UOp:
        return UOp.const(dtypes.index, value)

    def loop(self, extent: int, axis: int) -> UOp:
        return UOp.range(extent, axis)

    def binary(self, op: str, a: UOp, b: UOp | int) -> UOp:
        other = self.constant(b) if isinstance(b, int) else b
        return UOp(ALU[op], dtypes.index, (a, other))

    def sink(self, nodes: Sequence[UOp]) -> UOp:
        return UOp(Ops.SINK, dtypes.void, tuple(nodes))

    def rules(self) -> _core.Matcher:
        """A set of its own: equal sets made by `RuleSet` would share what they remember."""
        return _core.Matcher("bench", [rule.program for rule in RULES])

    def catalogue(self) -> _core.Matcher:
        """The largest set the pipeline runs."""
        return _core.Matcher("catalogue", [rule.program for rule in sym])

    def rewrite(self, root: UOp, rules: Any) -> UOp:
        return _core.graph_rewrite(root, rules)

    def count(self, root: UOp) -> int:
        return len(_core.toposort(root))


assert graph_rewrite(UOp.range(9, 0) * 1, RULES) is UOp.range(9, 0)
