"""The heuristic: which actions kernels get, and that they change no value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from morok import config
from morok.dtype import DType, dtypes
from morok.ir import Capability, Ops, ReduceOp, UOp
from morok.optimizer import apply_opts
from tests.codegen import kernels
from tests.codegen.kernels import CASES, Builder, Kernel, capability, check, opted


@dataclass
class Target:
    """A renderer as the optimizer sees it."""

    capability: Capability
    pre_matcher: Any = None

    def render(self, linear: UOp, name: str) -> str:
        raise AssertionError("the optimizer renders nothing")


def chosen(kernel: Kernel, lanes: int = 8) -> str:
    """The actions, checked."""
    sink = apply_opts(kernel.sink, Target(capability(lanes)))
    check(kernel, sink)
    return "; ".join(map(str, sink.arg.applied_opts))


def test_streaming_kernels_use_half_of_a_wide_vector() -> None:
    assert chosen(kernels.elementwise(3, 64), lanes=16) == "UPCAST(1, 8)"
    assert chosen(kernels.elementwise(3, 64), lanes=8) == "UPCAST(1, 8)"
    assert chosen(kernels.elementwise(3, 64), lanes=4) == "UPCAST(1, 4)"


def test_computing_kernels_use_all_of_it() -> None:
    k = Builder()
    i = k.loop(64)
    out, x = k.param(64), k.param(64)
    kernel = k.kernel(out.at(i).store(x.at(i).exp(), i))
    assert chosen(kernel, lanes=16) == "UPCAST(0, 16)"


def test_remainder_of_a_long_axis_is_a_tail() -> None:
    assert chosen(kernels.elementwise(1, 1003)) == "TAIL(1, 8); UPCAST(1, 8)"


def test_remainder_of_a_short_axis_is_cut_again() -> None:
    assert (
        chosen(kernels.elementwise(1, 13)) == "TAIL(1, 8); TAIL(2, 4); UPCAST(2, 4); UPCAST(1, 8)"
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_short_axes_stay_scalar(size: int) -> None:
    assert chosen(kernels.elementwise(1, size)) == ""


def test_strided_reads_make_no_lane() -> None:
    k = Builder()
    i, j = k.loop(8), k.loop(16)
    out, x = k.param(128), k.param(128)
    kernel = k.kernel(out.at(i * 16 + j).store(x.at(j * 8 + i), i, j))
    assert chosen(kernel) == ""


def transposed(m: int, n: int) -> Kernel:
    k = Builder()
    i, j = k.loop(m), k.loop(n)
    out, x = k.param(m * n), k.param(m * n)
    return k.kernel(out.at(i * n + j).store(x.at(j * m + i), i, j))


def test_large_transposed_copies_are_blocked() -> None:
    """Eight of the axis that the read walks stand inside the lane's loop"""
    assert chosen(transposed(96, 128)) == "SPLIT(0, 8); SWAP(1, 2); UPCAST(1, 8)"
    assert chosen(transposed(100, 128)) == "SPLIT(0, 10); SWAP(1, 2); UPCAST(1, 8)"


def test_small_transposed_copies_are_not() -> None:
    assert chosen(transposed(16, 16)) == ""


def test_transposed_copies_without_a_block_are_not() -> None:
    assert chosen(transposed(101, 128)) == ""


def test_tile_of_a_matrix_product() -> None:
    """8 accumulators on 16 registers, 16 on 32"""
    assert chosen(kernels.matmul(8, 32, 12), lanes=8) == "UPCAST(1, 16); UPCAST(0, 4)"
    assert chosen(kernels.matmul(8, 64, 12), lanes=16) == "UPCAST(1, 64); UPCAST(0, 4)"


def test_tile_takes_what_divides() -> None:
    assert chosen(kernels.matmul(7, 8, 12), lanes=8) == "UPCAST(1, 8); UPCAST(0, 7)"


def opts_of(kernel: Kernel, lanes: int = 8) -> str:
    """The actions; the kernel is too large to be interpreted."""
    sink = apply_opts(kernel.sink, Target(capability(lanes)))
    return "; ".join(map(str, sink.arg.applied_opts))


