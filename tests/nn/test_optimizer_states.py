"""States of optimisers in and out, halves, groups, schedules, clipping, averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morok as mk
from morok import engine
from morok.dtype import dtypes
from morok.errors import ArgumentError, DTypeError, MorokError, ShapeError
from morok.optim import EMA, SGD, Adam, AdamW, clip_grad_norm_, clip_grad_value_, lr_scheduler
from morok.tensor import Tensor

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
]
SHAPES = ((3, 2), (4,))


def parameters(rng: np.random.Generator) -> list[Tensor]:
    return [Tensor(rng.standard_normal(shape), requires_grad=True) for shape in SHAPES]


def give(params: list[Any], rng: np.random.Generator, make: Any) -> None:
    """The same gradients to any library's parameters."""
    for param in params:
        param.grad = make(rng.standard_normal(tuple(param.shape)))


def steps(optimizer: Any, params: list[Any], count: int, seed: int, make: Any = Tensor) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        give(params, rng, make)
        optimizer.step()


# States ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_state_continues_where_it_stood(rng, name: str, options: dict[str, Any]) -> None:
    kind = getattr(mk.optim, name)
    first = parameters(rng)
    one = kind(first, **options)
    steps(one, first, 3, 1)
    arrays = [p.numpy().copy() for p in first]
    saved = one.state_dict()
    second = [Tensor(a, requires_grad=True) for a in arrays]
    other = kind(second, **{**options, "lr": 7.0})
    other.load_state_dict(saved)
    assert other.lr.item() == options["lr"]
    steps(one, first, 2, 2)
    steps(other, second, 2, 2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_pytorchs_state_is_continued(rng, name: str, options: dict[str, Any]) -> None:
    import torch

    start = [rng.standard_normal(shape) for shape in SHAPES]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    their_optimizer = getattr(torch.optim, name)(theirs, **options)
    steps(their_optimizer, theirs, 3, 1, torch.tensor)
    mine = [Tensor(t.detach().numpy(), requires_grad=True) for t in theirs]
    optimizer = getattr(mk.optim, name)(mine, **options)
    if "dampening" in options:
        # PyTorch keeps no count: a buffer that is there says that the first step was made.
        state = their_optimizer.state_dict()
        for entry in state["state"].values():
            entry["step"] = 3.0
    else:
        state = their_optimizer.state_dict()
    optimizer.load_state_dict(state)
    steps(their_optimizer, theirs, 3, 2, torch.tensor)
    steps(optimizer, mine, 3, 2)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-12)


