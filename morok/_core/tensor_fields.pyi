"""Tensors as the core sees them."""

from collections.abc import Callable
from typing import Any

def configure(
    cls: type,
    buffer_of: Callable[[Any], Any],
    reshape: int,
    buffer: int,
    shrink: int,
    under: Callable[[Any], Any],
) -> None:
    """Make `cls` the class of tensors and `buffer_of(BUFFER)` what finds memory; the numbers of
    three ops; `under(SHRINK)` is what a SHRINK to symbolic dims shows all of, else itself."""
