"""Recording functions of tensors and replaying them: `jit`."""

from morok.capture.function import Jit, jit

__all__ = ["Jit", "jit"]
