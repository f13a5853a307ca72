"""The matcher: patterns, opaque and native rules, counts, folding of constants."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok import _core
from morok.dtype import DType, cast_value, dtypes
from morok.errors import RuleError
from morok.ir import (
    Const,
    GroupOp,
    Ops,
    Pat,
    ReduceOp,
    RuleSet,
    UOp,
    Var,
    ends_idle,
    graph_rewrite,
    node,
    num,
)

x, y = Var("x"), Var("y")
c = Const("c")
i = UOp.range(64, 0)
j = UOp.range(8, 1)
f32 = UOp(Ops.PARAM, dtypes.float32, (), (0, 1))


def seen(pattern: Pat, root: UOp, **options: Any) -> list[dict[str, UOp]]:
    """What a pattern that captures `n` (and perhaps `m`) hands to its function, call by call."""
    calls: list[dict[str, UOp]] = []
    rules = RuleSet("seen")
    if any(part.name == "m" for part in pattern.walk()):
        rules.opaque(pattern, **options)(lambda n, m: calls.append({"n": n, "m": m}))
    else:
        rules.opaque(pattern, **options)(lambda n: calls.append({"n": n}))
    assert rules.rewrite(root) is None
    return calls


# ---- patterns ---------------------------------------------------------------------------------


def test_ops_and_sources() -> None:
    assert seen(Pat(Ops.ADD, name="n"), i + j) == [{"n": i + j}]
    assert not seen(Pat(Ops.ADD, name="n"), i * j)
    assert seen(Pat(GroupOp.Binary, name="n"), i * j)
    assert seen(Pat({Ops.ADD, Ops.MUL}, (Pat(Ops.RANGE), None), name="n"), i * j)
    assert seen(Pat(None, (), name="n"), UOp.const(dtypes.index, 3), any_root=True)
    assert not seen(Pat(None, (), name="n"), i, any_root=True)
    three = UOp(Ops.SINK, dtypes.void, (i, j, i))
    assert seen(Pat(Ops.SINK, (Pat(name="m"),), rest=True, name="n"), three) == [
        {"n": three, "m": i}
    ]
    assert not seen(Pat(Ops.SINK, (Pat(name="m"),), name="n"), three)
    assert not seen(Pat(Ops.SINK, (None, None, None, None), rest=True, name="n"), three)
    assert seen(Pat(Ops.SINK, (None, None, None), rest=True, name="n"), three)


def test_commutative_alternatives_in_order() -> None:
    both = [{"n": i + j, "m": i}, {"n": i + j, "m": j}]
    assert seen(Pat(Ops.ADD, (Pat(name="m"), None), name="n"), i + j) == both
    assert seen(Pat(Ops.SUB, (Pat(name="m"), None), name="n"), i - j) == [{"n": i - j, "m": i}]
    assert len(seen(Pat(Ops.ADD, (Pat(name="m"), None), name="n"), i + i)) == 1
    mixed = Pat({Ops.ADD, Ops.SUB}, (Pat(name="m"), None), name="n")
    assert len(seen(mixed, i + j)) == 1


def test_dtype_classes() -> None:
    assert seen(Pat(Ops.ADD, name="n", dtype="x"), i + j)
    assert not seen(Pat(Ops.ADD, name="n", dtype="f"), i + j)
    assert seen(Pat(Ops.ADD, name="n", dtype=dtypes.float32), f32 + f32)
    assert not seen(Pat(Ops.ADD, name="n", dtype=dtypes.float64), f32 + f32)
    assert seen(Pat(Ops.ADD, name="n"), i + j, dtype="ix")
    assert not seen(Pat(Ops.ADD, name="n"), i + j, dtype="f")
    # of a comparison: the operands
    assert seen(Pat(Ops.LT, name="n"), i < j, dtype="x")
    assert not seen(Pat(Ops.LT, name="n"), i < j, dtype="b")
    pointer = UOp(Ops.PARAM, dtypes.float32.ptr(), (), (0, 1))
    assert seen(Pat(Ops.PARAM, name="n", dtype="p"), pointer)
    assert seen(Pat(Ops.SINK, (Pat(dtype="p"),), name="n"), UOp(Ops.SINK, dtypes.void, (pointer,)))


@pytest.mark.parametrize(
    "arg",
    [None, 0, 1, True, False, 0.0, -0.0, 1.0, math.nan, 2**70, "a", ("a", 1), ReduceOp.ADD,
     dtypes.float32],
    ids=repr,
)  # fmt: skip
def test_arguments_by_type_and_value(arg: Any) -> None:
    others = [
        None,
        0,
        1,
        True,
        False,
        0.0,
        -0.0,
        1.0,
        math.nan,
        2**70,
        "a",
        ("a", 1.0),
        ReduceOp.MAX,
    ]
    target = UOp(Ops.SOURCE, dtypes.void, (), arg)
    assert seen(Pat(Ops.SOURCE, name="n", arg=arg), target)
    for other in others:
        if repr(other) != repr(arg):
            assert not seen(Pat(Ops.SOURCE, name="n", arg=other), target)


def test_one_name_twice_is_one_node() -> None:
    pattern = Pat(Ops.SUB, (Pat(name="m"), Pat(name="m")), name="n")
    assert seen(pattern, UOp(Ops.SUB, dtypes.index, (i, i)))
    assert not seen(pattern, UOp(Ops.SUB, dtypes.index, (i, j)))


def test_symbols_and_numbers_inside_patterns() -> None:
    assert seen(Pat(Ops.ADD, (Const("m"), None), name="n"), i + 3)[0]["m"] is UOp.const(
        dtypes.index, 3
    )
    assert seen(Pat(Ops.ADD, (3, None), name="n", dtype="x"), i + 3)
    assert not seen(Pat(Ops.ADD, (4, None), name="n", dtype="x"), i + 3)
    assert seen(Pat(Ops.ADD, (Var("m") * num(2), None), name="n"), i * 2 + j)[0]["m"] is i


def test_shape_constants_and_invalid_are_no_numbers() -> None:
    shape = UOp.shape_const((6, 4))
    assert not seen(Pat(Ops.SINK, (Const("m"),), name="n"), UOp(Ops.SINK, dtypes.void, (shape,)))
    big = UOp(Ops.CONST, dtypes.uint64, (), 2**63)
    assert seen(Pat(Ops.SINK, (Const("m"),), name="n"), UOp(Ops.SINK, dtypes.void, (big,)))


# ---- opaque rules -----------------------------------------------------------------------------


def test_captures_context_and_guards() -> None:
    rules = RuleSet("opaque")

    @rules.opaque(Pat(Ops.MUL, (Pat(name="a"), Const("b"))), when=lambda b: b > 2)
    def more(ctx: list[Any], b: UOp, a: UOp) -> UOp | None:
        ctx.append((a, b))
        return a if b.arg == 5 else None

    context: list[Any] = []
    assert rules.rewrite(i * 5, context) is i
    assert rules.rewrite(i * 4, context) is None
    assert rules.rewrite(i * 2, context) is None
    assert context == [(i, UOp.const(dtypes.index, k)) for k in (5, 4)]
    assert rules.stats()[0].python_entries == 2


def test_no_python_for_failing_guards() -> None:
    rules = RuleSet("guarded", dtype="x")
    rules.table([("small", x % c, x, (x.vmin >= 0) & (x.vmax < c))])
    for k in range(1, 200):
        rules.rewrite(i % k)
    (row,) = rules.stats()
    assert (row.name, row.tries, row.hits, row.python_entries) == ("guarded.small", 199, 136, 0)
    rules.reset_stats()
    assert rules.stats()[0].tries == 0


def test_results_are_checked() -> None:
    rules = RuleSet("bad")
    rules.opaque(Pat(Ops.ADD, name="n"))(lambda n: 3)
    with pytest.raises(RuleError, match="returns a UOp or None, not int") as caught:
        rules.rewrite(i + j)
    assert "bad.<lambda>" in str(caught.value)


def test_same_node_is_no_match() -> None:
    rules = RuleSet("same")
    rules.opaque(Pat(Ops.ADD, name="n"))(lambda n: n)
    if _core.checked_build():
        with pytest.raises(RuleError, match="return None"):
            rules.rewrite(i + j)
    else:
        assert rules.rewrite(i + j) is None
        assert graph_rewrite(i + j, rules) is i + j


def test_exceptions_tell_the_rule() -> None:
    rules = RuleSet("raises")

    @rules.opaque(Pat(Ops.ADD, name="n"))
    def fails(n: UOp) -> UOp:
        raise KeyError("gone")

    with pytest.raises(KeyError) as caught:
        graph_rewrite(i + j, rules, name="stage 3")
    assert caught.value.__notes__ == ["in rule raises.fails, at ADD : Index", "in rewrite stage 3"]


def test_data_rules_keep_shape_and_dtype() -> None:
    big = UOp.new_buffer(dtypes.int32, 24)
    tensor = big.reshape((6, 4))
    zero = UOp.const(dtypes.int32, 0)
    rules = RuleSet("shapes")
    any_ = Var("_")
    rules.table([("zero", any_ * num(0), num(0)), ("arms", any_.where(y, y), y)])
    rules.table([("add", x + num(0), x)])
    assert rules.rewrite(tensor * zero) is None  # () is not (6, 4)
    assert rules.rewrite(tensor + zero) is tensor
    assert rules.rewrite(zero + tensor) is tensor
    assert rules.rewrite((tensor < zero).where(zero, zero)) is None


def test_provenance_of_new_nodes() -> None:
    _core.set_provenance("line 7")
    try:
        old = i * 123 + j * 0
    finally:
        _core.set_provenance(None)
    rules = RuleSet("new", dtype="x")
    rules.table([("zero", Var("_") * 0, 0), ("add", x + 0, x + 9871)])
    rules.opaque(Pat(Ops.MUL, (Pat(name="m"), 123), dtype="x"))(lambda m: m % 9973)
    new = graph_rewrite(old, rules)
    assert new is i % 9973 + 9871
    assert new.provenance == "line 7"
    assert new.src[0].provenance == "line 7"
    previous = _core.set_provenance("pass")
    try:
        assert graph_rewrite(i * 0 + j * 124 * 0, rules).provenance in (None, "pass")
    finally:
        _core.set_provenance(previous)


# ---- building -----------------------------------------------------------------------------------


def test_right_sides_with_arguments_and_dtypes() -> None:
    cast = node(Ops.CAST, x)
    rules = RuleSet("build")
    rules.table(
        [
            ("cast", node(Ops.CAST, cast), x.cast(cast.dtype)),
            ("fixed", x / y, x * y.cast(dtypes.float32)),
            ("reduce", node(Ops.DETACH, x), node(Ops.CONTIGUOUS, x, arg=("hint",))),
        ]
    )
    reduce = node(Ops.REDUCE, x, y)
    rules.table([("arg", reduce + reduce, node(Ops.REDUCE, x, y, arg=reduce.arg))])
    wide = f32.cast(dtypes.float64)
    again = UOp(Ops.CAST, dtypes.float64, (wide,))
    assert rules.rewrite(again) is wide
    assert rules.rewrite(UOp(Ops.CAST, dtypes.int8, (wide,))) is None
    assert rules.rewrite(f32 / f32) is f32 * UOp(Ops.CAST, dtypes.float32, (f32,))
    assert rules.rewrite(UOp(Ops.DETACH, dtypes.float32, (f32,))).arg == ("hint",)
    summed = UOp(Ops.REDUCE, dtypes.float32, (f32, i), ReduceOp.MAX)
    assert rules.rewrite(summed + summed) is summed


# ---- folding ------------------------------------------------------------------------------------

FOLD = RuleSet("fold")
FOLD.native("fold", ops=GroupOp.Elementwise)
HALVES_AND_UP = ["float16", "float32", "float64"]
FLOATS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1.0, 65504.0, 3e38, 1e-40, math.inf, -math.inf, math.nan]),
)
NUMPY = {
    Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.FDIV: np.divide,
    Ops.LT: np.less, Ops.LE: np.less_equal, Ops.GT: np.greater, Ops.GE: np.greater_equal,
    Ops.EQ: np.equal, Ops.NE: np.not_equal, Ops.SQRT: np.sqrt, Ops.TRUNC: np.trunc,
    Ops.FLOOR: np.floor, Ops.CEIL: np.ceil, Ops.ROUND: np.rint, Ops.ABS: np.abs,
    Ops.NEG: np.negative, Ops.SQUARE: np.square, Ops.RECIPROCAL: lambda a: type(a)(1) / a,
}  # fmt: skip


def bits_of(value: float) -> bytes:
    return struct.pack("<d", math.nan if value != value else value)


def folded(op: Ops, dtype: DType, *values: Any, result: DType | None = None) -> Any:
    """The folded value, or None."""
    sources = tuple(UOp.const(dtype, value) for value in values)
    made = FOLD.rewrite(UOp(op, result or dtype, sources))
    return None if made is None else made.arg


@given(
    st.sampled_from(list(NUMPY)), st.sampled_from(["float16", "float32", "float64"]), FLOATS, FLOATS
)
def test_floats_fold_as_numpy(op: Ops, name: str, a: float, b: float) -> None:
    dtype, kind = getattr(dtypes, name), getattr(np, name)
    comparison = op in GroupOp.Comparison
    values = [float(cast_value(v, dtype)) for v in (a, b)][: 1 if op in GroupOp.Unary else 2]
    with np.errstate(all="ignore"):
        expected = NUMPY[op](*map(kind, values))
    got = folded(op, dtype, *values, result=dtypes.bool_ if comparison else None)
    if comparison:
        assert got is bool(expected)
    else:
        assert bits_of(got) == bits_of(float(expected)), (values, got, expected)


@given(st.sampled_from([Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV]), FLOATS, FLOATS)
def test_bfloat16_is_rounded_once(op: Ops, a: float, b: float) -> None:
    dtype = dtypes.bfloat16
    values = [float(cast_value(v, dtype)) for v in (a, b)]
    with np.errstate(all="ignore"):
        wide = float(NUMPY[op](*map(np.float64, values)))
    assert bits_of(folded(op, dtype, *values)) == bits_of(float(cast_value(wide, dtype)))


def test_extremes() -> None:
    assert folded(Ops.MAX, dtypes.float32, 1.0, 2.0) == 2.0
    assert folded(Ops.MIN, dtypes.float32, 1.0, 2.0) == 1.0
    assert math.isnan(folded(Ops.MAX, dtypes.float32, 1.0, math.nan))
    assert math.isnan(folded(Ops.MIN, dtypes.float32, math.nan, 1.0))
    assert folded(Ops.MAX, dtypes.float32, 0.0, -0.0) is None  # the sign is the backend's


def test_transcendentals_never_fold() -> None:
    for op in (Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.ERF, Ops.RSQRT):
        assert folded(op, dtypes.float32, 1.0) is None
    assert folded(Ops.POW, dtypes.float32, 2.0, 3.0) is None


INTEGERS = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR,
            Ops.MAX, Ops.MIN, Ops.LT, Ops.GE, Ops.EQ]  # fmt: skip
WIDTHS = [dtypes.uint64, dtypes.int64, dtypes.int8]
WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]))


@given(
    st.sampled_from(INTEGERS),
    WORDS,
    WORDS,
    st.sampled_from([dtypes.uint64, dtypes.int64, dtypes.int8]),
)
def test_integers_wrap(op: Ops, a: int, b: int, dtype: DType) -> None:
    a, b = int(cast_value(a, dtype)), int(cast_value(b, dtype))
    python = {
        Ops.ADD: lambda: a + b, Ops.SUB: lambda: a - b, Ops.MUL: lambda: a * b,
        Ops.FLOORDIV: lambda: a // b if b else 0, Ops.FLOORMOD: lambda: a % b if b else 0,
        Ops.AND: lambda: a & b, Ops.OR: lambda: a | b, Ops.XOR: lambda: a ^ b,
        Ops.MAX: lambda: max(a, b), Ops.MIN: lambda: min(a, b), Ops.LT: lambda: a < b,
        Ops.GE: lambda: a >= b, Ops.EQ: lambda: a == b,
    }  # fmt: skip
    comparison = op in GroupOp.Comparison
    got = folded(op, dtype, a, b, result=dtypes.bool_ if comparison else None)
    expected = python[op]()
    assert got == (expected if comparison else cast_value(expected, dtype))
    assert type(got) is type(expected)


def test_index_arithmetic_never_wraps() -> None:
    assert folded(Ops.ADD, dtypes.index, 2**63 - 1, 1) is None
    assert folded(Ops.MUL, dtypes.index, 2**40, 2**40) is None
    assert folded(Ops.FLOORDIV, dtypes.index, 7, 0) is None
    assert folded(Ops.FLOORDIV, dtypes.int32, 7, 0) == 0
    assert folded(Ops.FLOORDIV, dtypes.int32, -7, 2) == -4
    assert folded(Ops.IDIV, dtypes.int32, -7, 2) == -3
    assert folded(Ops.MOD, dtypes.int32, -7, 2) == -1


def test_casts_fold() -> None:
    def cast(value: Any, source: DType, target: DType, op: Ops = Ops.CAST) -> Any:
        return folded(op, source, value, result=target)

    assert cast(65536.0, dtypes.float32, dtypes.float16) == math.inf
    assert cast(300.0, dtypes.float32, dtypes.uint8) == 255
    assert cast(math.nan, dtypes.float32, dtypes.int32) == 0
    assert cast(-1, dtypes.int32, dtypes.uint64) == 2**64 - 1
    assert cast(3, dtypes.int32, dtypes.bool_) is True
    assert cast(1.0, dtypes.float32, dtypes.int32, Ops.BITCAST) == 0x3F800000
    assert cast(0x3F800000, dtypes.int32, dtypes.float32, Ops.BITCAST) == 1.0
    assert cast(math.nan, dtypes.float32, dtypes.int32, Ops.BITCAST) is None
    assert FOLD.rewrite(UOp.shape_const((2, 3)).cast(dtypes.int32)) is None


def test_where_of_a_constant_chooses() -> None:
    true, false = (UOp.const(dtypes.bool_, value) for value in (True, False))
    assert FOLD.rewrite(true.where(i, j)) is i
    assert FOLD.rewrite(false.where(i, j)) is j


def test_vectors_fold_lane_by_lane() -> None:
    vec = dtypes.int32.vec(3)
    a = UOp(Ops.VCONST, vec, (), (1, 2, 3))
    b = UOp(Ops.VECTORIZE, vec, tuple(UOp.const(dtypes.int32, v) for v in (10, 20, 2**31 - 1)))
    assert FOLD.rewrite(UOp(Ops.ADD, vec, (a, b))) is UOp(
        Ops.VCONST, vec, (), (11, 22, -(2**31) + 2)
    )
    less = UOp(Ops.LT, dtypes.bool_.vec(3), (b, UOp(Ops.VCONST, vec, (), (11, 11, 11))))
    assert FOLD.rewrite(less).arg == (True, False, False)
    open_ = UOp(Ops.VECTORIZE, vec, (UOp.const(dtypes.int32, 1),) * 2 + (i.cast(dtypes.int32),))
    assert FOLD.rewrite(UOp(Ops.ADD, vec, (a, open_))) is None


def test_needed_ops_are_looked_for_before_python_is_entered() -> None:
    rules = RuleSet("needs")
    pattern = Pat(Ops.SINK, (Pat(name="first"),), rest=True, name="root")
    rules.opaque(pattern, need=(Ops.CONST,), name="rule")(lambda root, first: None)
    rules.rewrite(UOp(Ops.SINK, dtypes.void, (i, j)))
    assert rules.stats()[0].python_entries == 0
    rules.rewrite(UOp(Ops.SINK, dtypes.void, (i, UOp.const(dtypes.index, 3))))
    assert rules.stats()[0].python_entries == 1


def test_rules_that_the_ops_around_a_node_rule_out_are_not_tried() -> None:
    j, k = UOp.range(8, 1), UOp.range(8, 2)
    one, other, y = Const("_one"), Const("_other"), Var("_y")
    none: set[str] = set()
    double, constant, terms, same = {"double"}, {"constant"}, {"terms"}, {"same"}
    for node_, expected in (
        (i + j, none), (i + i, double), (i + 3, none), (i * j + i, none),
        ((i + 3) + j, constant), (j + (i + 3), constant), ((i + j) + k, none),
        ((i + j * 2) + k * 3, terms), (k * 3 + (j * 2 + i), terms),
        ((i + j) + k * 3, none), ((i + 3) + (i + 3), double | constant),
        ((i + j) + j, same), (i + (i + j), same), ((i + 3) + i, constant | same),
    ):  # fmt: skip
        tried = set()
        for name, left in (
            ("double", x + x),
            ("constant", (x + one) + y),
            ("terms", (y + x * one) + x * other),
            ("same", (y + x) + x),
        ):
            rules = RuleSet("looks", dtype="x")
            rules.table([(name, left, x)])
            before = rules.stats()[0].tries
            rules.rewrite(node_)
            if rules.stats()[0].tries > before:
                tried.add(name)
        assert tried == expected, node_


def test_literals_are_told_apart_before_a_rule_is_tried() -> None:
    wide = UOp.const(dtypes.uint64, 2**63)
    for name, left, hit, missed in (
        ("zero", x * 0, i * 0, (i * 1, i * 2, i * -1)),
        ("one", x * 1, i * 1, (i * 0, i * 2, i * -1)),
        ("minus", x * -1, i * -1, (i * 0, i * 1, i * 7)),
        ("other", x * 7, i * 7, (i * 0, i * 1, i * -1)),
    ):
        rules = RuleSet("literals", dtype="x")
        rules.opaque(left, name=name)(lambda x: x)
        assert rules.rewrite(hit) is i
        before = rules.stats()[0].tries
        for node_ in missed:
            assert rules.rewrite(node_) is None
        assert rules.stats()[0].tries == before, name
    large = RuleSet("large")
    large.table([("large", x + Const("_"), x)])
    value = i.cast(dtypes.uint64)
    assert large.rewrite(UOp(Ops.ADD, dtypes.uint64, (value, wide))) is value


def test_idle_loops_are_seen_before_python_is_entered() -> None:
    rules = RuleSet("idle")
    pattern = Pat(Ops.REDUCE, (Pat(name="value"),), rest=True, name="root")
    rules.opaque(pattern, when=lambda root: ends_idle(root), name="rule")(lambda root, value: value)
    three = UOp.const(dtypes.index, 3)
    for value, ended, idle in (
        (i, (i,), False), (i + j, (i, j), False), (i, (i, j), True), (i, (three,), True),
        (three, (j,), True), (i, (), False), (i * 0 + j, (i,), False),
    ):  # fmt: skip
        node = UOp(Ops.REDUCE, value.dtype, (value, *ended), ReduceOp.ADD)
        assert (rules.rewrite(node) is value) == idle, (value, ended)
    assert rules.rewrite(i + j) is None
