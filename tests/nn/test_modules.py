"""Modules against PyTorch's of the same names, arguments and weights: values, gradients, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morok as mk
from morok.errors import ArgumentError, MorokError
from morok.nn.state import get_parameters, get_state_dict, load_state_dict
from morok.tensor import Tensor

pytestmark = pytest.mark.torch

IMAGE, ROWS = (3, 4, 6, 5), (2, 5, 8)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (8, 3), {}, ROWS),
    ("Linear", (8, 3), {"bias": False}, ROWS),
    ("Conv1d", (5, 6, 3), {"stride": 2, "padding": 1, "dilation": 2}, ROWS),
    ("Conv2d", (4, 6, (3, 5)), {"padding": "same", "groups": 2}, IMAGE),
    ("Conv2d", (4, 6, 3), {"padding": "valid", "bias": False}, IMAGE),
    ("Conv3d", (2, 4, (2, 1, 3)), {"padding": (0, 1, 1), "stride": (1, 2, 1)}, (1, 2, 3, 4, 5)),
    ("BatchNorm1d", (5,), {}, ROWS),
    ("BatchNorm3d", (2,), {}, (2, 2, 3, 2, 2)),
    ("BatchNorm2d", (4,), {"momentum": 0.3, "eps": 1e-3}, IMAGE),
    ("BatchNorm2d", (4,), {"momentum": None}, IMAGE),
    ("BatchNorm2d", (4,), {"affine": False, "track_running_stats": False}, IMAGE),
    ("LayerNorm", (8,), {}, ROWS),
    ("LayerNorm", ((5, 8),), {"bias": False}, ROWS),
    ("LayerNorm", (8,), {"elementwise_affine": False, "eps": 0.1}, ROWS),
    ("RMSNorm", (8,), {}, ROWS),
    ("RMSNorm", ((5, 8),), {"eps": 1e-3}, ROWS),
    ("GroupNorm", (2, 4), {}, IMAGE),
    ("GroupNorm", (4, 4), {"affine": False}, IMAGE),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, IMAGE),
    ("AvgPool2d", (2,), {"stride": 3, "padding": 1, "ceil_mode": True}, IMAGE),
    ("AvgPool2d", ((3, 2),), {"padding": (1, 0), "count_include_pad": False}, IMAGE),
    ("AdaptiveAvgPool2d", ((4, None),), {}, IMAGE),
    ("AdaptiveAvgPool2d", ((3, 5),), {}, IMAGE),
    ("GELU", (), {"approximate": "tanh"}, ROWS),
    ("LeakyReLU", (0.2,), {}, ROWS),
    ("SiLU", (), {}, ROWS),
    ("Softmax", (1,), {}, ROWS),
    ("Flatten", (), {}, IMAGE),
]


def wide() -> Any:
    return mk.config.override(default_float="float64")


def pair(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Our module and PyTorch's, of the same weights, in float64."""
    import torch

    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    for parameter in theirs.parameters():  # those that start as ones and zeros would say little
        torch.nn.init.normal_(parameter)
    with wide():
        ours = getattr(mk.nn, name)(*args, **options)
    assert list(get_state_dict(ours)) == list(theirs.state_dict())
    load_state_dict(ours, theirs.state_dict())
    return ours, theirs


def same_slopes(out: Tensor, to: Any, x: Tensor, tx: Any, ours: Any, theirs: Any) -> None:
    """Values, and gradients of a loss that tells the elements of the output apart."""
    import torch

    assert out.shape == tuple(to.shape)
    weights = np.cos(np.arange(out.numel(), dtype=np.float64)).reshape(out.shape)
    (out * out * Tensor(weights)).sum().backward()
    (to * to * torch.tensor(weights)).sum().backward()
    parameters = get_parameters(ours)
    Tensor.realize(out, x.grad, *(p.grad for p in parameters))
    np.testing.assert_allclose(out.numpy(), to.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-9, atol=1e-11)
    for mine, their in zip(parameters, theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), their.grad.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "args", "options", "shape"), CASES)
