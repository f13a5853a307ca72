"""The closed set of inference kinds, and the registry of ops and dtypes."""

from typing import Any

def register_op(
    i: int,
    member: Any,
    dtype_kind: str,
    shape_kind: str,
    bounds_kind: str,
    range_end: int,
    inherits_ended: bool,
    commutative: bool,
) -> None:
    """Enter one row of the op table: number, Ops member, kinds; `range_end` is -1 for none."""
