"""The memory benchmark in morok."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import morok as mk
from bench import _dispatch_morok, harness
from bench import _memory_data as data
from bench.harness import Case, Step, Wait
from bench.memory import LENGTHS, SECONDS, TABLES, timed
from morok import Tensor, _core, engine
from morok.runtime import Device, DiskCache, KernelSource, build_kernels

VERSION = mk.__version__
JITTED, LAZY, KERNELS, QUICK = 20_000, 3_000, 10_000, 300
_WARM = 50  # steps before anything is counted


def _forget_gradient(tensor: Tensor) -> None:
    tensor.grad = None


def _embedding(rows: int) -> tuple[Step, Wait]:
    weight = Tensor(data.table(rows), requires_grad=True)
    tokens, slopes = Tensor(data.tokens(rows)), Tensor(data.slopes())

    @mk.jit
    def step(tokens: Tensor, slopes: Tensor) -> Tensor:
        _forget_gradient(weight)
        (weight[tokens] * slopes).sum().backward()
        assert weight.grad is not None
        return weight.grad

    return lambda: step(tokens, slopes), _last


def _cumsum(count: int) -> tuple[Step, Wait]:
    x = Tensor(data.numbers(count))
    cumsum = mk.jit(lambda x: x.cumsum(0))
    return lambda: cumsum(x), _last


def _numpy(count: int) -> tuple[Step, Wait]:
    x = data.numbers(count)
    return lambda: np.cumsum(x), lambda y: float(y[-1])


def _last(x: Tensor) -> float:
    return float(x.numpy().reshape(-1)[-1])


def makers() -> dict[str, Callable[[], tuple[Step, Wait]]]:
    """The timed cases by name."""
    return {
        **{f"embedding {v}": partial(_embedding, v) for v in TABLES},
        **{f"cumsum {n}": partial(_cumsum, n) for n in LENGTHS},
    }


def own(quick: bool, cases: Mapping[str, Case]) -> dict[str, Case]:
    """The cases no other system has, and the timed ones with the operations of their kernels."""
    lazy, jitted = (QUICK, QUICK) if quick else (LAZY, JITTED)
    seconds = 0.01 if quick else SECONDS
    return {
        "jitted steps": lambda: _growth(_dispatch_morok.train(adam=True), jitted),
        "lazy steps": lambda: _growth(_dispatch_morok.train(adam=True, jitted=False), lazy),
        "node": lambda: _node(quick),
        "kernels": lambda: _kernels(QUICK if quick else KERNELS),
        **{name: partial(_counted, case, makers()[name]) for name, case in cases.items()},
        **{
            f"cumsum {n}": partial(_beside_numpy, cases[f"cumsum {n}"], n, seconds) for n in LENGTHS
        },
    }


def _beside_numpy(case: Case, count: int, seconds: float) -> dict[str, float]:
    """The running sum, and what NumPy takes for it."""
    made = makers()[f"cumsum {count}"]
    return {**_counted(case, made), "numpy": timed(partial(_numpy, count), seconds)["ms"]}


def _node(quick: bool) -> dict[str, float]:
    from bench._rewrite_cases import MEMORY, cases
    from bench._rewrite_morok import System  # not before: the other cases weigh this process

    return cases(System(), [], quick)[MEMORY]()


_AT_ONCE = 80  # kernels compiled together
_MARK = 1234567  # the constant in which the kernels differ


def _kernels(count: int) -> dict[str, float]:
    """Bytes of so many kernels that differ in a constant, while they are held and afterwards."""
    device = Device["CPU"]
    x = Tensor(np.arange(64, dtype=np.int32))
    with engine.watch_kernels(lambda planned, _: found.extend(planned.kernels)):
        found: list[engine.CompiledKernel] = []
        (x * 3 + _MARK).realize()
    (kernel,) = found
    name, text = kernel.name.rpartition("_")[0], kernel.source  # without what tells it from others

    def build(numbers: range) -> list[Any]:
        texts = [text.replace(str(_MARK), str(number)) for number in numbers]
        language = device.renderer.language
        sources = [KernelSource(name, each, language) for each in texts]
        return build_kernels(sources, device.compiler, cache)

    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder), 1 << 30)
        build(range(_MARK + 1, _MARK + 1 + _AT_ONCE))  # what a compiler keeps is no kernel's
        gc.collect()
        before, start = harness.status("VmRSS"), time.process_time()
        held: list[Any] = []
        for first in range(0, count, _AT_ONCE):
            held += build(range(first, min(first + _AT_ONCE, count)))
        cpu = time.process_time() - start
        full = harness.status("VmRSS")
        held.clear()
        gc.collect()
        after = harness.status("VmRSS")
    scale = 1024 * 1024 / count
    return {
        "each": (full - before) * scale,
        "left": (after - before) * scale,
        "cpu": cpu / count * 1e3,
    }


def _counted(case: Case, make: Callable[[], tuple[Step, Wait]]) -> dict[str, float]:
    """The case's time, and the operations of the kernels of its first call."""
    flops: list[int] = []

    def count(planned: engine.Planned, _: Any) -> None:
        flops.extend(k.estimates.flops for k in planned.kernels if k.estimates is not None)

    with engine.watch_kernels(count):
        step, wait = make()
        wait(step())
    return {**case(), "mflop": sum(flops) / 1e6}


def _growth(work: tuple[Step, Wait], count: int) -> dict[str, float]:
    """By how much the process grew during `count` steps."""
    step, wait = work
    for _ in range(_WARM):
        wait(step())
    before = _sizes()
    for _ in range(count):
        answer = step()
    wait(answer)
    after = _sizes()
    return {name: after[name] - before[name] for name in after}


def _sizes() -> dict[str, float]:
    gc.collect()
    memory = _core.memory_stats()
    return {
        "rss": harness.status("VmRSS"),
        "nodes": _core.node_stats()["live"],
        "buffers": memory["live_buffers"],
        "memory": memory["live_bytes"] + memory["pooled_bytes"],
    }