PANEL = "SWAP(0, 1); SPLIT(0, 16); LOCAL(3, 2, 1); UPCAST(5, 16); "


@pytest.mark.parametrize(
    ("m", "n", "k", "opts"),
    [
        (512, 512, 512, PANEL + "TAIL(2, 6); UPCAST(3, 2); UPCAST(2, 6); UPCAST(1, 16)"),
        (128, 256, 784, PANEL + "TAIL(2, 6); UPCAST(3, 2); UPCAST(2, 6); UPCAST(1, 16)"),
        (1021, 256, 509, PANEL + "TAIL(2, 6); UPCAST(2, 6); UPCAST(1, 16)"),
        (600, 256, 512, PANEL + "UPCAST(2, 6); UPCAST(1, 16)"),
        (32, 64, 512, PANEL + "UPCAST(2, 4); UPCAST(1, 16)"),
    ],
)
def test_tiles_of_large_products_have_twelve_accumulators(
    m: int, n: int, k: int, opts: str
) -> None:
    """6 rows of 2 vectors; the rows left over are a tile of their own where there are many"""
    assert opts_of(kernels.matmul(m, n, k)) == opts


def test_tiles_of_32_registers_have_sixteen_accumulators() -> None:
    opts = opts_of(kernels.matmul(512, 512, 512), lanes=16)
    assert (
        opts
        == "SWAP(0, 1); SPLIT(0, 32); LOCAL(3, 2, 1); UPCAST(5, 32); UPCAST(2, 8); UPCAST(1, 32)"
    )


def test_rows_left_over_keep_their_values() -> None:
    opts = "SWAP(0, 1); SPLIT(0, 16); LOCAL(3, 2, 1); TAIL(2, 6); UPCAST(3, 2); UPCAST(2, 6)"
    for kernel in (kernels.matmul(20, 32, 5), kernels.matmul(20, 32, 5, epilogue=True)):
        check(kernel, opted(kernel, opts + "; UPCAST(1, 16)"))


def left_transposed(m: int, n: int, depth: int, dtype: DType = dtypes.float32) -> Kernel:
    """out = a.T @ b"""
    k = Builder(26)
    i, j, r = k.loop(m), k.loop(n), k.red(depth)
    out, a, b = k.param(m * n, dtype), k.param(depth * m, dtype), k.param(depth * n, dtype)
    total = (a.at(r * m + i) * b.at(r * n + j)).reduce(ReduceOp.ADD, r)
    return k.kernel(out.at(i * n + j).store(total, i, j))


def test_rows_that_walk_far_are_copied_too() -> None:
    """Panels of 16 tiles; for the rows of a tile a strip, for the two left over one of their own"""
    assert opts_of(left_transposed(512, 512, 512)) == (
        "SWAP(0, 1); SPLIT(0, 256); SPLIT(1, 16); SWAP(1, 3); LOCAL(3, 2, 4, 2); SWAP(5, 6); "
        "TAIL(1, 6); SPLIT(1, 6); LOCAL(6, 1, 2); LOCAL(6, 1, 3); "
        "UPCAST(13, 2); UPCAST(11, 6); UPCAST(9, 16); UPCAST(4, 16); UPCAST(3, 2); UPCAST(2, 6)"
    )


def test_rows_that_stay_in_the_first_cache_are_not() -> None:
    """Distances of a power of two share few sets of it"""
    assert opts_of(left_transposed(300, 512, 128)).count("LOCAL") == 1
    assert opts_of(left_transposed(512, 512, 128)).count("LOCAL") == 3


