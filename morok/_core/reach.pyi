"""Which graphs read some nodes: one walk for any number of roots."""

from collections.abc import Iterable
from typing import Any

def reaching(roots: list[Any], targets: Iterable[Any]) -> list[bool]:
    """For each root, whether one of `targets` is read to compute it: is the root itself or lies
    below it. What is realized is read from the node that holds it, and from nothing else.
    """
