"""Casts: to the dtype a value has, through dtypes that lose nothing, and of truth values."""

from __future__ import annotations

from morok.dtype import dtypes
from morok.ir import RuleSet, Var, bits, highest, is_const, kind, lowest, num, same_dtype

x, y, p = Var("x"), Var("y"), Var("p")

cast = RuleSet("cast")

_once = x.cast()
_twice = _once.cast()
_chosen = p.where(x, y).cast()
_bits_once = x.bitcast()
_bits_twice = _bits_once.bitcast()

_widens = (
    (kind(x, "b") & kind(_once, "iuf"))
    | (kind(x, "i") & kind(_once, "i") & (bits(x) <= bits(_once)))
    | (kind(x, "u") & kind(_once, "u") & (bits(x) <= bits(_once)))
    | (kind(x, "u") & kind(_once, "i") & (bits(x) < bits(_once)))
    | (kind(x, "f") & kind(_once, "f") & (bits(x) < bits(_once)))
    | (kind(x, "i") & kind(_once, "x"))
    | (kind(x, "u") & kind(_once, "x") & (bits(x) < bits(_once)))
)
# floats of 16, 32 and 64 bits hold every int of 8, 16 and 32 bits
_exact_float = kind(x, "iu") & kind(_once, "f") & (bits(x) * 2 <= bits(_once)) & kind(_twice, "bf")
_fits = kind(x, "iux") & kind(_once, "iu") & (lowest(_once) <= x.vmin) & (x.vmax <= highest(_once))
_narrows = kind(x, "iu") & kind(_once, "iux") & kind(_twice, "iu") & (bits(_twice) <= bits(_once))

# fmt: off
cast.table([
    ("same",            _once,                          x,              same_dtype(_once, x)),
    ("to_bool",         x.cast(dtypes.bool_),           x.ne(num(0)),   kind(x, "iufx")),
    ("through_wider",   _twice,                         x.cast(_twice.dtype),   _widens),
    ("through_float",   _twice,                         x.cast(_twice.dtype),   _exact_float),
    ("through_fitting", _twice,                         x.cast(_twice.dtype),   _fits),
    ("narrowing",       _twice,                         x.cast(_twice.dtype),   _narrows),
    ("of_consts",       _chosen,
     p.where(x.cast(_chosen.dtype), y.cast(_chosen.dtype)), is_const(x) & is_const(y)),
    ("bits_same",       _bits_once,                     x,              same_dtype(_bits_once, x)),
    # a bool keeps one bit of its eight
    ("bits_of_bits",    _bits_twice,                    x.bitcast(_bits_twice.dtype),
     ~kind(_bits_once, "b")),
])
# fmt: on
