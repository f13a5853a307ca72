"""SGD, Adam and AdamW.

What changes from step to step (the learning rate, the bias corrections) stands in 0-d tensors, so
that the second step's kernels serve all later ones. A step computes every new parameter and state
and realises them together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np

from morok.dtype import acc_dtype, promote
from morok.errors import ShapeError
from morok.tensor import Tensor, no_grad


class Optimizer(ABC):
    """Base of the optimisers.

    Takes the parameters that require gradients (each once) and realises them, so that the first
    step already has the form of all others. ShapeError when there are none.
    """

    def __init__(self, params: Iterable[Tensor], lr: float | Tensor) -> None:
        given = {id(param): param for param in params}
        self.params = [param for param in given.values() if param.requires_grad]
        if not self.params:
            raise ShapeError("an optimizer needs parameters that require gradients: there are none")
        self._precision = promote(*(acc_dtype(param.dtype) for param in self.params))
        self._lr = lr if isinstance(lr, Tensor) else self._number(lr)

    @property
    def lr(self) -> Tensor:
        """The learning rate, a 0-d tensor; assigning a number changes its value in place."""
        return self._lr

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        with no_grad():
            self._lr.assign(self._number(value))

    def _number(self, value: float | Tensor) -> Tensor:
        """A number that may change from step to step, as precise as the most precise parameter."""
        return Tensor(value, dtype=self._precision)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Change every parameter that has a gradient by one step, in one schedule."""
        with no_grad():
            active = [param for param in self.params if param.grad is not None]
            if not active:
                return
            states = self._update(active)
            grads = [param.grad for param in active if param.grad is not None]
            Tensor.realize(*active, *states, *grads)

    @abstractmethod
    def _update(self, active: list[Tensor]) -> list[Tensor]:
        """Assign new values to the parameters and states; the states assigned to."""

    def _rate(self, param: Tensor) -> Tensor:
        """The learning rate in the precision of a parameter."""
        return self._lr.cast(acc_dtype(param.dtype))

    def _zeros(self) -> dict[int, Tensor]:
        """A state per parameter, by the parameter's id, each in memory of its own."""
        return {
            id(param): Tensor(np.zeros(param.shape, np.float32), dtype=param.dtype)
            for param in self.params
        }

    def _ready(self, *states: dict[int, Tensor]) -> None:
        """Realise parameters and states."""
        Tensor.realize(self._lr, *self.params, *(s for state in states for s in state.values()))


class _Age:
    """The bias corrections 1 - beta**t of parameters that have made t steps."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.first = first.clone()
        self.second = second.clone()

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.first, self.second))


def _gradient(param: Tensor, weight_decay: float) -> Tensor:
    """The gradient, with the L2 penalty's."""
    assert param.grad is not None, "only parameters with a gradient are stepped"
    grad = param.grad
    return grad + param * weight_decay if weight_decay else grad


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's form as PyTorch defines them
    (Sutskever et al. 2013)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        if nesterov and (momentum <= 0 or dampening):
            raise ShapeError("Nesterov's form needs momentum and no dampening")
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.velocity = self._zeros() if momentum else {}
        self._started: set[int] = set()
        self._ready(self.velocity)

    def _update(self, active: list[Tensor]) -> list[Tensor]:
        states = []
        for param in active:
            grad = _gradient(param, self.weight_decay)
            if self.momentum:
                velocity = self.velocity[id(param)]
                # The first velocity is the gradient itself, undampened.
                fresh = grad * (1 - self.dampening) if id(param) in self._started else grad
                self._started.add(id(param))
                velocity.assign(velocity * self.momentum + fresh)
                grad = grad + velocity * self.momentum if self.nesterov else velocity
                states.append(velocity)
            param.assign(param - grad * self._rate(param))
        return states


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) as PyTorch defines it; `weight_decay` is an L2 penalty."""

    decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self.mean = self._zeros()
        self.square = self._zeros()
        # Parameters that made the same steps share a pair; without a gradient one does not age.
        self._age = dict.fromkeys(map(id, self.params), _Age(self._number(0.0), self._number(0.0)))
        self._ready(self.mean, self.square)

    def _update(self, active: list[Tensor]) -> list[Tensor]:
        first, second = self.betas
        states = self._grown(active)
        for param in active:
            grad = _gradient(param, 0.0 if self.decoupled else self.weight_decay)
            mean, square = self.mean[id(param)], self.square[id(param)]
            c1, c2 = (c.cast(acc_dtype(param.dtype)) for c in self._age[id(param)])
            rate = self._rate(param)
            mean.assign(mean * first + grad * (1 - first))
            square.assign(square * second + grad * grad * (1 - second))
            scale = (square / c2).sqrt() + self.eps
            old = param
            if self.decoupled and self.weight_decay:
                old = param * (1 - rate * self.weight_decay)
            param.assign(old - mean / c1 * rate / scale)
            states += [mean, square]
        return states

    def _grown(self, active: list[Tensor]) -> list[Tensor]:
        """Let the parameters age by one step; the tensors assigned to."""
        stepping = {id(param) for param in active}
        left_behind = {age for key, age in self._age.items() if key not in stepping}
        grown: dict[_Age, _Age] = {}
        for key in stepping:
            age = self._age[key]
            if age not in grown:
                grown[age] = _Age(*age) if age in left_behind else age
            self._age[key] = grown[age]
        for age in grown.values():
            for correction, beta in zip(age, self.betas, strict=True):
                # 1 - beta**t without cancellation, however close beta is to 1.
                correction.assign(correction * beta + (1 - beta))
        return [correction for age in grown.values() for correction in age]


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019)."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
