"""From kernel sources to loaded kernels: cached on disk, compiled together, loaded once a process.

On disk a compiled translation unit lies under its content's digest, and each of its kernels under a
key of its own that names unit and symbol. So a kernel is found again whatever it was compiled with.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass
from threading import Condition, Thread
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from morok._core import Kernel, Library
from morok.errors import CompileError, DeviceError, InvalidGraphError
from morok.runtime.compiler import worker_count
from morok.runtime.diskcache import DiskCache, default_cache
from morok.runtime.profile import span

SCHEMA = b"kernel 1"  # of what is stored; part of every key

_kernels: WeakValueDictionary[bytes, Kernel] = WeakValueDictionary()
_libraries: WeakValueDictionary[bytes, Library] = WeakValueDictionary()
_units: WeakKeyDictionary[Library, bytes] = WeakKeyDictionary()
"""The unit that a library on disk was loaded from."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel's text, which defines one function, called `name`, with the kernel ABI.

    What else it defines at file scope is static and carries `name` in its own name, or is a
    typedef; then several sources can share a translation unit. `language` is "c" or "llvm": that
    of the compiler it is given to.
    """

    name: str
    text: str
    language: str = "c"


class UnitCompiler(Protocol):
    """What building needs of a compiler."""

    @property
    def identity(self) -> str: ...

    def compile_units(self, units: Sequence[Sequence[str]]) -> list[bytes]: ...


def build_kernels(
    sources: Sequence[KernelSource], compiler: UnitCompiler, cache: DiskCache | None = None
) -> list[Kernel]:
    """The loaded kernel of each source.

    A kernel in use in this process is shared, one on disk is loaded, and all others are compiled
    together in one go, on all CPUs. CompileError, or InvalidGraphError for LLVM IR that is none, is
    about the first kernel the compiler refuses; everything built before stays usable.
    """
    with Building(compiler, cache, beside=False) as building:
        for source in sources:
            building.add(source)
        return building.finish()


class Building:
    """Kernels that are built while the texts of later ones are still being made.

        with Building(compiler) as building:
            for kernel in …:
                building.add(source of kernel)
            kernels = building.finish()

    A kernel in use in this process is shared, one on disk is loaded, and others are compiled: by a
    thread that gives the compiler whatever is waiting, on all CPUs but the caller's, and in the end
    on all of them. Without `beside`, or with one CPU, all of it happens in the end.
    """

    def __init__(
        self, compiler: UnitCompiler, cache: DiskCache | None = None, *, beside: bool = True
    ) -> None:
        self._compiler = compiler
        self._cache = cache if cache is not None else default_cache()
        self._beside = worker_count() - 1 if beside else 0
        self._keys: list[bytes] = []
        self._asked: set[bytes] = set()
        self._ready: dict[bytes, Kernel | CompileError | InvalidGraphError] = {}
        self._waiting: dict[bytes, KernelSource] = {}  # nobody compiles these yet
        self._over = False
        self._changed = Condition()  # guards the three above
        self._failure: Exception | None = None  # of the thread; about no kernel
        self._thread: Thread | None = None

    def __enter__(self) -> Building:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def add(self, source: KernelSource) -> None:
        """One more kernel."""
        key = _key(source, self._compiler.identity)
        self._keys.append(key)
        if key in self._asked:
            return
        self._asked.add(key)
        kernel = _kernels.get(key) or _load(key, self._cache)
        with self._changed:
            if kernel is not None:
                self._ready[key] = kernel
                return
            self._waiting[key] = source
            self._changed.notify()
        if self._thread is None and self._beside:
            # In the settings of the caller.
            self._thread = Thread(target=copy_context().run, args=(self._work,), daemon=True)
            self._thread.start()

    def finish(self) -> list[Kernel]:
        """The loaded kernel of each source, in the order in which they were added.

        CompileError, or InvalidGraphError for LLVM IR that is none, is about the first kernel the
        compiler refuses; everything else that was built stays usable.
        """
        kernels = []
        for outcome in self.outcomes():
            if isinstance(outcome, Exception):
                raise outcome
            kernels.append(outcome)
        return kernels

    def outcomes(self) -> list[Kernel | CompileError | InvalidGraphError]:
        """As `finish`, with errors in the place of kernels."""
        with self._changed:
            self._over = True
            left, self._waiting = self._waiting, {}
            self._changed.notify()
        try:
            if left and self._failure is None:
                done = _compile(left, self._compiler, self._cache, _unit_count(left))
                with self._changed:
                    self._ready |= done
        finally:
            self.stop()
        if self._failure is not None:
            raise self._failure
        for key, kernel in self._ready.items():
            if isinstance(kernel, Kernel):
                _kernels[key] = kernel
        return [self._ready[key] for key in self._keys]

    def stop(self) -> None:
        """Have the thread end, and wait for it: what nobody compiles yet is not wanted any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with self._changed:
                self._over = True
                self._waiting.clear()
                self._changed.notify()
            if thread.is_alive():  # an interrupted start: it has nothing to do when it begins
                thread.join()

    def _work(self) -> None:
        """Compile what is waiting until it is over."""
        while True:
            with self._changed:
                while not self._waiting and not self._over:
                    self._changed.wait()
                if self._over:
                    return
                units = self._beside
                taken = list(self._waiting)[: MODULE_KERNELS * units]
                batch = {key: self._waiting.pop(key) for key in taken}
            try:
                done = _compile(batch, self._compiler, self._cache, min(units, len(batch)))
            except Exception as error:
                self._failure = error
                return
            with self._changed:
                self._ready |= done


