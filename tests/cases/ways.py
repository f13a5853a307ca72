"""Ways to run a program of tensors: each gives the arrays of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morok as mk
from morok.tensor import Tensor
from morok.tensor.base import Base

Array = np.ndarray[Any, Any]
Program = Callable[..., list[Any]]


def lazily(program: Program, *arrays: Array) -> list[Array]:
    return [result.numpy() for result in program(*map(Tensor, arrays))]


def stepwise(program: Program, *arrays: Array) -> list[Array]:
    """Realised after every operation."""
    wrap, assign = Base._wrap.__func__, Tensor.assign
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Base, "_wrap", classmethod(lambda *a, **k: wrap(*a, **k).realize()))
        patch.setattr(Tensor, "assign", lambda self, value: assign(self, value).realize())
        return lazily(program, *arrays)


def third_call(program: Program, *arrays: Array) -> list[Array]:
    """Of a jitted function."""
    function = mk.jit(program)
    for _ in range(2):
        function(*map(Tensor, arrays))
    results = lazily(function, *arrays)
    assert function.replays == 1
    return results