def test_values_gradients_and_states(rng, name: str, args, options, shape) -> None:
    """Twice in training, so that running statistics move twice, then in evaluation."""
    import torch

    ours, theirs = pair(name, args, options)
    for training in (True, True, False):
        mk.nn.train(ours, training)
        theirs.train(training)
        for module in (*get_parameters(ours), *theirs.parameters()):
            module.grad = None
        v = rng.standard_normal(shape)
        x, tx = Tensor(v, requires_grad=True), torch.tensor(v, requires_grad=True)
        same_slopes(ours(x), theirs(tx), x, tx, ours, theirs)
    for mine, their in zip(
        get_state_dict(ours).values(), theirs.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), their.numpy(), rtol=1e-10)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}],
    ids=["plain", "deep", "no bias"],
)
def test_recurrent_layers(rng, name: str, options: dict[str, Any]) -> None:
    import torch

    ours, theirs = pair(name, (3, 4), options)
    v, rows = rng.standard_normal((3, 2, 3)), (4 if options.get("bidirectional") else 1)
    n = 3 if options.get("batch_first") else 2
    start = [rng.standard_normal((rows, n, 4)) for _ in range(2 if name == "LSTM" else 1)]
    x, tx = Tensor(v, requires_grad=True), torch.tensor(v, requires_grad=True)
    h, th = [Tensor(s) for s in start], [torch.tensor(s) for s in start]
    out, last = ours(x, tuple(h) if name == "LSTM" else h[0])
    to, tlast = theirs(tx, tuple(th) if name == "LSTM" else th[0])
    ends = (last, tlast) if name == "LSTM" else ((last,), (tlast,))
    whole = Tensor.cat(out.flatten(), *(e.flatten() for e in ends[0]))
    same_slopes(
        whole, torch.cat([to.flatten(), *(e.flatten() for e in ends[1])]), x, tx, ours, theirs
    )


def test_one_sequence_alone(rng) -> None:
    import torch

    ours, theirs = pair("GRU", (3, 4), {})
    v = rng.standard_normal((2, 3))
    out, last = ours(Tensor(v))
    to, tlast = theirs(torch.tensor(v))
    assert (out.shape, last.shape) == (tuple(to.shape), tuple(tlast.shape))
    np.testing.assert_allclose(last.numpy(), tlast.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention(rng, weights: bool) -> None:
    """With a causal mask and two keys that nobody may look at."""
    import torch

    ours, theirs = pair("MultiheadAttention", (8, 2), {"batch_first": True})
    v, hidden = rng.standard_normal((2, 5, 8)), np.zeros((2, 5), bool)
    hidden[0, 3:] = True
    causal = np.triu(np.ones((5, 5), bool), 1)
    x, tx = Tensor(v, requires_grad=True), torch.tensor(v, requires_grad=True)
    out, seen = ours(x, x, x, Tensor(hidden), weights, Tensor(causal))
    to, tseen = theirs(
        tx,
        tx,
        tx,
        key_padding_mask=torch.tensor(hidden),
        need_weights=weights,
        attn_mask=torch.tensor(causal),
    )
    same_slopes(out, to, x, tx, ours, theirs)
    assert (seen is None) == (tseen is None)
    if seen is not None:
        np.testing.assert_allclose(seen.numpy(), tseen.detach().numpy(), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("dtype", [mk.dtypes.float32, mk.dtypes.float16], ids=str)
def test_multihead_attention_is_the_same_with_and_without_weights(dtype) -> None:
    """A query that may look at nothing included."""
    mk.manual_seed(0)
    attention = mk.nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype)
    x, hidden = Tensor.randn(2, 5, 8).cast(dtype), np.zeros((2, 5), bool)
    hidden[1] = True
    out, seen = attention(x, x, x, Tensor(hidden))
    alone, none = attention(x, x, x, Tensor(hidden), need_weights=False)
    assert none is None
    np.testing.assert_array_equal(out.numpy(), alone.numpy())
    np.testing.assert_allclose(seen.numpy().sum(-1), [[1] * 5, [0] * 5], rtol=2e-3)


def test_embedding_with_padding(rng) -> None:
    import torch

    ours, theirs = pair("Embedding", (7, 3), {"padding_idx": 2})
    tokens = rng.integers(0, 7, (4, 5))
    tokens[0, :2] = 2
    weights = rng.standard_normal((4, 5, 3))
    (ours(Tensor(tokens)) * Tensor(weights)).sum().backward()
    (theirs(torch.tensor(tokens)) * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-12)
    assert mk.nn.Embedding(4, 3, padding_idx=1).weight.numpy()[1].tolist() == [0, 0, 0]


LOSSES: list[tuple[str, dict[str, Any], str]] = [
    ("MSELoss", {}, "like"),
    ("L1Loss", {"reduction": "sum"}, "like"),
    ("HuberLoss", {"delta": 0.5}, "like"),
    ("SmoothL1Loss", {"beta": 0.5, "reduction": "none"}, "like"),
    ("KLDivLoss", {"reduction": "batchmean"}, "share"),
    ("KLDivLoss", {"log_target": True, "reduction": "sum"}, "like"),
    ("BCELoss", {}, "share"),
    ("BCEWithLogitsLoss", {}, "share"),
    ("BCEWithLogitsLoss", {"pos_weight": [0.5, 1, 2, 3.0]}, "share"),
    ("NLLLoss", {"ignore_index": 1}, "class"),
    ("NLLLoss", {"weight": [0.5, 1, 2, 3.0]}, "class"),
    ("CrossEntropyLoss", {"label_smoothing": 0.1, "ignore_index": 1}, "class"),
    ("CrossEntropyLoss", {"weight": [0.5, 1, 2, 3.0], "label_smoothing": 0.2}, "class"),
    ("CrossEntropyLoss", {"weight": [0.5, 1, 2, 3.0], "label_smoothing": 0.2}, "share"),
]


@pytest.mark.parametrize(("name", "options", "kind"), LOSSES)
def test_losses(rng, name: str, options: dict[str, Any], kind: str) -> None:
    import torch

    v = rng.standard_normal((6, 4))
    v = 1 / (1 + np.exp(-v)) if name == "BCELoss" else v
    target = {
        "like": rng.standard_normal((6, 4)),
        "share": rng.uniform(0, 1, (6, 4)) / 4,
        "class": rng.integers(0, 4, 6),
    }[kind]
    given = {k: Tensor(np.array(o)) if isinstance(o, list) else o for k, o in options.items()}
    taken = {k: torch.tensor(o).double() if isinstance(o, list) else o for k, o in options.items()}
    x, tx = Tensor(v, requires_grad=True), torch.tensor(v, requires_grad=True)
    loss = getattr(mk.nn, name)(**given)(x, Tensor(target))
    theirs = getattr(torch.nn, name)(**taken)(tx, torch.tensor(target))
    loss.sum().backward()
    theirs.sum().backward()
    np.testing.assert_allclose(loss.numpy(), theirs.detach().numpy(), rtol=1e-11)
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-10, atol=1e-13)


