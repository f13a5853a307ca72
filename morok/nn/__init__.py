"""Neural network modules: plain classes that hold tensors."""

from morok.nn import state
from morok.nn.layers import Conv2d, Linear

__all__ = ["Conv2d", "Linear", "state"]
