"""Affine forms: sum(coefficient * atom) + constant of an integer expression."""

from collections.abc import Iterable
from typing import TypeVar

from morok._core.node import Node
from morok.dtype import DType

N = TypeVar("N", bound=Node)

def affine_form(node: N) -> tuple[tuple[tuple[N, int], ...], int]:
    """`node` as (((atom, coefficient), …), constant), in the canonical order of terms.

    A node that is no sum is its own atom, and so is one whose form would overflow int64 or have
    more than 64 terms. The value is the mathematical one: a fixed-width sum that may wrap is an
    atom.
    """

def affine_split(node: N, atom: N) -> tuple[int, N] | None:
    """(coefficient, rest) with node == coefficient * atom + rest and `atom` nowhere in `rest`.

    (0, node) when `atom` does not occur; None when it also occurs inside another atom
    (non-linearly).
    """

def affine_add(pairs: Iterable[tuple[N, int]], constant: int, dtype: DType) -> N:
    """The canonical sum of coefficient * node over `pairs` of (node, coefficient), plus `constant`.

    Sums among the nodes are taken apart and equal atoms combined. OverflowError where a number
    leaves int64; ValueError above 64 terms, or when a fixed-width sum is not proved to stay in its
    dtype.
    """
