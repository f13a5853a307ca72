"""The language of rules: what it accepts, what it refuses and how, what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from morok.dtype import dtypes
from morok.errors import RuleError
from morok.ir import (
    Const,
    Ops,
    Pat,
    RuleSet,
    UOp,
    Var,
    divides,
    graph_rewrite,
    is_const,
    kind,
    log2,
    node,
    not_const,
    num,
    same,
    when,
    wrap,
)

x, y = Var("x"), Var("y")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")
i = UOp.range(64, 0)
j = UOp.range(8, 1)


def const(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


def one(left: Any, right: Any, *guards: Any, dtype: str | None = "iux") -> RuleSet:
    """A set of one rule."""
    rules = RuleSet("test", dtype=dtype)
    rules.table([("rule", left, right, guards)])
    return rules


# ---- definition ------------------------------------------------------------------------------


def test_function_runs_once_and_stays_callable() -> None:
    rules = RuleSet("set", dtype="x")
    runs = []

    @rules.rule
    def div_cancel(x: Var, c0: Const, c1: Const) -> Any:
        """(x*4)//8 -> x//2"""
        runs.append(1)
        when(c0 > 0, c1 > 0, divides(c0, c1))
        return (x * c0) // c1, x // (c1 // c0)

    assert rules.rewrite((i * 4) // 8) is i // 2
    assert rules.rewrite((i * 8) // 4) is None
    assert runs == [1]
    rule = rules["div_cancel"]
    assert rule.name == "set.div_cancel"
    assert rule.doc == "(x*4)//8 -> x//2"
    assert rule.spelling == (
        "(x * c0) // c1 -> x // (c1 // c0) when c0 > 0 and c1 > 0 and divides(c0, c1)"
    )
    assert callable(div_cancel)


def test_comparison_of_variable_and_constant_keeps_its_direction() -> None:
    assert one(x < c, True, x.vmax < c)["rule"].spelling == "x < c -> True when x.vmax < c"


def test_commutative_operands_match_in_both_orders() -> None:
    rules = one(x + 0, x)
    assert rules.rewrite(i + 0) is i
    assert rules.rewrite(UOp(Ops.ADD, dtypes.index, (const(0), i))) is i
    minus = one(x - 0, x)
    assert minus.rewrite(UOp(Ops.SUB, dtypes.index, (const(0), i))) is None


def test_same_name_is_same_node() -> None:
    rules = one(x * c0 + x * c1, x * (c0 + c1))
    assert rules.rewrite(i * 2 + i * 3) is i * 5
    assert rules.rewrite(i * 2 + j * 3) is None
    rules = one(c - c, 0)
    assert rules.rewrite(UOp(Ops.SUB, dtypes.index, (const(4), const(4)))) is const(0)
    assert rules.rewrite(UOp(Ops.SUB, dtypes.index, (const(4), const(5)))) is None


def test_matched_expression_may_be_used_again() -> None:
    inner = x + c
    rules = one(inner // c1, (x // c1) * inner, inner.vmin >= 0)
    assert rules.rewrite((i + 3) // 5) is (i // 5) * (i + 3)
    assert rules.rewrite((i + -3) // 5) is None
    twice = one(inner * inner, inner)
    assert twice.rewrite((i + 3) * (i + 3)) is i + 3
    assert twice.rewrite((i + 3) * (i + 4)) is None


def test_nested_commutative_choices_are_all_tried() -> None:
    rules = one((x + Const("_c0")) * (y + Const("_c1")), x * y, same(x, y))
    left = UOp(Ops.ADD, dtypes.index, (const(1), i))
    right = UOp(Ops.ADD, dtypes.index, (i, const(2)))
    for a, b in [(left, right), (right, left)]:
        assert rules.rewrite(a * b) is i * i


def test_guards_fail_closed_on_what_is_unknown() -> None:
    free = UOp(Ops.PARAM, dtypes.index, (), (0, 1))
    assert free.vmin is None
    rules = one(x % c, x, (x.vmin >= 0) | (c > 0))
    assert rules.rewrite(free % 8) is None  # although c > 0 holds
    assert rules.rewrite(i % 8) is i


def test_overflow_means_not_fired() -> None:
    rules = one((x * c0) * c1, x * (c0 * c1))
    big = 1 << 40
    assert rules.rewrite((i * big) * 2) is i * (2 * big)
    assert rules.rewrite((i * big) * big) is None
    small = one((x + c0) + c1, x + (c0 + c1))
    byte = UOp.define_var("v", 0, 9).cast(dtypes.int8)
    assert small.rewrite((byte + 100) + 27) is byte + 127
    assert small.rewrite((byte + 100) + 28) is None
    assert small.rewrite((i + (2**63 - 1)) + 1) is None


def test_wrapping_constants() -> None:
    rules = one((x + c0) + c1, x + wrap(c0 + c1))
    byte = UOp.define_var("v", 0, 9).cast(dtypes.int8)
    assert rules.rewrite((byte + 100) + 28) is byte + -128
    word = UOp.define_var("v", 0, 9).cast(dtypes.uint64)
    assert rules.rewrite((word + (2**62)) + (2**62)) is None  # 2**63: more than int64 says
    assert rules.rewrite((i + 100) + 28) is None  # index does not wrap


def test_literals_take_their_dtype_from_the_place() -> None:
    rules = one((x < y).where(num(1), num(0)), (x < y).cast(x.dtype), dtype=None)
    assert rules.rewrite((i < j).where(const(1), const(0))) is (i < j).cast(dtypes.index)
    double = one(x + x, x * num(2), dtype=None)
    f = UOp(Ops.PARAM, dtypes.float32, (), (0, 1))
    assert double.rewrite(f + f) is f * UOp.const(dtypes.float32, 2.0)
    assert double.rewrite(i + i) is i * 2
    flag = one(x < y, True, x.vmax < y.vmin)
    assert flag.rewrite(i < const(64)) is UOp.const(dtypes.bool_, True)


def test_literals_by_type_and_bits() -> None:
    f = UOp(Ops.PARAM, dtypes.float32, (), (0, 1))
    zero, minus = UOp.const(dtypes.float32, 0.0), UOp.const(dtypes.float32, -0.0)
    only_minus = one(x + -0.0, x, dtype="f")
    assert only_minus.rewrite(f + minus) is f
    assert only_minus.rewrite(f + zero) is None
    plus = one(x + 0.0, x, dtype="f")
    assert plus.rewrite(f + minus) is None
    assert plus.rewrite(f + zero) is f
    whatever = one(x + num(0), x, dtype=None)
    assert whatever.rewrite(f + zero) is f
    assert whatever.rewrite(f + minus) is None
    assert whatever.rewrite(i + 0) is i
    truth = one(x & True, x, dtype="b")
    flag = i < 5
    assert truth.rewrite(flag & UOp.const(dtypes.bool_, True)) is flag
    assert truth.rewrite(flag & UOp.const(dtypes.bool_, False)) is None


def test_constants_of_vectors() -> None:
    vec = dtypes.int32.vec(4)
    v = UOp(Ops.PARAM, vec, (), (0, 1))
    twos = UOp(Ops.VCONST, vec, (), (2, 2, 2, 2))
    mixed = UOp(Ops.VCONST, vec, (), (2, 2, 2, 3))
    three = UOp(Ops.VECTORIZE, vec, (UOp.const(dtypes.int32, 3),) * 4)
    rules = one((x * c0) * c1, x * (c0 * c1))

    def times(a: UOp, b: UOp) -> UOp:
        return UOp(Ops.MUL, vec, (a, b))

    expected = times(v, UOp(Ops.VCONST, vec, (), (6, 6, 6, 6)))
    assert rules.rewrite(times(times(v, twos), three)) is expected
    assert rules.rewrite(times(times(v, twos), mixed)) is None
    assert one(x * 2, x + x).rewrite(times(v, twos)) is UOp(Ops.ADD, vec, (v, v))


def test_guard_language() -> None:
    cases: list[tuple[Any, int, bool]] = [
        (c % 4 == 0, 8, True), (c % 4 == 0, 9, False), (c // 3 == -2, -4, True),
        ((c > 2) & (c < 5), 3, True), ((c < 2) | (c > 5), 3, False), (~(c == 3), 3, False),
        ((c > 2) ^ (c > 3), 3, True), (-c > 0, -1, True), (c.maximum(7) == 7, 3, True),
        (c.minimum(7) == 3, 3, True), (c << 2 == 12, 3, True), (c - 5 >= -2, 3, True),
        (c != 3, 3, False), (c <= 3, 3, True), (divides(c, 12), 5, False),
        (divides(c, 12), 0, False), (divides(3, c), 9, True),
        (log2(c) == 3, 8, True), (log2(c) == 3, 9, False),
        (c // (c - 3) == 1, 3, False), (kind(x, "x"), 1, True), (kind(x, "iu"), 1, False),
        (is_const(x), 1, False), (not_const(x), 1, True), (same(x, c), 1, False),
    ]  # fmt: skip
    for guard, value, holds in cases:
        fired = one(x * c, x, guard & (c == c)).rewrite(i * value) is i
        assert fired == holds, (guard, value)


# ---- refusals ---------------------------------------------------------------------------------


def refused(define: Callable[[RuleSet], object], *words: str, dtype: str | None = "iux") -> None:
    with pytest.raises(RuleError) as caught:
        define(RuleSet("bad", dtype=dtype))
    text = str(caught.value)
    assert "bad.rule" in text, text
    for word in words:
        assert word in text, text


def test_bad_tables_are_refused_by_name() -> None:
    z = Var("z")
    bad: list[tuple[tuple[Any, ...], str]] = [
        (("rule", x + 0, z), "z is not bound"),
        (("rule", x + 0, x, z.vmin > 0), "z is not bound"),
        (("rule", x + 0, x + z), "z is not bound"),
        (("rule", x + 0, x, x > 0), "outside the guard language: annotate it as Const"),
        (("rule", x + 0, x, x.vmin), "no truth value"),
        (("rule", x + c, x, (c & 1) == 1), "truth values only"),
        (("rule", x + c, x, c * 1.5 > 0), "outside the guard language"),
        (("rule", x + c, x, node(Ops.SQRT, c) > 0), "outside the guard language"),
        (("rule", x, c), "must be an op"),
        (("rule", c, 0), "must be an op"),
        (("rule", x + y, x + y), "is the left side"),
        (("rule", x.vmin + y, x), "cannot stand on a left side"),
        (("rule", node(Ops.ADD, x), x), "never has 1 sources"),
        (("rule", x + c, node(Ops.CONST, arg=1)), "needs a dtype"),
        (("rule", x + c, wrap(c // 2)), "wrap() takes"),
        (("rule", x + c, node(Ops.VECTORIZE, x, 1)), "dtype of the literal"),
        (("rule", x.cast(y.dtype), x), "dtype"),
    ]
    for row, message in bad:
        refused(lambda rules, row=row: rules.table([row]), message)


def test_captures_that_are_never_used() -> None:
    anything = Var("_")
    for left, right, guard, names in (
        (x * 0, 0, (), "x"),
        (x * c, x, (), "c"),
        ((x * c0) + y, 7, (), "x, c0, y"),
        (x * y, y, y.vmin > 0, "x"),
    ):
        row = ("rule", left, right, guard)
        refused(lambda rules, row=row: rules.table([row]), f"captured, but never used: {names} ")
    one(anything * 0, 0)
    one(x ^ x, 0)  # asks that both are one node
    one(x % c, x, x.vmax < c)

    def of_a_function(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(x: Var, c: Const) -> Any:
            return x * c, x

    refused(of_a_function, "captured, but never used: c ")


NOTHING: list[Any] = [None, 5, "text", 1.5, [5], object(), Ops.ADD]


@pytest.mark.parametrize("bad", NOTHING, ids=lambda bad: type(bad).__name__)
def test_what_is_no_argument_is_refused(bad: Any) -> None:
    """By the name of the set or rule, and of the argument."""
    add, name = Pat(Ops.ADD, name="r"), "rule"

    def nothing(r: Any) -> None:
        return None

    refusals: list[tuple[Callable[[RuleSet], object], str]] = [
        (lambda rules: rules.table(bad), "row"),
        (lambda rules: rules.table([bad]), "a row is"),
        (lambda rules: rules.table([(name, x + 0, x, bad)]), "rule"),
        (lambda rules: rules.rule(name=name)(bad), "the function of a rule"),
        (lambda rules: rules.opaque(add, name=name)(bad), "the function of a rule"),
        (lambda rules: rules.opaque(add, name=name, need=bad)(nothing), "need"),
        (lambda rules: rules.native("fold", name=name, ops=(Ops.ADD,), need=bad), "need"),
        (lambda rules: rules.native("fold", name=name, ops=bad), "ops"),
    ]
    if bad is not None:
        refusals.append((lambda rules: rules.rule(bad), "the function of a rule"))
        refusals.append(
            (lambda rules: rules.opaque(add, name=name, when=bad)(nothing), "function of captures")
        )
    for refuse, word in refusals:
        with pytest.raises(RuleError, match=word) as caught:
            refuse(RuleSet("bad", dtype="iux"))
        assert "bad" in str(caught.value)
    if bad is not None:
        with pytest.raises(RuleError, match=r"src of a pattern|cannot stand in a rule"):
            Pat(Ops.ADD, (object(),) if bad == [5] else bad)
        with pytest.raises(RuleError, match="expected a RuleSet"):
            graph_rewrite(i + 0, bad)


def test_int_literals_where_floats_may_stand() -> None:
    refused(lambda rules: rules.table([("rule", x * 0, x)]), "num(0)", "0.0", dtype=None)
    refused(lambda rules: rules.table([("rule", x * 1, x)]), "num(1)", dtype="if")
    one(Var("_") * num(0), num(0), dtype=None)
    one(x * 0.0, x, dtype="f")
    RuleSet("range").opaque(Pat(Ops.RANGE, (1,), name="r"))(lambda r: None)


def test_numbers_and_symbols_only() -> None:
    with pytest.raises(RuleError, match="cannot stand in a rule"):
        x + "y"
    with pytest.raises(RuleError, match="truth value while a rule is defined"):
        bool(0 < c < 4)
    with pytest.raises(RuleError, match="belongs inside"):
        when(c > 0)
    with pytest.raises(RuleError, match="no dtype class"):
        RuleSet("bad", dtype="q")
    for kinds in ("", 3):
        with pytest.raises(RuleError, match="no dtype class"):
            kind(x, kinds)
    for nameless in (RuleSet, Var, Const):
        with pytest.raises(RuleError, match="needs a name, got"):
            nameless("")


def test_bad_functions_are_refused_by_name() -> None:
    def unused(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(x: Var, y: Var) -> Any:
            return x + 0, x

    def annotation(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(x: int) -> Any:
            return x + 0, x

    def answer(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(x: Var) -> Any:
            return x + 0

    def keywords(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(*x: Var) -> Any:
            return x

    def python_and(rules: RuleSet) -> None:
        @rules.rule(name="rule")
        def rule(x: Var, c: Const) -> Any:
            when(c > 0 and c < 4)
            return x + c, x

    refused(unused, "capture y is not used")
    refused(annotation, "annotate captures as Var or Const")
    refused(answer, "returns (left, right)")
    refused(keywords, "names no capture")
    refused(python_and, "truth value")


def test_bad_opaque_rules_are_refused_by_name() -> None:
    def define(pattern: Pat, function: Callable[..., Any], **options: Any) -> Any:
        return lambda rules: rules.opaque(pattern, name="rule", **options)(function)

    add = Pat(Ops.ADD, (Pat(name="a"), Pat(name="b")))
    refused(define(add, lambda a: None), "captured, but never used: b")
    refused(define(add, lambda a, b, d: None), "does not capture d")
    refused(define(Pat(name="n"), lambda n: None), "starts at every op")
    refused(define(add, lambda a, b, ctx: None, pure=True), "not pure")
    refused(define(Pat(Ops.ADD, name="ctx"), lambda ctx: None), "context of the pass")
    refused(define(add, lambda a, b: None, when=lambda q: q.vmin > 0), "does not capture q")
    refused(define(add, lambda a, b: None, when=lambda a: a > 0), "outside the guard language")
    RuleSet("good").opaque(Pat(name="n"), any_root=True)(lambda n: None)
    with pytest.raises(RuleError, match="unknown op 'ADD'"):
        Pat("ADD")
    with pytest.raises(RuleError, match="empty set of ops"):
        Pat(())
    with pytest.raises(RuleError, match="class string"):
        Pat(Ops.ADD, dtype=3)
    with pytest.raises(RuleError, match="rest=True"):
        Pat(Ops.SINK, rest=True)


def test_native_rules_must_exist() -> None:
    refused(lambda rules: rules.native("no.such", ops=(Ops.ADD,), name="rule"), "no native rule")


def test_two_rules_of_one_name() -> None:
    rules = RuleSet("bad")
    rules.table([("rule", x.maximum(x), x)])
    with pytest.raises(RuleError, match="of this name already"):
        rules.table([("rule", ~~x, x)])


def test_patterns_too_large() -> None:
    left: Any = Var("x0")
    for number in range(1, 20):
        left = left + Var(f"x{number}")
    refused(lambda rules: rules.table([("rule", left, x)]), "not bound")
    with pytest.raises(RuleError, match=r"too large|at most"):
        one(left, Var("x0"))


# ---- sets -------------------------------------------------------------------------------------


def test_composition_keeps_order_and_first_places() -> None:
    a = RuleSet("a", dtype="x")
    a.table([("first", x + 0, x)])
    b = RuleSet("b", dtype="x")
    b.table([("second", x * 1, x)])
    both = a + b
    assert [rule.name for rule in both] == ["a.first", "b.second"]
    assert [rule.name for rule in b + both] == ["b.second", "a.first"]
    assert both.name == "a+b"
    assert len(a + a) == 1
    other = RuleSet("a", dtype="x")
    other.table([("first", x * 1, x)])
    with pytest.raises(RuleError, match="of this name already"):
        a + other


def test_first_use_freezes() -> None:
    for use in (lambda s: s.rewrite(i), lambda s: s + RuleSet("b"), lambda s: s.stats()):
        rules = one(x + 0, x)
        assert not rules.frozen
        use(rules)
        assert rules.frozen
        with pytest.raises(RuleError, match="in use"):
            rules.table([("late", x * 1, x)])
        assert "frozen" in repr(rules)


def test_equal_compositions_share_one_matcher() -> None:
    a, b = one(x + 0, x), RuleSet("b", dtype="x")
    b.table([("second", x * 1, x)])
    assert (a + b).matcher is (a + b).matcher


def test_lookup_and_dump() -> None:
    rules = one((x + c0) + c1, x + (c0 + c1), c1 > 0)
    assert rules["rule"] is rules["test.rule"]
    with pytest.raises(KeyError):
        rules["other"]
    text = rules.dump()
    assert text.startswith("test.rule: (x + c0) + c1 -> x + (c0 + c1) when c1 > 0")
    for part in ("commute", "check", "guard gt", "right build ADD 2"):
        assert part in text, text


def test_digest_follows_the_meaning() -> None:
    rule = one(x + 0, x)["rule"]
    assert rule.digest() == one(x + 0, x)["rule"].digest()
    assert rule.digest() != one(x + 0, x, dtype="i")["rule"].digest()
    assert rule.digest() != one(x + 0, x, x.vmin > 0)["rule"].digest()
    assert one(x * c, x * c * 2)["rule"].digest() != one(x * y, x * y * 2)["rule"].digest()
    constant, node_ = one(x * Const("_"), x)["rule"], one(x * Var("_"), x)["rule"]
    assert constant.digest() != node_.digest()
    assert len(rule.digest()) == 64


def test_spelling() -> None:
    assert repr(Pat(Ops.ADD, (Pat(name="a"), None), dtype="x")) == (
        "Pat(ADD, (Pat(name=a), Pat()), dtype=x)"
    )
    right = (x.maximum(y) + -c).where(x >> num(2), ~y ^ -0.0).cast(x.dtype)
    rules = one(x.where(y, c), right, kind(x, "b"), dtype=None)
    assert rules["rule"].spelling == (
        "WHERE(x, y, c) -> CAST(WHERE(MAX(x, y) + -c, x >> num(2), ~y ^ -0.0), dtype=x.dtype) "
        "when kind(x, 'b')"
    )
