"""The first training step in a fresh process, and the same in a second one with a warm disk.

The models and optimizers are those of `train`. A *first* process finds no cache; a *second*
one finds what a first left on the disk (ours in MOROK_CACHE_DIR, JAX's in
`jax_compilation_cache_dir` with a minimal compile time of 0). Processes of all systems run in turns
(A B A B …); the ratio is taken pair by pair.

`first` and `second` are wall milliseconds from the line that makes the model's tensors until the
loss is a Python number; `import` is what the interpreter took to be ready for that line (NumPy
included), `cpu` the processor time of the step, compilers included. Random numbers that weights and
batches are made of are NumPy's work, alike for all, and not counted. `morok.c` is morok with a C
compiler in place of LLVM. Below the table stands where our time goes.

`shapes300` compiles 300 small computations of different shapes and runs each once: ours by one
`mk.compile`, in `morok.jits` by a `jit` each, as in JAX.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

_BEGIN = time.perf_counter()

from bench import harness  # noqa: E402 - what is imported from here on is counted

MODELS = ("mlp", "cnn", "gpt", "resnet18")
SHAPES = "shapes300"
JITS = "morok.jits"
FIGURES = (("ms", "ms"), ("cpu", "ms"), ("import", "ms"))
Answer = dict[str, Any]


# ---- a process -----------------------------------------------------------------------------------


def worker(who: str, model: str, quick: bool) -> Answer:
    """The figures of one first step in this process, which has imported nothing yet."""
    if who == "jax" and os.environ.get("BENCH_CACHE"):
        import jax

        jax.config.update("jax_compilation_cache_dir", os.environ["BENCH_CACHE"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    from bench import _peers

    benchmark = "bulk" if model == SHAPES else "train"
    system = _peers.load(benchmark, who, threads=len(os.sched_getaffinity(0)))
    if isinstance(system, str):
        return {"missing": system}
    if who.startswith("morok"):
        from bench import _cold_morok
    data = _without_random_numbers()
    imported = time.perf_counter() - _BEGIN
    start, cpu = time.perf_counter(), _cpu()
    if model == SHAPES:
        loss = system.run(who, *(20,) if quick else ())
    else:
        step, wait = system.start(who, model, quick)
        loss = wait(step())
    seconds = time.perf_counter() - start - data["seconds"]
    answer: Answer = {
        "ms": 1e3 * seconds,
        "cpu": 1e3 * (_cpu() - cpu - data["cpu"]),
        "import": 1e3 * imported,
        "loss": loss,
    }
    if who.startswith("morok"):
        answer["parts"] = _cold_morok.parts(seconds)
    return answer


def _cpu() -> float:
    """Processor seconds of this process and of those it has waited for."""
    return sum(os.times()[:4])


def _without_random_numbers() -> dict[str, float]:
    """Has the time that NumPy's random numbers take summed up in the dict that is returned."""
    from bench import _train_data as data

    spent = {"seconds": 0.0, "cpu": 0.0}

    def timed(work: Any) -> Any:
        def run(*args: Any) -> Any:
            wall, cpu = time.perf_counter(), _cpu()
            try:
                return work(*args)
            finally:
                spent["seconds"] += time.perf_counter() - wall
                spent["cpu"] += _cpu() - cpu

        return run

    data.initial = timed(data.initial)
    for name, task in data.TASKS.items():
        data.TASKS[name] = replace(task, batch=timed(task.batch))
    return spent


def _in_process(who: str, model: str, quick: bool, cache: Path | None) -> Answer:
    """Runs `worker` in a process of its own."""
    command = [sys.executable, "-m", "bench.cold", "--worker", who, model]
    done = subprocess.run(
        [*command, "--quick"] if quick else command,
        env={**os.environ, **_environment(who, cache)},
        cwd=Path(__file__).resolve().parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"missing": f"its process ended with {done.returncode}"}
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    return answer


def _environment(who: str, cache: Path | None) -> dict[str, str]:
    """Where a system keeps what it compiled; without a place JAX keeps nothing."""
    place = "" if cache is None else str(cache)
    if who.startswith("morok"):
        return {
            "MOROK_CACHE_DIR": place,
            _CHOICE: "c" if who.endswith(".c") else os.environ.get(_CHOICE, "auto"),
        }
    if who == "tinygrad":
        return {"CACHEDB": str(Path(place, "cache.db"))}
    if who == "torch.compile":
        return {"TORCHINDUCTOR_CACHE_DIR": place}
    return {"BENCH_CACHE": place}


_CHOICE = "MOROK_CPU_COMPILER"


# ---- all of them ---------------------------------------------------------------------------------


