"""Where in the user's program a tensor operation was written.

A site is the first stack frame outside this package, kept as (code, offset) so that taking one
costs well under a microsecond; the line number is worked out only when somebody prints it.
"""

from __future__ import annotations

import sys
from types import CodeType

from morok._core import set_provenance

_PREFIX = __name__.partition(".")[0] + "."


class Site(tuple[CodeType, int]):
    """(code object, byte offset of the call in it); prints as `file.py:12 in function`."""

    __slots__ = ()

    @property
    def filename(self) -> str:
        return self[0].co_filename

    @property
    def line(self) -> int:
        """The line of the call, or of the function where the compiler recorded none."""
        code, offset = self
        for start, end, line in code.co_lines():
            if start <= offset < end and line is not None:
                return line
        return code.co_firstlineno

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self[0].co_name}"


def here() -> Site | None:
    """The site of the innermost frame outside this package; None when there is no such frame."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_PREFIX):
        outer = frame.f_back
        if outer is None:
            return None
        frame = outer
    return Site((frame.f_code, frame.f_lasti))


def stamp() -> None:
    """Makes the user's line the provenance of the nodes this thread builds next."""
    set_provenance(here())


def at_line(message: str) -> str:
    """`message` with the user's line behind it."""
    site = here()
    return message if site is None else f"{message}\n  at {site}"
