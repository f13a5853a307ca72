"""Indexing: ints, slices with steps, None and Ellipsis by movement, and its inverse, which puts
values back where they came from; index arrays by the loops of `selection`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from morok.dtype import dtypes
from morok.errors import AxisError, ShapeError
from morok.ir import Ops, UOp, dims_of, is_symbolic, shape_text
from morok.tensor import memory, nodes
from morok.tensor.activation import Activation
from morok.tensor.base import fail
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp
from morok.tensor.selection import (
    Arrays,
    Selection,
    Span,
    index_array,
    mask_array,
    parse,
    spanned,
)


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
    begins = dims_of(link.src[1])
    own = nodes.shape_of(link.src[0])
    return nodes.shrink(value, begins, [b + n for b, n in zip(begins, own, strict=True)])


def _unshrink(link: UOp, value: UOp) -> UOp:
    begins, ends = dims_of(link.src[1]), dims_of(link.src[2])
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


def _is_mask(index: Any) -> bool:
    return isinstance(index, (Activation, np.ndarray)) and index.dtype.kind == "b"


class Indexing(Activation):
    """`t[…]` and its relatives, read and written."""

    __slots__ = ()

    def _parsed(self, index: Any) -> tuple[UOp, Selection | None]:
        """The part of `self[index]` that is movement, and what index arrays then select from that,
        if there are any."""
        entries = parse(index, self.shape)
        basic: list[Any] = []
        for entry in entries:
            if entry is not Ellipsis:
                basic += [slice(None)] * entry.axes if isinstance(entry, Arrays) else [entry]
        u = self._moved(basic)
        if not any(isinstance(entry, Arrays) for entry in entries):
            return u, None
        if is_symbolic(nodes.shape_of(u)):
            fail(AxisError, "index: arrays do not index a tensor with symbolic dims")
        return u, Selection(nodes.shape_of(u), entries)

    def _moved(self, entries: Sequence[Any]) -> UOp:
        """`self` under ints, slices and None, one entry for every axis."""
        u = self.uop
        shape: list[int] = []
        axis = 0
        for entry in entries:
            if entry is None:
                shape.append(1)
                continue
            length = nodes.shape_of(u)[axis]
            if isinstance(entry, Span):
                u = spanned(u, axis, entry)
                shape += () if entry.dropped else (nodes.shape_of(u)[axis],)
                axis += 1
                continue
            if entry == slice(None):
                shape.append(length)
                axis += 1
                continue
            if isinstance(entry, slice):
                begin, end, step = entry.indices(length)
                count = len(range(begin, end, step))
                shape.append(count)
            else:
                begin, count, step = entry % length, 1, 1
            if count == 0:
                begin, step = 0, 1
            u = take(u, axis, begin, count, step)
            axis += 1
        return nodes.reshape(u, tuple(shape))

    def __getitem__(self, index: Any) -> Self:
        """NumPy's basic and advanced indexing; the result is a value, not a window into this
        tensor.

        Index arrays are ints (negative ones count from the end) or masks, as lists, arrays or
        tensors. AxisError for an index out of range where it is known: in lists, arrays, and
        tensors in memory. From a lazy tensor an index out of range reads the nearest element. A
        mask that is a tensor is computed, because the shape of the result depends on it.
        """
        stamp()
        u, selection = self._parsed(index)
        return self._wrap(u if selection is None else selection.of(u), self._rg)

    def _written(self, index: Any, value: Self) -> Self:
        """This tensor with `value` where `index` points."""
        stamp()
        if _is_mask(index) and not value.shape:  # needs no list of places
            return self._masked(index, value)
        place, selection = self._parsed(index)
        if selection is None:
            return self._replaced(place, self._given("setitem", value, nodes.shape_of(place)))
        given = self._given("setitem", value, selection.shape)
        if 0 in selection.shape:
            return self._same()
        whole = self._wrap(place, self._rg)
        return self._replaced(place, whole._selected_written(selection, given))

    def _masked(self, index: Any, value: Self) -> Self:
        mask = index if isinstance(index, Indexing) else self._wrap(memory.copied(index))
        shape = self.shape
        if mask.shape != shape[: mask.ndim]:
            fail(AxisError, f"setitem: a mask of shape {mask.shape} for a tensor of shape {shape}")
        there = mask.reshape(*mask.shape, *(1,) * (len(shape) - mask.ndim))
        out = nodes.where(
            nodes.broadcast_to(there.uop, shape), value.cast(self.dtype).uop, self.uop
        )
        return self._wrap(out, (self._rg or value._rg) and self.dtype.kind == "f")

    def _given(self, method: str, value: Self, shape: Shape) -> Self:
        """`value` in this tensor's dtype and in the shape of the place it is written to."""
        try:
            fits = len(value.shape) <= len(shape) or set(value.shape[: -len(shape) or None]) == {1}
            given = value.reshape(value.shape[-len(shape) :] if shape else ()) if fits else value
            return given.expand(shape).cast(self.dtype)
        except ShapeError:
            got, aim = shape_text(value.shape), shape_text(shape)
            fail(ShapeError, f"{method}: shape {got} does not broadcast to {aim}")

    def _selected_written(self, selection: Selection, given: Self) -> Self:
        """This tensor with `given` where index arrays point; the last of several in one place
        stays."""
        if not (self._rg or given._rg) or self.dtype.kind != "f":
            return self._wrap(selection.put(self.uop, given.uop))
        return self._wrap(selection.chosen(self.uop, given.uop), True)

    def _replaced(self, place: UOp, given: Self) -> Self:
        """This tensor with `given` in `place`, a chain of movement above it."""
        if place is self.uop:
            return given
        shape = nodes.shape_of(place)
        if 0 in shape:
            return self._same()
        spread = put_back(place, self.uop, given.uop)
        inside = put_back(place, self.uop, nodes.full(shape, dtypes.bool_, True))
        out = nodes.where(inside, spread, self.uop)
        return self._wrap(out, self._rg or given._rg)

    # along one dim -------------------------------------------------------------------------------

    def _along(self, method: str, dim: int, index: Any) -> tuple[int, UOp]:
        """The axis, and an int tensor that names places along it."""
        axis = self._axis(method, dim)
        return axis, index_array(method, index, self.shape[axis] if self.ndim else 1, axis)

    def gather(self, dim: int, index: Any) -> Self:
        """Element (…, i, …) of the result is element (…, index[…, i, …], …) along `dim`; `index`
        has as many dims, and is nowhere longer but along `dim` (PyTorch's gather)."""
        stamp()
        axis, at = self._along("gather", dim, index)
        self._fits("gather", axis, nodes.shape_of(at))
        return self._wrap(Selection.along(self.shape, axis, at).of(self.uop), self._rg)

    def _fits(self, method: str, axis: int, shape: Shape) -> None:
        """ShapeError unless an index of this shape, along an axis, stays within the other axes."""
        if len(shape) != self.ndim or any(
            n > m for i, (n, m) in enumerate(zip(shape, self.shape, strict=True)) if i != axis
        ):
            fail(ShapeError, f"{method}: an index of shape {shape} for shape {self.shape}")

    def scatter(self, dim: int, index: Any, src: Any, reduce: str | None = None) -> Self:
        """This tensor with element (…, i, …) of `src` put at (…, index[…, i, …], …) along `dim`;
        of several in one place the last stays, with `reduce="add"` all are added (PyTorch's
        scatter). Elements whose index a lazy tensor gives out of range are dropped."""
        if reduce not in (None, "add"):
            fail(ShapeError, f"scatter: reduce={reduce!r} is neither None nor 'add'")
        stamp()
        method = "scatter" if reduce is None else "scatter_add"
        axis, at = self._along(method, dim, index)
        shape = nodes.shape_of(at)
        value = self._operand(method, src)
        if not isinstance(value, Indexing):
            value = self._wrap(nodes.full(shape, self.dtype, value))
        self._fits(method, axis, shape)
        if len(value.shape) != len(shape) or any(
            n > m for n, m in zip(shape, value.shape, strict=True)
        ):
            fail(ShapeError, f"{method}: an index of shape {shape} for a source {value.shape}")
        if 0 in shape:
            return self._same()
        given = nodes.cast(value.uop, self.dtype)
        given = nodes.shrink(given, (0,) * len(shape), shape)
        rg = (self._rg or value._rg) and self.dtype.kind == "f"
        selection = Selection.along(self.shape, axis, at)
        if reduce == "add":
            return self._wrap(selection.added(self.uop, given), rg)
        if rg:
            return self._wrap(selection.chosen(self.uop, given), True)
        return self._wrap(selection.put(self.uop, given))

    def scatter_add(self, dim: int, index: Any, src: Any) -> Self:
        """As `scatter` with reduce="add"."""
        return self.scatter(dim, index, src, reduce="add")

    def _whole_rows(self, method: str, dim: int, index: Any) -> Selection:
        axis, at = self._along(method, dim, index)
        if len(nodes.shape_of(at)) != 1:
            fail(ShapeError, f"{method}: the index is a vector, not of {nodes.shape_of(at)}")
        rows = [Arrays((at,), 1) if i == axis else slice(None) for i in range(self.ndim)]
        return Selection(self.shape, rows)

    def index_select(self, dim: int, index: Any) -> Self:
        """The entries along `dim` that a vector of ints names."""
        stamp()
        return self._wrap(self._whole_rows("index_select", dim, index).of(self.uop), self._rg)

    def index_add(self, dim: int, index: Any, source: Self) -> Self:
        """This tensor with the entries of `source` along `dim` added where a vector of ints
        names."""
        stamp()
        selection = self._whole_rows("index_add", dim, index)
        if source.shape != selection.shape:
            fail(ShapeError, f"index_add: {source.shape} is added to {selection.shape}")
        given = nodes.cast(source.uop, self.dtype)
        rg = (self._rg or source._rg) and self.dtype.kind == "f"
        return self._wrap(selection.added(self.uop, given), rg)

    def take(self, indices: Any) -> Self:
        """The elements at places counted in logical order, in the shape of `indices`."""
        stamp()
        at = index_array("take", indices, self.numel(), 0)
        u = nodes.reshape(self.uop, (self.numel(),))
        return self._wrap(Selection(nodes.shape_of(u), [Arrays((at,), 1)]).of(u), self._rg)

    def masked_select(self, mask: Any) -> Self:
        """The elements where a mask, broadcast to this shape, is true, in logical order. Computes
        the mask."""
        where = mask_array("masked_select", mask)
        return self[np.broadcast_to(where, self.shape)]

    def nonzero(self) -> Self:
        """The places of the elements that are not 0, one a row (int64). Computes this tensor."""
        found = np.argwhere(mask_array("nonzero", self.cast(dtypes.bool_)))
        return self._wrap(memory.copied(found))
