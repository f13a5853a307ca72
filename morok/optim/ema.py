"""Exponential moving averages of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from morok.dtype import acc_dtype
from morok.errors import ArgumentError
from morok.nn import state as states
from morok.tensor import Tensor, no_grad


class EMA:
    """Averages that follow tensors: after `update()`, average = decay * average + (1 - decay) *
    tensor, as PyTorch's `AveragedModel` with `get_ema_avg_fn(decay)`, but that the first update
    averages too. Averages of halves are float32.

    `tensors` are named (`nn.state.get_state_dict(model)`) or not; what is no float is copied.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor] | Iterable[Tensor], decay: float = 0.999
    ) -> None:
        if not 0 <= decay <= 1:
            raise ArgumentError(f"EMA: decay {decay} does not lie in 0 … 1")
        self.decay = decay
        self.tensors: dict[str, Tensor] = (
            dict(tensors)
            if isinstance(tensors, Mapping)
            else {str(i): tensor for i, tensor in enumerate(tensors)}
        )
        self.averages = {name: _wide(tensor).contiguous() for name, tensor in self.tensors.items()}
        Tensor.realize(*self.averages.values())

    def update(self) -> None:
        """Follow the tensors as they are now, in one schedule."""
        with no_grad():
            for name, average in self.averages.items():
                now = _wide(self.tensors[name])
                if now.dtype.kind == "f":
                    now = average * self.decay + now * (1.0 - self.decay)
                average.assign(now)
        Tensor.realize(*self.averages.values())

    def copy_to(self) -> None:
        """Give the tensors the averages' values."""
        with no_grad():
            for name, tensor in self.tensors.items():
                tensor.assign(self.averages[name].clone())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the tensors have the averages' values, afterwards their own again."""
        before = {name: tensor.detach().contiguous() for name, tensor in self.tensors.items()}
        Tensor.realize(*before.values())
        self.copy_to()
        try:
            yield
        finally:
            with no_grad():
                for name, tensor in self.tensors.items():
                    tensor.assign(before[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by name; the tensors are the object's own, not copies."""
        return dict(self.averages)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over averages; errors as of `nn.state.load_state_dict`."""
        states.load(self.averages, state_dict, strict=True)


def _wide(tensor: Tensor) -> Tensor:
    """A tensor as a constant; halves as float32, in which small changes add up."""
    wide = acc_dtype(tensor.dtype) if tensor.dtype.kind == "f" else tensor.dtype
    return tensor.detach().cast(wide)