def _key(source: KernelSource, identity: str) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for part in (SCHEMA, identity.encode(), source.name.encode(), source.text.encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


# ---- what is on disk -----------------------------------------------------------------------------


def _load(key: bytes, cache: DiskCache) -> Kernel | None:
    """The kernel stored under `key`; None, and nothing else, if anything about it is odd."""
    record = cache.get(key)
    if record is None or len(record) <= 32:
        return None
    return _from_unit(record[:32], record[32:].decode("ascii", errors="replace"), cache)


def _from_unit(unit: bytes, symbol: str, cache: DiskCache) -> Kernel | None:
    try:
        library = _libraries.get(unit)
        if library is None:
            image = cache.get(unit)
            if image is None:
                return None
            with span("load", symbol):
                library = Library(image, symbol)
            _libraries[unit] = library
            _units[library] = unit
        return library.kernel(symbol)
    except DeviceError:
        return None


class Place(NamedTuple):
    """Where a kernel is on disk."""

    unit: bytes
    symbol: str


def place_of(kernel: Kernel) -> Place | None:
    """Where a kernel is on disk, None if it is not."""
    unit = _units.get(kernel.library)
    return None if unit is None else Place(unit, kernel.name)


def load_kernel(place: Place, cache: DiskCache) -> Kernel | None:
    """The kernel that lies at a place, which was written down with a checksum; None, and nothing
    else, if anything about it is odd."""
    return _from_unit(place.unit, place.symbol, cache)


def _store(
    image: bytes, symbols: dict[bytes, str], cache: DiskCache, name: str
) -> dict[bytes, Kernel]:
    """Loads a compiled unit and puts it, and where its kernels are, on disk."""
    unit = hashlib.blake2b(image, digest_size=32, person=b"morok unit").digest()
    library = Library(image, name)
    kernels = {key: library.kernel(symbol) for key, symbol in symbols.items()}
    _libraries[unit] = library
    if cache.put(unit, image):
        _units[library] = unit
        for key, symbol in symbols.items():
            cache.put(key, unit + symbol.encode("ascii"))
    return kernels


# ---- compiling -----------------------------------------------------------------------------------


def _compile(
    missing: dict[bytes, KernelSource], compiler: UnitCompiler, cache: DiskCache, count: int
) -> dict[bytes, Kernel | CompileError | InvalidGraphError]:
    """Compile in `count` units, load, and put on disk; errors in the place of kernels that the
    compiler refuses."""
    units = _divided(missing, count)
    images: list[bytes | CompileError | InvalidGraphError] = []
    try:
        images += _images(units, compiler)
    except (CompileError, InvalidGraphError) as error:
        if len(missing) == 1:
            return dict.fromkeys(missing, error)
    if not images:
        # One at a time, so that an error is about the kernel at fault, and there is none if two
        # sources only could not stand in one unit.
        units = [{key: source} for key, source in missing.items()]
        try:
            images += _images(units, compiler)
        except (CompileError, InvalidGraphError):
            images = [_image_or_error(unit, compiler) for unit in units]
    kernels: dict[bytes, Kernel | CompileError | InvalidGraphError] = {}
    for unit, image in zip(units, images, strict=True):
        if isinstance(image, Exception):
            kernels |= dict.fromkeys(unit, image)
            continue
        symbols = {key: _symbol(key, source) for key, source in unit.items()}
        first = next(iter(unit.values())).name
        name = first if len(unit) == 1 else f"{first} and {len(unit) - 1} more"
        kernels |= _store(image, symbols, cache, name)
    return kernels


def _image_or_error(
    unit: dict[bytes, KernelSource], compiler: UnitCompiler
) -> bytes | CompileError | InvalidGraphError:
    try:
        (image,) = _images([unit], compiler)
    except (CompileError, InvalidGraphError) as error:
        error.__context__ = None  # of the same kernel among others
        return error
    return image


def _images(units: Sequence[dict[bytes, KernelSource]], compiler: UnitCompiler) -> list[bytes]:
    texts = [[_renamed(key, source) for key, source in unit.items()] for unit in units]
    return compiler.compile_units(texts)


MODULE_KERNELS = 8
"""Kernels of LLVM IR in one module: fewer begin as often as they work, more leave a CPU idle."""


def _unit_count(missing: dict[bytes, KernelSource]) -> int:
    """How many translation units are best.

    Starting a C compiler costs as much as compiling two small kernels, so more units than CPUs are
    slower, and fewer leave a CPU idle.
    """
    modules = sum(source.language == "llvm" for source in missing.values()) / MODULE_KERNELS
    return min(max(worker_count(), math.ceil(modules)), len(missing))


def _divided(missing: dict[bytes, KernelSource], count: int) -> list[dict[bytes, KernelSource]]:
    """Shares kernels out into `count` units of about equal length of text."""
    units: list[dict[bytes, KernelSource]] = [{} for _ in range(count)]
    lengths = [0] * len(units)
    longest_first = sorted(missing.items(), key=lambda item: (-len(item[1].text), item[0]))
    for key, source in longest_first:
        shortest = lengths.index(min(lengths))
        units[shortest][key] = source
        lengths[shortest] += len(source.text)
    return units


def _symbol(key: bytes, source: KernelSource) -> str:
    """A name no other kernel has, so that sources of one name can share a unit."""
    return f"{source.name}_{key[:8].hex()}"


def _renamed(key: bytes, source: KernelSource) -> str:
    symbol = _symbol(key, source)
    if source.language == "llvm":
        return re.sub(rf"@{source.name}(?=[.(])", f"@{symbol}", source.text)
    return f"#define {source.name} {symbol}\n{source.text}\n#undef {source.name}\n"
