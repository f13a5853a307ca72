"""`python -m bench fuzz --seconds N --seed S`: in turns, random programs of nodes against NumPy,
interpreted first, compiled second; and random sessions with tensors against an eager model.

A difference prints the seed and stops with exit code 1. Add seeds of programs to
`tests/rangeify/test_programs.py`; a session is printed as a short program when it goes wrong:
that is the test to add, in `tests/model`. `--sessions S` runs the sessions of one seed again.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import traceback
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


def check_sessions(seed: int) -> str | None:
    """Sessions with tensors, twenty of one seed; hypothesis prints the shortest that goes wrong."""
    from bench.state_machine import run

    try:
        run(seed)
    except Exception as error:  # whatever it is, it is a difference
        traceback.print_exception(error, limit=-6)
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return None


def main(argv: Sequence[str]) -> int:
    """Runs until the time is up; 1 if something went wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=40, help="programs a compiler run")
    parser.add_argument("--sessions", type=int, metavar="SEED", help="only these sessions, once")
    options = parser.parse_args(argv)
    if options.sessions is not None:
        wrong = check_sessions(options.sessions)
        print(f"sessions {options.sessions}: {wrong or 'right'}")
        return 1 if wrong else 0
    with_sessions = importlib.util.find_spec("hypothesis") is not None
    if not with_sessions:
        print("no sessions: they need hypothesis (pip install hypothesis)", file=sys.stderr)
    end = time.monotonic() + options.seconds
    seed = options.seed
    programs = sessions = 0
    failures: dict[str, str] = {}
    while time.monotonic() < end and not failures:
        half = options.batch // 2
        plain = range(seed, seed + options.batch - half)
        seeds = [*plain, *range(WITH_ELEMENTS + seed, WITH_ELEMENTS + seed + half)]
        for s in seeds:
            wrong = check_interpreted(s)
            if wrong is not None:
                failures[f"--seed {s}"] = "interpreted: " + wrong
        if not failures:
            compiled = check_compiled(seeds)
            failures.update({f"--seed {s}": "compiled: " + w for s, w in compiled.items()})
        programs += options.batch
        if with_sessions and time.monotonic() < end:
            wrong = check_sessions(seed)
            if wrong is not None:
                failures[f"--sessions {seed}"] = wrong
            sessions += 20
        seed += options.batch
    for option, wrong in failures.items():
        print(f"python -m bench fuzz {option}: {wrong}", file=sys.stderr)
    done = f"{programs} programs and {sessions} sessions from seed {options.seed}"
    print(f"fuzz: {done}, {len(failures)} failed")
    return 1 if failures else 0
