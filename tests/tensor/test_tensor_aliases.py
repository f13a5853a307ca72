"""Tensors on memory that is lent several times, whole or in parts: they do as the arrays would."""

from __future__ import annotations

import random

import numpy as np
import pytest

from morok import engine
from morok.dtype import dtypes
from morok.engine import buffers
from morok.engine.overlap import Spans
from morok.errors import InvalidGraphError
from morok.ir import Ops, UOp
from morok.tensor import Tensor, no_grad


def test_spans_find_what_overlaps() -> None:
    """Against looking at all of them."""
    rng = random.Random(3)
    for count in (0, 1, 2, 3, 17, 64, 100):
        ends = [(begin := rng.randrange(60), begin + rng.randrange(12)) for _ in range(count)]
        spans = Spans((b, e, i) for i, (b, e) in enumerate(ends))
        assert len(spans) == count
        for begin in range(0, 75, 3):
            for end in (begin, begin + 1, begin + 9):
                wanted = [i for i, (b, e) in enumerate(ends) if max(b, begin) < min(e, end)]
                assert sorted(spans.overlapping(begin, end)) == wanted


def test_a_search_does_not_look_at_all_spans() -> None:
    """One long range over a thousand short ones must not make every search long."""
    looked = 0

    class Counted(int):
        def __le__(self, other: object) -> bool:
            nonlocal looked
            looked += 1
            return int(self) <= int(other)

    spans = Spans([(0, Counted(10000), -1), *((i, Counted(i + 8), i) for i in range(0, 8192, 8))])
    looked = 0
    assert spans.overlapping(4096, 4097) == [-1, 4096]
    assert looked < 64


@pytest.mark.parametrize("shift", [0, 1, 7])
@pytest.mark.parametrize("way", ["left", "right"])
def test_a_write_reads_what_was_there_before(shift: int, way: str) -> None:
    array = np.arange(64, dtype=np.int32)
    old, size = array.copy(), 64 - shift
    low, high = slice(0, size), slice(shift, 64)
    to, by = (low, high) if way == "left" else (high, low)
    a, b = Tensor.from_numpy(array[to]), Tensor.from_numpy(array[by])
    lazy, same = b * 10, b.clone()
    a += b
    wanted = old.copy()
    wanted[to] += old[by]
    np.testing.assert_array_equal(array, wanted)
    np.testing.assert_array_equal(a.numpy(), wanted[to])
    np.testing.assert_array_equal(b.numpy(), wanted[by])
    np.testing.assert_array_equal(lazy.numpy(), old[by] * 10)
    np.testing.assert_array_equal(same.numpy(), old[by])


