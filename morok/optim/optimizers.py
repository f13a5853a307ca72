"""What all optimisers share: groups of parameters, the step, and state in and out.

Everything that changes from step to step (the learning rate, how many steps were made, moments)
stands in tensors, so that every step is the same graph and the second step's kernels serve all
later ones. A step computes every new parameter and state and realises them together.

States of float16 and bfloat16 parameters are float32, and so is their *master*, the parameter
itself before it is rounded: small steps add up in it. A parameter that somebody else wrote since
the last step is no longer what its master rounds to; its master then starts again from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from morok.dtype import DType, acc_dtype, dtypes
from morok.errors import ArgumentError
from morok.nn import state as states
from morok.tensor import Tensor, no_grad

Params = Iterable[Tensor] | Iterable[Mapping[str, Any]]
Number = float | Tensor


def number(value: Number) -> Tensor:
    """A number that may change from step to step: one in memory, as precise as Python's."""
    return value if isinstance(value, Tensor) else Tensor(value, dtype=dtypes.float64)


class ParamGroup(dict[str, Any]):
    """Parameters and their options. A number put in the place of one that stands in a tensor
    changes that tensor in place."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _put(self.get(name), value))

    def vary(self, name: str) -> None:
        """Have an option stand in a tensor, so that changing it compiles nothing new."""
        value = self[name]
        made = tuple(map(number, value)) if isinstance(value, tuple) else number(value)
        super().__setitem__(name, made)


def _put(held: Any, value: Any) -> Any:
    """What stands where `held` stood when `value` is written there."""
    if isinstance(held, tuple) and isinstance(value, tuple | list) and len(held) == len(value):
        return tuple(_put(h, v) for h, v in zip(held, value, strict=True))
    if not isinstance(held, Tensor):
        return value
    with no_grad():
        return held.assign(number(value))


def _plain(value: Any) -> Any:
    """An option as Python numbers."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, Tensor) else value


class Age:
    """How many steps parameters have made, and powers of numbers to that many, all in tensors.

    Powers are multiplied up from step to step, which is exact enough in float64 and costs nothing;
    the base None stands for one that varies, whose power is not kept.
    """

    def __init__(self, steps: float, bases: tuple[float | None, ...]) -> None:
        self.bases = bases
        self.step = Tensor(steps, dtype=dtypes.float32)
        self.powers = [None if base is None else number(base**steps) for base in bases]

    def tensors(self) -> list[Tensor]:
        return [self.step, *(power for power in self.powers if power is not None)]

    def fork(self) -> Age:
        """Another of the same age."""
        made = Age.__new__(Age)
        made.bases = self.bases
        made.step = self.step.clone()
        made.powers = [None if power is None else power.clone() for power in self.powers]
        return made

    def rebase(self, bases: tuple[float | None, ...]) -> None:
        """Powers of other numbers to the same."""
        if bases != self.bases:
            steps = self.step.cast(dtypes.float64)
            self.powers = [None if base is None else base**steps for base in bases]
            self.bases = bases

    def grow(self) -> None:
        """One step more."""
        self.step.assign(self.step + 1.0)
        for base, power in zip(self.bases, self.powers, strict=True):
            if base is not None and power is not None:
                power.assign(power * base)


