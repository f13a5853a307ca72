"""Optimisers: a step over all parameters is one schedule."""

from morok.optim.optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
