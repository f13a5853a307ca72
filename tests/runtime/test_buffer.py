"""Buffers and their pool."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok.errors import OutOfMemoryError, ShapeError
from morok.runtime import Buffer, clear_pool, memory_stats, reset_peak, set_pool_limit

HUGE = 2 << 20


@pytest.fixture(autouse=True)
def _fresh_pool():
    gc.collect()
    clear_pool()
    set_pool_limit(1 << 30)
    yield
    set_pool_limit(1 << 30)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 1024, 1025, 4096, 100_000, HUGE - 1])
def test_small_buffers_are_aligned_to_a_cache_line(nbytes):
    buffer = Buffer(nbytes)
    assert buffer.ptr % 64 == 0
    assert buffer.nbytes == len(buffer) == nbytes
    assert buffer.alignment >= 64
    assert not buffer.readonly
    assert not buffer.external
    assert buffer.base is None


@pytest.mark.parametrize("nbytes", [HUGE, HUGE + 1, 5 * HUGE + 12345])
def test_large_buffers_are_aligned_to_huge_pages(nbytes):
    buffer = Buffer(nbytes)
    assert buffer.ptr % HUGE == 0
    buffer.view(np.uint8)[...] = 7
    assert buffer.view(np.uint8)[-1] == 7


def test_size_zero_has_a_view():
    assert Buffer(0).view(np.float32).shape == (0,)
    assert Buffer(0).view(np.float32, (0, 3)).shape == (0, 3)


def test_views_share_memory_and_keep_it_alive():
    buffer = Buffer(40)
    floats = buffer.view(np.float32)
    floats[:] = np.arange(10)
    assert floats.shape == (10,)
    assert np.array_equal(buffer.view(np.float32, (2, 5)), [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    assert buffer.view(np.float32, (), 12) == 3
    assert buffer.view(np.float32, 2, offset=4).tolist() == [1, 2]
    assert bytes(buffer) == floats.tobytes()
    address, before = buffer.ptr, memory_stats()["live_buffers"]
    del buffer
    assert memory_stats()["live_buffers"] == before
    assert floats.ctypes.data == address
    assert floats[9] == 9
    del floats
    assert memory_stats()["live_buffers"] == before - 1


def test_memory_is_writable_through_the_buffer_protocol():
    buffer = Buffer(4)
    memory = memoryview(buffer)
    memory[1] = 200
    assert not memory.readonly
    assert buffer.view(np.uint8)[1] == 200


@pytest.mark.parametrize(
    ("shape", "offset"), [((11,), 0), ((10,), 4), ((3, 4), 0), ((1,), 40), ((1,), -4), ((-1,), 0)]
)
def test_views_outside_are_refused(shape, offset):
    with pytest.raises(ShapeError):
        Buffer(40).view(np.float32, shape, offset)


def test_negative_size_is_refused():
    with pytest.raises(ShapeError, match="-1 bytes"):
        Buffer(-1)


def test_a_buffer_cannot_be_filled_twice():
    buffer = Buffer(64)
    with pytest.raises(TypeError):
        buffer.__init__(128)
    assert buffer.nbytes == 64


def test_empty_object_is_harmless():
    nothing = Buffer.__new__(Buffer)
    assert nothing.nbytes == 0
    assert bytes(nothing) == b""


def test_impossible_size_raises_and_leaves_everything_usable():
    kept = Buffer(64)
    kept.view(np.uint8)[...] = 5
    for nbytes in (1 << 46, 1 << 50, (1 << 63) - 1):
        with pytest.raises(OutOfMemoryError) as caught:
            Buffer(nbytes)
        assert caught.value.requested == nbytes
        assert caught.value.in_use >= 64
        assert f"{nbytes:,} bytes" in str(caught.value)
        assert isinstance(caught.value, MemoryError)
    assert kept.view(np.uint8).tolist() == [5] * 64
    assert Buffer(64).nbytes == 64


def test_buffers_do_not_travel():
    with pytest.raises(TypeError, match="view"):
        pickle.dumps(Buffer(4))


def test_weak_references():
    buffer = Buffer(4)
    reference = weakref.ref(buffer)
    assert reference() is buffer
    del buffer
    assert reference() is None


# ---- memory of others ----------------------------------------------------------------------------


def test_wrapping_an_array_copies_nothing_and_keeps_it():
    array = np.arange(6, dtype=np.float64)
    reference = weakref.ref(array)
    buffer = Buffer.from_object(array)
    assert buffer.ptr == array.ctypes.data
    assert buffer.nbytes == 48
    assert buffer.external
    assert buffer.base is array
    buffer.view(np.float64)[2] = -1
    assert array[2] == -1
    del array
    assert reference() is not None
    del buffer
    assert reference() is None


def test_readonly_memory_gives_readonly_buffers():
    array = np.arange(6)
    array.flags.writeable = False
    for memory in (array, b"some bytes"):
        buffer = Buffer.from_object(memory)
        assert buffer.readonly
        assert not buffer.view(np.uint8).flags.writeable
        assert memoryview(buffer).readonly
        assert buffer.slice(0, 1).readonly
    assert not Buffer.from_object(bytearray(3)).readonly


@pytest.mark.parametrize("array", [np.zeros((3, 4)).T, np.zeros((3, 4))[:, :2], np.zeros(8)[::-1]])
def test_scattered_memory_is_refused(array):
    with pytest.raises(ShapeError, match="C-contiguous"):
        Buffer.from_object(array)


def test_objects_without_memory_are_refused():
    with pytest.raises(TypeError, match="int"):
        Buffer.from_object(3)


def test_wrapping_a_pointer_keeps_the_owner():
    array = np.arange(3, dtype=np.int32)
    reference = weakref.ref(array)
    buffer = Buffer.from_pointer(array.ctypes.data, array.nbytes, array)
    del array
    assert buffer.view(np.int32).tolist() == [0, 1, 2]
    assert not buffer.readonly
    assert Buffer.from_pointer(buffer.ptr, 4, buffer, readonly=True).readonly
    assert reference() is not None
    with pytest.raises(ShapeError):
        Buffer.from_pointer(0, 4, None)


def test_slices_are_parts_of_the_same_memory():
    buffer = Buffer(64)
    part = buffer.slice(16, 8)
    assert part.ptr == buffer.ptr + 16
    assert part.nbytes == 8
    assert part.base is buffer
    part.view(np.uint8)[...] = 9
    assert buffer.view(np.uint8)[16:24].tolist() == [9] * 8
    assert buffer.slice(64, 0).nbytes == 0
    for offset, nbytes in ((-1, 2), (60, 5), (65, 0), (0, -1), (1 << 62, 1 << 62)):
        with pytest.raises(ShapeError):
            buffer.slice(offset, nbytes)


# ---- the pool ------------------------------------------------------------------------------------


def test_freed_memory_is_used_again():
    first = Buffer(5000)
    address = first.ptr
    del first
    assert memory_stats()["pooled_blocks"] == 1
    assert Buffer(4990).ptr == address
    fresh = memory_stats()["taken_fresh"]
    for _ in range(10):
        Buffer(5000)
    assert memory_stats()["taken_fresh"] == fresh


def test_counters_return_to_where_they_were():
    before = memory_stats()
    buffers = [Buffer(n) for n in (10, 5000, 3 * HUGE)]
    wrapped = Buffer.from_object(bytearray(100))
    during = memory_stats()
    assert during["live_buffers"] == before["live_buffers"] + 3
    assert during["live_bytes"] >= before["live_bytes"] + 10 + 5000 + 3 * HUGE
    assert during["external_buffers"] == before["external_buffers"] + 1
    assert during["external_bytes"] == before["external_bytes"] + 100
    del buffers, wrapped
    after = memory_stats()
    for name in ("live_buffers", "live_bytes", "external_buffers", "external_bytes"):
        assert after[name] == before[name]
    assert after["peak_bytes"] >= during["live_bytes"]
    reset_peak()
    assert memory_stats()["peak_bytes"] == after["live_bytes"]
    clear_pool()
    assert memory_stats()["pooled_bytes"] == memory_stats()["pooled_blocks"] == 0


def test_the_pool_is_bounded_and_drops_the_oldest():
    set_pool_limit(20_000)
    buffers = [Buffer(4096) for _ in range(10)]
    addresses = [buffer.ptr for buffer in buffers]
    while buffers:
        buffers.pop(0)
    assert memory_stats()["pooled_bytes"] <= 20_000
    kept = {Buffer.ptr.__get__(buffer) for buffer in [Buffer(4096) for _ in range(4)]}
    assert kept == set(addresses[-4:])
    set_pool_limit(0)
    assert memory_stats()["pooled_bytes"] == 0
    Buffer(4096)
    assert memory_stats()["pooled_bytes"] == 0


@given(st.lists(st.tuples(st.integers(0, 3 << 20), st.booleans()), max_size=30))
def test_any_order_of_allocation_keeps_contents_apart(steps):
    set_pool_limit(4 << 20)
    alive = []
    for number, (nbytes, drop) in enumerate(steps):
        buffer = Buffer(nbytes)
        assert buffer.ptr % 64 == 0
        edges = buffer.view(np.uint8)
        edges[:4] = edges[-4:] = number
        alive.append((number, buffer))
        if drop:
            alive.pop(len(alive) // 2)
        assert memory_stats()["pooled_bytes"] <= 4 << 20
    for number, buffer in alive:
        assert set(buffer.view(np.uint8)[:4]) | set(buffer.view(np.uint8)[-4:]) <= {number}


@given(st.integers(1, 1 << 24))
def test_little_memory_is_wasted(nbytes):
    before = memory_stats()["live_bytes"]
    buffer = Buffer(nbytes)
    capacity = memory_stats()["live_bytes"] - before
    assert nbytes <= capacity <= max(nbytes * 9 / 8, nbytes + 64)
    assert capacity % 64 == 0
    del buffer
