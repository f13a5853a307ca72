"""Reports of what ran: kernels, operations, bytes each way, peak memory."""

from __future__ import annotations

import numpy as np
import pytest

import morok as mk


def ones(*shape: int) -> mk.Tensor:
    return mk.Tensor(np.ones(shape, np.float32)).realize()


def test_each_realize_is_a_report() -> None:
    x, y = ones(8, 100), ones(100)
    with mk.watch_schedules() as seen:
        z = (x * y + 1).realize()
        (z.sum() * 2).realize()
    (z + 1).realize()
    scaled, total = seen
    assert [len(s.kernels) for s in seen] == [1, 1]
    assert (scaled.flops, scaled.bytes_read, scaled.bytes_written) == (1600, 900 * 4, 800 * 4)
    assert (total.flops, total.bytes_read, total.bytes_written) == (801, 800 * 4, 4)
    assert scaled.peak_memory >= 800 * 4
    assert scaled.nanoseconds == sum(kernel.nanoseconds for kernel in scaled.kernels) > 0


def test_peak_memory_counts_results_and_what_lies_in_between() -> None:
    """A matrix that is read by two products has a buffer, in which nothing else fits."""
    x = ones(64, 64)
    with mk.watch_schedules() as seen:
        middle = (x @ x).contiguous()
        (middle @ middle).realize()
    (report,) = seen
    assert len(report.kernels) == 2
    assert report.bytes_written == 2 * 64 * 64 * 4
    assert report.peak_memory >= 2 * 64 * 64 * 4


def test_a_report_reads_as_a_table() -> None:
    x = ones(1000, 30)
    with mk.watch_schedules() as seen:
        x.softmax(1).realize()
    head, kernel, total = str(seen[0]).splitlines()
    assert head.split() == ["kernel", "us", "flops", "read", "written"]
    assert kernel.split()[0] == seen[0].kernels[0].name
    assert kernel.split()[2:] == ["151", "k", "120", "kB", "120", "kB"]
    assert total.split()[:2] == ["1", "kernels"]
    assert "peak" in total


def test_a_replay_is_a_report() -> None:
    two = mk.jit(lambda x: (x + 1).realize().sum())
    x = ones(100)
    for _ in range(3):
        two(x)
    with mk.watch_schedules() as seen:
        two(x).item()
    (report,) = seen
    assert len(report.kernels) == 2
    assert report.flops == 200


def test_debug_output_sums_up_the_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    x = ones(100)
    with mk.config.override(debug=1):
        (x + 1).realize()
    assert "100 flops, 400 B read, 400 B written, peak" in capsys.readouterr().err
    with mk.config.override(debug=2):
        (x + 2).realize()
    assert "kernel " in capsys.readouterr().err
