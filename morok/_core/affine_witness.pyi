"""Equality of sums by the definition of their divisions."""

from typing import Any

def affine_same(a: Any, b: Any) -> bool | None:
    """Whether two `index` sums are the same number by the definition of quotients and remainders
    alone, whatever their atoms are; None where that cannot be told. False shows nothing of sums
    whose bounds matter.
    """
