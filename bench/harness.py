"""What benchmarks share: workers in processes of their own, interleaved rounds, tables, results.

A benchmark defines *cases*: functions that do some work and return a dict of figures. `serve` runs
them in a worker process on demand; `compare` drives one worker for us and one for each peer in
turns, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

Case = Callable[[], dict[str, float]]
OURS = "morok"


class Worker:
    """A process that answers "run this case" with a line of JSON."""

    def __init__(self, module: str, who: str, options: Sequence[str] = ()) -> None:
        self.who = who
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--worker", who, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parent.parent,
        )
        first = self._read()
        self.missing: str | None = first.get("missing")
        self.version: str = first.get("version", "")

    def call(self, case: str) -> dict[str, Any]:
        """The figures of one run; {} where the worker has no such case, "failed" if it raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker {self.who} died: see its error above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(cases: Mapping[str, Case] | None, version: str, missing: str | None = None) -> None:
    """The worker's side: answers until its input ends. `missing` says why it cannot work."""
    output = sys.stdout
    sys.stdout = sys.stderr  # what a peer prints must not disturb the protocol
    first = {"version": version} if missing is None else {"missing": missing}
    print(json.dumps(first), file=output, flush=True)
    for line in sys.stdin:
        case = (cases or {}).get(line.strip())
        try:
            answer: dict[str, Any] = case() if case is not None else {}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=output, flush=True)


@dataclass
class Row:
    """Medians of one case for each system, and the median of the ratios to ours, pair by pair."""

    case: str
    unit: str
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)


def compare(
    module: str,
    cases: Mapping[str, tuple[str, str]],
    args: argparse.Namespace,
    options: Sequence[str] = (),
    also: Sequence[tuple[str, str]] = (),
    warm_up: bool = True,
) -> list[Row]:
    """Runs every case (name -> (figure to compare, unit)) for us and the peers of `args`.

    `also`: more figures, with units, that get rows of their own. `warm_up`: a first run that counts
    for nothing, which cases in forked processes do not need.
    """
    workers = [Worker(module, who, options) for who in (OURS, *args.peers)]
    rows: list[Row] = []
    try:
        for worker in workers:
            note = worker.missing or f"version {worker.version}"
            print(f"{worker.who}: {note}")
        if workers[0].missing is not None:
            raise RuntimeError(f"nothing to compare with: {workers[0].missing}")
        able = [worker for worker in workers if worker.missing is None]
        for case, (figure, unit) in cases.items():
            if warm_up:
                for worker in able:
                    worker.call(case)
            rows += (done := _rounds(able, case, [(figure, unit), *also], args.rounds))
            seen = ", ".join(f"{who} {value:.4g}" for who, value in done[0].figures.items())
            print(f"{case}: {seen} {unit}", file=sys.stderr, flush=True)
    finally:
        for worker in workers:
            worker.close()
    return rows


def _rounds(
    workers: list[Worker], case: str, figures: Sequence[tuple[str, str]], rounds: int
) -> list[Row]:
    answers: dict[str, list[dict[str, Any]]] = {worker.who: [] for worker in workers}
    for _ in range(rounds):
        for worker in workers:
            answers[worker.who].append(worker.call(case))
    for worker in workers:
        failed = answers[worker.who][-1].get("failed")
        if failed is not None:
            print(f"{worker.who}: {case}: {failed}")
            if worker.who == OURS:
                raise RuntimeError(f"our own case {case} failed: {failed}")
    rows = []
    for i, (figure, unit) in enumerate(figures):
        row = Row(case if i == 0 else f"  {figure}", unit)
        rows.append(row)
        for who, seen in answers.items():
            pairs = [
                (ours[figure], theirs[figure])
                for ours, theirs in zip(answers[OURS], seen, strict=True)
                if figure in theirs
            ]
            if pairs:
                row.figures[who] = statistics.median(theirs for _, theirs in pairs)
            ratios = [theirs / ours for ours, theirs in pairs if ours]
            if ratios and who != OURS:
                row.ratios[who] = statistics.median(ratios)
    return rows


def show(title: str, rows: Sequence[Row]) -> None:
    """The table: a line a case, a column a system, then how many times longer each peer takes."""
    systems = list(dict.fromkeys(who for row in rows for who in row.figures))
    widths = [max(len(row.case) for row in rows), *(max(12, len(who)) for who in systems)]
    print(f"\n{title}")
    head = ["".ljust(widths[0]), *(w.rjust(n) for w, n in zip(systems, widths[1:], strict=True))]
    print("  ".join([*head, "unit".ljust(8), "peer / ours"]))
    for row in rows:
        cells = [row.case.ljust(widths[0])]
        for who, width in zip(systems, widths[1:], strict=True):
            value = row.figures.get(who)
            cells.append(("-" if value is None else f"{value:,.4g}").rjust(width))
        ratios = " ".join(f"{who} {ratio:.3g}x" for who, ratio in row.ratios.items())
        print("  ".join([*cells, row.unit.ljust(8), ratios]))