def main(args: argparse.Namespace) -> None:
    systems = [harness.OURS, f"{harness.OURS}.c", *_spread(args.peers)]
    models = [n for n in (*MODELS, SHAPES) if not args.only or n in args.only.split(",")]
    if args.quick:
        models = [name for name in models if name in ("mlp", "cnn", SHAPES)]
    rows: list[harness.Row] = []
    parts: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-cold-") as folder:
        for model in models:
            ours = [*systems[:2], JITS] if model == SHAPES else systems[:2]
            seen = _rounds(model, [*ours, *systems[2:]], args, Path(folder))
            rows += [row for when in ("first", "second") for row in _rows(model, when, seen)]
            for when in ("first", "second"):
                for who in ours:
                    parts[f"{model} {when} {who}"] = _medians(seen[when][who])
    harness.show("cold", rows)
    _report_losses(rows)
    _show_parts(parts)
    harness.write_json(args, "cold", rows)


def _spread(peers: Sequence[str]) -> list[str]:
    """Of PyTorch only what compiles."""
    return ["torch.compile" if peer.startswith("torch") else peer for peer in peers]


Seen = dict[str, dict[str, list[Answer]]]
"""First or second process -> system -> answers."""


def _rounds(model: str, systems: Sequence[str], args: argparse.Namespace, folder: Path) -> Seen:
    seen: Seen = {when: {who: [] for who in systems} for when in ("first", "second")}
    missing: dict[str, str] = {}
    for _ in range(args.rounds):
        for when in ("first", "second"):
            for who in systems:
                if who in missing:
                    continue
                cache = folder / who
                if when == "first":
                    shutil.rmtree(cache, ignore_errors=True)
                # JAX's first step writes no cache: that is another process, which is not counted.
                keeps = who != "jax" or when == "second"
                if not keeps or (who == "jax" and not cache.exists()):
                    answer = _in_process(who, model, args.quick, cache if keeps else None)
                if keeps:
                    answer = _in_process(who, model, args.quick, cache)
                if "missing" in answer:
                    missing[who] = answer["missing"]
                    print(f"{who}: {model}: {answer['missing']}")
                    if who == harness.OURS:
                        raise RuntimeError(f"our own {model} failed: {answer['missing']}")
                    continue
                seen[when][who].append(answer)
                print(
                    f"{model} {when} {who}: {answer['ms']:.0f} ms, import {answer['import']:.0f}",
                    file=sys.stderr,
                    flush=True,
                )
    return seen


def _rows(model: str, when: str, seen: Seen) -> list[harness.Row]:
    rows = []
    ours = seen[when][harness.OURS]
    for figure, unit in (*FIGURES, ("loss", "")):
        row = harness.Row(f"{model} {when}" if figure == "ms" else f"  {figure}", unit)
        for who, answers in seen[when].items():
            if not answers:
                continue
            row.figures[who] = statistics.median(answer[figure] for answer in answers)
            if who != harness.OURS and figure != "loss":
                pairs = zip(ours, answers, strict=False)
                row.ratios[who] = statistics.median(b[figure] / a[figure] for a, b in pairs)
        rows.append(row)
    return rows


def _report_losses(rows: Sequence[harness.Row]) -> None:
    """Says whether all systems computed the same."""
    same = True
    for first, row in zip(rows, rows[len(FIGURES) :], strict=False):
        if row.case == "  loss":
            ours = row.figures[harness.OURS]
            for who, value in row.figures.items():
                if not abs(value - ours) <= 1e-3 * abs(ours):
                    same = False
                    print(f"NOT THE SAME WORK: {first.case}: {who} has {value:.7g}, we {ours:.7g}")
    if same:
        print("all losses agree to 0.001")


def _medians(answers: Sequence[Answer]) -> dict[str, float]:
    names = dict.fromkeys(name for answer in answers for name in answer["parts"])
    return {
        name: statistics.median(answer["parts"].get(name, 0.0) for answer in answers)
        for name in names
    }


def _show_parts(parts: Mapping[str, Mapping[str, float]]) -> None:
    """Where our milliseconds go: a line a process, a column a part."""
    names = list(dict.fromkeys(name for each in parts.values() for name in each))
    width = max(map(len, parts))
    print("\n" + "  ".join(["where it goes, ms".ljust(width), *(name.rjust(8) for name in names)]))
    for what, each in parts.items():
        cells = (f"{each.get(name, 0.0):,.0f}".rjust(max(8, len(name))) for name in names)
        print("  ".join([what.ljust(width), *cells]))


if __name__ == "__main__":
    at = sys.argv.index("--worker")
    found = worker(sys.argv[at + 1], sys.argv[at + 2], "--quick" in sys.argv)
    print(json.dumps(found))
