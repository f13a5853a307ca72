"""Proving a rule: every choice of sorts, for all values. Where z3 gives up on the integers, one
value of the constants after another: those that the guards allow, where they are few, which is as
good as all; else all between -64 and 64."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from morok.ir import Rule
from morok.tools.prove.facts import never_holds
from morok.tools.prove.obligation import IllTypedError, NeverFiresError, Obligation, Translator
from morok.tools.prove.sorts import Sort, UnsupportedError, typings
from morok.tools.prove.verdicts import Status, Verdict

GRID = range(-64, 65)
"""Values of constants where a proof for all of them is not found."""
MOST_CONSTANTS = 2  # the grid is for pairs
MOST_ALLOWED = 100  # values of the constants that are looked at one by one
MOST_CASES = 4  # conditions whose cases are told apart
MOST_NAMES = 12  # choices of sorts that a verdict names
EFFORT = 20_000_000  # z3's own unit of work for one question; the same on every machine


@dataclass(frozen=True, slots=True)
class Answer:
    """What z3 says of one obligation: no counterexample, one, or nothing."""

    holds: bool | None
    why: str = ""


def ask(conditions: Iterable[Any], effort: int = EFFORT) -> tuple[Any, Any]:
    """(z3.sat, model), (z3.unsat, None) or (z3.unknown, None)."""
    goal = z3.Goal()
    goal.add(*conditions)
    # equations first: what is equal by assumption then is one term, not two to compare bit by bit
    (rest,) = z3.Then("simplify", "propagate-values", "solve-eqs").apply(goal)
    solver = z3.Solver()
    solver.set("rlimit", effort)
    solver.add(*rest)
    result = solver.check()
    return result, rest.convert_model(solver.model()) if result == z3.sat else None


def holds(given: Any, claim: Any) -> bool:
    """Whether `given` implies `claim` for all values."""
    return bool(ask([given, z3.Not(claim)])[0] == z3.unsat)


def check(obligation: Obligation, effort: int = EFFORT) -> Answer:
    """Whether an obligation is met, by cases of its conditions."""
    conditions = obligation.conditions[:MOST_CASES]
    wanted = obligation.counterexample
    for values in itertools.product((True, False), repeat=len(conditions)):
        case = [(c, z3.BoolVal(v)) for c, v in zip(conditions, values, strict=True)]
        given = [c == v for c, v in case]
        split = [z3.simplify(z3.substitute(part, *case)) for part in wanted] if case else wanted
        result, model = ask([*split, *given], effort)
        if result == z3.unknown or (result == z3.sat and obligation.vague):
            return Answer(None)
        if result == z3.sat:
            return Answer(False, _describe(obligation, model))
    return Answer(True)


def _describe(obligation: Obligation, model: Any) -> str:
    """The counterexample: captures and what both sides are."""

    def value(term: Any) -> str:
        found = model.eval(term, model_completion=True)
        return str(found.as_signed_long() if z3.is_bv_value(found) else found)

    given = [f"{name} = {value(v.term)}" for name, v in sorted(obligation.captures.items())]
    left, right = value(obligation.left.term), value(obligation.right.term)
    if not z3.is_true(model.eval(obligation.right.defined, model_completion=True)):
        right = "undefined"
    at = ", ".join(given) or "any values"
    return f"at {at} ({obligation.left.sort}): {left} becomes {right}"


def prove(rule: Rule) -> Verdict:
    """The verdict on one data rule."""
    start = time.monotonic()
    proved: list[str] = []
    reasons: list[str] = []
    status = Status.PROVED
    fires = False
    try:
        for typing in typings(rule):
            if never_holds(rule, typing):
                continue
            name = _name(rule, typing)
            try:
                obligation = Translator(rule, typing).obligation()
                answer = check(obligation)
                fires = fires or ask(obligation.firing)[0] == z3.sat
            except NeverFiresError:
                continue
            if answer.holds is None:
                answer, every = _by_constants(rule, typing, obligation)
                if answer.holds and not every:
                    status = Status.CONSTANTS
                if not every:
                    reasons.append(f"{name}: z3 gives up on all constants at once")
            if answer.holds is None:
                status = Status.UNPROVED
                break
            if not answer.holds:
                return Verdict(
                    rule.name, Status.REFUTED, name, answer.why, time.monotonic() - start
                )
            proved.append(name)
    except IllTypedError as error:
        return Verdict(rule.name, Status.REFUTED, "", str(error), time.monotonic() - start)
    except UnsupportedError as error:
        return Verdict(rule.name, Status.UNPROVED, "", str(error), time.monotonic() - start)
    if status is Status.PROVED and not fires:
        status, reasons = Status.UNPROVED, ["it never fires"]
    sorts = _listed(proved)
    return Verdict(rule.name, status, sorts, "; ".join(reasons), time.monotonic() - start)


def _name(rule: Rule, typing: Mapping[object, Sort]) -> str:
    """The sorts of the root and of what differs from it."""
    assert rule.pattern is not None
    keys = [p.name if p.name is not None else id(p) for p in rule.pattern.walk()]
    return ",".join(dict.fromkeys(str(typing[key]) for key in keys))


def _listed(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) <= MOST_NAMES:
        return " ".join(names)
    sorts = dict.fromkeys(sort for name in names for sort in name.split(","))
    return f"{len(names)} choices of {', '.join(sorts)}"


def _constants(rule: Rule) -> list[str]:
    assert rule.pattern is not None
    found = {p.name for p in rule.pattern.walk() if p.constant and p.name is not None}
    return sorted(found)


def _by_constants(
    rule: Rule, typing: Mapping[object, Sort], obligation: Obligation
) -> tuple[Answer, bool]:
    """The answer for one value of the constants after another, and whether these are all that the
    guards allow."""
    names = _constants(rule)
    if not names or len(names) > MOST_CONSTANTS:
        return Answer(None, f"{len(names)} constants"), False
    allowed = _allowed([obligation.captures[name].term for name in names], obligation.firing)
    for values in allowed or itertools.product(GRID, repeat=len(names)):
        translator = Translator(rule, typing, dict(zip(names, values, strict=True)))
        try:
            answer = check(translator.obligation())
        except NeverFiresError:
            continue
        if not answer.holds:
            return answer, allowed is not None
    return Answer(True), allowed is not None


def _allowed(constants: list[Any], firing: list[Any]) -> list[tuple[int, ...]] | None:
    """All values of integer constants at which a rule fires; None where they are many."""
    if not all(z3.is_int(constant) for constant in constants):
        return None
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.add(*firing)
    found: list[tuple[int, ...]] = []
    while (result := solver.check()) == z3.sat:
        model = solver.model()
        values = [model.eval(c, model_completion=True).as_long() for c in constants]
        found.append(tuple(values))
        if len(found) > MOST_ALLOWED:
            return None
        solver.add(z3.Or(*(c != v for c, v in zip(constants, values, strict=True))))
    return found if result == z3.unsat else None
