"""Optimisers: a step over all parameters is one schedule."""

from morok.optim import lr_scheduler
from morok.optim.algorithms import SGD, Adam, AdamW
from morok.optim.clip import clip_grad_norm_, clip_grad_value_
from morok.optim.ema import EMA
from morok.optim.optimizers import Optimizer, ParamGroup

__all__ = [
    "EMA",
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "ParamGroup",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]