# Modes -------------------------------------------------------------------------------------------


def test_dropout_is_told_the_mode() -> None:
    mk.manual_seed(0)
    model = mk.nn.Sequential(mk.nn.Flatten(), mk.nn.Dropout(0.25), mk.nn.Dropout2d(0.5))
    x = Tensor.ones(64, 64)
    y = model[1](x).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.03
    assert not np.array_equal(y, model[1](x).numpy())
    planes = model[2](Tensor.ones(8, 8, 3, 3)).numpy().reshape(64, 9)
    assert all(len(set(plane)) == 1 for plane in planes)
    assert {plane[0] for plane in planes} == {0.0, 2.0}
    assert mk.nn.evaluate(model) is model
    assert np.array_equal(model[1](x).numpy(), x.numpy())
    mk.nn.train(model)
    with mk.nn.evaluating(model):
        assert not model[1].training
    assert model[1].training


def test_jit_sees_the_mode_of_a_model_among_its_arguments() -> None:
    @mk.jit
    def apply(layer: mk.nn.Dropout, x: Tensor) -> Tensor:
        return layer(x)

    layer, x = mk.nn.Dropout(0.5), Tensor.ones(64).realize()
    assert all((apply(layer, x).numpy() == 0).any() for _ in range(4))
    mk.nn.evaluate(layer)
    assert all(apply(layer, x).numpy().all() for _ in range(4))


def test_running_statistics_change_even_if_nobody_reads_them(rng) -> None:
    """With the loss, with a step, and by themselves once in a while."""
    import torch

    norm, theirs = mk.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    optimizer = mk.optim.SGD(get_parameters(norm), lr=0.1)
    for i in range(30):
        v = rng.standard_normal((5, 3)).astype(np.float32)
        theirs(torch.tensor(v))
        out = norm(Tensor(v))
        if i < 10:
            out.sum().item()
        elif i < 20:
            optimizer.zero_grad()
            (out * out).sum().backward()
            optimizer.step()
        if i < 20:
            assert norm.running_mean._home is None, "the change waits although it could be made"
    assert norm.num_batches_tracked.item() == 30
    np.testing.assert_allclose(norm.running_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-5)


