"""Truncated, garbage, foreign-owned or read-only cache; killed while writing; 8 cold
processes at once: always the right answer."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from morok import config
from morok.runtime import (
    Buffer,
    CCompiler,
    DiskCache,
    ExecutionPlan,
    KernelSource,
    build_kernels,
)

KEY = bytes(range(32))
VALUE = b"the right answer " * 40
OTHER_USER = 65534
ABI = "(void **bufs, const long *vars, void *scratch, long lo, long hi)"

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    cache = DiskCache(tmp_path / "cache", 1 << 24)
    assert cache.put(KEY, VALUE)
    return cache


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory other users can get to, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def entry(cache: DiskCache) -> Path:
    return cache.path / "v1" / KEY.hex()


def works_again(cache: DiskCache) -> None:
    """Whatever happened is a miss, and the cache takes the value anew."""
    assert cache.get(KEY) is None
    assert cache.put(KEY, VALUE)
    assert cache.get(KEY) == VALUE
    assert DiskCache(cache.path, 1 << 24).get(KEY) == VALUE


def in_child(work: Callable[[], None], *, user: int | None = None) -> None:
    """Runs `work` in a forked process, as another user if asked; fails if it fails."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            work()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- damaged entries -----------------------------------------------------------------------------


def test_truncated_at_every_length(cache):
    whole = entry(cache).read_bytes()
    for length in range(len(whole)):
        entry(cache).write_bytes(whole[:length])
        assert cache.get(KEY) is None, length
        entry(cache).write_bytes(whole)
        assert cache.get(KEY) == VALUE
    entry(cache).write_bytes(whole + b"\0")
    works_again(cache)


@pytest.mark.parametrize("seed", range(20))
def test_garbage(cache, seed):
    noise = random.Random(seed)
    whole = bytearray(entry(cache).read_bytes())
    if seed % 2:
        whole = bytearray(noise.randbytes(noise.randrange(2000)))
    else:
        start = noise.randrange(len(whole))
        whole[start : start + 8] = noise.randbytes(8)
    entry(cache).write_bytes(whole)
    works_again(cache)


def test_holes_left_by_a_crash_of_the_machine(cache):
    """The name was written but not the blocks: zeros of the right length."""
    size = entry(cache).stat().st_size
    entry(cache).write_bytes(bytes(size))
    works_again(cache)


def test_another_entrys_content(cache):
    other = KEY[::-1]
    cache.put(other, b"the answer to another question")
    entry(cache).write_bytes((cache.path / "v1" / other.hex()).read_bytes())
    works_again(cache)


def test_a_link_to_a_good_entry_is_not_followed(cache, tmp_path):
    entry(cache).rename(tmp_path / "elsewhere")
    entry(cache).symlink_to(tmp_path / "elsewhere")
    works_again(cache)
    assert (tmp_path / "elsewhere").exists()


def test_a_pipe_does_not_hang(cache):
    entry(cache).unlink()
    os.mkfifo(entry(cache))
    works_again(cache)


def test_a_directory_in_place_of_an_entry(cache):
    entry(cache).unlink()
    entry(cache).mkdir()
    assert cache.get(KEY) is None
    assert not cache.put(KEY, VALUE)
    assert cache.put(KEY[::-1], VALUE)


# ---- other people --------------------------------------------------------------------------------


def test_an_entry_others_can_write(cache):
    entry(cache).chmod(0o666)
    works_again(cache)


@only_root
def test_a_foreign_entry(cache):
    os.chown(entry(cache), OTHER_USER, -1)
    works_again(cache)


@only_root
def test_a_foreign_directory(cache):
    os.chown(entry(cache).parent, OTHER_USER, -1)
    again = DiskCache(cache.path, 1 << 24)
    assert again.get(KEY) is None
    assert not again.put(KEY, VALUE)
    assert f"user {OTHER_USER}" in again.problem
    assert again.size() == (0, 0)
    os.chown(entry(cache).parent, os.geteuid(), -1)
    assert again.get(KEY) == VALUE
    assert again.problem is None