def write_json(args: argparse.Namespace, name: str, rows: Sequence[Row]) -> None:
    """Adds the rows to the file of `--json`, under the benchmark's name."""
    if not args.json:
        return
    path = Path(args.json)
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything["machine"] = {"processor": _processor(), "python": platform.python_version()}
    everything[name] = [vars(row) for row in rows]
    path.write_text(json.dumps(everything, indent=2) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds of this process's own time, what `work` returns): what others run costs nothing."""
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def steady(
    step: Callable[[], Any], wait: Callable[[Any], Any], seconds: float
) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of one `step`, called for at least `seconds` and three times.

    `wait` gets the last answer and returns when all of it has been computed.
    """
    wait(step())
    count = 1
    while True:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = None
        for _ in range(count):
            answer = step()
        wait(answer)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if (cpu >= seconds / 2 and count >= 3) or cpu >= seconds:
            return cpu / count, wall / count
        count = max(3, count * 2, min(int(count * seconds / max(cpu, 1e-6)), count * 100))


Step = Callable[[], Any]
Wait = Callable[[Any], float]
FIRST_STEPS = 5


class Steppers:
    """Cases that go on from call to call, as training does, of which one is alive at a time.

    A maker builds a case: (step, wait), where `wait` of a step's answer returns its value when it
    has been computed. Figures: `cpu` and `wall` of a steady step, in `unit`s; `first`, the seconds
    until the first step was done; `after 5`, the value after five steps, which has to be the same
    for every system or the comparison means nothing.
    """

    UNITS: ClassVar[dict[str, float]] = {"us": 1e6, "ms": 1e3}

    def __init__(
        self, makers: Mapping[str, Callable[[], tuple[Step, Wait]]], unit: str, seconds: float
    ) -> None:
        self._makers = makers
        self._scale = self.UNITS[unit]
        self._seconds = seconds
        self._alive: tuple[str, Step, Wait, dict[str, float]] | None = None

    def cases(self) -> dict[str, Case]:
        """For `serve`."""
        return {name: partial(self._run, name) for name in self._makers}

    def _run(self, name: str) -> dict[str, float]:
        if self._alive is None or self._alive[0] != name:
            self._alive = None
            gc.collect()
            self._alive = self._start(name)
        _, step, wait, known = self._alive
        cpu, wall = steady(step, wait, self._seconds)
        return {**known, "cpu": cpu * self._scale, "wall": wall * self._scale}

    def _start(self, name: str) -> tuple[str, Step, Wait, dict[str, float]]:
        start = time.perf_counter()
        step, wait = self._makers[name]()
        wait(step())
        first = time.perf_counter() - start
        value = [wait(step()) for _ in range(FIRST_STEPS - 1)][-1]
        return name, step, wait, {"first": first, f"after {FIRST_STEPS}": value}


def disagreements(rows: Sequence[Row], within: float) -> list[str]:
    """Where the values after the first steps are further apart than `within`, relatively."""
    out = []
    case = ""
    for row in rows:
        if not row.case.startswith("  "):
            case = row.case
        elif row.case.strip() == f"after {FIRST_STEPS}":
            ours = row.figures.get(OURS, math.nan)
            for who, value in row.figures.items():
                if not abs(value - ours) <= within * abs(ours):
                    out.append(
                        f"{case}: {who} has {value:.7g} after {FIRST_STEPS} steps, we {ours:.7g}"
                    )
    return out


def report_disagreements(rows: Sequence[Row], within: float) -> None:
    """Says whether all systems computed the same."""
    found = disagreements(rows, within)
    for line in found:
        print(f"NOT THE SAME WORK: {line}")
    if not found:
        print(f"all values after {FIRST_STEPS} steps agree to {within:g}")


def status(field_name: str) -> float:
    """A field of /proc/self/status in MB, such as VmHWM (largest resident set so far) or VmRSS."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field_name:
            return int(value.split()[0]) / 1024
    raise LookupError(f"/proc/self/status has no {field_name}")


def forked(case: Case) -> Case:
    """The case run in a fork of this process each time: it leaves no caches behind."""

    def run() -> dict[str, float]:
        source, target = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(target, json.dumps(case()).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(target)
        with os.fdopen(source, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        figures: dict[str, float] = json.loads(answer) if answer else {}
        return figures

    return run


def worker_of(argv: Sequence[str]) -> tuple[str, bool] | None:
    """(system, quick) when this process was started as a worker."""
    if "--worker" not in argv:
        return None
    return argv[argv.index("--worker") + 1], "--quick" in argv
