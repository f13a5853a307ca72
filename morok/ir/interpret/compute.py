"""Values that are computed from values: everything but memory, loops and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import numpy as np

from morok.dtype import AddrSpace
from morok.ir import numeric
from morok.ir.interpret.memory import below
from morok.ir.interpret.values import Value, align, combine, constant, fault, move, union
from morok.ir.numeric import Array
from morok.ir.ops import AxisType, Ops, WmmaMetadata
from morok.ir.optable import GroupOp
from morok.ir.shapes import Dim
from morok.ir.uop import UOp

__all__ = ["Scope", "compute", "joined", "lanes_of", "spread", "tile_product"]


class Scope(Protocol):
    """Where values of sources come from."""

    def value(self, node: UOp) -> Value: ...

    def number(self, dim: Dim) -> int:
        """The value of a dim of a shape."""

    def size(self, axis: UOp) -> int:
        """Number of iterations of a RANGE."""


# Elementwise -------------------------------------------------------------------------------------


def _elementwise(scope: Scope, node: UOp) -> Value:
    values = [scope.value(source) for source in node.src]
    masks = _where_masks if node.op is Ops.WHERE else None
    return combine(values, lambda arrays: numeric.compute(node.op, node.dtype, arrays), masks)


def _cast(scope: Scope, node: UOp) -> Value:
    return scope.value(node.src[0]).map(lambda data, _: numeric.cast(data, node.dtype))


def _bitcast(scope: Scope, node: UOp) -> Value:
    before = node.src[0].dtype
    source = scope.value(node.src[0])
    return source.map(lambda data, _: numeric.bitcast(data, before, node.dtype))


def _gep(scope: Scope, node: UOp) -> Value:
    lanes = list(node.arg) if len(node.arg) > 1 else node.arg[0]
    vector = scope.value(node.src[0])
    if node.src[0].dtype.count == 1:
        return vector
    invalid = vector.invalid
    if invalid is not None:
        invalid = np.broadcast_to(invalid, vector.data.shape)[..., lanes]
    return Value(vector.ranges, vector.data[..., lanes], invalid)


def _vectorize(scope: Scope, node: UOp) -> Value:
    values = [scope.value(source) for source in node.src]
    return combine(values, _stack, lambda _, masks: _stack(masks))


def _cat(scope: Scope, node: UOp) -> Value:
    return joined([scope.value(source) for source in node.src])


def joined(vectors: Sequence[Value]) -> Value:
    """Vectors (and scalars) one after another as one vector."""
    parts = [v if v.rank else v.map(lambda data, _: data[..., None]) for v in vectors]
    axes, arrays, _ = align(parts)
    lead = np.broadcast_shapes(*(array.shape[: len(axes)] for array in arrays))
    wide = [np.broadcast_to(array, (*lead, array.shape[-1])) for array in arrays]
    return Value(axes, np.concatenate(wide, axis=-1))


def lanes_of(vector: Value, start: int, count: int) -> Value:
    """`count` lanes of a vector from lane `start` on: a scalar for one; a scalar has it in all."""
    if not vector.rank:
        return vector
    lanes = start if count == 1 else slice(start, start + count)
    return vector.map(lambda data, _: data[..., lanes])


# Reduction and materialisation -------------------------------------------------------------------


def spread(scope: Scope, value: Value, axes: Iterable[UOp]) -> Value:
    """`value` over further ranges, along which it is constant."""
    wanted = union(value.ranges, axes)
    data = value.over(wanted, value.rank)
    have = dict(zip(value.ranges, value.data.shape, strict=False))
    lead = tuple(have[axis] if axis in have else scope.size(axis) for axis in wanted)
    return Value(wanted, np.broadcast_to(data, (*lead, *data.shape[len(wanted) :])))


def _reduce(scope: Scope, node: UOp) -> Value:
    closed = node.src[1:]
    source = spread(scope, scope.value(node.src[0]), closed)
    places = tuple(place for place, axis in enumerate(source.ranges) if axis in closed)
    rest = tuple(axis for axis in source.ranges if axis not in closed)
    lanes, kept = node.src[0].dtype.count, node.dtype.count
    if lanes > kept:
        if kept != 1:
            raise fault(node, "interpretable", "all lanes reduced, or none", str(node.dtype))
        places = (*places, source.data.ndim - 1)
    return Value(rest, numeric.reduce(node.arg, node.dtype, source.data, places))


def _reduce_axis(scope: Scope, node: UOp) -> Value:
    reduce_op, axes = node.arg
    return scope.value(node.src[0]).map(
        lambda data, lead: numeric.reduce(
            reduce_op, node.dtype, data, tuple(lead + axis for axis in axes)
        )
    )


def _bufferize(scope: Scope, node: UOp) -> Value:
    dims = node.src[1:]
    loops = [dim for dim in dims if dim.op is Ops.RANGE]
    source = spread(scope, scope.value(node.src[0]), loops)
    rest = tuple(axis for axis in source.ranges if axis not in loops)
    order = [source.ranges.index(axis) for axis in (*rest, *loops)]
    data = source.data.transpose(*order, *range(len(order), source.data.ndim))
    for place, dim in enumerate(dims):
        if dim.op is not Ops.RANGE:  # a dimension of size 1
            data = np.expand_dims(data, len(rest) + place)
    if not node.arg.removable or node.arg.addrspace is not AddrSpace.GLOBAL:
        data = numeric.settle(data, node.dtype)
    return Value(rest, data)


def _where_masks(arrays: Sequence[Array], masks: Sequence[Array]) -> Array:
    """Where a WHERE is Invalid: only the arm that is taken counts."""
    return masks[0] | np.where(arrays[0], masks[1], masks[2])


def _stack(arrays: Sequence[Array]) -> Array:
    return np.stack(np.broadcast_arrays(*arrays), axis=-1)


# Expansion ---------------------------------------------------------------------------------------


def _axes_of(node: UOp) -> list[UOp]:
    """The axes of an UNROLL or CONTRACT as loops: an unrolled value is one over them."""
    return [UOp.range(factor, axis, AxisType.UNROLL) for axis, factor in node.arg]


def _unroll(scope: Scope, node: UOp) -> Value:
    source, axes = scope.value(node.src[0]), _axes_of(node)
    lanes, sizes = node.dtype.count, tuple(factor for _, factor in node.arg)
    lead = len(source.ranges)
    data = source.data[..., None] if source.rank == 0 else source.data
    data = np.broadcast_to(data, (*data.shape[:lead], node.src[0].dtype.count))
    data = data.reshape(*data.shape[:lead], *sizes, *(() if lanes == 1 else (lanes,)))
    have = [*source.ranges, *axes]
    order = [have.index(axis) for axis in union(have)]
    return Value(union(have), data.transpose(*order, *range(len(have), data.ndim)))


def _contract(scope: Scope, node: UOp) -> Value:
    axes = _axes_of(node)
    source = spread(scope, scope.value(node.src[0]), axes)
    rest = tuple(axis for axis in source.ranges if axis not in axes)
    order = [source.ranges.index(axis) for axis in (*rest, *axes)]
    data = source.data.transpose(*order, *range(len(order), source.data.ndim))
    if node.src[0].dtype.count > 1:
        data = np.broadcast_to(data, (*data.shape[: len(order)], node.src[0].dtype.count))
    return Value(rest, data.reshape(*data.shape[: len(rest)], -1))


def _wmma(scope: Scope, node: UOp) -> Value:
    """The product of tiles that one thread has as a whole, row by row; see `codegen.expansion`."""
    tile = node.arg
    if tile.threads != 1:
        got = f"{tile.threads} threads of {tile.device}"
        raise fault(node, "interpretable", "a tile of one thread", got)
    products = combine(
        [scope.value(node.src[0]), scope.value(node.src[1])],
        lambda arrays: tile_product(arrays[0], arrays[1], tile),
    )
    closed = node.src[3:]
    products = spread(scope, products, closed)
    places = tuple(i for i, axis in enumerate(products.ranges) if axis in closed)
    rest = tuple(axis for axis in products.ranges if axis not in closed)
    summed = Value(rest, products.data.sum(axis=places))
    kind = numeric.carrier(node.dtype)
    if node.dtype.count == 1:
        summed = Value(summed.ranges, summed.data[..., 0])
    return combine([summed, scope.value(node.src[2])], lambda ab: (ab[0] + ab[1]).astype(kind))


def tile_product(a: Array, b: Array, tile: WmmaMetadata) -> Array:
    """Tiles in the lanes of vectors multiplied, with wide sums."""
    rows, columns, depth = tile.tile
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    left = a.reshape(*a.shape[:-1], rows, depth).astype(wide)
    right = b.reshape(*b.shape[:-1], depth, columns).astype(wide)
    product = left @ right
    return product.reshape(*product.shape[:-2], rows * columns)


# Several devices ---------------------------------------------------------------------------------


def _multi(scope: Scope, node: UOp) -> Value:
    """The shards of the MSTACK one after another along the axis; the first one of equal ones."""
    shards, axis = node.src[0].src, node.arg
    if axis is None:
        return scope.value(shards[0])
    axes, arrays, _ = align([scope.value(shard) for shard in shards])
    lead = np.broadcast_shapes(*(array.shape[: len(axes)] for array in arrays))
    wide = [np.broadcast_to(array, (*lead, *array.shape[len(axes) :])) for array in arrays]
    return Value(axes, np.concatenate(wide, axis=len(axes) + axis))


def _mselect(scope: Scope, node: UOp) -> Value:
    return scope.value(below(node))


def _allreduce(scope: Scope, node: UOp) -> Value:
    """The step of the reduction from device to device; a single value is what it is."""
    parts = node.src[0].src if node.src[0].op is Ops.MSTACK else node.src[:1]

    def step(arrays: list[Array]) -> Array:
        stacked = np.stack(np.broadcast_arrays(*arrays))
        return numeric.settle(numeric.reduce(node.arg, node.dtype, stacked, (0,)), node.dtype)

    return combine([scope.value(part) for part in parts], step)


# Dispatch ----------------------------------------------------------------------------------------


def _move(scope: Scope, node: UOp) -> Value:
    return scope.value(node.src[0]).map(lambda data, lead: move(node, data, lead, scope.number))


def _pass(scope: Scope, node: UOp) -> Value:
    return scope.value(node.src[0])


def _settle(scope: Scope, node: UOp) -> Value:
    return scope.value(node.src[0]).map(lambda data, _: numeric.settle(data, node.dtype))


def _nothing(scope: Scope, node: UOp) -> Value:
    """Nodes that are read structurally and have no value of their own."""
    return Value((), np.zeros((), np.bool_))


_Compute = Callable[[Scope, UOp], Value]

_COMPUTE: Final[dict[Ops, _Compute]] = {
    **dict.fromkeys(GroupOp.ALU, _elementwise),
    **dict.fromkeys(GroupOp.Movement, _move),
    **dict.fromkeys((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP), _pass),
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.PRECAST, Ops.COPY), _settle),
    **dict.fromkeys((Ops.DEVICE, Ops.UNIQUE, Ops.LUNIQUE, Ops.TUPLE, Ops.FUNCTION), _nothing),
    Ops.MSTACK: _nothing,
    Ops.UNROLL: _unroll,
    Ops.CONTRACT: _contract,
    Ops.WMMA: _wmma,
    Ops.MULTI: _multi,
    Ops.MSELECT: _mselect,
    Ops.ALLREDUCE: _allreduce,
    Ops.CONST: lambda _, node: constant(node),
    Ops.VCONST: lambda _, node: constant(node),
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.GEP: _gep,
    Ops.VECTORIZE: _vectorize,
    Ops.CAT: _cat,
    Ops.REDUCE: _reduce,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.BUFFERIZE: _bufferize,
}


def compute(scope: Scope, node: UOp) -> Value:
    """The value of a node whose sources have values; InvalidGraphError for an op without one."""
    function = _COMPUTE.get(node.op)
    if function is None:
        raise fault(node, "interpretable", "an op with a meaning on plain arrays", node.op.name)
    return function(scope, node)