def changed(saved: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a state with the entry at `path` replaced, or, for None, gone."""
    made = {
        "state": {k: dict(v) for k, v in saved["state"].items()},
        "param_groups": [dict(g) for g in saved["param_groups"]],
    }
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "kind", "message"),
    [
        (("state",), None, ArgumentError, r"missing \['state'\]"),
        (("param_groups",), [], ArgumentError, "0 groups of parameters, here are 1"),
        (("param_groups", 0, "params"), [0], ArgumentError, "has 1 parameters, here are 2"),
        (("param_groups", 0, "betas"), None, ArgumentError, r"missing \['betas'\]"),
        (("param_groups", 0, "amsgrad"), True, ArgumentError, r"unknown \['amsgrad'\]"),
        (("state", 2), {"step": 1.0}, ArgumentError, r"states \[2\] belong to no parameter"),
        (("state", 1, "exp_avg"), None, ArgumentError, r"parameter 1: missing \['exp_avg'\]"),
        (("state", 1, "more"), np.ones(4), ArgumentError, r"unknown \['more'\]"),
        (("state", 1, "exp_avg"), np.ones(3), ShapeError, r"exp_avg has shape \(4,\)"),
        (("state", 1, "exp_avg"), np.ones(4, int), DTypeError, "exp_avg is Float64"),
        (("state", 1, "exp_avg"), "text", DTypeError, "no tensor can be made of str"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(rng, path, value, kind, message) -> None:
    params = parameters(rng)
    optimizer = Adam(params, lr=0.1)
    steps(optimizer, params, 2, 1)
    before = {
        (i, n): t.numpy().copy()
        for i, s in optimizer.state_dict()["state"].items()
        for n, t in s.items()
    }
    twin = Adam(parameters(rng), lr=0.3)
    steps(twin, twin.params, 1, 5)
    with pytest.raises(kind, match=message):
        optimizer.load_state_dict(changed(twin.state_dict(), path, value))
    assert optimizer.lr.item() == 0.1
    for i, state in optimizer.state_dict()["state"].items():
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensor.numpy(), before[i, name])


# Halves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_small_steps_of_halves_add_up(dtype, kind) -> None:
    """Each step is far below the spacing of halves at 1; the float32 twin says what comes out."""
    options = {"lr": 1e-4} if kind is not SGD else {"lr": 1e-4, "momentum": 0.5}
    half = Tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    full = Tensor([1.0, 2.0], requires_grad=True)
    optimizers = [kind([half], **options), kind([full], **options)]
    for _ in range(100):
        for optimizer, param in zip(optimizers, (half, full), strict=True):
            param.grad = Tensor([1.0, -1.0], dtype=param.dtype)
            optimizer.step()
    state = optimizers[0].state[id(half)]
    assert {t.dtype for name, t in state.items()} == {dtypes.float32}
    np.testing.assert_allclose(state["master"].numpy(), full.numpy(), rtol=1e-6)
    assert half.tolist() == full.cast(dtype).tolist() != [1.0, 2.0]


def test_a_half_written_by_somebody_else_starts_its_master_again() -> None:
    half = Tensor([1.0, 2.0], dtype=dtypes.float16, requires_grad=True)
    optimizer = SGD([half], lr=1e-4)
    for value in (1.0, 5.0):
        with mk.no_grad():
            half.assign(Tensor([value, 2.0]))
        half.grad = Tensor([1.0, 0.0], dtype=dtypes.float16)
        optimizer.step()
        assert optimizer.state[id(half)]["master"].numpy()[0] == np.float32(value - 1e-4)
    saved = optimizer.state_dict()
    del saved["state"][0]["master"]
    optimizer.load_state_dict(saved)
    assert optimizer.state[id(half)]["master"].tolist() == half.tolist()


def test_gradients_accumulate(rng) -> None:
    """Four small batches, each weighted by a quarter, are the large one."""
    x, y = rng.standard_normal((16, 3)), rng.standard_normal((16, 2))
    results = []
    for parts in (1, 4):
        w = Tensor(np.ones((3, 2)), requires_grad=True)
        optimizer = AdamW([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            for i in range(parts):
                rows = slice(i * 16 // parts, (i + 1) * 16 // parts)
                ((Tensor(x[rows]) @ w).mse_loss(Tensor(y[rows])) / parts).backward()
            optimizer.step()
        results.append(w.numpy().copy())
    np.testing.assert_allclose(*results, rtol=1e-10)


# Groups and schedules ----------------------------------------------------------------------------


@pytest.mark.torch
def test_groups_have_options_of_their_own(rng) -> None:
    import torch

    start = [rng.standard_normal(shape) for shape in SHAPES]
    results = []
    for make, library in ((Tensor, mk.optim), (torch.tensor, torch.optim)):
        params = [make(a, requires_grad=True) for a in start]
        groups = [
            {"params": [params[0]], "weight_decay": 0.0},
            {"params": [params[1]], "lr": 0.5, "betas": (0.5, 0.6)},
        ]
        optimizer = library.AdamW(groups, lr=0.1, weight_decay=0.2)
        steps(optimizer, params, 3, 1, make)
        optimizer.param_groups[1]["lr"] = 0.25
        optimizer.param_groups[1]["betas"] = (0.8, 0.9)
        steps(optimizer, params, 2, 2, make)
        results.append([p.detach().numpy() for p in params])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3}),
    ("MultiStepLR", {"milestones": [2, 5, 5]}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.001}),
    ("LambdaLR", {"lr_lambda": lambda t: 1 / (t + 1)}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 12}),
    (
        "OneCycleLR",
        {"max_lr": 0.5, "total_steps": 12, "anneal_strategy": "linear", "three_phase": True},
    ),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20, "cycle_momentum": False}),
]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), SCHEDULES)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_schedules_are_pytorchs(name: str, options: dict[str, Any], kind: str) -> None:
    """Rates, momenta, and the parameters they lead to."""
    import torch

    chosen = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": 0.1}
    results = []
    for make, library in ((Tensor, mk.optim), (torch.tensor, torch.optim)):
        params = [make(np.ones(3), requires_grad=True)]
        optimizer = getattr(library, kind)(params, **chosen)
        schedule = getattr(library.lr_scheduler, name)(optimizer, **options)
        rates = []
        for i in range(11):
            rates += schedule.get_last_lr()
            steps(optimizer, params, 1, i, make)
            schedule.step()
        results.append((rates, params[0].detach().numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.torch
def test_warm_up_and_cosine(rng) -> None:
    import torch

    results = []
    for make, library in ((Tensor, mk.optim), (torch.tensor, torch.optim)):
        optimizer = library.SGD([make(np.ones(3), requires_grad=True)], lr=0.1)
        kinds = library.lr_scheduler
        parts = [
            kinds.LinearLR(optimizer, 0.01, total_iters=4),
            kinds.CosineAnnealingLR(optimizer, 8),
        ]
        schedule = kinds.SequentialLR(optimizer, parts, [4])
        rates = []
        for i in range(11):
            rates += schedule.get_last_lr()
            steps(optimizer, optimizer.param_groups[0]["params"], 1, i, make)
            schedule.step()
        results.append(rates)
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_a_schedule_continues() -> None:
    one = SGD([Tensor(np.ones(2), requires_grad=True)], lr=0.1)
    first = lr_scheduler.CosineAnnealingLR(one, 10)
    for _ in range(4):
        first.step()
    two = SGD([Tensor(np.ones(2), requires_grad=True)], lr=0.7)
    second = lr_scheduler.CosineAnnealingLR(two, 10)
    second.load_state_dict(first.state_dict())
    assert second.get_last_lr() == first.get_last_lr() == [two.lr.item()]
    with pytest.raises(ArgumentError, match="missing"):
        second.load_state_dict({})


@pytest.mark.parametrize("jitted", [False, True])
def test_a_hundred_scheduled_steps_make_nothing_new(rng, jitted: bool) -> None:
    """Neither kernels nor schedules after the second step: clipping, weight decay, a cycle of rates
    and momenta, averages."""
    mk.manual_seed(0)
    model = [mk.nn.Linear(4, 5), mk.nn.BatchNorm1d(5), mk.nn.Linear(5, 2)]
    params = mk.nn.state.get_parameters(model)
    optimizer = AdamW(params, lr=1e-2, weight_decay=0.1)
    schedule = lr_scheduler.OneCycleLR(optimizer, 1e-2, 110)
    ema = EMA(mk.nn.state.get_state_dict(model), 0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model[2](model[1](model[0](x)).tanh()).square().mean()
        loss.backward()
        clip_grad_norm_(params, 0.1)
        optimizer.step()
        return loss.detach()

    run = mk.jit(step) if jitted else step
    lowered, losses = [], []
    for _ in range(103):
        losses.append(run(Tensor(rng.standard_normal((6, 4)).astype(np.float32))).item())
        schedule.step()
        ema.update()
        lowered.append((engine.stats.lowered, engine.stats.scheduled))
    assert lowered[2:] == [lowered[2]] * 101
    assert losses[-1] < losses[0]


# Clipping and averages ---------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_clipping_by_norm(rng, norm_type: float, bound: float) -> None:
    import torch

    grads = [rng.standard_normal(shape) for shape in SHAPES]
    mine = [Tensor(np.zeros(s), requires_grad=True) for s in SHAPES]
    theirs = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
    for m, t, g in zip(mine, theirs, grads, strict=True):
        m.grad, t.grad = Tensor(g), torch.tensor(g)
    norm = clip_grad_norm_(mine, bound, norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, bound, norm_type)
    assert norm.item() == pytest.approx(wanted.item(), rel=1e-12)
    for m, t in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(m.grad.numpy(), t.grad.numpy(), rtol=1e-12)


def test_clipping_by_value_and_nothing_to_clip() -> None:
    w = Tensor([0.0, 0.0, 0.0], requires_grad=True)
    assert clip_grad_norm_([w], 1.0).item() == 0
    w.grad = Tensor([-3.0, 0.5, 2.0])
    clip_grad_value_(w, 1.0)
    assert w.grad.tolist() == [-1, 0.5, 1]


def test_averages_follow_and_come_back(rng) -> None:
    model = mk.nn.BatchNorm1d(3)
    ema = EMA(mk.nn.state.get_state_dict(model), 0.75)
    average = np.ones(3)
    for i in range(4):
        with mk.no_grad():
            model.weight.assign(Tensor(np.full(3, i, np.float32)))
            model.num_batches_tracked.assign(i)
        average = 0.75 * average + 0.25 * i
        ema.update()
    with ema.applied():
        np.testing.assert_allclose(model.weight.numpy(), average, rtol=1e-6)
        assert model.num_batches_tracked.item() == 3
    assert model.weight.tolist() == [3, 3, 3]
    assert model.weight.requires_grad
    other = EMA(mk.nn.state.get_state_dict(mk.nn.BatchNorm1d(3)), 0.75)
    other.load_state_dict(ema.state_dict())
    np.testing.assert_allclose(other.averages["weight"].numpy(), average, rtol=1e-6)
    half = EMA([Tensor.ones(2, dtype=dtypes.float16)], 0.999)
    assert half.averages["0"].dtype is dtypes.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: SGD([{"params": [w], "speed": 1}]), r"unknown: \['speed'\]"),
        (lambda w: SGD([{"params": [w]}, {"params": [w]}]), "stands in two groups"),
        (lambda w: SGD([{"lr": 1.0}]), 'a dict with "params"'),
        (lambda w: SGD([w, 3]), "steps tensors, not int"),
        (lambda w: EMA([w], 1.5), "does not lie in 0 … 1"),
        (lambda w: clip_grad_norm_(w, 1.0, -1), "is no power"),
        (lambda w: lr_scheduler.OneCycleLR(SGD([w]), 1.0, 10), "has no momentum"),
        (lambda w: lr_scheduler.StepLR(SGD([w]), 3, last_epoch=4), "continues a schedule"),
        (lambda w: lr_scheduler.SequentialLR(SGD([w]), [], [1]), "0 schedulers and 1 milestones"),
        (lambda w: lr_scheduler.LambdaLR(SGD([w]), []), "0 functions for 1 groups"),
    ],
)
def test_what_is_refused(make, message: str) -> None:
    with pytest.raises(MorokError, match=message):
        make(Tensor([1.0], requires_grad=True))
