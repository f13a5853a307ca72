"""What is between the brackets of `t[…]`, and what index arrays in it select.

NumPy's rules: index arrays broadcast to one shape, ints beside them count as arrays of shape (); a
mask stands for the places where it is true. The dims of that shape take the place of the indexed
ones, or come first when a slice, None or Ellipsis stands between index arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from morok.dtype import dtypes, from_numpy, to_numpy
from morok.engine import base_of, buffers
from morok.errors import AxisError, DTypeError, ShapeError
from morok.ir import Ops, UOp, shape_text
from morok.tensor import memory, nodes
from morok.tensor.base import Base, broadcast_shapes, fail
from morok.tensor.loops import clamped, counters, element, position, scattered, tabulated
from morok.tensor.nodes import Shape
from morok.tensor.variable import Variable, checked

Entry = Any  # int, slice, None, Ellipsis or Arrays


@dataclass(frozen=True, slots=True)
class Arrays:
    """Index arrays for the next axes: one an axis. A single 0-d bool has an array and no axis."""

    arrays: tuple[UOp, ...]
    axes: int


def parse(index: Any, shape: Shape) -> list[Entry]:
    """The entries of an index, checked: for every axis an int, a slice or its part of an `Arrays`,
    and None for new axes; among `Arrays` an Ellipsis that stands for no axis stays. AxisError for
    what is no index or out of range."""
    entries = list(index) if isinstance(index, tuple) else [index]
    entries = [_entry(entry) for entry in entries]
    named = sum(_axes(entry) for entry in entries)
    if named > len(shape):
        fail(AxisError, f"index: {named} indices for a tensor of shape {shape}")
    if sum(entry is Ellipsis for entry in entries) > 1:
        fail(AxisError, "index: more than one Ellipsis")
    if all(entry is not Ellipsis for entry in entries):
        entries.append(Ellipsis)
    out: list[Entry] = []
    axis = 0
    for entry in entries:
        if entry is Ellipsis:
            # One that stands for no axis still parts the index arrays around it.
            out += [slice(None)] * (len(shape) - named) or [Ellipsis]
            axis += len(shape) - named
            continue
        out.append(_checked(entry, shape, axis))
        axis += _axes(entry)
    # Beside arrays an int is one.
    if any(isinstance(entry, Arrays) for entry in out):
        return [_number(entry) if isinstance(entry, int) else entry for entry in out]
    return [entry for entry in out if entry is not Ellipsis]


def _number(value: int) -> Arrays:
    return Arrays((nodes.const(dtypes.int64, value),), 1)


def _entry(entry: Any) -> Any:  # noqa: RET503 (fail does not return)
    """An entry as None, Ellipsis, slice, int, or a NumPy array or tensor of ints or bools."""
    if entry is None or entry is Ellipsis or isinstance(entry, (slice, Base)):
        return entry
    if isinstance(entry, (UOp, Variable)):
        return checked("index", entry)
    if isinstance(entry, (bool, np.bool_, list, tuple, range, np.ndarray)):
        try:
            array = np.asarray(_plain(entry))
        except (ValueError, TypeError) as error:
            fail(AxisError, f"index: {type(entry).__name__} is no array: {error}")
        array = array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array
        if array.dtype.kind not in "biu":
            fail(AxisError, f"index: an array of {array.dtype}: ints or bools are needed")
        return int(array) if array.ndim == 0 and array.dtype.kind != "b" else array
    if hasattr(entry, "__index__"):
        return entry.__index__()
    fail(
        AxisError,
        f"index: {type(entry).__name__} is no int, slice, None, Ellipsis, array or tensor",
    )


def _plain(entry: Any) -> Any:
    """Nested lists with tensors in them as NumPy takes them."""
    if isinstance(entry, (list, tuple)):
        return [_plain(each) for each in entry]
    return entry.item() if isinstance(entry, Base) else entry  # type: ignore[attr-defined]


def _axes(entry: Any) -> int:
    """How many axes an entry names."""
    if entry is None or entry is Ellipsis:
        return 0
    if isinstance(entry, Base):
        return entry.ndim if entry.dtype.kind == "b" else 1
    return entry.ndim if isinstance(entry, np.ndarray) and entry.dtype.kind == "b" else 1


def _checked(entry: Any, shape: Shape, axis: int) -> Entry:
    if entry is None:
        return None
    if isinstance(entry, (UOp, int, slice)) and _by_variables(entry, shape[axis]):
        return _span(entry, shape, axis)
    if isinstance(entry, slice) and entry != slice(None):
        try:
            entry.indices(shape[axis])
        except (TypeError, ValueError) as error:
            fail(AxisError, f"index: {entry} along axis {axis}: {error}")
    if isinstance(entry, slice):
        return entry
    if isinstance(entry, int):
        if not -shape[axis] <= entry < shape[axis]:
            fail(AxisError, f"index: {entry} along axis {axis} of shape {shape}")
        return entry
    if entry.dtype.kind == "b":
        return _of_mask(mask_array("index", entry), shape, axis)
    return Arrays((index_array("index", entry, shape[axis], axis),), 1)


@dataclass(frozen=True, slots=True)
class Span:
    """begin <= i < end along an axis, numbers of variables among them; `dropped`: one place, whose
    axis goes."""

    begin: Any
    end: Any
    dropped: bool


def _by_variables(entry: UOp | int | slice, length: Any) -> bool:
    """Whether numbers of variables say what an entry selects."""
    if isinstance(entry, UOp):
        return True
    if isinstance(entry, int):
        return isinstance(length, UOp)
    if entry == slice(None):
        return False
    given = (entry.start, entry.stop, entry.step, length)
    return any(isinstance(each, (UOp, Variable)) for each in given)


def _span(entry: Any, shape: Shape, axis: int) -> Span:
    """An entry that depends on variables. AxisError where it may lie outside for some value."""
    length = shape[axis]
    if isinstance(entry, slice):
        if entry.step not in (None, 1):
            fail(AxisError, f"index: along axis {axis}: a step of 1 is needed between variables")
        begin = _place(0 if entry.start is None else entry.start, length, axis)
        end = _place(length if entry.stop is None else entry.stop, length, axis)
        return Span(begin, end, False)
    begin = _place(entry, length, axis)
    return Span(begin, _added(begin, 1), True)


def _place(at: Any, length: Any, axis: int) -> Any:
    """A bound of a slice as a number from the front."""
    if isinstance(at, (UOp, Variable)):
        return at if at is length else checked("index", at)
    if not hasattr(at, "__index__"):
        fail(AxisError, f"index: {at!r} along axis {axis} is no bound of a slice")
    at = at.__index__()
    if at < 0:
        return _added(length, at)
    return min(at, length) if isinstance(length, int) else at


def _added(number: Any, amount: int) -> Any:
    return (number + amount).simplify() if isinstance(number, UOp) else number + amount


def spanned(u: UOp, axis: int, span: Span) -> UOp:
    """The part of an axis that a span names. AxisError where it may lie outside."""
    shape = nodes.shape_of(u)
    begins = [span.begin if i == axis else 0 for i in range(len(shape))]
    ends = [span.end if i == axis else n for i, n in enumerate(shape)]
    try:
        return nodes.shrink(u, begins, ends)
    except ShapeError:
        first = span.begin.vmin if isinstance(span.begin, UOp) else span.begin
        last = span.end.vmax if isinstance(span.end, UOp) else span.end
        fail(
            AxisError,
            f"index: {shape_text((span.begin, span.end))} along axis {axis} of shape "
            f"{shape_text(shape)}: from {first} to {last} for some values of the variables, which "
            "is not within: choose their bounds so that it always is",
        )


def _of_mask(mask: npt.NDArray[np.bool_], shape: Shape, axis: int) -> Arrays:
    """A mask over the axes from `axis` on, as the places where it is true."""
    covered = shape[axis : axis + mask.ndim]
    if mask.shape != covered:
        fail(AxisError, f"index: a mask of shape {mask.shape} for axes of {covered} in {shape}")
    if mask.ndim == 0:
        return Arrays((memory.copied(np.zeros(int(mask), np.int64)),), 0)
    places = [memory.copied(place.astype(np.uint32)) for place in np.nonzero(mask)]
    return Arrays(tuple(places), mask.ndim)


def mask_array(method: str, mask: Any) -> npt.NDArray[np.bool_]:
    """A mask computed; DTypeError unless it is of bools."""
    array: npt.NDArray[Any] = np.asarray(mask)
    if array.dtype != np.bool_:
        fail(DTypeError, f"{method}: a mask is made of bools, not {array.dtype}")
    return array


def index_array(method: str, index: Any, length: int, axis: int) -> UOp:
    """An array or tensor of ints as the graph of an index along an axis of `length`.

    AxisError where one is known to be out of range.
    """
    if isinstance(index, Base):
        if index.dtype.kind not in "iu":
            fail(DTypeError, f"{method}: an index of {index.dtype}: ints are needed")
        view = memory.memory_of(index) if index._home is None else None
        if view is not None:
            contents = buffers.buffer_of(base_of(view)).view(to_numpy(index.dtype), index.shape)
            _check_range(method, contents, length, axis)
        return index.uop
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        if array.size:
            fail(DTypeError, f"{method}: an index of {array.dtype}: ints are needed")
        array = array.astype(np.int64)
    _check_range(method, array, length, axis)
    if from_numpy(array.dtype).kind == "i":
        array = np.where(array < 0, array + length, array)
    return memory.copied(array.astype(np.uint32 if length < 1 << 32 else np.int64))


def _check_range(method: str, array: npt.NDArray[Any], length: int, axis: int) -> None:
    if array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    if low < -length or high >= length:
        wrong = low if low < -length else high
        fail(AxisError, f"{method}: index {wrong} along axis {axis} of length {length}")


class Selection:
    """The elements that index arrays select from a tensor of `source` shape.

    shape    of the result
    """

    def __init__(self, source: Shape, entries: Sequence[Entry]) -> None:
        self.source = source
        self._arrays: dict[int, UOp] = {}  # by axis of the source
        shapes: list[Shape] = []
        kinds: list[bool] = []  # for each entry: an index array?
        before = 0  # dims in front of the first index array
        axis = 0
        for entry in entries:
            kinds.append(isinstance(entry, Arrays))
            if entry is Ellipsis:
                continue
            if not isinstance(entry, Arrays):
                before += not any(kinds)
                axis += 1
                continue
            shapes += [nodes.shape_of(array) for array in entry.arrays]
            for i, array in enumerate(entry.arrays[: entry.axes]):
                self._arrays[axis + i] = array
            axis += entry.axes
        self.common = broadcast_shapes("index", *shapes)
        first, last = kinds.index(True), len(kinds) - kinds[::-1].index(True)
        self._before = before if all(kinds[first:last]) else 0
        self._own_dim = False
        rest = [n for axis, n in enumerate(source) if axis not in self._arrays]
        self.shape = (*rest[: self._before], *self.common, *rest[self._before :])

    @classmethod
    def along(cls, source: Shape, axis: int, index: UOp) -> Self:
        """The elements of `gather`: `index` names places along one axis, and its own place is that
        along the others."""
        self = cls.__new__(cls)
        self.source = source
        self._arrays = {axis: index} if source else {}
        self.common = self.shape = nodes.shape_of(index)
        self._before = 0
        self._own_dim = True
        return self

    def _places(self, loops: Sequence[UOp]) -> Iterator[tuple[UOp, int, bool]]:
        """For every axis of the source: the place along it, its length, and whether it may lie
        outside."""
        common = loops[self._before : self._before + len(self.common)]
        rest = iter((*loops[: self._before], *loops[self._before + len(self.common) :]))
        for axis, length in enumerate(self.source):
            if axis in self._arrays:
                yield position(self._arrays[axis], common, length), length, True
            else:
                yield (loops[axis] if self._own_dim else next(rest)), length, False

    def of(self, u: UOp) -> UOp:
        """The elements of `u`."""
        if 0 in self.shape:
            return nodes.full(self.shape, u.dtype, 0)
        loops = counters(self.shape)
        places = self._places(loops)
        at = [clamped(i, length) if outside else i for i, length, outside in places]
        return tabulated(u.at(*at), loops)

    def _scattered(self, u: UOp, value: UOp, loops: Sequence[UOp], add: bool) -> UOp:
        at: list[UOp] = []
        inside: UOp | None = None
        for i, length, outside in self._places(loops):
            at.append(i)
            if outside:
                low, high = i.vmin, i.vmax
                if low is None or low < 0:
                    inside = _both(inside, i >= 0)
                if high is None or high >= length:
                    inside = _both(inside, i < length)
        return scattered(u, at, inside, value, loops, add)

    def put(self, u: UOp, value: UOp) -> UOp:
        """`u` with the elements of `value` (of the selection's shape) where they were selected; of
        several in one place the last stays."""
        loops = counters(self.shape)
        return self._scattered(u, element(value, loops), loops, False)

    def added(self, u: UOp, value: UOp) -> UOp:
        """`u` with the elements of `value` added where they were selected."""
        if 0 in self.shape:
            return u
        loops = counters(self.shape)
        return self._scattered(u, element(value, loops), loops, True)

    def chosen(self, u: UOp, value: UOp) -> UOp:
        """As `put`, in a form that has gradients: first for each place which element comes last,
        then the values read from there."""
        count = prod(self.shape)
        if count >= 1 << 31:
            fail(ShapeError, f"setitem: {count} elements in one write that has gradients")
        loops = counters(self.shape)
        number = UOp.const(dtypes.index, 0)
        for loop, n in zip(loops, self.shape, strict=True):
            number = number * n + loop
        nobody = nodes.full(self.source, dtypes.int32, -1)
        last = self._scattered(nobody, nodes.cast(number, dtypes.int32), loops, False)
        flat = nodes.reshape(value, (count,))
        places = counters(self.source)
        at = clamped(nodes.cast(last.at(*places), dtypes.index), count)
        put = tabulated(flat.at(at), places)
        return nodes.where(nodes.compare(Ops.GE, last, nodes.const(dtypes.int32, 0)), put, u)


def _both(a: UOp | None, b: UOp) -> UOp:
    return b if a is None else a & b
