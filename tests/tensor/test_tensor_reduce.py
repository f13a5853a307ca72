"""Reductions, softmax and their kin, products of matrices, windows: against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.errors import ArgumentError, AxisError, DTypeError, ShapeError
from morok.tensor import Tensor

V = np.array([[3, -1, 4, 1], [-5, 9, 2, -6], [5, 3, -5, 8]], np.int32)


def close(cases: list[tuple[Tensor, object]], rtol: float = 1e-6) -> None:
    Tensor.realize(*(tensor for tensor, _ in cases))
    for i, (tensor, wanted) in enumerate(cases):
        wanted = np.asarray(wanted)
        assert tensor.shape == wanted.shape, i
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=rtol, atol=1e-6, err_msg=str(i))


def test_reductions() -> None:
    x, f, v = Tensor(V), Tensor(V.astype(np.float32)), V.astype(np.float64)
    close(
        [
            (x.sum(), V.sum()),
            (x.sum(1), V.sum(1)),
            (x.sum(0, keepdim=True), V.sum(0, keepdims=True)),
            (x.sum(axis=(0, 1), keepdims=True), V.sum((0, 1), keepdims=True)),
            (x.prod(-1), V.prod(-1)),
            (x.max(1), V.max(1)),
            (x.min(), V.min()),
            (f.amax(0), V.max(0)),
            (x.mean(1), V.mean(1)),
            (f.var(1), v.var(1, ddof=1)),
            (f.std(), v.std(ddof=1)),
            (f.var(0, correction=0), v.var(0)),
            (f.norm(), np.linalg.norm(v)),
            (f.norm(1, 0), np.abs(v).sum(0)),
            (f.norm(math.inf), np.abs(v).max()),
            (f.norm(3, 1), (np.abs(v) ** 3).sum(1) ** (1 / 3)),
            (x.argmax(), V.argmax()),
            (x.argmax(1), V.argmax(1)),
            (x.argmin(0, keepdim=True), V.argmin(0)[None]),
            ((x > 8).any(1), (V > 8).any(1)),
            ((x > -7).all(), True),
            (x.any(), True),
            ((x > 0).count_nonzero(), (V > 0).sum()),
            (f.logsumexp(1), np.log(np.exp(v).sum(1))),
            (f.softmax(0), np.exp(v) / np.exp(v).sum(0)),
            (f.log_softmax(1), v - np.log(np.exp(v).sum(1, keepdims=True))),
            (Tensor(3.0).sum(), 3.0),
            (Tensor(3).argmax(0), 0),
            (x.max() - x.min(), V.max() - V.min()),
        ]
    )


def test_fused_reductions_keep_their_bounds() -> None:
    x = Tensor.arange(4)
    assert (x[1:4].max() - x[1:3].min()).item() == 2
    for length in (13, 17, 31):
        v = -1.0 - np.arange(length, dtype=np.float32) / 64
        t = Tensor(v)
        cases = [(t.max(), v.max()), (t.min(), v.min()), (t.prod(), v.prod())]
        close([*cases, (t.exp().sum(), np.exp(v).sum())])


def test_padding_before_and_after_a_function() -> None:
    """pad(f(x)) has zeros outside, f(pad(x)) has f(0)."""
    v = np.float32([[1.0, 2.0]])
    x, p = Tensor(v), Tensor(v).pad((1, 1))
    w = np.pad(v, ((0, 0), (1, 1)))
    inverse = np.float32([[np.inf, 1, 0.5, np.inf]])
    close(
        [
            (x.exp().pad((1, 1)), np.pad(np.exp(v), ((0, 0), (1, 1)))),
            (p.exp(), np.exp(w)),
            (x.cos().pad((1, 1)).sum(), np.cos(v).sum()),
            (p.cos().sum(), np.cos(w).sum()),
            (1 / p, inverse),
            (p + 1, w + 1),
            (p.eq(0).sum(), 2),
            (x.eq(0).pad((1, 1)).sum(), 0),
        ]
    )


def test_sums_of_narrow_ints_are_wide() -> None:
    ones = Tensor(np.full(300, 1, np.uint8))
    assert ones.sum().item() == 300
    assert ones.sum().dtype is dtypes.uint32
    assert Tensor(np.ones(300, bool)).sum().item() == 300
    assert Tensor(np.full(3, 100, np.int8)).sum().tolist() == 300
    assert Tensor(np.full(3, 100, np.int8)).prod().dtype is dtypes.int32
    assert Tensor(np.ones(3, np.float16)).sum().dtype is dtypes.float16
    assert Tensor(np.ones(3, np.float16)).mean().dtype is dtypes.float16
    assert Tensor(V).sum(dtype=dtypes.float64).dtype is dtypes.float64
    assert Tensor(np.full(4096, 100, np.float16)).mean().item() == 100


def test_nan_wins_and_argmax_is_its_first_place() -> None:
    for place in (0, 3, 6):
        v = np.arange(7, dtype=np.float32)
        v[place] = np.nan
        x = Tensor(v)
        got = [x.max(), x.min(), x.argmax(), x.argmin()]
        Tensor.realize(*got)
        assert math.isnan(got[0].item())
        assert math.isnan(got[1].item())
        assert [got[2].item(), got[3].item()] == [place, place]
    assert Tensor([2, 7, 7]).argmax().item() == 1
    assert (~Tensor([2, 2])).argmax().item() == 0


def test_stable_exponentials() -> None:
    inf = math.inf
    v = np.float32([[1e4, 1e4 - 1, 0], [-inf, -inf, -inf], [-inf, 0, 1], [inf, 1, 1]])
    close([(Tensor(v).logsumexp(1), [1e4 + math.log1p(math.exp(-1)), -inf, 1.3132617, inf])])
    got = Tensor(v).softmax(1).numpy()
    np.testing.assert_allclose(got[2], [0, 0.26894143, 0.7310586], rtol=1e-6)
    assert np.isnan(got[1]).all()


def test_matmul_by_numpys_rules(rng) -> None:
    shapes = [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((7, 3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((1, 1), (1, 1)),
    ]
    cases = []
    for left, right in shapes:
        a, b = rng.standard_normal(left), rng.standard_normal(right)
        cases.append((Tensor(a) @ Tensor(b), a @ b))
    a, b = rng.integers(-9, 9, (3, 4)), rng.integers(-9, 9, (4, 2))
    cases += [(Tensor(a) @ Tensor(b), a @ b), (a @ Tensor(b), a @ b)]
    cases.append((Tensor(a[0]).outer(Tensor(a[1])), np.outer(a[0], a[1])))
    cases.append((Tensor(a).linear(Tensor(b.T), Tensor(b[0])), a @ b + b[0]))
    close(cases)


def test_matmul_errors() -> None:
    with pytest.raises(ShapeError, match=r"matmul: shapes \(3, 4\) and \(3, 4\).* 4 .* meets 3"):
        Tensor.ones(3, 4) @ Tensor.ones(3, 4)
    with pytest.raises(ShapeError, match="matmul"):
        Tensor.ones(3) @ Tensor(2.0)
    with pytest.raises(ShapeError, match="matmul"):
        Tensor.ones(3) @ 2.0
    with pytest.raises(ShapeError, match="mm"):
        Tensor.ones(3).mm(Tensor.ones(3, 1))


def direct_conv(x, w, stride, padding, dilation, groups):
    """Cross-correlation by definition."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    n, _, h, v = x.shape
    out, each, kh, kw = w.shape
    oh = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (v - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, out, oh, ow))
    for o in range(out):
        first = o // (out // groups) * each
        for i in range(oh):
            for j in range(ow):
                rows = i * stride[0] + dilation[0] * np.arange(kh)
                columns = j * stride[1] + dilation[1] * np.arange(kw)
                part = x[:, first : first + each][:, :, rows][:, :, :, columns]
                y[:, o, i, j] = (part * w[o]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"),
    [
        ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),
        ((1, 4, 9, 8), (6, 2, 3, 2), (2, 3), (1, 2), (2, 1), 2),
        ((1, 1, 16, 16), (2, 1, 7, 7), (3, 3), (2, 2), (1, 1), 1),
        ((2, 2, 6, 6), (2, 1, 2, 2), (2, 2), (0, 0), (1, 1), 2),
        ((1, 2, 5, 5), (3, 2, 1, 1), (2, 2), (1, 1), (1, 1), 1),
        ((1, 2, 5, 5), (3, 2, 5, 5), (1, 1), (0, 0), (1, 1), 1),
        ((1, 1, 4, 7), (1, 1, 2, 3), (4, 5), (0, 0), (1, 2), 1),
    ],
)
def test_conv2d(rng, shape, filters, stride, padding, dilation, groups) -> None:
    x, w = rng.standard_normal(shape), rng.standard_normal(filters)
    got = Tensor(x).conv2d(Tensor(w), None, stride, padding, dilation, groups)
    close([(got, direct_conv(x, w, stride, padding, dilation, groups))])


