"""Largest errors of the float32 functions over a dense sample of all floats, as compiled code.

    python bench/check_accuracy.py [--every 64] [exp sin …]

Every n-th bit pattern is tried, with a random offset; the reference is NumPy in float64 (SciPy's
erf). Errors are in units in the last place of the exact result.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from morok.codegen import get_program
from morok.dtype import dtypes
from morok.ir import AxisType, KernelInfo, Ops, UOp
from morok.optimizer import parse_opts, prepare, replay
from tests.codegen.compiled import build, renderer

CHUNK = 1 << 20
NAMES = ("exp", "exp2", "log", "log2", "sin", "cos", "tan", "erf")


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """The function in float64."""
    if name == "erf":
        from scipy.special import erf

        return np.asarray(erf(x))
    return np.asarray(getattr(np, name)(x))


def kernel(name: str) -> UOp:
    """out[i] = f(x[i]) on vectors."""
    i = UOp.range(CHUNK, 0, AxisType.LOOP, renumbered=True)
    x = UOp.param(1, dtypes.float32.ptr(), CHUNK).at(i)
    out = UOp.param(0, dtypes.float32.ptr(), CHUNK).at(i)
    sink = UOp(Ops.SINK, dtypes.void, (out.store(x.alu(Ops[name.upper()]), i),), KernelInfo(name))
    widest = renderer().capability.max_width(dtypes.float32)
    return get_program(replay(prepare(sink), parse_opts(f"UPCAST(0,{widest})")), renderer())


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units in the last place; infinite where one is NaN and the other is not."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        exponent = np.maximum(np.frexp(want)[1] - 1, -126)
        unit = np.exp2(exponent - 23.0)
        distance: npt.NDArray[np.float64] = np.abs(got.astype(np.float64) - want) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(want))
        distance[same & ~np.isfinite(rounded)] = 0
        distance[np.isnan(got) != np.isnan(want)] = np.inf
    return distance


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=64)
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    from morok.runtime import Buffer, ExecutionPlan

    programs = [kernel(name) for name in options.names]
    source, target = Buffer(CHUNK * 4), Buffer(CHUNK * 4)
    x, got = source.view(np.uint32), target.view(np.float32)
    random = np.random.default_rng()
    for name, compiled in zip(options.names, build(programs), strict=True):
        plan = ExecutionPlan([(compiled, (0, 1))], 2)
        worst, at = 0.0, 0.0
        for start in range(0, 1 << 32, CHUNK * options.every):
            x[:] = start + random.integers(options.every) + np.arange(CHUNK) * options.every
            plan.run([target, source])
            values = x.view(np.float32)
            with np.errstate(all="ignore"):
                error = errors(got, reference(name, values.astype(np.float64)))
            place = int(error.argmax())
            if error[place] > worst:
                worst, at = float(error[place]), float(values[place])
        print(f"{name:5} {worst:.3f} ulp at {at!r}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
