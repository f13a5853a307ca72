"""Running sums and products."""

from __future__ import annotations

from typing import Self

from morok.dtype import DType, acc_dtype, sum_dtype
from morok.ir import GroupOp, Ops, UOp
from morok.tensor import nodes
from morok.tensor.indexing import Indexing
from morok.tensor.loops import scanned
from morok.tensor.provenance import stamp

_LONG = 1 << 12  # steps of a float running sum beyond which it is cut into blocks
_BLOCK = 1 << 10  # steps of a block
_LOOKS = 16  # nodes that are asked whether they are the same along an axis


def running_sum(u: UOp, axis: int) -> UOp:
    """Sums of the elements 0 … i along `axis`: multiples, where all elements along it are the same.

    Long float sums are cut into blocks, whose totals are summed in the same way: the rounding error
    of an element grows with the length of a block, not of the axis (Higham, The accuracy of
    floating point summation, 1993).
    """
    shape = nodes.shape_of(u)
    length = shape[axis]
    if _all_the_same(u, axis):
        counts = nodes.add(nodes.iota(length, u.dtype), nodes.const(u.dtype, 1))
        row = tuple(length if i == axis else 1 for i in range(len(shape)))
        counts = nodes.expand(nodes.reshape(counts, row), shape)
        return nodes.alu(Ops.MUL, u, counts)
    if u.dtype.kind != "f" or length <= _LONG:
        return scanned(u, axis, Ops.ADD)
    front, back = shape[:axis], shape[axis + 1 :]
    blocks = -(-length // _BLOCK)
    u = _padded(u, axis, 0, blocks * _BLOCK - length)
    u = scanned(nodes.reshape(u, (*front, blocks, _BLOCK, *back)), axis + 1, Ops.ADD)
    totals = _part(u, axis + 1, _BLOCK - 1, _BLOCK)
    totals = nodes.reshape(_part(totals, axis, 0, blocks - 1), (*front, blocks - 1, *back))
    before = _padded(running_sum(totals, axis), axis, 1, 0)
    before = nodes.reshape(before, (*front, blocks, 1, *back))
    u = nodes.alu(Ops.ADD, u, nodes.expand(before, nodes.shape_of(u)))
    return _part(nodes.reshape(u, (*front, blocks * _BLOCK, *back)), axis, 0, length)


def _all_the_same(u: UOp, axis: int) -> bool:
    """Whether elements that differ only in their place along `axis` can be seen to be equal."""
    todo: list[tuple[UOp, int | None]] = [(u, axis)]  # None: along all axes
    for _ in range(_LOOKS):
        if not todo:
            return True
        u, along = todo.pop()
        if nodes.size_of(u) == 1:
            continue
        if u.op in GroupOp.Elementwise:
            todo += [(source, along) for source in u.src]
        elif u.op in (Ops.EXPAND, Ops.FLIP, Ops.SHRINK):
            if along is None or nodes.shape_of(u.src[0])[along] != 1:
                todo.append((u.src[0], along))
        elif u.op is Ops.PERMUTE:
            todo.append((u.src[0], None if along is None else u.arg[along]))
        elif u.op is Ops.RESHAPE:
            todo.append((u.src[0], None))
        else:
            return False
    return False


def _padded(u: UOp, axis: int, lead: int, tail: int) -> UOp:
    rank = len(nodes.shape_of(u))
    begins = [lead if i == axis else 0 for i in range(rank)]
    return nodes.pad(u, begins, [tail if i == axis else 0 for i in range(rank)])


def _part(u: UOp, axis: int, begin: int, end: int) -> UOp:
    shape = nodes.shape_of(u)
    begins = [begin if i == axis else 0 for i in range(len(shape))]
    return nodes.shrink(u, begins, [end if i == axis else n for i, n in enumerate(shape)])


class Scan(Indexing):
    """Methods whose element i depends on the elements before it."""

    __slots__ = ()

    def _running(
        self, method: str, dim: int | None, axis: int | None, dtype: DType | None, op: Ops
    ) -> Self:
        stamp()
        start = self if dtype is None else self.cast(dtype)
        dim = axis if dim is None else dim
        own = start.dtype
        u = nodes.cast(start.uop, acc_dtype(own))
        if dim is None:
            u, dim = nodes.reshape(u, (nodes.size_of(u),)), 0
        shape = nodes.shape_of(u)
        place = self._axis(method, dim, len(shape))
        if shape and 0 not in shape:
            u = running_sum(u, place) if op is Ops.ADD else scanned(u, place, op)
        return self._wrap(nodes.cast(u, sum_dtype(own)), start._rg)

    def cumsum(
        self, dim: int | None = None, *, axis: int | None = None, dtype: DType | None = None
    ) -> Self:
        """The sums of the elements up to each one along `dim` (None: in logical order), in n steps.

        Ints narrower than 32 bits and bools are added and given in 32; halves are added in float32;
        `dtype` converts first.
        """
        return self._running("cumsum", dim, axis, dtype, Ops.ADD)

    def cumprod(
        self, dim: int | None = None, *, axis: int | None = None, dtype: DType | None = None
    ) -> Self:
        """As `cumsum`, the products."""
        return self._running("cumprod", dim, axis, dtype, Ops.MUL)
