"""Layers and the state of models."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.errors import ArgumentError, DTypeError, ShapeError
from morok.nn import Conv2d, Linear
from morok.nn.state import get_parameters, get_state_dict, load_state_dict
from morok.tensor import Tensor, manual_seed


class Model:
    def __init__(self) -> None:
        self.name = "model"
        self.layers = [Linear(4, 3), Linear(3, 2, bias=False)]
        self.parts = {"conv": Conv2d(4, 2, 3, groups=2)}
        self.first = self.layers[0]
        self.myself = self
        self.library = np
        self.count = Tensor([0])


def test_linear_and_conv2d_apply_their_weights(rng) -> None:
    linear, conv = Linear(4, 3), Conv2d(2, 3, (2, 3), stride=2, padding=(1, 0, 0, 1))
    x, image = rng.standard_normal((5, 4)), rng.standard_normal((1, 2, 5, 6))
    y, out = linear(Tensor(x).float()), conv(Tensor(image).float())
    Tensor.realize(y, out, linear.weight, linear.bias)
    wanted = x @ linear.weight.numpy().T + linear.bias.numpy()
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert out.shape == (1, 3, 3, 3)
    assert repr(linear) == "Linear(4, 3, bias=True)"
    assert repr(conv) == "Conv2d(2, 3, kernel_size=(2, 3))"


def test_layers_start_as_pytorchs() -> None:
    manual_seed(0)
    weight = Linear(100, 200).weight
    bound = np.abs(weight.numpy()).max()
    assert 0.099 < bound <= 0.1
    assert weight.requires_grad


def test_state_by_name() -> None:
    model = Model()
    state = get_state_dict(model)
    assert list(state) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "parts.conv.weight",
        "parts.conv.bias",
        "first.weight",
        "first.bias",
        "count",
    ]
    assert state["first.weight"] is state["layers.0.weight"]
    assert len(get_parameters(model)) == 5
    assert get_state_dict(Linear(2, 2), "x").keys() == {"x.weight", "x.bias"}


def test_loading_state() -> None:
    model, other = Linear(3, 2), Linear(3, 2)
    load_state_dict(model, {k: v.numpy() for k, v in get_state_dict(other).items()})
    assert model.weight.tolist() == other.weight.tolist()
    assert model.weight.requires_grad
    load_state_dict(model, {"bias": Tensor.ones(2), "extra": Tensor.ones(1)}, strict=False)
    assert model.bias.tolist() == [1, 1]
    # Another precision is cast, and what was loaded is a copy.
    wide = {"weight": np.ones((2, 3)), "bias": np.zeros(2, np.float16)}
    load_state_dict(model, wide)
    wide["weight"][:] = 7
    assert model.weight.dtype is dtypes.float32
    assert model.weight.tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"weight": None}, ArgumentError, r"missing \['weight'\]"),
        ({"extra": np.ones(2)}, ArgumentError, r"not in the model \['extra'\]"),
        ({"bias": np.ones(3)}, ShapeError, r"bias has shape \(2,\) in the model and \(3,\)"),
        ({"bias": np.ones(2, np.int32)}, DTypeError, "bias is Float32 in the model and Int32"),
        ({"bias": np.ones(2, bool)}, DTypeError, "bias is Float32 in the model and Bool"),
        ({"bias": "text"}, DTypeError, "bias: no tensor can be made of str"),
        ({"bias": object()}, DTypeError, "bias: no tensor can be made of object"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, kind, message: str) -> None:
    """The weight comes first and would fit."""
    model = Linear(3, 2)
    before = [t.numpy().copy() for t in get_state_dict(model).values()]
    state = {"weight": np.ones((2, 3)), "bias": np.zeros(2)} | change
    state = {name: value for name, value in state.items() if value is not None}
    with pytest.raises(kind, match=message):
        load_state_dict(model, state)
    for tensor, old in zip(get_state_dict(model).values(), before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), old)


@pytest.mark.torch
def test_pytorchs_tensors_are_loaded() -> None:
    import torch

    model, theirs = Linear(3, 2), torch.nn.Linear(3, 2)
    load_state_dict(model, theirs.state_dict())
    assert model.weight.tolist() == theirs.weight.tolist()
    half = Linear(3, 2, dtype=dtypes.bfloat16)
    load_state_dict(half, theirs.bfloat16().state_dict())
    assert half.weight.tolist() == theirs.weight.tolist()
