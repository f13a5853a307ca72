"""`python -m bench fuzz [--kind KIND,…] [--seconds N | --cases N] [--seed S]`: random programs, in
turns by kind, the kernels first interpreted, then compiled.

    views     chains of views over elementwise and reduce ops; NumPy knows
    programs  nodes with writes, indexing and ordered loops; NumPy knows
    dags      tensors with shared sub-expressions, several outputs and writes: lazy ones against
              NumPy and against tensors realised one by one
    expressions  arithmetic of every dtype, simplified; the reference definition of ops knows
    sessions  whatever people may do with tensors, twenty sessions a seed; an eager model knows
    opts      actions on the ranges of kernels; the kernel without them knows

A difference prints the line that shows it again and stops with exit code 1. Make it a test: views
and programs in `tests/rangeify/test_programs.py`, dags and sessions, which are printed as short
programs, in `tests/model`.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from bench import _compilers, _dags, _opts, expressions
from bench._dag_maker import dag
from bench._interpreted import interpreted
from bench._views import views
from bench.programs import WITH_ELEMENTS, Program, program
from morok.dtype import dtypes, to_numpy
from morok.engine import compile_kernels, run_kernel
from morok.ir import Ops, UOp
from morok.ir.interpret import interpret_kernel
from morok.rangeify import Schedule, run_kernel_split_pipeline
from morok.runtime import Device
from morok.tensor import Tensor

Array = np.ndarray[Any, Any]
RunKernel = Callable[[UOp, list[Array]], Sequence[Array]]
P = TypeVar("P")
Wrong = dict[int, str]
"""What is wrong with the programs of some seeds, by seed."""
Check = Callable[[Mapping[int, P]], Wrong]
_REPORT = 300  # seconds between lines that say how far it is


# Programs of nodes -------------------------------------------------------------------------------


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


def check_interpreted(p: Program) -> str | None:
    """Rangeify's kernels by the reference interpreter against NumPy."""
    return difference(p, execute(p, schedule_of(p), interpret_kernel))


def check_compiled(programs: Mapping[int, Program]) -> Wrong:
    """The compiled kernels against NumPy, one compiler run for all the programs."""
    schedules = {seed: schedule_of(p) for seed, p in programs.items()}
    device = Device["CPU"]
    sinks = [c.src[0] for s in schedules.values() for c in s.calls]
    _compilers.with_each(lambda: _compile(sinks))

    def run(sink: UOp, arrays: list[Array]) -> Sequence[Array]:
        return _compilers.same_by_each(lambda: run_kernel(sink, arrays, device))

    return _found(
        "", {s: difference(p, execute(p, schedules[s], run)) for s, p in programs.items()}
    )


def _compile(sinks: Sequence[UOp]) -> None:
    compile_kernels(sinks, Device["CPU"])


def _check_nodes(programs: Mapping[int, Program]) -> Wrong:
    wrong = _found("interpreted: ", {s: check_interpreted(p) for s, p in programs.items()})
    return wrong or _found("compiled: ", check_compiled(programs))


def _found(note: str, wrong: Mapping[int, str | None]) -> Wrong:
    return {seed: note + text for seed, text in wrong.items() if text is not None}


# Programs of tensors -----------------------------------------------------------------------------


def _by_tensors(p: _dags.Program, stepwise: bool) -> list[Any]:
    """`_dags.by_tensors` by each compiler, all tensors realised if there are several."""
    kept: list[Any] = []

    def run() -> list[Array]:
        kept[:] = _dags.by_tensors(p, stepwise)
        if len(_compilers.chosen) == 1:
            return []
        tensors = [value for value in kept if isinstance(value, Tensor)]
        Tensor.realize(*tensors)
        return [tensor.numpy() for tensor in tensors]

    _compilers.same_by_each(run)
    return kept


def check_dags(programs: Mapping[int, _dags.Program]) -> Wrong:
    """Lazy tensors and tensors realised one by one, interpreted and compiled, against NumPy; one
    compiler run for all the programs."""
    wanted = {seed: _dags.by_numpy(p) for seed, p in programs.items()}

    def differences(note: str, stepwise: bool) -> Wrong:
        got = {seed: _by_tensors(p, stepwise) for seed, p in programs.items()}
        return _found(note, {s: _dags.difference(got[s], wanted[s]) for s in programs})

    lazy, single = "lazy", "realised one by one"
    with interpreted() as sinks:
        wrong = differences(f"{lazy}, interpreted: ", False)
        wrong = wrong or differences(f"{single}, interpreted: ", True)
    if not wrong:
        _compilers.with_each(lambda: _compile(sinks))
        wrong = differences(f"{lazy}, compiled: ", False)
    return wrong or differences(f"{single}, compiled: ", True)


def _print_shortest(p: _dags.Program) -> None:
    short = _dags.shortest(p, lambda shorter: bool(carefully(check_dags, {0: shorter})))
    print(_dags.text(short), file=sys.stderr)


