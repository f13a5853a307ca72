"""What rewrites did: every step, and counts and times by rule.

    with Trace() as trace:
        graph_rewrite(root, symbolic, name="simplify")
    print(trace.report())

    trace.rewrites[0].after(3)          # the graph after its first three steps

While no trace is open, rewriting pays nothing for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from morok import _core
from morok.ir.rules import RuleStats
from morok.ir.uop import UOp

Counts = tuple[int, int, int, float]
"""Tries, hits, calls into Python, seconds."""


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

    def after(self, count: int | None = None) -> UOp:
        """The graph after the first `count` steps, or after all: what a viewer replays."""
        made = {step.before: step.after for step in self.steps[:count]}
        done: dict[UOp, UOp] = {}
        waits_for: dict[UOp, UOp] = {}  # a node -> the one that its result is that of
        stack = [self.root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
            elif node in waits_for:
                # a rule that undid another leaves a ring: there the node stays as it is
                done[node] = done.get(waits_for[node], node)
            elif node in made:
                waits_for[node] = made[node]
                stack.append(made[node])
            elif missing := [source for source in node.src if source not in done]:
                stack += missing
            else:
                rebuilt = node.replace(src=tuple(done[source] for source in node.src))
                if rebuilt is node:
                    done[node] = node
                else:
                    waits_for[node] = rebuilt
                    stack.append(rebuilt)
        return done[self.root]


class Trace:
    """Records the rewrites of all threads while it is open, nested ones too, in order of start."""

    def __init__(self) -> None:
        self.rewrites: list[Rewrite] = []
        self._open = threading.local()
        self._previous: Any = None
        self._at_start: dict[str, Counts] = {}
        self._counted: dict[str, Counts] | None = None

    def __enter__(self) -> Trace:
        self._at_start, self._counted = _core.rule_stats(), None
        self._previous = _core.set_tracer(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _core.set_tracer(self._previous)
        self._counted = _core.rule_stats()

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

    def by_rule(self) -> dict[str, RuleStats]:
        """What each rule did while the trace was open, most time first: tries that passed the
        filter by op and dtype, replacements, calls into Python, seconds."""
        now = self._counted if self._counted is not None else _core.rule_stats()
        rows = []
        for name, (tries, hits, entries, seconds) in now.items():
            before = self._at_start.get(name, (0, 0, 0, 0.0))
            if tries > before[0]:
                rows.append(
                    RuleStats(
                        name,
                        tries - before[0],
                        hits - before[1],
                        entries - before[2],
                        seconds - before[3],
                    )
                )
        return {row.name: row for row in sorted(rows, key=lambda row: (-row.seconds, row.name))}

    def report(self) -> str:
        """Rewrites with their steps counted, then rules by time."""
        lines = []
        for rewrite in self.rewrites:
            name = "  " * rewrite.depth + (rewrite.name or "(unnamed)")
            lines.append(f"{len(rewrite.steps):8} steps  {name}")
        lines.append(f"{'hits':>8} {'tries':>8} {'python':>8} {'ms':>9}")
        lines += [
            f"{row.hits:8} {row.tries:8} {row.python_entries:8} {row.seconds * 1e3:9.3f}  {name}"
            for name, row in self.by_rule().items()
        ]
        return "\n".join(lines)