def test_a_foreign_directory_as_seen_by_anybody(cache, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    assert cache.get(KEY) is None  # opened before, but the entry is another user's
    again = DiskCache(cache.path, 1 << 24)
    assert again.get(KEY) is None
    assert not again.put(KEY, VALUE)


@only_root
def test_a_cache_another_user_planted(reachable):
    """Somebody made the directory, with a poisoned entry in it, before we came."""

    def plant() -> None:
        assert DiskCache(reachable / "cache", 1 << 24).put(KEY, b"poison")

    in_child(plant, user=OTHER_USER)
    assert (reachable / "cache").stat().st_uid == OTHER_USER
    ours = DiskCache(reachable / "cache", 1 << 24)
    assert ours.get(KEY) is None
    assert not ours.put(KEY, VALUE)


def read_only_as_its_owner(cache: DiskCache) -> None:
    fresh = DiskCache(cache.path, 1 << 24)
    assert fresh.get(KEY) == VALUE
    assert not fresh.put(KEY[::-1], VALUE)
    assert not fresh.put(KEY, b"another")
    assert fresh.get(KEY) == VALUE
    fresh.clear()
    assert fresh.get(KEY) == VALUE


def test_a_read_only_cache_is_read(reachable):
    cache = DiskCache(reachable / "cache", 1 << 24)
    assert cache.put(KEY, VALUE)
    user = OTHER_USER if os.geteuid() == 0 else None  # root may write anywhere
    if user is not None:
        for path in (cache.path, entry(cache).parent, entry(cache)):
            os.chown(path, user, -1)
    entry(cache).parent.chmod(0o500)
    try:
        in_child(lambda: read_only_as_its_owner(cache), user=user)
    finally:
        entry(cache).parent.chmod(0o700)


# ---- unusable places -----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a file", "below a file", "a dead link", "v1 is a file"])
def test_places_where_no_directory_can_be(tmp_path, place):
    (tmp_path / "file").write_text("something else")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at all")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "v1").write_text("something else")
    path = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "cache",
        "a dead link": tmp_path / "link",
        "v1 is a file": tmp_path / "taken",
    }[place]
    cache = DiskCache(path, 1 << 24)
    for _ in range(2):
        assert cache.get(KEY) is None
        assert not cache.put(KEY, VALUE)
    assert cache.problem
    assert (tmp_path / "file").read_text() == "something else"