# Sessions ----------------------------------------------------------------------------------------


def _check_sessions(seeds: Mapping[int, int]) -> Wrong:
    from bench.state_machine import run

    for seed in seeds:
        run(seed)
    return {}


# All kinds ---------------------------------------------------------------------------------------


def carefully(check: Check[P], programs: Mapping[int, P], *, say: bool = False) -> Wrong:
    """What is wrong, exceptions included; `say` prints where they come from."""
    try:
        return check(programs)
    except Exception as error:  # whatever it is, it is a difference
        if len(programs) > 1:
            alone = (carefully(check, {seed: p}, say=say) for seed, p in programs.items())
            return {seed: text for found in alone for seed, text in found.items()}
        if say:
            traceback.print_exception(error, limit=-6)
        return dict.fromkeys(programs, f"{type(error).__name__}: {str(error).splitlines()[0]}")


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """One kind of random programs: how one is made of its seed, and what is wrong with some."""

    make: Callable[[int], P]
    check: Check[P]
    show: Callable[[P], None] = lambda p: None
    at_once: int | None = None  # how many are checked together; None: `--batch`
    summary: Callable[[], Sequence[str]] = tuple  # what else to say at the end


KINDS: dict[str, Kind[Any]] = {
    "views": Kind(views, _check_nodes),
    "programs": Kind(program, _check_nodes),
    "dags": Kind(dag, check_dags, _print_shortest),
    "expressions": Kind(expressions.example, expressions.check),
    "sessions": Kind(int, _check_sessions, at_once=1),
    "opts": Kind(int, _opts.check, summary=_opts.summary),
}


def _seeds(kind: str, first: int, count: int) -> list[int]:
    """The next `count` seeds; half of the programs index and have ordered loops."""
    half = count // 2 if kind == "programs" else 0
    plain = range(first, first + count - half)
    return [*plain, *range(WITH_ELEMENTS + first, WITH_ELEMENTS + first + half)]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kind", default=",".join(KINDS), help="comma separated; all by default")
    parser.add_argument("--seconds", type=float, help="until the time is up (60 without --cases)")
    parser.add_argument("--cases", type=int, help="so many of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--batch", type=int, default=40, help="programs a compiler run")
    parser.add_argument("--keep-going", action="store_true", help="to the end, whatever is found")
    parser.add_argument("--compilers", help="llvm,c: kernels by both, which must give equal bits")
    options = parser.parse_args(argv)
    if options.compilers is not None:
        _compilers.chosen[:] = options.compilers.split(",")
    options.kind = options.kind.split(",")
    for kind in options.kind:
        if kind not in KINDS:
            parser.error(f"no kind {kind!r}: there are {', '.join(KINDS)}")
    if options.seconds is None:
        options.seconds = 60.0 if options.cases is None else math.inf
    return options


def main(argv: Sequence[str]) -> int:
    """Runs until the time is up or the cases are done; 1 if something went wrong."""
    options = _arguments(argv)
    kinds: list[str] = options.kind
    if "sessions" in kinds and importlib.util.find_spec("hypothesis") is None:
        print("no sessions: they need hypothesis (pip install hypothesis)", file=sys.stderr)
        kinds.remove("sessions")
    end = time.monotonic() + options.seconds
    spent, done, failed = (dict.fromkeys(kinds, 0) for _ in range(3))

    def report(note: str = "") -> None:
        for name in kinds:
            seeds = f"from seed {options.seed}"
            print(f"fuzz: {done[name]} {name} {seeds}, {failed[name]} failed{note}", flush=True)
            for line in KINDS[name].summary():
                print(f"      {line}", flush=True)

    said = time.monotonic()
    while time.monotonic() < end and (options.keep_going or not any(failed.values())):
        open_kinds = [k for k in kinds if options.cases is None or done[k] < options.cases]
        if not open_kinds:
            break
        name = min(open_kinds, key=spent.__getitem__)  # all get the same time
        began = time.monotonic_ns()
        count = KINDS[name].at_once or options.batch
        if options.cases is not None:
            count = min(count, options.cases - done[name])
        failed[name] += _batch(name, _seeds(name, options.seed + done[name], count))
        done[name] += count
        spent[name] += time.monotonic_ns() - began
        if time.monotonic() - said > _REPORT:
            report(" so far")
            said = time.monotonic()
    report()
    return 1 if any(failed.values()) else 0


def _batch(name: str, seeds: Sequence[int]) -> int:
    """How many of the seeds went wrong, each reported."""
    kind = KINDS[name]
    programs = {seed: kind.make(seed) for seed in seeds}
    wrong = carefully(kind.check, programs, say=True)
    for seed, text in wrong.items():
        again = f"python -m bench fuzz --kind {name} --seed {seed} --cases 1"
        print(f"{again}: {text}", file=sys.stderr, flush=True)
        kind.show(programs[seed])
    return len(wrong)
