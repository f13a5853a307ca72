"""Which part of a tensor a write changed, so that no more than that need be stored.

A write to a part gives the tensor a new value `where(inside, values, old)` as a whole: that is what
lazy readers compute with. Beside it the tensor keeps the parts that differ from what stands in its
memory: boxes that do not overlap, each with its values. When the memory may be overwritten in
place, the boxes are stored and the rest is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from morok.ir import Ops, UOp, dims_of, is_symbolic
from morok.tensor import nodes
from morok.tensor.nodes import Shape

MOST = 64
"""Writes to parts of one tensor that may wait to be carried out. Each nests the value deeper."""


@dataclass(frozen=True, slots=True)
class Part:
    """The box from `begins` to `ends` of a tensor, and its values in the shape of the box."""

    begins: Shape
    ends: Shape
    value: UOp

    def meets(self, other: Part) -> bool:
        """Whether the boxes have an element in common."""
        rows = zip(self.begins, self.ends, other.begins, other.ends, strict=True)
        return all(a < d and c < b for a, b, c, d in rows)

    def covers(self, other: Part) -> bool:
        """Whether the other box lies within this one."""
        rows = zip(self.begins, self.ends, other.begins, other.ends, strict=True)
        return all(a <= c and d <= b for a, b, c, d in rows)


@dataclass(frozen=True, slots=True)
class Parts:
    """What waits to be written: `boxes` that do not overlap, None for all of it; and how many
    writes to parts made it so."""

    boxes: tuple[Part, ...] | None
    writes: int


def changed_part(old: UOp, new: UOp) -> Part | None:
    """The box within which `new` may differ from `old`, if it is made that way: by `where` of
    something padded with False, something padded, and `old`."""
    if new.op is not Ops.WHERE or new.src[2] is not old:
        return None
    inside, values = new.src[:2]
    begins: list[Any] = [0] * len(nodes.shape_of(new))
    while inside.op is Ops.PAD and values.op is Ops.PAD and inside.src[1:] == values.src[1:]:
        begins = [a + b for a, b in zip(begins, dims_of(inside.src[1]), strict=True)]
        inside, values = inside.src[0], values.src[0]
    box = nodes.shape_of(inside)
    if len(box) != len(begins):  # one condition for all elements
        return None
    ends = [a + n for a, n in zip(begins, box, strict=True)]
    values = nodes.broadcast_to(values, box)
    if not _always(inside):
        values = nodes.where(inside, values, nodes.shrink(old, begins, ends))
    return Part(tuple(begins), tuple(ends), values)


def _always(condition: UOp) -> bool:
    while condition.op in (Ops.EXPAND, Ops.RESHAPE):
        condition = condition.src[0]
    return condition.op is Ops.CONST and condition.arg is True


def with_part(before: Parts | None, part: Part, new: UOp) -> Parts:
    """What waits to be written when `before` did (None: all) and a write to `part` made the value
    `new`."""
    boxes = () if before is None or before.boxes is None else (*before.boxes, part)
    by_variables = any(is_symbolic((*box.begins, *box.ends)) for box in boxes)
    if before is None or before.boxes is None or (before.boxes and by_variables):
        return Parts(None, 1 if before is None else before.writes + 1)
    apart: list[Part] = []
    for box in before.boxes:
        if not part.meets(box):
            apart.append(box)
        elif not part.covers(box):
            begins = tuple(map(min, part.begins, box.begins))
            ends = tuple(map(max, part.ends, box.ends))
            # The larger box may meet some of the others.
            return with_part(before, Part(begins, ends, nodes.shrink(new, begins, ends)), new)
    return Parts((*apart, part), before.writes + 1)
