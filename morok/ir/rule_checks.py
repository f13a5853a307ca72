"""What the definition of a rule asks of the functions and symbols that it is given."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from morok.errors import RuleError
from morok.ir.ops import Ops
from morok.ir.pattern import Pat
from morok.ir.terms import Capture, Const, Term, Var, lift, walk


def lifted(guards: Iterable[object], rule: str) -> list[Term]:
    try:
        return list(map(lift, guards))
    except RuleError as error:
        error.rule = error.rule or rule
        raise


def refuse_unused(rule: str, pattern: Pat, others: Iterable[Term]) -> None:
    """RuleError for a capture that is met once and that nothing asks for; `_` and what begins so
    says that anything may stand there."""
    met = Counter(part.name for part in pattern.walk() if part.name is not None)
    asked = {part.name for term in others for part in walk(term) if isinstance(part, Capture)}
    unused = [n for n, count in met.items() if count == 1 and n not in asked and n[0] not in "_#"]
    if unused:
        names = ", ".join(unused)
        raise RuleError(
            f"captured, but never used: {names} (where anything may stand, say _: Var('_'))",
            rule=rule,
        )


def name_of(function: object, name: object, rules: str) -> object:
    """The given name, or the function's; RuleError where there is no function."""
    if not callable(function):
        raise RuleError(f"expected the function of a rule, got {function!r}", rule=rules)
    return getattr(function, "__name__", None) if name is None else name


def parameters_of(function: Callable[..., Any], rule: str) -> tuple[str, ...]:
    if not callable(function):
        raise RuleError(f"expected a function of captures, got {function!r}", rule=rule)
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise RuleError(f"the parameter {parameter} names no capture", rule=rule)
    return tuple(parameter.name for parameter in parameters)


def symbols_of(function: Callable[..., Any], rule: str) -> list[Capture]:
    """A symbol for each parameter: Const where annotated so, else Var."""
    symbols: list[Capture] = []
    annotations = inspect.get_annotations(function)
    for name in parameters_of(function, rule):
        annotation = annotations.get(name)
        constant = annotation is Const or annotation == "Const"
        if not (constant or annotation in (None, "Var") or annotation is Var):
            raise RuleError(f"{name}: annotate captures as Var or Const", rule=rule)
        symbols.append(Const(name) if constant else Var(name))
    return symbols


def capture_of(pattern: Pat, name: str, rule: str) -> Capture:
    for part in pattern.walk():
        if part.name == name:
            return Const(name) if part.constant or part.ops == frozenset({Ops.CONST}) else Var(name)
    raise RuleError(f"the pattern does not capture {name}", rule=rule)
