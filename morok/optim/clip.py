"""Gradients kept within bounds, as PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Iterable

from morok.errors import ArgumentError
from morok.tensor import Tensor, no_grad


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients together so that their norm, as of one vector, is at most `max_norm`.

    The norm before, a lazy 0-d tensor (0 where there are no gradients). `norm_type` is the power,
    or `math.inf`.
    """
    params = _with_gradient(parameters)
    if norm_type <= 0:
        raise ArgumentError(f"clip_grad_norm_: norm_type {norm_type} is no power")
    if not params:
        return Tensor(0.0)
    with no_grad():
        norms = [grad.norm(norm_type) for _, grad in params]
        whole = norms[0]
        if len(norms) > 1:
            parts = [norm if norm_type == math.inf else norm**norm_type for norm in norms]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole.maximum(part) if norm_type == math.inf else whole + part
            whole = whole if norm_type == math.inf else whole ** (1.0 / norm_type)
        factor = (max_norm / (whole + 1e-6)).clamp(max=1.0)
        for param, grad in params:
            param.grad = grad * factor.cast(grad.dtype)
    return whole


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of every gradient to -clip_value … clip_value."""
    with no_grad():
        for param, grad in _with_gradient(parameters):
            param.grad = grad.clamp(-clip_value, clip_value)


def _with_gradient(parameters: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """The parameters that have a gradient, each once, with it."""
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    found = {id(param): param for param in given}
    return [(param, param.grad) for param in found.values() if param.grad is not None]
