"""Sets of compiled rules, and the matcher that runs them."""

from collections.abc import Iterable
from typing import TypeVar, final

from morok._core.node import Node
from morok._core.program import Program

N = TypeVar("N", bound=Node)

def checked_build() -> bool:
    """Whether this build checks what a release trusts: MOROK_BUILD=debug, trace or sanitize."""

def rule_stats() -> dict[str, tuple[int, int, int, float]]:
    """Name -> (tries, hits, entries into Python, seconds) of each rule, over all sets there are."""

@final
class Matcher:
    """An ordered, frozen set of programs. `pure`: none reads anything but the node."""

    programs: tuple[Program, ...]
    name: str
    pure: bool

    def __init__(self, name: str, programs: Iterable[Program]) -> None: ...
    def rewrite(self, root: N, ctx: object = None) -> N | None:
        """The replacement of this one node by the first rule that applies, or None."""

    def stats(self) -> list[tuple[str, int, int, int, float]]:
        """(name, tries, hits, entries into Python, seconds) of each rule, in order. Seconds are
        counted while a tracer is set."""

    def reset_stats(self) -> None:
        """Counts from zero again."""
