"""The compiled core against its pure-Python twin: bounds, matching, folding, rewriting.

Rules and graphs are drawn at random; both sides read the same rule objects.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from morok._core._reference import Table, apply, rewrite
from morok.dtype import DType, dtypes
from morok.errors import DTypeError
from morok.ir import (
    OPS,
    Const,
    GroupOp,
    Ops,
    RuleSet,
    UOp,
    Var,
    divides,
    graph_rewrite,
    highest,
    is_pow2,
    kind,
    log2,
    not_const,
    num,
    same_dtype,
    wrap,
)
from morok.ir import UOp as Made
from morok.ir.terms import Apply, Capture, Literal, Term

x, y, z = Var("x"), Var("y"), Var("z")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")
cast_x = x.cast()

INT_OPS = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAX, Ops.MIN, Ops.SHL]
FLOAT_OPS = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN]
COMPARISONS = [Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.EQ, Ops.NE]
DTYPES = [dtypes.index, dtypes.int32, dtypes.uint8, dtypes.float32, dtypes.bfloat16]

# One rule for each thing the language can say. All of them end: they shrink or sort.
RULES = RuleSet("twin")
RULES.table(
    [
        ("any_one", x * num(1), x),
        ("any_zero", x + num(0), x, kind(x, "iux")),
        ("minus_zero", x + -0.0, x),
        ("double", x + x, x * num(2)),
        ("where_same", Const("_c").where(x, x), x),
        ("where_any", Var("_").where(x, x), x),
        ("max_same", x.maximum(x), x),
        ("neg_neg", x.alu(Ops.NEG).alu(Ops.NEG), x),
        ("cast_same", cast_x, x, same_dtype(x, cast_x)),
    ]
)
RULES.table(
    [
        ("add_add", (x + c0) + c1, x + wrap(c0 + c1)),
        ("mul_mul", (x * c0) * c1, x * (c0 * c1)),
        ("sub_const", x - c, x + (-c), (c > -100) & (c < 100)),
        ("terms", x * c0 + x * c1, x * (c0 + c1)),
        ("div_cancel", (x * c0) // c1, x // (c1 // c0), (c0 > 0, c1 > 0, divides(c0, c1))),
        ("div_div", (x // c0) // c1, x // (c0 * c1), (c0 > 0, c1 > 0)),
        ("mod_small", x % c, x, (x.vmin >= 0) & (x.vmax < c)),
        ("mod_mod", (x % c0) % c1, x % c1, (c1 > 0) & divides(c1, c0)),
        ("max_bounds", x.maximum(y), x, x.vmin >= y.vmax),
        ("min_bounds", x.minimum(y), y, x.vmin >= y.vmax),
        ("shift", x * c, x << log2(c), is_pow2(c) & (c > 2) & not_const(x)),
        ("top", x.maximum(c), c, c == highest(x)),
        ("factor", x * y + x * z, x * (y + z), (not_const(x), not_const(y), not_const(z))),
    ],
    dtype="iux",
)
RULES.table(
    [
        ("lt_true", x < y, True, x.vmax < y.vmin),
        ("lt_false", x < y, False, x.vmin >= y.vmax),
        ("lt_const", (x + c0) < c1, x < (c1 - c0), kind(x, "x")),
        ("ge", x >= y, ~(x < y)),
    ],
    dtype="ix",
)
RULES.table(
    [
        ("and_true", x & True, x),
        ("or_true", Var("_") | True, True),
        ("not_not", ~~x, x),
        ("and_not", x & ~x, False),
    ],
    dtype="b",
)
RULES.native("fold", ops=GroupOp.ALU | GroupOp.Cast)

BEFORE = RuleSet("before")
BEFORE.table(
    [
        ("open", (x + y) * c, x * c + y * c, not_const(x) & not_const(y)),
        ("minus", x - y, x + y * -1),
    ],
    dtype="x",
)

SPECIAL = [0, 1, 2, 3, 4, 8, -1, -7, 100, 127, 255]


def constant(dtype: DType, value: int) -> UOp:
    if dtype.kind == "b":
        return UOp.const(dtype, bool(value))
    if dtype.kind == "u":
        value %= 1 << dtype.bits
    return UOp.const(dtype, float(value) if dtype.kind == "f" else value)


@st.composite
def graphs(draw: st.DrawFn, dtype: DType | None = None, depth: int = 4, flags: bool = True) -> UOp:
    """A random expression over ranges, variables and constants of one dtype; a comparison of two if
    `flags`."""
    dtype = dtype or draw(st.sampled_from(DTYPES))
    leaves = [constant(dtype, v) for v in SPECIAL]
    if dtype is dtypes.index:
        leaves += [UOp.range(n, i) for i, n in enumerate((1, 4, 7, 64))]
    else:
        leaves += [UOp.define_var(f"v{i}", lo, hi).cast(dtype) for i, (lo, hi) in
                   enumerate(((0, 3), (-5, 5), (7, 7)))]  # fmt: skip
    if dtype.kind == "f":
        leaves += [UOp.const(dtype, v) for v in (-0.0, 0.5, float("inf"), float("nan"))]
    pool = list(leaves)
    for _ in range(draw(st.integers(1, 3 * depth))):
        shape = draw(st.integers(0, 9))
        a, b = draw(st.sampled_from(pool[-6:] + leaves)), draw(st.sampled_from(pool))
        if shape == 9:
            comparison = draw(st.sampled_from(COMPARISONS))
            condition = Made(comparison, dtypes.bool_, (a, draw(st.sampled_from(pool))))
            pool.append(Made(Ops.WHERE, dtype, (condition, a, b)))
        elif shape == 8 and dtype is not dtypes.uint8:
            pool.append(Made(Ops.NEG, dtype, (a,)))
        else:
            op = draw(st.sampled_from(FLOAT_OPS if dtype.kind == "f" else INT_OPS))
            pool.append(Made(op, dtype, (a, b)))
    top = pool[-1]
    if flags and draw(st.booleans()):
        other = draw(st.sampled_from(pool))
        flag = Made(draw(st.sampled_from(COMPARISONS)), dtypes.bool_, (top, other))
        return ~flag if draw(st.booleans()) else flag & UOp.const(dtypes.bool_, True)
    return top


@st.composite
def instances(draw: st.DrawFn) -> UOp:
    """The left side of a random rule, with random nodes for its captures."""
    rule = draw(st.sampled_from([rule for rule in (*RULES, *BEFORE) if rule.is_data]))
    kinds = rule.kinds or "biuxf"
    dtype = draw(st.sampled_from([t for t in (*DTYPES, dtypes.bool_) if t.kind in kinds]))
    bound: dict[str, UOp] = {}

    def leaf(name: str, dtype: DType, is_constant: bool) -> UOp:
        if name not in bound:
            number = constant(dtype, draw(st.sampled_from(SPECIAL)))
            if dtype is dtypes.bool_:
                other = UOp.range(7, 2) < draw(st.integers(-1, 8))
            else:
                other = draw(graphs(dtype=dtype, depth=1, flags=False))
            bound[name] = number if is_constant or draw(st.booleans()) else other
        return bound[name]

    def build(term: Term, dtype: DType) -> UOp:
        if isinstance(term, Capture):
            return leaf(term.name, dtype, isinstance(term, Const))
        if isinstance(term, Literal):
            value = bool(term.value) if dtype.kind == "b" else term.value
            return UOp.const(dtype, float(value) if dtype.kind == "f" else value)
        assert isinstance(term, Apply)
        if OPS[term.op].comparison:
            return Made(term.op, dtypes.bool_, tuple(build(part, dtype) for part in term.src))
        if term.op is Ops.WHERE:
            arms = (build(part, dtype) for part in term.src[1:])
            return Made(term.op, dtype, (build(term.src[0], dtypes.bool_), *arms))
        if term.op is Ops.CAST:
            return build(term.src[0], draw(st.sampled_from(DTYPES))).cast(dtype)
        src = [build(part, dtype) for part in term.src]
        if OPS[term.op].commutative and draw(st.booleans()):
            src.reverse()
        return Made(term.op, dtype, tuple(src))

    try:
        return build(rule.left, dtype)
    except DTypeError:  # e.g. a negated bool
        return UOp.const(dtype, 0) if dtype.kind != "f" else UOp.const(dtype, 0.0)


anything = st.one_of(graphs(), instances())


@given(anything)
def test_nodes_and_bounds(graph: UOp) -> None:
    table = Table(OPS)
    seen: dict[int, object] = {}
    twin = table.from_graph(graph, seen)
    assert table.to_graph(twin, Made) is graph
    for node in graph.toposort():
        known = None if node.vmin is None else (node.vmin, node.vmax)
        assert seen[id(node)].bounds == known, node.tree()


@given(anything)
def test_one_step(graph: UOp) -> None:
    table = Table(OPS)
    for node in graph.toposort():
        expected = apply(table, list(RULES), table.from_graph(node))
        got = RULES.rewrite(node)
        if expected is None:
            assert got is None, f"{node.tree()}\n-> {got.tree()}"
        else:
            assert got is table.to_graph(expected, Made), node.tree()


@given(anything)
def test_fixed_point(graph: UOp) -> None:
    table = Table(OPS)
    expected = table.to_graph(rewrite(table, table.from_graph(graph), list(RULES)), Made)
    assert graph_rewrite(graph, RULES) is expected
    assert graph_rewrite(expected, RULES) is expected


@given(st.one_of(graphs(dtype=dtypes.index), instances()))
def test_before_and_rules_in_one_walk(graph: UOp) -> None:
    table = Table(OPS)
    twin = rewrite(table, table.from_graph(graph), list(RULES), list(BEFORE))
    expected = table.to_graph(twin, Made)
    assert graph_rewrite(graph, RULES, before=BEFORE) is expected


@given(st.one_of(graphs(dtype=dtypes.index), instances()))
def test_before_alone(graph: UOp) -> None:
    table = Table(OPS)
    expected = table.to_graph(rewrite(table, table.from_graph(graph), [], list(BEFORE)), Made)
    assert graph_rewrite(graph, None, before=BEFORE) is expected


@given(anything, st.data())
def test_sharing_of_memos_with_normal_bits(graph: UOp, data: st.DataObject) -> None:
    """The result does not depend on what was rewritten before."""
    part = data.draw(st.sampled_from(graph.toposort()))
    alone = graph_rewrite(graph, RULES)
    graph_rewrite(part, RULES)
    assert graph_rewrite(graph, RULES) is alone
