"""Locks and fork: the child has one thread, and a lock another one held never comes free."""

from __future__ import annotations

import os
from typing import Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)


def held_at_fork(lock: L) -> L:
    """`lock`, which fork takes first and gives back in parent and child: nobody is halfway through
    what it guards when the child's copy is made.

    Later locks are taken before earlier ones, as upper layers hold theirs while they call lower
    ones.
    """
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock
