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
        """Brings an axis inside others, which keep their order."""
        inner = [other for other in others if self.number[other] > self.number[axis]]
        self.order([*sorted(inner, key=lambda name: self.number[name]), axis])

    def order(self, axes: Sequence[Hashable]) -> None:
        """The axes in this order, the outermost first: nothing, a SWAP or an ORDER."""
        places = sorted(self.number[axis] for axis in axes)
        moved = [
            axis for axis, place in zip(axes, places, strict=True) if self.number[axis] != place
        ]
        if len(moved) == 2:
            self.swap(*sorted(moved, key=lambda name: self.number[name]))
        elif moved:
            first, *more = [self.number[axis] for axis in moved]
            self.do(OptOps.ORDER, moved[0], tuple(more))
            places = sorted((first, *more))
            self.number.update(zip(moved, places, strict=True))

    def move_outside(self, axis: Hashable, others: Iterable[Hashable]) -> None:
        """Brings an axis outside of others, which keep their order."""
        outer = [other for other in others if self.number[other] < self.number[axis]]
        self.order([axis, *sorted(outer, key=lambda name: self.number[name])])

    def not_outside(self, axes: Iterable[Hashable], other: Hashable) -> list[Hashable]:
        """Those of some axes that do not run outside of another one."""
        return [axis for axis in axes if self.number[axis] >= self.number[other]]

    def local(self, axes: Sequence[Hashable], slot: int, fills: Sequence[Hashable]) -> None:
        """LOCAL of a read of a slot along `axes`; `fills` name the loops of the copy."""
        start = next_number(self.sink)
        first, *more = [self.number[axis] for axis in axes]
        self.sink = apply_opt(self.sink, Opt(OptOps.LOCAL, first, (slot, *more)))
        self.number.update({name: start + place for place, name in enumerate(fills)})

    def accumulate(self, loops: Sequence[Hashable], layout: Sequence[Hashable]) -> list[Hashable]:
        """ACCUMULATE of the sums over `loops`, in a buffer of that layout. Names for the innermost
        loop of the new reduction and for the buffer's axes."""
        start = next_number(self.sink) + len(loops) - 1
        self.do(OptOps.ACCUMULATE, loops[-1], tuple(self.number[axis] for axis in layout))
        names: list[Hashable] = [(loops[-1], axis) for axis in (None, *layout)]
        self.number.update({name: start + place for place, name in enumerate(names)})
        return names
