"""Which parts of a condition a read needs so that it stays inside of its buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce as fold

from morok._core import affine_form
from morok.ir import Ops, UOp

__all__ = ["conjuncts", "guard_of", "stays_inside"]

_Terms = tuple[tuple[UOp, int], ...]


@dataclass
class _Bound:
    """What conditions say of a sum: numbers it does not exceed, numbers its negation does not, and
    the conditions."""

    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    parts: list[UOp] = field(default_factory=list)


def guard_of(flat: UOp, valid: UOp, size: int) -> UOp | None:
    """The parts of `valid` that keep position `flat` in 0 … size - 1; None if it needs none, all of
    them if they are not seen to be enough.

        a[i - r] * b[2 * r + p], padded where i < r or 2 * r + p > 6: each is guarded by its own
    """
    parts = conjuncts(valid)
    used, inside = _bound_by(flat, parts, size)
    if not inside or len(used) == len(parts):
        return valid
    return fold(lambda a, b: a & b, used) if used else None


def stays_inside(flat: UOp, valid: UOp | None, size: int) -> bool:
    """Is position `flat` seen to be in 0 … size - 1 wherever `valid` holds (None: always)?"""
    return _bound_by(flat, [] if valid is None else conjuncts(valid), size)[1]


def _bound_by(flat: UOp, parts: list[UOp], size: int) -> tuple[list[UOp], bool]:
    """Which conditions narrow a position, and whether it then lies in 0 … size - 1.

    Each is a bound of a sum; no term of the position is bounded by more than one sum.
    """
    terms, constant = affine_form(flat)
    left = dict(terms)
    low = high = constant
    used: set[UOp] = set()
    for about, bound in _bounds(parts).items():
        here = tuple((atom, left.get(atom, 0)) for atom, _ in about)
        natural = _interval(here)
        if natural is None or not all(factor for _, factor in here):
            continue
        weights = tuple(factor for _, factor in about)
        limits = [(weights, limit) for limit in bound.above]
        limits += [(tuple(-weight for weight in weights), limit) for limit in bound.below]
        negated = tuple((atom, -factor) for atom, factor in here)
        highest = min(natural[1], *(_most(here, *limit) for limit in limits))
        lowest = max(natural[0], *(-_most(negated, *limit) for limit in limits))
        if (lowest, highest) == natural:
            continue
        for atom, _ in about:
            del left[atom]
        low, high = low + lowest, high + highest
        used.update(bound.parts)
    rest = _interval(tuple(left.items()))
    inside = rest is not None and low + rest[0] >= 0 and high + rest[1] < size
    return [part for part in parts if part in used], inside


def _most(value: _Terms, weights: tuple[int, ...], limit: int) -> int:
    """A bound from above of the sum of factor * x where the sum of weight * x is `limit` at most:
    from the x of the largest value back, by those steps first that cost least for what they weigh.
    All x have bounds."""
    total = excess = 0
    steps: list[tuple[Fraction, int]] = []  # cost of a unit of weight, units to be had
    for (atom, factor), weight in zip(value, weights, strict=True):
        low, high = int(atom.vmin or 0), int(atom.vmax or 0)
        at, other = (high, low) if factor > 0 else (low, high)
        total += factor * at
        excess += weight * at
        gain = weight * (at - other)
        if gain > 0:
            steps.append((Fraction(factor * (at - other), gain), gain))
    excess -= limit
    cost = Fraction(0)
    for each, units in sorted(steps):
        if excess <= 0:
            break
        cost += each * min(units, excess)
        excess -= units
    return math.floor(total - cost)


def conjuncts(condition: UOp) -> list[UOp]:
    """The parts of which all must hold, in order."""
    parts: list[UOp] = []
    stack = [condition]
    while stack:
        part = stack.pop()
        if part.op is Ops.AND:
            stack += reversed(part.src)
        else:
            parts.append(part)
    return parts


def _bounds(parts: list[UOp]) -> dict[_Terms, _Bound]:
    """What the parts say of sums without their constants."""
    found: dict[_Terms, _Bound] = {}
    for part in parts:
        if part.op not in (Ops.GE, Ops.LT):
            continue
        terms, constant = affine_form(part.src[0] - part.src[1])
        if not terms:
            continue
        # sum >= -constant, or sum <= -constant - 1: a bound from above of -sum, or of the sum
        up = part.op is Ops.LT
        limit = -constant - 1 if up else constant
        if terms[0][1] < 0:
            up = not up
            terms = tuple((atom, -factor) for atom, factor in terms)
        bound = found.setdefault(terms, _Bound())
        (bound.above if up else bound.below).append(limit)
        bound.parts.append(part)
    return found


def _interval(terms: _Terms) -> tuple[int, int] | None:
    """The values of a sum as far as those of its atoms are known."""
    low = high = 0
    for atom, factor in terms:
        least, most = atom.vmin, atom.vmax
        if least is None or most is None:
            return None
        low += min(factor * least, factor * most)
        high += max(factor * least, factor * most)
    return low, high
