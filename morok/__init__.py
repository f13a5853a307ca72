"""morok: a tensor compiler. `import morok as mk`.

The names below are loaded at their first use, so importing the package alone is quick, and the
tools run even where the compiled core does not load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from morok import config, errors
from morok.caches import cache_info, clear_caches
from morok.dtype import DType, dtypes

if TYPE_CHECKING:
    from morok import nn, optim
    from morok.capture import compile, function, jit  # noqa: A004 - the public name
    from morok.engine import watch_schedules
    from morok.ir import RuleSet, Trace, UOp, graph_rewrite, when
    from morok.runtime import Device
    from morok.symbolic import simplify
    from morok.tensor import (
        Tensor,
        Variable,
        enable_grad,
        initial_seed,
        is_grad_enabled,
        manual_seed,
        no_grad,
    )

__version__ = "0.1.0"
__all__ = [
    "DType",
    "Device",
    "RuleSet",
    "Tensor",
    "Trace",
    "UOp",
    "Variable",
    "cache_info",
    "clear_caches",
    "compile",
    "config",
    "dtypes",
    "enable_grad",
    "errors",
    "function",
    "graph_rewrite",
    "initial_seed",
    "is_grad_enabled",
    "jit",
    "manual_seed",
    "nn",
    "no_grad",
    "optim",
    "simplify",
    "watch_schedules",
    "when",
]

_MODULES = ("nn", "optim")
_NAMES = {
    "morok.capture": ("compile", "function", "jit"),
    "morok.engine": ("watch_schedules",),
    "morok.ir": ("RuleSet", "Trace", "UOp", "graph_rewrite", "when"),
    "morok.runtime": ("Device",),
    "morok.symbolic": ("simplify",),
    "morok.tensor": (
        "Tensor",
        "Variable",
        "enable_grad",
        "initial_seed",
        "is_grad_enabled",
        "manual_seed",
        "no_grad",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"morok.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'morok' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
