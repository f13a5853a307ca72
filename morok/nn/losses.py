"""Losses as objects; each is the method of the same name of the prediction. Arguments, defaults and
names are PyTorch's."""

from __future__ import annotations

from morok.tensor import Tensor


class _Loss:
    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction


class MSELoss(_Loss):
    """`Tensor.mse_loss`"""

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.mse_loss(target, self.reduction)


class L1Loss(_Loss):
    """`Tensor.l1_loss`"""

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.l1_loss(target, self.reduction)


class HuberLoss(_Loss):
    """`Tensor.huber_loss`"""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.huber_loss(target, self.delta, self.reduction)


class SmoothL1Loss(_Loss):
    """`Tensor.smooth_l1_loss`"""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.smooth_l1_loss(target, self.beta, self.reduction)


class KLDivLoss(_Loss):
    """`Tensor.kl_div`"""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.kl_div(target, self.reduction, self.log_target)


class BCELoss(_Loss):
    """`Tensor.binary_cross_entropy`"""

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.binary_cross_entropy(target, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`Tensor.binary_cross_entropy_with_logits`"""

    def __init__(self, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.pos_weight = pos_weight

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.binary_cross_entropy_with_logits(target, self.reduction, self.pos_weight)


class NLLLoss(_Loss):
    """`Tensor.nll_loss`"""

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.weight = weight
        self.ignore_index = ignore_index

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.nll_loss(target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(NLLLoss):
    """`Tensor.cross_entropy`"""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return x.cross_entropy(
            target, self.weight, self.ignore_index, self.label_smoothing, self.reduction
        )
