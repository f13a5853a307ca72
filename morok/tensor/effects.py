"""Tensors that change by the way: running statistics follow a forward pass whether or not anybody
reads them.

Such a change is an `assign` whose realisation is tied to a *witness*, a node of the computation it
came with: whoever computes the witness carries out the change in the same schedule, where it shares
what both need. Computations that nobody reads are caught up with after a few changes, so that no
graph grows without bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import ref

from morok._core import toposort
from morok.engine import is_buffer_view
from morok.ir import UOp
from morok.tensor.base import Base
from morok.tensor.tracing import tracing

T = TypeVar("T", bound=Any)

MOST = 8
"""Changes of one tensor that may wait for their computations."""

_waiting: dict[int, tuple[ref[Base], list[UOp]]] = {}
"""By id: tensors with changes not yet carried out, and the witnesses of those."""


def change(tensor: T, value: T, witness: UOp) -> None:
    """Assign `value` to `tensor` when `witness` is computed."""
    key = id(tensor)
    notes = tracing()
    if notes is not None:  # whoever calls the function changes it then
        tensor.assign(value)
        notes.by_the_way.add(key)
        return
    if _settled(tensor):
        _waiting.pop(key, None)
    tensor.assign(value)
    _, witnesses = _waiting.setdefault(key, (ref(tensor, lambda _: _waiting.pop(key, None)), []))
    witnesses.append(witness)


def overdue() -> list[Base]:
    """All tensors whose changes wait, if one of them has more than `MOST`."""
    late = _late() if tracing() is None else []
    if any(len(witnesses) > MOST for _, witnesses in late):
        return [tensor for tensor, _ in late]
    return []


def due(wanted: Sequence[Base]) -> list[Base]:
    """The tensors that change when `wanted` are computed."""
    late = _late() if _waiting else []
    if not late:
        return []
    computed = set(toposort([tensor.uop for tensor in wanted]))
    return [
        tensor
        for tensor, witnesses in late
        if tensor.uop.realized is not None or not computed.isdisjoint(witnesses)
    ]


def _late() -> list[tuple[Base, list[UOp]]]:
    """The tensors whose changes were not carried out; the others are forgotten."""
    late = []
    for key, (reference, witnesses) in list(_waiting.items()):
        tensor = reference()
        if tensor is None or _settled(tensor):
            _waiting.pop(key, None)
        else:
            late.append((tensor, witnesses))
    return late


def _settled(tensor: Base) -> bool:
    """Whether the last change was carried out."""
    uop = tensor.uop
    return tensor._home is None and (is_buffer_view(uop) or uop.realized is not None)
