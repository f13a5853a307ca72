"""The transfer functions of `bounds` on arrays of intervals, for checks of all there are."""

from typing import Any

from morok.dtype import DType

def interval_transfer(
    op: int,
    dtype: DType,
    source: DType,
    fixed: tuple[int, int] | None,
    first: bool,
    operands: Any,
    out: Any,
) -> None:
    """The bounds of nodes of `op` and `dtype` whose operands, of the dtype `source`, have known
    bounds: row by row of `operands` (int64, pairs), into `out` (the same; 1, 0 where nothing is
    known). Of two operands one is `fixed`, the `first` or the other; None where there is but one.
    """
