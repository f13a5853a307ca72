"""Interned nodes: building the same structure twice gives the same object, from any thread."""

from typing import Any

from morok.dtype import DType

class Node:
    """Base of UOp: `(op, dtype, src, arg)` and what follows from them.

    Direct construction raises TypeError, and so does subclassing once UOp exists.
    """

    @property
    def op(self) -> Any:
        """The Ops member."""

    @property
    def dtype(self) -> DType:
        """The DType of the value."""

    @property
    def src(self) -> tuple[Any, ...]:
        """The sources, as a new tuple."""

    @property
    def arg(self) -> Any:
        """The argument: None, bool, int, float, or the object given by whoever built this node."""

    @property
    def key(self) -> bytes:
        """The 128-bit content hash as 16 bytes: equal in every process."""

    @property
    def vmin(self) -> int | None:
        """Greatest known lower bound of an integer or bool value, or None."""

    @property
    def vmax(self) -> int | None:
        """Least known upper bound of an integer or bool value, or None."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Dims as a tuple of ints, or None for a node that has no shape."""

    @property
    def ranges(self) -> tuple[Any, ...]:
        """As `open_ranges`; on some ops UOp has a field of this name instead."""

    @property
    def open_ranges(self) -> tuple[Any, ...]:
        """The RANGEs that the value depends on and nothing below has ended, in loop order."""

    @property
    def ended_ranges(self) -> tuple[Any, ...]:
        """The sources that this op ends, () for an op that ends none."""

    @property
    def device(self) -> Any:
        """The DEVICE node that the value lives on, or None."""

    @property
    def provenance(self) -> Any:
        """What was current when this node was first built; no part of identity."""

    @property
    def realized(self) -> Any:
        """The node whose memory holds this value, or None."""

    @realized.setter
    def realized(self, value: Any) -> None: ...
    def has(self, op: Any) -> bool:
        """True if `op` occurs here or below."""

def set_provenance(obj: Any) -> Any:
    """Stamp `obj` (the user's line, a tensor method …) on nodes this thread builds.

    Returns what was set before.
    """

def node_stats() -> dict[str, int]:
    """Counts since the process began: nodes `built`, `hits` of the table; now `live` nodes, live
    `arguments`, `slots` of the table; `node_bytes` of one object; `memory`, bytes held for objects
    and table."""
