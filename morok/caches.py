"""Every in-memory cache of the process by name: bounded, counted, emptied together.

What grows with the dtypes and ops alone (tables of spellings, say) is no cache in this sense;
neither is what is held weakly, as the table of nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")


class CacheInfo(NamedTuple):
    """How full a cache is."""

    entries: int
    bound: int


class _Face(NamedTuple):
    info: Callable[[], CacheInfo]
    clear: Callable[[], None]


_caches: dict[str, _Face] = {}


def register(name: str, info: Callable[[], CacheInfo], clear: Callable[[], None]) -> None:
    """Make a cache known under a name of its own. ValueError if there is one of this name."""
    if name in _caches:
        raise ValueError(f"there is a cache {name!r} already")
    _caches[name] = _Face(info, clear)


class Bounded(Generic[K, V]):
    """A mapping that forgets what was asked for longest ago when it has more than `bound` entries.

    Its owner holds `lock` around every use; `clear_caches` takes it too.
    """

    def __init__(self, name: str, bound: int, lock: AbstractContextManager[Any]) -> None:
        self.bound = bound
        self._lock = lock
        self._entries: OrderedDict[K, V] = OrderedDict()
        register(name, lambda: CacheInfo(len(self._entries), self.bound), self._clear)

    def _clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """What stands under `key`, which is now the newest; None if nothing does."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """Enter `value`, and forget what is too much."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self.bound:
            self._entries.popitem(last=False)

    def values(self) -> Iterable[V]:
        """All values, oldest first."""
        return self._entries.values()


def memoized(bound: int) -> Callable[[F], F]:
    """Decorates a function of hashable arguments: the results of the last `bound` distinct calls
    are kept."""

    def decorate(function: F) -> F:
        kept = lru_cache(maxsize=bound)(function)
        name = f"{function.__module__}.{function.__qualname__}"
        register(name, lambda: CacheInfo(kept.cache_info().currsize, bound), kept.cache_clear)
        return kept  # type: ignore[return-value]

    return decorate


def cache_info() -> dict[str, CacheInfo]:
    """Entries and bound of every in-memory cache in use, by name."""
    return {name: face.info() for name, face in _caches.items()}


def clear_caches() -> None:
    """Empty every in-memory cache: schedules, compiled kernels, recordings of jitted functions,
    memo tables. What is needed again is made again, machine code from the disk."""
    for face in list(_caches.values()):
        face.clear()
