"""From kernel sources to loaded kernels, through the cache."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from handmade import kernel_source

from morok import config
from morok.errors import CompileError
from morok.runtime import (
    Buffer,
    CCompiler,
    DiskCache,
    ExecutionPlan,
    Kernel,
    KernelSource,
    build,
    build_kernels,
)

HELPER = "static void helper(void **b) {{ *(long *)b[0] = {}; }}\n"


class Counting:
    """A compiler that counts what it is asked for."""

    def __init__(self, compiler: CCompiler) -> None:
        self.compiler = compiler
        self.units: list[int] = []  # sources in each unit, run by run

    @property
    def identity(self) -> str:
        return self.compiler.identity

    def compile_units(self, units):
        self.units += [len(unit) for unit in units]
        return self.compiler.compile_units(units)


@pytest.fixture
def counting(compiler):
    return Counting(compiler)


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache", 1 << 24)


def setting(number: int, name: str = "set"):
    """A kernel that stores a number nobody else's kernel stores."""
    return kernel_source(name, f"*(long *)bufs[0] = {number};")


def result(kernel: Kernel) -> int:
    out = Buffer(8)
    ExecutionPlan([(kernel, (0,))], 1).run([out])
    return int(out.view(np.int64)[0])


def forget() -> None:
    """After this, kernels nobody holds are unloaded."""
    gc.collect()


def test_kernels_come_in_the_order_of_their_sources(counting, cache):
    sources = [setting(number) for number in range(7)]
    kernels = build_kernels(sources, counting, cache)
    assert [result(kernel) for kernel in kernels] == list(range(7))
    assert sum(counting.units) == 7


def test_no_sources_no_kernels(counting, cache):
    assert build_kernels([], counting, cache) == []
    assert counting.units == []


def test_equal_sources_are_one_kernel(counting, cache):
    first, other, again = build_kernels([setting(1), setting(2), setting(1)], counting, cache)
    assert first is again
    assert first is not other
    assert sum(counting.units) == 2


def test_a_kernel_in_use_is_shared(counting, compiler):
    nowhere = DiskCache("/nonexistent", 0)
    kernel = build_kernels([setting(10)], counting, nowhere)[0]
    assert build_kernels([setting(10)], counting, nowhere)[0] is kernel
    assert counting.units == [1]
    del kernel
    forget()
    assert result(build_kernels([setting(10)], counting, nowhere)[0]) == 10
    assert counting.units == [1, 1]


def test_one_run_a_cpu(counting, cache):
    with config.override(jobs=3):
        build_kernels([setting(number) for number in range(20, 27)], counting, cache)
    assert sorted(counting.units) == [2, 2, 3]


def test_long_kernels_are_spread_evenly(counting, cache):
    big = [kernel_source("big", f"*(long *)bufs[0] = {n}; /*{'x' * 1000}*/") for n in (30, 31)]
    with config.override(jobs=2):
        build_kernels([big[0], *(setting(n) for n in range(32, 42)), big[1]], counting, cache)
    assert sorted(counting.units) == [6, 6]


def test_a_kernel_is_found_again_whatever_it_was_compiled_with(counting, cache):
    build_kernels([setting(number) for number in range(40, 50)], counting, cache)
    forget()
    counting.units.clear()
    fresh = DiskCache(cache.path, 1 << 24)
    kernels = build_kernels([setting(45), setting(50), setting(41)], counting, fresh)
    assert [result(kernel) for kernel in kernels] == [45, 50, 41]
    assert counting.units == [1]


def test_name_source_and_compiler_are_part_of_the_key(counting, compiler, cache):
    assert result(build_kernels([setting(60)], counting, cache)[0]) == 60
    renamed = build_kernels([setting(60, "other")], counting, cache)[0]
    assert renamed.name.startswith("other_")
    different = Counting(CCompiler([*compiler.command, "-DX"], cache=cache))
    build_kernels([setting(60)], different, cache)
    assert (counting.units, different.units) == ([1, 1], [1])


def damage_units(cache: DiskCache, change) -> None:
    for path in (cache.path / "v1").iterdir():
        if path.stat().st_size > 500:  # a unit, not a record that names one
            change(path)


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda path: path.write_bytes(b"garbage"),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
    ],
    ids=["missing", "garbage", "truncated"],
)
def test_a_damaged_unit_is_compiled_again(counting, cache, change):
    build_kernels([setting(70), setting(71)], counting, cache)
    forget()
    damage_units(cache, change)
    kernels = build_kernels([setting(70), setting(71)], counting, cache)
    assert [result(kernel) for kernel in kernels] == [70, 71]
    assert sum(counting.units) == 4


