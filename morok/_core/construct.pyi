"""Where Python builds nodes; `UOp(op, dtype, src, arg)` is `node` under the name of its class."""

from collections.abc import Sequence
from typing import Any

from morok.dtype import DType

def node(op: Any, dtype: DType, src: tuple[Any, ...] = (), arg: Any = None) -> Any:
    """The node of this structure: the same object for the same structure.

    TypeError for a source that is no UOp or an argument that cannot be part of a node, ValueError
    for an unknown op, ShapeError for sources whose shapes do not fit.
    """

def build(op: Any, src: Sequence[Any], arg: Any = None) -> Any:
    """Like `node`, with the dtype inferred from the sources by the op's dtype kind.

    DTypeError where it does not follow.
    """

def register_uop_class(cls: type) -> None:
    """Make `cls`, a subclass of Node without fields, the class of every node. Once per process.

    Neither can be subclassed from then on.
    """

def plain_lookup(metaclass: type[type]) -> None:
    """Look attributes of the classes of `metaclass` up as those of any class.

    Before Python 3.12 the metaclass of enums has a `__getattr__`, which finds nothing that `type`
    does not, and whose presence alone makes `Ops.ADD` six times as slow.
    """

def rebuild(rows: Sequence[tuple[str, DType, tuple[int, ...], Any]]) -> Any:
    """The last node of a pickled list of rows (op name, dtype, places of sources, argument)."""