class Optimizer(ABC):
    """Base of the optimisers.

    `params` are tensors, or groups of them: dicts with "params" and the options that differ. The
    parameters that require gradients are taken, each once, and realised, so that the first step
    already has the form of all others. ArgumentError when there are none, or when an option is
    unknown.
    """

    counts_steps = False
    """Whether the update needs to know how many steps a parameter has made."""

    def __init__(self, params: Params, lr: Number, **options: Any) -> None:
        defaults = {"lr": lr, **options}
        self.param_groups: list[ParamGroup] = []
        self.state: dict[int, dict[str, Tensor]] = {}  # by the parameter's id
        taken: set[int] = set()
        for given in _groups(params):
            unknown = given.keys() - defaults.keys() - {"params"}
            if unknown:
                raise ArgumentError(
                    f"an option of {type(self).__name__} is unknown: {sorted(unknown)}"
                )
            group = ParamGroup(defaults | dict(given))
            mine = {id(p): p for p in _listed(given["params"]) if p.requires_grad}
            if taken & mine.keys():
                raise ArgumentError("a parameter stands in two groups of an optimizer")
            taken |= mine.keys()
            dict.__setitem__(group, "params", list(mine.values()))
            group.vary("lr")
            self._check(group)
            self.param_groups.append(group)
        self.params: list[Tensor] = [p for g in self.param_groups for p in g["params"]]
        if not self.params:
            raise ArgumentError(
                "an optimizer needs parameters that require gradients: there are none"
            )
        self._ages: dict[int, Age] = {}  # by the parameter's id; shared by all that are as old
        for group in self.param_groups:
            age = Age(0, self._bases(group))
            for param in group["params"]:
                self.state[id(param)] = self._new_state(group, param, age)
        Tensor.realize(*self.params, *self._tensors(self.params))

    # what differs between optimisers --------------------------------------------------------------

    def _check(self, group: ParamGroup) -> None:
        """ArgumentError where options do not go together."""
        return

    def _zeros(self, group: ParamGroup) -> tuple[str, ...]:
        """The names of the states of a parameter that start as zeros."""
        return ()

    def _bases(self, group: ParamGroup) -> tuple[float | None, ...]:
        """The numbers whose powers to the number of steps the update needs."""
        return ()

    @abstractmethod
    def _update(self, group: ParamGroup, params: list[Tensor]) -> None:
        """Assign new values to the parameters and to their states."""

    # stepping ------------------------------------------------------------------------------------

    @property
    def lr(self) -> Tensor:
        """The learning rate (of the first group), a 0-d tensor; a number assigned changes that of
        every group in place."""
        rate: Tensor = self.param_groups[0]["lr"]
        return rate

    @lr.setter
    def lr(self, value: Number) -> None:
        for group in self.param_groups:
            group["lr"] = value

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
            groups = [
                (group, [param for param in group["params"] if param.grad is not None])
                for group in self.param_groups
            ]
            for group, params in groups:
                if params and self.counts_steps:
                    self._count(group, params)
                if params:
                    self._update(group, params)
            grads = [param.grad for param in active if param.grad is not None]
            Tensor.realize(*active, *self._tensors(active), *grads)

    def _tensors(self, params: list[Tensor]) -> list[Tensor]:
        """All states of parameters."""
        found = [t for param in params for t in self.state[id(param)].values()]
        ages = {self._ages[id(param)] for param in params if id(param) in self._ages}
        return found + [tensor for age in ages for tensor in age.tensors()]

    def _count(self, group: ParamGroup, params: list[Tensor]) -> None:
        """One step more for each parameter. Those that made the same steps share their age; one
        that is left out gets its own."""
        stepping = {id(param) for param in params}
        behind = {age for key, age in self._ages.items() if key not in stepping}
        grown: dict[Age, Age] = {}
        for key in stepping:
            before = self._ages[key]
            if before not in grown:
                after = before.fork() if before in behind else before
                after.rebase(self._bases(group))
                after.grow()
                grown[before] = after
            self._set_age(key, self.state[key], grown[before])

    def _set_age(self, key: int, state: dict[str, Tensor], age: Age) -> None:
        self._ages[key] = age
        state["step"] = age.step

    def _gradient(self, param: Tensor, decay: float = 0.0) -> Tensor:
        """The gradient in the dtype of the states, with an L2 penalty's."""
        assert param.grad is not None, "only parameters with a gradient are stepped"
        grad = param.grad.cast(acc_dtype(param.dtype))
        return grad + self._value(param) * decay if decay else grad

    def _value(self, param: Tensor) -> Tensor:
        """A parameter as it was before it was rounded."""
        master = self.state[id(param)].get("master")
        if master is None:
            return param
        return master.cast(param.dtype).eq(param).where(master, param.cast(master.dtype))

    def _write(self, param: Tensor, value: Tensor) -> None:
        """Give a parameter a new value."""
        master = self.state[id(param)].get("master")
        if master is not None:
            master.assign(value)
        param.assign(value.cast(param.dtype))

    def _new_state(self, group: ParamGroup, param: Tensor, age: Age) -> dict[str, Tensor]:
        """The state of a parameter that has made no step."""
        work = acc_dtype(param.dtype)
        made: dict[str, Tensor] = {}
        if self.counts_steps:
            self._set_age(id(param), made, age)
        made |= {name: _memory(param.shape, work) for name in self._zeros(group)}
        if work is not param.dtype:
            made["master"] = param.detach().cast(work)
        return made

    # state in and out ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """{"state": number of a parameter -> name -> tensor, "param_groups": options and numbers},
        with PyTorch's names. The tensors are the optimizer's own, not copies."""
        numbers = {id(param): i for i, param in enumerate(self.params)}
        return {
            "state": {numbers[key]: dict(state) for key, state in self.state.items() if state},
            "param_groups": [
                {
                    name: [numbers[id(p)] for p in value] if name == "params" else _plain(value)
                    for name, value in group.items()
                }
                for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where the optimizer that gave this `state_dict` stood (PyTorch's own will do).

        Tensors, arrays and PyTorch's tensors are copied. A parameter without an entry has made no
        step; a missing "master" is made from the parameter. Errors leave everything as it was:
        ArgumentError for groups, parameters or states that are missing or too many, ShapeError for
        misshapen ones, DTypeError for values of another kind.
        """
        groups, entries = _sections(state_dict)
        if len(groups) != len(self.param_groups):
            raise ArgumentError(
                f"load_state_dict: {len(groups)} groups of parameters, here are "
                f"{len(self.param_groups)}"
            )
        options = [
            self._options(own, given, i)
            for i, (own, given) in enumerate(zip(self.param_groups, groups, strict=True))
        ]
        order = [number for given in groups for number in given["params"]]
        extra = entries.keys() - set(order)
        if extra or len(set(order)) != len(order):
            raise ArgumentError(f"load_state_dict: states {sorted(extra)} belong to no parameter")
        loaded = [
            self._loaded(param, entries.get(number, {}), number)
            for number, param in zip(order, self.params, strict=True)
        ]
        with no_grad():
            for own, changed in zip(self.param_groups, options, strict=True):
                for name, value in changed.items():
                    own[name] = value
            of_param = iter(loaded)
            for group in self.param_groups:
                ages: dict[float, Age] = {}
                for param in group["params"]:
                    state, values = self.state[id(param)], next(of_param)
                    if "step" in values:
                        steps = values.pop("step").item()
                        age = ages.setdefault(steps, Age(steps, self._bases(group)))
                        self._set_age(id(param), state, age)
                    for name, value in values.items():
                        state[name].assign(value)
            Tensor.realize(*self.params, *self._tensors(self.params))

    def _options(self, own: ParamGroup, given: Mapping[str, Any], place: int) -> dict[str, Any]:
        """The options of a group to take over."""
        name = f"load_state_dict: group {place}"
        if len(given["params"]) != len(own["params"]):
            raise ArgumentError(
                f"{name} has {len(given['params'])} parameters, here are {len(own['params'])}"
            )
        known = own.keys() - {"params"}
        missing = known - given.keys()
        # What PyTorch has and we have not is harmless when it is off.
        extra = {k for k, v in given.items() if k not in own and v and k not in _HARMLESS}
        if missing or extra:
            raise ArgumentError(f"{name}: missing {sorted(missing)}, unknown {sorted(extra)}")
        taken = {k: v for k, v in given.items() if k in known or k == "initial_lr"}
        changed = ParamGroup(own)
        changed.update(taken)
        self._check(changed)
        return taken

    def _loaded(self, param: Tensor, given: Mapping[str, Any], number: int) -> dict[str, Tensor]:
        """The state to give a parameter, checked."""
        own = self.state[id(param)]
        if not given:
            fresh = {name: _memory(value.shape, value.dtype) for name, value in own.items()}
            return fresh | ({"master": param.detach()} if "master" in own else {})
        # PyTorch's SGD says None where there is no velocity yet.
        given = {name: value for name, value in given.items() if value is not None}
        if "master" in own:
            given = {"master": param.detach(), **given}
        if given.keys() != own.keys():
            raise ArgumentError(
                f"load_state_dict: state of parameter {number}: missing "
                f"{sorted(own.keys() - given.keys())}, unknown {sorted(given.keys() - own.keys())}"
            )
        where = f"load_state_dict: state of parameter {number}: "
        return {name: states.fitting(where + name, own[name], given[name]) for name in own}


