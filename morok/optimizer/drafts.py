"""Actions one after the other, with the axes called by name instead of by number."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from morok._core import toposort
from morok.ir import Ops, UOp
from morok.optimizer.opts import Opt, OptOps, apply_opt
from morok.optimizer.ranges import next_number

__all__ = ["Draft"]


class Draft:
    """A kernel on which actions are done, and the number that each axis has by now.

    Axes that the kernel came with are called by their RANGE, parts of them by any name that the
    action gives them. An action that does not apply raises OptError.
    """

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.number: dict[Hashable, int] = {
            node: node.arg[0].number for node in toposort(sink) if node.op is Ops.RANGE
        }

    def do(self, op: OptOps, axis: Hashable, arg: int | tuple[int, ...]) -> None:
        self.sink = apply_opt(self.sink, Opt(op, self.number[axis], arg))

    def window(self, axes: Sequence[Hashable], slot: int, row: int) -> None:
        """WINDOW of a read of a slot along `axes`, in rows of at least `row` elements."""
        first, *more = [self.number[axis] for axis in axes]
        self.sink = apply_opt(self.sink, Opt(OptOps.WINDOW, first, (slot, row, *more)))

    def _insert(self, op: OptOps, axis: Hashable, amount: int, name: Hashable) -> None:
        self.do(op, axis, amount)
        place = self.number[axis]
        for other, number in self.number.items():
            self.number[other] = number + (number > place)
        self.number[name] = place + 1

    def split(self, axis: Hashable, amount: int, inner: Hashable) -> None:
        """SPLIT; `inner` names the inner part, the outer one keeps its name."""
        self._insert(OptOps.SPLIT, axis, amount, inner)

    def tail(self, axis: Hashable, amount: int, rest: Hashable) -> None:
        """TAIL; `rest` names the iterations left over, if they have a loop."""
        self._insert(OptOps.TAIL, axis, amount, rest)

    def swap(self, axis: Hashable, other: Hashable) -> None:
        self.do(OptOps.SWAP, axis, self.number[other])
        self.number[axis], self.number[other] = self.number[other], self.number[axis]

    def move_inside(self, axis: Hashable, others: Iterable[Hashable]) -> None:
        """SWAPs that bring an axis inside others, which keep their order."""
        for other in sorted(others, key=lambda name: self.number[name]):
            if self.number[other] > self.number[axis]:
                self.swap(axis, other)

    def local(self, axes: Sequence[Hashable], slot: int, fills: Sequence[Hashable]) -> None:
        """LOCAL of a read of a slot along `axes`; `fills` name the loops of the copy."""
        start = next_number(self.sink)
        first, *more = [self.number[axis] for axis in axes]
        self.sink = apply_opt(self.sink, Opt(OptOps.LOCAL, first, (slot, *more)))
        self.number.update({name: start + place for place, name in enumerate(fills)})