def test_a_user_without_a_home(monkeypatch):
    def unknown(_):
        raise KeyError("no such user")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("MOROK_CACHE_DIR", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert config.from_environment().cache_dir == Path(f"/tmp/morok-{os.getuid()}")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert config.from_environment().cache_dir.is_absolute()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert config.from_environment().cache_dir == Path("/somewhere/morok")


def test_removed_while_in_use(cache):
    shutil.rmtree(cache.path)
    works_again(cache)


def test_no_space_left(cache):
    """A limit on the size of files fails like a full disk, in the middle of a write."""

    def write_too_much() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        assert not cache.put(KEY, bytes(100_000))
        assert cache.get(KEY) == VALUE
        assert cache.put(KEY[::-1], b"small")

    in_child(write_too_much)
    assert cache.get(KEY) == VALUE
    assert cache.get(KEY[::-1]) == b"small"
    assert sorted(path.name for path in entry(cache).parent.iterdir() if path.name[0] == ".") == []


# ---- killed --------------------------------------------------------------------------------------


def answer(number: int) -> bytes:
    """A value of some size that says itself what it ought to be."""
    return hashlib.sha256(str(number).encode()).digest() * (200 + number * 37 % 3000)


def key_of(number: int) -> bytes:
    return hashlib.sha256(b"key %d" % number).digest()


def writer(path: Path, seed: int) -> int:
    """A process that writes until it is killed: its number."""
    child = os.fork()
    if child == 0:
        try:
            cache = DiskCache(path, 1 << 20)
            noise = random.Random(seed)
            while True:
                number = noise.randrange(40)
                cache.put(key_of(number), answer(number))
        finally:
            os._exit(1)
    return child


def test_killed_while_writing(tmp_path):
    """40 processes are killed at any point; sweeps happen meanwhile, as the bound is low."""
    noise = random.Random(38)
    reader = DiskCache(tmp_path / "cache", 1 << 20)
    hits = 0
    for seed in range(40):
        child = writer(tmp_path / "cache", seed)
        time.sleep(0.002 + noise.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for number in range(40):
            got = reader.get(key_of(number))
            assert got in (None, answer(number)), (seed, number)
            hits += got is not None
    assert hits > 100
    for number in range(40):
        reader.put(key_of(number), answer(number))
    assert reader.size()[1] <= (1 << 20) * 18 // 16


def test_readers_see_whole_values_while_others_write_and_sweep(tmp_path):
    children = [writer(tmp_path / "cache", seed) for seed in range(3)]
    reader = DiskCache(tmp_path / "cache", 1 << 20)
    hits = 0
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            for number in range(40):
                got = reader.get(key_of(number))
                assert got in (None, answer(number))
                hits += got is not None
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert hits > 100


# ---- the whole way: kernels ----------------------------------------------------------------------


def sources() -> list[KernelSource]:
    bodies = {
        "plus": "o[i] = o[i] + 3",
        "times": "o[i] = o[i] * 7",
        "square": "o[i] = o[i] * o[i]",
        "less": "o[i] = o[i] - i",
    }
    return [
        KernelSource(
            name,
            f"void {name}{ABI} {{ long *o = bufs[0]; for (long i = lo; i < hi; i++) {body}; }}",
        )
        for name, body in bodies.items()
    ]


def compute(kernels) -> list[int]:
    out = Buffer(8 * 10)
    values = out.view(np.int64)
    values[:] = np.arange(10)
    ExecutionPlan([(kernel, (0,), 0, 0, 10) for kernel in kernels], 1).run([out])
    return values.tolist()


RIGHT = [((i + 3) * 7) ** 2 - i for i in range(10)]


class Counting:
    def __init__(self, compiler: CCompiler) -> None:
        self.compiler = compiler
        self.compiled = 0

    @property
    def identity(self) -> str:
        return self.compiler.identity

    def compile_units(self, units):
        self.compiled += sum(len(unit) for unit in units)
        return self.compiler.compile_units(units)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(content[: len(content) * 2 // 3])
    elif how == "garbage":
        path.write_bytes(random.Random(1).randbytes(len(content)))
    elif how == "one bit":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "open to others":
        path.chmod(0o622)


@pytest.mark.parametrize(
    "how", ["missing", "empty", "truncated", "garbage", "one bit", "open to others"]
)
def test_each_file_of_the_cache_damaged_in_turn(tmp_path, how):
    cache = DiskCache(tmp_path / "cache", 1 << 24)
    compiler = Counting(CCompiler(cache=cache))
    assert compute(build_kernels(sources(), compiler, cache)) == RIGHT
    names = sorted(path.name for path in (cache.path / "v1").iterdir() if path.name[0] != ".")
    assert len(names) >= 6  # the compiler's answer, units, kernels
    for name in names:
        damage(cache.path / "v1" / name, how)
        again = DiskCache(cache.path, 1 << 24)
        compiler = Counting(CCompiler(cache=again))
        assert compute(build_kernels(sources(), compiler, again)) == RIGHT
    compiler = Counting(CCompiler(cache=cache))
    assert compute(build_kernels(sources(), compiler, cache)) == RIGHT
    assert compiler.compiled == 0


PROGRAM = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import test_damaged_disk_cache as case
from morok.runtime import CCompiler, default_cache, build_kernels
while time.time() < float(sys.argv[2]):
    pass
compiler = case.Counting(CCompiler())
kernels = build_kernels(case.sources(), compiler, default_cache())
print(json.dumps([case.compute(kernels), compiler.compiled]))
"""


def start_process(cache: Path, at: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(at)],
        env={**os.environ, "MOROK_CACHE_DIR": str(cache), "MOROK_CACHE_SIZE": "16M"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_eight_cold_processes_at_once(tmp_path):
    at = time.time() + 3  # all import first, then go
    processes = [start_process(tmp_path / "cache", at) for _ in range(8)]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    results = [json.loads(output) for output in outputs]
    assert [values for values, _ in results] == [RIGHT] * 8
    assert max(compiled for _, compiled in results) == 4
    later = json.loads(start_process(tmp_path / "cache", 0).communicate(timeout=100)[0])
    assert later == [RIGHT, 0]
    left = [path.name for path in (tmp_path / "cache" / "v1").iterdir()]
    assert not [name for name in left if name.startswith(".new")]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null", "/dev/null/cache"])
def test_without_a_usable_cache_everything_works(place):
    process = start_process(Path(place), 0)
    assert json.loads(process.communicate(timeout=100)[0]) == [RIGHT, 4]
    assert process.returncode == 0