def test_conv2d_bias_and_asymmetric_padding(rng) -> None:
    x, w, b = rng.standard_normal((1, 2, 4, 5)), rng.standard_normal((3, 2, 2, 2)), np.arange(3.0)
    wide = np.pad(x, ((0, 0), (0, 0), (3, 0), (1, 2)))
    wanted = direct_conv(wide, w, (1, 1), (0, 0), (1, 1), 1) + b.reshape(3, 1, 1)
    close([(Tensor(x).conv2d(Tensor(w), Tensor(b), padding=(1, 2, 3, 0)), wanted)])


def test_pooling(rng) -> None:
    x = rng.standard_normal((2, 3, 7, 9))
    blocks = x[:, :, :6, :8].reshape(2, 3, 3, 2, 4, 2)
    strided = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::3]
    low = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    padded = np.lib.stride_tricks.sliding_window_view(low, (3, 3), (2, 3))[:, :, ::2, ::2]
    inside = np.isfinite(padded)
    total = np.where(inside, padded, 0).sum((-1, -2))
    close(
        [
            (Tensor(x).max_pool2d(2), blocks.max((3, 5))),
            (Tensor(x[..., :6, :8]).avg_pool2d(2), blocks.mean((3, 5))),
            (Tensor(x).avg_pool2d((3, 2), (2, 3)), strided.mean((-1, -2))),
            (Tensor(x).max_pool2d((3, 2), (2, 3)), strided.max((-1, -2))),
            (Tensor(x - 9).max_pool2d(3, 2, 1), padded.max((-1, -2)) - 9),
            (Tensor(x).avg_pool2d(3, 2, 1), total / 9),
            (
                Tensor(x).avg_pool2d(3, 2, 1, count_include_pad=False),
                total / inside.sum((-1, -2)),
            ),
        ]
    )


