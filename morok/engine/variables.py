"""Symbolic variables of a run: their values are arguments of its kernels, and compile nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from morok.errors import ArgumentError, InvalidGraphError
from morok.ir import Ops, UOp

Binding = tuple[UOp, int]
"""A DEFINE_VAR and its value."""


def binding_of(bound: UOp) -> Binding:
    """What a BIND says. InvalidGraphError for a value that is no number."""
    variable, value = bound.src
    if value.op is not Ops.CONST:
        raise InvalidGraphError(
            "BIND.value: a run binds numbers",
            node=bound,
            stage="normalise",
            expected="CONST",
            got=value.op.name,
        )
    return variable, value.arg


def enter(values: dict[str, Binding], bindings: Iterable[Binding]) -> None:
    """Add bindings to those of a run. ArgumentError where a variable has two values, or two
    variables one name."""
    for variable, value in bindings:
        name, low, high = variable.arg
        other, before = values.setdefault(name, (variable, value))
        if other is not variable:
            raise ArgumentError(
                f"two variables of one run are called {name!r}: within {low}..{high}, and within "
                f"{other.arg[1]}..{other.arg[2]}"
            )
        if before != value:
            raise ArgumentError(
                f"variable {name!r} is bound to {before} and to {value} in one run: realize one of "
                "the values first"
            )


def in_order(names: Sequence[str], values: Mapping[str, int]) -> tuple[int, ...]:
    """The values of the variables that a plan takes. ArgumentError for one without a value."""
    for name in names:
        if name not in values:
            raise ArgumentError(f"variable {name!r} has no value in this run: use bind(…) of it")
    return tuple(values[name] for name in names)
