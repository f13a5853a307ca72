"""The key of a graph without names, had by one walk: the graph itself is not built."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

def normal_key(
    root: Any, visit: Mapping[Any, Callable[[Any], Any | None]], drop: Iterable[Any]
) -> bytes:
    """`cut_realized(root, visit, drop).key`, at a fraction of the cost."""
