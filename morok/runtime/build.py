"""From kernel sources to loaded kernels: cached on disk, compiled together, loaded once a process.

On disk a compiled translation unit lies under its content's digest, and each of its kernels under a
key of its own that names unit and symbol. So a kernel is found again whatever it was compiled with.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from morok._core import Kernel, Library
from morok.errors import CompileError, DeviceError, InvalidGraphError
from morok.runtime.compiler import worker_count
from morok.runtime.diskcache import DiskCache, default_cache
from morok.runtime.profile import span

SCHEMA = b"kernel 1"  # of what is stored; part of every key

_kernels: WeakValueDictionary[bytes, Kernel] = WeakValueDictionary()
_libraries: WeakValueDictionary[bytes, Library] = WeakValueDictionary()


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
    cache = cache if cache is not None else default_cache()
    keys = [_key(source, compiler.identity) for source in sources]
    ready: dict[bytes, Kernel] = {}
    missing: dict[bytes, KernelSource] = {}
    for key, source in zip(keys, sources, strict=True):
        if key not in ready and key not in missing:
            kernel = _kernels.get(key) or _load(key, cache)
            if kernel is not None:
                ready[key] = kernel
            else:
                missing[key] = source
    if missing:
        ready |= _compile(missing, compiler, cache)
    for key, kernel in ready.items():
        _kernels[key] = kernel
    return [ready[key] for key in keys]


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
    unit, symbol = record[:32], record[32:].decode("ascii", errors="replace")
    try:
        library = _libraries.get(unit)
        if library is None:
            image = cache.get(unit)
            if image is None:
                return None
            with span("load", symbol):
                library = Library(image, symbol)
            _libraries[unit] = library
        return library.kernel(symbol)
    except DeviceError:
        return None


def _store(
    image: bytes, symbols: dict[bytes, str], cache: DiskCache, name: str
) -> dict[bytes, Kernel]:
    """Loads a compiled unit and puts it, and where its kernels are, on disk."""
    unit = hashlib.blake2b(image, digest_size=32, person=b"morok unit").digest()
    library = Library(image, name)
    kernels = {key: library.kernel(symbol) for key, symbol in symbols.items()}
    _libraries[unit] = library
    if cache.put(unit, image):
        for key, symbol in symbols.items():
            cache.put(key, unit + symbol.encode("ascii"))
    return kernels


# ---- compiling -----------------------------------------------------------------------------------


def _compile(
    missing: dict[bytes, KernelSource], compiler: UnitCompiler, cache: DiskCache
) -> dict[bytes, Kernel]:
    units = _divided(missing, _unit_count(missing))
    images = None
    try:
        images = _images(units, compiler)
    except (CompileError, InvalidGraphError):
        if len(units) == len(missing):
            raise
    if images is None:
        # One at a time, so that the error is about the kernel at fault, and about nothing if two
        # sources only could not stand in one unit.
        units = [{key: source} for key, source in missing.items()]
        images = _images(units, compiler)
    kernels: dict[bytes, Kernel] = {}
    for unit, image in zip(units, images, strict=True):
        symbols = {key: _symbol(key, source) for key, source in unit.items()}
        first = next(iter(unit.values())).name
        name = first if len(unit) == 1 else f"{first} and {len(unit) - 1} more"
        kernels |= _store(image, symbols, cache, name)
    return kernels


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
