"""What users get for mistakes: the method, both shapes or dtypes, their own line; and a session
that goes on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morok as mk
from morok.dtype import dtypes
from morok.errors import (
    AxisError,
    DeviceError,
    DTypeError,
    InvalidGraphError,
    MorokError,
    ShapeError,
)
from morok.tensor import Tensor, no_grad

Mistake = Callable[[], object]


def everything_still_works(kept: Tensor, values: list[float]) -> None:
    """An earlier tensor is intact, and a new computation that reads it is right."""
    assert kept.tolist() == values
    again = (kept * 3 - 1).sum()
    assert again.item() == 3 * sum(values) - len(values)


def a(*shape: int, dtype: type = np.float32) -> Tensor:
    return Tensor(np.ones(shape, dtype))


# Each mistake stands on the line that the error must name.
SHAPES: list[tuple[Mistake, str, str, str]] = [
    (lambda: a(2, 3) + a(4, 3), "add", "(2, 3)", "(4, 3)"),
    (lambda: a(2, 3) * a(2), "mul", "(2, 3)", "(2,)"),
    (lambda: a(2, 3) / np.ones((3, 2)), "div", "(2, 3)", "(3, 2)"),
    (lambda: np.ones((3, 2), np.float32) - a(2, 3), "sub", "(2, 3)", "(3, 2)"),
    (lambda: a(2, 3) < a(5), "lt", "(2, 3)", "(5,)"),
    (lambda: a(2, 3).maximum(a(3, 2)), "maximum", "(2, 3)", "(3, 2)"),
    (lambda: (a(2) > 0).where(a(3), a(4)), "where", "(3,)", "(4,)"),
    (lambda: a(2, 3) @ a(4, 3), "matmul", "(2, 3)", "(4, 3)"),
    (lambda: a(2, 2, 3) @ a(3, 3, 2), "matmul", "(2, 2, 3)", "(3, 3, 2)"),
    (lambda: a(2, 3).linear(a(4, 5)), "linear", "(2, 3)", "(4, 5)"),
    (lambda: a(2, 3).reshape(4, 2), "reshape", "(2, 3)", "(4, 2)"),
    (lambda: a(2, 3).expand(2, 4), "expand", "(2, 3)", "(2, 4)"),
    (lambda: Tensor.cat(a(2, 3), a(2, 4)), "cat", "(2, 3)", "(2, 4)"),
    (lambda: Tensor.stack(a(2, 3), a(2, 4)), "stack", "(2, 3)", "(2, 4)"),
    (lambda: a(1, 3, 5, 5).conv2d(a(2, 4, 3, 3)), "conv2d", "(1, 3, 5, 5)", "(2, 4, 3, 3)"),
    (lambda: a(4, 3).cross_entropy(a(5, dtype=np.int32)), "cross_entropy", "(4, 3)", "(5,)"),
    (lambda: a(2, 3).assign(a(3, 2)), "assign", "(3, 2)", "(2, 3)"),
]


def line_of(mistake: Mistake) -> str:
    return f"{inspect.getsourcefile(mistake)}:{inspect.getsourcelines(mistake)[1]} "


@pytest.mark.parametrize(("mistake", "method", "left", "right"), SHAPES)
def test_shapes_that_do_not_fit(mistake: Mistake, method: str, left: str, right: str) -> None:
    kept = Tensor([1.0, 2.0, 4.0]).realize()
    with pytest.raises(ShapeError) as caught:
        mistake()
    text = str(caught.value)
    assert text.startswith(f"{method}: ")
    assert left in text
    assert right in text
    assert f"at {line_of(mistake)}" in text
    everything_still_works(kept, [1.0, 2.0, 4.0])


def test_the_line_is_the_users_even_within_a_layer() -> None:
    layer = mk.nn.Linear(3, 4)
    with pytest.raises(ShapeError) as caught:
        layer(a(2, 5))
    frame = inspect.currentframe()
    assert frame is not None
    assert f"test_user_errors.py:{frame.f_lineno - 3} " in str(caught.value)
    assert layer(a(2, 3)).shape == (2, 4)


# (mistake, method, what the text must say)
DTYPES: list[tuple[Mistake, str, str]] = [
    (lambda: a(3) & a(3), "bitwise_and", "Float32"),
    (lambda: a(3) << 1, "bitwise_left_shift", "Float32"),
    (lambda: a(3, dtype=np.int32) >> 1.5, "bitwise_right_shift", "Float32"),
    (lambda: ~a(3), "bitwise_not", "Float32"),
    (lambda: -(a(3) > 0), "neg", "bool"),
    (lambda: (a(3) > 0) - (a(3) > 1), "sub", "bool"),
    (lambda: a(3).where(a(3), a(3)), "where", "Float32"),
    (lambda: a(3, dtype=np.int8) + 300, "add", "300 does not fit in Int8"),
    (lambda: a(3, dtype=np.uint8) * -1, "mul", "-1 does not fit in UInt8"),
    (lambda: a(3) + "two", "add", "str"),
    (lambda: a(3) * None, "mul", "NoneType"),
    (lambda: a(3).cast("float32"), "cast", "'float32'"),
    (lambda: a(3).cast(dtypes.index), "cast", "index"),
    (lambda: a(3).bitcast(dtypes.int64), "bitcast", "Int64"),
    (lambda: Tensor("words"), "Tensor", "str"),
    (lambda: Tensor([1j]), "Tensor", "complex"),
    (lambda: Tensor([[1, 2], [3]]), "Tensor", "list"),
    (lambda: Tensor([1, 2], requires_grad=True), "Tensor", "Int32"),
    (lambda: a(3, dtype=np.int32).requires_grad_(), "requires_grad", "Int32"),
]


@pytest.mark.parametrize(("mistake", "method", "said"), DTYPES)
def test_dtypes_that_have_no_meaning(mistake: Mistake, method: str, said: str) -> None:
    kept = Tensor([1.0, 2.0, 4.0]).realize()
    with pytest.raises(DTypeError) as caught:
        mistake()
    text = str(caught.value)
    assert text.startswith(f"{method}: ")
    assert said in text
    assert f"at {line_of(mistake)}" in text
    everything_still_works(kept, [1.0, 2.0, 4.0])


def test_axes_indices_and_devices_that_do_not_exist() -> None:
    x = a(2, 3)
    for kind, mistake, said in (
        (AxisError, lambda: x.sum(2), "sum: axis 2 of a tensor of shape (2, 3)"),
        (AxisError, lambda: x.softmax(-3), "softmax: axis -3"),
        (AxisError, lambda: x.max((0, 0)), "max: an axis is named twice in (0, 0)"),
        (AxisError, lambda: x.permute(0, 0), "permute: (0, 0)"),
        (AxisError, lambda: x[2], "2 along axis 0 of shape (2, 3)"),
        (AxisError, lambda: x[0, 0, 0], "3 indices for a tensor of shape (2, 3)"),
        (ShapeError, lambda: x.item(), "(2, 3) has 6 elements"),
        (ShapeError, lambda: bool(x), "(2, 3) is neither true nor false"),
        (DeviceError, lambda: x.to("TPU"), "no device 'TPU'"),
    ):
        with pytest.raises(kind, match=re.escape(said)):
            mistake()
    everything_still_works(Tensor([5.0]), [5.0])


def test_backward_needs_a_scalar_and_something_to_find() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    with pytest.raises(ShapeError, match=r"backward: a tensor of shape \(2,\) is no scalar"):
        y.backward()
    assert w.grad is None
    with pytest.raises(ShapeError, match=r"gradient of shape \(3,\) flows into shape \(2,\)"):
        y.backward(Tensor([1.0, 1.0, 1.0]))
    with no_grad():
        constant = (w * 2).sum()
    for nothing in (Tensor([1.0]).sum(), constant):
        with pytest.raises(ShapeError, match="does not depend on any that requires gradients"):
            nothing.backward()
    assert w.grad is None
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]
    w.grad = None
    y.backward(Tensor([1.0, 10.0]))
    assert w.grad.tolist() == [2.0, 40.0]


def test_a_leaf_is_not_written_where_gradients_are_on() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(MorokError, match="no_grad"):
        w.assign(Tensor([5.0, 6.0]))
    assert w.tolist() == [1.0, 2.0]
    with no_grad():
        w.assign(Tensor([5.0, 6.0]))
    assert w.tolist() == [5.0, 6.0]


def test_errors_are_what_users_of_numpy_and_pytorch_catch() -> None:
    for kind, caught_as in (
        (ShapeError, (ValueError, RuntimeError)),
        (DTypeError, (TypeError,)),
        (AxisError, (IndexError, ValueError)),
        (InvalidGraphError, (ValueError,)),
    ):
        assert issubclass(kind, MorokError)
        assert all(issubclass(kind, other) for other in caught_as)


def test_a_mistake_in_the_middle_of_a_training_step_changes_nothing() -> None:
    layer = mk.nn.Linear(3, 2)
    optimizer = mk.optim.SGD(mk.nn.state.get_parameters(layer), lr=0.5)
    x = np.arange(12, dtype=np.float32).reshape(4, 3) / 10

    def loss_of(images: Any) -> Tensor:
        optimizer.zero_grad()
        loss = (layer(Tensor(images)) ** 2).mean()
        loss.backward()
        return loss

    before = layer.weight.numpy().copy(), layer.bias.numpy().copy()
    with pytest.raises(ShapeError):
        loss_of(x.T)
    np.testing.assert_array_equal(layer.weight.numpy(), before[0])
    loss_of(x)
    optimizer.step()
    out = x @ before[0].T + before[1]
    slope = 2 * out / out.size
    np.testing.assert_allclose(layer.weight.numpy(), before[0] - 0.5 * slope.T @ x, rtol=1e-5)
    np.testing.assert_allclose(layer.bias.numpy(), before[1] - 0.5 * slope.sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("padding", ((1, 1), (1, 1))), ("padding", None), ("stride", (1.5, 1)), ("groups", 1.0)],
)
def test_numbers_of_a_convolution_are_whole(name: str, value: Any) -> None:
    with pytest.raises(DTypeError, match=re.escape(f"conv2d: {name}")) as caught:
        a(1, 1, 5, 5).conv2d(a(1, 1, 3, 3), **{name: value})
    assert repr(value) in str(caught.value)
