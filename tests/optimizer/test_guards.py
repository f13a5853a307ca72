"""What conditions say of positions, against every value of the loops."""

from __future__ import annotations

import itertools
import random

import pytest

from morok.dtype import dtypes
from morok.ir import AxisType, Ops, UOp
from morok.optimizer import guard_of, make_range

_SIZES = (2, 3, 4)


def _loops() -> list[UOp]:
    return [make_range(n, i, AxisType.LOOP) for i, n in enumerate(_SIZES)]


def _sum(loops: list[UOp], factors: tuple[int, ...], constant: int) -> UOp:
    total = UOp.const(dtypes.index, constant)
    for rng, factor in zip(loops, factors, strict=True):
        total = total + rng * factor
    return total.simplify()


def _holds(condition: UOp | None, values: dict[UOp, UOp]) -> bool:
    return condition is None or condition.substitute(values).simplify().arg is True


def test_each_read_of_a_window_keeps_its_own_condition() -> None:
    p, r, i = _loops()
    tap, inside = 2 * r + p < 5, i >= r
    both = tap & inside
    assert guard_of((2 * r + p).simplify(), both, 5) is tap
    assert guard_of((i - r).simplify(), both, 4) is inside
    assert guard_of((i * 5 + 2 * r + p).simplify(), both, 20) is tap
    assert guard_of(i, both, 4) is None
    assert guard_of((2 * r + p).simplify(), both, 4) is both  # not seen to be enough


@pytest.mark.parametrize("seed", range(200))
def test_what_is_left_of_a_condition_keeps_positions_inside(seed: int) -> None:
    chance = random.Random(seed)
    loops = _loops()
    flat = _sum(loops, tuple(chance.randint(-4, 4) for _ in loops), chance.randint(0, 6))
    parts = []
    for _ in range(chance.randint(1, 3)):
        side = _sum(loops, tuple(chance.randint(-2, 2) for _ in loops), chance.randint(-3, 3))
        zero = UOp.const(dtypes.index, 0)
        parts.append(UOp(chance.choice((Ops.GE, Ops.LT)), dtypes.bool_, (side, zero)))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part
    size = chance.randint(1, 20)
    kept = guard_of(flat, whole, size)
    for numbers in itertools.product(*map(range, _SIZES)):
        values = {rng: UOp.const(dtypes.index, n) for rng, n in zip(loops, numbers, strict=True)}
        if _holds(whole, values):
            assert _holds(kept, values)
        if kept is not whole and _holds(kept, values):
            assert 0 <= flat.substitute(values).simplify().arg < size
