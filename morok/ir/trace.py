"""What rewrites did: every step, and counts and times by rule.

    with Trace() as trace:
        graph_rewrite(root, symbolic, name="simplify")
    print(trace.report())

While no trace is open, rewriting pays nothing for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from morok import _core
from morok.ir.uop import UOp


@dataclass(frozen=True, slots=True)
class Step:
    """One replacement: `rule` made `after` of `before`, `seconds` after it was first looked at."""

    rule: str
    before: UOp
    after: UOp
    seconds: float


@dataclass(slots=True)
class Rewrite:
    """One call of `graph_rewrite`. `result` is None while it runs, or when it raised."""

    name: str
    root: UOp
    depth: int  # rewrites it was called from
    result: UOp | None = None
    steps: list[Step] = field(default_factory=list)


class Trace:
    """Records the rewrites of all threads while it is open, nested ones too, in order of start."""

    def __init__(self) -> None:
        self.rewrites: list[Rewrite] = []
        self._open = threading.local()
        self._previous: Any = None

    def __enter__(self) -> Trace:
        self._previous = _core.set_tracer(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _core.set_tracer(self._previous)

    def begin(self, name: str, root: UOp) -> None:
        """Called by the core when a rewrite starts."""
        stack = self._stack()
        stack.append(Rewrite(name, root, len(stack)))
        self.rewrites.append(stack[-1])

    def step(self, rule: str, before: UOp, after: UOp, seconds: float) -> None:
        """Called by the core for each replacement."""
        self._stack()[-1].steps.append(Step(rule, before, after, seconds))

    def end(self, result: UOp | None) -> None:
        """Called by the core when a rewrite is done, with None when it raised."""
        self._stack().pop().result = result

    def _stack(self) -> list[Rewrite]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[Rewrite] = self._open.stack
        return stack

    def by_rule(self) -> dict[str, tuple[int, float]]:
        """Rule -> (steps, seconds), most time first."""
        table: dict[str, tuple[int, float]] = {}
        for rewrite in self.rewrites:
            for step in rewrite.steps:
                count, seconds = table.get(step.rule, (0, 0.0))
                table[step.rule] = (count + 1, seconds + step.seconds)
        return dict(sorted(table.items(), key=lambda row: (-row[1][1], row[0])))

    def report(self) -> str:
        """Rewrites with their steps counted, then rules by time."""
        lines = []
        for rewrite in self.rewrites:
            name = "  " * rewrite.depth + (rewrite.name or "(unnamed)")
            lines.append(f"{len(rewrite.steps):8} steps  {name}")
        for rule, (count, seconds) in self.by_rule().items():
            lines.append(f"{count:8} times  {seconds * 1e3:8.3f} ms  {rule}")
        return "\n".join(lines)
