"""Gradients: by finite differences, by PyTorch, and by what leaves, modes and writes promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gradient_cases import CASES, Case

from morok.dtype import dtypes
from morok.errors import DTypeError, MorokError, ShapeError
from morok.ir import GroupOp, Ops, ReduceOp, UOp
from morok.tensor import Tensor, enable_grad, is_grad_enabled, memory, no_grad
from morok.tensor.gradient import RULES, gradients

KINKED = {"ties", "amax_ties", "steps", "floor_mod"}
"""Where the slope is no limit of differences."""


def root_or_nothing(x):
    """where(x == 0, 0, x * sqrt(x)), in either library."""
    if isinstance(x, Tensor):
        return x.eq(0).where(0.0, x * x.sqrt())
    import torch

    return torch.where(x == 0, 0.0, x * x.sqrt())


def weighted(y: Tensor) -> tuple[Tensor, np.ndarray]:
    """A scalar that tells every element of y apart."""
    weights = np.cos(np.arange(y.numel(), dtype=np.float64)).reshape(y.shape)
    return (y * Tensor(weights)).sum(), weights


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in KINKED], ids=str)
def test_gradient_is_the_limit_of_differences(case: Case) -> None:
    arrays = case.inputs()
    xs = [Tensor(array, requires_grad=True) for array in arrays]
    loss, _ = weighted(case.function(*xs))
    loss.backward()
    rng = np.random.default_rng(0)
    step = 1e-5
    slopes, probes = [], []
    for i, array in enumerate(arrays):
        for _ in range(2):
            direction = rng.standard_normal(array.shape)
            sides = []
            for sign in (step, -step):
                moved = [
                    Tensor(a + sign * direction if i == j else a) for j, a in enumerate(arrays)
                ]
                sides.append(weighted(case.function(*moved))[0])
            probes.append(sides)
            slopes.append((xs[i].grad * Tensor(direction)).sum())
    Tensor.realize(*slopes, *(side for sides in probes for side in sides))
    for slope, (above, below) in zip(slopes, probes, strict=True):
        wanted = (above.item() - below.item()) / (2 * step)
        assert slope.item() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_are_pytorchs(case: Case) -> None:
    import torch

    arrays = case.inputs()
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    out = (case.torch or case.function)(*theirs)
    xs = [Tensor(array, requires_grad=True) for array in arrays]
    y = case.function(*xs)
    assert y.shape == tuple(out.shape)
    loss, weights = weighted(y)
    loss.backward()
    (out * torch.tensor(weights)).sum().backward()
    Tensor.realize(y, *(x.grad for x in xs))
    np.testing.assert_allclose(y.numpy(), out.detach().numpy(), rtol=1e-9, atol=1e-10)
    for x, t in zip(xs, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.torch
def test_cross_entropy_is_pytorchs(rng) -> None:
    import torch

    scores, target = rng.standard_normal((6, 5)), np.array([0, 4, -100, 2, 2, 1])
    weight = rng.uniform(0.5, 2, 5)
    for options in ({}, {"label_smoothing": 0.1}, {"reduction": "sum"}):
        for w in (None, weight):
            t = torch.tensor(scores, requires_grad=True)
            w_t = None if w is None else torch.tensor(w)
            theirs = torch.nn.functional.cross_entropy(t, torch.tensor(target), w_t, **options)
            theirs.backward()
            x = Tensor(scores, requires_grad=True)
            loss = x.cross_entropy(Tensor(target), None if w is None else Tensor(w), **options)
            loss.backward()
            Tensor.realize(loss, x.grad)
            if w is None or "label_smoothing" not in options:
                assert loss.item() == pytest.approx(theirs.item(), rel=1e-12)
                np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x: x.relu(), [0.0]),
        (lambda x: abs(x), [0.0]),
        (lambda x: x.clamp(0, 1), [0.0, 1.0]),
        (lambda x: x.norm(), [0.0, 0.0]),
        (lambda x: x.std(), [1.0, 1.0]),
        (lambda x: x.sqrt(), [0.0]),
        (lambda x: x**2.5, [0.0]),
        (lambda x: x**x, [0.0, 1.0]),
        (lambda x: x.amax(), [2.0, 2.0, 1.0]),
        (lambda x: x.maximum(x * 0 + 1), [math.nan, 1.0, 2.0]),
        (lambda x: x.prod(), [0.0, 3.0, 2.0]),
        (lambda x: x.prod(), [0.0, 0.0, 2.0]),
        (lambda x: x.sigmoid() + x.tanh(), [-800.0, 800.0, 0.0]),
        (lambda x: x.logsumexp(0), [-math.inf, 0.0]),
        (lambda x: x * x.log(), [0.0]),
        (lambda x: root_or_nothing(x), [0.0, 4.0]),
    ],
)
def test_edges_are_pytorchs(function, at) -> None:
    import torch

    t = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    function(t).sum().backward()
    x = Tensor(at, dtype=dtypes.float64, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-12)


def test_tied_maxima_in_half_precision() -> None:
    x = Tensor(np.zeros(70_000, np.float16), requires_grad=True)
    x.max().backward()
    assert x.grad.dtype is dtypes.float16
    np.testing.assert_allclose(x.grad.numpy()[::9999], 1.43e-5, rtol=0.01)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_more_terms_than_halves_can_count(shape) -> None:
    """A number met by 2**17 others: their mean has slope 1 in it."""
    s = Tensor.full(shape, 1.0, dtype=dtypes.float16, requires_grad=True)
    (Tensor.zeros(2**17, dtype=dtypes.float16) + s).mean().backward()
    assert s.grad.reshape(1).tolist() == [1]


def test_steps_have_slope_zero() -> None:
    x = Tensor([1.5], requires_grad=True)
    x.round().sum().backward()
    assert x.grad.tolist() == [0]


def test_second_derivatives() -> None:
    v = np.array([0.3, -1.2, 2.0])
    x = Tensor(v, requires_grad=True)
    (slope,) = Tensor.gradient((x**3 * x.sin()).sum(), x)
    (bend,) = Tensor.gradient(slope.sum(), x)
    wanted = 6 * v * np.sin(v) + 6 * v**2 * np.cos(v) - v**3 * np.sin(v)
    np.testing.assert_allclose(bend.numpy(), wanted, rtol=1e-12)
    y = Tensor(v, requires_grad=True)
    y.softmax(0)[0].backward(create_graph=True)
    first = y.grad
    y.grad = None
    first[1].backward()
    e = np.exp(v) / np.exp(v).sum()
    wanted = np.array([-e[1] * e[0] * (1 - 2 * e[0]), -e[0] * e[1] * (1 - 2 * e[1]), 2 * e.prod()])
    np.testing.assert_allclose(y.grad.numpy(), wanted, rtol=1e-10)


def test_every_elementwise_op_has_an_entry() -> None:
    no_floats = {Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.THREEFRY}
    for op in GroupOp.Elementwise | GroupOp.Movement | {Ops.REDUCE_AXIS}:
        assert op in RULES or op in GroupOp.Comparison or op in no_floats, op


def test_entries_of_ops_no_method_builds() -> None:
    x, y, z = (Tensor(np.array([v])) for v in (1.75, 0.5, 3.0))

    def slopes(node: UOp, *xs: Tensor) -> list[float]:
        grads = gradients(node, UOp.const(dtypes.float64, 1.0), [x.uop for x in xs])
        return [Tensor._wrap(grads[x.uop]).item() for x in xs]

    f64 = dtypes.float64
    fused = UOp(Ops.MULACC, f64, (x.uop, y.uop, z.uop))
    assert slopes(fused, x, y, z) == [0.5, 1.75, 1.0]
    assert slopes(UOp(Ops.MOD, f64, (x.uop, y.uop)), x, y) == [1.0, -3.0]
    assert slopes(UOp(Ops.SQUARE, f64, (x.uop,)), x) == [3.5]
    for op in (Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP, Ops.PRECAST):
        assert slopes(UOp(op, f64, (x.uop,)), x) == [1.0]
    reduced = UOp(Ops.ALLREDUCE, f64, (x.uop, UOp.new_device("CPU")), ReduceOp.ADD)
    with pytest.raises(MorokError, match="ALLREDUCE has no gradient"):
        slopes(reduced, x)


# Leaves and modes --------------------------------------------------------------------------------


def test_backward_accumulates() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()
    assert x.grad.tolist() == [4, 8]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [7, 11]


def test_equal_leaves_are_different_leaves() -> None:
    a, b = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=True)
    (a * 2 + b * Tensor.ones(2) * 3).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([2, 2], [3, 3])
    c = Tensor.ones(2)
    a.grad = None
    (a * c * c).sum().backward()
    assert a.grad.tolist() == [1, 1]
    assert c.grad is None


def test_only_what_is_computed_afterwards_depends_on_a_new_leaf() -> None:
    x = Tensor([1.0, 3.0])
    mean = x.mean()
    x.requires_grad_()
    ((x - mean) ** 2).sum().backward()
    assert x.grad.tolist() == [-2, 2]
    first, second = x.detach().requires_grad_(), x.detach().requires_grad_()
    (first * second).sum().backward()
    assert (first.grad.tolist(), second.grad.tolist()) == ([1, 3], [1, 3])


@pytest.mark.parametrize("leaf_first", [True, False])
def test_realising_on_the_way_changes_nothing(leaf_first: bool) -> None:
    w = Tensor.uniform(3, low=1, high=2, dtype=dtypes.float64, requires_grad=True)
    y = w * w
    loss = y.sum()
    if leaf_first:
        Tensor.realize(w)
        Tensor.realize(y)
    Tensor.realize(loss, y)
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * w.numpy())
    assert memory.memory_of(y) is not None


def test_leaf_is_found_after_a_write() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    with no_grad():
        w.assign(w * 10)
    loss = (w * 3).sum()
    w.realize()
    loss.backward()
    assert w.grad.tolist() == [3, 3]
    assert w.requires_grad
    assert w.is_leaf


def test_old_loss_after_an_overwrite_is_an_error_not_a_wrong_number() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True).realize()
    loss = (w * w).sum().realize()
    with no_grad():
        w.assign(w + 1)
    w.realize()
    loss.backward()
    with pytest.raises(MorokError, match="overwritten"):
        w.grad.numpy()


def test_gradient_of_values_on_the_way() -> None:
    x = Tensor([1.0, 2.0])
    y = x * 3
    loss = (y * y).sum()
    y.realize()
    dy, dx, none = Tensor.gradient(loss, y, x, Tensor([5.0]))
    assert dy.tolist() == [6, 12]
    assert dx.tolist() == [18, 36]
    assert none.tolist() == [0]
    z = Tensor([1.0, 2.0], requires_grad=True)
    middle = z * 3
    middle.retain_grad()
    middle.realize()
    (middle * middle).sum().backward()
    assert middle.grad.tolist() == [6, 12]
    assert z.grad.tolist() == [18, 36]
    assert not middle.is_leaf
    middle *= 2
    middle.sum().backward()
    assert middle.grad.tolist() == [7, 13]
    assert z.grad.tolist() == [24, 42]


def test_no_grad_and_detach() -> None:
    x = Tensor([2.0], requires_grad=True)
    with no_grad():
        y = x * 3
        assert not is_grad_enabled()
        with enable_grad():
            assert (x * 1).requires_grad
    assert not y.requires_grad
    (y * x).sum().backward()
    assert x.grad.tolist() == [6]

    @no_grad()
    def constant(t: Tensor) -> Tensor:
        return t * 2

    assert not constant(x).requires_grad
    assert not x.detach().requires_grad
    x.grad = None
    (x.detach() * x).sum().backward()
    assert x.grad.tolist() == [2]
    assert not (x > 1).requires_grad
    assert not x.argmax().requires_grad
    assert not x.cast(dtypes.int32).requires_grad


def test_grad_is_a_constant_unless_asked() -> None:
    x = Tensor([2.0], requires_grad=True)
    (x * x).sum().backward()
    assert not x.grad.requires_grad
    first = x.grad
    x.grad = None
    (first * x).sum().backward()
    assert x.grad.tolist() == [4]


def test_switching_a_leaf_off() -> None:
    x = Tensor([2.0], requires_grad=True)
    y = x * 3
    x.requires_grad = False
    assert not (x * 2).requires_grad
    with pytest.raises(ShapeError, match="detach"):
        y.requires_grad_(False)


def test_backward_errors() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"backward: a tensor of shape \(2,\) is no scalar"):
        (x * 2).backward()
    with pytest.raises(ShapeError, match="requires_grad=True"):
        Tensor([1.0]).backward()
    with pytest.raises(ShapeError, match="flows into shape"):
        (x * 2).backward(Tensor([1.0]))
    with pytest.raises(DTypeError, match="float"):
        Tensor([1, 2], requires_grad=True)
    with pytest.raises(DTypeError, match="float"):
        Tensor([1, 2]).requires_grad_()
    with pytest.raises(DTypeError, match="float"):
        Tensor.gradient(x.sum(), Tensor([1]))
    with pytest.raises(ShapeError, match="no_grad"):
        x += 1
    (x * 2).backward(Tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 20]


def test_writes_to_computed_tensors_carry_gradients() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y *= y
    y[0] = x[1] * 5
    y.sum().backward()
    assert x.grad.tolist() == [0, 5 + 36]


def test_deep_chain() -> None:
    """No recursion along the graph."""
    x = Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + x
    y.sum().backward()
    assert len(x.grad.uop.toposort()) > 100


def test_gradients_of_what_a_sigmoid_is_made_of() -> None:
    """A sigmoid has a slope of its own, which must not hide the values between it and its
    operand: the same expression is the same node."""
    a = np.array([0.3, -1.2])
    x = Tensor(a, requires_grad=True)
    s = x.sigmoid()
    below = x < 0
    small = below.where(x, -x).exp()
    (alone,) = s.sum().gradient(small)
    with_x, both = s.sum().gradient(x, small)
    e, p = np.exp(-np.abs(a)), 1 / (1 + np.exp(-a))
    assert np.allclose(alone.numpy(), np.where(a < 0, 1, -1) / (1 + e) ** 2)
    assert np.allclose(both.numpy(), alone.numpy())
    assert np.allclose(with_x.numpy(), p * (1 - p))


@pytest.mark.parametrize("name", ["max", "min", "max_pool2d", "argmax", "argmin"])
def test_an_extreme_is_found_among_values_computed_anew(name: str) -> None:
    """Sums that one kernel rounds in another order than the one that stored their extreme."""
    rng = np.random.default_rng(5)
    for terms, width in ((4, 5), (7, 5), (7, 16), (8, 16), (12, 5), (12, 16)):
        terms_of = rng.standard_normal((3, terms, width)).astype(np.float32)
        weight = rng.standard_normal((3, terms, 1)).astype(np.float32)
        w = Tensor(weight, requires_grad=True)
        y = (Tensor(terms_of) * w).sum(1) * 1.5
        exact = (terms_of.astype(np.float64) * weight).sum(1)
        place = (exact.argmin if "min" in name else exact.argmax)(1)
        if name.startswith("arg"):
            chosen = getattr(y, name)(1)
            (y.min(1) if "min" in name else y.max(1)).realize()
            assert chosen.tolist() == place.tolist()
            continue
        pooled = name == "max_pool2d"
        best = y.reshape((1, 1, 3, width)).max_pool2d((1, width)) if pooled else getattr(y, name)(1)
        best.sum().backward()
        best.realize()
        wanted = 1.5 * terms_of[np.arange(3), :, place]
        np.testing.assert_allclose(w.grad.numpy()[:, :, 0], wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 5), (4, 100), (16, 200)])
def test_an_extreme_of_halves_is_found_among_them(shape: tuple[int, int]) -> None:
    """Kernels compute halves in float32: what has been stored is rounded, what is not is not."""
    rng = np.random.default_rng(3)
    first, second = (rng.standard_normal(shape).astype(np.float16) for _ in range(2))
    exact = first.astype(np.float64) * second
    for axis in (0, 1):
        x = Tensor(first, requires_grad=True)
        y = x * Tensor(second)
        best = y.max(axis)
        best.sum().backward()
        slopes, places = x.grad.numpy(), y.argmax(axis).numpy()
        found = np.take_along_axis(exact, np.expand_dims(places, axis), axis)
        np.testing.assert_allclose(found, exact.max(axis, keepdims=True), rtol=1e-3)
        assert ((slopes != 0).sum(axis) >= 1).all()
        np.testing.assert_allclose((slopes * first).sum(axis), best.numpy(), rtol=2e-3)


@pytest.mark.torch
@pytest.mark.parametrize("width", [19, 38])
def test_softmax_of_large_halves_is_that_of_their_rounded_values(width: int) -> None:
    import torch

    rng = np.random.default_rng(0)
    data = (rng.standard_normal((1, 3, 3, width)) * 4).astype(np.float16)
    weights = rng.standard_normal(data.shape).astype(np.float16)
    x = Tensor(data, requires_grad=True)
    t = torch.tensor(data.astype(np.float64), requires_grad=True)
    for u, w in ((x, Tensor(weights)), (t, torch.tensor(weights.astype(np.float64)))):
        scores = (u @ u.transpose(2, 3)) * (1 / math.sqrt(width))
        ((scores.softmax(-1) @ u) * w).sum().backward()
    wanted = t.grad.numpy()
    assert np.abs(x.grad.numpy() - wanted).max() < 5e-3 * np.abs(wanted).max()
