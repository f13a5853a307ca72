"""WINDOW: copies of what overlapping windows see; tiles whose lanes are the operand copied once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from morok.codegen.expander import expander, post_opt_symbolic
from morok.errors import OptError
from morok.ir import Ops, ReduceOp, UOp
from morok.optimizer import OptOps, parse_opts
from tests.codegen import kernels
from tests.codegen.kernels import Builder, Kernel, capability, check, nodes, only, opted


def lengths(sink: UOp) -> list[int]:
    return [rng.vmax + 1 for rng in only(sink, Ops.BUFFERIZE).ended_ranges]


def applied(kernel: Kernel, opts: str) -> UOp:
    """The kernel after `opts`, itself and after stages 8 and 9 checked against the kernel."""
    sink = opted(kernel, opts)
    check(kernel, sink)
    check(kernel, expander(post_opt_symbolic(sink), capability(8)))
    return sink


@dataclass
class Sliding:
    """sum over c and q of image[c, x*step + q*apart + before], one row"""

    step: int = 1
    apart: int = 1
    before: int = 0
    size: int = 13
    taps: int = 3
    places: int = 5

    def kernel(self) -> Kernel:
        k = Builder(3)
        x, c, q = k.loop(self.places), k.red(2), k.red(self.taps)
        out, image, weight = k.param(self.places), k.param(2 * self.size), k.param(2 * self.taps)
        at = x * self.step + q * self.apart + self.before
        inside = (at >= 0) & (at < self.size)
        value = image.at(c * self.size + at, gate=inside) * weight.at(c * self.taps + q)
        return k.kernel(out.at(x).store(value.reduce(ReduceOp.ADD, c, q), x))


def test_rows_are_copied_instead_of_windows() -> None:
    sink = applied(kernels.conv(2, 4, 8, 3), "WINDOW(3, 1, 0, 1, 4, 2, 5)")
    assert lengths(sink) == [2, 10, 10]
    product = only(sink, Ops.REDUCE).src[0]
    assert not any(source.arg for source in product.src)  # the zeros are in the copy


def test_zeros_that_are_chosen_are_copied() -> None:
    sink = applied(kernels.framed_conv(2, 4, 8), "WINDOW(1, 1, 0, 4, 3, 2, 5)")
    assert lengths(sink) == [10, 2, 10]


def test_rows_are_filled_up() -> None:
    sink = applied(kernels.conv(2, 4, 8, 3), "WINDOW(3, 1, 16, 1, 4, 2, 5); UPCAST(8, 8)")
    assert lengths(sink) == [2, 10, 2, 8]


def test_part_of_the_rows_is_copied_at_a_time() -> None:
    sink = applied(kernels.conv(2, 4, 8, 3), "SPLIT(1, 4); WINDOW(4, 1, 0, 2, 5, 3, 6)")
    assert lengths(sink) == [2, 6, 10]
    assert [rng.arg[0].number for rng in only(sink, Ops.BUFFERIZE).open_ranges] == [1]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
@pytest.mark.parametrize("apart", [1, 2, 3, -1, -3])
@pytest.mark.parametrize("before", [0, -2, 9])
def test_windows_of_any_step(step: int, apart: int, before: int) -> None:
    """Steps, dilations, either of them backwards; zeros on the left, on the right"""
    kernel = Sliding(step, apart, before).kernel()
    windows = applied(kernel, "WINDOW(1, 1, 0, 2, 0)")
    reach = 1 + 2 * abs(apart) + 4 * abs(step)
    multiple = max(abs(step), abs(apart)) % min(abs(step), abs(apart)) == 0
    together = multiple and (abs(step) // abs(apart) < 3 if abs(step) >= abs(apart) else True)
    if together:
        unit = min(abs(step), abs(apart))
        assert lengths(windows) == [2, (reach - 1) // unit + 1]
    else:
        assert lengths(windows) == [2, 3, 5]


@pytest.mark.parametrize("taps", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("places", [1, 2, 5, 11])
def test_windows_of_any_length(taps: int, places: int) -> None:
    size = max(1, taps + places - 3)
    kernel = Sliding(taps=taps, places=places, size=size, before=-1).kernel()
    axes = [rng.arg[0].number for rng in nodes(opted(kernel, ""), Ops.RANGE)]
    wanted = [number for number in (1, 2, 0) if number in axes]
    applied(
        kernel, f"WINDOW({wanted[0]}, 1, 0, {', '.join(map(str, wanted[1:]))})".replace(", )", ")")
    )


@pytest.mark.parametrize(
    ("opts", "reason"),
    [
        ("WINDOW(1, 1, 0, 1)", "named twice"),
        ("WINDOW(0, 1, 0, 2)", "0 reads of slot 1"),
        ("WINDOW(2, 0, 0, 1)", "writes the buffer in slot 0"),
        ("WINDOW(9, 1, 0, 1)", "no axis 9"),
        ("UPCAST(1, 8); WINDOW(3, 1, 0, 2)", "no loop any more"),
    ],
)
def test_windows_are_refused_with_a_reason(opts: str, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        opted(tilted(), opts)


def test_a_guard_of_its_own_keeps_loops_apart() -> None:
    assert lengths(applied(tilted(), "WINDOW(3, 1, 0, 1, 4)")) == [2, 8, 3]


def tilted() -> Kernel:
    """Row y of the image is left out for every y taps: a guard of its own, beside the window"""
    k = Builder(4)
    o, y, x = k.loop(2), k.loop(8), k.loop(6)
    c, r = k.red(2), k.red(3)
    out, image, weight = k.param(96), k.param(2 * 10 * 6), k.param(12)
    pixel = image.at((c * 10 + y + r) * 6 + x, gate=y < r * 4)
    value = (pixel * weight.at((o * 2 + c) * 3 + r)).reduce(ReduceOp.ADD, c, r)
    return k.kernel(out.at((o * 8 + y) * 6 + x).store(value, o, y, x))


def test_a_read_without_equal_steps_is_refused() -> None:
    k = Builder(5)
    i = k.loop(12)
    out, x = k.param(12), k.param(12)
    kernel = k.kernel(out.at(i).store(x.at(i % 5 * 2 + i // 5), i))
    with pytest.raises(OptError, match="equal steps"):
        opted(kernel, "WINDOW(0, 1, 0)")


def test_windows_print_and_parse() -> None:
    text = "WINDOW(3, 1, 16, 1, 4)"
    (opt,) = parse_opts(text)
    assert (opt.op, opt.axis, opt.arg) == (OptOps.WINDOW, 3, (1, 16, 1, 4))
    assert str(opt) == text
