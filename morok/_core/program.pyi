"""Rules as programs for the matcher, and the registry of rules written in C."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

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
