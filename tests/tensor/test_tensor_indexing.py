"""Advanced indexing against NumPy: reads, writes, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morok import Tensor, dtypes, engine
from morok.errors import AxisError, DTypeError, ShapeError

Array = np.ndarray[Any, Any]


def _values(shape: tuple[int, ...]) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) + 1


@st.composite
def _indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and an index for it that has at least one array."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    common = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)))
    entries: list[Any] = []
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "mask"]))
        if kind == "array":
            own = tuple(draw(st.sampled_from([1, m])) for m in common)
            own = own[draw(st.integers(0, len(own))) :]
            flat = draw(
                st.lists(
                    st.integers(-n, n - 1), min_size=int(np.prod(own)), max_size=int(np.prod(own))
                )
            )
            entries.append(np.array(flat, np.int64).reshape(own))
        elif kind == "slice":
            bound = st.none() | st.integers(-n - 1, n + 1)
            step = draw(st.sampled_from([None, 1, 2, -1, -2]))
            entries.append(slice(draw(bound), draw(bound), step))
        elif kind == "int":
            entries.append(draw(st.integers(-n, n - 1)))
        elif not any(isinstance(e, np.ndarray) for e in entries) and common == ():
            entries.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
        else:
            entries.append(slice(None))
        axis += 1
    cut = draw(st.integers(0, len(entries)))
    if draw(st.booleans()):
        entries.insert(cut, None)
    elif draw(st.booleans()):
        entries[cut:] = [Ellipsis]
    elif draw(st.booleans()):
        entries.insert(cut, Ellipsis)  # stands for no axis
    return shape, tuple(entries)


def _ours(entries: tuple[Any, ...], as_tensor: bool) -> tuple[Any, ...]:
    if not as_tensor:
        return entries
    return tuple(Tensor(e) if isinstance(e, np.ndarray) else e for e in entries)


@settings(max_examples=60, deadline=None)
@given(_indexed(), st.booleans())
def test_reading_is_numpys(case: tuple[tuple[int, ...], tuple[Any, ...]], as_tensor: bool) -> None:
    shape, index = case
    array = _values(shape)
    want = array[index]
    got = Tensor(array)[_ours(index, as_tensor)]
    assert got.shape == want.shape
    assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("index", [range(2), range(0), (slice(None), range(4, 0, -2))])
def test_a_range_is_an_index_array(index: Any) -> None:
    array = _values((4, 5, 3))
    ours = Tensor(array)
    assert np.array_equal(ours[index].numpy(), array[index])
    ours[index] = -1
    array[index] = -1
    assert np.array_equal(ours.numpy(), array)


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [[-1], [1]], Ellipsis, 0),
        (0, Ellipsis, slice(None), [1, 2]),
        ([0, 1], [1, 2], Ellipsis, [0, 1]),
        ([0, 1], [1, 2], [0, 1], Ellipsis),
        (None, slice(None), [1, 2], Ellipsis, 0, None),
        (0, 0, 0, Ellipsis),
    ],
)
def test_an_ellipsis_that_stands_for_no_axis(index: tuple[Any, ...]) -> None:
    array = _values((4, 5, 3))
    ours = Tensor(array)
    assert ours[index].shape == array[index].shape
    assert np.array_equal(ours[index].numpy(), array[index])
    ours[index] = Tensor(array[index] * 2)
    array[index] = array[index] * 2
    assert np.array_equal(ours.numpy(), array)


@settings(max_examples=50, deadline=None)
@given(_indexed(), st.booleans(), st.booleans())
def test_writing_is_numpys(
    case: tuple[tuple[int, ...], tuple[Any, ...]], as_tensor: bool, whole: bool
) -> None:
    shape, index = case
    array = _values(shape)
    ours = Tensor(array)
    target = array[index]
    value = -_values(target.shape) if whole else np.float32(-5)
    array[index] = value
    ours[_ours(index, as_tensor)] = Tensor(value) if whole else -5
    assert np.array_equal(ours.numpy(), array)


@settings(max_examples=25, deadline=None)
@given(_indexed())
def test_gradients_add_up_where_elements_are_read_twice(
    case: tuple[tuple[int, ...], tuple[Any, ...]],
) -> None:
    shape, index = case
    array = _values(shape)
    weights = _values(array[index].shape)
    ours = Tensor(array, requires_grad=True)
    (ours[index] * Tensor(weights)).sum().backward()
    want = np.zeros_like(array)
    np.add.at(want, index, weights)
    got = np.zeros_like(array) if ours.grad is None else ours.grad.numpy()
    assert np.array_equal(got, want)


@settings(max_examples=25, deadline=None)
@given(_indexed())
def test_gradient_of_a_write_goes_to_the_value_that_stays(
    case: tuple[tuple[int, ...], tuple[Any, ...]],
) -> None:
    shape, index = case
    array = _values(shape)
    target = array[index]
    if target.size == 0:
        return
    number = np.full(shape, -1)
    number[index] = np.arange(target.size).reshape(target.shape)
    weights = _values(shape)
    base = Tensor(array, requires_grad=True)
    value = Tensor(-_values(target.shape), requires_grad=True)
    out = base * 1
    out[index] = value
    (out * Tensor(weights)).sum().backward()
    want = np.zeros(target.size, np.float32)
    want[number[number >= 0]] = weights[number >= 0]
    assert value.grad is not None
    kept = np.zeros(shape) if base.grad is None else base.grad.numpy()
    assert np.array_equal(kept, np.where(number >= 0, 0, weights))
    assert np.array_equal(value.grad.numpy().reshape(-1), want)


def test_index_arrays_apart_from_each_other_come_first() -> None:
    t = np.zeros((3, 4, 5), np.float32)
    i, j = np.array([[0, 1], [2, 0]]), np.array([4, 1])
    v = _values((2, 2, 4))
    ours = Tensor(t)
    ours[Tensor(i), :, Tensor(j)] = v
    t[i, :, j] = v
    assert np.array_equal(ours.numpy(), t)
    assert ours[i, :, j].shape == (2, 2, 4)


def test_the_last_of_several_writes_to_one_place_wins() -> None:
    t = Tensor(np.zeros(3, np.int32))
    t[[1, 1, 2, 1]] = Tensor(np.array([5, 6, 7, 8], np.int32))
    assert t.tolist() == [0, 8, 7]


def test_masks_of_several_dims_and_of_none() -> None:
    a = _values((2, 3, 2))
    mask = np.array([[True, False, True], [False, True, False]])
    ours = Tensor(a)
    assert np.array_equal(ours[Tensor(mask)].numpy(), a[mask])
    assert np.array_equal(ours[Tensor(mask), 1].numpy(), a[mask, 1])
    assert np.array_equal(ours[True].numpy(), a[True])
    assert np.array_equal(ours[False].numpy(), a[False])
    ours[Tensor(a) > 4] = 0
    a[a > 4] = 0
    assert np.array_equal(ours.numpy(), a)
    ours[mask] = np.array([1, 2], np.float32)
    a[mask] = np.array([1, 2], np.float32)
    assert np.array_equal(ours.numpy(), a)


def test_an_index_may_be_computed_and_lazy() -> None:
    a = _values((6, 3))
    t = Tensor(a)
    i = (Tensor(np.array([1, 2, 3])) * 2 - 3).abs()
    assert np.array_equal(t[i % 6].numpy(), a[[1, 1, 3]])
    assert np.array_equal((t * 2)[i].sum(1).numpy(), (a * 2)[[1, 1, 3]].sum(1))
    best = t[:, 1].argmax()
    assert np.array_equal(t[best].numpy(), a[5])
    of_index = Tensor(np.array([2, 0, 1]))[Tensor(np.array([0, 2]))]
    assert np.array_equal(t[of_index].numpy(), a[[2, 1]])


def test_a_lazy_index_out_of_range_reads_the_nearest_and_writes_nothing() -> None:
    a = _values((4,))
    i = Tensor(np.array([1, 9, -7])) + 0
    assert Tensor(a)[i].tolist() == [2.0, 4.0, 1.0]
    t = Tensor(a)
    t[Tensor(np.array([1, 9, -7])) + 0] = 50
    assert t.tolist() == [1.0, 50.0, 3.0, 4.0]


def test_gather_scatter_and_their_kin() -> None:
    a = _values((3, 4))
    i = np.array([[0, 3, 1], [2, 2, 0]])
    t = Tensor(a)
    assert np.array_equal(t.gather(1, i).numpy(), np.take_along_axis(a[:2], i, 1))
    src = -_values((2, 3))
    put, add = a.copy(), a.copy()
    for r in range(2):
        for c in range(3):
            put[r, i[r, c]] = src[r, c]
            add[r, i[r, c]] += src[r, c]
    assert np.array_equal(t.scatter(1, Tensor(i), src).numpy(), put)
    assert np.array_equal(t.scatter_add(1, i, Tensor(src)).numpy(), add)
    assert np.array_equal(t.scatter(1, i, 9.0).numpy()[1], [9, 6, 9, 8])
    assert np.array_equal(t.index_select(1, [2, 0, 2]).numpy(), a[:, [2, 0, 2]])
    add = a.copy()
    np.add.at(add, (slice(None), [1, 1]), src[0, :2])
    rows = np.broadcast_to(src[0, :2], (3, 2)).copy()
    assert np.array_equal(t.index_add(1, [1, 1], Tensor(rows)).numpy(), add)
    assert np.array_equal(t.take([[0, 11], [-1, 5]]).numpy(), a.reshape(-1)[[[0, 11], [-1, 5]]])
    assert np.array_equal(t.masked_select(t > 7).numpy(), a[a > 7])
    assert t.nonzero().tolist() == np.argwhere(a).tolist()
    assert t.cast(dtypes.bfloat16).nonzero().tolist() == np.argwhere(a).tolist()
    assert Tensor(3).nonzero().shape == (1, 0)
    assert Tensor([0.0, np.nan, -0.0]).nonzero().tolist() == [[1]]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ([0, 3], AxisError),
        (np.array([-4]), AxisError),
        ([0.5], AxisError),
        ("a", AxisError),
        ((0, 0, 0), AxisError),
        (np.array([True, False]), AxisError),
        ((Ellipsis, Ellipsis), AxisError),
        (([0, 1], [0, 1, 2]), ShapeError),
        ([[0, 1], [2]], AxisError),
    ],
)
def test_wrong_indices_say_so_and_write_nothing(index: Any, error: type[Exception]) -> None:
    t = Tensor(_values((3, 2)))
    with pytest.raises(error, match="index"):
        t[index]
    with pytest.raises(error, match="index"):
        t[index] = 0
    assert np.array_equal(t.numpy(), _values((3, 2)))


def test_wrong_index_tensors_say_so() -> None:
    t = Tensor(_values((3, 2)))
    with pytest.raises(DTypeError, match="index"):
        t[Tensor([0.0, 1.0])]
    with pytest.raises(AxisError, match="index 3 along axis 0 of length 3"):
        t[Tensor([0, 3])]
    with pytest.raises(AxisError, match="gather: index 2"):
        t.gather(1, Tensor([[0, 2]]))
    with pytest.raises(ShapeError, match="gather"):
        t.gather(1, Tensor([0, 1]))
    with pytest.raises(ShapeError, match="scatter_add"):
        t.scatter_add(0, Tensor([[0, 1]]), Tensor([1.0]))
    with pytest.raises(ShapeError, match="does not broadcast"):
        t[[0, 1]] = Tensor([1.0, 2.0, 3.0])
    assert np.array_equal(t.numpy(), _values((3, 2)))


def test_dtypes_are_kept_and_values_cast() -> None:
    t = Tensor(np.array([1, 2, 3], np.uint8))
    assert t[[0, 2]].dtype is dtypes.uint8
    t[[0, 0]] = Tensor([7, 300])
    assert t.tolist() == [44, 2, 3]


def test_writing_rows_touches_those_rows_only() -> None:
    t = Tensor(np.zeros((1000, 4), np.float32)).realize()
    t[[5, 7, 5]] = Tensor(_values((3, 4)))
    moved: list[int] = []
    with engine.watch_kernels(
        lambda planned, _: moved.extend(k.sink.arg.estimates.bytes_moved for k in planned.kernels)
    ):
        t.realize()
    assert moved == [2 * 3 * 4 * 4 + 3 * 4]
    want = np.zeros((1000, 4), np.float32)
    want[[5, 7, 5]] = _values((3, 4))
    assert np.array_equal(t.numpy(), want)


@pytest.mark.parametrize("n", [3, 64])
def test_a_write_from_rows_of_itself_reads_the_old_ones(n: int) -> None:
    a = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
    order = np.random.default_rng(n).permutation(n)
    t = Tensor(a).realize()
    twice = t[order] * 2
    t[order] = t[order[::-1].copy()] + t.sum(0)
    last = t + 0
    want = a.copy()
    want[order] = a[order[::-1]] + a.sum(0)
    assert np.allclose(t.numpy(), want, atol=1e-5)
    assert np.array_equal(twice.numpy(), a[order] * 2)
    assert np.array_equal(last.numpy(), t.numpy())
