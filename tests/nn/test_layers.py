"""Layers and the state of models."""

from __future__ import annotations

import numpy as np
import pytest

from morok.errors import ShapeError
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
    with pytest.raises(ShapeError, match="missing"):
        load_state_dict(model, {"weight": other.weight})
    with pytest.raises(ShapeError, match=r"weight has shape \(2, 3\) in the model and \(2, 2\)"):
        load_state_dict(model, {"weight": Tensor.ones(2, 2), "bias": Tensor.ones(2)})
    load_state_dict(model, {"bias": Tensor.ones(2), "extra": Tensor.ones(1)}, strict=False)
    assert model.bias.tolist() == [1, 1]
