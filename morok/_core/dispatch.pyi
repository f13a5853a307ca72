"""Calls of recorded functions."""

from collections.abc import Callable
from typing import Any

from morok._core.replay import Capture

def dispatch_by(
    describe_value: Callable[[Flat, Any, str | None], None],
    thread_mode: Any,
    thread_record: Any,
    thread_trace: Any,
    current: Callable[[], object],
    watching: list[Any],
) -> None:
    """Where to ask: what takes apart values the core does not know; the thread's gradient mode
    (`enabled`), recording (`record`) and trace (`current`); the settings in force; who watches
    kernels."""

def enter_attributes(cls: type) -> None:
    """Instances of `cls` consist of what stands in their `__dict__`."""

class Flat:
    """Values taken apart.

    key      structure, classes, Python values; dtype, shape and being a leaf of each tensor. Lists,
             tuples, dicts and objects are entered; the same tensor or object met again is a
             reference to the first
    tensors  in order, each once
    opaque   objects that were not entered: they count by identity
    names    with `named`, where each tensor stands
    """

    key: list[Any]
    tensors: list[Any]
    opaque: list[Any]
    names: list[str]

    def __init__(self, named: bool = False) -> None: ...
    def add(self, value: Any, name: str | None = None) -> None:
        """Take a value, called `name`, apart."""

    def again(self, value: Any) -> bool:
        """Whether an object was met before; the key says so then. It must stay alive."""

class Dispatcher:
    """A callable that replays `latest` where it fits the arguments, and else asks `call`."""

    __wrapped__: Callable[..., Any]
    latest: Capture | None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that `latest` could not serve."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
