"""Which address ranges overlap one, without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Spans(Generic[T]):
    """Half-open ranges [begin, end) with something attached, sorted by where they begin.

    Over the sorted ranges lies a tree of the largest end in each half (an interval tree, Cormen et
    al., "Introduction to Algorithms", 14.3, laid out as a heap), so that a search passes by every
    run of ranges that ends too early: O((1 + found) log n).
    """

    def __init__(self, spans: Iterable[tuple[int, int, T]]) -> None:
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._leaves = 1
        while self._leaves < len(self._spans):
            self._leaves *= 2
        ends = [end for _, end, _ in self._spans]
        padding = [-1] * (self._leaves - len(ends))
        self._latest = [-1] * self._leaves + ends + padding
        for node in range(self._leaves - 1, 0, -1):
            self._latest[node] = max(self._latest[2 * node], self._latest[2 * node + 1])

    def __len__(self) -> int:
        return len(self._spans)

    def overlapping(self, begin: int, end: int) -> list[T]:
        """What is attached to the ranges that share an address with [begin, end), by begin."""
        out: list[T] = []
        if begin >= end:
            return out
        stack = [1]
        while stack:
            node = stack.pop()
            if self._latest[node] <= begin:
                continue
            if node < self._leaves:
                stack += (2 * node + 1, 2 * node)
                continue
            first, last, item = self._spans[node - self._leaves]
            if first >= end:  # and so does every later one
                break
            if first < last:
                out.append(item)
        return out
