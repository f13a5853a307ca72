"""Scheduling costs the same for each kernel, however many there are: counted, not timed."""

from __future__ import annotations

from bench.depth import Narrow, exponent, runs


def test_scheduling_is_linear_in_kernels() -> None:
    """From 4 to 32 layers nodes built, nodes visited, rules run in Python and calls of Python
    functions grow no faster than kernels do, by an exponent of 1.1."""
    four, eight, sixteen, thirty_two = found = runs(Narrow, (4, 8, 16, 32), profiled=True)
    assert thirty_two["kernels"] > 7 * four["kernels"]
    for name in ("built", "visited", "python", "calls"):
        assert exponent(four, thirty_two, name) <= 1.1
        assert exponent(sixteen, thirty_two, name) <= 1.1
    assert [run["kernels"] for run in found] == sorted(run["kernels"] for run in found)
    assert eight["kernels"] - four["kernels"] == (sixteen["kernels"] - eight["kernels"]) / 2
