"""Running sums and products."""

from __future__ import annotations

from typing import Self

from morok.dtype import DType, acc_dtype, sum_dtype
from morok.ir import Ops, UOp
from morok.tensor import nodes
from morok.tensor.indexing import Indexing
from morok.tensor.loops import scanned
from morok.tensor.provenance import stamp

_LONG = 1 << 12  # steps of a float running sum beyond which it is cut into blocks
_BLOCK = 1 << 10  # steps of a block


def running_sum(u: UOp, axis: int) -> UOp:
    """Sums of the elements 0 … i along `axis`.

    Long float sums are cut into blocks, whose totals are summed in the same way: the rounding error
    of an element grows with the length of a block, not of the axis (Higham, The accuracy of
    floating point summation, 1993).
    """
    shape = nodes.shape_of(u)
    length = shape[axis]
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