def test_columns_left_over_share_the_strips() -> None:
    """Of 500 columns 496 are a panel of 31 tiles; the others are vectors too, not the rows"""
    assert opts_of(left_transposed(500, 500, 500)) == (
        "SWAP(0, 1); TAIL(0, 16); SPLIT(0, 16); SWAP(0, 3); LOCAL(3, 2, 4, 1); SWAP(5, 6); "
        "SPLIT(0, 5); LOCAL(5, 1, 1); "
        "UPCAST(10, 5); UPCAST(8, 16); UPCAST(3, 4); UPCAST(2, 16); UPCAST(1, 5)"
    )
    assert "UPCAST(5, 4); UPCAST(4, 8); UPCAST(3, 2); UPCAST(2, 6)" in opts_of(
        left_transposed(500, 500, 500, dtypes.float64)
    )


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("m", [16, 31, 33])
@pytest.mark.parametrize("n", [128, 67])
def test_copied_rows_keep_their_values(m: int, n: int, lanes: int) -> None:
    chosen(left_transposed(m, n, 300), lanes)
    chosen(left_transposed(m, n, 300, dtypes.float64), lanes)


def test_operand_that_many_rows_read_is_staged() -> None:
    """The lane's tiles outside of the rows, one copy of the matrix's part for each"""
    opts = chosen(kernels.matmul(16, 64, 256))
    assert opts.startswith("SWAP(0, 1); SPLIT(0, 16); LOCAL(3, 2, 1); ")
    assert "UPCAST(2, 4); UPCAST(1, 16)" in opts


def test_operand_that_fits_into_the_first_cache_is_not_staged() -> None:
    assert "LOCAL" not in chosen(kernels.matmul(16, 64, 16))


def test_panels_share_blocks_of_rows_that_come_from_far() -> None:
    """Panels of two tiles; blocks of two tiles of rows; fewer panels would be too few to share."""
    small = Target(replace(capability(8), l1_bytes=1 << 12, l2_bytes=1 << 11))
    for columns, wanted in (
        (
            256,
            "SWAP(0, 1); SPLIT(0, 32); SPLIT(1, 16); SPLIT(3, 12); SWAP(1, 3); LOCAL(3, 2, 5, 2);",
        ),
        (240, "SWAP(0, 1); SPLIT(0, 16); LOCAL(3, 2, 1);"),
    ):
        kernel = kernels.matmul(300, columns, 8)
        sink = apply_opts(kernel.sink, small)
        check(kernel, sink)
        assert "; ".join(map(str, sink.arg.applied_opts)).startswith(wanted)


def test_operand_of_few_rows_is_not_staged() -> None:
    assert "LOCAL" not in chosen(kernels.matmul(8, 64, 256))


def test_transposed_operand_is_staged_when_there_are_rows() -> None:
    opts = chosen(kernels.matmul(16, 16, 24, transposed=True))
    assert opts.startswith("SWAP(0, 1); LOCAL(2, 2, 0); ")


def test_staged_operand_of_a_ragged_matrix() -> None:
    opts = chosen(kernels.matmul(16, 70, 250))
    assert opts.startswith("SWAP(0, 1); TAIL(0, 16); SPLIT(0, 16); LOCAL(4, 2, 1); ")


def test_padded_image_is_staged_for_many_channels() -> None:
    opts = chosen(kernels.conv(2, 16, 8, 3))
    assert opts.startswith("ORDER(1, 2, 0); LOCAL(3, 1, 4, 5, 1); ")


def test_rows_of_a_small_image_are_one_long_row() -> None:
    """49 positions in vectors instead of rows of 7; where a row is long enough it stays."""
    opts = chosen(kernels.framed_conv(8, 32, 7))
    assert opts.startswith("MERGE(1, 2); SWAP(0, 2); TAIL(0, 8); SPLIT(0, 8); LOCAL(")
    assert "MERGE" not in chosen(kernels.framed_conv(8, 32, 16))


def test_operands_of_sums_side_by_side_are_staged_together() -> None:
    """out = A @ B + C @ D"""
    k = Builder()
    i, j, r, s = k.loop(32), k.loop(256), k.red(96), k.red(64)
    out, a, b = k.param(32 * 256), k.param(32 * 96), k.param(96 * 256)
    c, d = k.param(32 * 64), k.param(64 * 256)
    first = (a.at(i * 96 + r) * b.at(r * 256 + j)).reduce(ReduceOp.ADD, r)
    second = (c.at(i * 64 + s) * d.at(s * 256 + j)).reduce(ReduceOp.ADD, s)
    opts = chosen(k.kernel(out.at(i * 256 + j).store(first + second, i, j)))
    assert opts.startswith("SWAP(0, 1); SPLIT(0, 16); LOCAL(3, 2, 1); LOCAL(4, 4, 1); ")


