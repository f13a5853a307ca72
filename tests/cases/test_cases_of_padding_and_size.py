"""Small cases that went wrong in systems of this kind: functions before and after padding,
extremes under every way to cut their loop, convolutions whose stride leaves a rest, very many
inputs, very large outputs.

Elsewhere: adaptive pooling in `tests/e2e/test_views_padding_fusion.py`; NaN at every position and
rounding half to even in `tests/e2e/test_float_arithmetic.py`; a stack of thousands of tensors in
`test_cases_of_writes_and_system.py`.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morok as mk
from bench._interpreted import interpreted
from bench._opts import Trial, compiled, difference
from bench._opts_actions import Refused, attempt
from morok import engine
from morok.codegen import get_program
from morok.dtype import dtypes
from morok.ir import AxisType, KernelInfo, Ops, Renderer, UOp
from morok.ir.interpret import interpret_kernel
from morok.optimizer import OptOps, apply_opts, parse_opts, prepare
from morok.runtime import Buffer, ExecutionPlan
from morok.tensor import Tensor
from tests.cases.ways import lazily, stepwise, third_call
from tests.codegen.compiled import build, c_renderer, llvm_renderer, renderer, source
from tests.rangeify.scheduling import schedule_of

Array = np.ndarray[Any, Any]
Way = Callable[..., list[Array]]


def on_the_interpreter(program: Callable[..., Any], *arrays: Array) -> list[Array]:
    with interpreted():
        return lazily(program, *arrays)


WAYS = [lazily, stepwise, third_call, on_the_interpreter]


# ---- functions and padding -----------------------------------------------------------------------


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "exp": (Tensor.exp, np.exp),
    "reciprocal": (Tensor.reciprocal, np.reciprocal),
    "cos": (Tensor.cos, np.cos),
    "plus one": (lambda x: x + 1, lambda x: x + np.float32(1)),
    "is zero": (lambda x: (x == 0).float(), lambda x: (x == 0).astype(np.float32)),
}
PADS = [((1, 2),), ((0, 3), (2, 0)), ((5, 0), (1, 7))]


def around(x: Array, pads: tuple[tuple[int, int], ...]) -> Array:
    return np.pad(x, ((0, 0),) * (x.ndim - len(pads)) + pads)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(13,), (3, 17), (8, 16)])
def test_functions_before_and_after_zeros(name: str, shape: tuple[int, ...], way: Way) -> None:
    """pad(f(x)) keeps its zeros, f(pad(x)) has f(0) there; so have sums and extremes of them"""
    function, exact = FUNCTIONS[name]
    x = np.linspace(0.5, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for pads in PADS:
        if len(pads) > x.ndim:
            continue
        whole = (((0, 0),) * (x.ndim - len(pads))) + pads

        def program(t: Tensor, whole: Any = whole) -> list[Tensor]:
            before, after = function(t).pad(whole), function(t.pad(whole))
            sums = [before.sum(-1), after.sum(-1), before.max(), after.min(0)]
            return [before, after, before * after, *sums]

        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = around(exact(x), pads), exact(around(x, pads))
            want = [before, after, before * after, before.sum(-1), after.sum(-1)]
            want += [before.max(), after.min(0)]
        for got, right in zip(way(program, x), want, strict=True):
            np.testing.assert_allclose(got, right, rtol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_constants_and_zeros_around_them(name: str) -> None:
    """The compiler knows all of it"""
    function, exact = FUNCTIONS[name]
    x = Tensor.full((3,), 0.75)
    with np.errstate(divide="ignore"):
        inside, outside = exact(np.float32(0.75)), exact(np.float32(0))
    before, after = function(x).pad(((1, 1),)), function(x.pad(((1, 1),)))
    assert not engine.Normal(engine.sink_of([before.uop, after.uop])).windows
    np.testing.assert_allclose(before.numpy(), [0, inside, inside, inside, 0], rtol=1e-6)
    wanted = [outside, inside, inside, inside, outside]
    np.testing.assert_allclose(after.numpy(), wanted, rtol=1e-6)


# ---- reductions under every option ---------------------------------------------------------------


def with_nan(n: int) -> Array:
    """Row i has its NaN at i; the last one has none"""
    x = np.tile(-np.linspace(1, 3, n, dtype=np.float32), (n + 1, 1))
    np.fill_diagonal(x, np.nan)
    return x


REDUCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], Array]]] = {
    "max of negative numbers": (lambda x: x.max(1), lambda n: with_nan(n)[-1:].repeat(2, 0)),
    "min": (lambda x: x.min(1), lambda n: np.linspace(1, 3, 2 * n, dtype="f4").reshape(2, n)),
    "product": (
        lambda x: x.prod(1),
        lambda n: np.linspace(0.8, 1.3, 2 * n, dtype="f4").reshape(2, n),
    ),
    "sum of exp": (lambda x: x.exp().sum(1), lambda n: -np.ones((2, n), np.float32)),
    "max with NaN": (lambda x: x.max(1), with_nan),
    "padded max": (lambda x: (x.pad(((0, 0), (3, 2))) - 1).max(1), lambda n: with_nan(n)[-1:, 5:]),
    "padded sum": (
        lambda x: x.exp().pad(((0, 0), (2, 3))).sum(1),
        lambda n: -np.ones((2, n - 5), np.float32),
    ),
}


def options(start: UOp, number: int) -> Iterator[str]:
    """The ways to cut axis `number` of a kernel: whole or in parts, with what is left over cut
    too, or padded."""
    (axis,) = (r for r in start.toposort() if r.op is Ops.RANGE and r.arg[0].number == number)
    end = int(axis.vmax or 0) + 1
    widening = ("UPCAST", "UNROLL")
    for amount in (4, 8, end) if end < 20 else (8, 16, end):
        for kind in widening:
            if end % amount == 0:
                yield f"{kind}({number}, {amount})"
            elif amount < end:
                yield f"TAIL({number}, {amount}); {kind}({number}, {amount})"
                rest = end % amount
                if rest > 1:
                    other = widening[kind == "UPCAST"]
                    tail = f"{other}({number + 1}, {rest})"
                    yield f"TAIL({number}, {amount}); {tail}; {kind}({number}, {amount})"
            if "PADTO" in OptOps.__members__ and 1 < amount < end and end % amount:
                yield f"PADTO({number}, {amount}); {kind}({number}, {amount})"


@pytest.mark.parametrize("length", [13, 17, 31])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_under_every_option(name: str, length: int) -> None:
    """As unoptimised, and as NumPy says: interpreted at every level, and compiled"""
    function, data = REDUCTIONS[name]
    x = data(length)
    seen: list[tuple[UOp, list[Array]]] = []
    with interpreted(lambda sink, arrays: seen.append((prepare(sink), arrays))):
        function(Tensor(x)).realize()
    start, arrays = seen[-1]
    (axis,) = [
        node.arg[0].number
        for node in start.toposort()
        if node.op is Ops.RANGE and node.arg[1] is AxisType.REDUCE
    ]
    heuristic = apply_opts(start, renderer()).arg.applied_opts
    trials = [Trial(start, opts, "32 bytes", tuple(arrays)) for opts in ((), heuristic)]
    refused = []
    for text in options(start, axis):
        sink: UOp | Refused = start
        for opt in parse_opts(text):
            sink = attempt(sink, opt) if isinstance(sink, UOp) else sink
        if isinstance(sink, Refused):
            refused.append(f"{text}: {sink.reason}")
        else:
            trials.append(Trial(start, parse_opts(text), "32 bytes", tuple(arrays)))
    assert len(trials) >= 8, refused
    for trial in trials:
        got = interpret_kernel(trial.opted(), arrays)
        assert difference(trial, got) is None, str(trial)
    for trial, wrong in zip(trials, compiled(trials), strict=True):
        assert wrong is None, f"{trial}: {wrong}"
    with np.errstate(invalid="ignore"):
        want = function_by_numpy(name, x)
    np.testing.assert_allclose(trials[0].expected[0], want, rtol=1e-5)


def function_by_numpy(name: str, x: Array) -> Array:
    if name.startswith("padded"):
        if "max" in name:
            return np.asarray((np.pad(x, ((0, 0), (3, 2))) - 1).max(1))
        return np.asarray(np.exp(x).sum(1))
    ways = {"min": np.min, "product": np.prod, "sum of exp": lambda x, axis: np.exp(x).sum(axis)}
    return np.asarray(ways.get(name, np.max)(x, axis=1))


# ---- convolutions whose stride leaves a rest -----------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("side", "taps", "stride", "padding"), [(16, 7, 3, 2), (12, 3, 2, 0), (10, 2, 3, 1)]
)
def test_convolution_backward_where_the_stride_leaves_a_rest(
    side: int, taps: int, stride: int, padding: int, way: Way, rng: np.random.Generator
) -> None:
    x, w = rng.standard_normal((2, 3, side, side)), rng.standard_normal((4, 3, taps, taps))
    after = (side + 2 * padding - taps) // stride + 1
    g = rng.standard_normal((2, 4, after, after))
    assert (side + 2 * padding - taps) % stride

    def program(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        x, w = (t.detach().requires_grad_(True) for t in (x, w))
        y = x.conv2d(w, stride=stride, padding=padding)
        y.backward(g)
        assert x.grad is not None
        assert w.grad is not None
        return [y, x.grad, w.grad]

    around = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    to_x, to_w, y = np.zeros_like(around), np.zeros_like(w), np.zeros_like(g)
    for i in range(after):
        for j in range(after):
            rows = slice(i * stride, i * stride + taps)
            columns = slice(j * stride, j * stride + taps)
            window = around[:, :, rows, columns]
            y[:, :, i, j] = np.tensordot(window, w, ((1, 2, 3), (1, 2, 3)))
            to_x[:, :, rows, columns] += np.tensordot(g[:, :, i, j], w, (1, 0))
            to_w += np.tensordot(g[:, :, i, j], window, (0, 0))
    inside = slice(padding, padding + side)
    for got, want in zip(way(program, x, w, g), [y, to_x[:, :, inside, inside], to_w], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


# ---- very many inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", [lazily, third_call, on_the_interpreter])
@pytest.mark.parametrize("count", [31, 32, 33, 63, 64, 65])
def test_a_sum_of_many_inputs(count: int, way: Way) -> None:
    arrays = [np.full(5, 2**i % 1009, np.int64) + np.arange(5) for i in range(count)]

    def program(*xs: Tensor) -> list[Tensor]:
        total, product = xs[0], xs[0]
        for x in xs[1:]:
            total, product = total + x, product * x
        return [total, product]

    want = [sum(arrays[1:], arrays[0]), np.prod(arrays, axis=0, dtype=np.int64)]
    for got, right in zip(way(program, *arrays), want, strict=True):
        np.testing.assert_array_equal(got, right)


def test_thousands_of_inputs_to_one_cat() -> None:
    """In as many kernels as it takes, none with very many buffers"""
    parts = [np.full((1, 3), i, np.int32) for i in range(2600)]
    joined = Tensor.cat(*map(Tensor, parts), dim=0)
    calls = schedule_of(joined).calls
    assert max(len(call.src) for call in calls) < 100
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(parts))


# ---- very large outputs --------------------------------------------------------------------------


def code_of(sink: UOp, target: Renderer) -> str:
    return source(get_program(apply_opts(sink, target), target))


@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((1 << 10, 1 << 10), False),
        ((1 << 16, (1 << 15) - 1), False),
        ((1 << 16, (1 << 15) + 3), True),
    ],
)
def test_positions_beyond_31_bits_have_64(shape: tuple[int, int], wide: bool) -> None:
    """The bounds of an index decide; nothing is run"""
    x = Tensor.empty(shape[0], 1, dtype=dtypes.uint8)
    (call,) = schedule_of(x.expand(shape) + 1).calls
    linear = get_program(apply_opts(call.src[0], renderer()), renderer()).src[2]
    positions = [op.src[1] for op in linear.src if op.op is Ops.INDEX]
    assert max(position.dtype.itemsize for position in positions) == (8 if wide else 4)
    # A loop's own counter is always wide.
    assert re.search(r"\bint64_t i\d", code_of(call.src[0], c_renderer()))
    assert re.search(r"%i\d_0 = phi i64 ", code_of(call.src[0], llvm_renderer()))


def test_writes_and_reads_beyond_31_bits() -> None:
    """out[2**29 * i + 7] = x[2**29 * i + 5] + 1 on memory of which hardly a page is touched"""
    size = (1 << 31) + 64
    memory = [mmap.mmap(-1, size) for _ in range(2)]
    i = UOp.range(5, 0, renumbered=True)
    out, x = (UOp.param(slot, dtypes.uint8.ptr(), size) for slot in (0, 1))
    at = i * (1 << 29)
    store = out.at(at + 7).store(x.at(at + 5) + 1, i)
    sink = UOp(Ops.SINK, dtypes.void, (store,), KernelInfo(name="far"))
    for number in range(5):
        memory[1][(number << 29) + 5] = 10 * number
    program = get_program(prepare(sink), renderer())
    (kernel,) = build([program])
    plan = ExecutionPlan([(kernel, (0, 1))], 2)
    buffers = [Buffer.from_object(m) for m in memory]
    plan.run(buffers)
    assert [memory[0][(n << 29) + 7] for n in range(5)] == [1, 11, 21, 31, 41]
    assert memory[0][7 + (1 << 28)] == 0
    del plan, buffers


def test_a_mean_of_more_than_31_bits_of_elements() -> None:
    """Of an expanded number: the count does not wrap"""
    x = Tensor(np.array([3.0], np.float32)).expand(1 << 16, 1 << 16)
    assert x.numel() == 1 << 32
    assert mk.Tensor.ones(1 << 16, 1 << 16, dtype=dtypes.int64).sum().item() == 1 << 32
    (call,) = schedule_of(x[:, :40000] * 2).calls
    assert call.src[1].arg == 40000 << 16
