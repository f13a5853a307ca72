"""Neural network modules: plain classes that hold tensors."""

from morok.nn import init, state
from morok.nn.layers import Conv1d, Conv2d, Embedding, Linear
from morok.nn.modes import evaluate, evaluating, train
from morok.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
)

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "evaluate",
    "evaluating",
    "init",
    "state",
    "train",
]
