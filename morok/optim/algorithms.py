"""SGD, Adam and AdamW, as PyTorch defines them."""

from __future__ import annotations

from typing import Any

from morok.dtype import DType, acc_dtype, dtypes
from morok.errors import ArgumentError
from morok.optim.optimizers import Age, Number, Optimizer, ParamGroup, Params
from morok.tensor import Tensor


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's form (Sutskever et al. 2013);
    `weight_decay` is an L2 penalty."""

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        # Only a dampened velocity depends on whether it is the first.
        self.counts_steps = dampening != 0
        super().__init__(
            params,
            lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )

    def _check(self, group: ParamGroup) -> None:
        momentum, dampening = group["momentum"], group["dampening"]
        if group["nesterov"] and (dampening or (type(momentum) is float and momentum <= 0)):
            raise ArgumentError("Nesterov's form needs momentum and no dampening")
        if dampening and not self.counts_steps:
            raise ArgumentError("dampening of one group needs a dampening that is not 0 for all")

    def _zeros(self, group: ParamGroup) -> tuple[str, ...]:
        momentum = group["momentum"]
        return ("momentum_buffer",) if isinstance(momentum, Tensor) or momentum else ()

    def _update(self, group: ParamGroup, params: list[Tensor]) -> None:
        for param in params:
            work, state = acc_dtype(param.dtype), self.state[id(param)]
            grad = self._gradient(param, group["weight_decay"])
            if "momentum_buffer" in state:
                velocity, momentum = state["momentum_buffer"], _in(group["momentum"], work)
                fresh = grad
                if group["dampening"]:
                    # The first velocity is the gradient itself, undampened.
                    fresh = (state["step"] <= 1.0).where(grad, grad * (1.0 - group["dampening"]))
                velocity.assign(velocity * momentum + fresh)
                grad = grad + velocity * momentum if group["nesterov"] else velocity
            self._write(param, self._value(param) - grad * _in(group["lr"], work))


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); `weight_decay` is an L2 penalty."""

    counts_steps = True
    decoupled = False

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        betas: tuple[Number, Number] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)

    def _zeros(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _bases(self, group: ParamGroup) -> tuple[float | None, ...]:
        return tuple(None if isinstance(beta, Tensor) else beta for beta in group["betas"])

    def _update(self, group: ParamGroup, params: list[Tensor]) -> None:
        decay = group["weight_decay"]
        for param in params:
            work, state = acc_dtype(param.dtype), self.state[id(param)]
            rise1, rise2 = (each.cast(work) for each in _corrections(group, self._ages[id(param)]))
            first, second = (_in(beta, work) for beta in group["betas"])
            rest1, rest2 = (_in(1.0 - beta, work) for beta in group["betas"])
            grad = self._gradient(param, 0.0 if self.decoupled else decay)
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.assign(mean * first + grad * rest1)
            square.assign(square * second + grad * grad * rest2)
            old = self._value(param)
            if self.decoupled and decay:
                old = old * (1.0 - group["lr"] * decay).cast(work)
            change = mean * rise1 / ((square * rise2).sqrt() + group["eps"])
            self._write(param, old - change * _in(group["lr"], work))


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019)."""

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        betas: tuple[Number, Number] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


def _corrections(group: ParamGroup, age: Age) -> list[Tensor]:
    """What the moments are multiplied by because they began with zeros: 1 / (1 - beta**t), in
    float64 as PyTorch's."""
    steps = age.step.cast(dtypes.float64)
    powers = [
        beta**steps if power is None else power
        for beta, power in zip(group["betas"], age.powers, strict=True)
    ]
    return [1.0 / (1.0 - power) for power in powers]


def _in(value: Any, dtype: DType) -> Any:
    """A number to compute with in that dtype; a Python number has none of its own."""
    return value.cast(dtype) if isinstance(value, Tensor) else value
