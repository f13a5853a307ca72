"""Random actions on real kernels: the optimised kernel means what the kernel means.

Each seed is a computation (`_opts_kernels`); up to three of its kernels get random actions
(`_opts_actions`), or those that the heuristic chooses, for a random target. The result is compared
with the kernel itself after the actions, after the axes were expanded, as a LINEAR op by op where
that is small, and compiled: ints and bools exactly, floats within twice the bound of
`_opts_bounds`.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from bench._interpreted import from_stored, to_stored
from bench._opts_actions import random_opts, recorded
from bench._opts_bounds import error_bounds, unit_roundoff
from bench._opts_kernels import Case, cases
from morok.codegen import get_program
from morok.codegen.expander import expander, post_opt_symbolic
from morok.dtype import DType, dtypes
from morok.errors import OptError
from morok.ir import AxisType, Capability, Ops, UOp, check_node
from morok.ir.interpret import interpret_kernel, interpret_linear
from morok.optimizer import Opt, apply_opts, prepare, replay
from morok.renderers import CRenderer
from tests.codegen.compiled import build, compiler, launch

__all__ = ["TARGETS", "Trial", "check", "compiled", "difference", "summary", "trials"]

Array = np.ndarray
_KERNELS = 3  # of one seed
_MOST_ACTIONS = 6
_CHOSEN = 0.2  # of the trials take what the heuristic chooses
_LINEAR = 3000  # iterations up to which a LINEAR is interpreted
TARGETS = ("16 bytes", "32 bytes", "64 bytes", "no vector ALU", "predicated memory")


@functools.cache
def renderer(target: str) -> CRenderer:
    """C for this machine, pretending to be another one."""
    made = CRenderer.for_target(compiler().target.has)
    number = target.partition(" ")[0]
    size = int(number) if number.isdigit() else 32
    widths = []
    for dtype in dtypes.all:
        lane = 4 if dtype.kind == "f" and dtype.itemsize < 4 else dtype.itemsize
        lanes = tuple(1 << k for k in range(7) if 8 <= lane << k <= size)
        widths.append((dtype, lanes))
    made.capability = replace(
        made.capability,
        name=target,
        vector_widths=tuple(widths),
        vector_alu=target != "no vector ALU",
        predicated_memory=target == "predicated memory",
        vector_registers=32 if size == 64 else 16,
    )
    if size == 64:
        made.register_class = None  # such vectors need not fit a register of this machine
    return made


@dataclass
class Trial:
    """A kernel, the actions on it, and what it should leave in its buffers."""

    start: UOp  # prepared
    opts: Sequence[Opt]
    target: str
    arrays: tuple[Array, ...]
    expected: list[Array] = field(init=False)
    bounds: list[Array | None] = field(init=False)

    def __post_init__(self) -> None:
        self.expected = interpret_kernel(self.start, self.arrays)
        self.bounds = error_bounds(self.start, self.arrays)

    def opted(self) -> UOp:
        """The kernel after the actions."""
        return replay(self.start, self.opts)

    @property
    def capability(self) -> Capability:
        return renderer(self.target).capability

    def __str__(self) -> str:
        opts = "; ".join(map(str, self.opts)) or "no actions"
        return f"{self.start.arg.name} on {self.target}: {opts}"


def trials(seed: int) -> list[Trial]:
    """What is tried for a seed."""
    rng = random.Random(seed)
    found: list[Case] = cases(seed)
    made = []
    for case in rng.sample(found, min(_KERNELS, len(found))):
        start = prepare(case.sink)
        target = rng.choice(TARGETS)
        if rng.random() < _CHOSEN:
            sink = apply_opts(start, renderer(target))
        else:
            sink = random_opts(start, rng, rng.randint(1, _MOST_ACTIONS))
        made.append(Trial(start, recorded(sink), target, case.arrays))
    return made


# What is wrong -----------------------------------------------------------------------------------

_worst: dict[str, tuple[float, float, str]] = {}
"""By dtype: the largest difference in ulp of the largest number in the buffer (a sum may be far
smaller than its terms), as part of the bound, and where."""


def summary() -> list[str]:
    """The largest differences so far."""
    return [
        f"{name}: worst difference {ulp:.1f} ulp, {part:.0%} of what is allowed, in {where}"
        for name, (ulp, part, where) in sorted(_worst.items())
    ]


def difference(trial: Trial, got: Sequence[Array]) -> str | None:
    """What is wrong with the contents of the buffers, or None."""
    dtype_of = {p.arg[0]: p.dtype.base for p in trial.start.toposort() if p.op is Ops.PARAM}
    for slot, (want, have) in enumerate(zip(trial.expected, got, strict=True)):
        bound, dtype = trial.bounds[slot], dtype_of.get(slot, dtypes.int32)
        wrong = _wrong(trial, dtype, want, np.asarray(have).reshape(want.shape), bound)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            allowed = "" if bound is None else f", {2 * bound[at]:.3g} away allowed"
            where = f"{wrong.sum()} of {want.size} elements of buffer {slot} ({dtype})"
            return f"{where} differ, first at {at}: {have[at]!r}, not {want[at]!r}{allowed}"
    return None


def _wrong(trial: Trial, dtype: DType, want: Array, have: Array, bound: Array | None) -> Array:
    same = (want == have) | ((want != want) & (have != have))  # NaN as NaN
    if bound is None or dtype.kind != "f":
        free = np.zeros(want.shape, bool) if bound is None else bound > 0
        return np.asarray(~same & ~free)
    with np.errstate(all="ignore"):
        away = np.abs(have.astype(np.float64) - want.astype(np.float64))
        ok = same | (away <= 2 * bound) | ~np.isfinite(bound)
        size = np.abs(want.astype(np.float64))
        counted = np.isfinite(bound) & np.isfinite(away) & np.isfinite(size)
    unit = size[counted].max(initial=0.0) * 2 * unit_roundoff(dtype)
    if unit > 0:
        ulp = np.where(counted, away / unit, 0)
        at = int(ulp.argmax())
        if ulp[at] > _worst.get(dtype.name, (0.0, 0.0, ""))[0]:
            part = float(away[at] / (2 * bound[at])) if bound[at] else 0.0
            _worst[dtype.name] = (float(ulp[at]), part, str(trial))
    return np.asarray(~ok)


def _interpreted(trial: Trial) -> str | None:
    sink = trial.opted()
    for node in sink.toposort():
        check_node(node)
    wrong = difference(trial, interpret_kernel(sink, trial.arrays))
    if wrong is not None:
        return f"after the actions: {wrong}"
    expanded = expander(post_opt_symbolic(sink), trial.capability)
    left = [
        node
        for node in expanded.toposort()
        if node.op is Ops.RANGE and node.arg[1] in (AxisType.UPCAST, AxisType.UNROLL)
    ]
    if left:
        return f"{len(left)} axes are left after expansion"
    wrong = difference(trial, interpret_kernel(expanded, trial.arrays))
    if wrong is not None:
        return f"after expansion: {wrong}"
    linear = get_program(sink, renderer(trial.target)).src[2]
    loops = [op for op in linear.src if op.op is Ops.RANGE]
    if prod(int(op.vmax or 0) + 1 for op in loops) <= _LINEAR:
        wrong = difference(trial, interpret_linear(linear, trial.arrays))
        if wrong is not None:
            return f"as a LINEAR: {wrong}"
    return None


def compiled(found: Sequence[Trial]) -> list[str | None]:
    """What is wrong with each, one compiler run for all."""
    programs = []
    for number, trial in enumerate(found):
        sink = trial.opted()
        named = sink.replace(arg=replace(sink.arg, name=f"trial_{number}"))
        programs.append(get_program(named, renderer(trial.target)))
    out = []
    for trial, program, kernel in zip(found, programs, build(programs), strict=True):
        params = {p.arg[0]: p.dtype.base for p in trial.start.toposort() if p.op is Ops.PARAM}
        dtype_of = [params.get(slot, dtypes.int32) for slot in range(len(trial.arrays))]
        held = [to_stored(a, dtype) for a, dtype in zip(trial.arrays, dtype_of, strict=True)]
        after = launch(kernel, program, held, {})
        got = [from_stored(a, dtype) for a, dtype in zip(after, dtype_of, strict=True)]
        wrong = difference(trial, got)
        out.append(None if wrong is None else f"compiled: {wrong}")
    return out


def _alone(trial: Trial) -> str | None:
    """What is wrong with one, exceptions included."""
    try:
        return _interpreted(trial) or compiled([trial])[0]
    except OptError:
        return None  # fewer actions no longer fit together
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _shortest(trial: Trial, wrong: Callable[[Trial], str | None]) -> Trial:
    """The trial with as few of its actions as still go wrong."""
    position = len(trial.opts) - 1
    while position >= 0:
        fewer = [*trial.opts[:position], *trial.opts[position + 1 :]]
        shorter = Trial(trial.start, fewer, trial.target, trial.arrays)
        if wrong(shorter) is not None:
            trial = shorter
        position -= 1
    return trial


def check(seeds: Mapping[int, int]) -> dict[int, str]:
    """What is wrong with the optimised kernels of some seeds."""
    found = {seed: trials(seed) for seed in seeds}
    every = [(seed, trial) for seed, tried in found.items() for trial in tried]
    wrong: dict[int, str] = {}
    for seed, trial in every:
        if _interpreted(trial) is not None:
            wrong.setdefault(seed, _story(trial))
    if not wrong:
        for (seed, trial), text in zip(every, compiled([t for _, t in every]), strict=True):
            if text is not None:
                wrong.setdefault(seed, _story(trial))
    return wrong


def _story(trial: Trial) -> str:
    short = _shortest(trial, _alone)
    return f"{short}: {_alone(short)}"
