"""Tiles with the operand as their lanes that is copied once: which kernels get them, values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import morok as mk
from morok.codegen.expander import expander, post_opt_symbolic
from morok.ir import UOp
from morok.optimizer import OptOps, apply_opts, parse_opts
from morok.optimizer.tiles import choose_rows
from tests.codegen import kernels
from tests.codegen.kernels import Kernel, capability, check
from tests.optimizer.test_heuristic import Target

Array = np.ndarray


def tuned(kernel: Kernel, lanes: int = 8, cache: int = 1 << 19) -> UOp:
    """The kernel with its actions on a target that has a second cache, checked."""
    target = replace(capability(lanes), l2_bytes=cache)
    sink = apply_opts(kernel.sink, Target(target))
    check(kernel, sink)
    check(kernel, expander(post_opt_symbolic(sink), target))
    return sink


def chosen(kernel: Kernel, cache: int = 1 << 19) -> str:
    return "; ".join(map(str, tuned(kernel, cache=cache).arg.applied_opts))


def ops(text: str) -> set[OptOps]:
    return {opt.op for opt in parse_opts(text)}


def test_padded_image_is_copied_with_its_zeros_and_broadcast() -> None:
    text = chosen(kernels.conv(8, 16, 8, 3))
    assert text == (
        "LOCAL(3, 2, 4, 5, 0); WINDOW(3, 1, 12, 4, 1, 5, 2); UPCAST(0, 16); UPCAST(2, 4); "
        "UPCAST(12, 12)"
    )


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("channels", "outs", "size"), [(8, 16, 8), (8, 8, 9), (9, 24, 11)])
def test_values_stay(channels: int, outs: int, size: int, lanes: int) -> None:
    for make in (kernels.conv, lambda *args: kernels.framed_conv(*args[:3])):
        tuned(make(channels, outs, size, 3), lanes)


@pytest.mark.parametrize(
    ("ends", "vectors", "axis", "copies"),
    [
        ((56, 56), 2, 1, 6),  # 9 * 6 + 2
        ((14, 14), 2, 1, 5),  # 2 * 5 + 4
        ((28, 28), 2, 1, 6),
        ((7, 7), 2, 1, 4),
        ((7, 7), 1, 1, 7),
        ((16, 2), 2, 0, 6),  # 2 * 6 + 4
    ],
)
def test_rows_left_over_are_a_tile_of_their_own(
    ends: tuple[int, int], vectors: int, axis: int, copies: int
) -> None:
    axes = [UOp.range(end, number) for number, end in enumerate(ends)]
    known = dict(zip(axes, ends, strict=True))
    _, row, rows = choose_rows(known, vectors, 12, 10**8, 0.0)
    assert (row, rows) == (axes[axis], copies)


def test_few_rows_left_over_in_little_work_have_no_code() -> None:
    axis = UOp.range(9, 0)
    assert choose_rows({axis: 9}, 2, 12, 1000, 0.0)[1:] == (axis, 3)


def test_rows_of_short_images_are_several_images() -> None:
    """2 x 2 pixels give no tile; the same pixel of 4 images does"""
    text = chosen(kernels.convs(16, 8, 16, 2, 3))
    assert "UPCAST(0, 8)" in text or "UPCAST(0, 4)" in text, text


def test_an_image_is_copied_once_where_lanes_are_the_outermost_loop() -> None:
    """32 KiB of weight are more than the cache: 16 lanes of it at a time, for all images"""
    small = 1 << 14
    text = chosen(kernels.convs(4, 16, 32, 4, 3), cache=small)
    assert text.startswith("SPLIT(1, 16); SWAP(0, 1); LOCAL("), text
    assert "WINDOW(" in text
    assert text.count("SPLIT") == 1  # the images are not copied in parts


def test_short_sums_and_products_of_matrices_keep_their_lane() -> None:
    assert OptOps.WINDOW not in ops(chosen(kernels.conv(2, 16, 8, 3)))  # 18 terms
    assert OptOps.UPCAST in ops(chosen(kernels.matmul(64, 64, 64)))


# ---- whole convolutions --------------------------------------------------------------------------

# images, weights, stride, padding (before and after, y and x), dilation, groups
_CASES = [
    ((2, 8, 12, 12), (16, 8, 3, 3), 1, (1, 1, 1, 1), 1, 1),
    ((2, 8, 12, 12), (16, 8, 3, 3), 1, (0, 0, 0, 0), 1, 1),
    ((3, 8, 13, 11), (24, 8, 3, 3), 2, (1, 1, 1, 1), 1, 1),
    ((2, 8, 13, 13), (16, 8, 3, 3), 1, (0, 2, 1, 0), 1, 1),
    ((2, 16, 13, 17), (32, 8, 3, 3), 1, (2, 2, 2, 2), 2, 2),
    ((1, 3, 37, 31), (16, 3, 7, 7), 2, (3, 3, 3, 3), 1, 1),
    ((5, 7, 11, 9), (11, 7, 5, 5), 1, (2, 2, 2, 2), 1, 1),
    ((2, 16, 10, 10), (8, 16, 1, 1), 1, (0, 0, 0, 0), 1, 1),
    ((2, 16, 10, 10), (8, 16, 2, 2), 2, (0, 0, 0, 0), 1, 1),
    ((2, 8, 16, 16), (16, 8, 3, 1), 3, (1, 1, 0, 0), 1, 1),
    ((1, 9, 8, 64), (16, 9, 3, 3), 1, (1, 1, 1, 1), 3, 1),
    ((64, 1, 9, 9), (16, 1, 8, 8), 1, (0, 0, 0, 0), 1, 1),
    ((7, 16, 2, 2), (32, 16, 3, 3), 1, (1, 1, 1, 1), 1, 1),
    ((3, 12, 7, 7), (16, 12, 3, 3), 1, (1, 1, 1, 1), 1, 1),
    ((2, 8, 14, 14), (16, 8, 5, 5), 1, (2, 2, 2, 2), 1, 1),
]


@pytest.mark.torch
@pytest.mark.parametrize("case", _CASES)
def test_convolutions_and_their_gradients(case: tuple[object, ...]) -> None:
    import torch

    image, weight, stride, padding, dilation, groups = case
    random = np.random.default_rng(1)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in (image, weight))
    top, bottom, left, right = padding  # type: ignore[misc]
    tx, tw = (torch.from_numpy(value).requires_grad_() for value in (x, w))
    framed = torch.nn.functional.pad(tx, (left, right, top, bottom))
    expected = torch.nn.functional.conv2d(framed, tw, None, stride, 0, dilation, groups)
    g = random.standard_normal(expected.shape).astype(np.float32)
    expected.backward(torch.from_numpy(g))
    mx, mw = (mk.Tensor(value, requires_grad=True) for value in (x, w))
    got = mx.conv2d(mw, None, stride, (left, right, top, bottom), dilation, groups)
    got.backward(mk.Tensor(g))
    for ours, theirs in ((got, expected), (mx.grad, tx.grad), (mw.grad, tw.grad)):
        right_values = theirs.detach().numpy()
        scale = np.abs(right_values).max()
        assert np.abs(ours.numpy() - right_values).max() <= 1e-5 * scale
