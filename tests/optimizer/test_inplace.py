"""INPLACE: a row that lives in the output, when it may, and which kernels get it."""

from __future__ import annotations

import numpy as np
import pytest

from morok import Tensor, config
from morok.dtype import dtypes
from morok.errors import OptError
from morok.ir import Ops, ReduceOp
from morok.optimizer import apply_opts, prepare
from tests.codegen import kernels
from tests.codegen.compiled import renderer, run_sink
from tests.codegen.kernels import LOCAL, Builder, Kernel, check, nodes, opted
from tests.rangeify.scheduling import schedule_of

OPTS = ("", "; UPCAST(3, 4)", "; UPCAST(3, 4); UPCAST(1, 8)", "; UPCAST(4, 4); UPCAST(2, 8)")


@pytest.mark.parametrize("opts", OPTS)
@pytest.mark.parametrize("shape", [(4, 16), (1, 40), (13, 8)])
def test_softmax_in_its_output(shape: tuple[int, int], opts: str) -> None:
    kernel = kernels.softmax(*shape)
    sink = opted(kernel, "INPLACE(3)" + opts)
    assert not nodes(sink, Ops.BUFFERIZE)
    check(kernel, sink)
    got, want = (run_sink(s, kernel.buffers)[0] for s in (sink, prepare(kernel.sink)))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_threads_have_rows_of_their_own() -> None:
    kernel = kernels.softmax(5, 16)
    sink = opted(kernel, "INPLACE(3); UPCAST(3, 8); THREAD(0)")
    want = run_sink(prepare(kernel.sink), kernel.buffers)[0]
    for threads in (1, 3):
        with config.override(threads=threads):
            got = run_sink(sink, kernel.buffers)[0]
        np.testing.assert_allclose(got, want, rtol=1e-6)


def _row(step: int = 1, shift: int = 0, m: int = 4, n: int = 8) -> Kernel:
    """e[j] = x[i, j] * 2; out[i, j * step] = e[(j + shift) % n] + sum of e"""
    b = Builder()
    i, j, f, r = b.loop(m), b.loop(n), b.loop(n), b.red(n)
    out, x = b.param(m * n * step), b.param(m * n)
    row = (x.at(i * n + f) * 2.0).bufferize(f, opts=LOCAL)
    value = row.at((j + shift) % n if shift else j) + row.at(r).reduce(ReduceOp.ADD, r)
    return b.kernel(out.at(i * n * step + j * step).store(value, i, j))


@pytest.mark.parametrize("step", [1, 3])
def test_rows_that_lie_apart(step: int) -> None:
    kernel = _row(step)
    check(kernel, opted(kernel, "INPLACE(2)"))
    check(kernel, opted(kernel, "INPLACE(2); UPCAST(2, 8); UPCAST(1, 4)"))


def test_a_row_read_elsewhere_while_the_output_is_written() -> None:
    with pytest.raises(OptError, match="does not read the buffer where it is written"):
        opted(_row(shift=1), "INPLACE(2)")
    b = Builder()
    j, f, r = b.loop(8), b.loop(8), b.red(8)
    out, x, w = b.param(8), b.param(8), b.param(64)
    row = (x.at(f) * 2.0).bufferize(f, opts=LOCAL)
    mixed = (row.at(r) * w.at(j * 8 + r)).reduce(ReduceOp.ADD, r)
    kernel = b.kernel(out.at(j).store(row.at(j) + mixed, j))
    with pytest.raises(OptError, match="read elsewhere while the output is written"):
        opted(kernel, "INPLACE(1)")


def test_a_row_that_is_filled_again_within_a_loop_along_it() -> None:
    """for j: for i: for f: e[f] = x[i, f]; out[i, j] = g(e[j]): twice g, the second time"""
    b = Builder()
    j, i, f = b.loop(8), b.loop(4), b.loop(8)
    out, x = b.param(32), b.param(32)
    row = (x.at(i * 8 + f) * 2.0).bufferize(f, opts=LOCAL)
    kernel = b.kernel(out.at(i * 8 + j).store(row.at(j) * 3.0, j, i))
    with pytest.raises(OptError, match="filled again while the output is written"):
        opted(kernel, "INPLACE(2)")


def test_what_is_refused() -> None:
    with pytest.raises(OptError, match="fills no local buffer"):
        opted(kernels.softmax(4, 16), "INPLACE(1)")
    with pytest.raises(OptError, match="fills no local buffer"):
        opted(kernels.softmax(4, 16), "INPLACE(3); INPLACE(3)")
    b = Builder()
    i, j, f = b.loop(4), b.loop(8), b.loop(8)
    out, wide, x = b.param(32), b.param(32, dtypes.float64), b.param(32)
    row = (x.at(i * 8 + f) * 2.0).bufferize(f, opts=LOCAL)
    at = i * 8 + j
    both = b.kernel(out.at(at).store(row.at(j), i, j), wide.at(at).store(1.0, i, j))
    with pytest.raises(OptError, match="several outputs"):
        opted(both, "INPLACE(2)")
    cast = Kernel(
        both.sink.replace(src=(wide.at(at).store(row.at(j).cast(dtypes.float64), i, j),)), []
    )
    with pytest.raises(OptError, match="cannot hold"):
        opted(cast, "INPLACE(2)")
    read = Kernel(both.sink.replace(src=(out.at(at).store(row.at(j) + out.at(at), i, j),)), [])
    with pytest.raises(OptError, match="is read by the kernel itself"):
        opted(read, "INPLACE(2)")
    over = Kernel(both.sink.replace(src=(out.at(j).store(row.at(j), i, j),)), [])
    with pytest.raises(OptError, match="a place is written twice"):
        opted(over, "INPLACE(2)")


def test_long_rows_are_kept_in_the_output() -> None:
    for columns, kept in ((4096, True), (5000, True), (256, False)):
        (call,) = schedule_of(Tensor.empty(64, columns).realize().softmax(-1)).calls
        chosen = apply_opts(call.src[0], renderer()).arg.applied_opts
        assert kept == any(str(opt.op) == "INPLACE" for opt in chosen)


def test_softmax_over_its_own_input(rng: np.random.Generator) -> None:
    """The memory that is read is the memory that is written: no row may live there."""
    x = rng.standard_normal((8, 4096), dtype=np.float32)
    a = Tensor(x).realize()
    want = a.softmax(-1).numpy()
    a.assign(a.softmax(-1)).realize()
    np.testing.assert_array_equal(a.numpy(), want)
