"""The order of execution of a graph of loops and branches."""

from typing import Any

def execution_order(
    order: list[Any],
    roots: list[Any],
    inside: dict[Any, Any],
    behind: list[tuple[Any, list[Any]]],
    kinds: tuple[int, int, int],
) -> list[Any]:
    """The nodes of `order`, a topological order in which each RANGE is closed by one END, as they
    are executed: RANGE … END and IF … ENDIF bracket what stands within.

    A node stands in the branch that `inside` gives it, else in the innermost loop among its open
    ranges; each right behind what it needs there. `roots` are what the outermost block is for;
    `behind` lists (node, nodes that come before it where they stand in its block); `kinds` are the
    numbers of END, IF and ENDIF.

    InvalidGraphError for a RANGE that is never closed or closed twice, a value that is used outside
    of its loop, and loops that need each other's results.
    """
