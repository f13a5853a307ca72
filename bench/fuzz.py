"""`python -m bench fuzz --seconds N --seed S`: random programs against NumPy, interpreted first,
compiled second.

A difference prints the seed and stops with exit code 1; add such seeds to
`tests/rangeify/test_programs.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.programs import WITH_ELEMENTS, Program, program
from morok.dtype import dtypes, to_numpy
from morok.engine import compile_kernels, run_kernel
from morok.ir import Ops, UOp
from morok.ir.interpret import interpret_kernel
from morok.rangeify import Schedule, run_kernel_split_pipeline
from morok.runtime import Device

Array = np.ndarray[Any, Any]
RunKernel = Callable[[UOp, list[Array]], list[Array]]


def schedule_of(p: Program) -> Schedule:
    """The kernels of a program."""
    return run_kernel_split_pipeline(UOp(Ops.SINK, dtypes.void, p.roots))


def execute(p: Program, schedule: Schedule, run: RunKernel) -> list[Array]:
    """The value of every root when each kernel is run by `run`."""
    memory: dict[UOp, Array] = {}

    def contents(buffer: UOp) -> Array:
        if buffer not in memory:
            if buffer.op is Ops.PARAM:
                memory[buffer] = p.inputs[buffer.arg[0]].reshape(-1).copy()
            else:
                # Not initialised: any value will do.
                memory[buffer] = np.full(buffer.arg, 99, to_numpy(buffer.dtype))
        return memory[buffer]

    for call in schedule.calls:
        args = call.src[1:]
        for buffer, after in zip(args, run(call.src[0], [contents(a) for a in args]), strict=True):
            memory[buffer] = after
    return [contents(b) for b in schedule.outputs]


def difference(p: Program, got: Sequence[Array]) -> str | None:
    """What is wrong with the roots' values, or None."""
    for i, (want, have) in enumerate(zip(p.expected, got, strict=True)):
        if not np.array_equal(want.reshape(-1), have.reshape(-1)[: want.size]):
            bad = np.flatnonzero(want.reshape(-1) != have.reshape(-1)[: want.size])
            where = f"{len(bad)} of {want.size} elements differ, first at {bad[0]}"
            return f"root {i} of shape {want.shape}: {where}"
    return None


def check_interpreted(seed: int) -> str | None:
    """Rangeify's kernels by the reference interpreter against NumPy."""
    p = program(seed)
    return difference(p, execute(p, schedule_of(p), interpret_kernel))


def check_compiled(seeds: Sequence[int]) -> dict[int, str]:
    """The compiled kernels against NumPy, one compiler run for all the seeds."""
    programs = {seed: program(seed) for seed in seeds}
    schedules = {seed: schedule_of(p) for seed, p in programs.items()}
    sinks = [c.src[0] for s in schedules.values() for c in s.calls]
    device = Device["CPU"]
    compile_kernels(sinks, device)
    bad = {}
    for seed, p in programs.items():
        wrong = difference(
            p, execute(p, schedules[seed], lambda sink, arrays: run_kernel(sink, arrays, device))
        )
        if wrong is not None:
            bad[seed] = wrong
    return bad


def main(argv: Sequence[str]) -> int:
    """Runs until the time is up; 1 if a program went wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=40, help="programs a compiler run")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    seed = options.seed
    done = 0
    failures: dict[int, str] = {}
    while time.monotonic() < end and not failures:
        half = options.batch // 2
        plain = range(seed, seed + options.batch - half)
        seeds = [*plain, *range(WITH_ELEMENTS + seed, WITH_ELEMENTS + seed + half)]
        for s in seeds:
            wrong = check_interpreted(s)
            if wrong is not None:
                failures[s] = "interpreted: " + wrong
        if not failures:
            failures.update({s: "compiled: " + w for s, w in check_compiled(seeds).items()})
        seed += options.batch
        done += options.batch
    for s, wrong in failures.items():
        print(f"seed {s}: {wrong}", file=sys.stderr)
    print(f"fuzz: {done} programs from seed {options.seed}, {len(failures)} failed")
    return 1 if failures else 0
