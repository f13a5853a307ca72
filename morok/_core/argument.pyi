"""Arguments of nodes, interned: the same spelling is the same record."""

from typing import Any, final

@final
class ArgRecord:
    """One interned argument."""

    @property
    def value(self) -> Any:
        """The argument as its first user gave it."""