def test_window_errors() -> None:
    x = Tensor.ones(1, 3, 4, 4)
    with pytest.raises(ShapeError, match=r"conv2d: .*3 channels in groups=1.*\(2, 3, …\)"):
        x.conv2d(Tensor.ones(2, 2, 3, 3))
    with pytest.raises(ShapeError, match="does not fit"):
        x.max_pool2d(5)
    with pytest.raises(ShapeError, match="stride"):
        x.max_pool2d(2, stride=0)
    with pytest.raises(DTypeError, match="avg_pool2d"):
        Tensor.ones(1, 1, 4, 4, dtype=dtypes.int32).avg_pool2d(2)


def test_losses(rng) -> None:
    scores = rng.standard_normal((5, 4))
    target = np.array([0, 3, 1, 1, 2])
    logp = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    picked = -logp[np.arange(5), target]
    weight = np.array([1.0, 2, 0.5, 3])
    p, t = rng.uniform(0.1, 0.9, 6), rng.integers(0, 2, 6).astype(float)
    s, y, w = Tensor(scores), Tensor(target), Tensor(weight)
    ignored = Tensor(np.array([0, -100, 1, -100, 2]))
    images = Tensor(scores.reshape(1, 5, 4).swapaxes(1, 2))
    share = weight[target]
    smooth = 0.9 * picked.mean() - 0.1 * logp.mean(1).mean()
    a, b = Tensor(p), Tensor(t)
    close(
        [
            (s.cross_entropy(y), picked.mean()),
            (s.cross_entropy(y, reduction="sum"), picked.sum()),
            (s.cross_entropy(y, reduction="none"), picked),
            (s.cross_entropy(ignored), picked[[0, 2, 4]].mean()),
            (s.cross_entropy(y, weight=w), (picked * share).sum() / share.sum()),
            (s.cross_entropy(y, label_smoothing=0.1), smooth),
            (s.cross_entropy(y.one_hot(4).double()), picked.mean()),
            (images.cross_entropy(Tensor(target[None])), picked.mean()),
            (s[0].cross_entropy(y[0]), picked[0]),
            (s.log_softmax(1).nll_loss(y), picked.mean()),
            (a.mse_loss(b), ((p - t) ** 2).mean()),
            (a.l1_loss(b), np.abs(p - t).mean()),
            (
                (a * 4).huber_loss(b, 1.5),
                np.where(
                    np.abs(4 * p - t) <= 1.5,
                    (4 * p - t) ** 2 / 2,
                    1.5 * (np.abs(4 * p - t) - 0.75),
                ).mean(),
            ),
            (a.binary_cross_entropy(b), -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()),
            (
                a.binary_cross_entropy_with_logits(b),
                (np.logaddexp(p, 0) - p * t).mean(),
            ),
        ]
    )
    with pytest.raises(ShapeError, match="cross_entropy: scores"):
        s.cross_entropy(Tensor([1, 2]))
    with pytest.raises(ArgumentError, match="reduction"):
        a.mse_loss(b, reduction="most")


def test_axis_out_of_range() -> None:
    with pytest.raises(AxisError):
        Tensor(3).argmax(1)


def test_norms_of_what_its_dtype_cannot_square() -> None:
    """PyTorch gives 500 for halves, NumPy for int8."""
    assert Tensor([300.0, 400.0], dtype=dtypes.float16).norm().tolist() == 500
    assert Tensor([30, 40, -120], dtype=dtypes.int8).norm().tolist() == 130
    assert Tensor([60.0, 80.0], dtype=dtypes.float16).norm(3, 0, keepdim=True).shape == (1,)
    assert Tensor([0, 3, -4], dtype=dtypes.int8).norm(0).tolist() == 2


def test_names_of_arguments() -> None:
    """PyTorch's or NumPy's, not one axis by each."""
    x = Tensor([[1, 2], [3, 4]])
    assert x.sum(axis=0, keepdims=True).tolist() == x.sum(0, keepdim=True).tolist() == [[4, 6]]
    with pytest.raises(TypeError, match="takes dim or axis, not both: 0 and 1"):
        x.sum(0, axis=1)
    with pytest.raises(TypeError, match="has no argument 'axes'"):
        x.max(axes=1)