def test_running_statistics_change_under_jit(rng) -> None:
    """A function that only applies the layer; each call moves them once."""
    plain, jitted = mk.nn.BatchNorm1d(3), mk.nn.BatchNorm1d(3)
    run = mk.jit(lambda x: jitted(x))
    for i in range(6):
        x = Tensor(rng.standard_normal((5, 3)).astype(np.float32))
        np.testing.assert_array_equal(plain(x).numpy(), run(x).numpy())
        np.testing.assert_array_equal(plain.running_var.numpy(), jitted.running_var.numpy())
        assert jitted.num_batches_tracked.item() == i + 1


def test_unread_passes_do_not_pile_up(rng) -> None:
    from morok._core import node_stats

    norm = mk.nn.BatchNorm1d(3)
    living = []
    for _ in range(60):
        norm(Tensor(rng.standard_normal((5, 3)).astype(np.float32)))
        living.append(node_stats()["live"])
    assert max(living[30:]) <= 1.01 * max(living[:30])


# What modules refuse -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mk.nn.Conv2d(4, 6, 3, groups=3), "do not fall into groups=3"),
        (lambda: mk.nn.Conv2d(4, 6, (3,)), "for 2 axes"),
        (lambda: mk.nn.BatchNorm2d(3)(Tensor.ones(2, 3)), "has 2 dims, expected 4"),
        (lambda: mk.nn.BatchNorm1d(3)(Tensor.ones(1, 3)), "one value per channel"),
        (lambda: mk.nn.BatchNorm1d(3)(Tensor.ones(2, 4)), "does not go with the channels"),
        (lambda: mk.nn.LayerNorm(4)(Tensor.ones(2, 3)), r"does not end with \(4,\)"),
        (lambda: mk.nn.GroupNorm(3, 4), "4 channels in 3 groups"),
        (lambda: mk.nn.Dropout(1.5), "1.5 is no probability"),
        (lambda: mk.nn.LSTM(3, 4)(Tensor.ones(2, 1, 4)), r"\(length, n, 3\)"),
        (lambda: mk.nn.GRU(3, 4)(Tensor.ones(2, 1, 3), Tensor.ones(1, 4)), "states of shapes"),
        (lambda: mk.nn.MultiheadAttention(8, 3), "8 in 3 heads"),
        (lambda: mk.nn.Embedding(3, 2, padding_idx=3), "padding_idx 3 of 3 rows"),
        (lambda: mk.nn.Sequential(abs)[2], "no layer 2 of 1"),
        (lambda: Tensor.ones(2, 1, 4).scaled_dot_product_attention(*[Tensor.ones(2, 1, 3)] * 2),
         r"\(…, L, E\)"),
    ],
)  # fmt: skip
def test_what_modules_refuse(make, message: str) -> None:
    with pytest.raises(MorokError, match=message):
        make()


def test_initial_values() -> None:
    """The formulas of PyTorch, by moments and bounds."""
    import torch

    mk.manual_seed(3)
    init, w = mk.nn.init, Tensor.zeros(200, 100)
    for name, options in (
        ("kaiming_uniform_", {"a": 0.5}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("trunc_normal_", {"std": 0.5, "a": -0.5, "b": 1.0}),
        ("uniform_", {"a": -1.0, "b": 3.0}),
        ("normal_", {"mean": 1.0, "std": 2.0}),
    ):
        theirs = torch.empty(200, 100)
        getattr(torch.nn.init, name)(theirs, **options)
        mine = getattr(init, name)(w, **options).numpy()
        assert mine.mean() == pytest.approx(theirs.mean().item(), abs=0.05 * theirs.std().item())
        assert mine.std() == pytest.approx(theirs.std().item(), rel=0.03)
        if "normal" not in name or "trunc" in name:
            assert abs(mine).max() == pytest.approx(theirs.abs().max().item(), rel=0.01)
    q = init.orthogonal_(Tensor.zeros(4, 3, 2), gain=2.0).numpy().reshape(4, 6)
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(4), atol=1e-5)
    assert init.eye_(Tensor.zeros(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.constant_(Tensor.zeros(2), 3.0).tolist() == [3, 3]
    assert init.calculate_gain("tanh") == torch.nn.init.calculate_gain("tanh")
    with pytest.raises(ArgumentError, match="no nonlinearity"):
        init.calculate_gain("step")