def batched(products: int, batch: int, m: int, n: int, depth: int) -> Kernel:
    """out[b, i, j] = sum over k of A[b, i, k] * B[k, j], several such products added."""
    k = Builder()
    b, i, j, r = k.loop(batch), k.loop(m), k.loop(n), k.red(depth)
    out = k.param(batch * m * n)
    terms = [
        k.param(batch * m * depth).at((b * m + i) * depth + r) * k.param(depth * n).at(r * n + j)
        for _ in range(products)
    ]
    total = sum(terms[1:], terms[0]).reduce(ReduceOp.ADD, r)
    return k.kernel(out.at((b * m + i) * n + j).store(total, b, i, j))


def test_rows_are_those_that_lie_near() -> None:
    assert chosen(batched(1, 4, 8, 16, 8)) == "UPCAST(2, 16); UPCAST(1, 4)"


def test_every_operand_of_a_sum_of_products_is_staged() -> None:
    copies = "SWAP(1, 2); SWAP(0, 1); SPLIT(0, 16); LOCAL(4, 2, 1); LOCAL(4, 4, 1)"
    assert chosen(batched(2, 2, 8, 128, 96)).startswith(copies)


def weight_gradient(n: int, out: int, channels: int, side: int, taps: int) -> Kernel:
    """The sum over images and positions of gradient * window, for each weight."""
    k = Builder()
    o, c, dy, dx = k.loop(out), k.loop(channels), k.loop(taps), k.loop(taps)
    image, y, x = k.red(n), k.red(side), k.red(side)
    whole = side + taps - 1
    weight = k.param(out * channels * taps * taps)
    slopes, images = k.param(n * out * side * side), k.param(n * channels * whole * whole)
    slope = slopes.at(((image * out + o) * side + y) * side + x)
    window = images.at(((image * channels + c) * whole + y + dy) * whole + x + dx)
    total = (slope * window).reduce(ReduceOp.ADD, image, y, x)
    at = ((o * channels + c) * taps + dy) * taps + dx
    return k.kernel(weight.at(at).store(total, o, c, dy, dx))


def test_gradient_of_a_weight_has_its_lane_along_channels() -> None:
    """Along three taps no vector fits; the copy of the gradient serves most rows."""
    copied, squares = "SPLIT(0, 16); LOCAL(5, 1, 6, 7, 1)", "UPCAST(11, 16); UPCAST(10, 8)"
    tile = "UPCAST(2, 4); UPCAST(1, 16)"
    assert chosen(weight_gradient(5, 32, 4, 8, 3)) == f"{copied}; {squares}; {tile}"
    tile = "UPCAST(1, 16); UPCAST(4, 5)"
    assert chosen(weight_gradient(5, 32, 4, 8, 5)) == f"{copied}; {tile}; {squares}"


def test_statements_that_share_a_gradient_share_its_lane() -> None:
    """As an optimizer writes a weight and its moments: each is stored along three taps."""
    (store,) = weight_gradient(128, 64, 32, 8, 3).sink.src
    gradient, axes = store.src[1], store.src[2:]
    weight = store.src[0].src[0]
    moment = UOp.param(7, weight.dtype, weight.arg[1]).at(*store.src[0].src[1:])
    both = UOp(Ops.SINK, dtypes.void, (store, moment.store(gradient * 0.5, *axes)))
    opts = apply_opts(both, Target(capability(8))).arg.applied_opts
    assert "UPCAST(1, 16)" in map(str, opts)


def test_short_lane_without_another_leaves_vectors_to_the_sum() -> None:
    assert chosen(weight_gradient(2, 2, 2, 8, 3)) == "UPCAST(6, 8)"


