"""Functions of tensors: recorded and replayed (`jit`), or traced once into a body that is called
(`function`)."""

from morok.capture.callable import Function, function
from morok.capture.jitted import Jit, jit

__all__ = ["Function", "Jit", "function", "jit"]
