"""Symbolic simplification: rule sets over one vocabulary, proved or tested one by one.

`symbolic` is the algebra (constants, identities, division, comparisons, booleans, WHERE, casts,
lanes, idle loops); `sym` is that and more, for the stages after optimisation; the sets of `late`
are for stages that know their target. `python -m morok prove` proves the rules that are data.
Importing this package makes `UOp.simplify()` work.
"""

from morok.symbolic.boolean import boolean
from morok.symbolic.cast import cast
from morok.symbolic.compare import compare
from morok.symbolic.divmod import divmod_
from morok.symbolic.fold import fold
from morok.symbolic.identity import chains, identity
from morok.symbolic.invalid import invalid
from morok.symbolic.late import late, logic, multiply_add, negations, reciprocals, shifts
from morok.symbolic.loops import gates, loops
from morok.symbolic.patterns import simplify, sym, symbolic
from morok.symbolic.vector import lanes, vector
from morok.symbolic.where import where

__all__ = [
    "boolean",
    "cast",
    "chains",
    "compare",
    "divmod_",
    "fold",
    "gates",
    "identity",
    "invalid",
    "lanes",
    "late",
    "logic",
    "loops",
    "multiply_add",
    "negations",
    "reciprocals",
    "shifts",
    "simplify",
    "sym",
    "symbolic",
    "vector",
    "where",
]
