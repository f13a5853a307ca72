"""Losses, as methods of the prediction. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from typing import Self

from morok.errors import ArgumentError, DTypeError, ShapeError
from morok.tensor.base import fail
from morok.tensor.normalize import Normalize


class Loss(Normalize):
    """Methods that measure a prediction against a target."""

    __slots__ = ()

    def _finished(self, method: str, reduction: str) -> Self:
        """A loss per element, reduced as asked."""
        if reduction == "mean":
            return self.mean()
        if reduction == "sum":
            return self.sum()
        if reduction != "none":
            fail(
                ArgumentError, f"{method}: reduction is 'mean', 'sum' or 'none', not {reduction!r}"
            )
        return self

    def _same_shape(self, method: str, target: Self) -> None:
        if self.shape != target.shape:
            fail(ShapeError, f"{method}: shapes {self.shape} and {target.shape} differ")

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The squared difference."""
        self._same_shape("mse_loss", target)
        apart = self - target
        return (apart * apart)._finished("mse_loss", reduction)

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The absolute difference."""
        self._same_shape("l1_loss", target)
        return (self - target).abs()._finished("l1_loss", reduction)

    def huber_loss(self, target: Self, delta: float = 1.0, reduction: str = "mean") -> Self:
        """Half the squared difference up to `delta`, linear beyond (Huber 1964)."""
        self._same_shape("huber_loss", target)
        apart = (self - target).abs()
        loss = (apart <= delta).where(apart * apart * 0.5, (apart - 0.5 * delta) * delta)
        return loss._finished("huber_loss", reduction)

    def smooth_l1_loss(self, target: Self, beta: float = 1.0, reduction: str = "mean") -> Self:
        """Half the squared difference over `beta` up to `beta`, the absolute one less beta / 2 then
        (Girshick 2015)."""
        if beta == 0:
            return self.l1_loss(target, reduction)
        self._same_shape("smooth_l1_loss", target)
        apart = (self - target).abs()
        loss = (apart < beta).where(apart * apart * (0.5 / beta), apart - 0.5 * beta)
        return loss._finished("smooth_l1_loss", reduction)

    def kl_div(self, target: Self, reduction: str = "mean", log_target: bool = False) -> Self:
        """target (log target - x) of log-probabilities x (Kullback and Leibler 1951); with
        `log_target` the target is one too. 0 where the target is 0. `reduction` may also be
        "batchmean": the sum over the length of the first dim."""
        self._same_shape("kl_div", target)
        if log_target:
            loss = target.exp() * (target - self)
        else:
            some = target > 0
            loss = some.where(target * (some.where(target, 1.0).log() - self), 0.0)
        if reduction == "batchmean":
            return loss.sum() / max(self.shape[0] if self.ndim else 1, 1)
        return loss._finished("kl_div", reduction)

    def binary_cross_entropy(self, target: Self, reduction: str = "mean") -> Self:
        """-(t log p + (1 - t) log(1 - p)) of probabilities; logarithms are at least -100, as
        PyTorch's."""
        self._same_shape("binary_cross_entropy", target)
        yes, no = self.log().clamp(min=-100.0), (1.0 - self).log().clamp(min=-100.0)
        loss = -(target * yes + (1.0 - target) * no)
        return loss._finished("binary_cross_entropy", reduction)

    def binary_cross_entropy_with_logits(
        self, target: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Binary cross entropy of sigmoid(x), computed without forming it. `pos_weight`, which goes
        with the last dims, multiplies the part of the positive."""
        self._same_shape("binary_cross_entropy_with_logits", target)
        if pos_weight is None:
            loss = self.softplus() - self * target
        else:
            rise = 1.0 + (pos_weight - 1.0) * target
            loss = (1.0 - target) * self + rise * (-self).softplus()
        return loss._finished("binary_cross_entropy_with_logits", reduction)

    def nll_loss(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """Minus the log-probability of the target class.

        This tensor is (n, classes, …) or (classes,), the target (n, …) or () of class numbers.
        The mean is over targets other than `ignore_index`, weighted by `weight` (classes,).
        """
        return self._likelihood("nll_loss", target, weight, ignore_index, 0.0, reduction)

    def cross_entropy(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Minus the log-softmax at the target class.

        This tensor holds scores, (n, classes, …) or (classes,); the target class numbers, (n, …) or
        (), or class probabilities in the shape of the scores. `label_smoothing` spreads that part
        of the target evenly over all classes. Otherwise as `nll_loss`.
        """
        dim = 0 if self.ndim == 1 else 1
        scores = self.log_softmax(dim)
        if target.dtype.kind == "f":
            self._same_shape("cross_entropy", target)
            if label_smoothing:
                even = label_smoothing / self.shape[dim]
                target = target * (1.0 - label_smoothing) + even
            if weight is not None:
                classes = tuple(-1 if i == dim else 1 for i in range(self.ndim))
                scores = scores * weight.reshape(classes)
            loss = -(scores * target).sum(dim)
            if reduction == "mean":
                return loss.sum() / max(loss.numel(), 1)
            return loss._finished("cross_entropy", reduction)
        return scores._likelihood(
            "cross_entropy", target, weight, ignore_index, label_smoothing, reduction
        )

    def _likelihood(
        self,
        method: str,
        target: Self,
        weight: Self | None,
        ignore_index: int,
        smoothing: float,
        reduction: str,
    ) -> Self:
        """`cross_entropy` for class numbers, of log-probabilities."""
        shape = self.shape
        if not shape:
            fail(ShapeError, f"{method}: scores of shape (n, classes, …) are needed, not a scalar")
        dim = 0 if len(shape) == 1 else 1
        if target.dtype.kind not in "iu":
            fail(DTypeError, f"{method}: class numbers are ints, not {target.dtype}")
        if target.shape != shape[:dim] + shape[dim + 1 :]:
            fail(ShapeError, f"{method}: scores of {shape} do not go with targets {target.shape}")
        here = target._is_class(shape[dim], dim)
        scores = self
        if weight is not None:
            classes = tuple(-1 if i == dim else 1 for i in range(len(shape)))
            scores = self * weight.reshape(classes)
        # A choice, not a product: -inf of another class must not become NaN.
        loss = -here.where(scores, 0.0).sum(dim)
        counted = target.ne(ignore_index) if _holds(target, ignore_index) else None
        if smoothing:
            even = -scores.sum(dim) * (smoothing / shape[dim])
            loss = loss * (1.0 - smoothing) + even
        if counted is not None:
            loss = counted.where(loss, 0.0)
        if reduction != "mean":
            return loss._finished(method, reduction)
        if weight is not None:
            share = here.where(weight.reshape(classes), 0.0).sum(dim)
            share = share if counted is None else counted.where(share, 0.0)
            return loss.sum() / share.sum()
        if counted is None:
            return loss.mean()
        return loss.sum() / counted.sum().cast(loss.dtype)


def _holds(target: Loss, number: int) -> bool:
    """Whether a class number of the target's dtype can be `number`."""
    dtype = target.dtype
    low = 0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))
    return low <= number < low + (1 << dtype.bits)
