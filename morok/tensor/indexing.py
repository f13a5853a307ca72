"""Basic indexing: ints, slices with steps, None and Ellipsis, all by movement; and its inverse,
which puts values back where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from morok.dtype import dtypes
from morok.errors import AxisError, ShapeError
from morok.ir import Ops, UOp
from morok.tensor import nodes
from morok.tensor.activation import Activation
from morok.tensor.base import fail
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp


def every(u: UOp, axis: int, step: int) -> UOp:
    """The elements 0, step, 2 step … along an axis whose length is a multiple of `step`."""
    shape = nodes.shape_of(u)
    rows = shape[axis] // step
    u = nodes.reshape(u, (*shape[:axis], rows, step, *shape[axis + 1 :]))
    ends = (*shape[:axis], rows, 1, *shape[axis + 1 :])
    u = nodes.shrink(u, (0,) * len(ends), ends)
    return nodes.reshape(u, (*shape[:axis], rows, *shape[axis + 1 :]))


def take(u: UOp, axis: int, begin: int, count: int, step: int) -> UOp:
    """The `count` elements begin, begin + step … along one axis; a negative step goes backwards."""
    shape = nodes.shape_of(u)
    rank, length = len(shape), shape[axis]
    if step < 0:
        u = nodes.flip(u, [i == axis for i in range(rank)])
        begin, step = length - 1 - begin, -step
    if count <= 1:
        step = 1
    # Whole rows of `step`, so that each begins with an element wanted.
    end = begin + count * step
    if end > length:
        behind = [end - length if i == axis else 0 for i in range(rank)]
        u = nodes.pad(u, (0,) * rank, behind)
        shape = nodes.shape_of(u)
    begins = [begin if i == axis else 0 for i in range(rank)]
    ends = [end if i == axis else n for i, n in enumerate(shape)]
    u = nodes.shrink(u, begins, ends)
    return every(u, axis, step) if step > 1 else u


def _unpad(link: UOp, value: UOp) -> UOp:
    begins = link.src[1].arg
    own = nodes.shape_of(link.src[0])
    return nodes.shrink(value, begins, [b + n for b, n in zip(begins, own, strict=True)])


def _unshrink(link: UOp, value: UOp) -> UOp:
    begins, ends = link.src[1].arg, link.src[2].arg
    own = nodes.shape_of(link.src[0])
    return nodes.pad(value, begins, [n - e for n, e in zip(own, ends, strict=True)])


def _unpermute(link: UOp, value: UOp) -> UOp:
    axes = link.arg
    return nodes.permute(value, [axes.index(i) for i in range(len(axes))])


_INVERSE: dict[Ops, Callable[[UOp, UOp], UOp]] = {
    Ops.RESHAPE: lambda link, value: nodes.reshape(value, nodes.shape_of(link.src[0])),
    Ops.PERMUTE: _unpermute,
    Ops.PAD: _unpad,
    Ops.SHRINK: _unshrink,
    Ops.FLIP: lambda link, value: nodes.flip(value, link.arg),
}


def put_back(place: UOp, base: UOp, value: UOp) -> UOp:
    """The adjoint of `place`, a chain of movement above `base`, applied to `value`: every element
    where the chain took it from, zeros (False) elsewhere."""
    while place is not base:
        value = _INVERSE[place.op](place, value)
        place = place.src[0]
    return value


class Indexing(Activation):
    """`t[…]`, read."""

    __slots__ = ()

    def _indexed(self, index: Any) -> UOp:
        """The graph of `self[index]`."""
        u = self.uop
        entries = list(index) if isinstance(index, tuple) else [index]
        shape: list[int] = []
        axis = 0
        for entry in self._spread(entries):
            if entry is None:
                shape.append(1)
                continue
            length = nodes.shape_of(u)[axis]
            if isinstance(entry, slice):
                try:
                    begin, end, step = entry.indices(length)
                except (TypeError, ValueError) as error:
                    fail(AxisError, f"index: {entry} along axis {axis}: {error}")
                count = len(range(begin, end, step))
                shape.append(count)
            else:
                at = entry.__index__()
                if not -length <= at < length:
                    fail(AxisError, f"index: {at} along axis {axis} of shape {self.shape}")
                begin, count, step = at % length, 1, 1
            if count == 0:
                begin, step = 0, 1
            u = take(u, axis, begin, count, step)
            axis += 1
        return nodes.reshape(u, tuple(shape))

    def _spread(self, entries: list[Any]) -> Iterator[Any]:
        """The entries with Ellipsis (one is implied at the end) as the slices it stands for."""
        named = 0
        for entry in entries:
            if entry is None or entry is Ellipsis:
                continue
            if isinstance(entry, bool) or not (
                isinstance(entry, slice) or hasattr(entry, "__index__")
            ):
                fail(AxisError, f"index: {type(entry).__name__} is no int, slice, None or Ellipsis")
            named += 1
        if named > self.ndim:
            fail(AxisError, f"index: {named} indices for a tensor of shape {self.shape}")
        if sum(entry is Ellipsis for entry in entries) > 1:
            fail(AxisError, "index: more than one Ellipsis")
        if Ellipsis not in [entry if entry is Ellipsis else None for entry in entries]:
            entries = [*entries, Ellipsis]
        for entry in entries:
            if entry is Ellipsis:
                yield from [slice(None)] * (self.ndim - named)
            else:
                yield entry

    def __getitem__(self, index: Any) -> Self:
        """NumPy's basic indexing; the result is a value, not a window into this tensor."""
        stamp()
        return self._wrap(self._indexed(index), self._rg)

    def _written(self, index: Any, value: Self) -> Self:
        """This tensor with `value` where `index` points."""
        stamp()
        place = self._indexed(index)
        shape: Shape = nodes.shape_of(place)
        try:
            fits = len(value.shape) <= len(shape) or set(value.shape[: -len(shape) or None]) == {1}
            given = value.reshape(value.shape[-len(shape) :] if shape else ()) if fits else value
            given = given.expand(shape)
        except ShapeError:
            fail(ShapeError, f"setitem: shape {value.shape} does not broadcast to {shape}")
        if place is self.uop:
            return given.cast(self.dtype)
        if 0 in shape:
            return self
        spread = put_back(place, self.uop, nodes.cast(given.uop, self.dtype))
        inside = put_back(place, self.uop, nodes.full(shape, dtypes.bool_, True))
        out = nodes.where(inside, spread, self.uop)
        return self._wrap(out, self._rg or value._rg)
