"""Single kernels: matrix products, convolutions, reductions, elementwise chains.

    python -m bench kernels [--peers torch,jax] [--threads N] [--only ROW,…] [--quick] [--json FILE]

Of each row: milliseconds, GFLOP/s or GB/s, the share of what this machine can do (multiply-adds, or
moving the same bytes: kernels of our own, measured beside each run), and how many times longer the
peers take; `best` is the fastest peer. Values are checked against NumPy before anything is timed.

On one thread the figures are CPU time. On several they are wall time, and a round in which other
processes used more than a quarter of a core counts for nothing, if a quiet one is left.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import _kernels_limits as limits
from bench import _peers, harness
from bench._kernels_data import QUICK, ROWS, disagreement, inputs

SECONDS = 0.15
_DISTURBED = 0.25  # cores that others may use during a round on several threads


class _Rows:
    """The rows of one system, of which one is alive at a time."""

    def __init__(self, system: ModuleType, who: str, quick: bool, threads: int) -> None:
        self._system, self._who, self._threads = system, who, threads
        self._seconds = 0.02 if quick else SECONDS
        self._alive: tuple[str, Callable[[], Any]] | None = None

    def cases(self) -> dict[str, harness.Case]:
        """For `harness.serve`."""
        return {name: partial(self._run, name) for name in ROWS}

    def _run(self, name: str) -> dict[str, float]:
        if self._alive is None or self._alive[0] != name:
            self._alive = None
            gc.collect()
            arrays = inputs(name)
            step = self._system.start(self._who, name, arrays)
            answer = step()
            self._system.wait(answer)
            wrong = disagreement(name, arrays, self._system.values(answer))
            if wrong is not None:
                raise ValueError(wrong)
            self._alive = name, step
        before, start = _others(), time.perf_counter()
        cpu, wall = harness.steady(self._alive[1], self._system.wait, self._seconds)
        figures = {
            "ms": 1e3 * (cpu if self._threads == 1 else wall),
            "seconds": time.perf_counter() - start,
            "others": _others() - before,
        }
        return figures | (_limit(name, self._threads) if self._who == harness.OURS else {})


def _limit(name: str, threads: int) -> dict[str, float]:
    """The least milliseconds this machine could do a row in, measured now."""
    row = ROWS[name]
    if row.flops:
        return {"limit": 1e3 * row.flops / limits.multiply_adds(threads)}
    return {"limit": 1e3 * limits.transfer(row.reads, row.writes, threads)}


def _others() -> float:
    """CPU seconds that other processes than this one have used so far."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    fields = [int(n) for n in stat.read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system = fields[:3]
    busy = (user + nice + system + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return busy - own.user - own.system


def worker(who: str, quick: bool, threads: int) -> None:
    """Serves the rows of one system."""
    system = _peers.load("kernels", who, threads)
    if isinstance(system, str):
        harness.serve(None, "", missing=system)
        return
    system.use_threads(threads)
    harness.serve(_Rows(system, who, quick, threads).cases(), system.VERSION)


# ---- rounds and the table ------------------------------------------------------------------------


def _round_by_round(
    workers: list[harness.Worker], name: str, rounds: int, threads: int
) -> dict[str, list[dict[str, Any]]]:
    """What each system answers, in turns; on several threads only in rounds that nobody
    disturbed, unless there was none."""
    answers: dict[str, list[dict[str, Any]]] = {worker.who: [] for worker in workers}
    for worker in workers:
        worker.call(name)  # compiles, checks the values, warms up
    for _ in range(rounds):
        for worker in workers:
            answers[worker.who].append(worker.call(name))
    for who, seen in answers.items():
        if "failed" in seen[-1]:
            print(f"{who}: {name}: {seen[-1]['failed']}")
            if who == harness.OURS:
                raise RuntimeError(f"our own row {name} failed: {seen[-1]['failed']}")
    if threads > 1:
        quiet = [i for i in range(rounds) if all(map(_is_quiet, (a[i] for a in answers.values())))]
        if quiet:
            answers = {who: [seen[i] for i in quiet] for who, seen in answers.items()}
        else:
            print(f"{name}: no quiet round of {rounds}")
    return answers


def _is_quiet(answer: dict[str, Any]) -> bool:
    return bool(answer.get("others", 0.0) <= _DISTURBED * answer.get("seconds", 0.0))


def _summary(name: str, answers: dict[str, list[dict[str, Any]]]) -> harness.Row:
    """Medians, and medians of the ratios to ours, pair by pair."""
    out = harness.Row(name, "ms")
    ours = answers[harness.OURS]
    pairs: dict[str, list[float]] = {}
    for who, seen in answers.items():
        figures = [answer["ms"] for answer in seen if "ms" in answer]
        if not figures:
            continue
        out.figures[who] = statistics.median(figures)
        if who != harness.OURS:
            pairs[who] = [
                theirs["ms"] / mine["ms"] for mine, theirs in zip(ours, seen, strict=True)
            ]
            out.ratios[who] = statistics.median(pairs[who])
    if out.ratios:
        out.ratios["best"] = min(out.ratios.values())
    out.ratios["limit"] = statistics.median(answer["limit"] / answer["ms"] for answer in ours)
    row = ROWS[name]
    seconds = out.figures[harness.OURS] / 1e3
    speed, unit = (row.flops, "GFLOP/s") if row.flops else (row.reads + row.writes, "GB/s")
    out.figures[unit] = speed / seconds / 1e9
    return out


def _line(row: harness.Row, peers: list[str]) -> str:
    unit = "GFLOP/s" if "GFLOP/s" in row.figures else "GB/s"
    cells = [
        f"{row.case:<22} {row.figures[harness.OURS]:>9.3f} ms {row.figures[unit]:>7.1f} {unit:<7}",
        f"{row.ratios['limit']:>5.0%} of peak ",
    ]
    for who in (*peers, "best"):
        ratio = row.ratios.get(who)
        cells.append(f"{'-' if ratio is None else f'{ratio:.2f}x':>8}".rjust(len(who) + 1))
    return " ".join(cells)


def _mean(rows: list[harness.Row], who: str) -> float:
    """The geometric mean of a ratio."""
    known = [row.ratios[who] for row in rows if who in row.ratios]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan


def chosen(args: argparse.Namespace) -> list[str]:
    """The rows of this run. `--only` takes whole names or their beginnings."""
    if not args.only:
        return list(QUICK if args.quick else ROWS)
    wanted = [part.strip() for part in args.only.split(",")]
    found = [name for name in ROWS if any(name.startswith(part) for part in wanted)]
    missing = [part for part in wanted if not any(name.startswith(part) for name in ROWS)]
    if missing:
        raise SystemExit(f"no row {', '.join(missing)}: there are {', '.join(ROWS)}")
    return found


def main(args: argparse.Namespace) -> None:
    args.peers = _peers.spread(args.peers)
    names = chosen(args)
    options = ["--threads", str(args.threads), *(["--quick"] if args.quick else [])]
    systems = (harness.OURS, *args.peers)
    workers = [harness.Worker("bench.kernels", who, options) for who in systems]
    rows: list[harness.Row] = []
    try:
        for worker in workers:
            print(f"{worker.who}: {worker.missing or f'version {worker.version}'}")
        able = [worker for worker in workers if worker.missing is None]
        if not able or able[0].who != harness.OURS:
            raise RuntimeError(f"nothing to compare with: {workers[0].missing}")
        peers = [worker.who for worker in able[1:]]
        head = " ".join(f"{who:>8}" for who in (*peers, "best"))
        print(f"\nkernels, {args.threads} thread(s): times as long as ours take\n{'':<57} {head}")
        for name in names:
            answers = _round_by_round(able, name, args.rounds, args.threads)
            rows.append(_summary(name, answers))
            print(_line(rows[-1], peers), flush=True)
    finally:
        for worker in workers:
            worker.close()
    for who in (*peers, "best"):
        print(f"geometric mean of {who}: {_mean(rows, who):.2f}x")
    harness.write_json(args, f"kernels {args.threads}", rows)


if __name__ == "__main__":
    started = harness.worker_of(sys.argv)
    if started is not None:
        worker(*started, threads=int(sys.argv[sys.argv.index("--threads") + 1]))