@pytest.mark.parametrize("record", [b"", b"short", b"u" * 32 + b"f", b"u" * 32 + b"\xff\x00"])
def test_an_odd_record_is_a_miss(counting, cache, record):
    build_kernels([setting(80)], counting, cache)
    forget()
    for path in (cache.path / "v1").iterdir():
        cache.put(bytes.fromhex(path.name), record)
    assert result(build_kernels([setting(80)], counting, cache)[0]) == 80
    assert counting.units == [1, 1]


def test_a_unit_that_does_not_load_is_a_miss(counting, cache, compiler):
    """It is whole, but no library of this machine, or lacks the kernel."""
    for image in (b"#!" * 500, compiler.compile(["void somebody_else(void) {}"])):
        build_kernels([setting(81)], counting, cache)
        forget()
        for path in (cache.path / "v1").iterdir():
            if path.stat().st_size > 500:
                cache.put(bytes.fromhex(path.name), image)
        counting.units.clear()
        assert result(build_kernels([setting(81)], counting, cache)[0]) == 81
        assert counting.units == [1]
        forget()


def test_the_error_is_about_the_kernel_at_fault(counting, cache):
    bad = kernel_source("bad", "return no_such_name;")
    sources = [setting(90), setting(91), bad, setting(92)]
    with config.override(jobs=1), pytest.raises(CompileError, match="no_such_name") as caught:
        build_kernels(sources, counting, cache)
    assert "bad" in caught.value.source
    assert "90" not in caught.value.source
    assert caught.value.__context__ is None
    assert [result(kernel) for kernel in build_kernels(sources[:2], counting, cache)] == [90, 91]


def test_sources_that_cannot_share_a_unit_are_compiled_apart(counting, cache):
    sources = [kernel_source("one", "helper(bufs);"), kernel_source("two", "helper(bufs);")]
    texts = [
        KernelSource(source.name, HELPER.format(n) + source.text)
        for n, source in enumerate(sources, 100)
    ]
    with config.override(jobs=1):
        kernels = build_kernels(texts, counting, cache)
    assert [result(kernel) for kernel in kernels] == [100, 101]
    assert counting.units == [2, 1, 1]


def test_many_builds_leave_nothing_behind(counting, cache):
    """Unloaded libraries leave the address space."""

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:morok")

    build_kernels([setting(110)], counting, cache)
    forget()
    before = mapped()
    for _ in range(50):
        assert result(build_kernels([setting(110)], counting, cache)[0]) == 110
    forget()
    assert mapped() == before


def test_threads_build_at_once(compiler, cache):
    """The same kernels and different ones, over and over, dropped in between."""
    wrong = []

    def work(seed: int) -> None:
        for turn in range(30):
            numbers = [120 + (seed * turn + i) % 6 for i in range(3)]
            kernels = build_kernels([setting(n) for n in numbers], compiler, cache)
            if [result(kernel) for kernel in kernels] != numbers:
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_builds(counting, cache):
    kernel = build_kernels([setting(130)], counting, cache)[0]
    child = os.fork()
    if child == 0:
        later = build_kernels([setting(130), setting(131)], counting, cache)
        os._exit(0 if [result(k) for k in later] == [130, 131] and later[0] is kernel else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert result(build_kernels([setting(131)], counting, cache)[0]) == 131
    assert counting.units == [1]


@pytest.mark.parametrize("begun", [False, True])
def test_an_interruption_while_the_thread_starts(counting, cache, monkeypatch, begun):
    """It is what the caller hears of, and the thread does not wait for ever."""
    threads = []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            threads.append(self)
            if begun:
                super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr(build, "Thread", Interrupted)
    with (
        config.override(jobs=2),
        pytest.raises(KeyboardInterrupt),
        build.Building(counting, cache) as building,
    ):
        building.add(setting(71))
    assert [thread.is_alive() for thread in threads] == [False]
    monkeypatch.undo()
    assert [result(k) for k in build_kernels([setting(71)], counting, cache)] == [71]
