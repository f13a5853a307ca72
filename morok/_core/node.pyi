"""Interned nodes: building the same structure twice gives the same object, from any thread."""

from collections.abc import Sequence
from typing import Any

from morok.dtype import DType

class ArgRecord:
    """One interned argument."""

    @property
    def value(self) -> Any:
        """The argument as its first user gave it."""

class Node:
    """Base of UOp: `(op, dtype, src, arg)` and what follows from them. Direct construction raises TypeError."""

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
        """The argument: None, bool, int, float, or the object given by the first who built this node."""

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
        """The open RANGEs, in loop order (axis number, then content)."""

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

def node(op: Any, dtype: DType, src: tuple[Any, ...] = (), arg: Any = None) -> Any:
    """The node of this structure. TypeError for a source that is no UOp or an argument that cannot be part of
    a node, ShapeError for sources whose shapes do not fit."""

def build(op: Any, src: Sequence[Any], arg: Any = None) -> Any:
    """Like `node`, with the dtype inferred from at most 8 sources; DTypeError where it does not follow."""

def register_uop_class(cls: type) -> None:
    """Make `cls`, a subclass of Node without fields, the class of every node. Once per process."""

def set_provenance(obj: Any) -> Any:
    """Stamp `obj` (the user's line, a tensor method …) on nodes this thread builds; returns what was set before."""

def node_stats() -> dict[str, int]:
    """Counts since the process began: nodes `built`, `hits` of the table; now `live` nodes, live `arguments`,
    `slots` of the table; `node_bytes` of one object."""
