"""What this machine can do at most, measured by kernels of our own: multiply-adds, and memory.

The kernels are C through the project's compiler. Reading adds up vectors with enough accumulators;
writing copies what is read, by plain stores and by stores past the caches: the better counts.
"""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections.abc import Callable, Sequence

from morok.runtime import Buffer, CCompiler, ExecutionPlan, Kernel, KernelSource, build_kernels

__all__ = ["multiply_adds", "transfer"]

_ABI = "(void **bufs, const long *vars, void *scratch, long lo, long hi)"
_CHAINS = (
    12  # of dependent multiply-adds: what two units of latency 4 or 5 need, and 16 registers hold
)
_STEPS = 400_000
_VECTORS = 8  # read or written in a step
_PLACES = 4  # that are read from side by side
_TYPES = """
typedef float v8 __attribute__((vector_size(32)));
#ifdef __FMA__
#define FMA(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#ifdef __AVX__
#define STREAM(p, v) __builtin_ia32_movntps256((float *)(p), v)
#else
#define STREAM(p, v) (*(p) = (v))
#endif
"""


def _arithmetic() -> str:
    chains = range(_CHAINS)
    start = " ".join(f"v8 c{i} = x + {i}.0f;" for i in chains)
    step = " ".join(f"c{i} = FMA(c{i}, y, x);" for i in chains)
    total = " + ".join(f"c{i}" for i in chains)
    return f"""{_TYPES}
void arithmetic{_ABI} {{
  v8 *o = bufs[0], x = o[0], y = o[1];
  {start}
  for (long i = 0; i < {_STEPS}; i++) {{ {step} }}
  o[2] = {total};
}}
"""


def _reading() -> str:
    """From a few places at once, as each has a prefetcher of its own."""
    sums = range(_VECTORS)
    start = ", ".join(f"s{j} = {{0}}" for j in sums)
    part = _VECTORS // _PLACES
    step = " ".join(f"s{j} += a[{j // part} * n + i + {j % part}];" for j in sums)
    return f"""{_TYPES}
void reading{_ABI} {{
  v8 *o = bufs[0]; const v8 *a = (v8 *)bufs[1] + lo; v8 {start};
  const long n = (hi - lo) / {_PLACES};
  for (long i = 0; i < n; i += {part}) {{ {step} }}
  o[lo ? 1 : 0] = {" + ".join(f"s{j}" for j in sums)};
}}
"""


def _copying(name: str, store: str) -> str:
    step = " ".join(store.replace("j", str(j)) + ";" for j in range(_VECTORS))
    return f"""{_TYPES}
void {name}{_ABI} {{
  v8 *o = bufs[0]; const v8 *a = bufs[1];
  for (long i = lo; i < hi; i += {_VECTORS}) {{ {step} }}
  __asm__ volatile("" ::: "memory");
}}
"""


@functools.cache
def _kernels() -> dict[str, Kernel]:
    texts = {
        "arithmetic": _arithmetic(),
        "reading": _reading(),
        "copying": _copying("copying", "o[i + j] = a[i + j]"),
        "streaming": _copying("streaming", "STREAM(o + i + j, a[i + j])"),
    }
    # One translation unit each: the types stand in every one.
    compiler = CCompiler()
    return {
        name: build_kernels([KernelSource(name, text)], compiler)[0] for name, text in texts.items()
    }


def _usual(work: Callable[[int], None], threads: int, times: int = 5) -> float:
    """Seconds of the middle one of a few runs, `work(i)` in as many threads at once. With one
    thread this is CPU time: what others run costs nothing."""
    seconds = []
    for _ in range(times):
        if threads == 1:
            start = time.process_time()
            work(0)
            seconds.append(time.process_time() - start)
            continue
        others = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        start = time.perf_counter()
        for other in others:
            other.start()
        for other in others:
            other.join()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@functools.cache
def _small() -> list[Buffer]:
    return [Buffer(4096) for _ in range(8)]


def multiply_adds(threads: int = 1) -> float:
    """Float32 operations a second, a multiply-add counting as two."""
    plan = ExecutionPlan([(_kernels()["arithmetic"], (0,), 0, 0, 1)], 1)
    seconds = _usual(lambda i: plan.run([_small()[i]]), threads)
    return threads * 2.0 * 8 * _CHAINS * _STEPS / seconds


@functools.lru_cache(maxsize=2)
def _memory(nbytes: int) -> Buffer:
    held = Buffer(nbytes)
    held.view("float32", (nbytes // 4,))[:] = 1
    return held


def _one(plans: Sequence[ExecutionPlan], buffers: list[Buffer], i: int) -> None:
    plans[i].run(buffers)


def transfer(reads: int, writes: int, threads: int = 1) -> float:
    """Seconds to read so many bytes and write so many (none, or as many as are read)."""
    step = 32 * _VECTORS * threads
    vectors = max(reads // step * step // 32, _VECTORS * threads)
    source = _memory(vectors * 32)
    copies = 2 * writes >= reads
    target = _memory(vectors * 32 + 64) if copies else _small()[0]
    names = ("copying", "streaming") if copies else ("reading",)
    part = vectors // threads
    best = float("inf")
    for name in names:
        plans = [
            ExecutionPlan([(_kernels()[name], (0, 1), 0, i * part, (i + 1) * part)], 2)
            for i in range(threads)
        ]
        best = min(best, _usual(functools.partial(_one, plans, [target, source]), threads))
    return best * reads / (vectors * 32)