_HARMLESS = frozenset({"initial_lr", "decoupled_weight_decay", "foreach", "fused", "capturable"})
"""Options of PyTorch that change nothing here."""


def _groups(params: Params) -> list[Mapping[str, Any]]:
    given = list(params)
    groups = [each for each in given if isinstance(each, Mapping)]
    if not groups or len(groups) < len(given):
        return [{"params": given}]
    for group in groups:
        if "params" not in group:
            raise ArgumentError('a group of parameters is a dict with "params"')
    return groups


def _listed(params: Any) -> list[Tensor]:
    """The parameters of a group, which may be one tensor."""
    listed = [params] if isinstance(params, Tensor) else list(params)
    for each in listed:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"an optimizer steps tensors, not {type(each).__name__}")
    return listed


def _sections(state_dict: Mapping[str, Any]) -> tuple[list[Any], dict[Any, Any]]:
    """The groups and the states by number."""
    missing = {"state", "param_groups"} - state_dict.keys()
    if missing:
        raise ArgumentError(f"load_state_dict: missing {sorted(missing)}")
    groups = list(state_dict["param_groups"])
    if any("params" not in group for group in groups):
        raise ArgumentError('load_state_dict: a group of parameters without "params"')
    return groups, dict(state_dict["state"])


def _memory(shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Zeros in memory of their own."""
    return Tensor(np.zeros(shape, np.float32), dtype=dtype)
