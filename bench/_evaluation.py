"""The value of small expressions on arrays of test data, by the reference definition of each op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from morok.dtype import DType, dtypes
from morok.ir import GroupOp, Invalid, Ops, UOp, numeric

LANES = 48
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0, 3.0, -2.5, 1.5, 1e-8, 300.0)
DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD})


@dataclass(frozen=True)
class Value:
    """Lanes of a value; `reached` where it means something: not Invalid, no index divided by 0."""

    data: np.ndarray
    reached: np.ndarray


def loaded(dtype: DType, slot: int) -> UOp:
    """A value of which nothing is known but its dtype."""
    return UOp(Ops.INDEX, dtype, (UOp.param(slot, dtype, 64), UOp.const(dtypes.index, 0)), False)


def is_leaf(node: UOp) -> bool:
    """Whether the value of a node is given, not computed."""
    return node.op in (Ops.INDEX, Ops.RANGE, Ops.DEFINE_VAR)


def leaves_of(root: UOp) -> list[UOp]:
    """The given values below a node."""
    inner: set[UOp] = set()
    for node in root.toposort():
        if is_leaf(node):
            inner |= node.backward_slice() - {node}
    return [node for node in root.toposort() if is_leaf(node) and node not in inner]


def sample(leaf: UOp, rng: np.random.Generator) -> np.ndarray:
    """Lanes that a leaf may hold: the corners of its dtype or bounds, and random ones."""
    dtype = leaf.dtype
    if dtype.kind == "b":
        return rng.random(LANES) < 0.5
    if dtype.kind == "f":
        values = np.concatenate([SPECIAL, rng.standard_normal(LANES - len(SPECIAL)) * 3])
        rng.shuffle(values)
        return numeric.settle(values.astype(numeric.carrier(dtype)), dtype)
    if leaf.op in (Ops.RANGE, Ops.DEFINE_VAR):
        assert leaf.vmin is not None
        assert leaf.vmax is not None
        return rng.integers(leaf.vmin, leaf.vmax, LANES, dtype=np.int64, endpoint=True)
    info = np.iinfo(dtype.name)
    corners = [0, 1, 2, 3, 4, 7, info.max, info.max - 1, info.min]
    corners += [-1, -2, -3, -7, info.min + 1] if dtype.kind == "i" else []
    rest = rng.integers(info.min, info.max, LANES - len(corners), dtype=dtype.name, endpoint=True)
    small = rng.integers(0, 20, len(rest)).astype(dtype.name)
    values = np.concatenate(
        [np.array(corners, dtype.name), np.where(rng.random(len(rest)) < 0.5, rest, small)]
    )
    rng.shuffle(values)
    return values


def environment(root: UOp, rng: np.random.Generator) -> dict[UOp, np.ndarray]:
    """Data for every leaf."""
    return {leaf: sample(leaf, rng) for leaf in leaves_of(root)}


def evaluate(root: UOp, given: Mapping[UOp, np.ndarray]) -> Value:
    """The lanes of `root` for the lanes of its leaves."""
    known: dict[UOp, Value] = {}
    lanes = len(next(iter(given.values()))) if given else 1
    stop = set(given)
    for node in root.toposort(stop=stop):
        known[node] = _value(node, given, [known[s] for s in node.src if s in known], lanes)
    return known[root]


def _value(node: UOp, given: Mapping[UOp, np.ndarray], src: list[Value], lanes: int) -> Value:
    everywhere = np.ones(lanes, bool)
    if node in given:
        return Value(given[node], everywhere)
    if node.op is Ops.CONST:
        if node.arg is Invalid:
            return Value(np.zeros(lanes, np.int64), ~everywhere)
        constant = numeric.constant_array(node.arg, node.dtype)
        return Value(np.broadcast_to(constant, (lanes,)), everywhere)
    if node.op is Ops.CAST:
        return Value(numeric.cast(src[0].data, node.dtype), src[0].reached)
    if node.op is Ops.BITCAST:
        bits = numeric.bitcast(src[0].data, node.src[0].dtype, node.dtype)
        return Value(bits, src[0].reached)
    if node.op is Ops.WHERE:
        condition, yes, no = src
        data = np.where(condition.data, yes.data, no.data)
        arm = np.where(condition.data, yes.reached, no.reached)
        return Value(data, condition.reached & arm)
    assert node.op in GroupOp.ALU, node.op
    data = numeric.compute(node.op, node.dtype, [s.data for s in src])
    reached = np.logical_and.reduce([s.reached for s in src])
    if node.dtype is dtypes.index and node.op in DIVISIONS:
        reached = reached & (src[1].data != 0)
    return Value(np.broadcast_to(data, (lanes,)), reached)


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Lanes that are equal, zeros by sign and NaN to NaN."""
    equal: np.ndarray = a == b
    if a.dtype.kind == "f":
        equal &= np.signbit(a) == np.signbit(b)
        equal |= np.isnan(a) & np.isnan(b)
    return equal


def assert_equal(
    before: UOp, after: UOp, given: Mapping[UOp, np.ndarray], note: object = ""
) -> None:
    """Wherever `before` means something, `after` is the same value, within its bounds."""
    x, y = evaluate(before, given), evaluate(after, given)
    assert before.dtype is after.dtype, note
    wrong = x.reached & ~(y.reached & same_bits(x.data, y.data))
    if wrong.any():
        lane = int(np.flatnonzero(wrong)[0])
        at = {repr(leaf): values[lane] for leaf, values in given.items()}
        raise AssertionError(
            f"{note}\n{before.tree()}\n{after.tree()}\n{x.data[lane]} became {y.data[lane]} at {at}"
        )
    for node, value in ((before, x), (after, y)):
        if node.vmin is not None and node.vmax is not None and value.reached.any():
            seen = value.data[value.reached]
            assert node.vmin <= int(seen.min()), (note, node.tree())
            assert int(seen.max()) <= node.vmax, (note, node.tree())