def test_product_with_a_transposed_matrix_has_its_lane_on_the_sum() -> None:
    opts = "UPCAST(2, 8); UNROLL(1, 2); UNROLL(0, 4)"
    assert chosen(kernels.matmul(4, 8, 32, transposed=True)) == opts


def test_long_sums_have_several_accumulators() -> None:
    assert chosen(kernels.row_reduce(3, 256, ReduceOp.ADD)) == "UPCAST(1, 32)"
    assert chosen(kernels.column_reduce(32, 8, ReduceOp.ADD)) == "UPCAST(1, 4); UPCAST(0, 8)"


def test_what_stands_still_in_a_sum_is_no_reason_for_a_lane() -> None:
    """out[i] = sum over j of (x[i, j] - mean[i])**2: along i the many reads are far apart"""
    k = Builder()
    i, j = k.loop(16), k.red(64)
    out, x, mean = k.param(16), k.param(16 * 64), k.param(16)
    apart = x.at(i * 64 + j) - mean.at(i)
    kernel = k.kernel(out.at(i).store((apart * apart).reduce(ReduceOp.ADD, j), i))
    assert chosen(kernel) == "UPCAST(1, 16); UNROLL(0, 4)"


def test_ragged_sums_end_in_shorter_vectors() -> None:
    opts = chosen(kernels.row_reduce(2, 61, ReduceOp.ADD))
    assert opts == "TAIL(1, 32); TAIL(2, 8); TAIL(3, 4); UPCAST(3, 4); UPCAST(2, 8); UPCAST(1, 32)"


def test_short_reductions_are_unrolled() -> None:
    assert chosen(kernels.strided(16, 2)) == "UNROLL(1, 2); UPCAST(0, 16)"  # halves are shuffled


def test_taps_of_a_convolution_are_unrolled() -> None:
    opts = chosen(kernels.conv(8, 4, 8, 3))
    assert "UNROLL(5, 3)" in opts
    assert "UPCAST(2, 8)" in opts
    assert "UPCAST(0, 4)" in opts


def test_loop_around_a_local_row_is_left_alone() -> None:
    opts = chosen(kernels.softmax(4, 16))
    assert "(0," not in opts
    assert opts.count("UPCAST") == 4


def test_width_is_native_for_every_type() -> None:
    assert chosen(kernels.compared(16)) == "UPCAST(0, 4)"


def test_bytes_get_wide_vectors() -> None:
    kernel = kernels.column_reduce(8, 64, ReduceOp.MAX, dtypes.uint8)
    assert chosen(kernel) == "UPCAST(1, 4); UPCAST(0, 64)"


def test_target_without_vectors() -> None:
    """Rows of a tile still pay: they share what they read"""
    for name in CASES:
        kernel = CASES[name]()
        sink = apply_opts(kernel.sink, Target(capability(1)))
        check(kernel, sink)


def test_noopt() -> None:
    with config.override(noopt=True):
        assert chosen(kernels.elementwise(3, 64)) == ""


def test_a_kernel_with_actions_is_kept() -> None:
    target = Target(capability())
    once = apply_opts(kernels.elementwise(3, 64).sink, target)
    assert apply_opts(once, target) is once


def test_same_kernel_same_actions() -> None:
    target = Target(capability())
    for name in CASES:
        assert apply_opts(CASES[name]().sink, target) is apply_opts(CASES[name]().sink, target)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str, lanes: int) -> None:
    chosen(CASES[name](), lanes)


def test_every_long_float_sum_has_several_accumulators() -> None:
    """No REDUCE of more than 16 additions in one chain, matrix products aside"""
    for name in (
        "row sum 3x64",
        "full sum 131",
        "column sum 32x5",
        "softmax 3x16",
        "two sums 2x40",
    ):
        sink = apply_opts(CASES[name]().sink, Target(capability()))
        for node in kernels.nodes(sink, Ops.REDUCE):
            copies = [r for r in node.ended_ranges if r.arg[1].name == "UPCAST"]
            loops = [r.vmax + 1 for r in node.ended_ranges if r.arg[1].name == "REDUCE"]
            assert copies or not loops or max(loops) <= 16
