"""Arrays over loops: what a node of a ranged graph evaluates to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from morok.errors import InvalidGraphError
from morok.ir import numeric
from morok.ir.numeric import Array
from morok.ir.ops import InvalidType, Ops
from morok.ir.shapes import Dim, dims_of
from morok.ir.uop import UOp

__all__ = ["Value", "align", "combine", "constant", "fault", "loop_order", "move", "over", "union"]


def fault(node: UOp, rule: str, expected: str, got: object) -> InvalidGraphError:
    """The error for a graph that has no value."""
    return InvalidGraphError(
        f"{node.op.name}: expected {expected}, got {got}",
        node=node,
        stage="interpret",
        rule=rule,
        expected=expected,
        got=got,
    )


@dataclass(frozen=True, slots=True)
class Value:
    """An array with one leading axis for each of `ranges` (in loop order), then its own axes.

    The own axes are the dims of a tensor, or the lanes of a vector.
    """

    ranges: tuple[UOp, ...]
    data: Array
    invalid: Array | None = None  # where it comes from Invalid; of as many axes as `data`

    @property
    def rank(self) -> int:
        """Number of its own axes."""
        return self.data.ndim - len(self.ranges)

    def map(self, function: Callable[[Array, int], Array]) -> Value:
        """`function(data, number of leading range axes)`, which keeps the latter."""
        return Value(self.ranges, function(self.data, len(self.ranges)), self.invalid)

    def over(self, axes: tuple[UOp, ...], rank: int) -> Array:
        """The data seen over the wider `axes`, with `rank` own axes."""
        return over(self.data, self.ranges, axes, rank)


def loop_order(axis: UOp) -> tuple[int, bytes]:
    """Sort key: outer loops first; hardware indices stand outside of every loop."""
    return (axis.arg[0].number if axis.op is Ops.RANGE else -1, axis.key)


def union(*parts: Iterable[UOp]) -> tuple[UOp, ...]:
    """All axes, in loop order."""
    return tuple(sorted({axis for part in parts for axis in part}, key=loop_order))


def over(data: Array, ranges: tuple[UOp, ...], axes: tuple[UOp, ...], rank: int) -> Array:
    """`data` over `ranges` seen over the wider `axes`: new axes have size 1."""
    own = data.shape[len(ranges) :]
    sizes = dict(zip(ranges, data.shape, strict=False))
    lead = tuple(sizes.get(axis, 1) for axis in axes)
    return data.reshape((*lead, *own, *(1,) * (rank - len(own))))


def align(values: Sequence[Value]) -> tuple[tuple[UOp, ...], list[Array], int]:
    """The common axes, the arrays seen over them (they broadcast), and their own rank."""
    axes = union(*(value.ranges for value in values))
    rank = max((value.rank for value in values), default=0)
    return axes, [value.over(axes, rank) for value in values], rank


def _masks(values: Sequence[Value], axes: tuple[UOp, ...], rank: int) -> list[Array] | None:
    """Where each value is Invalid; None when nothing is."""
    if all(value.invalid is None for value in values):
        return None
    nowhere = np.zeros((1,) * (len(axes) + rank), np.bool_)
    return [
        nowhere if value.invalid is None else over(value.invalid, value.ranges, axes, rank)
        for value in values
    ]


def combine(
    values: Sequence[Value],
    function: Callable[[list[Array]], Array],
    masks: Callable[[list[Array], list[Array]], Array] | None = None,
) -> Value:
    """`function` of the aligned arrays.

    Where one is Invalid the result is too, unless `masks(arrays, masks)` says where.
    """
    axes, arrays, rank = align(values)
    found = _masks(values, axes, rank)
    invalid: Array | None = None
    if found is not None:
        if masks is not None:
            invalid = masks(arrays, found)
        else:
            invalid = np.logical_or.reduce(np.broadcast_arrays(*found))
    return Value(axes, function(arrays), invalid)


def constant(node: UOp) -> Value:
    """The value of a CONST or VCONST."""
    if isinstance(node.arg, InvalidType):
        return Value((), np.zeros((), np.int64), np.ones((), np.bool_))
    if node.op is Ops.CONST and isinstance(node.arg, tuple):
        return Value((), np.array(node.arg, np.int64))
    return Value((), numeric.constant_array(node.arg, node.dtype))


def move(node: UOp, data: Array, lead: int, number: Callable[[Dim], int]) -> Array:
    """A movement op on the axes behind the first `lead`; `number` gives the values of dims."""
    head = data.shape[:lead]
    if node.shape is None:
        raise fault(node, "shape", "a shape", "none")
    shape = tuple(map(number, node.shape))
    match node.op:
        case Ops.RESHAPE:
            return data.reshape((*head, *shape))
        case Ops.EXPAND:
            return np.broadcast_to(data, (*head, *shape))
        case Ops.PERMUTE:
            return data.transpose(*range(lead), *(lead + axis for axis in node.arg))
        case Ops.FLIP:
            return np.flip(data, tuple(lead + a for a, turned in enumerate(node.arg) if turned))
        case Ops.PAD:
            pads = zip(*(map(number, dims_of(s)) for s in node.src[1:]), strict=True)
            return np.pad(data, [(0, 0)] * lead + list(pads)) if shape else data
    bounds = zip(*(map(number, dims_of(s)) for s in node.src[1:]), strict=True)
    window = [slice(None)] * lead + [slice(begin, end) for begin, end in bounds]
    return data[tuple(window)]
