"""Finished plans on disk: what a second process needs to run a graph it has never lowered.

An entry lies under a key of the normalised graph and of all that a plan depends on beside it:

    layout of entries | interpreter | morok's own files | compiler, its flags, the CPU
    | settings that change kernels | graph

What a renderer can do follows from the compiler's identity and morok's files. An entry names the
machine code of its kernels by where it lies in the same cache, and has their texts, packed, for
whoever asks. What is odd in any way is a miss, and so is an entry whose machine code is gone.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from morok import config
from morok.engine.compile import CompiledKernel, Texts
from morok.engine.planned import Call, Planned
from morok.engine.plans import Design, Row, build_plan
from morok.ir import Estimates
from morok.runtime import CpuDevice, DiskCache, Place, default_cache, load_kernel, place_of

SCHEMA = "plan 1"  # of what is stored; part of every key
_BORN = time.time_ns()


def load_plan(graph: bytes, device: CpuDevice) -> Planned | None:
    """The plan of the graph of this key, if the disk has it whole."""
    key = _key(graph, device)
    if key is None:
        return None
    disk = default_cache()
    entry = disk.get(key)
    if entry is None:
        return None
    try:
        return _unpacked(entry, graph, device, disk)
    except (ValueError, TypeError, EOFError, IndexError, KeyError):
        return None


def store_plan(planned: Planned, device: CpuDevice) -> bool:
    """Keep a plan for other processes; whether that worked."""
    key = _key(planned.key, device)
    entry = None if key is None else _packed(planned, device)
    return key is not None and entry is not None and default_cache().put(key, entry)


# ---- keys ----------------------------------------------------------------------------------------


def _key(graph: bytes, device: CpuDevice) -> bytes | None:
    """None where plans are to be made: nobody else's will do, or graphs are to be seen on their
    way."""
    settings = config.get()
    files = _files()
    if settings.verify or settings.debug >= 4 or not settings.cache_size or files is None:
        return None
    facts = (
        SCHEMA,
        sys.implementation.cache_tag,
        marshal.version,
        files,
        device.compiler.identity,
        settings.noopt,
        settings.beam,
        graph.hex(),
    )
    text = "\n".join(map(str, facts)).encode()
    return hashlib.blake2b(text, digest_size=32, person=b"morok plan").digest()


@cache
def _files() -> str | None:
    """Names, sizes and times of the files that morok consists of. None if some are newer than this
    process, which may run what they were before, or cannot be looked at."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for path, facts in sorted(_below(str(Path(config.__file__).parent))):
            if facts.st_mtime_ns > _BORN:
                return None
            line = f"{path} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}\n"
            digest.update(line.encode(errors="surrogateescape"))
    except OSError:
        return None
    return digest.hexdigest()


def _below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The program files of a folder and its folders."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _below(entry.path)
            elif entry.name.endswith((".py", ".so")):
                yield entry.path, entry.stat()


# ---- entries -------------------------------------------------------------------------------------


def _packed(planned: Planned, device: CpuDevice) -> bytes | None:
    """An entry; None if some machine code is not on disk."""
    distinct = {id(kernel): kernel for kernel in planned.kernels}
    number = {each: i for i, each in enumerate(distinct)}
    units: dict[bytes, int] = {}
    languages: dict[str, str] = {}
    kernels = []
    for kernel in distinct.values():
        place = place_of(kernel.kernel)
        if place is None:
            return None
        cost = kernel.estimates
        languages[kernel.language] = device.compiler_of(kernel.language).identity
        kernels.append(
            (
                units.setdefault(place.unit, len(units)),
                place.symbol,
                kernel.scratch,
                kernel.variables,
                kernel.extent,
                kernel.split,
                cost and (cost.flops, cost.bytes_read, cost.bytes_written),
                kernel.language,
            )
        )
    head = {
        "units": tuple(units),
        "languages": languages,
        "kernels": kernels,
        "calls": [tuple(call) for call in planned.calls],
        "which": [number[id(kernel)] for kernel in planned.kernels],
        "rows": [(row.places, tuple(row.stores), row.variables) for row in planned.rows],
        "results": planned.results,
        "fresh": planned.fresh,
        "given": planned.given,
        "sizes": planned.sizes,
        "variables": planned.variables,
        "design": planned.design and tuple(planned.design),
    }
    texts = Texts.pack([kernel.source for kernel in distinct.values()])
    return marshal.dumps((head, texts))


def _unpacked(entry: bytes, graph: bytes, device: CpuDevice, disk: DiskCache) -> Planned | None:
    """The plan of an entry; None if the machine code of a kernel is gone, or made by another
    compiler than that of today."""
    head, packed = marshal.loads(entry)
    for language, identity in head["languages"].items():
        if device.compiler_of(language).identity != identity:
            return None
    texts = Texts(packed)
    distinct: list[CompiledKernel] = []
    for i, (unit, symbol, scratch, variables, extent, split, cost, language) in enumerate(
        head["kernels"]
    ):
        kernel = load_kernel(Place(head["units"][unit], symbol), disk)
        if kernel is None:
            return None
        estimates = None if cost is None else Estimates(*cost)
        distinct.append(
            CompiledKernel(
                symbol,
                None,
                (texts, i),
                kernel,
                scratch,
                variables,
                extent,
                split,
                estimates,
                language,
            )
        )
    kernels = tuple(distinct[i] for i in head["which"])
    rows = tuple(
        kernel_row(kernel, places, frozenset(stores), taken)
        for kernel, (places, stores, taken) in zip(kernels, head["rows"], strict=True)
    )
    design = head["design"] and Design(*head["design"])
    ready = build_plan(
        rows, head["given"], head["sizes"], n_vars=len(head["variables"]), design=design
    )
    return Planned(
        graph,
        tuple(Call(*call) for call in head["calls"]),
        kernels,
        ready,
        head["results"],
        head["fresh"],
        rows,
        head["given"],
        head["sizes"],
        head["variables"],
        design,
    )


def kernel_row(
    kernel: CompiledKernel, places: tuple[int, ...], stores: frozenset[int], taken: tuple[int, ...]
) -> Row:
    """A kernel as plans have it."""
    return Row(
        kernel.kernel,
        places,
        kernel.scratch,
        0,
        max(kernel.extent, 1),
        kernel.name,
        stores,
        taken,
        split=kernel.split,
    )
