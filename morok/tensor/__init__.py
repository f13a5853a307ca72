"""Tensor: lazy arrays with gradients, the face users see."""

from morok.tensor import effects, memory, nodes, versions
from morok.tensor.base import all_tensors, enable_grad, fail, grad_mode, is_grad_enabled, no_grad
from morok.tensor.core import Tensor
from morok.tensor.prepared import Prepared
from morok.tensor.random import generator, initial_seed, manual_seed, state_after

__all__ = [
    "Prepared",
    "Tensor",
    "all_tensors",
    "effects",
    "enable_grad",
    "fail",
    "generator",
    "grad_mode",
    "initial_seed",
    "is_grad_enabled",
    "manual_seed",
    "memory",
    "no_grad",
    "nodes",
    "state_after",
    "versions",
]
