"""Bounds of ops: every interval transfer at 8 bits against the values themselves.

Covered: for ops of one operand and for casts, all 32 896 intervals of int8, of uint8 and of the
same positions. For ops of two, a sample of left intervals with all right ones and the reverse
(millions of pairs an op and dtype; intervals between corners are in every sample); all 1.08
thousand million pairs with `-m exhaustive`, a minute an op. What is true of an interval is taken
from the op's reference definition on all of its values, by minima and maxima over its table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from morok._core import interval_transfer
from morok.dtype import DType, dtypes
from morok.ir import GroupOp, Ops, numeric

X = dtypes.index
SIDE = 256
FIRST = {"int8": -128, "uint8": 0, "index": -128}
DTYPES = {"int8": dtypes.int8, "uint8": dtypes.uint8, "index": X}
CORNERS = (0, 1, 64, 125, 127, 128, 129, 130, 136, 192, 254, 255)
"""Places, counted from the least value; what is between them is in every sample."""
MOST_SHIFT = 15  # of a position; more would not fit the tables

BINARY = (
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN,
    Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, *sorted(GroupOp.Comparison),
)  # fmt: skip
UNARY = (Ops.NEG, Ops.NOT, Ops.ABS, Ops.SIGN, Ops.SQUARE, Ops.TRUNC, Ops.ROUND)
DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD)
UNKNOWN_OF_INDEX = (Ops.AND, Ops.OR, Ops.XOR, Ops.SHL)
"""What may say nothing of positions, which have no limits to fall back on."""
EXACT = {Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN, Ops.NEG, Ops.ABS, Ops.SIGN, Ops.SQUARE}
EXACT |= {Ops.LT, Ops.LE, Ops.GT, Ops.GE, Ops.TRUNC, Ops.ROUND}


ENDS_AT, BEGINS_AT = np.tril_indices(SIDE)
FLAT = ENDS_AT * SIDE + BEGINS_AT
PLACES = np.stack([BEGINS_AT, ENDS_AT], axis=1).astype(np.int64)
"""All intervals as pairs of places."""
BEFORE = np.tri(SIDE, k=-1, dtype=bool).T
TOP = np.iinfo(np.int64).max


def over_intervals(row: np.ndarray, extreme: np.ufunc) -> np.ndarray:
    """The least or greatest number of a row over each interval of its places."""
    grid = np.where(BEFORE, TOP if extreme is np.minimum else -TOP, row[:, None])
    return extreme.accumulate(grid, axis=0).ravel()[FLAT]


@dataclass(frozen=True)
class Truth:
    """An op at a dtype and its values at all places of both operands."""

    op: Ops
    dtype: DType
    least: np.ndarray
    most: np.ndarray  # the same but where the op is undefined

    @staticmethod
    def of(op: Ops, dtype: DType) -> Truth:
        values = np.arange(SIDE, dtype=np.int64) + FIRST[dtype.name]
        right = values
        if dtype is X and op in (Ops.SHL, Ops.SHR):  # other counts are of no use to an address
            right = np.clip(values, 0, MOST_SHIFT)
        of = dtypes.bool_ if op in GroupOp.Comparison else dtype
        given = [v.astype(numeric.carrier(dtype)) for v in (values[:, None], right[None, :])]
        with np.errstate(all="ignore"):
            table = numeric.compute(op, of, given).astype(np.int64)
        undefined = np.zeros_like(table, bool)
        undefined[:, 128] = dtype is X and op in DIVISIONS
        return Truth(op, dtype, np.where(undefined, TOP, table), np.where(undefined, -TOP, table))

    def rights(self) -> np.ndarray:
        """Rows of the intervals that the second operand may have."""
        low, high = (PLACES + FIRST[self.dtype.name]).T
        if self.dtype is X and self.op in DIVISIONS:  # divisors of a position are not zero
            return np.flatnonzero((low != 0) | (high != 0))
        if self.dtype is X and self.op in (Ops.SHL, Ops.SHR):
            return np.flatnonzero((low >= 0) & (high <= MOST_SHIFT))
        return np.arange(len(PLACES))

    def check(self, some: np.ndarray, first: bool) -> None:
        """Some intervals, given by their rows, of the first (or second) operand, with all of the
        other."""
        least, most = (self.least, self.most) if first else (self.least.T, self.most.T)
        others = self.rights() if first else np.arange(len(PLACES))
        operands = np.ascontiguousarray(PLACES[others] + FIRST[self.dtype.name])
        of = dtypes.bool_ if self.op in GroupOp.Comparison else self.dtype
        found = np.empty_like(operands)
        wraps = self.dtype is not X and self.op in (Ops.ADD, Ops.SUB, Ops.MUL)
        for begin, end in PLACES[some].tolist():
            low = over_intervals(least[begin : end + 1].min(axis=0), np.minimum)[others]
            high = over_intervals(most[begin : end + 1].max(axis=0), np.maximum)[others]
            fixed = begin + FIRST[self.dtype.name], end + FIRST[self.dtype.name]
            interval_transfer(int(self.op), of, self.dtype, fixed, first, operands, found)
            right = (found[:, 0] <= low) & (high <= found[:, 1])
            if self.dtype is X and self.op in UNKNOWN_OF_INDEX:
                right |= found[:, 0] > found[:, 1]
            elif self.op in EXACT and not wraps:
                right &= (found[:, 0] == low) & (found[:, 1] == high)
            if not right.all():
                k = int(np.flatnonzero(~right)[0])
                pair = (fixed, operands[k]) if first else (operands[k], fixed)
                raise AssertionError(
                    f"{self.op.name} of {pair} lies in {low[k]}, {high[k]}: found {found[k]}"
                )


def sample(seed: int) -> np.ndarray:
    """Rows of all intervals between corners, and of twenty others."""
    between = np.isin(PLACES, CORNERS).all(axis=1)
    others = np.random.default_rng(seed).integers(0, len(PLACES), 20)
    return np.union1d(np.flatnonzero(between), others)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
@pytest.mark.parametrize("name", list(FIRST))
def test_binary(op: Ops, name: str) -> None:
    truth = Truth.of(op, DTYPES[name])
    truth.check(np.intersect1d(sample(int(op)), truth.rights()), first=False)
    if op not in GroupOp.Commutative:
        truth.check(sample(int(op)), first=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
@pytest.mark.parametrize("name", list(FIRST))
def test_every_pair_of_intervals(op: Ops, name: str) -> None:
    Truth.of(op, DTYPES[name]).check(np.arange(len(PLACES)), first=True)


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
@pytest.mark.parametrize("name", list(FIRST))
def test_unary(op: Ops, name: str) -> None:
    dtype = DTYPES[name]
    spans = PLACES + FIRST[name]
    values = np.arange(SIDE, dtype=np.int64) + FIRST[name]
    result = numeric.compute(op, dtype, [values.astype(numeric.carrier(dtype))]).astype(np.int64)
    low = over_intervals(result, np.minimum)
    high = over_intervals(result, np.maximum)
    found = np.empty_like(spans)
    interval_transfer(int(op), dtype, dtype, None, True, spans, found)
    assert ((found[:, 0] <= low) & (high <= found[:, 1])).all()
    if dtype is X and op in EXACT:
        assert ((found[:, 0] == low) & (found[:, 1] == high)).all()


@pytest.mark.parametrize("target", [*dtypes.ints, dtypes.bool_, X], ids=lambda d: d.name)
@pytest.mark.parametrize("name", list(FIRST))
def test_cast(name: str, target: DType) -> None:
    dtype = DTYPES[name]
    spans = PLACES + FIRST[name]
    values = (np.arange(SIDE) + FIRST[name]).astype(numeric.carrier(dtype))
    result = numeric.cast(values, target)
    if target is dtypes.uint64:  # compared where int64 can say it; the other half has no bounds
        result = np.minimum(result, np.uint64(2**63 - 1))
    result = result.astype(np.int64)
    low = over_intervals(result, np.minimum)
    high = over_intervals(result, np.maximum)
    found = np.empty_like(spans)
    interval_transfer(int(Ops.CAST), target, dtype, None, True, spans, found)
    known = found[:, 0] <= found[:, 1]
    assert ((found[:, 0] <= low) & (high <= found[:, 1]))[known].all()
    if target is dtypes.uint64:
        assert (spans[~known, 0] < 0).all()
    else:
        assert known.all()
