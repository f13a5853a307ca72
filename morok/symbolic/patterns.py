"""The two named sets that the pipeline runs.

They are for graphs of scalars and vectors, after rangeify: a value that turns out constant becomes
a CONST of shape (), whatever the shape of the tensor it stood for.
"""

from __future__ import annotations

from typing import Final

from morok.ir import RuleSet, UOp, graph_rewrite, register_simplifier
from morok.symbolic.boolean import boolean
from morok.symbolic.cast import cast
from morok.symbolic.compare import compare
from morok.symbolic.divmod import divmod_
from morok.symbolic.fold import fold
from morok.symbolic.identity import chains, identity
from morok.symbolic.invalid import invalid
from morok.symbolic.loops import gates, loops
from morok.symbolic.vector import lanes, vector
from morok.symbolic.where import where


def _named(name: str, *parts: RuleSet) -> RuleSet:
    """The rules of all parts, in order, as one set."""
    whole = RuleSet(name)
    for part in parts:
        whole = whole + part
    whole.name = name
    return whole


symbolic: Final = _named(
    "symbolic",
    invalid,
    fold,
    identity,
    divmod_,
    chains,
    compare,
    boolean,
    where,
    cast,
    vector,
    loops,
)
"""Algebra: what stage 4 and stage 16 run."""

sym: Final = _named("sym", symbolic, gates, lanes)
"""`symbolic`, and what later stages make possible: decided gates, lanes that are all the same."""


def simplify(root: UOp) -> UOp:
    """An equal graph with `symbolic` applied until no rule fires."""
    return graph_rewrite(root, symbolic, name="simplify")


register_simplifier(simplify)
