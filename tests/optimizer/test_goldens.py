"""Five kernels as the optimizer leaves them, and their C, kept as files.

    pytest tests/optimizer/test_goldens.py --update-goldens

writes `goldens/` anew: what changed is then seen in the diff, and has to be meant. Beside the full
sizes, whose graphs are only read and lowered, the same actions are checked on kernels that are as
wide but short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench._opts import Trial, compiled, difference
from morok.codegen import get_program
from morok.dtype import dtypes
from morok.errors import OptError
from morok.ir import Level, UOp, check_stage, parse
from morok.ir.interpret import interpret_kernel
from morok.optimizer import apply_opts, prepare, replay
from morok.rangeify import run_kernel_split_pipeline
from morok.renderers import CRenderer
from morok.tensor import Tensor
from tests.codegen.compiled import source

GOLDENS = Path(__file__).parent / "goldens"
AVX2 = ("sse2", "sse4_1", "avx", "avx2", "fma", "f16c")
TARGETS = {"avx2": CRenderer(AVX2), "avx512": CRenderer((*AVX2, "avx512f", "avx512bw"))}
Make = Callable[..., Tensor]


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def convolution(x: Tensor, w: Tensor) -> Tensor:
    return x.conv2d(w, padding=1)


def column_sums(x: Tensor) -> Tensor:
    return x.sum(0)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


KERNELS: dict[str, tuple[Make, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]] = {
    "product_512": (product, ((512, 512), (512, 512)), ((24, 12), (12, 512))),
    "product_8x4096x4096": (product, ((8, 4096), (4096, 4096)), ((8, 16), (16, 4096))),
    "convolution_3x3": (
        convolution,
        ((8, 64, 56, 56), (64, 64, 3, 3)),
        ((1, 3, 8, 56), (8, 3, 3, 3)),
    ),
    "column_sums_8192": (column_sums, ((8192, 8192),), ((24, 8192),)),
    "softmax_4096": (softmax, ((4096, 4096),), ((3, 4096),)),
}
"""What is computed, of which shapes, and of which short ones."""


def kernel(make: Make, shapes: tuple[tuple[int, ...], ...]) -> UOp:
    """The one kernel of a computation, as scheduled."""
    cpu = UOp.new_device("CPU")
    leaves = [
        UOp.param(slot, dtypes.float32, math.prod(shape), cpu).reshape(shape)
        for slot, shape in enumerate(shapes)
    ]
    root = make(*map(Tensor._wrap, leaves)).uop
    (call,) = run_kernel_split_pipeline(UOp.new_sink(root)).calls
    sink: UOp = call.src[0]
    return sink


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], str]:
    """The text in a file, after the update that was asked for."""

    def text(name: str, now: str) -> str:
        path = GOLDENS / name
        if request.config.getoption("--update-goldens"):
            GOLDENS.mkdir(exist_ok=True)
            path.write_text(now)
        assert path.exists(), f"no golden {name}: run this with --update-goldens"
        return path.read_text()

    return text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_chosen_and_what_becomes_of_it(
    name: str, target: str, golden: Callable[[str, str], str]
) -> None:
    """The text of the graph is the graph; lowered, it is the C in the file"""
    make, shapes, _ = KERNELS[name]
    tuned = apply_opts(kernel(make, shapes), TARGETS[target])
    text = golden(f"{name}.{target}.txt", tuned.tree() + "\n")
    kept = parse(text)
    check_stage(kept, Level.KERNEL, "optimizer")
    assert kept is tuned, "other actions are chosen: if they are meant, update the goldens"
    code = source(get_program(kept, TARGETS[target]))
    kept_code = golden(f"{name}.{target}.c", code)
    assert code == kept_code, "other code: if it is meant, update the goldens"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_same_actions_on_a_short_kernel(
    name: str, target: str, rng: np.random.Generator
) -> None:
    """They keep the values: interpreted, and compiled for vectors of that size"""
    make, shapes, short = KERNELS[name]
    opts = apply_opts(kernel(make, shapes), TARGETS[target]).arg.applied_opts
    start = prepare(kernel(make, short))
    try:
        replay(start, opts)
    except OptError:  # too short for one of them
        opts = apply_opts(start, TARGETS[target]).arg.applied_opts
    assert len(opts) > 1
    data = [rng.standard_normal(math.prod(shape), np.float32) for shape in short]
    out = np.zeros(start.src[0].src[0].src[0].arg[1], np.float32)
    trial = Trial(start, opts, {"avx2": "32 bytes", "avx512": "64 bytes"}[target], (out, *data))
    got = interpret_kernel(trial.opted(), trial.arrays)
    assert difference(trial, got) is None
    assert compiled([trial]) == [None]
