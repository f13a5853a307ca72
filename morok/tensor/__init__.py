"""Tensor: lazy arrays with gradients, the face users see."""

from morok.tensor import bodies, effects, memory, nodes, tracing, versions
from morok.tensor.base import all_tensors, enable_grad, fail, grad_mode, is_grad_enabled, no_grad
from morok.tensor.core import Tensor
from morok.tensor.prepared import Prepared
from morok.tensor.provenance import stamp
from morok.tensor.random import generator, initial_seed, manual_seed, state_after
from morok.tensor.variable import Variable

__all__ = [
    "Prepared",
    "Tensor",
    "Variable",
    "all_tensors",
    "bodies",
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
    "stamp",
    "state_after",
    "tracing",
    "versions",
]
