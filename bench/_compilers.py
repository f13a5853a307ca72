"""The same kernels by several compilers, whose results must have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from morok import config

Array = np.ndarray[Any, Any]
chosen: list[str | None] = [None]
"""The settings `cpu_compiler` that kernels are compiled under; None for the one in force."""


class BitsDifferError(AssertionError):
    """Two compilers' kernels gave different bits."""


@contextmanager
def _under(compiler: str | None) -> Iterator[None]:
    if compiler is None:
        yield
        return
    with config.override(cpu_compiler=compiler):
        yield


def with_each(run: Callable[[], None]) -> None:
    """Runs something once for each compiler."""
    for compiler in chosen:
        with _under(compiler):
            run()


def same_by_each(run: Callable[[], Sequence[Array]]) -> Sequence[Array]:
    """The arrays that `run` gives, with any compiler. BitsDifferError says where they differ; all
    NaNs count as the same."""
    results: list[Sequence[Array]] = []
    with_each(lambda: results.append([np.array(array) for array in run()]))
    for compiler, result in zip(chosen[1:], results[1:], strict=True):
        for number, (a, b) in enumerate(zip(results[0], result, strict=True)):
            if (place := _first_difference(a, b)) is not None:
                x, y = a.reshape(-1)[place], b.reshape(-1)[place]
                raise BitsDifferError(
                    f"array {number} at {place}: {x!r} by {chosen[0]}, {y!r} by {compiler}"
                )
    return results[0]


def _first_difference(a: Array, b: Array) -> int | None:
    same = a == b
    if a.dtype.kind == "f":
        same = (same & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    places = np.flatnonzero(~same)
    return int(places[0]) if len(places) else None
