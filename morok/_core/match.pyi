"""Compiled rules and the matcher that runs them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, final

from morok._core.node import Node

N = TypeVar("N", bound=Node)

def checked_build() -> bool:
    """Whether this build checks what a release trusts: MOROK_BUILD=debug, trace or sanitize."""

def native_rules() -> list[str]:
    """Names of the rules written in C that are registered so far."""

@final
class Program:
    """One rule, compiled. Built by `morok.ir.rules`; see there for the language.

    steps      ("check", reg, test) ("load", dst, src, index, test) ("take", dst, src, index)
               ("commute", dst, src) ("same", a, b)
    guard      (code, operand…) in postfix order, or None
    right      the same, or None for a rule with a `function` or a `native` name
    function   called with the nodes in the registers `arguments`; -1 stands for the context

    `roots` are the ops it starts at, `need` ops that must occur among the sources, `root` a test of
    the root, `kinds` the dtype class of the subject: the root, or if `subject_first` its first
    source. `pure`: reads nothing but the node. Raises RuleError for what is too large.
    """

    name: str
    pure: bool
    roots: tuple[int, ...]

    def __init__(
        self,
        name: str,
        *,
        roots: Iterable[int],
        need: Iterable[int] = (),
        root: Mapping[str, Any] | None = None,
        kinds: str | None = None,
        subject_first: bool = False,
        steps: Sequence[tuple[Any, ...]] = (),
        guard: Sequence[tuple[Any, ...]] | None = None,
        right: Sequence[tuple[Any, ...]] | None = None,
        function: Callable[..., Any] | None = None,
        arguments: Sequence[int] = (),
        native: str | None = None,
        pure: bool = True,
    ) -> None: ...

@final
class Matcher:
    """An ordered, frozen set of programs. `pure`: none reads anything but the node."""

    programs: tuple[Program, ...]
    name: str
    pure: bool

    def __init__(self, name: str, programs: Iterable[Program]) -> None: ...
    def rewrite(self, root: N, ctx: object = None) -> N | None:
        """The replacement of this one node by the first rule that applies, or None."""

    def stats(self) -> list[tuple[str, int, int, int]]:
        """(name, tries, hits, entries into Python) of each rule, in order."""

    def reset_stats(self) -> None:
        """Counts from zero again."""
