"""What every room of `Tensor` stands on: its fields, the registry of living tensors, gradient mode.

`Tensor` is one class written in rooms: each is a class that adds one theme to the one before it
(Base, Movement, Elementwise, Reduce, …, Tensor), so that a method may use whatever stands in an
earlier room, and imports run one way.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ContextDecorator
from itertools import count
from typing import NoReturn, Self
from weakref import ref

from morok.caches import memoized
from morok.config import get as config_get
from morok.dtype import DType, dtypes, max_value, min_value, promote
from morok.errors import AxisError, DTypeError, MorokError, ShapeError
from morok.ir import Ops, UOp
from morok.tensor import nodes
from morok.tensor.nodes import Shape
from morok.tensor.parts import Parts
from morok.tensor.provenance import at_line

Number = bool | int | float
"""A Python scalar next to a tensor: it has no dtype of its own (weak promotion)."""


class Base:
    """The fields of a tensor.

    uop    the graph of the value. Two tensors computed by the same expression have the same graph:
           a value is identified by its structure
    grad   accumulated by `backward`
    _rg    whether gradients flow into `uop`
    _home  the memory (a view of a BUFFER) that a pending `assign` has to write, else None
    _parts which parts of it, None for all; without `_home`: how many parts of a lazy value were
    _alias whether the memory belongs to somebody else who must see writes (`from_numpy`)
    _leaf  whether it is a leaf: gradients end here
    _marks where `backward` leaves a gradient (a leaf, or after `retain_grad`): every graph by which
           it may stand in other graphs, held weakly; else None
    """

    __slots__ = (
        "__weakref__",
        "_alias",
        "_home",
        "_leaf",
        "_marks",
        "_parts",
        "_rg",
        "grad",
        "uop",
    )

    uop: UOp
    grad: Self | None
    _rg: bool
    _home: UOp | None
    _parts: Parts | None
    _alias: bool
    _leaf: bool
    _marks: list[ref[UOp]] | None

    @classmethod
    def _wrap(cls, uop: UOp, requires_grad: bool = False) -> Self:
        """A tensor around a graph. Without gradient mode nothing flows back through it."""
        self = cls.__new__(cls)
        if requires_grad and not grad_mode.enabled:
            uop = UOp(Ops.DETACH, uop.dtype, (uop,))
            requires_grad = False
        self._adopt(uop, requires_grad)
        return self

    def _adopt(self, uop: UOp, requires_grad: bool) -> None:
        """Fills a new tensor in and registers it."""
        self.uop = uop
        self._rg = requires_grad
        self.grad = self._home = self._parts = self._marks = None
        self._alias = self._leaf = False
        _living.add(ref(self, _forget))

    __hash__ = object.__hash__

    def _same(self) -> Self:
        """This value as a tensor of its own: what is written to one is not seen by the other."""
        return self._wrap(self.uop, self._rg)

    @property
    def shape(self) -> Shape:
        """The length of every dimension."""
        return nodes.shape_of(self.uop)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> int | Shape:
        """The shape, or the length of one dimension."""
        return self.shape if dim is None else self.shape[self._axis("size", dim)]

    def numel(self) -> int:
        """How many elements there are."""
        return nodes.size_of(self.uop)

    def dim(self) -> int:
        """`ndim`, as PyTorch spells it."""
        return self.ndim

    def _axis(self, method: str, axis: int, rank: int | None = None) -> int:
        """`axis` counted from the front; AxisError when there is no such dimension."""
        rank = self.ndim if rank is None else rank
        if not hasattr(axis, "__index__"):
            fail(AxisError, f"{method}: an axis is an int, got {axis!r}")
        axis = axis.__index__()
        # A scalar has one axis by courtesy, as in PyTorch.
        if not -max(rank, 1) <= axis < max(rank, 1):
            fail(AxisError, f"{method}: axis {axis} of a tensor of shape {self.shape}")
        return axis + max(rank, 1) if axis < 0 else axis

    def _axes(self, method: str, axis: int | Sequence[int] | None) -> Shape:
        """The axes meant by a `dim` argument, counted from the front; None means all."""
        if axis is None:
            return tuple(range(self.ndim))
        if isinstance(axis, int):
            axes: Shape = (self._axis(method, axis),)
        else:
            axes = tuple(self._axis(method, each) for each in axis)
            if len(set(axes)) != len(axes):
                fail(AxisError, f"{method}: an axis is named twice in {tuple(axis)}")
        return axes if self.ndim else ()


# Living tensors ----------------------------------------------------------------------------------

_living: set[ref[Base]] = set()
_forget = _living.discard


def all_tensors() -> list[Base]:
    """Every living tensor, in no order: where a write looks for readers of what it destroys."""
    while True:
        try:
            found = [reference() for reference in _living]
        except RuntimeError:  # another thread made or dropped a tensor meanwhile
            continue
        return [tensor for tensor in found if tensor is not None]


# Leaves ------------------------------------------------------------------------------------------


class _Watch(ref[Base]):
    """A weak reference that is itself and equals no other: `ref` would ask the tensors."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


