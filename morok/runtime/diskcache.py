"""A cache on disk that many processes share and that is never the cause of a wrong answer.

One entry is one file, named by its key in hex:

    "MOROKC1\\n" | length of key (1 byte) | length of value (8) | checksum (32) | key | value

Files are written aside and renamed into place, so a reader sees a whole entry or none. Whatever is
odd (an unreadable directory, somebody else's file, a wrong length or checksum) is a miss.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from morok import config

MAGIC = b"MOROKC1\n"
MIN_KEY, MAX_KEY = 16, 64
STALE_SECONDS = 3600.0  # a temporary file this old was left by a process that died
_HEADER = len(MAGIC) + 1 + 8 + 32
_VERSION = "v1"  # of the layout: another one gets another directory
_TEMPORARY = ".new-"
_LOCK = ".lock"
_serial = count()


class DiskCache:
    """`get(key)` and `put(key, value)` of bytes under a directory of the user's own.

    The files lie in `path/v1`, made at the first `put` with mode 0700. If that belongs to somebody
    else, or others can write to it and we cannot forbid it, it is not used: `problem` says why.
    `max_bytes` bounds the sum of the files (within a sixteenth); the entries used longest ago go
    first. 0 turns the cache off. Safe with any number of processes and threads, and after a fork.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.problem: str | None = None if max_bytes else "it is turned off (size 0)"
        self._directory: int | None = None
        self._unswept = 0  # bytes written since the last sweep

    def get(self, key: bytes) -> bytes | None:
        """The value stored under `key`, or None. Never raises for what is on the disk."""
        name = _name(key)
        directory = self._open(create=False)
        if directory is None:
            return None
        try:
            entry = self._read(directory, name, key)
        except OSError:
            return None
        if entry is None:  # damaged or foreign: make room for a good one
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
        return entry

    def put(self, key: bytes, value: bytes) -> bool:
        """Stores `value`, replacing what was there; whether that worked. Never raises for the disk.

        An entry larger than an eighth of the cache is not stored.
        """
        name = _name(key)
        if _HEADER + len(key) + len(value) > self._largest():
            return False
        for _ in range(2):  # a second time if somebody removed the directory meanwhile
            directory = self._open(create=True)
            if directory is None:
                return False
            try:
                self._write(directory, name, key, value)
            except FileNotFoundError:
                self._directory = None  # not closed: another thread may be using it
                continue
            except OSError:
                return False
            self._maybe_sweep(directory, key, _HEADER + len(key) + len(value))
            return True
        return False

    def _largest(self) -> int:
        return self.max_bytes // 8

    def clear(self) -> None:
        """Removes all entries."""
        directory = self._open(create=False)
        if directory is not None:
            for _, _, name in _entries(directory):
                with suppress(OSError):
                    os.unlink(name, dir_fd=directory)

    def size(self) -> tuple[int, int]:
        """(entries, bytes) on disk now."""
        directory = self._open(create=False)
        if directory is None:
            return 0, 0
        sizes = [size for _, size, name in _entries(directory) if not name.startswith(".")]
        return len(sizes), sum(sizes)

    # ---- the directory ---------------------------------------------------------------------------

    def _open(self, *, create: bool) -> int | None:
        """A descriptor of the directory, checked to be ours alone; None if there is none to use."""
        if self._directory is not None:
            return self._directory
        if self.max_bytes == 0:
            return None
        descriptor = -1
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)
                (self.path / _VERSION).mkdir(mode=0o700, exist_ok=True)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path / _VERSION, flags)
            self.problem = _not_private(descriptor)
        except FileNotFoundError:
            self.problem = None  # not made yet
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}"
        if descriptor >= 0 and self.problem is None:
            self._directory = descriptor
            weakref.finalize(self, os.close, descriptor)
            return descriptor
        if descriptor >= 0:
            os.close(descriptor)
        return None

    # ---- entries ---------------------------------------------------------------------------------

    def _read(self, directory: int, name: str, key: bytes) -> bytes | None:
        """A checked value; None if the entry must go; OSError if there is none to read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=directory)
        try:
            facts = os.fstat(descriptor)
            private = facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
            if not stat.S_ISREG(facts.st_mode) or not private or facts.st_size > self._largest():
                return None
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                value = _decode(file.read(), key)
            if value is not None:
                with suppress(OSError):  # say that it was used; a read-only disk will not note it
                    os.utime(descriptor)
            return value
        finally:
            os.close(descriptor)

    def _write(self, directory: int, name: str, key: bytes, value: bytes) -> None:
        aside = f"{_TEMPORARY}{os.getpid()}-{next(_serial)}-{time.monotonic_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600, dir_fd=directory)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                rest = memoryview(_encode(key, value))
                while rest:
                    rest = rest[file.write(rest) :]
            os.rename(aside, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside, dir_fd=directory)
            raise

    # ---- the bound -------------------------------------------------------------------------------

    def _maybe_sweep(self, directory: int, key: bytes, written: int) -> None:
        """Sweeps about once for every sixteenth of the bound that all processes write together.

        A process sweeps when it has written that much itself. So that many short processes sweep
        too, each write throws a die weighted by its size; the key serves as the die.
        """
        self._unswept += written
        share = self.max_bytes // 16 + 1
        die = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") / 2.0**64
        if self._unswept >= share or die < written / share:
            self._unswept = 0
            self._sweep_to(self.max_bytes)

    def _sweep_to(self, bound: int) -> None:
        """Removes what was left behind by the dead, then the oldest entries beyond `bound`."""
        directory = self._open(create=False)
        if directory is None:
            return
        with _sole_sweeper(directory) as alone:
            if not alone:
                return
            now = time.time()
            entries = []
            for used, size, name in _entries(directory):
                if not name.startswith("."):
                    entries.append((used, size, name))
                elif name.startswith(_TEMPORARY) and not 0 <= now - used < STALE_SECONDS:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)
            total = sum(size for _, size, _ in entries)
            if total <= bound:
                return
            keep = bound - bound // 8  # some air, so that the next write need not sweep again
            for _, size, name in sorted(entries):
                if total <= keep:
                    break
                with suppress(OSError):
                    os.unlink(name, dir_fd=directory)
                total -= size


def default_cache() -> DiskCache:
    """The cache the settings `cache_dir` and `cache_size` ask for."""
    settings = config.get()
    wanted = (settings.cache_dir, settings.cache_size)
    cache = _caches.get(wanted)
    if cache is None:
        if len(_caches) > 16:
            _caches.clear()
        cache = _caches.setdefault(wanted, DiskCache(*wanted))
    return cache


_caches: dict[tuple[Path, int], DiskCache] = {}


def _name(key: bytes) -> str:
    if not isinstance(key, bytes):
        raise TypeError(f"a key of the disk cache is bytes, not {type(key).__name__}")
    if not MIN_KEY <= len(key) <= MAX_KEY:
        raise ValueError(f"a key of {len(key)} bytes: expected {MIN_KEY} to {MAX_KEY}")
    return key.hex()


def _checksum(key: bytes, value: bytes) -> bytes:
    digest = hashlib.blake2b(key, digest_size=32)
    digest.update(value)
    return digest.digest()


def _encode(key: bytes, value: bytes) -> bytes:
    sizes = len(key).to_bytes(1, "little") + len(value).to_bytes(8, "little")
    return b"".join((MAGIC, sizes, _checksum(key, value), key, value))


def _decode(content: bytes, key: bytes) -> bytes | None:
    """The value if `content` is a whole, undamaged entry of `key`."""
    if len(content) < _HEADER + len(key):
        return None
    value = content[_HEADER + len(key) :]
    return value if content == _encode(key, value) else None


def _not_private(descriptor: int) -> str | None:
    """Why the open directory is not the user's alone, after closing it to others; None if it is."""
    facts = os.fstat(descriptor)
    if facts.st_uid != os.geteuid():
        return f"its directory belongs to user {facts.st_uid}, not to us"
    if stat.S_IMODE(facts.st_mode) & 0o077:
        with suppress(OSError):
            os.fchmod(descriptor, 0o700)
        if os.fstat(descriptor).st_mode & 0o022:
            return "others can write to its directory"
    return None


def _entries(directory: int) -> Iterator[tuple[float, int, str]]:
    """(time of last use, bytes, name) of all files in the directory."""
    # Opened anew: a descriptor shared with other threads or a forked child shares its position.
    try:
        own = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return
    try:
        with suppress(OSError), os.scandir(own) as found:
            for entry in found:
                with suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    yield facts.st_mtime, facts.st_size, entry.name
    finally:
        os.close(own)


@contextmanager
def _sole_sweeper(directory: int) -> Iterator[bool]:
    """Whether we are the only process sweeping; the lock dies with its holder."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(_LOCK, flags, 0o600, dir_fd=directory)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
