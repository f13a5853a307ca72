"""The benchmarks' models, small, from PyTorch's weights: forward, training and running statistics
against PyTorch, computed lazily, under jit, and with every operation realised by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ways import realised_after_every_operation

import morok as mk
from bench import models
from morok.nn.state import get_parameters, get_state_dict, load_state_dict
from morok.tensor import Tensor

pytestmark = pytest.mark.torch

STEPS = 100
BY_ITSELF = 25
"""Steps in which every operation is realised by itself: these cost the most."""


@dataclass(frozen=True)
class Case:
    """How a model is trained. A network whose losses run apart from the smallest difference on (a
    ReLU that opens or not, behind a norm of few values) is compared in float64."""

    name: str
    optimizer: str
    options: dict[str, Any]
    wide: bool = False
    by_itself: bool = True  # its operations are realised one by one too: no other case has them all

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("MLP", "Adam", {"lr": 1e-2}),
    Case("CNN", "Adam", {"lr": 1e-3}, wide=True),
    Case("ResNet18", "SGD", {"lr": 1e-2, "momentum": 0.9}, wide=True),
    # Of the operations that ResNet18 has.
    Case("ResNet50", "SGD", {"lr": 1e-2, "momentum": 0.9}, wide=True, by_itself=False),
    Case("GPT", "AdamW", {"lr": 1e-3}),
    Case("LSTMClassifier", "Adam", {"lr": 1e-2}),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(autouse=True)
def _width(case: Case) -> Iterator[None]:
    with width(case):
        yield


def width(case: Case) -> AbstractContextManager[None]:
    """Within the block models are made in the case's dtype."""
    return mk.config.override(default_float="float64" if case.wide else "float32")


def ours(case: Case) -> Any:
    """The model with the weights of its twin."""
    model = getattr(models, case.name)(**getattr(models, case.name).small)
    load_state_dict(model, theirs(case).state_dict())
    return model


def theirs(case: Case) -> Any:
    import torch

    from bench import _torch_models

    torch.manual_seed(1)
    made = getattr(_torch_models, case.name)(**getattr(models, case.name).small)
    return made.double() if case.wide else made


def batch(case: Case, model: Any, seed: int) -> dict[str, np.ndarray]:
    made = model.make_batch(seed)
    if case.wide:
        made = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in made.items()}
    return made


Losses = list[float]
Trained = tuple[Losses, dict[str, np.ndarray]]


def trained(case: Case, steps: int, wrap: Callable[[Any], Any]) -> Trained:
    """The losses of some steps, and the state after them; `wrap` is put around the step."""
    model = ours(case)
    optimizer = getattr(mk.optim, case.optimizer)(get_parameters(model), **case.options)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model.loss({"x": x, "y": y})
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    losses = []
    for seed in range(steps):
        made = batch(case, model, seed)
        losses.append(step(Tensor(made["x"]), Tensor(made["y"])).item())
    return losses, {name: t.numpy().copy() for name, t in get_state_dict(model).items()}


@pytest.fixture(scope="module")
def lazily(case: Case) -> Trained:
    with width(case):
        return trained(case, STEPS, lambda step: step)


def test_forward(case: Case) -> None:
    import torch

    model, twin = mk.nn.evaluate(ours(case)), theirs(case).eval()
    x = batch(case, model, 0)["x"]
    with mk.no_grad(), torch.no_grad():
        got, wanted = model(Tensor(x)).numpy(), twin(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())


def test_training(case: Case, lazily: Trained) -> None:
    import torch

    twin, model = theirs(case), ours(case)
    optimizer = getattr(torch.optim, case.optimizer)(twin.parameters(), **case.options)
    wanted = []
    for seed in range(STEPS):
        optimizer.zero_grad()
        loss = twin.loss(batch(case, model, seed))
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    losses, state = lazily
    np.testing.assert_allclose(losses, wanted, rtol=1e-3)
    for name, theirs_now in twin.state_dict().items():
        if "running" in name:
            scale = abs(theirs_now.numpy()).max()
            np.testing.assert_allclose(state[name], theirs_now.numpy(), atol=1e-3 * scale)
        elif "tracked" in name:
            assert state[name] == theirs_now.item() == STEPS


def test_jit_is_lazy_bit_for_bit(case: Case, lazily: Trained) -> None:
    losses, state = trained(case, STEPS, mk.jit)
    assert losses == lazily[0]
    for name, value in state.items():
        np.testing.assert_array_equal(value, lazily[1][name], err_msg=name)


@pytest.mark.parametrize("case", [c for c in CASES if c.by_itself], ids=str, indirect=True)
def test_every_operation_by_itself(case: Case, lazily: Trained) -> None:
    with realised_after_every_operation():
        losses, _ = trained(case, BY_ITSELF, lambda step: step)
    np.testing.assert_allclose(losses, lazily[0][:BY_ITSELF], rtol=1e-3)
