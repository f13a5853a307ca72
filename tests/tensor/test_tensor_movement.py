"""Shape, order, extent, joining and parting, indexing: values exactly NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.errors import AxisError, ShapeError
from morok.tensor import Tensor

A = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def check(cases: list[tuple[Tensor, np.ndarray]]) -> None:
    Tensor.realize(*(tensor for tensor, _ in cases))
    for i, (tensor, wanted) in enumerate(cases):
        assert tensor.shape == wanted.shape, i
        np.testing.assert_array_equal(tensor.numpy(), wanted, err_msg=str(i))


def test_shape_and_order() -> None:
    x = Tensor(A)
    check(
        [
            (x.reshape(4, 6), A.reshape(4, 6)),
            (x.view((-1, 8)), A.reshape(3, 8)),
            (x.flatten(1), A.reshape(2, 12)),
            (x.unflatten(2, (2, -1)), A.reshape(2, 3, 2, 2)),
            (x.unsqueeze(-1), A[..., None]),
            (x.unsqueeze(0).squeeze(), A),
            (x.permute(2, 0, 1), A.transpose(2, 0, 1)),
            (x.transpose(0, -1), A.swapaxes(0, 2)),
            (x.T, A.T),
            (x.mT, A.swapaxes(1, 2)),
            (x.movedim(0, 2), np.moveaxis(A, 0, 2)),
            (x.flip(0, 2), A[::-1, :, ::-1]),
            (x.flip(axis=1), A[:, ::-1]),
            (x.roll(1, 1), np.roll(A, 1, 1)),
            (x.roll(-5), np.roll(A, -5)),
            (x.roll((1, -1), (0, 2)), np.roll(A, (1, -1), (0, 2))),
        ]
    )


def test_extent() -> None:
    x, row = Tensor(A), Tensor(A[0, :, :1])
    check(
        [
            (row.expand(3, 4), np.broadcast_to(A[0, :, :1], (3, 4))),
            (row.expand(5, -1, 2), np.broadcast_to(A[0, :, :1], (5, 3, 2))),
            (x.repeat(2, 1, 1, 2), np.tile(A, (2, 1, 1, 2))),
            (x.tile(2), np.tile(A, 2)),
            (x.repeat_interleave(2, 1), np.repeat(A, 2, 1)),
            (x.repeat_interleave(3), np.repeat(A, 3)),
            (x.pad((1, 2)), np.pad(A, ((0, 0), (0, 0), (1, 2)))),
            (x.pad((1, 0, 0, 2), value=7), np.pad(A, ((0, 0), (0, 2), (1, 0)), constant_values=7)),
            (x.pad([(0, 1), None, (2, 0)]), np.pad(A, ((0, 1), (0, 0), (2, 0)))),
            (x.pad((-1, 1)), np.pad(A[..., 1:], ((0, 0), (0, 0), (0, 1)))),
            (x.shrink([(0, 1), None, (1, 3)]), A[:1, :, 1:3]),
        ]
    )


def test_pad_then_reshape_across_the_edge() -> None:
    a = np.arange(50, dtype=np.int32).reshape(2, 5, 5)
    padded = np.pad(a, ((2, 0), (0, 0), (0, 0)))
    wide = np.pad(a, ((0, 0), (0, 0), (0, 3))).reshape(2, 8, 5)
    check(
        [
            (Tensor(a).pad([(2, 0), None, None]).reshape(2, 2, 5, 5), padded.reshape(2, 2, 5, 5)),
            (Tensor(a).pad([(2, 0), None, None]).reshape(2, 10, 5), padded.reshape(2, 10, 5)),
            (Tensor(a).pad((0, 3)).reshape(2, 8, 5), wide),
            (Tensor([5, 6]).pad((1, 1), value=2)[2], np.array(6)),
        ]
    )


def test_joining_and_parting() -> None:
    x, y = Tensor(A), Tensor(A[:, :2] + 100)
    check(
        [
            (Tensor.cat([x, y], dim=1), np.concatenate([A, A[:, :2] + 100], 1)),
            (x.cat(x, x, dim=-1), np.concatenate([A, A, A], -1)),
            (Tensor.cat([x, y], 1), np.concatenate([A, A[:, :2] + 100], 1)),
            (Tensor.stack([x, x + 1], dim=1), np.stack([A, A + 1], 1)),
            (Tensor.stack([x, x], -1), np.stack([A, A], -1)),
            (x.split(2, 1)[1], A[:, 2:]),
            (x.split([1, 2], 1)[1], A[:, 1:]),
            (x.chunk(3, 2)[1], A[:, :, 2:4]),
            (x.unbind(1)[2], A[:, 2]),
        ]
    )
    assert [part.shape for part in x.chunk(3, 2)] == [(2, 3, 2), (2, 3, 2)]


def test_cat_of_floats_keeps_bits() -> None:
    """A choice by place: the sign of zero and NaN come through; dtypes promote."""
    a, b = np.float32([-0.0, np.nan]), np.float32([np.inf, -0.0])
    got = Tensor.cat([Tensor(a), Tensor(b)]).numpy()
    assert got.tobytes() == np.concatenate([a, b]).tobytes()
    assert Tensor.cat([Tensor([1]), Tensor([2.5])]).tolist() == [1.0, 2.5]


def test_cat_of_many() -> None:
    parts = [Tensor([i, -i]) for i in range(70)]
    assert Tensor.cat(parts).tolist() == [n for i in range(70) for n in (i, -i)]


INDICES = [
    0,
    -1,
    slice(None),
    slice(1, None),
    (1, 2, 3),
    (0, slice(None, None, 2)),
    (slice(None), slice(None, None, -1)),
    (..., slice(3, 0, -2)),
    (..., slice(1, 4, 3)),
    (slice(None), 1, ...),
    (None, slice(None), None, 1),
    (..., None),
    (slice(5, 1), slice(0, 9)),
    (slice(None), slice(-2, None), slice(None, -1)),
    (slice(1, 2, 5), slice(2, None, -1), slice(None, None, 3)),
    (),
    ...,
    (Ellipsis, 0, 1),
]


def test_basic_indexing() -> None:
    x = Tensor(A)
    check([(x[index], A[index]) for index in INDICES if A[index].size])
    for index in INDICES:
        assert x[index].shape == A[index].shape
    assert x[np.int64(1), 2].tolist() == A[1, 2].tolist()
    assert x[Tensor(1)].tolist() == A[1].tolist()


def test_writing_where_an_index_points() -> None:
    got, wanted = [], []
    for index in INDICES:
        tensor, array = Tensor(A), A.copy()
        value = np.arange(A[index].size, dtype=np.int32).reshape(A[index].shape) - 50
        tensor[index] = Tensor(value)
        array[index] = value
        got.append(tensor)
        wanted.append(array)
    check(list(zip(got, wanted, strict=True)))
    tensor, array = Tensor(A), A.copy()
    tensor[:, 1] = 9
    array[:, 1] = 9
    tensor[0, ::2] *= 10
    array[0, ::2] *= 10
    check([(tensor, array)])
    with pytest.raises(ShapeError, match="setitem"):
        tensor[0] = Tensor([1, 2])


def test_iteration_and_length() -> None:
    x = Tensor(A)
    assert len(x) == 2
    assert [row.tolist() for row in x] == A.tolist()
    with pytest.raises(TypeError):
        len(Tensor(1))
    with pytest.raises(TypeError):
        iter(Tensor(1))


def test_tensors_without_elements() -> None:
    empty = Tensor(np.zeros((0, 3), np.float32))
    assert empty.numpy().shape == (0, 3)
    assert (empty + 1).exp().tolist() == []
    assert empty.sum(0).tolist() == [0, 0, 0]
    assert empty.sum().item() == 0
    assert empty.prod().item() == 1
    assert (empty.all().item(), empty.any().item()) == (True, False)
    assert np.isnan(empty.mean().item())
    assert (Tensor.ones(2, 0) @ Tensor.ones(0, 3)).tolist() == [[0] * 3] * 2
    assert Tensor.cat([empty, Tensor.ones(1, 3)]).tolist() == [[1, 1, 1]]
    assert empty.pad([(1, 0), None]).tolist() == [[0, 0, 0]]
    assert Tensor(A)[2:].shape == (0, 3, 4)
    assert Tensor([]).dtype is dtypes.float32
    with pytest.raises(ShapeError, match="max"):
        empty.max()


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ShapeError, r"reshape: 24 elements of shape \(2, 3, 4\)", lambda x: x.reshape(5, 5)),
        (ShapeError, "reshape", lambda x: x.reshape(-1, 5)),
        (ShapeError, r"expand: shape \(2, 3, 4\)", lambda x: x.expand(2, 3, 5)),
        (AxisError, "permute", lambda x: x.permute(0, 1)),
        (AxisError, "transpose: axis 3", lambda x: x.transpose(0, 3)),
        (AxisError, "flip: an axis is named twice", lambda x: x.flip(0, -3)),
        (AxisError, "sum: axis 5", lambda x: x.sum(5)),
        (ShapeError, "shrink", lambda x: x.shrink([(0, 3), None, None])),
        (ShapeError, r"cat: shapes \(2, 3, 4\) and \(2, 2\)", lambda x: x.cat(Tensor.ones(2, 2))),
        (ShapeError, "stack", lambda x: Tensor.stack([x, x.T])),
        (AxisError, "index: 2 along axis 0", lambda x: x[2]),
        (AxisError, "4 indices", lambda x: x[0, 0, 0, 0]),
        (AxisError, "index: an array of float64", lambda x: x[[0.5, 1]]),
        (AxisError, "more than one Ellipsis", lambda x: x[..., 0, ...]),
        (ShapeError, "split", lambda x: x.split([1, 1], 1)),
        (ShapeError, "pad", lambda x: x.pad((1, 2, 3))),
    ],
)
def test_errors_name_method_and_shapes(error, words, call) -> None:
    with pytest.raises(error, match=words):
        call(Tensor(A))


def test_errors_name_the_users_line() -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor(A) + Tensor([1, 2])  # this very line
    assert "add: shapes (2, 3, 4) and (2,)" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert "test_errors_name_the_users_line" in str(caught.value)


def test_nodes_know_the_users_line() -> None:
    x = Tensor(A).exp()
    assert str(x.uop.provenance).startswith(f"{__file__}:")