def test_lazy_reads_of_an_alias_keep_the_old_value() -> None:
    array = np.arange(4, dtype=np.int32)
    a, b = Tensor.from_numpy(array), Tensor.from_numpy(array)
    before = b + 1
    a += 100
    after = b + 1
    assert before.tolist() == [1, 2, 3, 4]
    assert after.tolist() == [101, 102, 103, 104]
    b -= 100
    assert (a.tolist(), array.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_the_same_bytes_in_another_dtype() -> None:
    array = np.zeros(4, np.int32)
    a, f = Tensor.from_numpy(array), Tensor.from_numpy(array.view(np.float32))
    b = Tensor.from_numpy(array.view(np.uint8)[4:12])
    bits = f.bitcast(a.dtype) + 1
    f.assign(1.0)
    one = 0x3F800000
    assert array.tolist() == a.tolist() == [one] * 4
    assert bits.tolist() == [1] * 4
    assert b.tolist() == [0, 0, 0x80, 0x3F] * 2
    b[:4] = 0
    assert f.tolist() == [1, 0, 1, 1]
    a.assign(f.cast(a.dtype) + a)  # both names of the same bytes in one kernel
    assert array.tolist() == [one + 1, 0, one + 1, one + 1]


def test_disjoint_parts_stay_lazy_and_parts_of_parts_do_not() -> None:
    array = np.zeros((4, 3), np.int32)
    rows = [Tensor.from_numpy(row) for row in array]
    for number, row in enumerate(rows):
        row += number + 1
    assert not array.any()  # nothing overlaps, so nothing ran
    whole = Tensor.from_numpy(array)  # asks for what lies there now
    assert array.tolist() == whole.tolist() == [[1] * 3, [2] * 3, [3] * 3, [4] * 3]
    rows[2] *= 5
    assert whole.sum(1).tolist() == [3, 6, 45, 12]
    whole[1:] = whole[:-1]
    assert [row.tolist() for row in rows] == [[1] * 3, [1] * 3, [2] * 3, [15] * 3]


def test_an_alias_that_is_gone_is_not_asked() -> None:
    array = np.zeros(3, np.int32)
    a, b = Tensor.from_numpy(array), Tensor.from_numpy(array)
    del b
    a += 1
    assert array.tolist() == [0, 0, 0]
    a.realize()
    assert array.tolist() == [1, 1, 1]


def test_read_only_aliases_see_writes_and_make_none() -> None:
    array = np.zeros(3, np.int32)
    shown = array[1:]
    shown.flags.writeable = False
    a, b = Tensor.from_numpy(array), Tensor.from_numpy(shown)
    a += 1
    assert b.tolist() == [1, 1]
    b += 5  # in memory of its own from now on
    assert (array.tolist(), b.tolist()) == ([1, 1, 1], [6, 6])
    a += 1
    a.realize()
    assert (array.tolist(), b.tolist()) == ([2, 2, 2], [6, 6])


def test_a_leaf_sees_writes_to_its_memory() -> None:
    array = np.ones(3, np.float32)
    weight = Tensor.from_numpy(array).requires_grad_()
    other = Tensor.from_numpy(array[:2])
    other *= 5
    assert weight.tolist() == [5, 5, 1]
    (weight * weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [10, 10, 2]
    with no_grad():
        weight -= weight.grad * 0.1
    assert other.tolist() == [4, 4]
    assert array.tolist() == [4, 4, np.float32(0.8)]


def test_a_write_that_fails_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(3, dtype=np.int32)
    a, b = Tensor.from_numpy(array), Tensor.from_numpy(array)

    def broken(roots: object) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "realize", broken)
        with pytest.raises(MemoryError):
            a += 7
    assert (a.tolist(), b.tolist(), array.tolist()) == ([0, 1, 2],) * 3
    a += 7
    assert b.tolist() == [7, 8, 9]


def test_many_aliases_cost_what_they_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write looks at its neighbours, not at every array that was ever lent; the ranges are sorted
    once."""
    array = np.zeros((512, 4), np.float32)
    rows = [Tensor.from_numpy(row) for row in array]
    made = 0

    class Counted(Spans):
        def __init__(self, spans: object) -> None:
            nonlocal made
            made += 1
            super().__init__(spans)

    monkeypatch.setattr(buffers, "Spans", Counted)
    for _ in range(3):
        for row in rows[:20]:
            row += 1
        Tensor.realize(*rows[:20])
    assert array[:20].tolist() == [[3.0] * 4] * 20
    assert made <= 1 + 3  # all of them once, the arguments of each run once
    base = engine.base_of(rows[0].uop)
    assert buffers.overlapping(base) == []


def test_two_overlapping_writes_of_one_run_are_refused() -> None:
    array = np.zeros(4, np.int32)
    a, b = buffers.from_memory(array), buffers.from_memory(array[1:])

    def plus_one(node: UOp) -> UOp:
        value = node + 1
        return node.after(UOp(Ops.STORE, dtypes.void, (node, value)))

    with pytest.raises(InvalidGraphError, match="two writes of one run overlap"):
        engine.realize([plus_one(a), plus_one(b)])
    assert not array.any()
