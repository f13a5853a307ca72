"""Being told how long each kernel of a run took."""

from __future__ import annotations

import numpy as np

from morok import Tensor, engine


def test_a_watcher_sees_every_run_inside_its_block_only() -> None:
    seen: list[tuple[list[str], list[int]]] = []
    a = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    with engine.watch_kernels(
        lambda planned, durations: seen.append(
            ([kernel.name for kernel in planned.kernels], list(durations))
        )
    ):
        assert (a + 1).sum().item() == 78.0
        (a * 2).realize()
    (a * 3).realize()
    assert [len(names) for names, _ in seen] == [1, 1]
    assert all(len(names) == len(times) for names, times in seen)
    assert all(time >= 0 for _, times in seen for time in times)
