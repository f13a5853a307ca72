"""The cache on disk: what it stores, what it refuses, how it stays small."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok import config
from morok.runtime import DiskCache, default_cache

KEY = bytes(range(32))


def key(number: int) -> bytes:
    return number.to_bytes(4, "little") * 8


def entry(cache: DiskCache, of: bytes = KEY):
    return cache.path / "v1" / of.hex()


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "deep" / "cache", 1 << 20)


def test_what_is_put_is_got(cache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"value")
    assert cache.get(KEY) == b"value"
    assert cache.get(key(1)) is None
    assert DiskCache(cache.path, 1 << 20).get(KEY) == b"value"
    assert cache.size() == (1, entry(cache).stat().st_size)


@pytest.mark.parametrize("value", [b"", b"\x00", b"MOROKC1\n", bytes(range(256)) * 400])
def test_any_bytes_are_a_value(cache, value):
    assert cache.put(KEY, value)
    assert cache.get(KEY) == value


def test_a_later_value_replaces(cache):
    cache.put(KEY, b"one")
    cache.put(KEY, b"two")
    assert cache.get(KEY) == b"two"
    assert cache.size()[0] == 1


def test_reading_makes_no_directory(cache):
    assert cache.get(KEY) is None
    assert not cache.path.exists()
    assert cache.size() == (0, 0)
    cache.clear()
    assert not cache.path.exists()


def test_it_is_private(cache):
    old = os.umask(0)
    try:
        cache.put(KEY, b"value")
    finally:
        os.umask(old)
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(cache).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(cache).stat().st_mode) == 0o600


def test_a_directory_of_the_users_keeps_its_mode(tmp_path):
    """Only what is the cache's own is closed to others, not what contains it."""
    tmp_path.chmod(0o755)
    cache = DiskCache(tmp_path, 1 << 20)
    assert cache.put(KEY, b"value")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "v1").chmod(0o777)
    again = DiskCache(tmp_path, 1 << 20)
    assert again.get(KEY) == b"value"
    assert stat.S_IMODE((tmp_path / "v1").stat().st_mode) == 0o700


def test_only_digests_are_keys(cache):
    for bad in (b"", b"short", bytes(65)):
        with pytest.raises(ValueError, match="bytes: expected 16 to 64"):
            cache.get(bad)
        with pytest.raises(ValueError, match="bytes: expected 16 to 64"):
            cache.put(bad, b"")
    with pytest.raises(TypeError, match="str"):
        cache.get("a" * 32)
    assert cache.put(bytes(16), b"16")
    assert cache.put(bytes(64), b"64")
    assert cache.get(bytes(16)) == b"16"
    assert cache.get(bytes(64)) == b"64"


def test_turned_off(tmp_path):
    cache = DiskCache(tmp_path / "cache", 0)
    assert not cache.put(KEY, b"value")
    assert cache.get(KEY) is None
    assert "turned off" in cache.problem
    assert not cache.path.exists()


def test_the_settings_say_where(tmp_path):
    with config.override(cache_dir=tmp_path / "here", cache_size=12345):
        cache = default_cache()
        assert (cache.path, cache.max_bytes) == (tmp_path / "here", 12345)
        assert default_cache() is cache
        with config.override(cache_size=0):
            assert default_cache().max_bytes == 0


def test_clearing_leaves_it_usable(cache):
    for number in range(5):
        cache.put(key(number), b"value")
    cache.clear()
    assert cache.size() == (0, 0)
    assert cache.get(key(1)) is None
    assert cache.put(KEY, b"value")
    assert cache.get(KEY) == b"value"


# ---- the bound -----------------------------------------------------------------------------------


def test_it_stays_within_its_bound(tmp_path):
    cache = DiskCache(tmp_path, 100_000)
    for number in range(500):
        assert cache.put(key(number), bytes(1000))
        assert cache.size()[1] <= 100_000 * 17 // 16 + 2000
    assert cache.size()[1] >= 50_000
    assert cache.get(key(499)) == bytes(1000)


def test_many_short_processes_stay_within_the_bound(tmp_path):
    """A new object a write is what many processes look like to the directory."""
    for number in range(2000):
        DiskCache(tmp_path, 100_000).put(hashlib.sha256(key(number)).digest(), bytes(1000))
    assert 50_000 <= DiskCache(tmp_path, 100_000).size()[1] <= 160_000


def test_what_was_used_longest_ago_goes_first(tmp_path):
    cache = DiskCache(tmp_path, 20_000)
    for number in range(10):
        cache.put(key(number), bytes(1000))
        os.utime(entry(cache, key(number)), (number + 1, number + 1))
    assert cache.get(key(0)) == bytes(1000)  # the oldest, but used just now
    for number in range(10, 22):
        cache.put(key(number), bytes(1000))
    assert cache.get(key(0)) is not None
    assert cache.get(key(1)) is None
    assert cache.get(key(2)) is None
    assert cache.get(key(21)) is not None


def test_a_value_too_large_is_not_stored(tmp_path):
    cache = DiskCache(tmp_path, 80_000)
    cache.put(KEY, b"value")
    assert not cache.put(key(1), bytes(10_001))
    assert cache.get(key(1)) is None
    assert cache.get(KEY) == b"value"


def test_a_smaller_bound_shrinks_it(tmp_path):
    large = DiskCache(tmp_path, 1 << 20)
    for number in range(100):
        large.put(key(number), bytes(5000))
    small = DiskCache(tmp_path, 100_000)
    small.put(KEY, bytes(8000))
    assert small.size()[1] <= 100_000
    assert small.get(KEY) == bytes(8000)


def test_what_the_dead_left_is_swept(tmp_path):
    cache = DiskCache(tmp_path, 16_000)
    cache.put(KEY, b"value")
    left, fresh = entry(cache).parent / ".new-1-1-1", entry(cache).parent / ".new-2-2-2"
    left.write_bytes(b"half an ent")
    fresh.write_bytes(b"half an ent")
    long_ago = time.time() - 7200
    os.utime(left, (long_ago, long_ago))
    for number in range(3):
        cache.put(key(number), bytes(1500))
    assert not left.exists()
    assert fresh.exists()
    assert cache.get(KEY) == b"value"


def test_only_one_sweeps_at_a_time(tmp_path):
    cache = DiskCache(tmp_path, 16_000)
    cache.put(KEY, b"value")
    with (tmp_path / "v1" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in range(30):
            assert cache.put(key(number), bytes(1500))
        assert cache.size()[0] == 31
    cache.put(key(99), bytes(1500))
    assert cache.size()[1] <= 16_000


# ---- threads -------------------------------------------------------------------------------------


def test_threads_share_one_object(cache):
    wrong = []

    def work(seed: int) -> None:
        for turn in range(100):
            number = (seed * 7 + turn) % 20
            got = cache.get(key(number))
            if got not in (None, bytes([number]) * 3000):
                wrong.append(number)
            cache.put(key(number), bytes([number]) * 3000)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not [path for path in entry(cache).parent.iterdir() if path.name.startswith(".new")]


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 255))
def test_no_flipped_bits_get_through(tmp_path_factory, value, position, flip):
    cache = DiskCache(tmp_path_factory.getbasetemp() / "flipped", 1 << 20)
    cache.put(KEY, value)
    content = bytearray(entry(cache).read_bytes())
    content[position % len(content)] ^= flip
    entry(cache).write_bytes(content)
    assert cache.get(KEY) is None
    assert cache.put(KEY, value)
    assert cache.get(KEY) == value
