"""Recurrent layers: a state that goes through a sequence. Arguments, defaults and names are
PyTorch's.

A sequence is walked step by step in Python, so that its length is the depth of the graph; what does
not depend on the state (the inputs' part of all gates) is one product for all steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from morok.dtype import DType
from morok.errors import ArgumentError, ShapeError
from morok.nn.layers import uniform
from morok.tensor import Tensor

State = tuple[Tensor, ...]


class _Recurrent(ABC):
    """What LSTM and GRU share: weights, layers, directions.

    Layer k has `weight_ih_lk` (gates * hidden, in), `weight_hh_lk` (gates * hidden, hidden) and
    with `bias` two biases; `_reverse` is appended for the way back.
    """

    gates = 0
    states = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DType | None = None,
    ) -> None:
        if num_layers < 1 or not 0 <= dropout <= 1:
            raise ArgumentError(
                f"{type(self).__name__}: num_layers={num_layers}, dropout={dropout}"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.training = True
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * len(self._ways())
            for way in self._ways():
                for kind, columns in (("ih", width), ("hh", hidden_size)):
                    weight = uniform((rows, columns), hidden_size, dtype)
                    setattr(self, f"weight_{kind}_l{layer}{way}", weight)
                for kind in ("ih", "hh") if bias else ():
                    setattr(
                        self, f"bias_{kind}_l{layer}{way}", uniform((rows,), hidden_size, dtype)
                    )

    def _ways(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _weights(self, layer: int, way: str) -> tuple[Any, ...]:
        """The weights and biases (or None) of a layer in one direction."""
        names = (f"{name}_l{layer}{way}" for name in ("weight_ih", "weight_hh"))
        biases = (f"{name}_l{layer}{way}" for name in ("bias_ih", "bias_hh"))
        return (
            *(getattr(self, name) for name in names),
            *(getattr(self, name) if self.bias else None for name in biases),
        )

    @abstractmethod
    def _step(self, given: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        """The state after a step; `given` is the inputs' part of the gates, (n, gates * hidden)."""

    def _walk(self, x: Tensor, state: State, layer: int, way: str) -> tuple[list[Tensor], State]:
        """The outputs (n, hidden) of all steps of (length, n, width), in order, and the last
        state."""
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights(layer, way)
        given = x.linear(weight_ih, bias_ih).unbind(0)
        outputs = []
        for each in reversed(given) if way else given:
            state = self._step(each, state, weight_hh, bias_hh)
            outputs.append(state[0])
        return outputs[::-1] if way else outputs, state

    def _run(self, x: Tensor, given: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """The outputs in the form of the input, and the last states, (layers * ways, n, hidden)
        each."""
        name = type(self).__name__
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: an input of shape {x.shape}: (length, n, {self.input_size}), "
                f"batch_first (n, length, {self.input_size}), or one sequence (length, "
                f"{self.input_size}) is needed"
            )
        single = x.ndim == 2
        if single:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        size = (x.shape[1], self.hidden_size)
        if x.shape[0] == 0:
            raise ShapeError(f"{name}: a sequence of length 0")
        rows = self.num_layers * len(self._ways())
        starts = self._starts(name, x, given, rows, single)
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer:
                x = x.dropout(self.dropout, self.training)
            both = []
            for way in self._ways():
                state = tuple(start[len(last)] for start in starts)
                outputs, state = self._walk(x, state, layer, way)
                both.append(outputs)
                last.append(state)
            steps = [
                at[0] if len(at) == 1 else at[0].cat(at[1], dim=1) for at in zip(*both, strict=True)
            ]
            x = steps[0].stack(*steps[1:], dim=0)
        ends = [
            states[0].stack(*states[1:], dim=0).reshape(rows, *size)
            for states in zip(*last, strict=True)
        ]
        if single:
            return x.squeeze(1), [end.squeeze(1) for end in ends]
        return (x.transpose(0, 1) if self.batch_first else x), ends

    def _starts(
        self, name: str, x: Tensor, given: Sequence[Tensor] | None, rows: int, single: bool
    ) -> list[Tensor]:
        """The states to begin with, (rows, n, hidden) each."""
        shape = (rows, x.shape[1], self.hidden_size)
        if given is None:
            return [Tensor.zeros(*shape, dtype=x.dtype) for _ in range(self.states)]
        starts = [start.unsqueeze(1) if single and start.ndim == 2 else start for start in given]
        if [start.shape for start in starts] != [shape] * self.states:
            raise ShapeError(
                f"{name}: states of shapes {', '.join(str(start.shape) for start in given)}: "
                f"{self.states} of shape {shape} are needed"
            )
        return starts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_size}, {self.hidden_size})"


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates).

    `lstm(x, (h0, c0))` -> outputs, (h_n, c_n), for x of shape (length, n, in), with `batch_first`
    (n, length, in), or (length, in); states are (layers * directions, n, hidden), zeros if they are
    not given. `dropout` is put between layers in training.
    """

    gates = 4
    states = 2

    def __call__(
        self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs, (h, c) = self._run(x, hx)
        return outputs, (h, c)

    def _step(self, given: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        h, c = state
        inner, forget, new, out = (given + h.linear(weight, bias)).chunk(4, -1)
        c = forget.sigmoid() * c + inner.sigmoid() * new.tanh()
        return out.sigmoid() * c.tanh(), c


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014, with the reset gate behind the product).

    `gru(x, h0)` -> outputs, h_n; shapes as of `LSTM`.
    """

    gates = 3
    states = 1

    def __call__(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, (h,) = self._run(x, None if hx is None else (hx,))
        return outputs, h

    def _step(self, given: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        (h,) = state
        reset, update, new = given.chunk(3, -1)
        own_reset, own_update, own_new = h.linear(weight, bias).chunk(3, -1)
        update = (update + own_update).sigmoid()
        new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
        return (new + update * (h - new),)
