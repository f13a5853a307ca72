"""Writes follow program order, whatever is lazy, shared, shown or aliased."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from morok import engine
from morok._core import node_stats
from morok.dtype import dtypes
from morok.errors import DTypeError, ShapeError
from morok.tensor import Tensor, memory, no_grad


def base_of(tensor: Tensor) -> int:
    view = memory.memory_of(tensor)
    assert view is not None
    return engine.buffers.buffer_of(memory.base_of(view)).ptr


def test_lazy_reader_sees_the_old_value() -> None:
    a = Tensor([1, 2, 3]).realize()
    b = a + 1
    a.assign(Tensor([10, 20, 30]))
    c = a + 1
    a.realize()
    assert b.tolist() == [2, 3, 4]
    assert a.tolist() == [10, 20, 30]
    assert c.tolist() == [11, 21, 31]


def test_write_reuses_memory_when_nobody_looks() -> None:
    a = Tensor([1.0, 2.0]).realize()
    place = base_of(a)
    for _ in range(3):
        a += 1
        a.realize()
        assert base_of(a) == place
    assert a.tolist() == [4, 5]


def test_array_shown_to_the_user_never_changes() -> None:
    a = Tensor([1.0, 2.0])
    shown = a.numpy()
    part = shown[1:]
    del shown
    a += 5
    assert a.tolist() == [6, 7]
    assert part.tolist() == [2]


def test_same_value_in_one_memory_is_told_apart() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    Tensor.realize(a, b)
    a += 1
    a.realize()
    assert (a.tolist(), b.tolist()) == ([1, 1, 1], [0, 0, 0])
    c = Tensor([1, 2]).realize()
    d, e = c.detach(), Tensor(c)
    c += 1
    c.realize()
    assert (c.tolist(), d.tolist(), e.tolist()) == ([2, 3], [1, 2], [1, 2])


def test_equal_leaves_do_not_share_memory() -> None:
    a, b = Tensor.zeros(3, requires_grad=True), Tensor.zeros(3, requires_grad=True)
    Tensor.realize(a, b)
    with no_grad():
        a += 1
    Tensor.realize(a)
    assert (a.tolist(), b.tolist()) == ([1, 1, 1], [0, 0, 0])


def test_two_tensors_exchange_values() -> None:
    a, b = Tensor([1, 2]).realize(), Tensor([3, 4]).realize()
    old = a + 0
    a.assign(b)
    b.assign(old)
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])


def test_moving_within_itself() -> None:
    """Each element is read before it is overwritten."""
    v = np.arange(9, dtype=np.int32).reshape(3, 3)
    a, b, c = Tensor(v).realize(), Tensor(v).realize(), Tensor(v).realize()
    a.assign(a.T)
    b.assign(b.flip(0, 1))
    c.assign(c.roll(1, 0))
    Tensor.realize(a, b, c)
    np.testing.assert_array_equal(a.numpy(), v.T)
    np.testing.assert_array_equal(b.numpy(), v[::-1, ::-1])
    np.testing.assert_array_equal(c.numpy(), np.roll(v, 1, 0))


def test_alias_writes_through() -> None:
    source = np.array([1, 2, 3], np.int32)
    a = Tensor.from_numpy(source)
    before, same = a * 10, a.detach()
    a += 1
    assert source.tolist() == [1, 2, 3]  # nothing runs before it is asked for
    a.realize()
    assert source.tolist() == [2, 3, 4]
    assert (before.tolist(), same.tolist(), a.tolist()) == ([10, 20, 30], [1, 2, 3], [2, 3, 4])
    a += 1
    a.realize()
    assert source.tolist() == [3, 4, 5]
    same += 100
    same.realize()
    assert source.tolist() == [3, 4, 5]


def test_read_only_arrays_are_never_written() -> None:
    source = np.array([1, 2], np.int32)
    source.flags.writeable = False
    a = Tensor.from_numpy(source)
    a += 1
    assert a.tolist() == [2, 3]
    assert source.tolist() == [1, 2]


def test_chain_of_writes() -> None:
    a = Tensor([1]).realize()
    seen = []
    for _ in range(4):
        seen.append(a * 10)
        a += 1
    assert a.item() == 5
    assert [t.item() for t in seen] == [10, 20, 30, 40]


def test_pending_writes_of_readers_are_kept() -> None:
    a, b = Tensor([1]).realize(), Tensor([5]).realize()
    b.assign(a * 2)
    a += 1
    a.realize()
    assert b.item() == 2
    assert a.item() == 2


def test_assign_casts_and_broadcasts() -> None:
    a = Tensor([[1, 2], [3, 4]]).realize()
    a.assign(Tensor([7.9, -1.0]))
    assert a.tolist() == [[7, -1], [7, -1]]
    a.fill_(3)
    a[0] = Tensor([8, 9])
    assert a.tolist() == [[8, 9], [3, 3]]
    with pytest.raises(ShapeError, match=r"assign: shape \(3,\)"):
        a.assign(Tensor([1, 2, 3]))
    with pytest.raises(DTypeError, match="div_"):
        a /= 2
    small = Tensor([1])
    with pytest.raises(ShapeError, match="add_"):
        small += Tensor([1, 2])


def test_in_place_operators() -> None:
    a = Tensor([12, 5])
    a += 3
    a -= 1
    a *= 2
    a //= 3
    a %= 7
    a <<= 2
    a >>= 1
    a |= 1
    a &= 0xFF
    a ^= 2
    wanted = [((((n + 2) * 2 // 3) % 7) << 1 | 1) ^ 2 for n in (12, 5)]
    assert a.tolist() == wanted
    assert a.dtype is dtypes.int32
    f = Tensor([4.0])
    f /= 2
    f **= 3
    assert f.item() == 8


def test_failure_leaves_tensors_as_they_were(monkeypatch) -> None:
    a = Tensor([1, 2]).realize()
    b = a + 1
    a.assign(b)

    def broken(roots):
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "realize", broken)
        with pytest.raises(MemoryError):
            a.realize()
    assert a.tolist() == [2, 3]
    assert b.tolist() == [2, 3]


def test_memory_does_not_grow_with_steps() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    node_counts = []
    for _ in range(12):
        weight.grad = None
        (weight * weight).sum().backward()
        with no_grad():
            weight.assign(weight - weight.grad * 0.1)
        Tensor.realize(weight, weight.grad)
        node_counts.append(node_stats()["live"])
    assert max(node_counts[4:]) == min(node_counts[4:])


def test_threads_get_the_right_answers() -> None:
    """The same and different graphs, and writes, from several threads."""
    shared = Tensor(np.arange(8, dtype=np.float32)).realize()
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            own = Tensor.zeros(8)
            for step in range(20):
                same, different = (shared + 1).sum(), (shared * number).sum()
                own += number
                Tensor.realize(same, different, own)
                got = (same.item(), different.item(), own.tolist())
                if got != (36, 28 * number, [number * (step + 1)] * 8):
                    wrong.append((number, step, got))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


SAME_VALUE = {
    "reshape": lambda x: x.reshape(x.shape),
    "cast": lambda x: x.cast(x.dtype),
    "plus": lambda x: +x,
    "power of one": lambda x: x**1,
    "abs": lambda x: x.abs(),
    "floor": lambda x: x.floor(),
    "pad by nothing": lambda x: x.pad((0, 0)),
    "roll by nothing": lambda x: x.roll(0, 0),
    "dropout at rest": lambda x: x.dropout(0.5, training=False),
}


@pytest.mark.parametrize("method", SAME_VALUE.values(), ids=SAME_VALUE)
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.float32])
def test_what_changes_nothing_still_gives_a_value(method, dtype) -> None:
    """A write to the result is no write to the operand, whatever the dtype, shape or amount."""
    x = Tensor([3, 4], dtype=dtype)
    y = method(x)
    y += 1
    assert (x.tolist(), y.tolist()) == ([3, 4], [4, 5])
