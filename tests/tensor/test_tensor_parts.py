"""Writes to parts of a tensor: whatever parts, in whatever order, the values are NumPy's; in place
they touch what they write and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from morok import engine
from morok.dtype import dtypes
from morok.engine.buffers import buffer_of
from morok.tensor import Tensor, memory
from morok.tensor.parts import MOST

Write = Callable[[Any], None]


def _swap_rows(t: Any) -> None:
    old = t[0:2] + 0
    t[0:2] = t[4:6]
    t[4:6] = old


def _columns(t: Any) -> None:
    t[:, 0] = 1
    t[:, 2:4] = t[:, 0:2]
    t[:, 1] += 7


def _nested(t: Any) -> None:
    t[1:5, 1:3] = 5
    t[2:4] = 6
    t[2, 2] = 7
    t[0:3, 2:5] *= 2


def _steps(t: Any) -> None:
    t[::2] = t[1::2]
    t[::-1] += t[0]
    t[1:5:3, ::2] = 9


def _through_itself(t: Any) -> None:
    t[1:] = t[:-1]
    t[:, 1:] += t[:, :-1]
    t[2:5] = t[3:6]


def _reversed(t: Any) -> None:
    t[0:3] = t[5:2:-1]
    t[5:2:-1] = t[0:3]


def _elements(t: Any) -> None:
    for i in range(6):
        for j in range(0, 5, 2):
            t[i, j] = t[j, i % 5] + i


def _once(t: Any) -> None:
    t[:3] *= 10
    t[-1] -= t[0]
    t[:3] *= 10


def _all_then_some(t: Any) -> None:
    t[...] = t + 1
    t[2] = 0
    t[...] += t[1:2]
    t[3:5, 1] = t[0, 0]


WRITES: list[Write] = [
    _swap_rows,
    _columns,
    _nested,
    _steps,
    _through_itself,
    _reversed,
    _elements,
    _once,
    _all_then_some,
]


@pytest.mark.parametrize("how", ["in place", "lent", "shared", "shown", "lazy", "every step"])
@pytest.mark.parametrize("write", WRITES)
def test_against_numpy(write: Write, how: str) -> None:
    """NumPy keeps program order; where it lets a write read what the same write changed, it says
    so: it copies overlapping operands first, as we do."""
    start = np.arange(30, dtype=np.int32).reshape(6, 5)
    wanted = start.copy()
    write(wanted)
    array = start.copy()
    t = Tensor.from_numpy(array) if how == "lent" else Tensor(start)
    if how == "lazy":
        t = t * 2 - t
    else:
        t.realize()
    lazy_before = t + 1
    other = t.clone() if how == "shared" else None
    shown = t.numpy() if how == "shown" else None
    if how == "every step":
        assign = Tensor.assign

        def at_once(self: Tensor, value: object) -> Tensor:
            return assign(self, value).realize()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tensor, "assign", at_once)
            write(t)
    else:
        write(t)
    lazy_after = t * 3
    np.testing.assert_array_equal(t.numpy(), wanted)
    np.testing.assert_array_equal(lazy_before.numpy(), start + 1)
    np.testing.assert_array_equal(lazy_after.numpy(), wanted * 3)
    if other is not None:
        np.testing.assert_array_equal(other.numpy(), start)
    if shown is not None:
        np.testing.assert_array_equal(shown, start)
    if how == "lent":
        np.testing.assert_array_equal(array, wanted)


def test_parts_are_stored_in_place() -> None:
    t = Tensor(np.zeros((8, 4), np.float32)).realize()
    view = memory.memory_of(t)
    assert view is not None
    place = buffer_of(engine.base_of(view)).ptr
    t[1] = 1
    t[3:5] = Tensor([2.0, 3.0, 4.0, 5.0])
    t[1, 2] = 9  # within the first
    t[6, 1:3] += 1
    assert t._parts is not None
    assert t._parts.boxes is not None
    assert len(t._parts.boxes) == 3
    t.realize()
    assert t._parts is None
    view = memory.memory_of(t)
    assert view is not None
    assert buffer_of(engine.base_of(view)).ptr == place
    assert t.tolist() == [
        [0] * 4,
        [1, 1, 9, 1],
        [0] * 4,
        [2, 3, 4, 5],
        [2, 3, 4, 5],
        [0] * 4,
        [0, 1, 1, 0],
        [0] * 4,
    ]


def test_other_places_and_other_numbers_lower_nothing_new() -> None:
    t = Tensor(np.zeros((500, 8), np.float32)).realize()
    row = Tensor(np.arange(8, dtype=np.float32)).realize()
    lowered = []
    for i in range(5):
        t[i + 3] = row
        t.realize()
        t[2 * i] += row * t[490 + i]
        t.realize()
        t[i, :] = i
        t.realize()
        lowered.append(engine.stats.lowered)
    assert lowered[1:] == lowered[:1] * 4
    (t[7:9] * 2).realize()
    before = engine.stats.lowered
    assert (t[100:102] * 2).tolist() == [[0] * 8] * 2
    assert engine.stats.lowered == before


def test_many_writes_wait_in_bounded_depth() -> None:
    """A loop that writes element after element: the value does not nest ever deeper, and after the
    first batches nothing is lowered."""
    n = 6 * MOST
    t = Tensor.zeros(n, 2, dtype=dtypes.int32)
    lowered = []
    for i in range(n):
        t[i] = i
        lowered.append(engine.stats.lowered)
    assert t.sum(1).tolist() == [2 * i for i in range(n)]
    assert lowered[-1] == lowered[3 * MOST + 3]


def test_a_write_to_a_part_is_undone_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor(np.zeros(3 * MOST, np.int32)).realize()
    for i in range(MOST):
        t[i] = i

    def broken(roots: object) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "realize", broken)
        with pytest.raises(MemoryError):
            t[MOST] = 1000
    assert t.tolist() == [*range(MOST), *[0] * 2 * MOST]
    t[MOST] = 1000
    assert t[MOST].item() == 1000


def test_gradients_flow_into_written_parts() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = Tensor(np.zeros(5, np.float32)).realize()
    t[1:4] = x * x
    t[0] = 7
    t.realize()
    (t * Tensor([1.0, 10.0, 100.0, 1000.0, 1.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20, 400, 6000]
    assert t.tolist() == [7, 1, 4, 9, 0]