_watched: set[_Watch] = set()
"""Tensors that `backward` gives a gradient."""
_mark_numbers = count(1)


def unique_leaf(uop: UOp) -> UOp:
    """`uop` as a node no other graph contains: gradients stop here and are this leaf's alone."""
    return UOp(Ops.DETACH, uop.dtype, (uop,), next(_mark_numbers))


def watch(tensor: Base) -> None:
    """From now on `backward` finds `tensor.uop`, and what replaces it, in other graphs."""
    tensor._marks = [ref(tensor.uop)]
    _watched.add(_Watch(tensor, _watched.discard))


def make_leaf(tensor: Base) -> None:
    """Gradients flow to this tensor and end there. Its graph must be its own: see `unique_leaf`."""
    tensor._rg = tensor._leaf = True
    watch(tensor)


def remark(tensor: Base) -> None:
    """Note that the graph was replaced by another of the same value (or, for a leaf, by that of its
    new value); graphs nobody holds any more are forgotten."""
    if tensor._marks is not None:
        tensor._marks = [mark for mark in tensor._marks if mark() is not None]
        tensor._marks.append(ref(tensor.uop))


def watched_by_graph() -> dict[UOp, Base]:
    """The living tensors that get a gradient, by every graph that stands for one."""
    found: dict[UOp, Base] = {}
    for reference in list(_watched):
        tensor = reference()
        if tensor is not None and tensor._marks is not None and tensor._rg:
            for mark in tensor._marks:
                uop = mark()
                if uop is not None:
                    found[uop] = tensor
    return found


# Gradient mode -----------------------------------------------------------------------------------


class _Mode(threading.local):
    enabled = True


grad_mode = _Mode()


def is_grad_enabled() -> bool:
    """Whether results of this thread's operations take part in gradients."""
    return grad_mode.enabled


class _GradMode(ContextDecorator):
    """Sets gradient mode for a block or a decorated function, in this thread. Blocks nest."""

    _wanted = True

    def __init__(self) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> Self:
        """A decorated function gets a context of its own for every call."""
        return type(self)()

    def __enter__(self) -> Self:
        self._before.append(grad_mode.enabled)
        grad_mode.enabled = self._wanted
        return self

    def __exit__(self, *exc: object) -> None:
        grad_mode.enabled = self._before.pop()


class no_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Within `with no_grad():`, or a function decorated so, results are constants to gradients."""

    _wanted = False


class enable_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Undoes an enclosing `no_grad`."""


# Errors and promotion ----------------------------------------------------------------------------


def fail(kind: type[MorokError], message: str) -> NoReturn:
    """Raise `kind` with the user's line behind the message."""
    raise kind(at_line(message))


def broadcast_shapes(method: str, *shapes: Shape) -> Shape:
    """The shape in which `shapes` meet by NumPy's rules; ShapeError where they do not."""
    rank = max(map(len, shapes))
    out = []
    for axis in range(-rank, 0):
        lengths = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(lengths) > 1:
            listing = " and ".join(map(str, shapes))
            fail(
                ShapeError,
                f"{method}: shapes {listing} do not broadcast: along axis {axis} lengths "
                f"{' and '.join(sorted(map(str, lengths)))} differ and none is 1",
            )
        out.append(lengths.pop() if lengths else 1)
    return tuple(out)


@memoized(512)
def _common(args: tuple[DType, ...], weak: tuple[type, ...], floats: str, ints: str) -> DType:
    return promote(*args, weak=weak)


def weak_dtype(method: str, *values: Number) -> DType:
    """The dtype of Python scalars among themselves: a default one, int64 where an int needs it.

    DTypeError naming `method` for an int beyond that.
    """
    dtype = common_dtype(method, weak=tuple(map(type, values)))
    if dtype.kind not in "iu" or all(_holds(dtype, value) for value in values):
        return dtype
    if not all(_holds(dtypes.int64, value) for value in values):
        fail(DTypeError, f"{method}: {max(values, key=abs)} does not fit in {dtypes.int64}")
    return dtypes.int64


def _holds(dtype: DType, value: Number) -> bool:
    return min_value(dtype) <= value <= max_value(dtype)


def common_dtype(method: str, *args: DType, weak: tuple[type, ...] = ()) -> DType:
    """The dtype in which operands meet; DTypeError naming `method` where there is none."""
    settings = config_get()
    try:
        return _common(args, weak, settings.default_float, settings.default_int)
    except DTypeError as error:
        raise DTypeError(at_line(f"{method}: {error.message}")) from None
