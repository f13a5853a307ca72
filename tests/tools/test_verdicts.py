"""Kept verdicts on rules: every rule has one, found for what the rule says now."""

from __future__ import annotations

from pathlib import Path

from morok.ir import Const, Rule, RuleSet, Var
from morok.symbolic import late, sym
from morok.tools.prove import PACKAGE_SETS
from morok.tools.prove.verdicts import Status, Verdict, key, load, missing, save

x, c = Var("x"), Const("c")
DATA = [rule for rules in PACKAGE_SETS for rule in rules if rule.is_data]
STRUCTURE = {"vector", "lanes", "loops", "gates"}
"""Families about loops and lanes, whose rules are Python by nature."""


def one(left: object, right: object, guard: object = ()) -> Rule:
    rules = RuleSet("test", dtype="x")
    rules.table([("rule", left, right, guard)])
    return rules["rule"]


def test_every_rule_has_a_verdict_that_stands() -> None:
    lacking = missing(DATA, load())
    assert not lacking, f"python -m morok prove --write: {[rule.name for rule in lacking]}"


def test_no_verdict_is_left_of_rules_that_are_gone() -> None:
    assert set(load()) == {key(rule) for rule in DATA}


def test_no_verdict_is_assumed() -> None:
    for verdict in load().values():
        assert verdict.status in (Status.PROVED, Status.CONSTANTS)
        assert verdict.sorts
        assert verdict.status is Status.PROVED or verdict.reason, "why not for all constants"


def test_a_changed_rule_has_no_verdict() -> None:
    rule = one(x % c, x, ((x.vmin >= 0) & (x.vmax < c),))
    verdicts = {key(rule): Verdict(rule.name, Status.PROVED, "index", "")}
    assert missing([rule], verdicts) == []
    changed = one(x % c, x, x.vmax < c)
    assert missing([changed], verdicts) == [changed]
    assert missing([rule], {key(rule): Verdict("", Status.REFUTED, "", "")}) == [rule]


def test_verdicts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    verdicts = {"a": Verdict("s.r", Status.CONSTANTS, "index", 'a "reason"')}
    save(verdicts, path)
    assert load(path) == verdicts
    assert load(tmp_path / "none.json") == {}


def test_at_most_a_tenth_of_an_algebraic_family_is_opaque() -> None:
    families: dict[str, list[bool]] = {}
    for rule in (*sym, *late):
        opaque = not rule.is_data and rule.native is None
        families.setdefault(rule.name.partition(".")[0], []).append(opaque)
    for family, opaque in families.items():
        assert family in STRUCTURE or sum(opaque) <= len(opaque) / 10, family
