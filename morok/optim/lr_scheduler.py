"""Learning rates that change from step to step, with PyTorch's names, arguments and values.

A scheduler writes the optimizer's numbers in place, so that no step compiles anything new. `step()`
is called after every step of the optimizer, outside of functions under jit (which do not see what
Python computes).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morok.errors import ArgumentError
from morok.optim.optimizers import Optimizer
from morok.tensor import Tensor


class LRScheduler(ABC):
    """Base of the schedulers: the rate of a group after t steps is a function of t and of the rate
    the group had when its first scheduler was made (`initial_lr`)."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"].item())
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{type(self).__name__}: last_epoch={last_epoch} continues a schedule, but the "
                    'groups have no "initial_lr": load the optimizer\'s state first'
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self.step()

    @abstractmethod
    def rate(self, base: float, group: int) -> float:
        """The learning rate at `last_epoch` of a group that began with `base`."""

    def step(self) -> None:
        """One step more: the optimizer's rates are those of the next step."""
        self.last_epoch += 1
        self._apply()

    def _apply(self) -> None:
        self._last_lr = [self.rate(base, i) for i, base in enumerate(self.base_lrs)]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """The rates in use, one a group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule stands."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where the scheduler that gave this stood. ArgumentError for another number of
        groups, or what is missing."""
        missing = {"last_epoch", "base_lrs"} - state_dict.keys()
        if missing:
            raise ArgumentError(f"load_state_dict: missing {sorted(missing)}")
        bases = [float(base) for base in state_dict["base_lrs"]]
        if len(bases) != len(self.base_lrs):
            raise ArgumentError(
                f"load_state_dict: {len(bases)} groups of parameters, here are {len(self.base_lrs)}"
            )
        self.base_lrs = bases
        self.last_epoch = int(state_dict["last_epoch"])
        self._apply()


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step (one for all groups, or one a group)."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ArgumentError(f"LambdaLR: {len(self.lr_lambdas)} functions for {count} groups")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.lr_lambdas[group](self.last_epoch)


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, self.last_epoch)


class ExponentialLR(LRScheduler):
    """Times `gamma` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma**self.last_epoch


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes from `start_factor` to `end_factor` in
    `total_iters` steps: a warm-up."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(f"LinearLR: factors {start_factor} and {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        part = min(self.last_epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * part)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in `T_max` steps, and back, and so on
    (Loshchilov and Hutter 2017, without restarts)."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * wave


class SequentialLR(LRScheduler):
    """One scheduler after another, the next from each of the milestones on: `SequentialLR(opt,
    [LinearLR(opt, 0.01, total_iters=100), CosineAnnealingLR(opt, 900)], [100])` warms up."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) != len(milestones) + 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers and {len(milestones)} milestones: one "
                "milestone fewer is needed"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ArgumentError("SequentialLR: the schedulers belong to another optimizer")
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        turn = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[turn]
        scheduler.last_epoch = self.last_epoch - (self.milestones[turn - 1] if turn else 0)
        return scheduler.rate(scheduler.base_lrs[group], group)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to `max_lr` in the part `pct_start` of `total_steps`, then down
    to the first rate / final_div_factor; momentum (Adam's first beta) the other way round between
    `max_momentum` and `base_momentum` (Smith and Topin 2019). `anneal_strategy` is "cos" or
    "linear"; with `three_phase` it goes down to the first rate as long as it went up."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"OneCycleLR: anneal_strategy {anneal_strategy!r} is not cos or linear"
            )
        if total_steps < 1 or not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: total_steps={total_steps}, pct_start={pct_start}")
        groups = optimizer.param_groups
        tops = [max_lr] * len(groups) if isinstance(max_lr, int | float) else list(max_lr)
        if len(tops) != len(groups):
            raise ArgumentError(f"OneCycleLR: {len(tops)} rates for {len(groups)} groups")
        self.total_steps = total_steps
        self.momenta = (max_momentum, base_momentum) if cycle_momentum else None
        self.linear = anneal_strategy == "linear"
        turn = float(pct_start * total_steps) - 1
        # For each phase: its last step, and which of the rates and of the momenta it ends with.
        self.phases: list[tuple[float, tuple[int, int]]]
        if three_phase:
            self.phases = [(turn, (1, 1)), (2 * turn, (0, 0)), (total_steps - 1, (2, 0))]
        else:
            self.phases = [(turn, (1, 1)), (total_steps - 1, (2, 0))]
        self.rates = [(top / div_factor, top, top / div_factor / final_div_factor) for top in tops]
        for group, (first, _, _) in zip(groups, self.rates, strict=True):
            if last_epoch == -1:
                group["initial_lr"] = first
            if cycle_momentum:
                _check_momentum(group)
                group.vary("betas" if "betas" in group else "momentum")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return self._between(self.rates[group], 0)

    def _between(self, values: tuple[float, ...], which: int) -> float:
        """A value at this step; `which` of a phase's ends it goes by."""
        step = self.last_epoch
        if step >= self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {step} of {self.total_steps}: the cycle is over")
        begin, start = 0.0, values[0]
        for end, ends in self.phases:
            stop = values[ends[which]]
            if step <= end:
                break
            begin, start = end, stop
        part = (step - begin) / (end - begin) if end != begin else 1.0
        if self.linear:
            return start + (stop - start) * part
        return stop + (start - stop) / 2.0 * (1 + math.cos(math.pi * part))

    def _apply(self) -> None:
        super()._apply()
        if self.momenta is None:
            return
        momentum = self._between(self.momenta, 1)
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum


def _check_momentum(group: Mapping[str, Any]) -> None:
    """ArgumentError for a group without momentum and betas."""
    momentum = group.get("momentum", 0.0)
    if "betas" not in group and not isinstance(momentum, Tensor) and not momentum:
        raise ArgumentError("OneCycleLR: the optimizer has no momentum: pass cycle_momentum=False")
