"""What it costs to compile, load and launch kernels on this machine.

    python -m bench launch

Figures are the best of several rounds; run it on a quiet machine. The kernels are written by hand:
an elementwise map, a softmax and a register-tiled matmul, in as many variants as are asked for.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from morok import config
from morok.runtime import (
    Buffer,
    CCompiler,
    DiskCache,
    ExecutionPlan,
    KernelSource,
    Library,
    build_kernels,
    clear_pool,
)

ABI = "(void **bufs, const long *vars, void *scratch, long lo, long hi)"
VECTOR = "typedef float v8 __attribute__((vector_size(32), aligned(4)));\n"


def elementwise(name: str, variant: int) -> KernelSource:
    body = (
        "float *restrict o = bufs[0]; const float *restrict a = bufs[1], *restrict b = bufs[2];\n"
        f"for (long i = lo; i < hi; i++) o[i] = a[i] * b[i] + {variant}.5f;"
    )
    return KernelSource(name, f"void {name}{ABI} {{ {body} }}\n")


def softmax(name: str, variant: int) -> KernelSource:
    columns = 512 + 64 * variant
    body = f"""
  float *restrict o = bufs[0]; const float *restrict a = bufs[1];
  for (long r = lo; r < hi; r++) {{
    const float *row = a + r * {columns}; float *out = o + r * {columns};
    float m = row[0], s = 0;
    for (long i = 1; i < {columns}; i++) m = row[i] > m ? row[i] : m;
    for (long i = 0; i < {columns}; i++) {{
      float x = (row[i] - m) * 1.44269504f, f = __builtin_floorf(x); x -= f;
      union {{ int i; float f; }} u = {{ .i = ((int)f + 127) << 23 }};
      out[i] = u.f * (1.f + x * (0.6931f + x * (0.2402f + x * (0.0555f + x * 0.0096f))));
      s += out[i];
    }}
    for (long i = 0; i < {columns}; i++) out[i] /= s;
  }}
"""
    return KernelSource(name, f"void {name}{ABI} {{{body}}}\n")


def matmul(name: str, variant: int) -> KernelSource:
    n = 512 + 16 * variant
    tile = [(row, lane) for row in range(6) for lane in range(2)]
    define = " ".join(f"v8 c{r}{v} = {{0}};" for r, v in tile)
    update = "\n".join(f"      c{r}{v} += A[(i + {r}) * {n} + k] * b{v};" for r, v in tile)
    store = " ".join(f"*(v8 *)(C + (i + {r}) * {n} + j + {8 * v}) = c{r}{v};" for r, v in tile)
    body = f"""
  float *restrict C = bufs[0]; const float *restrict A = bufs[1], *restrict B = bufs[2];
  for (long i = lo; i < hi; i += 6) for (long j = 0; j < {n}; j += 16) {{
    {define}
    for (long k = 0; k < {n}; k++) {{
      v8 b0 = *(v8 *)(B + k * {n} + j), b1 = *(v8 *)(B + k * {n} + j + 8);
{update}
    }}
    {store}
  }}
"""
    return KernelSource(name, f"{VECTOR}void {name}{ABI} {{{body}}}\n")


def kernels(count: int) -> list[KernelSource]:
    """`count` kernels, no two alike, a third of each kind."""
    kinds = (elementwise, softmax, matmul)
    return [kinds[i % 3](f"k{i}", i // 3) for i in range(count)]


def best(work: Callable[[], object], *, rounds: int = 7, repeat: int = 1) -> float:
    """Seconds of one call of `work`: the best of `rounds`, each of `repeat` calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        times.append((time.perf_counter() - start) / repeat)
    return min(times)


def line(what: str, seconds: float, unit: str) -> None:
    scale = {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit]
    print(f"{what:<58} {seconds * scale:>10.1f} {unit}")


def bench_launch(compiler: CCompiler) -> None:
    library = Library(compiler.compile([f"void nothing{ABI} {{}}"]))
    nothing = library.kernel("nothing")
    buffers = [Buffer(64) for _ in range(3)]
    costs = {}
    for count in (0, 1, 50, 500):
        plan = ExecutionPlan([(nothing, (0, 1, 2))] * count, 3)
        costs[count] = best(partial(plan.run, buffers), rounds=30, repeat=200)
        line(f"plan of {count} empty kernels, 3 arguments each", costs[count], "ns")
    line("  a kernel more", (costs[500] - costs[0]) / 500, "ns")
    plan = ExecutionPlan([(nothing, (0, 1, 2))] * 500, 3)
    line("  and timed", best(lambda: plan.run_profiled(buffers), rounds=30) / 500, "ns")


def bench_memory() -> None:
    for nbytes, repeat in ((64, 10_000), (1 << 16, 10_000), (64 << 20, 1000)):
        pooled = best(partial(Buffer, nbytes), repeat=repeat)
        line(f"buffer of {nbytes:,} bytes, pooled", pooled, "ns")

    def fresh() -> None:
        clear_pool()
        Buffer(64 << 20).view("uint8", ((64 << 20) // 4096, 4096))[:, 0] = 1

    line("buffer of 67,108,864 bytes, fresh, every page touched", best(fresh), "us")


def bench_compile(compiler: CCompiler) -> None:
    for kind in (elementwise, softmax, matmul):
        text = [kind("k", 0).text]
        line(f"compile one {kind.__name__}", best(partial(compiler.compile, text)), "ms")
    texts = [source.text for source in kernels(10)]
    for runs in (1, 2, 10):
        units = [texts[i::runs] for i in range(runs)]
        seconds = best(partial(compiler.compile_units, units), rounds=5)
        line(f"compile 10 kernels in {runs} compiler run(s), one a CPU at a time", seconds, "ms")
    image = compiler.compile(texts)
    line(f"load a library of 10 kernels, {len(image):,} bytes", best(lambda: Library(image)), "us")


def bench_build(directory: Path, compiler: CCompiler) -> None:
    for count in (10, 100):
        sources = kernels(count)
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(3):
            shutil.rmtree(directory, ignore_errors=True)
            for times in (cold, warm):
                start = time.perf_counter()
                build_kernels(sources, compiler, DiskCache(directory, 1 << 28))
                times.append(time.perf_counter() - start)
        line(f"build {count} kernels, nothing cached", min(cold), "ms")
        line(f"build {count} kernels, all on disk", min(warm), "ms")


def main(argv: Sequence[str] = ()) -> int:
    """Prints the figures; takes no options."""
    if argv:
        print(f"unknown options: {' '.join(argv)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="morok-bench-") as name:
        directory = Path(name)
        with config.override(cache_dir=directory / "default"):
            line("find the compiler, nothing cached", best(CCompiler, rounds=1), "ms")
            line("find the compiler, known on disk", best(CCompiler), "ms")
            compiler = CCompiler()
            print(compiler)
            bench_launch(compiler)
            bench_memory()
            bench_compile(compiler)
            bench_build(directory / "build", compiler)
    return 0


if __name__ == "__main__":
    sys.exit(main())
