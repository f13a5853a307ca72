"""Looking at the graphs of Phase 1 between its steps, as `codegen.watch_stages` does later on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from morok.ir import UOp

__all__ = ["seen", "watch_range_stages"]

Watcher = Callable[[str, UOp], None]
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("morok_range_watchers", default=())


@contextmanager
def watch_range_stages(watcher: Watcher) -> Iterator[None]:
    """Calls `watcher(stage's name, graph)` after every step in the block, in this thread."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def seen(stage: str, graph: UOp) -> UOp:
    """The graph, shown to whoever watches."""
    for watcher in _watchers.get():
        watcher(stage, graph)
    return graph
