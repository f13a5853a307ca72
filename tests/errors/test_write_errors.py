"""Writes that cannot be made: the error names the method and the user's line, and nothing was
written, whatever waits to be written and wherever it lies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from morok.errors import AxisError, DTypeError, MorokError, ShapeError
from morok.tensor import Tensor, no_grad

Mistake = Callable[[Any], object]
START = np.arange(6, dtype=np.int32).reshape(2, 3)


def put(index: Any, value: Any) -> Mistake:
    def mistake(t: Any) -> None:
        t[index] = value

    return mistake


def in_place(operation: str, value: Any) -> Mistake:
    return lambda t: getattr(t, operation)(value)


# (mistake, class of the error, method, what the text must say)
MISTAKES: list[tuple[Mistake, type[MorokError], str, str]] = [
    (put(2, 1), AxisError, "index", "2 along axis 0"),
    (put((0, -4), 1), AxisError, "index", "-4 along axis 1"),
    (put((0, 0, 0), 1), AxisError, "index", "(2, 3)"),
    (put((..., ...), 1), AxisError, "index", "Ellipsis"),
    (put("a", 1), AxisError, "index", "str"),
    (put(1.0, 1), AxisError, "index", "float"),
    (put(slice(None, None, 0), 1), AxisError, "index", "step"),
    (put(slice("a", None), 1), AxisError, "index", "slice"),
    (put([0, 2], 1), AxisError, "index", "2 along axis 0"),
    (put(([0, 1], [0, 1, 2]), 1), ShapeError, "index", "(2,)"),
    (put(np.zeros((3, 3), bool), 1), AxisError, "", "(3, 3)"),
    (put(np.array([0.5]), 1), AxisError, "index", "float64"),
    (put(0, [1, 2]), ShapeError, "setitem", "(2,) does not broadcast to (3,)"),
    (put((0, 0), [1, 2]), ShapeError, "setitem", "(2,) does not broadcast to ()"),
    (put(..., np.zeros((4, 2, 3), np.int32)), ShapeError, "setitem", "(4, 2, 3)"),
    (put([0, 1], np.zeros((2, 2), np.int32)), ShapeError, "setitem", "(2, 2)"),
    (put(0, "word"), DTypeError, "setitem", "str"),
    (put(0, None), DTypeError, "setitem", "NoneType"),
    (put(0, 1 << 40), DTypeError, "setitem", "does not fit"),
    (in_place("assign", np.zeros((3, 2), np.int32)), ShapeError, "assign", "(3, 2)"),
    (in_place("assign", np.zeros((1, 2, 3), np.int32)), ShapeError, "assign", "(1, 2, 3)"),
    (in_place("assign", "word"), DTypeError, "assign", "str"),
    (in_place("__iadd__", np.zeros((4, 2, 3), np.int32)), ShapeError, "add_", "(4, 2, 3)"),
    (in_place("__iadd__", 1.5), DTypeError, "add_", "Float32"),
    (in_place("__itruediv__", 2), DTypeError, "div_", "Float32"),
    (in_place("__imul__", np.zeros((2, 2), np.int32)), ShapeError, "mul", "(2, 2)"),
    (in_place("__ilshift__", 0.5), DTypeError, "bitwise_left_shift", "Float32"),
    (in_place("fill_", -(1 << 31) - 1), DTypeError, "assign", "does not fit"),
    (in_place("fill_", [1, 2]), ShapeError, "assign", "(2,)"),
]


def lent(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(array)


def with_an_alias(array: np.ndarray) -> Tensor:
    t = Tensor.from_numpy(array)
    KEPT.append(Tensor.from_numpy(array.reshape(-1)[1:]))
    return t


KEPT: list[Tensor] = []
TARGETS: dict[str, Callable[[np.ndarray], Tensor]] = {
    "in memory": lambda array: Tensor(array).realize(),
    "lazy": lambda array: Tensor(array) + 0,
    "spread": lambda array: Tensor(array[:, :1]).expand(2, 3),
    "lent": lent,
    "with an alias": with_an_alias,
}


@pytest.mark.parametrize("waiting", [False, True], ids=["settled", "waiting"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("mistake", "kind", "method", "said"), MISTAKES)
def test_nothing_is_written(
    mistake: Mistake, kind: type[MorokError], method: str, said: str, target: str, waiting: bool
) -> None:
    array = START.copy()
    t = TARGETS[target](array)
    wanted = np.broadcast_to(START[:, :1], (2, 3)).copy() if target == "spread" else START.copy()
    lazy = t * 2
    before = wanted * 2
    if waiting:
        t[1, 1:] = -5
        wanted[1, 1:] = -5
    with pytest.raises(kind) as caught:
        mistake(t)
    text = str(caught.value)
    assert text.startswith(method)
    assert said in text
    assert f"at {inspect.getsourcefile(put)}:" in text
    np.testing.assert_array_equal(t.numpy(), wanted)
    np.testing.assert_array_equal(lazy.numpy(), before)
    if "lent" in target or "alias" in target:
        np.testing.assert_array_equal(array, wanted)
    t[0, 0] = 77  # and it goes on
    wanted[0, 0] = 77
    np.testing.assert_array_equal(t.numpy(), wanted)
    KEPT.clear()


def test_a_spread_tensor_has_elements_of_its_own() -> None:
    """`expand` gives a value, no window: a write changes the one element, and not the row it was
    spread from. Memory that is spread itself cannot be lent."""
    row = Tensor([1, 2, 3]).realize()
    wide = row.expand(2, 3)
    wide[0, 1] = 9
    assert wide.tolist() == [[1, 9, 3], [1, 2, 3]]
    assert row.tolist() == [1, 2, 3]
    for array in (np.broadcast_to(np.arange(3), (2, 3)), START.T, START[:, 1:], START[::-1]):
        with pytest.raises(ShapeError, match="from_numpy: an array of shape"):
            Tensor.from_numpy(array)


def test_leaves_are_written_within_no_grad() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    for mistake in (put(0, 1.0), put([0, 1], 1.0), in_place("__iadd__", 1.0)):
        with pytest.raises(MorokError, match="no_grad"):
            mistake(w)
    assert w.tolist() == [1, 2, 3]
    with no_grad():
        w[0] = 5.0
        w[[1, 2]] += 1
    assert w.tolist() == [5, 3, 4]
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [10, 6, 8]
