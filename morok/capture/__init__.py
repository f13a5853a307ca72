"""Functions of tensors: recorded and replayed (`jit`), or traced once into a body that is called
(`function`); and many computations compiled together (`compile`)."""

from morok.capture.bulk import Compiled, compile  # noqa: A004 - the public name
from morok.capture.callable import Function, function
from morok.capture.jitted import Jit, jit

__all__ = ["Compiled", "Function", "Jit", "compile", "function", "jit"]
