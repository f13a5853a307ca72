"""Tensor: lazy arrays with gradients, the face users see."""

from morok.tensor.base import all_tensors, enable_grad, is_grad_enabled, no_grad
from morok.tensor.core import Tensor
from morok.tensor.random import initial_seed, manual_seed

__all__ = [
    "Tensor",
    "all_tensors",
    "enable_grad",
    "initial_seed",
    "is_grad_enabled",
    "manual_seed",
    "no_grad",
]
