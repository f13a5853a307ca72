"""What a check of one node finds, and the checks that others are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morok._core import Node
from morok.ir.ops import Ops
from morok.ir.optable import OPS

__all__ = ["DEVICES", "Check", "Fault", "is_whole", "is_whole_tuple", "typed"]

DEVICES = frozenset({Ops.DEVICE})


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule."""

    rule: str
    field: str
    expected: str
    got: str


Check = Callable[[Any, tuple[Any, ...]], Fault | None]


def is_whole(value: object, low: int = 0) -> bool:
    return type(value) is int and value >= low


def is_whole_tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(is_whole(item) for item in value)


def typed(**fields: frozenset[Ops]) -> Check:
    """A check that the named sources, in order of the row, have one of the ops given."""

    def check(node: Node, src: tuple[Any, ...]) -> Fault | None:
        names = [source.name for source in OPS[node.op].sources]
        for name, allowed in fields.items():
            position = names.index(name)
            if position < len(src) and src[position].op not in allowed:
                expected = " or ".join(sorted(op.name for op in allowed))
                return Fault("operands", name, expected, src[position].op.name)
        return None

    return check
